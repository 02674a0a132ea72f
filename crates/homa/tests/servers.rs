//! Tests of servers: replies from any thread in any order, ports, shutdown, and slow handlers.

use std::hint;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::common::{Echo, PATIENCE, config, eventually, host, message, until_idle};
use homa::ServerAddr;
use homa::error::{CallError, HostError, RecvError, ReplyError};
use homa::proto::{PortError, wire};

#[test]
fn replies_come_from_other_threads_and_out_of_order() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(9).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 9);
    let client = host.client().unwrap();
    let calls: Vec<_> = (0..20_u64).map(|tag| client.call(to, message(50, tag)).start().unwrap()).collect();
    let mut rpcs: Vec<_> = (0..20).map(|_| server.recv().timeout(PATIENCE).wait().unwrap()).collect();
    rpcs.reverse();
    let threads: Vec<_> = rpcs
        .into_iter()
        .map(|rpc| {
            assert_eq!(rpc.peer(), host.local_addr());
            thread::spawn(move || {
                let answer = rpc.payload().clone();
                rpc.reply(answer).unwrap();
            })
        })
        .collect();
    for (tag, call) in calls.into_iter().enumerate() {
        assert!(call.wait().unwrap() == message(50, tag as u64));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    until_idle(&server_host);
}

#[test]
fn two_ports_of_a_host_are_two_servers() {
    let (server_host, host) = (host(), host());
    let (one, two) = (server_host.server(1).unwrap(), server_host.server(2).unwrap());
    assert!(matches!(server_host.server(1), Err(HostError::Port(PortError::InUse(1)))));
    assert!(matches!(server_host.server(0), Err(HostError::Port(PortError::OutOfRange(0)))));
    let client = host.client().unwrap();
    let call = |port| client.call(ServerAddr::new(server_host.local_addr(), port), "x").start().unwrap();
    let (first, second) = (call(1), call(2));
    two.recv().wait().unwrap().reply("two").unwrap();
    one.recv().wait().unwrap().reply("one").unwrap();
    assert_eq!((first.wait().unwrap(), second.wait().unwrap()), ("one".into(), "two".into()));
    assert_eq!(one.recv().timeout(Duration::ZERO).wait().map(|_| ()), Err(RecvError::TimedOut));
}

#[test]
fn a_handler_that_computes_keeps_its_client() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let handler = thread::spawn(move || {
        let rpc = server.recv().wait().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            hint::spin_loop();
        }
        rpc.reply("done").unwrap();
    });
    assert_eq!(host.client().unwrap().call(to, "compute").wait().unwrap(), "done");
    handler.join().unwrap();
    let (here, there) = (host.metrics(), server_host.metrics());
    assert!(there.endpoint.busys_sent > 0, "{:?}", there.endpoint);
    assert_eq!((here.endpoint.rpcs_timed_out, there.endpoint.clients_silent), (0, 0));
    assert!(there.host.progress_takeovers > 0);
}

#[test]
fn requests_are_taken_in_while_nobody_receives() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let client = host.client().unwrap();
    let call = client.call(ServerAddr::new(server_host.local_addr(), 99), "hello").start().unwrap();
    eventually("the request is queued", || server_host.metrics().host.queued_requests == 1);
    server.recv().wait().unwrap().reply("there").unwrap();
    assert_eq!(call.wait().unwrap(), "there");
}

#[test]
fn a_call_ends_while_its_caller_computes() {
    let (echo, host) = (Echo::new(1), host());
    let client = host.client().unwrap();
    let call = client.call(echo.to, message(500_000, 1)).start().unwrap();
    eventually("the response is there", || host.metrics().endpoint.responses_delivered == 1);
    assert!(call.wait().unwrap() == message(500_000, 1));
}

#[test]
fn shutdown_delivers_the_answers_in_hand() {
    // On an address of its own, where no other test's host takes the port once it is free.
    let (server_host, host) = (config().address("127.0.0.3:0".parse().unwrap()).bind().unwrap(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let (client, other) = (host.client().unwrap(), host.client().unwrap());
    let call = client.call(to, "a large one, please").start().unwrap();
    let rpc = server.recv().wait().unwrap();
    let (says, said) = mpsc::channel();
    let closer = thread::spawn(move || {
        says.send(()).unwrap();
        server_host.shutdown(PATIENCE)
    });
    said.recv().unwrap();
    assert_eq!(server.recv().wait().map(|_| ()), Err(RecvError::Closed));
    rpc.reply(message(1_000_000, 4)).unwrap();
    assert!(call.wait().unwrap() == message(1_000_000, 4));
    assert!(closer.join().unwrap(), "the answer was acknowledged");
    assert!(matches!(
        other.call(to, "more").timeout(PATIENCE).wait(),
        Err(CallError::Unreachable { .. } | CallError::NoAnswer { .. })
    ));
}

#[test]
fn dropping_the_host_delivers_an_answer_that_is_on_its_way() {
    let (server_host, host) = (host(), host());
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let server = server_host.server(99).unwrap();
    let answer = thread::spawn(move || {
        let rpc = server.recv().wait().unwrap();
        rpc.reply(message(1_000_000, 5)).unwrap();
        drop((server, server_host));
    });
    assert!(host.client().unwrap().call(to, "x").wait().unwrap() == message(1_000_000, 5));
    answer.join().unwrap();
}

#[test]
fn a_port_is_free_when_its_server_is_gone() {
    let (server_host, host) = (host(), host());
    let to = ServerAddr::new(server_host.local_addr(), 3);
    let client = host.client().unwrap();
    for round in 0..3 {
        let server = loop {
            match server_host.server(3) {
                Ok(server) => break server,
                // The port is still closing, a few RPCs at a time.
                Err(HostError::Port(PortError::InUse(3))) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let call = client.call(to, "x").start().unwrap();
        server.recv().wait().unwrap().reply(round.to_string()).unwrap();
        drop(server);
        assert_eq!(call.wait().unwrap(), round.to_string());
    }
}

#[test]
fn an_rpc_dropped_unanswered_fails_its_client() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let call = host.client().unwrap().call(to, "x").start().unwrap();
    drop(server.recv().wait().unwrap());
    let error = call.timeout(PATIENCE).wait().unwrap_err();
    assert_eq!(error, CallError::ResponseLost { to });
    until_idle(&server_host);
}

#[test]
fn a_reply_to_a_client_that_gave_up_says_so() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let client = host.client().unwrap();
    let call = client.call(to, "x").start().unwrap();
    let rpc = server.recv().wait().unwrap();
    drop(call);
    eventually("the server hears of it", || server_host.metrics().host.open_rpcs == 0);
    let peer = host.local_addr();
    assert_eq!(rpc.reply("too late"), Err(ReplyError::ClientGone { peer }));
}

#[test]
fn bad_replies_are_refused_and_fail_the_client() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let client = host.client().unwrap();
    let call = client.call(to, "x").start().unwrap();
    assert_eq!(server.recv().wait().unwrap().reply(""), Err(ReplyError::EmptyMessage));
    assert_eq!(call.timeout(PATIENCE).wait(), Err(CallError::ResponseLost { to }));
    let call = client.call(to, "x").start().unwrap();
    let refused = server.recv().wait().unwrap().reply(vec![0; 1_000_001]);
    assert_eq!(refused, Err(ReplyError::MessageTooLarge { length: 1_000_001, limit: 1_000_000 }));
    assert_eq!(call.timeout(PATIENCE).wait(), Err(CallError::ResponseLost { to }));
    until_idle(&server_host);
}

#[test]
fn requests_beyond_the_queue_are_refused_and_counted() {
    let server_host = config().max_queued_request_bytes(1_000).bind().unwrap();
    let host = host();
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let client = host.client().unwrap();
    let first = client.call(to, message(900, 1)).start().unwrap();
    eventually("the first is queued", || server_host.metrics().host.queued_requests == 1);
    let second = client.call(to, message(900, 2)).start().unwrap();
    assert_eq!(second.timeout(PATIENCE).wait(), Err(CallError::ResponseLost { to }));
    assert_eq!(server_host.metrics().host.requests_refused, 1);
    server.recv().wait().unwrap().reply("first").unwrap();
    assert_eq!(first.wait().unwrap(), "first");
}

// ACK-13: the acknowledgements that are still waiting are sent.
#[test]
fn a_client_that_goes_acknowledges_before() {
    for client_first in [true, false] {
        let mut config = config();
        // The server sends no NEED_ACK, so it depends on acknowledgements that the client sends on its own.
        config = config.configure(|config| config.protocol.need_ack_interval_ns = 3_600 * homa::proto::SEC);
        config =
            config.configure(|config| config.protocol.need_ack_interval_max_ns = 3_600 * homa::proto::SEC);
        config = config.configure(|config| config.protocol.client_silence_ns = 3_600 * homa::proto::SEC);
        let echo = Echo::with(config, 1);
        let host = host();
        let client = host.client().unwrap();
        for tag in 0..3 {
            client.call(echo.to, message(100, tag)).timeout(PATIENCE).wait().unwrap();
        }
        if client_first {
            drop(client);
        }
        drop(host);
        until_idle(echo.host.as_ref().unwrap());
        let counts = echo.metrics().endpoint;
        assert_eq!((counts.need_acks_sent, counts.clients_silent), (0, 0));
    }
}

#[test]
fn a_thousand_stalled_messages_do_not_stop_reception() {
    const STALLED: u64 = 1_000;
    // On a busy machine the test may take longer than the time limit for clients that fall silent.
    let config = config().configure(|config| config.protocol.client_silence_ns = 3_600 * homa::proto::SEC);
    let echo = Echo::with(config, 1);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..STALLED {
        let common = wire::Common {
            source_port: 40_000,
            dest_port: echo.to.port,
            sender_id: 2 + 2 * n,
            incarnation: wire::Incarnation::NONE,
            bundle_endpoints: 0,
        };
        let data = wire::Data {
            message_length: 100_000,
            incoming: 10_000,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset: 0,
            response_limit: None,
        };
        let header = wire::encode(&common, &wire::Body::Data(data));
        stranger.send_to(&[&header[..], &[7; 1_000]].concat(), echo.to.host).unwrap();
        if n % 50 == 0 {
            // Wait for each message, so that no packet is lost for lack of buffer space.
            let seen = |at_least| echo.metrics().endpoint.data_received >= at_least;
            let start = Instant::now();
            while !seen(n + 1) {
                assert!(start.elapsed() < PATIENCE, "packet {n} never came");
                thread::yield_now();
            }
        }
    }
    let host = host();
    let client = host.client().unwrap();
    for length in [100, 20_000, 500_000] {
        let request = message(length, 1);
        assert!(client.call(echo.to, request.clone()).timeout(PATIENCE).wait().unwrap() == request);
    }
    let now = echo.metrics().host;
    assert!(now.open_rpcs >= STALLED / 2, "{} are open: they were to stall", now.open_rpcs);
}
