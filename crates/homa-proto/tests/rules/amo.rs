//! AMO: a request runs at most once.

use homa_proto::wire::{Body, UnknownReason};
use homa_proto::{Config, DoneReason, Event, FinishedPolicy, MS, RpcError, RpcKey, SEC, SendError};

use super::kit::{Forger, Side, addr, kernel, ours};

/// Runs the request with this id and acknowledges it.
fn run(server: &mut Side, client: &Forger, id: u64) {
    server.hear(client.addr, &client.whole(id, 10));
    let rpcs = server.requests();
    assert_eq!(rpcs.len(), 1, "{id} runs");
    server.respond(rpcs[0], 10);
    server.take();
    server.hear(client.addr, &client.ack(id, &[]));
    server.events();
}

/// Runs the request if the endpoint delivers it, and then aborts it; returns whether it ran.
fn runs(server: &mut Side, client: &Forger, id: u64) -> bool {
    server.hear(client.addr, &client.whole(id, 10));
    let rpcs = server.requests();
    let now = server.now;
    rpcs.iter().for_each(|&rpc| server.endpoint.abort(now, rpc));
    server.events();
    server.take();
    !rpcs.is_empty()
}

/// AMO-1, AMO-2.
#[test]
fn a_request_is_handed_over_once_however_often_it_arrives() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    server.hear(client.addr, &client.whole(2, 10));
    let rpc = server.requests()[0];
    for state in ["in service", "answered", "acknowledged"] {
        for _ in 0..3 {
            server.hear(client.addr, &client.whole(2, 10));
            assert_eq!(server.requests().len(), 0, "{state}");
        }
        match state {
            "in service" => {
                // The finished id is kept as long as the client has state.
                for _ in 0..20 {
                    server.pass(SEC);
                    server.hear(client.addr, &client.resend(2, 0, None));
                }
                server.respond(rpc, 10);
            }
            "answered" => {
                server.hear(client.addr, &client.resend(2, 0, None));
                assert!(server.take().iter().any(|sent| sent.range() == Some((0, 10))), "AMO-2");
                server.hear(client.addr, &client.ack(2, &[]));
            }
            _ => {}
        }
    }
    assert_eq!(server.stats().drop_finished, 3);
}

/// AMO-3, AMO-4, AMO-5, AMO-7, ABORT-5.
#[test]
fn a_finished_id_is_kept_for_a_packet_lifetime_and_then_serves_again() {
    let lifetime_ns = 10 * SEC;
    for aborted in [false, true] {
        let config = Config { max_packet_lifetime_ns: lifetime_ns, incarnation: 7, ..Config::default() };
        let mut server = Side::new(1, config);
        let client = kernel(2);
        if aborted {
            assert!(runs(&mut server, &client, 2));
        } else {
            run(&mut server, &client, 2);
        }
        server.pass(lifetime_ns / 2);
        run(&mut server, &client, 4); // An id of the same block keeps the block for its own lifetime.
        server.pass(lifetime_ns - 1);
        assert!(!runs(&mut server, &client, 2) && !runs(&mut server, &client, 4));
        server.hear(client.addr, &client.resend(4, 0, None));
        assert_eq!(server.take().len(), 0, "what a kernel would take for a reason to send it again");
        let marked = ours(2, 5);
        server.hear(client.addr, &marked.resend(4, 0, None));
        assert_eq!(server.take()[0].packet.body, Body::RpcUnknown(UnknownReason::Finished));
        server.pass(1);
        assert!(runs(&mut server, &client, 2) && runs(&mut server, &client, 4), "AMO-7");
    }
}

/// AMO-6.
#[test]
fn a_full_table_refuses_or_forgets_as_the_policy_says() {
    for policy in [FinishedPolicy::Refuse, FinishedPolicy::ForgetOldest] {
        let config = Config { max_finished_blocks: 3, finished_policy: policy, ..Config::default() };
        let mut server = Side::new(1, config);
        // Use several peers, since a single peer does not get more than its share (SHARE-2).
        let of_block = |block: u8| kernel(2 + block);
        for block in 0..3 {
            run(&mut server, &of_block(block), 128 * u64::from(block) + 2);
        }
        let client = of_block(0);
        let refuses = policy == FinishedPolicy::Refuse;
        assert_eq!(runs(&mut server, &client, 128 * 3 + 2), !refuses);
        assert_eq!(runs(&mut server, &client, 2), !refuses, "the oldest");
        assert!(!runs(&mut server, &of_block(2), 128 * 2 + 2), "a younger one");
        let stats = server.stats();
        assert_eq!((stats.drop_finished_full > 0, stats.finished_forgotten > 0), (refuses, !refuses));
        server.pass(11 * SEC);
        assert!(runs(&mut server, &client, 128 * 3 + 4), "room comes with time");
    }
}

/// AMO-6: RPCs that were open when the table became full may exceed its bound, and each request used to free
/// only four expired blocks.
#[test]
fn the_first_request_after_a_lifetime_finds_room_in_a_table_beyond_its_bound() {
    let mut server = Side::new(1, Config { max_finished_blocks: 8, ..Config::default() });
    let client = kernel(2);
    let ids: Vec<u64> = (1..=40).map(|block| 128 * block).collect();
    ids.iter().for_each(|&id| server.hear(client.addr, &client.whole(id, 10)));
    for rpc in server.requests() {
        server.respond(rpc, 10);
    }
    server.take();
    ids.iter().for_each(|&id| server.hear(client.addr, &client.ack(id, &[])));
    assert!(!runs(&mut server, &client, 128 * 41));
    server.pass(11 * SEC);
    assert!(runs(&mut server, &client, 128 * 42));
}

/// AMO-8.
#[test]
fn finished_ids_of_an_earlier_incarnation_hold_nothing_up() {
    let mut server = Side::new(1, Config::default());
    run(&mut server, &ours(2, 5), 2);
    assert!(!runs(&mut server, &ours(2, 5), 2));
    server.hear(addr(2), &ours(2, 6).whole(2, 10));
    assert_eq!(server.requests().len(), 0, "nothing is proven yet");
    server.prove(&ours(2, 6));
    assert!(runs(&mut server, &ours(2, 6), 2));
    assert!(!runs(&mut server, &ours(2, 5), 2), "a packet of the earlier one");
    assert_eq!(server.stats().drop_stale_incarnation, 1);
}

/// AMO-9, ABORT-1, ABORT-2.
#[test]
fn a_request_that_failed_is_never_sent_again() {
    let mut client = Side::new(1, Config { max_resends: 2, ..Config::default() });
    let rpc = client.call(addr(2), 100);
    let id = client.id(rpc) | 1;
    client.pass(SEC);
    assert!(matches!(client.events()[..], [Event::Failed { error: RpcError::Timeout, .. }]));
    let server = kernel(2).server(client.client_port);
    for packet in [
        server.resend(id, 0, None),
        server.unknown(id, UnknownReason::Unknown),
        server.grant(id, 100, 1),
        server.whole(id, 10),
    ] {
        client.hear(addr(2), &packet);
    }
    let sent: Vec<_> = client.take().into_iter().chain(client.pass(100 * MS)).collect();
    assert!(sent.iter().all(|sent| sent.range().is_none()), "{sent:?}");
    assert_eq!(client.events(), []);
}

/// Returns a server whose application has taken the first 1,000 bytes of a request of 5,000 bytes.
fn taken_early(client: &Forger) -> (Side, RpcKey) {
    let mut server =
        Side::new(1, Config { request_readable_step: 1_000, incarnation: 7, ..Config::default() });
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (0, 1_000)));
    let [Event::Readable { rpc, end: 1_000, length: 5_000 }] = server.events()[..] else {
        panic!("readable")
    };
    let arriving = server.endpoint.arriving_request(rpc).expect("it arrives");
    assert_eq!((arriving.peer, arriving.port), (client.addr, client.dest_port));
    assert_eq!((arriving.end, arriving.length), (1_000, 5_000));
    assert!(server.endpoint.take_early(rpc, 2_000));
    server.endpoint.check();
    (server, rpc)
}

/// AMO-12.
#[test]
fn a_request_that_was_taken_early_is_told_as_it_grows_and_answered_when_it_is_whole() {
    let client = ours(2, 5);
    let (mut server, rpc) = taken_early(&client);
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (1_000, 1_000)));
    assert_eq!(server.events(), [], "less than the step");
    let now = server.now;
    assert_eq!(server.endpoint.send_response(now, rpc, 10), Err(SendError::UnknownRpc), "it is not whole");
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (2_000, 1_000)));
    assert_eq!(server.events(), [Event::Readable { rpc, end: 3_000, length: 5_000 }]);
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (3_000, 2_000)));
    assert_eq!(server.requests(), [rpc]);
    assert!(!server.endpoint.take_early(rpc, 1) && server.endpoint.arriving_request(rpc).is_none());
    server.respond(rpc, 10);
    server.take();
    server.hear(client.addr, &client.ack(2, &[]));
    assert_eq!(server.events(), [Event::Done { rpc, reason: DoneReason::Acknowledged }]);
    assert!(server.endpoint.is_idle());
    assert_eq!((server.stats().requests_taken_early, server.stats().requests_delivered), (1, 1));
}

/// AMO-3, AMO-12.
#[test]
fn a_request_that_was_taken_early_and_ends_half_way_never_runs_again() {
    for given_up in [false, true] {
        let client = ours(2, 5);
        let (mut server, rpc) = taken_early(&client);
        let now = server.now;
        if given_up {
            server.endpoint.abort(now, rpc);
            assert_eq!(server.events(), [Event::Done { rpc, reason: DoneReason::Aborted }]);
        } else {
            server.hear(client.addr, &client.unknown(2, UnknownReason::Unknown));
            assert_eq!(server.events(), [Event::Done { rpc, reason: DoneReason::ClientGaveUp }]);
        }
        assert!(server.endpoint.is_idle() && !server.endpoint.take_early(rpc, 1));
        for from in [0, 1_000] {
            server.hear(client.addr, &client.data(2, 5_000, 5_000, (from, 4_000)));
        }
        assert_eq!((server.events(), server.stats().drop_finished), (vec![], 2));
        server.take();
        server.hear(client.addr, &client.resend(2, 0, None));
        let told: Vec<Body> = server.take().iter().map(|sent| sent.packet.body).collect();
        assert_eq!(
            told,
            [Body::RpcUnknown(UnknownReason::Finished)],
            "its client learns what there is to learn"
        );
    }
}

/// AMO-10, AMO-12.
#[test]
fn bytes_that_were_told_and_not_taken_are_received_again() {
    let mut server = Side::new(1, Config { request_readable_step: 1_000, ..Config::default() });
    let client = ours(2, 5);
    server.hear(client.addr, &client.data(2, 2_000, 2_000, (0, 1_000)));
    server.hear(client.addr, &client.unknown(2, UnknownReason::Unknown));
    server.events();
    server.hear(client.addr, &client.data(2, 2_000, 2_000, (0, 2_000)));
    assert_eq!(server.requests().len(), 1);
}

/// AMO-8, AMO-12.
#[test]
fn a_client_that_restarts_ends_what_was_taken_early_and_begins_anew() {
    let (mut server, rpc) = taken_early(&ours(2, 5));
    let client = ours(2, 6);
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (0, 1_000)));
    server.prove(&client);
    server.hear(client.addr, &client.data(2, 5_000, 5_000, (0, 1_000)));
    let events = server.events();
    assert!(events.contains(&Event::Done { rpc, reason: DoneReason::ClientRestarted }), "{events:?}");
    let next = events
        .iter()
        .find_map(|event| if let Event::Readable { rpc, .. } = event { Some(*rpc) } else { None });
    assert!(server.endpoint.take_early(next.expect("the new life's request"), 0));
}
