//! Packets and reports with a forged sender: an off-path attacker knows addresses and ports, but no RPC id.

use homa_proto::wire::{AckList, Body, Cutoffs, Packet, PacketType, UnknownReason};
use homa_proto::{Config, DoneReason, Event, MS, RpcError, RpcKey, Unreachable};

use super::kit::{Forger, PORT, Side, addr, ours, pair};

/// Returns how client RPCs (errors) and server RPCs (reasons) have ended.
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

/// Returns a packet of each type, for the RPC `id`.
fn every_type(from: &Forger, id: u64) -> Vec<Packet> {
    let cutoffs = Cutoffs { cutoffs: [0; 8], version: 77, unsched_limit: Some(1) };
    vec![
        from.whole(id, 10),
        from.grant(id, 10, 1),
        from.resend(id, 0, None),
        from.unknown(id, UnknownReason::Unknown),
        from.packet(id, Body::Busy),
        from.packet(id, Body::Cutoffs(cutoffs)),
        from.packet(id, Body::Freeze),
        from.packet(id, Body::NeedAck),
        from.packet(id, Body::Ack(AckList::new())),
    ]
}

/// Returns a host that processes a request of `ours(2, 5)`, and waits for the response to its own call.
fn with_rpcs_both_ways() -> (Side, RpcKey, RpcKey) {
    let mut side = Side::new(1, Config { incarnation: 9, ..Config::default() });
    let peer = ours(2, 5);
    side.hear(peer.addr, &peer.whole(2_000, 10));
    let request = side.requests()[0];
    let call = side.call(peer.addr, 100);
    let id = side.id(call) | 1;
    side.take();
    side.hear(peer.addr, &peer.server(side.client_port).packet(id, Body::Busy));
    side.take();
    side.events();
    side.pass(MS);
    (side, request, call)
}

/// PEER-6, PEER-16: no RPC ends because of a sender that cannot answer a challenge.
#[test]
fn a_forged_newer_or_older_incarnation_ends_nothing_and_shuts_nobody_out() {
    for incarnation in [4, 6, 5 + (1 << 38), 1 << 39] {
        let (mut side, request, call) = with_rpcs_both_ways();
        let forged = ours(2, incarnation);
        let packets = every_type(&forged, 4_000).into_iter();
        let odd = every_type(&forged.server(side.client_port), 4_001);
        for packet in packets.chain(odd) {
            side.hear(forged.addr, &packet);
            side.take();
            side.pass(MS);
            assert_eq!(ends(&mut side), (vec![], vec![]), "{packet}");
        }
        assert!(side.endpoint.rpc_id(request).is_some() && side.endpoint.rpc_id(call).is_some());
        let peer = ours(2, 5);
        side.hear(peer.addr, &peer.whole(6_000, 10));
        assert_eq!(side.requests().len(), 1, "the true peer is heard as before");
        assert_eq!((side.stats().peer_restarts, side.endpoint.peers().count()), (0, 1));
    }
}

/// PEER-6, PEER-7, PEER-16: it takes one round trip until a restart is accepted, and nothing is lost
/// meanwhile.
#[test]
fn a_client_that_restarted_is_recognised_by_its_answer_and_its_request_is_asked_for() {
    let mut server = Side::new(1, Config { incarnation: 9, ..Config::default() });
    let (old, new) = (ours(2, 5), ours(2, 6));
    server.hear(old.addr, &old.whole(2_000, 10));
    assert_eq!(server.requests().len(), 1);
    server.take();
    server.pass(MS);
    server.hear(new.addr, &new.whole(4_000, 10));
    assert_eq!((server.requests().len(), ends(&mut server)), (0, (vec![], vec![])));
    server.prove(&new);
    let asked = server.take();
    let common = asked[0].packet.common;
    assert_eq!((asked.len(), asked[0].is(PacketType::Resend), common.sender_id), (1, true, 4_001));
    assert_eq!((common.source_port, common.dest_port), (PORT, new.port));
    assert_eq!(ends(&mut server).1, [DoneReason::ClientRestarted]);
    server.hear(new.addr, &new.whole(4_000, 10));
    assert_eq!(server.requests().len(), 1);
    server.hear(new.addr, &new.whole(4_000, 10));
    assert_eq!(server.requests().len(), 0, "at most once");
    server.pass(MS);
    server.hear(old.addr, &old.whole(2_000, 10));
    assert_eq!((server.requests().len(), server.stats().drop_stale_incarnation), (0, 1));
}

/// PEER-9, PEER-16: a forged first packet with a server's address keeps the server out for at most a round
/// trip.
#[test]
fn a_forged_first_incarnation_costs_no_rpc() {
    let mut client = Side::new(1, Config { incarnation: 9, ..Config::default() });
    let (forged, server) = (ours(2, 1 << 30), ours(2, 5));
    client.hear(forged.addr, &forged.whole(2_000, 10));
    let calls: Vec<RpcKey> = (0..20).map(|_| client.call(server.addr, 100)).collect();
    client.pass(MS);
    client.hear(forged.addr, &forged.packet(77, Body::Freeze));
    for rpc in &calls {
        let id = client.id(*rpc) | 1;
        client.hear(server.addr, &server.server(client.client_port).whole(id, 10));
    }
    client.pass(MS);
    let answered = client.events().iter().filter(|event| matches!(event, Event::Response { .. })).count();
    assert_eq!((answered, client.stats().rpcs_failed), (20, 0));
}

/// PEER-16, LIMIT-6: two hosts that each know an earlier incarnation of the other answer before they
/// challenge. Otherwise, with room for only one control packet, they would challenge each other forever.
#[test]
fn two_hosts_that_restarted_recognise_each_other_with_room_for_one_control_packet() {
    let (mut client, mut server) = pair(Config { max_control_packets: 1, ..Config::default() });
    client.hear(server.addr, &ours(2, 5).whole(2_000, 10));
    server.hear(client.addr, &ours(1, 5).whole(2_000, 10));
    for side in [&mut client, &mut server] {
        side.take();
        side.events();
    }
    client.call(server.addr, 10);
    let mut requests = 0;
    for _ in 0..100 {
        let (said, heard) = (client.pass(MS), server.pass(MS));
        server.hear_all(client.addr, &said);
        client.hear_all(server.addr, &heard);
        requests += server.requests().len();
    }
    assert_eq!(requests, 1);
    let challenges = [&client, &server].map(|side| side.stats().challenges_sent);
    assert!(challenges.iter().all(|&sent| sent <= 4), "{challenges:?}");
}

/// PEER-16: an unsolicited answer, or an answer to a different challenge, proves nothing.
#[test]
fn a_guessed_answer_proves_nothing() {
    let (mut side, request, call) = with_rpcs_both_ways();
    let forged = ours(2, 6);
    side.hear(forged.addr, &forged.whole(4_000, 10));
    let asked = side.take();
    let id = asked.iter().find(|sent| sent.is(PacketType::Resend)).unwrap().packet.common.sender_id;
    for guess in [0, 1, id.wrapping_add(2), id.wrapping_sub(2), id ^ 1 << 40, 4_001] {
        side.hear(forged.addr, &forged.unknown(guess, UnknownReason::Unknown));
    }
    side.pass(MS);
    assert_eq!((ends(&mut side), side.stats().peer_restarts), ((vec![], vec![]), 0));
    assert!(side.endpoint.rpc_id(request).is_some() && side.endpoint.rpc_id(call).is_some());
}

/// PEER-4: a report that may be forged ends nothing, even if the peer stays silent. Earlier, it was believed
/// after 100 ms of silence, and told clients of an overloaded server that their requests had not run.
#[test]
fn a_doubted_report_ends_nothing_while_the_peer_is_silent() {
    let reports = [
        Unreachable::Peer { rpc_id: None },
        Unreachable::Protocol { rpc_id: Some(12) },
        Unreachable::Port { port: PORT, rpc_id: None },
    ];
    for report in reports {
        let mut client = Side::new(1, Config { max_resends: 255, ..Config::default() });
        client.call(addr(2), 100);
        for _ in 0..4 {
            let now = client.now;
            client.endpoint.peer_unreachable(now, addr(2), report);
            client.pass(200 * MS);
        }
        assert_eq!(ends(&mut client).0, [], "{report:?}");
        assert_eq!((client.stats().reports_doubted, client.stats().challenges_sent), (4, 0));
    }
}

/// PEER-4: a report that quotes no packet of ours changes nothing.
#[test]
fn a_forged_unreachable_ends_nothing_while_the_peer_answers() {
    for report in [
        Unreachable::Peer { rpc_id: None },
        Unreachable::Protocol { rpc_id: Some(4) },
        Unreachable::Port { port: PORT, rpc_id: None },
    ] {
        let (mut side, request, call) = with_rpcs_both_ways();
        for _ in 0..20 {
            let now = side.now;
            side.endpoint.peer_unreachable(now, addr(2), report);
            side.pass(MS);
            side.hear(addr(2), &ours(2, 5).packet(77, Body::Freeze));
            side.take();
        }
        assert_eq!(ends(&mut side), (vec![], vec![]), "{report:?}");
        assert!(side.endpoint.rpc_id(request).is_some() && side.endpoint.rpc_id(call).is_some());
    }
}
