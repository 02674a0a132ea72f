//! Drives the network in a thread that is about to sleep in a place where only the waker can wake it.

use std::sync::Arc;
use std::time::Duration;

use super::Socket;
use crate::runtime::wait;

impl Socket {
    /// Drives the network in the calling thread, which is about to sleep in a place where only the
    /// [waker](Socket::set_waker) can wake it. Continues while packets are received or sent, and afterwards
    /// for as long as a waiting thread polls ([`HostConfig::poll`](crate::HostConfig::poll)). Ends earlier
    /// after `longest`, when something may have arrived at a socket of the host, or when `stop` returns true.
    /// `stop` is called under a lock of the host after each round, and must not use the host.
    ///
    /// If this returns true, the caller should check whether it still has to sleep and, if so, call this
    /// again. If this returns false, no packets are expected at the moment or another thread drives; a caller
    /// that sleeps then must call [`attend`](Socket::attend) first. On a host with several endpoints, this
    /// always returns false.
    pub fn drive_awhile(&self, longest: Duration, stop: impl FnMut() -> bool) -> bool {
        let [member] = self.members.as_slice() else { return false };
        wait::drive_awhile(&member.shared, member.shared.after(longest), stop)
    }

    /// Waits as [`recv_while`](Socket::recv_while) does, but takes nothing: for a thread that polls this socket
    /// only. Returns whether there is an arrival; another thread may take it, and threads that wait for it in
    /// [`recv`](Socket::recv) are woken for it first. On a host with several endpoints, this always returns
    /// false.
    pub fn await_arrival(&self, longest: Duration, wanted: impl Fn() -> bool) -> bool {
        let [member] = self.members.as_slice() else { return false };
        let on = member.wait_target();
        let until = Some((member.shared.after(longest), longest.is_zero()));
        let found = self.wait(member, on, until, wanted, |engine| {
            let found = engine.has_arrival(member.index);
            if found {
                // The wake-up that this thread may have used up is another's, or the waker's.
                engine.waiting.note_ready(on);
            }
            found.then_some(())
        });
        found.is_some()
    }

    /// Returns whether the other socket belongs to the same host, so that driving one drives both.
    #[must_use]
    pub fn shares_host(&self, other: &Socket) -> bool {
        Arc::ptr_eq(&self.endpoints, &other.endpoints)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::task::{Wake, Waker};
    use std::thread::{self, ThreadId};

    use bytes::Bytes;

    use super::*;
    use crate::api::host::Host;
    use crate::kernel_api::Arrival;
    use crate::types::address::ServerAddr;

    /// A timeout that is longer than any wait of these tests.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn host(poll: Duration) -> Host {
        Host::builder().address(SocketAddr::from(([127, 0, 0, 1], 0))).poll(poll).bind().unwrap()
    }

    /// Records the threads that call it.
    #[derive(Default)]
    struct Callers(Mutex<Vec<ThreadId>>);

    impl Wake for Callers {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().push(thread::current().id());
        }
    }

    #[test]
    fn a_thread_that_drives_receives_the_answer_and_calls_the_waker_itself() {
        let (there, host) = (host(Duration::ZERO), host(PATIENCE));
        let server = there.server(9).unwrap();
        let to = ServerAddr::new(there.local_addr(), 9);
        let client = host.socket(None).unwrap();
        let callers = Arc::new(Callers::default());
        client.set_waker(Some(Waker::from(Arc::clone(&callers))));
        let (drives, driven) = mpsc::channel();
        let answers = thread::spawn(move || {
            let rpc = server.recv().wait().unwrap();
            // From here on the client's thread leads, and no other thread drives its host.
            driven.recv().unwrap();
            rpc.reply("answer").unwrap();
            // Keep the host alive until the client has acknowledged the answer.
            (server, there)
        });
        client.start(to, Bytes::from_static(b"?"), 7, false).unwrap();
        let mut told = false;
        let stop = || {
            if !std::mem::replace(&mut told, true) {
                drives.send(()).unwrap();
            }
            false
        };
        assert!(client.drive_awhile(PATIENCE, stop), "it is not quiet");
        assert_eq!(*callers.0.lock().unwrap(), [thread::current().id()]);
        assert!(
            matches!(client.recv(Some(Duration::ZERO)), Ok(Arrival::Outcome(outcome)) if outcome.cookie == 7)
        );
        drop(answers.join().unwrap());
    }

    #[test]
    fn a_thread_that_awaits_an_arrival_leaves_it_to_one_that_receives() {
        let (there, host) = (host(Duration::ZERO), host(PATIENCE));
        let server = there.server(9).unwrap();
        let to = ServerAddr::new(there.local_addr(), 9);
        let client = host.socket(None).unwrap();
        let callers = Arc::new(Callers::default());
        client.set_waker(Some(Waker::from(Arc::clone(&callers))));
        assert!(!client.await_arrival(Duration::from_millis(1), || true), "nothing comes");
        assert!(!client.await_arrival(PATIENCE, || false), "it is not wanted");
        let answers = thread::spawn(move || {
            for _ in 0..2 {
                server.recv().wait().unwrap().reply("answer").unwrap();
            }
            (server, there)
        });
        let start = || client.start(to, Bytes::from_static(b"?"), 7, false).unwrap();
        start();
        assert!(client.await_arrival(PATIENCE, || true));
        assert!(!callers.0.lock().unwrap().is_empty(), "the waker is called, as nobody receives");
        assert!(client.await_arrival(PATIENCE, || true), "it is still there");
        assert!(matches!(client.recv(Some(Duration::ZERO)), Ok(Arrival::Outcome(_))));
        // Whichever of the two drives, the one that receives gets the message.
        let received = AtomicBool::new(false);
        thread::scope(|scope| {
            let receives = scope.spawn(|| {
                let result = client.recv(Some(PATIENCE));
                received.store(true, SeqCst);
                result
            });
            let awaits = scope.spawn(|| client.await_arrival(PATIENCE, || !received.load(SeqCst)));
            start();
            let result = receives.join().unwrap();
            client.recall();
            awaits.join().unwrap();
            assert!(matches!(result, Ok(Arrival::Outcome(_))));
        });
        drop(answers.join().unwrap());
    }

    #[test]
    fn a_thread_that_drives_ends_when_it_is_told_to() {
        let (there, host) = (host(Duration::ZERO), host(PATIENCE));
        let to = ServerAddr::new(there.local_addr(), 9);
        let _server = there.server(9).unwrap();
        let client = host.socket(None).unwrap();
        client.start(to, Bytes::from_static(b"?"), 7, false).unwrap();
        let mut rounds = 0;
        let stop = || {
            rounds += 1;
            true
        };
        assert!(client.drive_awhile(PATIENCE, stop));
        assert_eq!(rounds, 1);
        // The client's thread no longer leads, so another thread may.
        assert!(client.drive_awhile(Duration::ZERO, || false));
    }

    #[test]
    fn a_thread_does_not_drive_where_nothing_is_expected_or_nobody_polls() {
        let stop = || -> bool { panic!("there is no round") };
        for poll in [Duration::ZERO, Duration::from_nanos(1)] {
            let host = host(poll);
            let socket = host.socket(None).unwrap();
            thread::sleep(Duration::from_millis(1));
            assert!(!socket.drive_awhile(PATIENCE, stop));
        }
    }

    #[test]
    fn sockets_of_one_host_are_told_from_those_of_another() {
        let (one, other) = (host(Duration::ZERO), host(Duration::ZERO));
        let sockets = [one.socket(None), one.socket(None), other.socket(None)].map(Result::unwrap);
        assert!(sockets[0].shares_host(&sockets[1]) && !sockets[0].shares_host(&sockets[2]));
    }
}
