//! WIRE: invalid packets, and ignored fields of valid packets. The formats themselves are tested in
//! `wire*.rs`.

use homa_proto::wire::{Body, PacketType, encode};
use homa_proto::{Config, Event, MS};

use super::kit::{PORT, Side, addr, exchange, kernel, pair};

/// Returns an encoded, valid 1,000-byte request with `change` applied.
fn broken(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let packet = kernel(2).whole(2, 1_000);
    let mut bytes = encode(&packet.common, &packet.body).to_vec();
    bytes.resize(bytes.len() + 1_000, 0);
    change(&mut bytes);
    bytes
}

#[test]
fn what_is_no_valid_packet_is_dropped_and_counted() {
    let set =
        |at: usize, value: Vec<u8>| broken(move |bytes| bytes[at..at + value.len()].copy_from_slice(&value));
    let ack = kernel(2).ack(2, &[]);
    let mut six_acks = encode(&ack.common, &ack.body).to_vec();
    six_acks[29] = 6;
    let grant = kernel(2).grant(3, 100, 7);
    let mut priority_eight = encode(&grant.common, &grant.body).to_vec();
    priority_eight[32] = 8;
    let invalid = [
        ("WIRE-2: shorter than its header", broken(|bytes| bytes.truncate(55))),
        ("WIRE-2: unknown type", set(11, vec![0x1a])),
        ("WIRE-6: six acks", six_acks),
        ("WIRE-7: a message of no bytes", set(28, vec![0; 4])),
        ("WIRE-9: no payload", broken(|bytes| bytes.truncate(56))),
        ("WIRE-18: a priority of 8", priority_eight),
        ("WIRE-18: a length of 2^31", set(28, vec![0x80, 0, 0, 0])),
        ("WIRE-18: an offset at the end", set(52, vec![0, 0, 3, 0xe8])),
        ("WIRE-18: an odd id acknowledged", set(36, vec![0, 0, 0, 0, 0, 0, 0, 5])),
        ("WIRE-18: the RPC id 0", set(20, vec![0; 8])),
    ];
    let mut server = Side::new(1, Config::default());
    for (count, (what, bytes)) in (1..).zip(&invalid) {
        server.hear_bytes(addr(2), bytes, bytes.len());
        assert_eq!(server.stats().drop_invalid, count, "{what}");
        assert_eq!((server.endpoint.open_rpcs(), server.take().len()), (0, 0), "{what}");
    }
    server.hear_bytes(addr(2), &broken(|_| {}), 1_056);
    assert_eq!(server.requests().len(), 1, "unchanged it is one");
}

/// WIRE-3, WIRE-15.
#[test]
fn what_a_kernel_peer_puts_into_ignored_fields_changes_nothing() {
    let mut server = Side::new(1, Config::default());
    let noise = broken(|bytes| {
        bytes[8..11].fill(0xff);
        bytes[12..20].fill(0xa5);
        bytes[49..52].fill(0x5a);
    });
    server.hear_bytes(addr(2), &noise, noise.len());
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    server.respond(requests[0], 100);
    let sent = server.take();
    assert!(sent.iter().any(|sent| sent.is(PacketType::Data) && sent.packet.common.dest_port == 40_000));
    assert_eq!(server.stats().peer_restarts + server.stats().drop_stale_incarnation, 0);
}

/// WIRE-8.
#[test]
fn a_packet_with_another_message_length_is_dropped_and_the_message_goes_on() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    server.hear(client.addr, &client.data(2, 3_000, 3_000, (0, 1_000)));
    server.hear(client.addr, &client.data(2, 4_000, 4_000, (1_000, 1_000)));
    assert_eq!(server.stats().drop_length_mismatch, 1);
    server.hear(client.addr, &client.data(2, 3_000, 3_000, (1_000, 1_000)));
    server.hear(client.addr, &client.data(2, 3_000, 3_000, (2_000, 1_000)));
    assert_eq!(server.requests().len(), 1);
}

/// WIRE-10: the announced number of unscheduled bytes is only a hint.
#[test]
fn a_wrong_hint_of_unscheduled_bytes_delays_a_message_and_no_more() {
    for claimed in [0, 1, 50_000, 100_000, u32::MAX] {
        let (mut server, mut client) = pair(Config::default());
        client.call(server.addr, 100_000);
        let mut said = Vec::new();
        for _ in 0..200 {
            for mut sent in client.pass(MS) {
                if let Body::Data(data) = &mut sent.packet.body {
                    data.incoming = claimed.min(data.message_length);
                }
                said.push(sent);
                server.hear(client.addr, &sent.packet);
            }
            let answers = server.pass(0);
            client.hear_all(server.addr, &answers);
        }
        assert_eq!(server.requests().len(), 1, "claimed {claimed}");
    }
}

/// WIRE-11, WIRE-5, WIRE-8.
#[test]
fn only_bytes_sent_before_are_marked_as_retransmitted() {
    let (server, mut client) = pair(Config::default());
    let rpc = client.call(server.addr, 3_000);
    let id = client.id(rpc);
    let first = client.take();
    assert!(!first.is_empty() && first.iter().all(|sent| !sent.data().retransmit));
    let from = kernel(1).server(client.client_port);
    client.hear(server.addr, &from.resend(id | 1, 1_424, Some(1_000)));
    let again = client.take();
    assert_eq!(
        again.iter().map(|sent| (sent.range(), sent.data().retransmit)).collect::<Vec<_>>(),
        [(Some((1_424, 2_424)), true)]
    );
    client.pass(6 * MS);
    client.hear(server.addr, &from.unknown(id | 1, homa_proto::wire::UnknownReason::Unknown));
    let restarted = client.take();
    assert_eq!(restarted.len(), 3);
    assert!(restarted.iter().all(|sent| sent.data().retransmit && sent.data().message_length == 3_000));
}

/// WIRE-12.
#[test]
fn segments_of_any_size_and_in_any_order_make_the_message() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    for range in [(9_000, 1_000), (0, 1), (5_000, 4_000), (1, 4_999)] {
        server.hear(client.addr, &client.data(2, 10_000, 10_000, range));
    }
    let lengths: Vec<u32> = server
        .events()
        .into_iter()
        .filter_map(
            |event| if let Event::Request { length, port: PORT, .. } = event { Some(length) } else { None },
        )
        .collect();
    assert_eq!(lengths, [10_000]);
}

/// WIRE-9: no packet exceeds the configured maximum, or the smaller maximum of the path to a peer.
#[test]
fn no_packet_is_larger_than_its_path_carries() {
    let (mut server, mut client) = pair(Config { max_packet: 1_000, ..Config::default() });
    client.call(server.addr, 10_000);
    client.endpoint.set_peer_max_packet(server.addr, 300);
    let narrow = client.take();
    assert!(narrow.iter().all(|sent| (1..=244).contains(&sent.packet.payload_len)), "{narrow:?}");
    server.hear_all(client.addr, &narrow);
    let rpc = server.requests()[0];
    server.respond(rpc, 5_000);
    let said = exchange(&mut server, &mut client);
    assert!(said.iter().all(|(_, sent)| sent.packet.payload_len <= 944));
    assert!(client.events().iter().any(|event| matches!(event, Event::Response { length: 5_000, .. })));
}
