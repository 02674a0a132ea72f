//! A Homa host whose one thread both sends and answers, by one [`Socket`].
//!
//! Client and server threads of a host wait at the same endpoint, and the one that leads takes what comes for the other, too: every
//! second packet wakes two threads. Where hosts share processors that is a quarter of what short RPCs cost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use homa::{Arrival, Host, Outcome, RecvError, ServerAddr, Socket};

use crate::bench::link::{Answer, Link};
use crate::serve::FIRST_HOMA_PORT;
use crate::tcp::server::one_way_answer;

/// How often the thread that only answers looks whether another is to do so.
const RELIEF_CHECK: Duration = Duration::from_millis(10);

/// Answers that are taken before the generator has its turn to send.
const BATCH: usize = 64;

/// The host's socket, and who receives from it: a thread that only answers, or a [link](OneThread::link) whose load runs.
pub struct OneThread {
    shared: Arc<Shared>,
    answering: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    socket: Socket,
    one_way: bool,
    served: AtomicU64,
    relieved: AtomicBool,
    /// Outcomes that came while nobody's load ran: of RPCs that their load gave up.
    late: Mutex<Vec<Answer>>,
}

/// While it lives, a link receives what comes to the host, and nobody else does.
pub struct Turn<'a>(&'a OneThread);

impl OneThread {
    /// Opens the server port of a host and answers there.
    ///
    /// # Errors
    /// The port cannot be opened, or there is no thread to be had.
    pub fn start(host: &Host, one_way: bool) -> Result<OneThread> {
        let port = FIRST_HOMA_PORT;
        let socket = host.socket(Some(port)).with_context(|| format!("cannot open Homa port {port}"))?;
        let shared = Shared {
            socket,
            one_way,
            served: AtomicU64::new(0),
            relieved: AtomicBool::new(false),
            late: Mutex::default(),
        };
        let one = OneThread { shared: Arc::new(shared), answering: Mutex::default() };
        one.answer()?;
        Ok(one)
    }

    /// Its client port, with the way to these servers. Answers come only in a [turn](OneThread::turn).
    pub fn link(&self, servers: Vec<ServerAddr>) -> Box<dyn Link> {
        Box::new(SocketLink { shared: Arc::clone(&self.shared), servers })
    }

    /// Waits until the thread that only answers has left the socket.
    pub fn turn(&self) -> Turn<'_> {
        self.shared.relieved.store(true, Ordering::Relaxed);
        if let Some(thread) = self.answering().take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Turn(self)
    }

    fn answering(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that only answers.
    fn answer(&self) -> Result<()> {
        self.shared.relieved.store(false, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("homa-server-0".to_owned());
        let thread = thread.spawn(move || shared.answer_until_relieved()).context("cannot start a thread")?;
        *self.answering() = Some(thread);
        Ok(())
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        self.turn();
        self.shared.socket.close();
    }
}

impl Turn<'_> {
    /// Hands the socket back.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn end(self) -> Result<()> {
        self.0.answer()
    }
}

impl Shared {
    fn answer_until_relieved(&self) {
        while !self.relieved.load(Ordering::Relaxed) {
            match self.socket.recv(Some(RELIEF_CHECK)) {
                Ok(Arrival::Outcome(outcome)) => self.late().push(answer(outcome)),
                Ok(arrival) => self.reply(arrival),
                Err(RecvError::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    fn late(&self) -> std::sync::MutexGuard<'_, Vec<Answer>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request. What else there may be are ends of answers that were lent, and none is.
    fn reply(&self, arrival: Arrival) {
        let Arrival::Request { mut rpc, .. } = arrival else { return };
        self.served.fetch_add(1, Ordering::Relaxed);
        let request = rpc.take_request();
        let response: Bytes = if self.one_way { one_way_answer(&request) } else { request };
        // An error means that the client gave up, or that we are at a limit: in both cases it learns by itself.
        let _ = rpc.reply(response);
    }
}

fn answer(outcome: Outcome) -> Answer {
    let result = outcome.result.map_err(|error| error.to_string());
    Answer { cookie: outcome.cookie, at: Instant::now(), result }
}

struct SocketLink {
    shared: Arc<Shared>,
    servers: Vec<ServerAddr>,
}

impl Link for SocketLink {
    fn submit(&mut self, _port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        let sent = self.shared.socket.start(self.servers[server], request, cookie, false);
        sent.map(drop).map_err(|error| error.to_string())
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        answers.append(&mut self.shared.late());
        let (before, begin) = (answers.len(), Instant::now());
        let mut left = if answers.is_empty() { wait } else { Duration::ZERO };
        loop {
            match self.shared.socket.recv(Some(left)) {
                Ok(Arrival::Outcome(outcome)) => answers.push(answer(outcome)),
                Ok(arrival) => self.shared.reply(arrival),
                Err(RecvError::TimedOut) => return Ok(()),
                Err(error) => bail!("{error}"),
            }
            left = Duration::ZERO;
            if answers.len() - before < BATCH && self.shared.socket.has_arrival() {
                continue;
            }
            left = wait.saturating_sub(begin.elapsed());
            if answers.len() > before || left.is_zero() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use homa::HostConfig;

    use super::*;
    use crate::bench::link::check_all_come_back;

    fn host() -> Host {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Host::bind(HostConfig { bind, ..HostConfig::default() }).expect("a host")
    }

    #[test]
    fn two_hosts_of_one_thread_each_answer_each_other() {
        for one_way in [false, true] {
            let hosts = [host(), host()];
            let sides = hosts.each_ref().map(|host| OneThread::start(host, one_way).expect("a port"));
            let to =
                hosts.each_ref().map(|host| ServerAddr { host: host.local_addr(), port: FIRST_HOMA_PORT });
            thread::scope(|scope| {
                for (side, other) in [(&sides[0], to[1]), (&sides[1], to[0])] {
                    scope.spawn(move || {
                        let turn = side.turn();
                        check_all_come_back(side.link(vec![other; 2]).as_mut(), 4, one_way);
                        turn.end().expect("a thread");
                    });
                }
            });
            let served = sides.each_ref().map(|side| side.shared.served.load(Ordering::Relaxed));
            assert_eq!(served, [40; 2]);
        }
    }

    #[test]
    fn what_came_after_its_load_is_there_in_the_next() {
        let (near, far) = (host(), host());
        let (side, other) =
            (OneThread::start(&near, false).expect("a port"), OneThread::start(&far, false).expect("a port"));
        let to = ServerAddr { host: far.local_addr(), port: FIRST_HOMA_PORT };
        let mut link = side.link(vec![to]);
        link.submit(0, 0, 7, Bytes::from_static(b"late")).expect("taken");
        while side.shared.late().is_empty() {
            thread::yield_now();
        }
        let turn = side.turn();
        let mut answers = Vec::new();
        link.receive(Duration::from_secs(30), &mut answers).expect("the link holds");
        assert_eq!(answers.iter().map(|answer| answer.cookie).collect::<Vec<_>>(), [7]);
        turn.end().expect("a thread");
        assert_eq!(other.shared.served.load(Ordering::Relaxed), 1);
    }
}
