//! RECV: reassembly of messages.

use homa_proto::wire::{Body, UnknownReason};
use homa_proto::{CallOptions, Config, Event};

use super::kit::{PORT, Side, addr, kernel, serve_once};

/// RECV-1, RECV-2, RECV-5.
#[test]
fn packets_in_any_order_and_number_make_the_message_once() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    let ranges = [(4_000, 1_000), (0, 2_500), (4_000, 1_000), (1_000, 2_000), (0, 1), (2_900, 1_100)];
    for (at, range) in ranges.into_iter().enumerate() {
        server.hear(client.addr, &client.data(2, 5_000, 5_000, range));
        assert_eq!(server.requests().len(), usize::from(at == 5), "after {at}");
    }
    let mut written = [0; 5_000];
    for &(_, offset, len) in &server.sink.writes {
        written[offset as usize..][..len as usize].iter_mut().for_each(|times| *times += 1);
    }
    assert_eq!(written, [1; 5_000]);
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (0, 1_000)));
    assert_eq!((server.requests().len(), server.stats().drop_duplicate), (0, 3));
}

/// RECV-3.
#[test]
fn payload_beyond_the_message_is_left_out() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    server.hear(client.addr, &client.data(2, 1_500, 1_500, (1_000, 1_000)));
    server.hear(client.addr, &client.data(2, 1_500, 1_500, (0, 1_400)));
    assert_eq!(server.sink.writes.iter().map(|write| write.2).sum::<u32>(), 1_500);
    assert_eq!(server.requests().len(), 1);
}

/// RECV-4.
#[test]
fn a_packet_that_would_make_too_many_gaps_is_dropped_and_asked_for_again() {
    let mut server = Side::new(1, Config { max_gaps: 2, ..Config::default() });
    let client = kernel(2);
    for offset in [1_000, 3_000, 5_000] {
        server.hear(client.addr, &client.data(2, 6_000, 6_000, (offset, 500)));
    }
    assert_eq!((server.stats().drop_gap_limit, server.sink.writes.len()), (1, 2));
    let asked = server.pass(10_000_000);
    let resend =
        |body| if let Body::Resend(resend) = body { Some((resend.offset, resend.length)) } else { None };
    let asked: Vec<_> = asked.iter().filter_map(|sent| resend(sent.packet.body)).collect();
    assert_eq!(asked[..3], [(0, Some(1_000)), (1_500, Some(1_500)), (3_500, Some(2_500))]);
}

/// RECV-6.
#[test]
fn readable_bytes_are_told_in_the_steps_asked_for() {
    let mut client = Side::new(1, Config::default());
    let options = CallOptions { readable_step: 2_000, ..CallOptions::default() };
    let (now, port) = (client.now, client.client_port);
    let rpc = client.endpoint.send_request(now, port, addr(2), PORT, 10, options).unwrap();
    let id = client.id(rpc) | 1;
    client.take();
    let server = kernel(2).server(port);
    let mut readable = Vec::new();
    for offset in [1_000, 0, 2_000, 4_000, 3_000, 6_000, 5_000, 7_000] {
        client.hear(addr(2), &server.data(id, 9_000, 9_000, (offset, 1_000)));
        for event in client.events() {
            let Event::Readable { end, length, .. } = event else { panic!("{event:?}") };
            assert_eq!(length, 9_000);
            readable.push((offset, end));
        }
    }
    assert_eq!(readable, [(0, 2_000), (3_000, 5_000), (5_000, 7_000)]);
}

/// RECV-7, LIMIT-3, LIMIT-4.
#[test]
fn payload_is_held_within_its_limit_and_responses_keep_their_quarter() {
    let mut side = Side::new(1, Config { max_incoming_bytes: 100_000, ..Config::default() });
    let (client, other) = (kernel(2), kernel(3));
    serve_once(&mut side, &client);
    serve_once(&mut side, &other);
    let rpc = side.call(addr(9), 10);
    let id = side.id(rpc) | 1;
    side.hear(client.addr, &client.data(2, 60_000, 10_000, (0, 1_000)));
    side.hear(other.addr, &other.data(4, 15_001, 10_000, (0, 1_000)));
    assert_eq!((side.stats().drop_buffer_limit, side.endpoint.open_rpcs()), (1, 2), "75,000 for requests");
    side.hear(other.addr, &other.data(6, 15_000, 10_000, (0, 1_000)));
    assert_eq!(side.endpoint.open_rpcs(), 3);
    let server = kernel(9).server(side.client_port);
    side.hear(addr(9), &server.data(id, 25_001, 25_001, (0, 1_000)));
    assert_eq!((side.stats().drop_buffer_limit, side.endpoint.open_rpcs()), (2, 3), "and no RPC ended");
    side.hear(addr(9), &server.data(id, 25_000, 25_000, (0, 25_000)));
    assert_eq!(side.stats().responses_delivered, 1);
    // The announced bytes are released when the RPCs end.
    side.hear(client.addr, &client.ack(2, &[]));
    side.hear(other.addr, &other.ack(6, &[]));
    side.hear(client.addr, &client.data(8, 75_000, 10_000, (0, 1_000)));
    assert_eq!(side.endpoint.open_rpcs(), 1);
}

/// RECV-10, RECV-11, ABORT-2.
#[test]
fn only_data_of_a_request_opens_an_rpc() {
    let mut side = Side::new(1, Config::default());
    let from = kernel(2);
    side.hear(from.addr, &from.whole(2, 10));
    let rpc = side.requests()[0];
    side.respond(rpc, 10);
    side.hear(from.addr, &from.ack(2, &[]));
    side.take();
    side.events();
    let others = [
        from.grant(4, 100, 3),
        from.resend(4, 0, None),
        from.unknown(4, UnknownReason::Unknown),
        from.packet(4, Body::Busy),
        from.packet(4, Body::Freeze),
        from.packet(4, Body::NeedAck),
        from.ack(4, &[6, 8]),
        from.whole(5, 100),
        from.packet(5, Body::NeedAck),
    ];
    for packet in others {
        side.hear(from.addr, &packet);
        assert!(side.endpoint.is_idle() || !side.take().is_empty() && side.endpoint.is_idle(), "{packet}");
        assert_eq!(side.endpoint.open_rpcs(), 0, "{packet}");
    }
    assert_eq!(side.stats().drop_unknown_rpc, 4, "{:?}", side.stats());
}
