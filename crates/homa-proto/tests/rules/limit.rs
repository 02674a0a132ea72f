//! LIMIT: every resource is bounded.

use homa_proto::wire::{Body, PacketType, UnknownReason};
use homa_proto::{Config, Event, MS, RpcError, RpcKey, SendError};

use super::kit::{PORT, Side, addr, exchange, kernel, ours, pair, serve_once};

/// LIMIT-1, LIMIT-2.
#[test]
fn a_caller_at_a_limit_is_told_its_name_and_nothing_is_sent() {
    let refused = |config: Config, name| {
        let mut side = Side::new(1, config);
        side.hear(addr(9), &kernel(9).whole(2, 10));
        side.call(addr(9), 1_000);
        side.take();
        let peers = side.endpoint.known_peers();
        let error = side.try_call(addr(2), 1_000).unwrap_err();
        assert_eq!(error, SendError::LimitReached { name });
        assert!(error.to_string().contains(name));
        assert_eq!((side.take().len(), side.endpoint.known_peers()), (0, peers));
    };
    refused(Config { max_rpcs: 2, ..Config::default() }, "max_rpcs");
    refused(Config { max_peers: 1, ..Config::default() }, "max_peers");
    refused(Config { max_outgoing_bytes: 1_999, ..Config::default() }, "max_outgoing_bytes");
    let mut server = Side::new(1, Config { max_outgoing_bytes: 99, ..Config::default() });
    server.hear(addr(9), &kernel(9).whole(2, 10));
    let rpc = server.requests()[0];
    let now = server.now;
    let error = server.endpoint.send_response(now, rpc, 100);
    assert_eq!(error, Err(SendError::LimitReached { name: "max_outgoing_bytes" }));
    server.respond(rpc, 99);
}

/// LIMIT-3, LIMIT-1.
#[test]
fn a_packet_at_a_limit_is_dropped_under_its_name_and_open_rpcs_go_on() {
    let open = |config: Config| {
        let mut server = Side::new(1, config);
        server.hear(addr(2), &kernel(2).whole(2, 10));
        let rpc = server.requests()[0];
        server.hear(addr(3), &kernel(3).whole(4, 10));
        let rpcs = server.endpoint.open_rpcs();
        server.respond(rpc, 10);
        assert!(server.take().iter().any(|sent| sent.is(PacketType::Data)));
        let stats = server.stats();
        (rpcs, stats.drop_rpc_limit, stats.drop_peer_limit, stats.drop_buffer_limit)
    };
    assert_eq!(open(Config { max_rpcs: 1, ..Config::default() }), (1, 1, 0, 0));
    assert_eq!(open(Config { max_peers: 1, ..Config::default() }), (1, 0, 1, 0));
    assert_eq!(open(Config { max_incoming_bytes: 1_400, ..Config::default() }), (1, 0, 0, 1));
    assert_eq!(open(Config::default()), (2, 0, 0, 0));
}

/// LIMIT-5.
#[test]
fn a_message_that_is_too_large_is_refused_on_receipt() {
    let (mut server, _) = pair(Config { max_message: 5_000, ..Config::default() });
    server.hear(addr(2), &kernel(2).data(2, 5_001, 1_000, (0, 1_000)));
    assert_eq!((server.take().len(), server.stats().drop_too_large), (0, 1), "silence for a kernel");
    server.hear(addr(3), &ours(3, 7).data(2, 5_001, 1_000, (0, 1_000)));
    let told: Vec<Body> = server.take().iter().map(|sent| sent.packet.body).collect();
    assert_eq!(told, [Body::RpcUnknown(UnknownReason::TooLarge)]);
    assert_eq!(server.endpoint.open_rpcs(), 0);
    let rpc = server.call(addr(2), 10);
    let id = server.id(rpc) | 1;
    let from = kernel(2).server(server.client_port);
    server.hear(addr(2), &from.data(id, 5_001, 1_000, (0, 1_000)));
    assert!(matches!(server.events()[..], [Event::Failed { error: RpcError::MessageTooLarge, .. }]));
    assert_eq!(server.sink.writes.len(), 0);
}

/// LIMIT-6.
#[test]
fn control_packets_beyond_their_limit_are_dropped_and_no_rpc_depends_on_them() {
    let (mut server, _) = pair(Config { max_control_packets: 3, ..Config::default() });
    for id in 0..10 {
        server.hear(addr(5), &kernel(5).resend(100 + 2 * id, 0, None));
    }
    assert_eq!((server.stats().drop_control_limit, server.take().len()), (7, 3));
    let (mut none, mut other) = (Config { max_control_packets: 0, ..Config::default() }, Config::default());
    (none.incarnation, other.incarnation, other.seed) = (5, 6, 6);
    none.unsched_bytes = 2_000;
    let mut silent = Side::new(1, none);
    let mut client = Side::new(2, Config { unsched_bytes: 2_000, ..other });
    // A server that can send neither GRANT nor RESEND: its client times out.
    client.call(silent.addr, 100);
    client.call(silent.addr, 50_000);
    exchange(&mut silent, &mut client);
    let short = silent.requests();
    assert_eq!(short.len(), 1);
    silent.respond(short[0], 100);
    exchange(&mut silent, &mut client);
    assert_eq!(client.stats().responses_delivered, 1);
    client.pass(5_000_000_000);
    silent.pass(5_000_000_000);
    assert!(client.endpoint.is_idle() && silent.endpoint.is_idle());
}

/// LIMIT-7: the endpoint stores no payload; an announced length is only counted.
#[test]
fn a_claimed_length_is_counted_and_gives_way() {
    let mut server =
        Side::new(1, Config { max_message: 1 << 30, max_incoming_bytes: 1 << 30, ..Config::default() });
    serve_once(&mut server, &kernel(2));
    server.hear(addr(2), &kernel(2).data(2, (1 << 30) / 4 * 3, 1_000, (0, 1)));
    server.hear(addr(3), &kernel(3).data(2, 1, 1, (0, 1)));
    assert_eq!(server.stats().drop_buffer_limit, 1);
    assert_eq!(server.sink.writes.iter().map(|write| write.2).sum::<u32>(), 1);
    server.hear(addr(2), &kernel(2).unknown(2, UnknownReason::Unknown));
    server.hear(addr(3), &kernel(3).data(2, 1, 1, (0, 1)));
    assert_eq!(server.requests().len(), 1);
}

/// LIMIT-8.
#[test]
fn a_request_to_a_port_without_a_server_makes_nothing() {
    let (mut side, _) = pair(Config::default());
    for (port, from) in [(98, kernel(2)), (side.client_port, kernel(2)), (98, ours(3, 7)), (0, ours(3, 7))] {
        let mut packet = from.whole(2, 10);
        packet.common.dest_port = port;
        side.hear(from.addr, &packet);
        let told: Vec<Body> = side.take().iter().map(|sent| sent.packet.body).collect();
        let is_ours = !from.incarnation.is_none();
        assert_eq!(told, vec![Body::RpcUnknown(UnknownReason::NoSuchPort); usize::from(is_ours)]);
        assert_eq!((side.endpoint.known_peers(), side.endpoint.is_idle()), (0, true));
    }
    assert_eq!(side.stats().drop_no_port, 4);
    assert!(side.endpoint.bind(PORT).is_err());
}

/// LIMIT-11, ABORT-3.
#[test]
fn the_room_of_a_peak_is_given_back_when_it_is_over() {
    let config = Config { reserve_rpcs: 100, ..Config::default() };
    let mut client = Side::new(1, config);
    let peak: Vec<RpcKey> = (0..20_000).map(|_| client.call(addr(2), 100)).collect();
    assert!(client.endpoint.room() >= 20_000);
    client.take();
    for rpc in &peak[1..] {
        client.endpoint.abort(client.now, *rpc);
    }
    for _ in 0..70 {
        client.pass(100 * MS);
        client
            .hear(addr(2), &ours(2, 5).server(client.client_port).packet(client.id(peak[0]) | 1, Body::Busy));
    }
    assert!(client.endpoint.room() <= 200, "{} RPCs", client.endpoint.room());
    // State in use is kept, and keys of ended RPCs are invalid.
    let again: Vec<RpcKey> = (0..1_000).map(|_| client.call(addr(2), 100)).collect();
    client.endpoint.check();
    assert!(client.endpoint.rpc_id(peak[0]).is_some());
    assert!(peak[1..].iter().all(|rpc| client.endpoint.rpc_id(*rpc).is_none()));
    assert!(again.iter().all(|rpc| client.endpoint.rpc_id(*rpc).is_some()));
}
