//! WIRE-21 to WIRE-23: several packets in one datagram. The runtime builds the bundles, and has the test of
//! WIRE-24.

use homa_proto::wire::{self, COMMON_LEN, Incarnation, PacketType};
use homa_proto::{Bundle, Config, Transmit};
use proptest::prelude::*;

use super::kit::{Forger, Side, addr, exchange, kernel, ours, pair};

/// Returns a datagram of three packets: requests of 10 and 200 bytes, and an ACK.
fn bundle() -> Vec<u8> {
    let client = ours(2, 5);
    let mut datagram = Vec::new();
    for (packet, payload) in
        [(client.whole(2, 10), 10), (client.ack(8, &[10]), 0), (client.whole(4, 200), 200)]
    {
        wire::append_packet(&mut datagram, &wire::encode(&packet.common, &packet.body), &vec![7; payload]);
    }
    datagram
}

fn lengths(datagram: &[u8]) -> Vec<usize> {
    wire::packets(datagram).map(<[u8]>::len).collect()
}

/// WIRE-21.
#[test]
fn a_bundle_is_its_packets_and_what_is_none_is_one_packet() {
    let datagram = bundle();
    assert_eq!(lengths(&datagram), [66, 80, 256]);
    for padding in [1, COMMON_LEN - 1, COMMON_LEN, 900] {
        let padded = [&datagram[..], &vec![0; padding]].concat();
        assert_eq!(lengths(&padded), [66, 80, 256], "{padding} bytes of padding");
    }
    assert_eq!(wire::packet_length(&datagram), Some(66));
    let mut server = Side::new(1, Config::default());
    for packet in wire::packets(&datagram) {
        server.hear_bytes(addr(2), packet, packet.len());
    }
    assert_eq!(
        (server.requests().len(), server.stats().acks_received, server.stats().drop_invalid),
        (2, 1, 0)
    );
    // WIRE-3: Linux Homa ignores these bytes.
    let mut foreign = datagram.clone();
    foreign[18..20].fill(0);
    assert_eq!((lengths(&foreign), wire::packet_length(&foreign)), (vec![datagram.len()], None));
    let alone = wire::encode(&ours(2, 5).whole(2, 10).common, &wire::Body::Busy);
    assert_eq!((lengths(&alone), lengths(&[]), lengths(&[1; 5])), (vec![COMMON_LEN], vec![0], vec![5]));
}

/// WIRE-22.
#[test]
fn a_length_that_does_not_fit_spoils_no_packet_before_it() {
    let datagram = bundle();
    let second = 66 + 8..66 + 10;
    for length in [1, 27, (datagram.len() - 66 + 1) as u16, u16::MAX] {
        let mut broken = datagram.clone();
        broken[second.clone()].copy_from_slice(&length.to_be_bytes());
        assert_eq!(lengths(&broken), [66, 0], "a length of {length}");
    }
    assert_eq!(lengths(&datagram[..datagram.len() - 1]), [66, 80, 0], "cut");
    let mut unmarked = datagram.clone();
    unmarked[66 + 18..66 + 20].fill(0);
    assert_eq!(lengths(&unmarked), [66, 0], "the second is not of our kind");
    let mut server = Side::new(1, Config::default());
    server.hear_bytes(addr(2), &[], 0);
    assert_eq!(server.stats().drop_invalid, 1);
}

proptest! {
    /// WIRE-13, WIRE-22.
    #[test]
    fn dividing_any_bytes_ends_and_reads_nothing_twice(
        bytes in prop::collection::vec(any::<u8>(), 0..400), changes in prop::collection::vec((0_usize..402, any::<u8>()), 0..8),
    ) {
        let mut datagram = bundle();
        for (at, byte) in changes {
            datagram[at] = byte;
        }
        for datagram in [&bytes[..], &datagram] {
            let lengths = lengths(datagram);
            prop_assert!(lengths.iter().sum::<usize>() <= datagram.len());
            prop_assert!(lengths.iter().rev().skip(1).all(|&length| length >= COMMON_LEN));
        }
    }
}

/// Returns the next packet to host 2.
fn next(side: &mut Side) -> Transmit {
    side.endpoint.poll_transmit(side.now).expect("a packet waits")
}

/// Creates a server, with a client of our kind that announces `endpoints`; returns the bundle of the server's
/// response to `id`.
fn bundle_to(client: &Forger, endpoints: u8, id: u64) -> Option<Bundle> {
    let mut server = Side::new(1, Config { incarnation: 9, ..Config::default() });
    // The first packet creates the peer. What the second packet says about the peer's host is accepted.
    for id in [2, id] {
        let mut request = client.whole(id, 100);
        request.common.bundle_endpoints = endpoints;
        server.hear(client.addr, &request);
    }
    let rpc = server.requests()[1];
    server.respond(rpc, 100);
    next(&mut server).bundle
}

/// WIRE-23.
#[test]
fn only_a_peer_that_says_so_is_sent_bundles_each_for_one_of_its_endpoints() {
    let client = ours(2, 5);
    let max_bytes = Config::default().max_packet;
    assert_eq!(bundle_to(&client, 0, 6), None);
    assert_eq!(bundle_to(&client, 1, 6), Some(Bundle { endpoint: 0, max_bytes }));
    assert_eq!(bundle_to(&client, 4, 6), Some(Bundle { endpoint: 3, max_bytes }));
    assert_eq!(bundle_to(&kernel(2), 1, 6), None, "a kernel says nothing there");
    let marked_only = Forger { incarnation: Incarnation::NONE, ..client };
    assert_eq!(bundle_to(&marked_only, 1, 6), None);
}

/// WIRE-23.
#[test]
fn the_first_packets_to_a_peer_are_alone_until_its_data_allows_bundles() {
    let (mut client, mut server) = pair(Config::default());
    client.call(server.addr, 100);
    assert_eq!(next(&mut client).bundle, None);
    client.call(server.addr, 100);
    let request = client.take_one().unwrap();
    assert_eq!(request.packet.common.bundle_endpoints, 0, "it may be a kernel");
    server.hear(client.addr, &request.packet);
    let rpc = server.requests()[0];
    server.respond(rpc, 100);
    let response = server.take_one().unwrap();
    assert_eq!(response.packet.common.bundle_endpoints, 0, "as far as the server knows");
    client.hear(server.addr, &response.packet);
    client.call(server.addr, 100);
    let request = next(&mut client);
    assert_eq!((request.bundle, request.header[10]), (None, 1));
    for _ in 0..2 {
        client.call(server.addr, 100);
        exchange(&mut client, &mut server);
        for rpc in server.requests() {
            server.respond(rpc, 100);
        }
        exchange(&mut client, &mut server);
    }
    client.call(server.addr, 100);
    let request = next(&mut client);
    let bundle = request.bundle.unwrap();
    assert_eq!(bundle, Bundle { endpoint: 0, max_bytes: client.endpoint.config().max_packet });
    // Control packets, too.
    let grown = client.call(server.addr, 30_000);
    client.take();
    client.endpoint.abort(client.now, grown);
    let ack = next(&mut client);
    assert_eq!(ack.header[11], PacketType::Ack as u8);
    assert_eq!(ack.bundle, Some(bundle));
    // A host that cannot split bundles announces that, and receives no bundles from then on.
    server.endpoint.refuse_bundles();
    let rpc = client.call(server.addr, 100);
    let request = client.take().pop().unwrap();
    server.hear(client.addr, &request.packet);
    let answered = server.requests()[0];
    server.respond(answered, 100);
    let response = server.take().pop().unwrap();
    assert_eq!(response.packet.common.bundle_endpoints, 0);
    client.hear(server.addr, &response.packet);
    assert!(client.endpoint.rpc_id(rpc).is_none());
    client.call(server.addr, 100);
    assert_eq!(next(&mut client).bundle, None);
}

/// WIRE-23: a restarted host may run another program.
#[test]
fn a_restart_takes_the_word_back() {
    let mut server = Side::new(1, Config { incarnation: 9, ..Config::default() });
    let hear = |server: &mut Side, incarnation, id, endpoints| {
        let mut request = ours(2, incarnation).whole(id, 100);
        request.common.bundle_endpoints = endpoints;
        server.hear(addr(2), &request);
        server.prove(&ours(2, incarnation));
        let requests = server.requests();
        let &rpc = requests.first()?;
        server.respond(rpc, 100);
        Some(next(server).bundle.is_some())
    };
    assert_eq!(hear(&mut server, 5, 2, 1), Some(false));
    assert_eq!(hear(&mut server, 5, 4, 1), Some(true));
    // A packet with another, unproven incarnation changes nothing.
    let mut forged = ours(2, 4).whole(6, 100);
    forged.common.bundle_endpoints = 0;
    server.hear(addr(2), &forged);
    server.take();
    server.requests();
    assert_eq!(hear(&mut server, 5, 10, 1), Some(true));
}
