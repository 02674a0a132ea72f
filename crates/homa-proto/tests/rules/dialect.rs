//! DIALECT: three dialects of Linux Homa, distinguished by their packets.

use std::net::SocketAddr;

use homa_proto::wire::{Body, Incarnation, PacketType, Start, UnknownReason, encode};
use homa_proto::{Config, Dialect, Event, MS, RpcError, SEC};

use super::super::golden::golden;
use super::kit::{Forger, PORT, Sent, Side};

const LONG: u32 = 500_000;

/// Returns the address of host `n` over raw IP.
fn raw(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 0))
}

/// Returns a kernel with a client at port 40,000, over raw IP.
fn kernel(n: u8) -> Forger {
    Forger { addr: raw(n), port: 40_000, dest_port: PORT, incarnation: Incarnation::NONE }
}

fn start(from: &Forger, sender_id: u64, message_length: u32) -> homa_proto::wire::Packet {
    from.packet(sender_id, Body::Start(Start { message_length }))
}

/// Returns the bytes of a packet with the kernel's marks.
fn marked(packet: &homa_proto::wire::Packet) -> (Vec<u8>, usize) {
    let mut bytes = encode(&packet.common, &packet.body).to_vec();
    bytes[13] = 6;
    bytes[18..20].copy_from_slice(&[0xb9, 0x7d]);
    let wire_len = bytes.len() + packet.payload_len as usize;
    (bytes, wire_len)
}

/// Returns a RESEND without a priority.
fn short_resend(from: &Forger, sender_id: u64, offset: u32, length: Option<u32>) -> Vec<u8> {
    let packet = from.resend(sender_id, offset, length);
    let mut bytes = encode(&packet.common, &packet.body).to_vec();
    bytes.truncate(36);
    bytes
}

fn dialect(side: &Side, of: SocketAddr) -> Dialect {
    let peer = side.endpoint.peers().find(|peer| peer.addr == of);
    peer.map_or(Dialect::Unknown, |peer| peer.dialect)
}

fn kinds(sent: &[Sent]) -> Vec<PacketType> {
    let mut kinds: Vec<PacketType> = sent.iter().map(|sent| sent.packet.body.packet_type()).collect();
    kinds.dedup();
    kinds
}

/// Returns the exclusive end of the DATA among these packets.
fn end_of(sent: &[Sent]) -> u32 {
    sent.iter().filter_map(|sent| sent.range()).map(|(_, end)| end).max().unwrap_or(0)
}

/// Returns a host with one call in progress, and the packets of its peer's server about it.
fn caller(length: u32) -> (Side, Forger, u64, Vec<Sent>) {
    let mut side = Side::new(1, Config::default());
    let rpc = side.call(raw(2), length);
    let id = side.id(rpc);
    let sent = side.take();
    let server = kernel(2).server(side.client_port);
    (side, server, id, sent)
}

// DIALECT-4
#[test]
fn to_a_peer_of_unknown_dialect_start_msg_goes_before_the_unscheduled_bytes() {
    let (_, _, _, sent) = caller(LONG);
    assert_eq!(kinds(&sent), [PacketType::Start, PacketType::Data]);
    assert_eq!((end_of(&sent), sent[0].packet.body), (40_000, Body::Start(Start { message_length: LONG })));
    assert_eq!(sent[1].data().incoming, 40_000, "as in dialect 1");
    let (_, _, _, short) = caller(40_000);
    assert_eq!(kinds(&short), [PacketType::Data], "what goes unasked needs no grant");
    // Over UDP only this implementation answers, except at the port of Linux Homa's UDP encapsulation.
    let over_udp = |port| {
        let mut side = Side::new(1, Config::default());
        side.call(SocketAddr::from(([10, 0, 0, 2], port)), LONG);
        kinds(&side.take())
    };
    assert_eq!(over_udp(14_600), [PacketType::Data]);
    assert_eq!(over_udp(54_321), [PacketType::Start, PacketType::Data]);
}

// DIALECT-1, DIALECT-4
#[test]
fn each_dialect_is_sent_a_long_message_in_its_form() {
    let sent = |wire_dialect| {
        let mut side = Side::new(1, Config { wire_dialect, ..Config::default() });
        side.call(raw(2), LONG);
        let sent = side.take();
        (kinds(&sent), end_of(&sent))
    };
    assert_eq!(sent(Dialect::One), (vec![PacketType::Data], 40_000));
    assert_eq!(sent(Dialect::Two), (vec![PacketType::Start], 0));
    assert_eq!(sent(Dialect::Three), (vec![PacketType::Data], LONG));
    assert_eq!(sent(Dialect::Ours), (vec![PacketType::Data], 40_000));
}

// DIALECT-2
#[test]
fn packets_show_their_senders_dialect_and_the_newest_counts() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    assert_eq!(dialect(&side, peer.addr), Dialect::Unknown);
    let (bytes, wire_len) = marked(&start(&peer, 2, LONG));
    side.hear_bytes(peer.addr, &bytes, wire_len);
    assert_eq!(dialect(&side, peer.addr), Dialect::Two);
    side.hear_bytes(peer.addr, &short_resend(&peer, 1_000, 0, None), 36);
    assert_eq!(dialect(&side, peer.addr), Dialect::Three);
    assert_eq!(kinds(&side.take()).last(), Some(&PacketType::RpcUnknown), "RESEND-13");
    let (mut bytes, wire_len) = marked(&peer.whole(4, 100));
    bytes[52..56].fill(0xff);
    side.hear_bytes(peer.addr, &bytes, wire_len);
    assert_eq!(dialect(&side, peer.addr), Dialect::One);
    assert_eq!(side.stats().dialect_changes, 2);
}

// DIALECT-2
#[test]
fn the_first_packet_of_a_peer_shows_its_dialect() {
    for (marks, expected) in [(true, Dialect::Two), (false, Dialect::Three)] {
        let mut side = Side::new(1, Config::default());
        let peer = kernel(2);
        let packet = peer.data(2, 100, 0, (0, 100));
        let (mut bytes, wire_len) = marked(&packet);
        if !marks {
            bytes[13..20].fill(0);
        }
        side.hear_bytes(peer.addr, &bytes, wire_len);
        assert_eq!(dialect(&side, peer.addr), expected);
        // First contact causes no delay: the response already has the right form.
        let rpc = side.requests()[0];
        side.take();
        side.respond(rpc, LONG);
        let sent = side.take();
        let end = if marks { 0 } else { LONG };
        assert_eq!(end_of(&sent), end, "{:?}", kinds(&sent));
    }
}

// DIALECT-2
#[test]
fn a_peer_of_ours_changes_its_dialect_only_by_the_id_of_a_request() {
    let mut side = Side::new(1, Config { incarnation: 7, ..Config::default() });
    let peer = Forger { incarnation: Incarnation::new(8), ..kernel(2) };
    side.hear(peer.addr, &peer.whole(2, 100));
    assert_eq!(dialect(&side, peer.addr), Dialect::Ours);
    side.hear(peer.addr, &start(&kernel(2), 4, LONG));
    assert_eq!(dialect(&side, peer.addr), Dialect::Ours, "anybody can send this");
    let rpc = side.call(peer.addr, 100);
    let id = side.id(rpc);
    let server = kernel(2).server(side.client_port);
    side.hear(peer.addr, &start(&server, id | 1, LONG));
    assert_eq!(dialect(&side, peer.addr), Dialect::Two);
    side.hear(peer.addr, &peer.whole(6, 100));
    assert_eq!(dialect(&side, peer.addr), Dialect::Ours);
}

// DIALECT-3
#[test]
fn a_timeout_a_reboot_and_silence_make_a_dialect_unknown() {
    let hear_start = |side: &mut Side, id| {
        let (bytes, wire_len) = marked(&start(&kernel(2), id, LONG));
        side.hear_bytes(raw(2), &bytes, wire_len);
        assert_eq!(dialect(side, raw(2)), Dialect::Two);
        side.take();
    };
    let mut side = Side::new(1, Config::default());
    hear_start(&mut side, 2);
    side.call(raw(2), 100);
    side.pass(2 * SEC);
    assert!(
        side.events().iter().any(|event| matches!(event, Event::Failed { error: RpcError::Timeout, .. }))
    );
    assert_eq!(dialect(&side, raw(2)), Dialect::Unknown, "a timeout");
    hear_start(&mut side, 4);
    // A kernel that had our cutoffs and no longer has them has restarted.
    for (id, version, expected) in [(6, 1, Dialect::Two), (8, 0, Dialect::One)] {
        let mut packet = kernel(2).data(id, 5_000, 5_000, (0, 1_000));
        if let Body::Data(data) = &mut packet.body {
            data.cutoff_version = version;
        }
        let (bytes, wire_len) = marked(&packet);
        side.hear_bytes(raw(2), &bytes, wire_len);
        assert_eq!(dialect(&side, raw(2)), expected, "cutoffs of version {version}");
    }
    hear_start(&mut side, 10);
    side.pass(301 * SEC);
    side.endpoint.handle_timeout(side.now);
    assert_eq!(dialect(&side, raw(2)), Dialect::Unknown, "minutes of silence");
}

// DIALECT-5
#[test]
fn a_start_msg_without_an_answer_costs_one_interval() {
    let mut side = Side::new(1, Config::default());
    let (bytes, wire_len) = marked(&start(&kernel(2), 2, LONG));
    side.hear_bytes(raw(2), &bytes, wire_len);
    side.pass(0);
    let rpc = side.call(raw(2), LONG);
    let id = side.id(rpc);
    let of_call = |sent: Vec<Sent>| -> Vec<Sent> {
        sent.into_iter().filter(|sent| sent.packet.common.sender_id == id).collect()
    };
    assert_eq!(kinds(&of_call(side.take())), [PacketType::Start]);
    let again = of_call(side.pass(6 * MS));
    assert_eq!((kinds(&again), end_of(&again)), (vec![PacketType::Start, PacketType::Data], 40_000));
    assert_eq!(dialect(&side, raw(2)), Dialect::Unknown);
    // A kernel of dialect 3 sends RESEND for the rest, which also acts as a grant for it.
    let server = kernel(2).server(side.client_port);
    side.hear_bytes(raw(2), &short_resend(&server, id | 1, 40_000, Some(LONG - 40_000)), 36);
    assert_eq!(end_of(&of_call(side.take())), LONG);
    assert_eq!(dialect(&side, raw(2)), Dialect::Three);
}

// DIALECT-6
#[test]
fn a_client_that_asks_for_everything_gets_start_msg_again_and_later_the_bytes() {
    let mut side = Side::new(1, Config { wire_dialect: Dialect::Two, ..Config::default() });
    let peer = kernel(2);
    side.hear(peer.addr, &peer.whole(2, 100));
    let rpc = side.requests()[0];
    side.take();
    side.respond(rpc, LONG);
    assert_eq!(kinds(&side.take()), [PacketType::Start]);
    side.hear(peer.addr, &peer.resend(2, 0, None));
    assert_eq!(kinds(&side.take()), [PacketType::Start], "the two may have crossed");
    side.pass(6 * MS);
    side.hear(peer.addr, &peer.resend(2, 0, None));
    let sent = side.take();
    assert_eq!((kinds(&sent), end_of(&sent)), (vec![PacketType::Start, PacketType::Data], 40_000));
}

// DIALECT-6
#[test]
fn a_request_that_is_unknown_begins_again_in_the_peers_form() {
    let (mut side, server, id, _) = caller(LONG);
    side.pass(6 * MS);
    side.hear(server.addr, &server.unknown(id | 1, UnknownReason::Unknown));
    let sent = side.take();
    assert_eq!((kinds(&sent), end_of(&sent)), (vec![PacketType::Start, PacketType::Data], 40_000));
}

// DIALECT-7, RECV-10, LIMIT-7
#[test]
fn start_msg_opens_a_request_that_has_no_bytes_and_gets_a_grant() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &start(&peer, 2, LONG));
    let sent = side.take();
    assert_eq!(kinds(&sent), [PacketType::Grant]);
    assert_eq!((side.endpoint.open_rpcs(), side.sink.writes.len()), (1, 0));
    assert!(side.pass(4 * MS).is_empty(), "no RESEND before a grant could be answered");
    side.hear(peer.addr, &peer.data(2, LONG, 0, (0, 1_000)));
    side.hear(peer.addr, &peer.data(2, LONG, 0, (1_000, LONG - 1_000)));
    assert_eq!(side.requests().len(), 1);
}

// DIALECT-7, RECV-8
#[test]
fn start_msg_opens_a_response_only_for_a_call_that_waits() {
    let (mut side, server, id, _) = caller(100);
    side.hear(server.addr, &start(&server, id | 1, LONG));
    let sent = side.take();
    assert_eq!(kinds(&sent), [PacketType::Grant]);
    side.hear(server.addr, &server.data(id | 1, LONG, 0, (0, LONG)));
    assert!(matches!(side.events()[..], [Event::Response { length: LONG, .. }]));
    side.hear(server.addr, &start(&server, id | 1, LONG));
    assert_eq!((side.stats().drop_unknown_rpc, side.take().len()), (1, 0));
}

// DIALECT-8
#[test]
fn a_repeated_start_msg_gets_the_last_grant_or_busy() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &start(&peer, 2, LONG));
    let granted = side.take()[0].packet.body;
    let Body::Grant(granted) = granted else { panic!("{granted:?}") };
    side.hear(peer.addr, &start(&peer, 2, LONG));
    let again = side.take();
    assert!(matches!(again[0].packet.body, Body::Grant(grant) if grant.offset == granted.offset));
    // A lost grant is repeated alone at first. A sender that gets both the grant and a RESEND would send
    // everything twice.
    assert_eq!(kinds(&side.pass(6 * MS)), [PacketType::Grant]);
    // Then the grant is sent with the RESEND, whether or not the sender treats a RESEND as a grant.
    assert_eq!(kinds(&side.pass(10 * MS)), [PacketType::Grant, PacketType::Resend]);
    side.hear(peer.addr, &peer.data(2, LONG, 0, (0, LONG)));
    side.requests();
    side.take();
    side.hear(peer.addr, &start(&peer, 2, LONG));
    assert_eq!(kinds(&side.take()), [PacketType::Busy], "it is complete and in work");
    assert_eq!(side.stats().starts_repeated, 2);
}

// DIALECT-9
#[test]
fn a_start_msg_that_cannot_be_is_counted_and_changes_nothing() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    let refused = |side: &mut Side, packet: &homa_proto::wire::Packet| {
        let before = (side.endpoint.open_rpcs(), side.endpoint.granted_bytes());
        side.hear(peer.addr, packet);
        assert_eq!((side.endpoint.open_rpcs(), side.endpoint.granted_bytes()), before);
        assert_eq!(side.take().len(), 0, "and nothing answers it");
    };
    refused(&mut side, &start(&peer, 2, 0));
    assert_eq!(side.stats().drop_start_empty, 1);
    refused(&mut side, &start(&peer, 2, 1_000_001));
    assert_eq!(side.stats().drop_start_too_large, 1);
    side.hear(peer.addr, &start(&peer, 2, LONG));
    side.take();
    refused(&mut side, &start(&peer, 2, LONG + 1));
    assert_eq!(side.stats().drop_start_mismatch, 1);
    refused(&mut side, &peer.data(2, LONG + 1, 0, (0, 1_000)));
    assert_eq!(side.stats().drop_length_mismatch, 1);
    // START_MSG for a request that has run and ended.
    side.hear(peer.addr, &peer.whole(4, 100));
    let rpc = side.requests()[0];
    side.respond(rpc, 100);
    side.hear(peer.addr, &peer.ack(4, &[]));
    side.take();
    refused(&mut side, &start(&peer, 4, 100));
    assert_eq!(side.stats().drop_start_finished, 1);
    // START_MSG for a port that is not open (LIMIT-8).
    let nowhere = Forger { dest_port: PORT + 1, ..peer };
    refused(&mut side, &start(&nowhere, 6, LONG));
    assert_eq!(side.stats().drop_no_port, 1);
    assert_eq!(side.stats().drop_invalid, 0, "each has its own reason");
}

// DIALECT-9
#[test]
fn after_data_a_start_msg_is_answered_and_changes_nothing() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &peer.data(2, LONG, 40_000, (0, 1_000)));
    side.take();
    let before = side.endpoint.granted_bytes();
    side.hear(peer.addr, &start(&peer, 2, LONG));
    assert_eq!((kinds(&side.take()), side.endpoint.granted_bytes()), (vec![PacketType::Grant], before));
}

// DIALECT-10
#[test]
fn data_that_announces_nothing_comes_whole_and_is_asked_for_to_its_end() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &peer.data(2, LONG, 0, (0, 1_000)));
    let sent = side.take();
    assert!(!kinds(&sent).contains(&PacketType::Grant), "nothing waits for a grant");
    let asked = side.pass(6 * MS);
    let ranges: Vec<Body> = asked.iter().map(|sent| sent.packet.body).collect();
    let [Body::Resend(resend)] = ranges[..] else { panic!("{ranges:?}") };
    assert_eq!((resend.offset, resend.length), (1_000, Some(LONG - 1_000)));
}

// DIALECT-11
#[test]
fn dialect_three_gets_no_cutoffs() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &peer.whole(2, 100));
    side.hear_bytes(peer.addr, &short_resend(&peer, 1_000, 0, None), 36);
    side.take();
    side.pass(2 * MS);
    let packet = peer.data(4, 100, 0, (0, 100));
    let (mut bytes, wire_len) = marked(&packet);
    bytes[13..20].fill(0);
    bytes[46..48].fill(0);
    side.hear_bytes(peer.addr, &bytes, wire_len);
    assert_eq!(kinds(&side.take()), []);
}

// DIALECT-12
#[test]
fn packets_that_fit_no_dialect_are_counted_and_change_nothing() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    let mut ours = short_resend(&peer, 2, 0, None);
    ours[13..20].copy_from_slice(&[0, 0, 0, 0, 1, 0x48, 0x4d]);
    side.hear_bytes(peer.addr, &ours, 36);
    assert_eq!((side.stats().drop_mixed_forms, side.take().len()), (1, 0));
    let (bytes, wire_len) = marked(&start(&peer, 2, LONG));
    side.hear_bytes(peer.addr, &bytes, wire_len);
    side.take();
    let (mut bytes, wire_len) = marked(&peer.data(2, LONG, 40_000, (0, 1_000)));
    bytes[52..56].fill(0xff);
    side.hear_bytes(peer.addr, &bytes, wire_len);
    assert_eq!((side.stats().drop_mixed_forms, side.sink.writes.len()), (2, 0));
    assert_eq!(dialect(&side, peer.addr), Dialect::Two);
}

// DIALECT-12
#[test]
fn a_peer_that_changes_its_dialect_with_each_packet_costs_a_packet_for_each() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &peer.whole(2, 100));
    let rpc = side.requests()[0];
    side.respond(rpc, LONG);
    side.pass(0);
    let (mut heard, mut sent) = (0, 0);
    for round in 0..300_u64 {
        let (bytes, wire_len) = marked(&start(&peer, 100 + 2 * (round % 4), LONG));
        side.hear_bytes(peer.addr, &bytes, wire_len);
        side.hear_bytes(peer.addr, &short_resend(&peer, 10_000 + 2 * round, 0, None), 36);
        let (mut bytes, wire_len) = marked(&peer.data(50_000 + 2 * (round % 4), 5_000, 5_000, (0, 100)));
        bytes[52..56].fill(0xff);
        bytes[4..8].fill(0);
        side.hear_bytes(peer.addr, &bytes, wire_len);
        heard += 3;
        sent += side.take().iter().filter(|sent| !sent.is(PacketType::Data)).count();
    }
    assert!(side.stats().dialect_changes >= 800, "{}", side.stats().dialect_changes);
    assert!(sent <= heard + 10, "{sent} packets for {heard}");
}

// DIALECT-13
#[test]
fn a_kernel_that_asks_while_its_request_is_incomplete_is_told_busy() {
    let mut side = Side::new(1, Config::default());
    let peer = kernel(2);
    side.hear(peer.addr, &peer.data(2, 5_000, 5_000, (0, 1_000)));
    side.take();
    side.hear(peer.addr, &peer.resend(2, 0, None));
    assert_eq!(kinds(&side.take()), [PacketType::Resend, PacketType::Busy]);
}

/// Checks that an unproven peer that requests a long response again is challenged, and gets more bytes once
/// it has answered. `opening` is the peer's request with its length on the wire.
fn assert_challenged(peer: &Forger, opening: (&[u8], usize), resend: impl Fn(&mut Side)) {
    let mut side = Side::new(1, Config::default());
    side.hear_bytes(peer.addr, opening.0, opening.1);
    let rpc = side.requests()[0];
    side.respond(rpc, LONG);
    side.take();
    let mut sent = Vec::new();
    // The first RESEND may only be a grant.
    for _ in 0..2 {
        resend(&mut side);
        sent.extend(side.take());
    }
    let challenge = sent.iter().find(|sent| sent.is(PacketType::Resend)).expect("a challenge");
    let id = challenge.packet.common.sender_id;
    assert_ne!(id & !1, 2);
    // Once the peer is proven, its budget grows by a packet every `resend_spacing_ns`; before that, by a
    // packet every 16 of these intervals.
    let packets_in_10_ms = |side: &mut Side| {
        side.pass(10 * MS);
        resend(side);
        side.take().iter().filter(|sent| sent.is(PacketType::Data)).count()
    };
    let before = packets_in_10_ms(&mut side);
    side.hear(peer.addr, &peer.unknown(id ^ 1, UnknownReason::Unknown));
    let after = packets_in_10_ms(&mut side);
    assert!(before <= 10_000 / 200 / 16 + 1 && after > 10 * before, "{before} packets, then {after}");
}

// DIALECT-14
#[test]
fn an_unproven_kernel_that_needs_much_again_is_challenged() {
    let peer = kernel(2);
    let (mut bytes, wire_len) = marked(&peer.data(2, 100, 0, (0, 100)));
    bytes[13..20].fill(0);
    bytes[46..48].fill(0); // It does not know our cutoffs, which would prove it.
    assert_challenged(&peer, (&bytes, wire_len), |side| {
        side.hear_bytes(peer.addr, &short_resend(&peer, 2, 0, Some(LONG)), 36);
    });
}

// DIALECT-14
#[test]
fn an_unproven_peer_of_ours_that_needs_much_again_is_challenged() {
    let peer = Forger { incarnation: Incarnation::new(5), ..kernel(2) };
    let packet = peer.whole(2, 100);
    let mut bytes = encode(&packet.common, &packet.body).to_vec();
    bytes[46..48].fill(0);
    let wire_len = bytes.len() + packet.payload_len as usize;
    assert_challenged(&peer, (&bytes, wire_len), |side| {
        side.hear(peer.addr, &peer.resend(2, 0, Some(LONG)));
    });
}

/// Passes a golden packet from host 2 to the server.
fn hear_golden(side: &mut Side, name: &str) {
    let bytes = golden(name);
    side.hear_bytes(raw(2), &bytes, bytes.len());
}

// DIALECT-7, DIALECT-9, WIRE-25
#[test]
fn golden_packets_do_what_they_say() {
    let mut side = Side::new(1, Config::default());
    hear_golden(&mut side, "G9");
    let [unknown] = side.take()[..] else { panic!("one answer") };
    let header = encode(&unknown.packet.common, &unknown.packet.body);
    let mut expected = golden("G12");
    expected[13..20].fill(0); // We send no marks.
    assert_eq!(header.as_slice(), expected, "G9 gets G12");
    hear_golden(&mut side, "G1");
    let sent = side.take();
    assert!(matches!(sent[0].packet.body, Body::Grant(grant) if grant.offset == 100_000), "G1 gets G3");
    for (name, duplicates) in [("G5", 0), ("G6", 1), ("G8", 2)] {
        hear_golden(&mut side, name);
        assert_eq!(side.stats().drop_duplicate, duplicates, "{name} is the same segment");
    }
    hear_golden(&mut side, "G7");
    assert_eq!(side.stats().drop_mixed_forms, 1, "START_MSG has opened it: no DATA of dialect 1");
    assert_eq!(
        side.sink.writes.iter().map(|&(_, offset, len)| (offset, len)).collect::<Vec<_>>(),
        [(1_424, 4)]
    );
    for (name, invalid) in [("N1", 1), ("N4", 2), ("N5", 3)] {
        hear_golden(&mut side, name);
        assert_eq!(side.stats().drop_invalid, invalid, "{name}");
    }
    hear_golden(&mut side, "N2");
    hear_golden(&mut side, "N3");
    assert_eq!((side.stats().drop_start_empty, side.stats().drop_start_too_large), (1, 1));
    for name in ["G4", "G16"] {
        let mut side = Side::new(1, Config::default());
        hear_golden(&mut side, name);
        let [Event::Request { length: 8, .. }] = side.events()[..] else {
            panic!("{name} is a whole request")
        };
    }
}

// RESEND-9
#[test]
fn the_golden_request_for_a_tail_is_a_grant() {
    let (mut side, server, id, _) = caller(100_000);
    // G10 belongs to RPC 1234. Here it is changed so that it belongs to the call and comes from the call's
    // server.
    let mut bytes = golden("G10");
    bytes[0..2].copy_from_slice(&server.port.to_be_bytes());
    bytes[2..4].copy_from_slice(&side.client_port.to_be_bytes());
    bytes[20..28].copy_from_slice(&(id | 1).to_be_bytes());
    side.hear_bytes(raw(2), &bytes, bytes.len());
    assert_eq!(end_of(&side.take()), 100_000);
    assert_eq!(dialect(&side, raw(2)), Dialect::Three);
}
