//! SHARE-12, and LIMIT-9 and LIMIT-10 by prefix: the resources that the unproven peers of one address prefix
//! may use.

use std::net::SocketAddr;

use homa_proto::wire::{Body, Packet, PacketType, UnknownReason};
use homa_proto::{Config, SEC};

use super::kit::{Forger, Sent, Side, kernel};

/// Returns a peer at one of 256 addresses of the attacker's prefix, with a UDP port that depends on `n`.
fn flooder(n: u16) -> Forger {
    let addr = SocketAddr::from(([10, 0, 9, n as u8], 1_000 + n));
    Forger { addr, ..kernel(2) }
}

/// Returns a peer in a prefix of its own.
fn elsewhere(n: u8) -> Forger {
    Forger { addr: SocketAddr::from(([10, 1, n, 1], 14_600)), ..kernel(2) }
}

/// Makes a packet with bytes of a request of a peer that has never received a packet of ours.
fn unproven(forger: &Forger, id: u64, length: u32, range: (u32, u32)) -> Packet {
    let mut packet = forger.data(id, length, length, range);
    if let Body::Data(data) = &mut packet.body {
        data.cutoff_version = 0;
    }
    packet
}

fn hear(server: &mut Side, from: &Forger, packet: &Packet) {
    server.hear(from.addr, packet);
}

/// Delivers the first byte of a request.
fn begin(server: &mut Side, from: &Forger, id: u64, length: u32) {
    hear(server, from, &unproven(from, id, length, (0, 1)));
}

/// Delivers all of a request of `length` bytes.
fn whole(server: &mut Side, from: &Forger, id: u64, length: u32) {
    hear(server, from, &unproven(from, id, length, (0, length)));
}

fn rpcs_of(server: &Side, from: &Forger) -> u32 {
    server.endpoint.peers().find(|peer| peer.addr == from.addr).map_or(0, |peer| peer.rpcs)
}

/// LIMIT-9, SHARE-12: first packets from many addresses of one prefix must not evict the requests of all
/// others.
#[test]
fn half_open_requests_of_one_prefix_evict_none_of_another() {
    let flood = |config: Config, length: u32| {
        let mut server = Side::new(1, config);
        let honest: Vec<Forger> = (0..4).map(elsewhere).collect();
        honest.iter().for_each(|peer| begin(&mut server, peer, 2, length));
        for n in 0..2_000 {
            begin(&mut server, &flooder(n), 2, length);
        }
        assert!(honest.iter().all(|peer| rpcs_of(&server, peer) == 1));
        assert!(server.stats().unproven_evicted > 1_000, "the prefix evicts its own");
        // Room is left for later requests of others.
        (10..20).for_each(|n| whole(&mut server, &elsewhere(n), 2, 10));
        assert_eq!(server.requests().len(), 10);
        honest.iter().for_each(|peer| hear(&mut server, peer, &unproven(peer, 2, length, (1, length - 1))));
        assert_eq!(server.requests().len(), 4);
        server.endpoint.open_rpcs()
    };
    let open = flood(Config { max_rpcs: 256, ..Config::default() }, 1_000);
    assert!((224..256).contains(&open), "one prefix alone may have nearly all: {open}");
    flood(Config { max_incoming_bytes: 1 << 20, ..Config::default() }, 5_000);
}

/// SHARE-12: a share by prefix must not let forged addresses keep out an honest peer of the same prefix.
#[test]
fn a_peer_of_a_flooded_prefix_has_its_request_answered() {
    let mut server = Side::new(1, Config { max_rpcs: 256, ..Config::default() });
    let honest = Forger { addr: SocketAddr::from(([10, 0, 9, 77], 14_600)), ..kernel(2) };
    for n in 0..1_000 {
        begin(&mut server, &flooder(n), 2, 1_000);
    }
    for part in 0..10 {
        hear(&mut server, &honest, &unproven(&honest, 2, 1_000, (100 * part, 100)));
        for n in 0..100 {
            begin(&mut server, &flooder(1_000 + 100 * part as u16 + n), 2, 1_000);
        }
    }
    assert_eq!(server.requests().len(), 1);
}

/// SHARE-12: the request that makes room for a new one may be the only one of the same peer, which is then
/// forgotten.
#[test]
fn a_request_may_evict_the_last_request_of_its_own_peer() {
    let mut server = Side::new(1, Config { max_rpcs: 32, max_peers: 64, ..Config::default() });
    (0..28).for_each(|n| begin(&mut server, &flooder(n), 2, 1_000));
    assert_eq!((server.endpoint.open_rpcs(), server.stats().unproven_evicted), (28, 0));
    whole(&mut server, &flooder(0), 4, 10);
    assert_eq!((server.endpoint.open_rpcs(), server.stats().unproven_evicted), (28, 1));
    assert_eq!((server.requests().len(), rpcs_of(&server, &flooder(0))), (1, 1));
}

/// SHARE-12: a refused peer that shows the version of our cutoffs counts for no prefix from then on.
#[test]
fn a_refused_peer_is_told_the_cutoffs_that_prove_it() {
    let mut server = Side::new(1, Config { max_rpcs: 256, ..Config::default() });
    (0..1_000).for_each(|n| whole(&mut server, &flooder(n), 2, 1));
    server.events();
    server.take();
    let honest = Forger { addr: SocketAddr::from(([10, 0, 9, 77], 14_600)), ..kernel(2) };
    whole(&mut server, &honest, 2, 10);
    let told: Vec<Sent> = server.take();
    assert_eq!((server.requests().len(), told.len(), told[0].to), (0, 1, honest.addr));
    let Body::Cutoffs(cutoffs) = told[0].packet.body else { panic!("{:?}", told[0]) };
    let mut again = honest.whole(2, 10);
    if let Body::Data(data) = &mut again.body {
        data.cutoff_version = cutoffs.version;
    }
    hear(&mut server, &honest, &again);
    assert_eq!(server.requests().len(), 1);
}

/// SHARE-12: complete requests cannot be evicted, so those of one prefix must not take all RPCs.
#[test]
fn whole_requests_of_one_prefix_leave_rpcs_to_others() {
    let mut server = Side::new(1, Config { max_rpcs: 256, ..Config::default() });
    (0..2_000).for_each(|n| whole(&mut server, &flooder(n), 2, 1));
    assert!(server.stats().drop_prefix_share > 1_000);
    assert_eq!(server.requests().len(), 224);
    whole(&mut server, &elsewhere(1), 2, 10);
    assert_eq!(server.requests().len(), 1);
    // A request of a peer that is already known is counted for that peer.
    whole(&mut server, &flooder(0), 4, 1);
    let known = server.endpoint.peers().find(|peer| peer.addr == flooder(0).addr).unwrap();
    assert_eq!(known.refused, 1);
}

/// SHARE-12: finished ids of many addresses of one prefix must not fill the table of all peers.
#[test]
fn finished_ids_of_one_prefix_leave_room_for_others() {
    let mut server = Side::new(1, Config { max_finished_blocks: 64, ..Config::default() });
    for n in 0..200 {
        whole(&mut server, &flooder(n), 2, 1);
        hear(&mut server, &flooder(n), &flooder(n).ack(2, &[]));
    }
    server.events();
    let stats = server.stats();
    assert_eq!((stats.drop_prefix_share, stats.drop_finished_full), (200 - 56, 0));
    whole(&mut server, &elsewhere(1), 2, 10);
    assert_eq!(server.requests().len(), 1);
}

/// SHARE-12, SHARE-11: peers of one prefix must not take all places for unproven peers.
#[test]
fn peers_of_one_prefix_leave_places_to_others() {
    let mut server = Side::new(1, Config { max_peers: 64, ..Config::default() });
    for n in 0..200 {
        whole(&mut server, &flooder(n), 2, 1);
        hear(&mut server, &flooder(n), &flooder(n).ack(2, &[]));
    }
    server.events();
    let stats = server.stats();
    assert_eq!((server.endpoint.known_peers(), stats.drop_prefix_share, stats.drop_peer_limit), (42, 158, 0));
    (0..3).for_each(|n| whole(&mut server, &elsewhere(n), 2, 10));
    assert_eq!(server.requests().len(), 3);
    // Peers with half-received requests are evicted to make room for others of their prefix.
    let mut server = Side::new(1, Config { max_peers: 64, ..Config::default() });
    (0..200).for_each(|n| begin(&mut server, &flooder(n), 2, 1_000));
    whole(&mut server, &flooder(200), 2, 10);
    assert_eq!((server.requests().len(), server.endpoint.known_peers()), (1, 42));
}

/// LIMIT-10: the claims of two addresses of one prefix must not keep all other unproven peers from getting
/// grants.
#[test]
fn claims_of_one_prefix_leave_half_of_the_grants_to_others() {
    let config = Config { max_incoming: 2_000, min_grant_increment: 1, ..Config::default() };
    let mut server = Side::new(1, config);
    for n in 0..50 {
        begin(&mut server, &flooder(n), 2, 60_000);
    }
    server.take();
    let honest = elsewhere(1);
    let mut packet = unproven(&honest, 2, 5_000, (0, 100));
    if let Body::Data(data) = &mut packet.body {
        data.incoming = 100;
    }
    hear(&mut server, &honest, &packet);
    let granted = |sent: &Sent| sent.to == honest.addr && sent.is(PacketType::Grant);
    assert!(server.take().iter().any(granted));
}

/// LIMIT-9: a request that began before its peer was proven must not be evicted once the peer is proven.
#[test]
fn a_request_of_a_peer_that_is_proven_meanwhile_makes_no_room() {
    let mut server = Side::new(1, Config { max_rpcs: 8, ..Config::default() });
    let client = kernel(2);
    begin(&mut server, &client, 2, 1_000);
    // The client knows the version of our cutoffs.
    hear(&mut server, &client, &client.whole(4, 1));
    assert_eq!(server.requests().len(), 1);
    hear(&mut server, &client, &unproven(&client, 2, 1_000, (1, 1)));
    for n in 0..100 {
        begin(&mut server, &flooder(n), 2, 1_000);
        begin(&mut server, &elsewhere(n as u8), 2, 1_000);
    }
    assert_eq!(rpcs_of(&server, &client), 2);
    hear(&mut server, &client, &unproven(&client, 2, 1_000, (2, 998)));
    assert_eq!(server.requests().len(), 1);
    // When everything has ended, nothing is counted for the prefix.
    server.hear(client.addr, &client.unknown(2, UnknownReason::Unknown));
    server.hear(client.addr, &client.unknown(4, UnknownReason::Unknown));
    server.pass(10 * SEC);
    assert!(server.endpoint.is_idle());
}
