//! SHARE: limits on the resources that one peer may use.

use homa_proto::wire::{self, Body, Packet, PacketType};
use homa_proto::{Config, MS, RpcKey, SEC};

use super::kit::{Forger, Sent, Side, addr, kernel, ours, serve_once};

/// Makes a packet of a peer that has never received a packet of ours: it does not know our cutoffs' version.
fn unproven(forger: &Forger, id: u64, length: u32, range: (u32, u32)) -> Packet {
    let mut packet = forger.data(id, length, length, range);
    if let Body::Data(data) = &mut packet.body {
        data.cutoff_version = 0;
    }
    packet
}

/// Returns the payload bytes of the DATA packets among `sent`.
fn payload(sent: &[Sent]) -> u64 {
    sent.iter().map(|sent| u64::from(sent.packet.payload_len)).sum()
}

fn bytes(sent: &[Sent]) -> u64 {
    let header = |sent: &Sent| wire::encode(&sent.packet.common, &sent.packet.body).len() as u64;
    sent.iter().map(header).sum::<u64>() + payload(sent)
}

fn granted_to(sent: &[Sent], n: u8) -> bool {
    sent.iter().any(|sent| sent.to == addr(n) && sent.is(PacketType::Grant))
}

/// Answers the request with id `id` of kernel `n` with `length` bytes, all of which are sent.
fn answered(server: &mut Side, n: u8, id: u64, length: u32) -> RpcKey {
    server.hear(addr(n), &kernel(n).whole(id, 100));
    let rpc = server.requests()[0];
    server.respond(rpc, length);
    server.hear(addr(n), &kernel(n).grant(id, length, 0));
    assert_eq!(payload(&server.take()), u64::from(length));
    rpc
}

/// SHARE-4: repeated RESENDs, of 37 bytes each, must not each cause 900,000 bytes to be sent.
#[test]
fn a_peer_that_asks_again_and_again_gets_a_bounded_number_of_bytes() {
    let mut server = Side::new(1, Config::default());
    answered(&mut server, 2, 2, 900_000);
    let mut again = 0;
    for _ in 0..200 {
        server.hear(addr(2), &kernel(2).resend(2, 0, None));
        again += payload(&server.take());
    }
    assert!(again >= 400_000, "what may be on its way is sent again at once: {again}");
    assert!(again <= 900_000, "{again} bytes for 200 RESENDs of 37");
    assert!(server.stats().resends_over_budget > 0);
    let peer = server.endpoint.peers().find(|peer| peer.addr == addr(2)).unwrap();
    assert!(peer.refused > 0, "the counters name who was refused");
    let later = server.pass(10 * MS);
    assert_eq!(payload(&later), 0, "what was refused must be asked for again");
    server.hear(addr(2), &kernel(2).resend(2, 0, Some(5_000)));
    assert_eq!(payload(&server.take()), 5_000, "time refills the budget, so that all ends well");
}

/// SHARE-4.
#[test]
fn bytes_delivered_refill_the_budget_for_those_sent_again() {
    let mut server = Side::new(1, Config::default());
    answered(&mut server, 2, 2, 900_000);
    let ask = |server: &mut Side, id| {
        server.hear(addr(2), &kernel(2).resend(id, 0, None));
        payload(&server.take())
    };
    (0..100).for_each(|_| _ = ask(&mut server, 2));
    assert_eq!(ask(&mut server, 2), 0);
    server.hear(addr(2), &kernel(2).ack(2, &[]));
    answered(&mut server, 2, 4, 300_000);
    assert!(ask(&mut server, 4) >= 295_000);
}

/// RESEND-10: a peer that requests bytes again must get an answer even if these bytes wait behind shorter
/// messages; otherwise the peer would give up.
#[test]
fn a_peer_that_asks_for_bytes_that_wait_to_be_sent_again_is_told_so() {
    let config = Config { link_mbps: Some(10), max_nic_backlog_ns: 1, ..Config::default() };
    let mut server = Side::new(1, config);
    server.hear(addr(2), &kernel(2).whole(2, 100));
    let rpc = server.requests()[0];
    server.respond(rpc, 30_000);
    assert_eq!(payload(&server.pass(50 * MS)), 30_000);
    let ask = |server: &mut Side| {
        server.hear(addr(2), &kernel(2).resend(2, 0, None));
        server.take()
    };
    let first = ask(&mut server);
    assert!(payload(&first) > 0 && payload(&first) < 30_000, "the pacer holds the rest back");
    assert!(!first.iter().any(|sent| sent.is(PacketType::Busy)));
    ask(&mut server); // The packets that the pacer has released since then are queued again.
    let busy = ask(&mut server);
    assert!(busy.iter().any(|sent| sent.is(PacketType::Busy)), "{busy:?}");
}

/// SHARE-5: retransmissions must not go before all other bytes of all peers.
#[test]
fn bytes_sent_again_wait_for_shorter_messages() {
    let mut server = Side::new(1, Config::default());
    answered(&mut server, 2, 2, 300_000);
    server.hear(addr(3), &kernel(3).whole(2, 100));
    let short = server.requests()[0];
    server.hear(addr(2), &kernel(2).resend(2, 0, None));
    server.respond(short, 20_000);
    let data: Vec<Sent> = server.take().into_iter().filter(|sent| sent.is(PacketType::Data)).collect();
    let first_long = data.iter().position(|sent| sent.to == addr(2)).unwrap();
    let last_short = data.iter().rposition(|sent| sent.to == addr(3)).unwrap();
    assert!(last_short < first_long, "{first_long} {last_short}");
    assert_eq!(payload(&data), 320_000);
}

/// SHARE-6: four first packets of one peer must not keep other peers from getting grants.
#[test]
fn claims_of_one_peer_leave_half_of_the_grants_to_others() {
    let mut server = Side::new(1, Config::default());
    (2..4).for_each(|n| serve_once(&mut server, &kernel(n)));
    for id in [2, 4, 6, 8] {
        server.hear(addr(2), &kernel(2).data(id, 1_000_000, 1_000_000, (0, 1)));
    }
    server.take();
    server.hear(addr(3), &kernel(3).data(2, 300_000, 40_000, (0, 1_000)));
    assert!(granted_to(&server.take(), 3));
}

/// SHARE-6: with a `window` above `max_incoming`, the unscheduled bytes announced by one peer must not keep
/// other peers from getting grants.
#[test]
fn a_long_window_does_not_make_the_share_of_one_peer_all_there_is() {
    let config = Config { max_incoming: 2_000, window: 50_000, min_grant_increment: 1, ..Config::default() };
    let mut server = Side::new(1, config);
    (2..4).for_each(|n| serve_once(&mut server, &kernel(n)));
    server.hear(addr(2), &kernel(2).data(2, 60_000, 60_000, (0, 1)));
    server.take();
    server.hear(addr(3), &kernel(3).data(2, 5_000, 1, (0, 1)));
    assert!(granted_to(&server.take(), 3));
}

/// Delivers bytes of a request from the unproven peer `n`: a request of `length` bytes, of
/// which the first `unscheduled` need no grant. Returns what the server sends.
fn unproven_bytes(
    server: &mut Side,
    n: u8,
    id: u64,
    (length, unscheduled): (u32, u32),
    range: (u32, u32),
) -> Vec<Sent> {
    let mut packet = unproven(&kernel(n), id, length, range);
    if let Body::Data(data) = &mut packet.body {
        data.incoming = unscheduled;
    }
    server.hear(addr(n), &packet);
    server.take()
}

/// LIMIT-10: the unscheduled bytes announced by one unproven peer must not keep all other unproven peers from
/// getting grants.
#[test]
fn claims_of_one_unproven_peer_leave_half_of_the_grants_to_the_others() {
    let config = Config { max_incoming: 2_000, min_grant_increment: 1, ..Config::default() };
    let mut server = Side::new(1, config);
    for id in 1..400 {
        unproven_bytes(&mut server, 2, 2 * id, (60_000, 60_000), (1, 1));
    }
    let sent = unproven_bytes(&mut server, 3, 2, (5_000, 100), (0, 100));
    assert!(granted_to(&sent, 3));
}

/// Returns the end of the grant to `n` among the packets, or `end` if that is greater.
fn granted_end(sent: &[Sent], n: u8, end: u32) -> u32 {
    let grant = |sent: &Sent| match sent.packet.body {
        Body::Grant(grant) if sent.to == addr(n) => Some(grant.offset),
        _ => None,
    };
    sent.iter().filter_map(grant).fold(end, u32::max)
}

/// LIMIT-10: the one place for unproven peers must not always go to the shortest message, since one peer
/// could always have the shortest.
#[test]
fn the_last_place_of_unproven_peers_goes_round() {
    let config =
        Config { max_overcommit: 2, grant_fifo_fraction: 0, max_message: 100_000_000, ..Config::default() };
    let mut server = Side::new(1, config);
    serve_once(&mut server, &kernel(2));
    server.hear(addr(2), &kernel(2).data(2, 90_000_000, 1, (0, 1)));
    let mut proven = (1, granted_end(&server.take(), 2, 1));
    for id in 0..50 {
        unproven_bytes(&mut server, 3, 2 + 2 * id, (600_000, 1), (0, 1));
    }
    // Peer 2, which is proven, and peer 4 send all granted bytes; peer 3 sends none.
    let mut honest = (0, 1_000);
    for round in 0..100 {
        let mut sent = server.pass(MS);
        sent.extend(unproven_bytes(&mut server, 3, 200 + 2 * round, (600_000, 1), (0, 1)));
        if proven.0 < proven.1 {
            let range = (proven.0, proven.1 - proven.0);
            server.hear(addr(2), &kernel(2).data(2, 90_000_000, 1, range));
            sent.extend(server.take());
        }
        if honest.0 < honest.1 {
            let range = (honest.0, honest.1 - honest.0);
            sent.extend(unproven_bytes(&mut server, 4, 2, (900_000, 1_000), range));
        }
        proven = (proven.1, granted_end(&sent, 2, proven.1));
        honest = (honest.1, granted_end(&sent, 4, honest.1));
    }
    assert!(proven.0 > 1_000_000, "{proven:?}");
    assert_eq!(honest.0, 900_000, "{honest:?}");
}

/// SHARE-7: a message that arrives one byte at a time must lose its grants and its place.
#[test]
fn a_message_that_trickles_loses_its_grants_and_its_place() {
    let config = Config { max_overcommit: 2, ..Config::default() };
    let mut server = Side::new(1, config);
    (2..9).for_each(|n| serve_once(&mut server, &kernel(n)));
    for n in 2..8 {
        server.hear(addr(n), &kernel(n).data(2, 200_000, 40_000, (0, 1)));
    }
    for step in 1..20 {
        for n in 2..8 {
            server.hear(addr(n), &kernel(n).data(2, 200_000, 40_000, (step, 1)));
        }
        server.pass(MS);
    }
    let granted = server.endpoint.granted_bytes();
    assert!(granted < 10_000, "{granted} bytes of which {} came", 6 * 20);
    server.hear(addr(8), &kernel(8).data(2, 300_000, 40_000, (0, 1_000)));
    assert!(granted_to(&server.take(), 8));
    // The announced bytes of the last message arrive after all, and it gets its place back.
    server.hear(addr(8), &kernel(8).unknown(2, wire::UnknownReason::Unknown));
    let mut granted = false;
    for step in 0..40 {
        server.hear(addr(7), &kernel(7).data(2, 200_000, 40_000, (20 + step * 1_000, 1_000)));
        granted |= granted_to(&server.take(), 7);
    }
    assert!(granted);
}

/// SHARE-8: the first packets of one peer must not cause a limit on the unscheduled bytes of all peers (they
/// once caused a limit of 543 bytes).
#[test]
fn first_packets_of_one_peer_are_no_incast() {
    let begin = |peers: u8| {
        let config = Config { link_mbps: Some(25_000), ..Config::default() };
        let mut server = Side::new(1, config);
        for step in 0..990 {
            let from = kernel(2 + (step % u64::from(peers)) as u8);
            server.hear(from.addr, &from.data(2 + 2 * step, 1_000_000, 1_000_000, (7, 1)));
            server.pass(10_000);
        }
        server.endpoint.unsched_limit()
    };
    assert_eq!(begin(1), None);
    let many = |server: &mut Side| {
        for n in 2..42 {
            server.hear(addr(n), &kernel(n).data(2, 40_000, 40_000, (0, 1_000)));
        }
    };
    let mut server = Side::new(1, Config { link_mbps: Some(25_000), ..Config::default() });
    many(&mut server);
    assert!(server.endpoint.unsched_limit().is_some(), "many peers at once are an incast");
}

/// SHARE-2: the ids of one peer must not fill the table of all peers.
#[test]
fn finished_ids_of_one_peer_leave_room_for_others() {
    let mut server = Side::new(1, Config { max_finished_blocks: 64, ..Config::default() });
    for block in 1..200 {
        server.hear(addr(2), &kernel(2).whole(block * 128, 10));
        server.hear(addr(2), &kernel(2).ack(block * 128, &[]));
    }
    server.events();
    let stats = server.stats();
    assert!(stats.drop_finished_full + stats.drop_peer_share > 0);
    server.hear(addr(3), &kernel(3).whole(2, 10));
    assert_eq!(server.requests().len(), 1);
}

/// SHARE-1, SHARE-2: the requests of one peer must not take all RPCs and bytes.
#[test]
fn half_open_requests_of_one_peer_leave_room_for_others() {
    let served = |config: Config, length| {
        let mut server = Side::new(1, config);
        (2..4).for_each(|n| serve_once(&mut server, &kernel(n)));
        for id in 1..300 {
            server.hear(addr(2), &kernel(2).data(2 * id, length, 1_000, (1, 1)));
        }
        let refused = |server: &Side, n| {
            let peer = server.endpoint.peers().find(|peer| peer.addr == addr(n)).unwrap();
            peer.refused
        };
        assert!(server.stats().drop_peer_share > 0);
        assert!(refused(&server, 2) > 0, "the counters name who was refused");
        server.take();
        server.hear(addr(3), &kernel(3).whole(2, 10));
        assert_eq!(refused(&server, 3), 0);
        (server.requests().len(), server.endpoint.open_rpcs())
    };
    let (requests, open) = served(Config { max_rpcs: 64, ..Config::default() }, 2);
    assert!(requests == 1 && (48..64).contains(&open), "one alone may have nearly all: {open}");
    let (requests, _) = served(Config { max_incoming_bytes: 16 << 20, ..Config::default() }, 1_000_000);
    assert_eq!(requests, 1);
}

/// SHARE-1: a request of two bytes must count as more than two bytes.
#[test]
fn a_short_message_counts_with_what_it_takes() {
    let mut server = Side::new(1, Config { max_incoming_bytes: 1 << 20, ..Config::default() });
    serve_once(&mut server, &kernel(2));
    for id in 1..10_000 {
        server.hear(addr(2), &kernel(2).data(2 * id, 2, 2, (1, 1)));
    }
    assert!(server.endpoint.open_rpcs() <= 1024, "{}", server.endpoint.open_rpcs());
}

/// SHARE-3: a peer's ACK of its own request must not prove the peer.
#[test]
fn a_peers_own_acknowledgement_proves_nothing() {
    let left = |proves: bool| {
        let mut server = Side::new(1, Config { max_rpcs: 4, ..Config::default() });
        let client = kernel(2);
        server.hear(client.addr, &unproven(&client, 2, 10, (0, 10)));
        let rpc = server.requests()[0];
        server.respond(rpc, 1);
        server.hear(client.addr, &client.ack(2, &[]));
        if proves {
            // Only a receiver of our CUTOFFS knows their version.
            server.hear(client.addr, &client.whole(4, 1));
            let rpc = server.requests()[0];
            server.respond(rpc, 1);
            server.hear(client.addr, &client.ack(4, &[]));
        }
        for id in 4..7 {
            server.hear(client.addr, &unproven(&client, 2 * id, 1_000, (0, 10)));
        }
        for n in 3..7 {
            server.hear(addr(n), &unproven(&kernel(n), 2, 1_000, (0, 10)));
        }
        let client = server.endpoint.peers().find(|peer| peer.addr == client.addr);
        client.map_or(0, |client| client.rpcs)
    };
    assert_eq!(left(false), 0, "it makes room, the longest silent first");
    let config = Config::default();
    assert_eq!(config.first_cutoff_version, 1, "in simulations all hosts begin alike");
    assert_eq!(left(true), 3, "strangers make room for one another only");
}

/// SHARE-9: answers must not exceed the budget, neither for a half-open request with a gap (once answered
/// with 17 times its bytes) nor for an echo without an acknowledgement (7 times).
#[test]
fn an_unproven_peer_gets_no_more_than_three_times_what_it_sent() {
    let sent_for = |request: (u32, (u32, u32)), answer: u32| {
        let mut server = Side::new(1, Config::default());
        let client = kernel(2);
        let (length, range) = request;
        server.hear(client.addr, &unproven(&client, 2, length, range));
        let mut sent = Vec::new();
        for rpc in server.requests() {
            server.respond(rpc, answer);
        }
        sent.extend(server.pass(20 * SEC));
        assert!(server.endpoint.is_idle());
        bytes(&sent)
    };
    let gap = sent_for((10_000, (5_000, 1)), 0);
    assert!(gap <= 3 * 57, "{gap} bytes for 57");
    let echo = sent_for((1, (0, 1)), 1);
    assert!(echo <= 57 + 3 * 57, "{echo} bytes for 57, of which 57 are the answer");
}

fn length_of(packet: &Packet) -> u64 {
    wire::encode(&packet.common, &packet.body).len() as u64 + u64::from(packet.payload_len)
}

/// SHARE-9: ACKs in response to NEED_ACKs, and RPC_UNKNOWNs in response to RESENDs, must count against the
/// limit of three times the received bytes, like answers to half-received requests.
#[test]
fn answers_to_an_unproven_peer_count_towards_three_times_what_it_sent() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    let mut came = 0;
    let mut hear = |server: &mut Side, packet: Packet| {
        came += length_of(&packet);
        server.hear(client.addr, &packet);
    };
    for id in 1..100 {
        hear(&mut server, unproven(&client, 2 * id, 10_000, (5_000, 1)));
    }
    for id in 1_000..1_200 {
        hear(&mut server, client.packet(2 * id + 1, Body::NeedAck));
        hear(&mut server, client.resend(2 * id, 0, None));
    }
    let sent = server.pass(20 * SEC);
    let count = |kind| sent.iter().filter(|sent| sent.is(kind)).count();
    assert_eq!((count(PacketType::Ack), count(PacketType::RpcUnknown)), (200, 200), "each has its answer");
    assert!(count(PacketType::Resend) > 100, "the rest is for what is missing");
    assert!(bytes(&sent) <= 3 * came, "{} bytes for {came}", bytes(&sent));
}

/// SHARE-9: an address that is not a peer has no budget, but none of its packets causes an answer of more
/// than three times its bytes.
#[test]
fn no_answer_to_an_address_that_is_no_peer_exceeds_three_times_the_packet() {
    let config = Config { max_message: 100, ..Config::default() };
    for client in [kernel(2), ours(2, 7)] {
        let elsewhere = Forger { dest_port: 1_234, ..client };
        for packet in [
            client.packet(3, Body::NeedAck),
            client.resend(2, 0, None),
            client.resend(3, 0, None),
            client.ack(2, &[]),
            client.unknown(2, wire::UnknownReason::Unknown),
            client.grant(2, 1, 0),
            client.whole(2, 101),
            elsewhere.whole(2, 1),
        ] {
            let mut server = Side::new(1, config.clone());
            server.hear(client.addr, &packet);
            let sent = server.pass(20 * SEC);
            assert_eq!(server.endpoint.known_peers(), 0);
            assert!(bytes(&sent) <= 3 * length_of(&packet), "{} bytes for {packet:?}", bytes(&sent));
        }
    }
}

/// SHARE-10: merely announced lengths must not change the cutoffs for all peers.
#[test]
fn cutoffs_follow_messages_that_came_and_no_claims() {
    let config = Config { cutoff_interval_ns: MS, cutoff_min_bytes: 10_000, ..Config::default() };
    let mut server = Side::new(1, config);
    let began = server.endpoint.cutoffs();
    for id in 1..100 {
        server.hear(addr(2), &kernel(2).data(2 * id, 1_000_000, 1_000_000, (7, 1)));
        server.pass(MS);
    }
    assert_eq!(server.endpoint.cutoffs(), began);
    for id in 200..300 {
        server.hear(addr(3), &kernel(3).whole(2 * id, 1_000));
        server.pass(MS);
    }
    assert_ne!(server.endpoint.cutoffs(), began);
}

/// SHARE-11: requests from many addresses must not fill the table of peers, so that this host can still call
/// a new peer.
#[test]
fn peers_that_show_nothing_leave_a_part_of_the_table() {
    let mut server = Side::new(1, Config { max_peers: 8, ..Config::default() });
    // Each peer has a prefix of its own (SHARE-12).
    let addr = |n: u8| std::net::SocketAddr::from(([10, 1, n, 1], 14_600));
    for n in 20..60 {
        server.hear(addr(n), &unproven(&kernel(n), 2, 1, (0, 1)));
        server.hear(addr(n), &kernel(n).ack(2, &[]));
    }
    assert_eq!((server.endpoint.known_peers(), server.stats().drop_peer_limit), (6, 34));
    server.call(addr(2), 10);
    // When their ids have expired, they are replaced by new peers.
    server.pass(11 * SEC);
    server.hear(addr(60), &unproven(&kernel(60), 2, 1, (0, 1)));
    assert_eq!(server.stats().drop_peer_limit, 34);
}
