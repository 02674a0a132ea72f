//! The client ports of one thread over Homa.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use homa::{Completion, CompletionQueue, Host, HostConfig, ServerAddr};

use crate::engine::link::{Answer, Link, take_from};
use crate::recording::RecordedHost;
use crate::tcp::IdlePolling;

/// Interval at which a receiver thread checks whether its link was dropped.
const RECEIVER_CHECK: Duration = Duration::from_millis(100);

/// Maximum number of responses to receive from one port before it is the next port's turn.
const BATCH: usize = 64;

/// Opens one client port on its own new host.
pub fn open_at(config: HostConfig, servers: &[ServerAddr]) -> Result<Box<dyn Link>> {
    let poll = config.poll;
    let host = Host::builder().config(config).bind().context("cannot make a Homa client")?;
    let host = Arc::new(RecordedHost::without(&Arc::new(host)));
    Ok(Box::new(HomaLink::new(vec![host], servers, 0, poll)?))
}

/// Opens client ports on an existing host. With `receivers` > 0, that many threads receive the responses of
/// each port; with 0, the caller receives them.
pub fn open_on(
    host: &Arc<Host>,
    ports: usize,
    servers: &[ServerAddr],
    receivers: usize,
    poll: Duration,
) -> Result<Box<dyn Link>> {
    let host = Arc::new(RecordedHost::without(host));
    Ok(Box::new(HomaLink::new(vec![host; ports], servers, receivers, poll)?))
}

/// Client ports on Homa hosts.
pub(crate) struct HomaLink {
    queues: Vec<CompletionQueue>,
    /// The calls that each port sends on the next flush.
    calls: Vec<Vec<(ServerAddr, Bytes, u64)>>,
    /// Calls that a port refused.
    refused: Vec<Answer>,
    /// Reused buffer for the completions of a port.
    completions: Vec<Completion>,
    servers: Vec<ServerAddr>,
    /// Responses from the receiver threads, if there are any.
    receivers: Option<mpsc::Receiver<Result<Answer, String>>>,
    spin: IdlePolling,
    gone: Arc<AtomicBool>,
    /// Keeps the hosts alive: their ports end with them.
    hosts: Vec<Arc<RecordedHost>>,
}

impl HomaLink {
    /// Opens one port on each of `hosts`.
    pub(crate) fn new(
        hosts: Vec<Arc<RecordedHost>>,
        servers: &[ServerAddr],
        receivers: usize,
        poll: Duration,
    ) -> Result<HomaLink> {
        let open = |recorded: &Arc<RecordedHost>| Ok(recorded.host.client()?.completions());
        let queues = hosts.iter().map(open).collect::<Result<Vec<_>>>()?;
        let gone = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        for queue in &queues {
            for _ in 0..receivers {
                let (queue, sender, gone) = (queue.clone(), sender.clone(), Arc::clone(&gone));
                thread::Builder::new()
                    .name("homa-receiver".to_owned())
                    .spawn(move || receive_all(&queue, &sender, &gone))
                    .context("cannot start a thread")?;
            }
        }
        let receivers = (receivers > 0).then_some(receiver);
        let servers = servers.to_vec();
        Ok(HomaLink {
            calls: queues.iter().map(|_| Vec::new()).collect(),
            refused: Vec::new(),
            completions: Vec::with_capacity(BATCH),
            queues,
            servers,
            receivers,
            spin: IdlePolling::new(poll),
            gone,
            hosts,
        })
    }

    /// Waits for responses from the receiver threads. Polls before it sleeps, as those threads do.
    fn receive_handed_over(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        let Some(receivers) = &self.receivers else { return Ok(()) };
        let (before, begin) = (answers.len(), Instant::now());
        loop {
            let left = wait.saturating_sub(begin.elapsed());
            let timeout = self.spin.timeout(Some(left)).unwrap_or_default().min(left);
            take_from(receivers, timeout, answers)?;
            if answers.len() > before {
                self.spin.record_work();
                return Ok(());
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }
}

impl Link for HomaLink {
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        self.calls[port].push((self.servers[server], request, cookie));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        for (queue, calls) in self.queues.iter().zip(&mut self.calls) {
            queue.submit_all(calls, |cookie, error| {
                let result = Err(error.to_string());
                self.refused.push(Answer { cookie, at: Instant::now(), result });
            });
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        if !self.refused.is_empty() {
            answers.append(&mut self.refused);
            return Ok(());
        }
        if self.receivers.is_some() {
            return self.receive_handed_over(wait, answers);
        }
        // With one port, the host polls and sleeps as configured. With several ports, a thread cannot sleep
        // on all of them, and the generator does not request it.
        let wait = if self.queues.len() == 1 { wait } else { Duration::ZERO };
        for queue in &self.queues {
            // An error means a timeout without responses, or a closed host, which the next send reports.
            let _ = queue.recv().timeout(wait).wait_batch(BATCH, &mut self.completions);
            answers.extend(self.completions.drain(..).map(answer));
        }
        Ok(())
    }

    fn packets(&self) -> Option<u64> {
        let counts = self.hosts.iter().map(|recorded| recorded.host.metrics().driver);
        Some(counts.map(|driver| driver.packets_out + driver.packets_in).sum())
    }
}

impl Drop for HomaLink {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

fn answer(completion: Completion) -> Answer {
    let result = completion.result.map_err(|error| error.to_string());
    Answer { cookie: completion.cookie, at: Instant::now(), result }
}

fn receive_all(queue: &CompletionQueue, answers: &mpsc::Sender<Result<Answer, String>>, gone: &AtomicBool) {
    while !gone.load(Ordering::Relaxed) {
        if let Ok(completion) = queue.recv().timeout(RECEIVER_CHECK).wait() {
            // Sending fails only if the link has been dropped.
            let _ = answers.send(Ok(answer(completion)));
        }
    }
}
