//! PEER: silent, unreachable and restarted peers.

use homa_proto::wire::{Body, Cutoffs, Packet, PacketType};
use homa_proto::{Config, DoneReason, Event, MS, RpcError, SEC, Time, Unreachable};

use super::kit::{Forger, Side, addr, kernel, ours};

fn ends(side: &mut Side) -> (Vec<RpcError>, Vec<DoneReason>) {
    let (mut errors, mut reasons) = (Vec::new(), Vec::new());
    for event in side.events() {
        match event {
            Event::Failed { error, .. } => errors.push(error),
            Event::Done { reason, .. } => reasons.push(reason),
            _ => {}
        }
    }
    (errors, reasons)
}

/// Returns the time in milliseconds, at most 4,000, that a client with a request of `length` bytes waits for
/// a server that sends `sign` every 40 ms.
fn patience_ms(length: u32, sign: impl Fn(&Forger, u64, u32) -> Packet) -> u64 {
    let mut client = Side::new(1, Config { max_resends: 3, ..Config::default() });
    let rpc = client.call(addr(2), length);
    let id = client.id(rpc) | 1;
    let server = kernel(2).server(client.client_port);
    for round in 0..100 {
        client.pass(40 * MS);
        client.hear(addr(2), &sign(&server, id, round));
        if !ends(&mut client).0.is_empty() {
            return u64::from(round + 1) * 40;
        }
    }
    client.pass(SEC);
    assert_eq!(ends(&mut client).0, [RpcError::Timeout], "without it the RPC ends");
    4_000
}

/// PEER-3.
#[test]
fn progress_and_busy_keep_an_rpc_and_no_other_packet_does() {
    assert_eq!(patience_ms(100, |server, id, _| server.packet(id, Body::Busy)), 4_000);
    assert_eq!(patience_ms(400_000, |server, id, round| server.grant(id, 50_000 + 1_000 * round, 1)), 4_000);
    assert_eq!(
        patience_ms(40_000, |server, id, round| server.resend(id, 100 * round, Some(100))),
        4_000,
        "further"
    );
    let data = |server: &Forger, id, round| server.data(id, 400_000, 400_000, (1_000 * round, 1_000));
    assert_eq!(patience_ms(100, data), 4_000);
    let none: [fn(&Forger, u64, u32) -> Packet; 5] = [
        |server, id, _| server.resend(id, 0, Some(100)),
        |server, id, round| server.resend(id, 100 * (round % 2), Some(100)),
        |server, id, _| server.packet(id, Body::NeedAck),
        |server, id, _| server.grant(id, 50, 1),
        |server, id, _| server.data(id, 3_000, 3_000, (0, 1_000)),
    ];
    for (which, sign) in none.into_iter().enumerate() {
        assert!(patience_ms(100, sign) < 400, "packet {which}");
    }
}

/// PEER-15: a peer that sends BUSY forever cannot keep an RPC open forever.
#[test]
fn an_rpc_without_progress_ends_whatever_its_peer_says() {
    let config = Config { max_stall_ns: 5 * SEC, ..Config::default() };
    let mut client = Side::new(1, config.clone());
    let rpc = client.call(addr(2), 100);
    let id = client.id(rpc) | 1;
    let busy = kernel(2).server(client.client_port).packet(id, Body::Busy);
    let mut server = Side::new(3, config);
    let half = kernel(4);
    server.hear(half.addr, &half.data(2, 9_000, 8_000, (0, 1_000)));
    for _ in 0..49 {
        client.pass(100 * MS);
        client.hear(addr(2), &busy);
        server.pass(100 * MS);
        server.hear(half.addr, &half.packet(2, Body::Busy));
    }
    assert_eq!((ends(&mut client).0, ends(&mut server).1), (vec![], vec![]));
    client.pass(200 * MS);
    server.pass(200 * MS);
    assert_eq!(
        (ends(&mut client).0, ends(&mut server).1),
        (vec![RpcError::Timeout], vec![DoneReason::ClientSilent])
    );
    assert!(server.endpoint.is_idle());
}

/// PEER-14: on a host whose driver accepted no packets, 235 of 300 calls without a deadline once stayed open
/// forever.
#[test]
fn a_call_that_the_driver_never_takes_ends_as_one_to_a_silent_peer() {
    let mut client = Side::new(1, Config::default());
    for n in 0..300 {
        client.call(addr(2), 100 + n);
    }
    let mut end = client.now + 600 * MS;
    while let Some(at) = client.endpoint.poll_timeout().filter(|&at| at <= end) {
        client.now = client.now.max(at);
        client.endpoint.handle_timeout(client.now);
        client.endpoint.check();
        end = end.max(client.now);
    }
    assert_eq!(ends(&mut client).0, [RpcError::Timeout; 300]);
}

/// PEER-14.
#[test]
fn a_call_that_waits_its_turn_while_others_are_sent_goes_on_waiting() {
    let mut client = Side::new(1, Config::default());
    client.call(addr(2), 50_000);
    for _ in 0..100 {
        client.call(addr(3), 10);
        client.take_one().expect("the shorter one goes first");
        client.now = client.now + 20 * MS;
        client.endpoint.handle_timeout(client.now);
    }
    assert!(client.take().iter().any(|sent| sent.to == addr(2)), "its turn comes");
}

/// PEER-4.
#[test]
fn a_report_ends_the_rpcs_that_it_concerns() {
    type Quoting = fn(Option<u64>) -> Unreachable;
    let reports: [(Quoting, Vec<RpcError>); 4] = [
        (|rpc_id| Unreachable::Peer { rpc_id }, vec![RpcError::Unreachable; 2]),
        (|rpc_id| Unreachable::Protocol { rpc_id }, vec![RpcError::ProtocolUnreachable; 2]),
        (|rpc_id| Unreachable::Port { port: 99, rpc_id }, vec![RpcError::NoSuchPort; 2]),
        (|rpc_id| Unreachable::Port { port: 98, rpc_id }, vec![]),
    ];
    for (report, errors) in reports {
        let mut client = Side::new(1, Config::default());
        let calls = [2, 2, 3].map(|to| client.call(addr(to), 100));
        let report = report(Some(client.id(calls[1])));
        client.take();
        let now = client.now;
        client.endpoint.peer_unreachable(now, addr(2), report);
        client.pass(MS);
        assert_eq!(ends(&mut client).0, errors, "{report:?}");
        assert_eq!(client.endpoint.open_rpcs(), 3 - errors.len());
    }
}

/// PEER-5, PEER-12, AMO-2.
#[test]
fn a_server_asks_a_silent_client_several_times_and_then_frees_its_rpcs() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    server.hear(client.addr, &client.whole(2, 10));
    server.hear(client.addr, &client.whole(4, 10));
    // Any packet, for this or another RPC, ends the silence.
    for _ in 0..4 {
        server.pass(1_500 * MS);
        server.hear(client.addr, &client.packet(77, Body::Freeze));
    }
    assert_eq!((server.requests().len(), ends(&mut server).1.len()), (2, 0));
    server.take();
    let asked = server.pass(2 * SEC + MS);
    let asked = asked.iter().filter(|sent| sent.is(PacketType::NeedAck)).count();
    assert!((3..=20).contains(&asked), "{asked}");
    assert_eq!(ends(&mut server).1, [DoneReason::ClientSilent; 2]);
    assert!(server.endpoint.is_idle());
}

/// PEER-5.
#[test]
fn a_server_that_stood_still_itself_asks_its_clients_before_it_frees_their_rpcs() {
    let mut server = Side::new(1, Config::default());
    let (lives, gone) = (kernel(2), kernel(3));
    server.hear(lives.addr, &lives.whole(2, 10));
    server.hear(gone.addr, &gone.whole(4, 10));
    server.requests();
    // Longer than the permitted silence of clients, and slightly shorter.
    for stall_ns in [5 * SEC, 1_950 * MS, 5 * SEC] {
        server.take();
        server.now = server.now + stall_ns;
        let now = server.now;
        server.endpoint.handle_timeout(now);
        let asked = server.pass(500 * MS).iter().filter(|sent| sent.is(PacketType::NeedAck)).count();
        assert!(asked >= 3, "{asked}");
        assert_eq!(ends(&mut server).1, []);
        server.hear(lives.addr, &lives.packet(77, Body::Freeze));
        server.hear(gone.addr, &gone.packet(77, Body::Freeze));
    }
    for _ in 0..3 {
        server.hear(lives.addr, &lives.packet(77, Body::Freeze));
        server.pass(SEC);
    }
    assert_eq!(ends(&mut server).1, [DoneReason::ClientSilent]);
}

/// PEER-5, PEER-12: RESENDs for calls in the opposite direction cause no additional NEED_ACKs.
#[test]
fn a_silent_peer_is_probed_no_more_often_when_it_is_asked_for_responses_too() {
    let mut side = Side::new(1, Config { resend_spacing_ns: MS, ..Config::default() });
    side.hear(addr(2), &kernel(2).whole(2, 10));
    for _ in 0..300 {
        side.call(addr(2), 100);
    }
    side.events();
    let sent = side.pass(2_100 * MS);
    let count = |kind| sent.iter().filter(|sent| sent.is(kind)).count();
    let (resends, need_acks) = (count(PacketType::Resend), count(PacketType::NeedAck));
    assert!(resends > 1_000 && (3..=20).contains(&need_acks), "{resends} RESENDs, {need_acks} NEED_ACKs");
}

/// PEER-6, PEER-7.
#[test]
fn a_newer_incarnation_replaces_all_that_was_known_of_the_peer() {
    let mut side = Side::new(1, Config::default());
    let old = ours(2, 5);
    side.hear(old.addr, &old.whole(2, 10));
    let rpc = side.requests()[0];
    side.take();
    let server = old.server(side.client_port);
    let cutoffs = Cutoffs { cutoffs: [1; 8], version: 9, unsched_limit: None };
    side.hear(old.addr, &server.packet(3, Body::Cutoffs(cutoffs)));
    let heard_of = side.call(old.addr, 100);
    let id = side.id(heard_of) | 1;
    side.hear(old.addr, &server.packet(id, Body::Busy));
    let fresh = side.call(old.addr, 100);
    let fresh_id = side.id(fresh) | 1;
    side.take();
    let new = ours(2, 6).server(side.client_port);
    // A response that only the new incarnation can have sent. Its RPC continues.
    side.hear(new.addr, &new.data(fresh_id, 5_000, 5_000, (0, 1_000)));
    side.pass(MS);
    assert_eq!(ends(&mut side), (vec![RpcError::PeerRestarted], vec![DoneReason::ClientRestarted]));
    let now = side.now;
    assert!(side.endpoint.send_response(now, rpc, 10).is_err());
    assert!(side.endpoint.rpc_id(fresh).is_some());
    side.call(old.addr, 100);
    let sent = side.take();
    assert_eq!(sent.last().unwrap().data().cutoff_version, 0, "PEER-7");
    assert_eq!(sent.last().unwrap().data().ack, None);
}

/// PEER-8, PEER-9, PEER-10.
#[test]
fn older_and_absent_incarnations_change_nothing() {
    let config = Config { client_silence_ns: 1_000 * SEC, ..Config::default() };
    let mut server = Side::new(1, config);
    let from = |n| ours(2, n);
    server.hear(addr(2), &kernel(2).whole(2, 10));
    server.hear(addr(2), &from(1 << 39).whole(4, 10));
    assert_eq!(ends(&mut server).1, [], "PEER-9: the first one told");
    server.hear(addr(2), &from((1 << 39) - 1).whole(6, 10));
    assert_eq!((server.stats().drop_stale_incarnation, server.endpoint.open_rpcs()), (1, 2), "PEER-8");
    server.prove(&from(1 << 39));
    server.hear(addr(2), &kernel(2).whole(8, 10));
    assert_eq!(server.endpoint.open_rpcs(), 3, "PEER-10");
    server.hear(addr(2), &from(1 << 39).whole(10, 10));
    assert_eq!((ends(&mut server).1.len(), server.stats().peer_restarts), (0, 0));
    // A newer incarnation is ahead by less than half of the number range, even across its wrap-around.
    server.pass(MS);
    server.hear(addr(2), &from((1 << 40) - 1).whole(12, 10));
    assert_eq!(server.stats().drop_unproven_incarnation, 1, "PEER-16");
    server.prove(&from((1 << 40) - 1));
    server.pass(MS);
    assert_eq!(
        (ends(&mut server).1, server.stats().peer_restarts),
        (vec![DoneReason::ClientRestarted; 4], 1)
    );
    server.hear(addr(2), &from(3).whole(14, 10));
    server.prove(&from(3));
    assert_eq!(server.stats().peer_restarts, 2);
    server.pass(MS);
    server.hear(addr(2), &from(2).whole(16, 10));
    assert_eq!((server.stats().drop_stale_incarnation, server.stats().peer_restarts), (2, 2));
    server.prove(&from(2));
    assert_eq!(server.stats().peer_restarts, 3, "its clock went back");
}

/// PEER-11.
#[test]
fn only_a_peer_with_nothing_open_is_forgotten() {
    let mut side = Side::new(1, Config { max_peers: 2, ..Config::default() });
    side.call(addr(2), 10);
    let client = kernel(3);
    side.hear(client.addr, &client.whole(2, 10));
    let rpc = side.requests()[0];
    side.respond(rpc, 10);
    side.take();
    side.hear(client.addr, &client.ack(2, &[]));
    // One peer has an RPC, and the other has a finished id.
    side.hear(addr(4), &kernel(4).whole(2, 10));
    assert_eq!((side.stats().drop_peer_limit, side.endpoint.open_rpcs()), (1, 1));
    side.hear(client.addr, &client.whole(2, 10));
    assert_eq!(side.stats().drop_finished, 1);
    side.pass(11 * SEC);
    side.hear(addr(4), &kernel(4).whole(2, 10));
    assert_eq!(side.requests().len(), 1, "its ids have expired");
}

/// PEER-13.
#[test]
fn a_time_that_goes_back_is_taken_as_the_last_one() {
    let mut client = Side::new(1, Config::default());
    client.now = Time::from_ns(SEC);
    let rpc = client.call(addr(2), 100);
    let id = client.id(rpc) | 1;
    assert_eq!(client.take().len(), 1);
    client.pass(3 * MS);
    let now = client.now;
    client.endpoint.handle_timeout(now);
    client.now = Time::from_ns(3);
    client.hear(addr(2), &kernel(2).server(client.client_port).packet(id, Body::Busy));
    client.endpoint.handle_timeout(client.now);
    client.now = now;
    assert_eq!(client.pass(4 * MS).len(), 0, "it was heard of 4 ms ago, not a second");
    assert_eq!(client.pass(2 * MS).len(), 1);
    client.now = Time::ZERO;
    client.endpoint.abort(client.now, rpc);
    client.take();
    assert!(client.endpoint.is_idle());
}
