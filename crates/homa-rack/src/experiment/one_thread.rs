//! A Homa host with a single thread that both sends and answers, through one [`Socket`].
//!
//! With separate client and server threads, both threads would wait at the same endpoint, and the leader
//! would receive packets for the follower: every second packet would wake two threads. On hosts that share
//! processors, this would account for a quarter of the cost of short RPCs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use homa::error::RecvError;
use homa::kernel_api::{Arrival, Socket};
use homa::{Host, ServerAddr};
use homa_bench::addresses::FIRST_HOMA_PORT;
use homa_bench::engine::link::{Answer, Link};
use homa_bench::tcp::server::one_way_answer;

/// Maximum number of arrivals to handle before it is the generator's turn again. Requests count too:
/// otherwise, due messages would have to wait for as long as requests keep arriving.
const BATCH: usize = 64;

/// The host's socket and the receiver of its packets: either a thread that only answers, or a
/// [link](OneThread::link) while it has a load to run.
pub struct OneThread {
    shared: Arc<SocketState>,
    answering: Mutex<Option<JoinHandle<()>>>,
}

struct SocketState {
    socket: Socket,
    one_way: bool,
    served: Arc<AtomicU64>,
    relieved: AtomicBool,
}

/// While this exists, only a link receives from the socket.
pub struct ReceiverClaim<'a>(&'a OneThread);

impl OneThread {
    /// Opens the server port of a host and starts a thread that answers. `served` counts the requests.
    ///
    /// # Errors
    /// The port cannot be opened, or a thread cannot be started.
    pub fn start(host: &Host, one_way: bool, served: &Arc<AtomicU64>) -> Result<OneThread> {
        let port = FIRST_HOMA_PORT;
        let socket = host.socket(Some(port)).with_context(|| format!("cannot open Homa port {port}"))?;
        let shared =
            SocketState { socket, one_way, served: Arc::clone(served), relieved: AtomicBool::new(false) };
        let one = OneThread { shared: Arc::new(shared), answering: Mutex::default() };
        one.answer()?;
        Ok(one)
    }

    /// Returns a link from the socket's client port to these servers. It gets responses only while the
    /// receiver is [claimed](OneThread::claim_receiver).
    pub fn link(&self, servers: Vec<ServerAddr>) -> Box<dyn Link> {
        Box::new(SocketLink { shared: Arc::clone(&self.shared), servers })
    }

    /// Stops the thread that only answers and waits until it has stopped.
    pub fn claim_receiver(&self) -> ReceiverClaim<'_> {
        self.shared.relieved.store(true, Ordering::Relaxed);
        self.shared.socket.recall();
        if let Some(thread) = self.answering().take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        ReceiverClaim(self)
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
        self.claim_receiver();
        self.shared.socket.close();
    }
}

impl ReceiverClaim<'_> {
    /// Returns the socket to the thread that only answers. Calls without a response have been given up by
    /// their caller and are aborted, because otherwise a later load would receive their responses.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn end(self) -> Result<()> {
        let socket = &self.0.shared.socket;
        for call in socket.open_calls() {
            socket.abort(call, false);
        }
        self.0.answer()
    }
}

impl SocketState {
    fn answer_until_relieved(&self) {
        let wanted = || !self.relieved.load(Ordering::Relaxed);
        while wanted() {
            match self.socket.recv_while(None, wanted) {
                Ok(arrival) => self.reply(arrival),
                Err(RecvError::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    /// Answers a request. Other arrivals need no handling here: no responses are lent, and calls are aborted
    /// before any receiver other than a link takes over.
    fn reply(&self, arrival: Arrival) {
        let Arrival::Request { mut rpc, .. } = arrival else { return };
        self.served.fetch_add(1, Ordering::Relaxed);
        let request = rpc.take_payload();
        let response: Bytes = if self.one_way { one_way_answer(&request) } else { request };
        // Errors are ignored: either the client gave up, or this host is at a limit. In both cases the client
        // notices.
        let _ = rpc.reply(response);
    }
}

struct SocketLink {
    shared: Arc<SocketState>,
    servers: Vec<ServerAddr>,
}

impl Link for SocketLink {
    fn submit(&mut self, _port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        let sent = self.shared.socket.start(self.servers[server], request, cookie, false);
        sent.map(drop).map_err(|error| error.to_string())
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        let mut wait = wait;
        for _ in 0..BATCH {
            match self.shared.socket.recv(Some(wait)) {
                Ok(Arrival::Outcome(outcome)) => {
                    let result = outcome.result.map_err(|error| error.to_string());
                    answers.push(Answer { cookie: outcome.cookie, at: Instant::now(), result });
                }
                Ok(arrival) => self.shared.reply(arrival),
                Err(RecvError::TimedOut) => break,
                Err(error) => bail!("{error}"),
            }
            if !self.shared.socket.has_arrival() {
                break;
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use homa_bench::engine::link::check_all_come_back;

    fn host() -> Host {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Host::builder().address(bind).bind().expect("a host")
    }

    fn start(host: &Host, one_way: bool) -> OneThread {
        OneThread::start(host, one_way, &Arc::default()).expect("a port")
    }

    fn to(host: &Host) -> ServerAddr {
        ServerAddr { host: host.local_addr(), port: FIRST_HOMA_PORT }
    }

    fn served(side: &OneThread) -> u64 {
        side.shared.served.load(Ordering::Relaxed)
    }

    /// Drives the socket until received packets make a condition true.
    ///
    /// # Panics
    /// The condition does not hold after half a minute.
    fn wait_until(side: &OneThread, what: &str, mut is_so: impl FnMut(&OneThread) -> bool) {
        let begin = Instant::now();
        while !is_so(side) {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
            side.shared.socket.attend();
            thread::yield_now();
        }
    }

    #[test]
    fn two_hosts_of_one_thread_each_answer_each_other() {
        for one_way in [false, true] {
            let hosts = [host(), host()];
            let sides = hosts.each_ref().map(|host| start(host, one_way));
            let to = hosts.each_ref().map(to);
            thread::scope(|scope| {
                for (side, other) in [(&sides[0], to[1]), (&sides[1], to[0])] {
                    scope.spawn(move || {
                        let claim_receiver = side.claim_receiver();
                        check_all_come_back(side.link(vec![other; 2]).as_mut(), 4, one_way);
                        claim_receiver.end().expect("a thread");
                    });
                }
            });
            assert_eq!(sides.each_ref().map(served), [40; 2]);
        }
    }

    #[test]
    fn requests_leave_the_generator_its_turn() {
        let (near, far) = (host(), host());
        let (side, other) = (start(&near, false), start(&far, false));
        let _turns = (side.claim_receiver(), other.claim_receiver());
        let mut from = other.link(vec![to(&near)]);
        let count = 3 * BATCH as u64;
        for cookie in 0..count {
            from.submit(0, 0, cookie, Bytes::from_static(b"request")).expect("taken");
        }
        wait_until(&side, "the requests came", |side| side.shared.socket.rpcs().len() as u64 == count);
        let mut link = side.link(vec![to(&far)]);
        let mut answers = Vec::new();
        wait_until(&side, "the requests are answered", |side| {
            let before = served(side);
            link.receive(Duration::from_secs(1), &mut answers).expect("the link holds");
            assert!(served(side) - before <= BATCH as u64, "{} at once", served(side) - before);
            served(side) == count
        });
        assert!(answers.is_empty());
    }

    #[test]
    fn what_a_turn_gave_up_is_in_no_later_one() {
        let (near, far) = (host(), host());
        let (side, other) = (start(&near, false), start(&far, false));
        let mut link = side.link(vec![to(&far)]);
        for is_there in [true, false] {
            let claim_receiver = side.claim_receiver();
            link.submit(0, 0, 7, Bytes::from_static(b"late")).expect("taken");
            if is_there {
                wait_until(&side, "the answer came", |side| side.shared.socket.has_arrival());
            }
            claim_receiver.end().expect("a thread");
        }
        let claim_receiver = side.claim_receiver();
        link.submit(0, 0, 8, Bytes::from_static(b"own")).expect("taken");
        let mut answers = Vec::new();
        wait_until(&side, "the answer came", |_| {
            link.receive(Duration::from_secs(1), &mut answers).expect("the link holds");
            !answers.is_empty()
        });
        assert_eq!(answers.iter().map(|answer| answer.cookie).collect::<Vec<_>>(), [8]);
        claim_receiver.end().expect("a thread");
        assert!(served(&other) >= 2);
    }
}
