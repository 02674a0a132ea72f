//! ABORT: aborting and freeing RPCs.

use homa_proto::wire::{Body, PacketType, UnknownReason};
use homa_proto::{Config, DoneReason, Event, MS, RpcError, SEC, SendError};

use super::kit::{PORT, Side, addr, exchange, kernel, ours, pair};

/// ABORT-1, ABORT-2.
#[test]
fn an_aborted_rpc_sends_its_acknowledgement_and_no_more() {
    let mut client = Side::new(1, Config { unsched_bytes: 20_000, ..Config::default() });
    let rpc = client.call(addr(2), 50_000);
    let id = client.id(rpc) | 1;
    client.take_one();
    let now = client.now;
    client.endpoint.abort(now, rpc);
    assert!(matches!(client.events()[..], [Event::Failed { error: RpcError::Aborted, cookie: 7, .. }]));
    let sent = client.take();
    assert_eq!((sent.len(), sent[0].is(PacketType::Ack)), (1, true));
    let server = kernel(2).server(client.client_port);
    let packets = [server.grant(id, 50_000, 0), server.whole(id, 10), server.packet(id, Body::Busy)];
    packets.iter().for_each(|packet| client.hear(addr(2), packet));
    assert_eq!((client.take().len(), client.stats().drop_unknown_rpc), (0, 3));
    client.hear(addr(2), &server.resend(id, 0, None));
    assert_eq!(client.take()[0].packet.body, Body::RpcUnknown(UnknownReason::Unknown));
    assert_eq!(client.events(), []);
    assert!(client.endpoint.is_idle());
}

/// ABORT-3, ABORT-6.
#[test]
fn a_key_names_nothing_after_the_event_that_ends_its_rpc() {
    let (mut server, mut client) = pair(Config::default());
    let rpc = client.call(server.addr, 100);
    exchange(&mut server, &mut client);
    let request = server.requests()[0];
    server.respond(request, 100);
    let now = server.now;
    assert_eq!(server.endpoint.send_response(now, request, 100), Err(SendError::UnknownRpc), "answered");
    exchange(&mut server, &mut client);
    assert_eq!(client.events().len(), 1);
    client.endpoint.abort(now, rpc);
    assert_eq!((client.endpoint.rpc_id(rpc), client.events()), (None, Vec::new()));
    let next = client.call(server.addr, 100);
    assert!(next.slot == rpc.slot && next != rpc, "the slot is used again, the key is not");
    client.endpoint.abort(now, rpc);
    assert!(client.endpoint.rpc_id(next).is_some());
    exchange(&mut server, &mut client); // The packet acknowledges the first.
    server.endpoint.handle_timeout(now);
    let events = server.events();
    assert!(matches!(events[1], Event::Done { rpc, reason: DoneReason::Acknowledged } if rpc == request));
    assert_eq!(server.endpoint.send_response(now, request, 100), Err(SendError::UnknownRpc), "freed");
    assert_eq!(server.take().len(), 0);
}

/// ABORT-4.
#[test]
fn a_crowd_ends_a_few_at_a_time() {
    let config = Config { reap_limit: 4, ..Config::default() };
    let per_call = |side: &mut Side| {
        let mut counts = Vec::new();
        while side.endpoint.open_rpcs() > 0 {
            let now = side.now;
            side.endpoint.handle_timeout(now);
            side.endpoint.check();
            counts.push(side.events().len());
            assert!(counts.len() < 1_000);
        }
        counts
    };
    let crowd = || {
        let mut side = Side::new(1, config.clone());
        for id in 1..=50 {
            side.hear(addr(2), &ours(2, 5).whole(2 * id, 10));
            let call = side.call(addr(2), 10);
            // The sender of a packet with the id of a request is accepted as the peer (PEER-16).
            let about_call = side.id(call) | 1;
            side.hear(addr(2), &ours(2, 5).server(side.client_port).packet(about_call, Body::Busy));
        }
        side.take();
        side.events();
        side
    };
    let mut restarted = crowd();
    restarted.now = restarted.now + MS;
    restarted.hear(addr(2), &ours(2, 6).packet(1, Body::Busy));
    restarted.prove(&ours(2, 6));
    assert!(restarted.events().len() <= 4);
    let counts = per_call(&mut restarted);
    assert!(counts.len() >= 24 && counts.iter().all(|&count| count <= 4), "{counts:?}");
    let mut closed = crowd();
    let (now, port) = (closed.now, closed.client_port);
    closed.endpoint.close_port(now, port);
    closed.endpoint.close_port(now, PORT);
    let counts = per_call(&mut closed);
    assert!(counts.len() >= 25 && counts.iter().all(|&count| count <= 4), "{counts:?}");
    let mut silent = crowd();
    silent.now = silent.now + 100 * SEC;
    while silent.endpoint.open_rpcs() > 0 {
        let now = silent.now;
        silent.endpoint.handle_timeout(now);
        let ended = silent.events().len();
        assert!(ended <= 8, "silent clients and timeouts: {ended}");
        silent.take();
        silent.now = silent.now + MS;
    }
}

/// ABORT-5.
#[test]
fn a_request_that_its_server_gives_up_counts_as_finished() {
    let (mut server, _) = pair(Config::default());
    let client = ours(2, 5);
    server.hear(client.addr, &client.whole(2, 10));
    let rpc = server.requests()[0];
    let now = server.now;
    server.endpoint.abort(now, rpc);
    assert!(matches!(server.events()[..], [Event::Done { reason: DoneReason::Aborted, .. }]));
    server.hear(client.addr, &client.whole(2, 10));
    assert_eq!((server.requests().len(), server.stats().drop_finished), (0, 1));
    server.take();
    server.hear(client.addr, &client.resend(2, 0, None));
    assert_eq!(server.take()[0].packet.body, Body::RpcUnknown(UnknownReason::Finished));
}

/// ABORT-7.
#[test]
fn nothing_is_left_when_all_has_ended() {
    let (mut server, mut client) = pair(Config { unsched_bytes: 5_000, ..Config::default() });
    for length in [10, 3_000, 80_000, 300_000] {
        client.call(server.addr, length);
    }
    exchange(&mut server, &mut client);
    for rpc in server.requests() {
        server.respond(rpc, 90_000);
    }
    exchange(&mut server, &mut client);
    assert_eq!(client.stats().responses_delivered, 4);
    for _ in 0..100 {
        let sent = server.pass(MS);
        client.hear_all(server.addr, &sent);
        exchange(&mut server, &mut client);
    }
    for side in [&mut server, &mut client] {
        assert_eq!(side.pass(10 * SEC).len(), 0);
        assert!(side.endpoint.is_idle() && side.endpoint.granted_bytes() == 0);
        assert_eq!(side.endpoint.poll_timeout(), None);
    }
}
