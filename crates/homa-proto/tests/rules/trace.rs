//! TRACE and FREEZE: recorded events, which never change the protocol's behaviour.

use std::net::SocketAddr;

use homa_proto::wire::{Body, PacketType};
use homa_proto::{Config, Event, MAX_FREEZE_PEERS};
use homa_trace::{Clock, EventKind, Record, Trace, drop_reason};

use super::kit::{Side, addr, exchange, kernel, ours};

fn run(trace: impl Fn() -> Trace) -> (Side, Vec<String>) {
    let config = |n: u8| Config {
        seed: n.into(),
        incarnation: 1_000 + u64::from(n),
        unsched_bytes: 5_000,
        link_mbps: Some(10_000),
        ..Config::default()
    };
    let mut server = Side::traced(1, config(1), trace());
    let mut client = Side::traced(2, config(2), trace());
    let mut said = Vec::new();
    client.call(server.addr, 60_000);
    for _ in 0..2_000 {
        for sent in client.pass(10_000) {
            server.hear(client.addr, &sent.packet);
            said.push(sent.packet.to_string());
        }
        for rpc in server.requests() {
            server.respond(rpc, 60_000);
        }
        for sent in server.pass(10_000) {
            client.hear(server.addr, &sent.packet);
            said.push(sent.packet.to_string());
        }
    }
    exchange(&mut server, &mut client);
    assert_eq!(client.stats().responses_delivered, 1);
    (client, said)
}

/// TRACE-1, TRACE-3.
#[test]
fn packets_grants_and_waits_are_recorded_and_change_nothing() {
    let (mut off, packets) = run(Trace::off);
    let (mut on, packets_traced) = run(|| Trace::new(4_096, Clock::Virtual));
    assert_eq!(packets, packets_traced);
    assert_eq!(off.endpoint.trace().iter().count(), 0);
    let (sent, received) = (on.stats().packets_sent, on.stats().packets_received);
    let (granted, grants) = (on.stats().grants_sent, on.stats().grants_received);
    let mut count =
        |kind| on.endpoint.trace().iter().filter(|record| record.event() == Some(kind)).count() as u64;
    assert_eq!(count(EventKind::PacketSent), sent);
    assert_eq!(count(EventKind::PacketReceived), received);
    assert_eq!((count(EventKind::GrantSent), count(EventKind::GrantReceived)), (granted, grants));
    assert!(count(EventKind::WaitGrant) > 0 && count(EventKind::WaitPacer) > 0);
    assert!(granted > 0 && grants > 0);
}

/// TRACE-1: events record their RPC, and packets their priority.
#[test]
fn events_of_rpcs_name_their_peer_and_packets_sent_their_priority() {
    let (mut client, _) = run(|| Trace::new(4_096, Clock::Virtual));
    let numbers: Vec<(u16, SocketAddr)> = client.endpoint.peer_numbers().collect();
    let &[(number, peer)] = &numbers[..] else { panic!("one peer: {numbers:?}") };
    assert_eq!(peer, addr(1));
    let records: Vec<Record> = client.endpoint.trace().iter().copied().collect();
    let nameless = [EventKind::PacketDropped];
    assert!(!records.is_empty());
    for record in records.iter().filter(|record| !nameless.contains(&record.event().unwrap())) {
        assert_eq!(record.place.peer(), Some(number), "{record:?}");
    }
    let sent = records.iter().filter(|record| record.event() == Some(EventKind::PacketSent));
    let mut priorities: Vec<u8> = sent.map(|record| record.place.priority()).collect();
    priorities.sort_unstable();
    priorities.dedup();
    assert!(priorities.len() > 1, "unscheduled, scheduled, control: {priorities:?}");
}

/// TRACE-1: timers that had an effect, and messages that were refused for lack of memory.
#[test]
fn timers_that_matter_and_messages_without_room_are_recorded() {
    let mut side = Side::traced(1, Config::default(), Trace::new(64, Clock::Virtual));
    side.call(addr(9), 100);
    side.pass(1);
    for _ in 0..10_000 {
        side.pass(1_000_000);
    }
    let fired = |side: &mut Side, b| {
        let fired =
            side.endpoint.trace().iter().filter(|r| r.event() == Some(EventKind::TimerFired) && r.b == b);
        fired.count() as u64
    };
    assert_eq!(fired(&mut side, 1), side.stats().resends_sent);
    assert_eq!((fired(&mut side, 3), side.stats().rpcs_timed_out), (1, 1));

    let config = Config { max_incoming_bytes: 1_000, ..Config::default() };
    let mut side = Side::traced(1, config, Trace::new(64, Clock::Virtual));
    let forger = ours(2, 7);
    side.hear(addr(2), &forger.data(6, 900, 900, (0, 900)));
    assert_eq!(side.stats().drop_buffer_limit, 1);
    let waits: Vec<Record> =
        side.endpoint.trace().iter().filter(|r| r.event() == Some(EventKind::WaitBuffer)).copied().collect();
    assert_eq!(waits.iter().map(|r| (r.id, r.a, r.b)).collect::<Vec<_>>(), [(7, 900, 750)]);
}

/// TRACE-2.
#[test]
fn every_dropped_packet_raises_one_counter_of_its_own() {
    let mut side = Side::traced(1, Config::default(), Trace::new(64, Clock::Virtual));
    let from = kernel(2);
    let drops = |side: &Side| -> Vec<(&'static str, u64)> {
        let entries = side.stats().entries().into_iter();
        entries.filter(|entry| entry.0.starts_with("drop_")).map(|entry| (entry.0, entry.1)).collect()
    };
    side.hear(from.addr, &from.data(2, 3_000, 3_000, (0, 1_000)));
    let mut no_port = from.whole(8, 10);
    no_port.common.dest_port = 98;
    let packets = [
        ("drop_duplicate", from.data(2, 3_000, 3_000, (0, 1_000))),
        ("drop_length_mismatch", from.data(2, 4_000, 3_000, (1_000, 1_000))),
        ("drop_unknown_rpc", from.whole(5, 10)),
        ("drop_no_port", no_port),
        ("drop_nonsense", from.grant(2, 100, 1)),
        ("drop_too_large", from.data(10, 2_000_000, 3_000, (0, 1_000))),
    ];
    for (name, packet) in packets {
        let before = drops(&side);
        side.hear(from.addr, &packet);
        let raised: Vec<_> =
            drops(&side).into_iter().zip(before).filter(|(after, before)| after != before).collect();
        assert_eq!(raised.len(), 1, "{packet}: {raised:?}");
        assert_eq!((raised[0].0.0, raised[0].0.1), (name, raised[0].1.1 + 1));
        let last = side.endpoint.trace().iter().last().expect("an event");
        assert_eq!((last.event(), last.b), (Some(EventKind::PacketDropped), drop_reason(name)), "{name}");
    }
}

/// FREEZE-1, FREEZE-2.
#[test]
fn a_freeze_is_told_and_neither_answered_nor_passed_on() {
    let mut side = Side::new(1, Config::default());
    for (from, known) in [(kernel(2), false), (ours(3, 4), true)] {
        if known {
            side.hear(from.addr, &from.whole(2, 10));
            side.call(from.addr, 10);
            side.take();
            side.events();
        }
        let rpcs = side.endpoint.open_rpcs();
        for id in [2, 3, 40] {
            side.hear(from.addr, &from.packet(id, Body::Freeze));
            assert_eq!(side.events(), [Event::Freeze { peer: from.addr }]);
            assert_eq!((side.take().len(), side.endpoint.open_rpcs()), (0, rpcs));
        }
    }
    assert_eq!(side.endpoint.known_peers(), 1, "{:?}", addr(2));
}

/// FREEZE-3.
#[test]
fn peers_that_were_heard_are_asked_once_each_up_to_a_bound() {
    let mut side = Side::traced(1, Config::default(), Trace::new(4_096, Clock::Virtual));
    side.call(addr(9), 10);
    side.take();
    assert_eq!(side.endpoint.freeze_peers(), 0, "one that was never heard may not be there");
    let count = MAX_FREEZE_PEERS as u16 + 5;
    for n in 0..count {
        side.now = side.now + 1;
        let from = SocketAddr::from(([10, 0, 1, 1], 1 + n));
        side.hear(from, &ours(2, 7).whole(2, 10));
    }
    side.take();
    assert_eq!(side.endpoint.freeze_peers(), MAX_FREEZE_PEERS);
    let sent = side.take();
    assert!(sent.iter().all(|sent| sent.is(PacketType::Freeze)));
    let mut ports: Vec<u16> = sent.iter().map(|sent| sent.to.port()).collect();
    ports.sort_unstable();
    // The peers with the most recent packets, each once.
    assert_eq!(ports, (6..=count).collect::<Vec<_>>());
    assert_eq!(side.stats().freezes_sent, MAX_FREEZE_PEERS as u64);
    let recorded = side.endpoint.trace().iter().filter(|r| r.event() == Some(EventKind::FreezeSent)).count();
    assert_eq!(recorded, MAX_FREEZE_PEERS);
}
