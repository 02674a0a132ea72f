//! Tests of sockets: ports that make and serve calls, with one queue for all messages.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::time::Duration;
use std::{iter, thread};

use super::common::hand::Hand;
use super::common::{Echo, PATIENCE, config, eventually, host, message, outcome, until_idle};
use homa::ServerAddr;
use homa::error::{CallError, HostError, RecvError, ReplyError};
use homa::kernel_api::{Arrival, Lender, Lent, MessageMemory, ReadinessFd, ReturnedReply, Socket};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

#[test]
fn two_sockets_call_and_answer_each_other() {
    let (one, other) = (host(), host());
    let sockets = [one.socket(Some(7)).unwrap(), other.socket(Some(7)).unwrap()];
    assert_eq!(sockets[0].port(), 7);
    let to = [&other, &one].map(|host| ServerAddr::new(host.local_addr(), 7));
    for (socket, to) in sockets.iter().zip(to) {
        for tag in 0..10 {
            let id = socket.start(to, message(20_000, tag), tag, false).unwrap();
            assert!(id.is_multiple_of(2) && socket.cookie_of(id) == Some(tag));
            let told = socket.calls().into_iter().find(|call| call.id == id).unwrap();
            assert_eq!((told.cookie, told.to, told.private), (tag, to, false));
            assert_eq!((told.request_bytes, told.over), (20_000, None));
        }
    }
    thread::scope(|scope| {
        for socket in &sockets {
            scope.spawn(|| {
                let (mut requests, mut outcomes) = (0, Vec::new());
                while requests < 10 || outcomes.len() < 10 {
                    match socket.recv(Some(PATIENCE)).unwrap() {
                        Arrival::Request { mut rpc, id, client_port } => {
                            assert_eq!((id % 2, client_port), (1, 7));
                            let request = rpc.take_payload();
                            rpc.reply(request).unwrap();
                            requests += 1;
                        }
                        Arrival::Outcome(outcome) => {
                            assert!(outcome.result == Ok(message(20_000, outcome.cookie)));
                            outcomes.push(outcome.cookie);
                        }
                        Arrival::ReturnedReply(_) => panic!("nothing was lent"),
                    }
                }
                outcomes.sort_unstable();
                assert_eq!(outcomes, (0..10).collect::<Vec<_>>());
            });
        }
    });
}

#[test]
fn a_private_outcome_is_for_who_names_it() {
    let echo = Echo::new(1);
    let host = host();
    let socket = host.socket(None).unwrap();
    let private = socket.start(echo.to, message(100, 1), 1, true).unwrap();
    let shared = socket.start(echo.to, message(100, 2), 2, false).unwrap();
    assert_eq!(outcome(&socket).id, shared);
    assert_eq!(socket.recv(AT_ONCE).err(), Some(RecvError::TimedOut));
    let found = socket.recv_private(private, Some(PATIENCE)).unwrap();
    assert_eq!((found.id, found.cookie, found.to), (private, 1, echo.to));
    assert!(found.result == Ok(message(100, 1)));
    for id in [private, shared, 5] {
        assert_eq!(socket.recv_private(id, None).err(), Some(RecvError::NoSuchCall { id }));
    }
    until_idle(&host);
}

#[test]
fn an_aborted_call_is_forgotten_or_told() {
    let (silent, host) = (host(), host());
    let server = silent.server(9).unwrap();
    let to = ServerAddr::new(silent.local_addr(), 9);
    let socket = host.socket(None).unwrap();
    let start = |private| socket.start(to, message(100, 0), 0, private).unwrap();
    let (forgotten, told, private) = (start(false), start(false), start(true));
    assert!(socket.abort(forgotten, false) && socket.abort(told, true) && socket.abort(private, true));
    let aborted = Err(CallError::Aborted { to });
    assert_eq!((outcome(&socket).id, socket.recv(AT_ONCE).err()), (told, Some(RecvError::TimedOut)));
    assert_eq!(socket.recv_private(private, AT_ONCE).map(|outcome| outcome.result), Ok(aborted));
    assert!(!socket.abort(told, true) && !socket.abort(forgotten, false));

    // A thread that waits for a call that is then aborted without an outcome gets an error.
    let waited = start(true);
    thread::scope(|scope| {
        let waits = scope.spawn(|| socket.recv_private(waited, None).err());
        thread::yield_now();
        socket.abort(waited, false);
        assert_eq!(waits.join().unwrap(), Some(RecvError::NoSuchCall { id: waited }));
    });
    assert_eq!(socket.open_calls(), []);
    drop(server);
}

#[test]
fn the_end_of_a_call_can_be_changed_until_it_is_taken() {
    let echo = Echo::new(1);
    let host = host();
    let socket = host.socket(None).unwrap();
    let [forgotten, told] = [0, 1].map(|tag| socket.start(echo.to, message(100, tag), tag, false).unwrap());
    eventually("both answers are there", || {
        // Only checks, and takes nothing.
        let _ = socket.recv_private(told, AT_ONCE);
        host.metrics().endpoint.responses_delivered == 2
    });
    assert!(socket.abort(forgotten, false) && socket.abort(told, true));
    let found = outcome(&socket);
    assert_eq!((found.id, found.result), (told, Err(CallError::Aborted { to: echo.to })));
    assert!(!socket.has_arrival());
    until_idle(&host);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_waker_tells_of_what_nobody_waits_for() {
    let echo = Echo::new(1);
    let host = host();
    let socket = host.socket(None).unwrap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    socket.set_waker(Some(Waker::from(Arc::clone(&count))));
    // A thread that a busy machine delays by a millisecond is not yet waiting when the answer arrives.
    eventually("nobody is told of what somebody waits for", || {
        let before = count.0.load(Relaxed);
        socket.start(echo.to, message(100, 1), 0, false).unwrap();
        outcome(&socket);
        count.0.load(Relaxed) == before
    });
    let before = count.0.load(Relaxed);
    socket.start(echo.to, message(100, 2), 0, false).unwrap();
    socket.attend();
    eventually("the waker is called", || count.0.load(Relaxed) > before);
    assert!(socket.has_arrival());
    assert!(matches!(socket.recv(AT_ONCE), Ok(Arrival::Outcome(_))));
    assert!(!socket.has_arrival());
    let before = count.0.load(Relaxed);
    socket.close();
    assert!(count.0.load(Relaxed) > before && socket.has_arrival(), "the end is something to be found, too");
}

#[test]
fn a_closed_socket_ends_waits_and_calls_and_frees_its_port() {
    let (silent, host) = (host(), host());
    let server = silent.server(9).unwrap();
    let to = ServerAddr::new(silent.local_addr(), 9);
    let socket = host.socket(Some(7)).unwrap();
    assert!(matches!(host.server(7), Err(HostError::Port(_))));
    socket.start(to, message(100, 0), 0, false).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| socket.recv(None).err());
        socket.close();
        assert_eq!(waits.join().unwrap(), Some(RecvError::Closed));
    });
    assert_eq!(socket.recv_private(1, None).err(), Some(RecvError::NoSuchCall { id: 1 }));
    assert_eq!(socket.start(to, message(1, 0), 0, false), Err(CallError::Closed));
    drop(socket);
    // The socket's open requests are cleaned up in portions, after which the port is free.
    eventually("the port is free", || host.socket(Some(7)).is_ok_and(|socket| socket.port() == 7));
    drop(server);
}

#[test]
fn what_is_told_of_rpcs_is_what_they_are() {
    let (silent, host) = (host(), host());
    let (server, socket) = (silent.socket(Some(9)).unwrap(), host.socket(None).unwrap());
    let to = ServerAddr::new(silent.local_addr(), 9);
    let id = socket.start(to, message(300, 0), 0, false).unwrap();
    let here = socket.rpcs();
    assert_eq!((here.len(), here[0].id, here[0].peer_port, here[0].out_length), (1, id, 9, 300));
    assert_eq!((here[0].peer, here[0].in_length), (to.host, 0));
    let Ok(Arrival::Request { rpc, id: there_id, client_port }) = server.recv(Some(PATIENCE)) else {
        panic!("a request was sent")
    };
    let there = server.rpcs();
    assert_eq!((there_id, client_port, rpc.payload().len()), (id | 1, socket.port(), 300));
    assert_eq!((there.len(), there[0].id, there[0].in_length, there[0].in_missing), (1, id | 1, 300, 0));
    assert_eq!((there[0].out_length, there[0].in_gaps, there[0].in_gap_bytes), (0, 0, 0));
}

#[test]
fn of_several_who_wait_for_one_call_all_come_back() {
    const WAITERS: usize = 3;
    let (echo, host) = (Echo::new(1), host());
    let socket = host.socket(None).unwrap();
    for tag in 0..200 {
        let id = socket.start(echo.to, message(100, tag), tag, true).unwrap();
        let wait = || socket.recv_private(id, Some(PATIENCE)).map(|outcome| outcome.cookie);
        let ends = thread::scope(|scope| {
            let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(wait)).collect();
            waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect::<Vec<_>>()
        });
        let got = ends.iter().filter(|end| **end == Ok(tag)).count();
        let missed = ends.iter().filter(|end| **end == Err(RecvError::NoSuchCall { id })).count();
        assert_eq!((got, missed), (1, WAITERS - 1), "{ends:?}");
    }
}

#[test]
fn nobody_sleeps_while_there_is_something_for_him() {
    const THREADS: u64 = 4;
    for endpoints in [1, 2] {
        let (server, client) = (config().endpoints(endpoints).bind().unwrap(), host());
        let socket = Arc::new(server.socket(Some(9)).unwrap());
        let to = ServerAddr::new(server.local_addr(), 9);
        let caller = client.socket(None).unwrap();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // One iteration for each request of a round.
                    for _ in 0..500 {
                        let Ok(Arrival::Request { mut rpc, .. }) = socket.recv(Some(PATIENCE)) else {
                            panic!("a request lay there, or a thread was left asleep");
                        };
                        rpc.take_payload();
                        rpc.reply("well").unwrap();
                    }
                });
            }
            for round in 0..500 {
                for tag in 0..THREADS {
                    caller.start(to, message(100, tag), round, false).unwrap();
                }
                for _ in 0..THREADS {
                    assert!(outcome(&caller).result.is_ok());
                }
            }
        });
    }
}

#[test]
fn who_waits_while_it_is_wanted_is_recalled_and_takes_what_there_is() {
    let (silent, host) = (host(), host());
    let server = silent.server(9).unwrap();
    let to = ServerAddr::new(silent.local_addr(), 9);
    let socket = host.socket(None).unwrap();
    let private = socket.start(to, message(100, 0), 0, true).unwrap();
    let ended = Some(RecvError::TimedOut);
    for _ in 0..50 {
        let (wanted, waiting) = (AtomicBool::new(true), [AtomicBool::new(false), AtomicBool::new(false)]);
        let is_wanted = |by: usize| {
            waiting[by].store(true, Relaxed);
            wanted.load(Relaxed)
        };
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(socket.recv_while(None, || is_wanted(0)).err(), ended));
            scope.spawn(|| {
                let named = socket.recv_private_while(private, None, || is_wanted(1));
                assert_eq!(named.err(), ended);
            });
            eventually("both wait", || waiting.iter().all(|one| one.load(Relaxed)));
            wanted.store(false, Relaxed);
            socket.recall();
        });
    }
    let told = socket.start(to, message(100, 1), 5, false).unwrap();
    assert!(socket.abort(told, true));
    assert!(
        matches!(socket.recv_while(None, || false), Ok(Arrival::Outcome(outcome)) if outcome.cookie == 5)
    );
    drop(server);
}

/// Lends an answer to one request, and returns the answer's outcome. `then` runs on the client's side after
/// the answer was sent.
fn lend(server: &Socket, then: impl FnOnce()) -> (u64, Result<(), ReplyError>) {
    let Ok(Arrival::Request { rpc, .. }) = server.recv(Some(PATIENCE)) else { panic!("there is a request") };
    server.reply_lent(rpc, message(400_000, 1), 7).unwrap();
    then();
    match server.recv(Some(PATIENCE)) {
        Ok(Arrival::ReturnedReply(returned)) => (returned.cookie, returned.result),
        Ok(_) => panic!("an answer was lent"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn answers_to_clients_that_give_up_or_end_come_back() {
    let server_host = host();
    let server = server_host.socket(Some(9)).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 9);
    let one = host();
    let client = one.socket(None).unwrap();
    let id = client.start(to, message(100, 0), 0, false).unwrap();
    // The client acknowledges an answer that it does not want, or reports that it does not know the RPC.
    let (cookie, result) = lend(&server, || assert!(client.abort(id, false)));
    assert!(cookie == 7 && matches!(result, Ok(()) | Err(ReplyError::ClientGone { .. })), "{result:?}");

    // So does a host that shuts down.
    client.start(to, message(100, 0), 0, false).unwrap();
    let (cookie, result) = lend(&server, || drop((client, one)));
    assert!(cookie == 7 && matches!(result, Ok(()) | Err(ReplyError::ClientGone { .. })), "{result:?}");
}

#[test]
fn an_answer_to_a_client_that_has_restarted_comes_back() {
    let server_host = host();
    let server = server_host.socket(Some(9)).unwrap();
    let mut hand = Hand::new(&server_host);
    hand.data(2, 9, b"?", 0..1);
    let Ok(Arrival::Request { rpc, id, .. }) = server.recv(Some(PATIENCE)) else { panic!("it is sent") };
    let answer = message(400_000, 1);
    server.reply_lent(rpc, answer.clone(), 7).unwrap();
    hand.incarnation += 1;
    // Use an ID of the same endpoint: another endpoint would not know the first incarnation.
    hand.data(6, 9, b"!", 0..1);
    hand.prove();
    hand.hear(6, |body| matches!(body, homa::proto::wire::Body::Resend(_)));
    hand.data(6, 9, b"!", 0..1);
    let (mut returned, mut requests) = (None, 0);
    while returned.is_none() || requests == 0 {
        match server.recv(Some(PATIENCE)).unwrap() {
            Arrival::ReturnedReply(this) => returned = Some(this),
            Arrival::Request { rpc, .. } => {
                assert_eq!(rpc.payload()[..], b"!"[..]);
                requests += 1;
            }
            Arrival::Outcome(_) => panic!("nobody calls by this socket"),
        }
    }
    let client = hand.socket.local_addr().unwrap();
    let result = Err(ReplyError::ClientGone { peer: client });
    assert_eq!(returned, Some(ReturnedReply { id, cookie: 7, client, client_port: 40_000, result }));
    // The thread that reported the reply as returned drops its own reference slightly later.
    eventually("nobody holds it any more", || answer.is_unique());
}

#[test]
fn a_port_whose_socket_is_gone_refuses_until_its_last_answer_is_delivered() {
    let (server_host, client_host) = (host(), host());
    let to = ServerAddr::new(server_host.local_addr(), 9);
    let socket = server_host.socket(Some(9)).unwrap();
    let client = client_host.socket(None).unwrap();
    client.start(to, message(100, 0), 1, false).unwrap();
    let Ok(Arrival::Request { rpc, .. }) = socket.recv(Some(PATIENCE)) else { panic!("there is a request") };
    drop(socket);
    assert!(matches!(server_host.socket(Some(9)).err(), Some(HostError::Port(_))));
    client.start(to, message(100, 0), 2, false).unwrap();
    let refused = outcome(&client);
    assert_eq!((refused.cookie, refused.result), (2, Err(CallError::NoSuchPort { to })));
    rpc.reply(message(300_000, 3)).unwrap();
    assert!(outcome(&client).result == Ok(message(300_000, 3)));
    let mut again = None;
    eventually("the port is free", || {
        again = server_host.socket(Some(9)).ok();
        again.is_some()
    });
    client.start(to, message(100, 0), 3, false).unwrap();
    assert!(matches!(again.unwrap().recv(Some(PATIENCE)), Ok(Arrival::Request { .. })));
}

#[test]
fn a_call_ends_at_its_own_deadline() {
    let (silent, host, echo) = (host(), host(), Echo::new(1));
    let server = silent.server(9).unwrap();
    let to = ServerAddr::new(silent.local_addr(), 9);
    let socket = host.socket(None).unwrap();
    let soon = Duration::from_millis(2);
    let [late, later] =
        [3, 2].map(|times| socket.start_timeout(to, message(100, 0), 7, soon * times).unwrap());
    let answered = socket.start_timeout(echo.to, message(100, 1), 8, PATIENCE).unwrap();
    let told = socket.start_timeout(to, message(100, 2), 9, PATIENCE).unwrap();
    assert!(socket.abort(told, true));
    let mut outcomes: Vec<_> = (0..4).map(|_| outcome(&socket)).collect();
    let calls = [late, later, answered, told];
    outcomes.sort_by_key(|outcome| calls.iter().position(|call| *call == outcome.id));
    let results: Vec<_> = outcomes.into_iter().map(|outcome| (outcome.id, outcome.result)).collect();
    let exceeded = |times| Err(CallError::TimedOut { to, timeout: soon * times });
    let expected = [
        (late, exceeded(3)),
        (later, exceeded(2)),
        (answered, Ok(message(100, 1))),
        (told, Err(CallError::Aborted { to })),
    ];
    assert!(results == expected, "{results:?}");
    assert_eq!(socket.recv(AT_ONCE).err(), Some(RecvError::TimedOut));
    drop(server);
    until_idle(&host);
}

#[test]
fn deadlines_pass_while_nobody_waits() {
    let (silent, host) = (host(), host());
    let server = silent.server(9).unwrap();
    let to = ServerAddr::new(silent.local_addr(), 9);
    let socket = host.socket(None).unwrap();
    socket.start_timeout(to, message(100, 0), 0, Duration::from_micros(1)).unwrap();
    eventually("the call has ended", || socket.has_arrival());
    let closing = host.socket(None).unwrap();
    closing.start_timeout(to, message(100, 0), 0, Duration::from_micros(1)).unwrap();
    drop(closing);
    let exceeded = CallError::TimedOut { to, timeout: Duration::from_micros(1) };
    assert_eq!(outcome(&socket).result, Err(exceeded));
    drop(server);
    until_idle(&host);
}

#[test]
fn client_sockets_are_dealt_out_to_endpoints() {
    let echo = Echo::new(1);
    let host = config().endpoints(2).bind().unwrap();
    assert!(matches!(host.socket(Some(40_000)), Err(HostError::SeveralEndpoints { count: 2 })));
    let sockets = [0; 3].map(|_| host.socket(None).unwrap());
    let ids = sockets.each_ref().map(|socket| socket.start(echo.to, message(5_000, 1), 0, false).unwrap());
    assert_eq!(ids.map(|id| id / 2 % 2), [0, 1, 0], "each endpoint has ids of its own");
    for socket in &sockets {
        assert!(outcome(socket).result == Ok(message(5_000, 1)));
    }
    drop(sockets);
    until_idle(&host);
}

/// Echoes requests until the given number of outcomes and requests have arrived. `wait` returns the timeout
/// of a receive.
fn echo_until(
    socket: &Socket,
    mut outcomes_left: usize,
    mut requests_left: usize,
    wait: impl Fn() -> Option<Duration>,
) {
    while outcomes_left + requests_left > 0 {
        let patience = wait();
        match socket.recv(patience) {
            Ok(Arrival::Request { mut rpc, .. }) => {
                let request = rpc.take_payload();
                rpc.reply(request).unwrap();
                requests_left -= 1;
            }
            Ok(Arrival::Outcome(outcome)) => {
                assert!(outcome.result == Ok(message(3_000, outcome.cookie)), "{:?}", outcome.result.err());
                outcomes_left -= 1;
            }
            Ok(Arrival::ReturnedReply(_)) => panic!("nothing was lent"),
            Err(error) => assert!(error == RecvError::TimedOut && patience == AT_ONCE, "{error}"),
        }
    }
}

/// Sleeps until the descriptor is readable.
fn sleep_on(signal: &ReadinessFd) {
    let fd = signal.as_fd().as_raw_fd();
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry.
    let ready = unsafe { libc::poll(&raw mut entry, 1, PATIENCE.as_millis() as i32) };
    assert_eq!(ready, 1, "nothing came");
}

/// Returns whether the descriptor is readable.
fn is_shown(signal: &ReadinessFd) -> bool {
    let mut entry = libc::pollfd { fd: signal.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) == 1 }
}

#[test]
fn what_is_muted_is_not_shown_and_shown_again_later() {
    let (server_host, client_host) = (host(), host());
    let server = Arc::new(server_host.socket(Some(9)).unwrap());
    let client = client_host.socket(None).unwrap();
    let signal = ReadinessFd::from_eventfd().unwrap();
    signal.follow(&server);
    assert!(signal.stage(false, true));
    signal.update(false);
    client.start(ServerAddr::new(server_host.local_addr(), 9), message(100, 0), 0, false).unwrap();
    eventually("it has come", || server.has_arrival());
    assert!(!is_shown(&signal));
    signal.set_override(true, false);
    assert!(is_shown(&signal), "that is another's word");
    signal.set_override(false, false);
    assert!(!is_shown(&signal));
    assert!(signal.stage(false, false));
    signal.update(false);
    assert!(is_shown(&signal));
}

#[test]
fn what_is_deferred_is_shown_when_somebody_asks_or_more_arrives() {
    let (server_host, client_host) = (host(), host());
    let server = Arc::new(server_host.socket(Some(9)).unwrap());
    let client = client_host.socket(None).unwrap();
    let signal = ReadinessFd::from_eventfd().unwrap();
    signal.follow(&server);
    let send =
        || client.start(ServerAddr::new(server_host.local_addr(), 9), message(100, 0), 0, false).unwrap();
    let take = || {
        server.recv(Some(PATIENCE)).unwrap();
        signal.message_taken();
    };
    let deferral = signal.defer();
    send();
    eventually("it has come", || signal.is_ready());
    assert!(!is_shown(&signal));
    drop(deferral);
    assert!(!is_shown(&signal));
    signal.settle();
    assert!(signal.is_ready() && is_shown(&signal));
    take();
    assert!(!signal.is_ready() && !is_shown(&signal));

    let deferral = signal.defer();
    send();
    send();
    eventually("one has come", || signal.is_ready());
    drop(deferral);
    take();
    eventually("the second is there", || signal.is_ready());
    take();
    assert!(!signal.is_ready() && !is_shown(&signal));

    let deferral = signal.defer();
    send();
    eventually("it has come", || signal.is_ready());
    drop(deferral);
    send();
    eventually("the next arrival shows both", || is_shown(&signal));
    take();
    take();
    assert!(!signal.is_ready() && !is_shown(&signal));
}

#[test]
fn one_thread_has_what_comes_to_any_endpoint_of_its_socket() {
    const CLIENTS: usize = 6;
    let server = config().endpoints(4).bind().unwrap();
    let socket = server.socket(Some(9)).unwrap();
    let to = ServerAddr::new(server.local_addr(), 9);
    let client_host = config().endpoints(4).bind().unwrap();
    let echo = Echo::with(config().endpoints(4), 2);
    let clients: Vec<Socket> = (0..CLIENTS).map(|_| client_host.socket(None).unwrap()).collect();
    let signal = ReadinessFd::from_eventfd().unwrap();
    let socket = Arc::new(socket);
    for by_signal in [false, true] {
        for (cookie, client) in clients.iter().enumerate() {
            client.start(to, message(3_000, cookie as u64), cookie as u64, false).unwrap();
        }
        // The socket's calls belong to the endpoint where the calling thread waits, and any waiting thread
        // gets their outcomes.
        thread::scope(|scope| {
            scope.spawn(|| {
                for cookie in 0..3 {
                    socket.start(echo.to, message(3_000, cookie), cookie, false).unwrap();
                }
            });
        });
        if by_signal {
            signal.follow(&socket);
            socket.attend();
            let sleep = || {
                if !socket.has_arrival() {
                    sleep_on(&signal);
                }
                AT_ONCE
            };
            echo_until(&socket, 3, CLIENTS, || {
                signal.message_taken();
                sleep()
            });
        } else {
            echo_until(&socket, 3, CLIENTS, || Some(PATIENCE));
        }
        for client in &clients {
            assert!(outcome(client).result.is_ok());
        }
    }
    let id = socket.start(echo.to, message(10, 5), 5, true).unwrap();
    assert_eq!(socket.cookie_of(id), Some(5));
    assert_eq!((socket.open_calls(), socket.calls().len()), (vec![id], 1));
    assert!(socket.recv_private(id, Some(PATIENCE)).unwrap().result == Ok(message(10, 5)));
    let id = socket.start(to, message(10, 5), 6, false).unwrap();
    assert!(socket.abort(id, true));
    // The socket called itself, and the request may have arrived before the abort.
    let outcome =
        iter::repeat_with(|| socket.recv(Some(PATIENCE)).unwrap()).find_map(|arrival| match arrival {
            Arrival::Outcome(outcome) => Some(outcome),
            _ => None,
        });
    assert!(outcome.unwrap().result.is_err());
    drop((clients, socket));
    eventually("the port is free in all of them", || server.socket(Some(9)).is_ok());
    until_idle(&client_host);
}

#[test]
fn threads_of_one_socket_share_what_comes_to_several_endpoints() {
    const CALLS: usize = 400;
    let server = config().endpoints(3).bind().unwrap();
    let socket = server.socket(Some(9)).unwrap();
    let to = ServerAddr::new(server.local_addr(), 9);
    let client_host = config().endpoints(3).bind().unwrap();
    thread::scope(|scope| {
        let serving: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while let Ok(Arrival::Request { mut rpc, .. }) = socket.recv(None) {
                        let request = rpc.take_payload();
                        rpc.reply(request).unwrap();
                    }
                })
            })
            .collect();
        let calling: Vec<_> = (0..3)
            .map(|_| {
                let client = client_host.socket(None).unwrap();
                scope.spawn(move || {
                    for cookie in 0..CALLS as u64 {
                        client.start(to, message(3_000, cookie), cookie, false).unwrap();
                        assert!(outcome(&client).result == Ok(message(3_000, cookie)));
                    }
                })
            })
            .collect();
        calling.into_iter().for_each(|thread| thread.join().unwrap());
        // Threads waiting at any of the endpoints get the error.
        socket.close();
        serving.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(server.metrics().endpoint.requests_delivered, 3 * CALLS as u64);
}

/// Memory lent by a test, for one message at a time.
struct Shelf {
    memory: Vec<AtomicU8>,
    taken: AtomicBool,
    gone: AtomicBool,
    lent: AtomicUsize,
}

struct Shelves(Arc<Shelf>);

impl MessageMemory for Shelves {
    fn lend(&self, length: usize) -> Option<Lent> {
        let Shelves(shelf) = self;
        if length > shelf.memory.len() || shelf.taken.swap(true, Relaxed) {
            return None;
        }
        shelf.lent.fetch_add(1, Relaxed);
        let start = NonNull::from(&shelf.memory[0]).cast();
        // SAFETY: the lender keeps the shelf alive, and no other code uses the memory until the lender is
        // dropped.
        Some(unsafe { Lent::new(start, length, Shelves(Arc::clone(shelf))) })
    }
}

impl Lender for Shelves {
    fn is_there(&self) -> bool {
        !self.0.gone.load(Relaxed)
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        self.0.taken.store(false, Relaxed);
    }
}

fn shelf(bytes: usize) -> Arc<Shelf> {
    Arc::new(Shelf {
        memory: (0..bytes).map(|_| AtomicU8::new(0)).collect(),
        taken: AtomicBool::new(false),
        gone: AtomicBool::new(false),
        lent: AtomicUsize::new(0),
    })
}

#[test]
fn messages_are_put_together_in_memory_that_the_application_lends() {
    let echo = Echo::new(1);
    let host = host();
    let socket = host.socket(None).unwrap();
    let shelf = shelf(500_000);
    socket.set_memory(Some(Arc::new(Shelves(Arc::clone(&shelf)))));
    let is_lent = |bytes: &[u8]| ptr::eq(bytes.as_ptr().cast(), &raw const shelf.memory[0]);
    let call = |length, tag| {
        socket.start(echo.to, message(length, tag), tag, false).unwrap();
        let response = outcome(&socket).result.unwrap();
        assert!(response == message(length, tag));
        response
    };
    for tag in 0..20 {
        shelf.taken.store(false, Relaxed);
        assert!(is_lent(&call(300_000, tag)));
        assert!(!shelf.taken.load(Relaxed), "given back with the message");
    }
    assert!(!is_lent(&call(100, 1)), "what is short is copied");
    assert!(!is_lent(&call(600_000, 1)), "what finds no room lies elsewhere");
    // A message that is given up returns its memory. After the socket is closed, no memory is requested.
    socket.start(echo.to, message(400_000, 7), 7, false).unwrap();
    socket.close();
    eventually("its memory is given back", || !shelf.taken.load(Relaxed));
    eventually("nobody holds the shelf", || Arc::strong_count(&shelf) == 1);
}

#[test]
fn memory_that_is_taken_away_is_not_written_to() {
    let echo = Echo::new(1);
    let host = host();
    let socket = host.socket(None).unwrap();
    let shelf = shelf(500_000);
    socket.set_memory(Some(Arc::new(Shelves(Arc::clone(&shelf)))));
    socket.start(echo.to, message(500_000, 1), 1, false).unwrap();
    shelf.gone.store(true, Relaxed);
    socket.await_writers();
    let before: Vec<u8> = shelf.memory.iter().map(|byte| byte.load(Relaxed)).collect();
    assert_eq!(outcome(&socket).result.unwrap().len(), 500_000);
    assert!(shelf.memory.iter().map(|byte| byte.load(Relaxed)).eq(before));
}

/// The caller may change the pieces as soon as the call returns, and the test does so.
#[test]
fn what_is_passed_in_pieces_is_copied_before_the_call_returns() {
    let (one, other) = (host(), host());
    let (client, server) = (one.socket(None).unwrap(), other.socket(Some(7)).unwrap());
    let to = ServerAddr::new(other.local_addr(), 7);
    let in_pieces = |length: usize, tag, pass: &mut dyn FnMut(&[&[u8]])| {
        let mut bytes = message(length, tag).to_vec();
        let (first, rest) = bytes.split_at(length / 3);
        pass(&[first, &[], rest]);
        bytes.fill(0);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(Arrival::Request { mut rpc, .. }) = server.recv(Some(PATIENCE)) {
                let (request, mut rpc) = (rpc.take_payload(), Some(rpc));
                let tag = request.len() as u64;
                assert!(request == message(request.len(), tag));
                in_pieces(request.len(), tag + 1, &mut |pieces| {
                    server.reply_pieces(rpc.take().unwrap(), pieces, false).unwrap();
                });
            }
        });
        for length in [1, 100, 16_384, 40_000, 131_072, 200_001, 999_999, 1_000_000].repeat(5) {
            in_pieces(length, length as u64, &mut |pieces| {
                client.start_pieces(to, pieces, 1, false, false).unwrap();
            });
            assert!(outcome(&client).result.unwrap() == message(length, length as u64 + 1));
        }
        server.close();
    });
    // There is no host at the address: the call may end while it is being copied.
    for cookie in 0..20 {
        in_pieces(1_000_000, 1, &mut |pieces| {
            client.start_pieces(to, pieces, cookie, false, false).unwrap();
        });
    }
    (0..20).for_each(|_| assert!(outcome(&client).result.is_err()));
    until_idle(&one);
}
