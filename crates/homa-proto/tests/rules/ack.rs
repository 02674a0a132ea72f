//! ACK: acknowledgements, which let a server free an RPC.

use homa_proto::wire::{Body, PacketType};
use homa_proto::{Config, DoneReason, Event, MS, SEC};

use super::kit::{PORT, Sent, Side, addr, exchange, kernel, pair};

fn done(side: &mut Side) -> Vec<DoneReason> {
    let reason = |event| if let Event::Done { reason, .. } = event { Some(reason) } else { None };
    side.events().into_iter().filter_map(reason).collect()
}

/// Completes `count` client RPCs with responses from kernel 2; returns their ids.
fn answered(client: &mut Side, count: usize) -> Vec<u64> {
    let server = kernel(2).server(client.client_port);
    let rpcs: Vec<_> = (0..count).map(|_| client.call(addr(2), 100)).collect();
    let ids: Vec<u64> = rpcs.iter().map(|&rpc| client.id(rpc)).collect();
    client.take();
    ids.iter().for_each(|id| client.hear(addr(2), &server.whole(id | 1, 100)));
    ids
}

/// Returns the ids that these packets acknowledge.
fn acked(sent: &[Sent]) -> Vec<u64> {
    let mut ids = Vec::new();
    for sent in sent {
        match sent.packet.body {
            Body::Data(data) => ids.extend(data.ack.map(|ack| ack.client_id)),
            Body::Ack(acks) => {
                ids.push(sent.packet.common.sender_id);
                ids.extend(acks.iter().map(|ack| ack.client_id));
            }
            _ => {}
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// ACK-1, ACK-2, ACK-3.
#[test]
fn acknowledgements_ride_on_data_or_go_five_at_a_time() {
    let mut client = Side::new(1, Config::default());
    let ids = answered(&mut client, 4);
    assert_eq!(acked(&client.take()), [] as [u64; 0], "four wait");
    client.call(addr(3), 10);
    assert_eq!(acked(&client.take()), [] as [u64; 0], "not with packets to others");
    client.call(addr(2), 10);
    assert_eq!(acked(&client.take()), ids[..1]);
    client.call(addr(2), 4_000);
    assert_eq!(acked(&client.take()), ids[1..]);
    completes(&mut client, 4);
    assert_eq!(acked(&client.pass(2 * MS)), [] as [u64; 0], "four wait until they are asked for");
}

/// Completes `count` calls to host 2 with responses; returns their ids.
fn completes(client: &mut Side, count: usize) -> Vec<u64> {
    let server = kernel(2).server(client.client_port);
    let calls: Vec<_> = (0..count).map(|_| client.call(addr(2), 100)).collect();
    let ids: Vec<u64> = calls.into_iter().map(|rpc| client.id(rpc)).collect();
    client.take();
    for id in &ids {
        client.hear(addr(2), &server.whole(id | 1, 100));
    }
    ids
}

/// ACK-3.
#[test]
fn five_acknowledgements_wait_for_requests_less_long_than_their_server_would() {
    let mut client = Side::new(1, Config::default());
    let wait_ns = client.endpoint.config().need_ack_interval_ns / 2;
    let ids = completes(&mut client, 7);
    assert_eq!(acked(&client.take()), [] as [u64; 0]);
    client.call(addr(2), 10);
    assert_eq!(acked(&client.take()), ids[..1]);
    assert_eq!(acked(&client.pass(wait_ns - 1)), [] as [u64; 0]);
    let sent = client.pass(1);
    assert_eq!((sent.len(), sent[0].is(PacketType::Ack)), (1, true));
    assert_eq!(acked(&sent), ids[1..], "that of the header, and five more");
    assert_eq!(sent[0].packet.common.source_port, client.client_port);
    // Requests have carried so many acknowledgements that the remaining ones may wait.
    completes(&mut client, 5);
    client.call(addr(2), 10);
    client.take();
    assert_eq!(acked(&client.pass(wait_ns)), [] as [u64; 0]);
}

/// ACK-3.
#[test]
fn sixty_four_acknowledgements_do_not_wait() {
    let mut client = Side::new(1, Config::default());
    completes(&mut client, 63);
    assert_eq!(client.take().len(), 0);
    let mut client = Side::new(1, Config::default());
    completes(&mut client, 64);
    let sent = client.take();
    assert_eq!((sent.len(), acked(&sent).len()), (10, 60), "six in a packet, as long as there are five");
}

/// ACK-4, ACK-7, ACK-8, WIRE-6.
#[test]
fn a_server_frees_what_its_client_acknowledges_by_whatever_packet() {
    let mut server = Side::new(1, Config::default());
    server.endpoint.bind(100).unwrap();
    let client = kernel(2);
    for id in [2, 4, 6, 8] {
        server.hear(client.addr, &client.whole(id, 10));
    }
    for rpc in server.requests() {
        server.respond(rpc, 50_000);
    }
    server.take_one();
    let mut ack = client.ack(2, &[4]);
    ack.common.dest_port = 100; // To another port, and before the responses were sent in full.
    server.hear(client.addr, &ack);
    assert_eq!(done(&mut server), [DoneReason::Acknowledged; 2]);
    let mut data = client.whole(10, 10);
    if let Body::Data(data) = &mut data.body {
        data.ack = Some(homa_proto::wire::Ack { client_id: 6, server_port: PORT });
    }
    data.common.dest_port = 100;
    server.hear(client.addr, &data);
    // An acknowledgement carried by a request waits until the request has been delivered, and is then due
    // immediately.
    assert!(server.endpoint.poll_timeout().is_some_and(|due| due <= server.now));
    assert_eq!((server.requests().len(), server.endpoint.open_rpcs()), (1, 3));
    server.endpoint.handle_timeout(server.now);
    assert_eq!(done(&mut server), [DoneReason::Acknowledged]);
    // Acknowledgements from another peer, or for a missing RPC, have no effect.
    server.hear(addr(3), &kernel(3).whole(2, 10));
    server.hear(addr(3), &kernel(3).ack(8, &[100, 102]));
    assert_eq!((done(&mut server).len(), server.endpoint.open_rpcs()), (0, 3));
    let later = server.pass(10 * MS);
    assert!(
        later.iter().filter(|sent| sent.is(PacketType::Data)).all(|sent| sent.packet.common.sender_id == 9)
    );
}

/// ACK-7: a delayed acknowledgement never causes a refusal.
#[test]
fn what_an_acknowledgement_ends_makes_room_at_once_where_it_is_short() {
    for config in [
        Config { max_rpcs: 1, ..Config::default() },
        Config { max_outgoing_bytes: 150, max_message: 150, ..Config::default() },
        Config { max_incoming_bytes: 2_000, max_message: 150, ..Config::default() },
    ] {
        let mut server = Side::new(1, config);
        let client = kernel(2);
        for round in 0..5 {
            let mut data = client.whole(10 + 2 * round, 100);
            if let Body::Data(data) = &mut data.body {
                data.ack = Some(homa_proto::wire::Ack { client_id: 8 + 2 * round, server_port: PORT });
            }
            server.hear(client.addr, &data);
            let requests = server.requests();
            assert_eq!(requests.len(), 1, "round {round}");
            let now = server.now;
            assert_eq!(server.endpoint.send_response(now, requests[0], 100), Ok(()), "round {round}");
            server.take();
        }
    }
}

/// ACK-5, ACK-1.
#[test]
fn a_need_ack_for_what_is_over_is_answered_with_all_that_wait() {
    let mut client = Side::new(1, Config::default());
    let ids = answered(&mut client, 3);
    let server = kernel(2).server(client.client_port);
    client.hear(addr(2), &server.packet(9_999, Body::NeedAck));
    let sent = client.take();
    assert_eq!((sent.len(), sent[0].packet.common.sender_id), (1, 9_998));
    assert_eq!(acked(&sent), [&[9_998][..], &ids[..]].concat());
    // An unknown peer is answered, too.
    client.hear(addr(7), &kernel(7).server(client.client_port).packet(31, Body::NeedAck));
    let sent = client.take();
    assert_eq!((sent[0].to, acked(&sent)), (addr(7), vec![30]));
    assert_eq!(client.endpoint.known_peers(), 1);
}

/// ACK-6.
#[test]
fn a_client_that_waits_does_not_acknowledge_but_asks() {
    let mut client = Side::new(1, Config { max_overcommit: 1, grant_fifo_fraction: 0, ..Config::default() });
    let rpc = client.call(addr(2), 100);
    let id = client.id(rpc) | 1;
    client.take();
    let server = kernel(2).server(client.client_port);
    client.hear(addr(2), &server.data(id, 9_000, 9_000, (0, 1_000)));
    client.take();
    client.pass(4 * MS);
    client.hear(addr(2), &server.packet(id, Body::NeedAck));
    let sent = client.take();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].is(PacketType::Resend), "{sent:?}");
    // If a message waits for our own grants, the answer to NEED_ACK shows this.
    let other = client.call(addr(3), 100);
    let other_id = client.id(other) | 1;
    client.take();
    client.hear(addr(3), &kernel(3).server(client.client_port).data(other_id, 800_000, 2_000, (0, 2_000)));
    let first = client.call(addr(4), 100);
    let first_id = client.id(first) | 1;
    client.hear(addr(4), &kernel(4).server(client.client_port).data(first_id, 600_000, 2_000, (0, 2_000)));
    client.take();
    let more = kernel(3).server(client.client_port);
    client.hear(addr(3), &more.data(other_id, 800_000, 2_000, (2_000, 200_000)));
    client.take();
    let asked = client.pass(4 * MS);
    assert!(asked.iter().all(|sent| sent.to != addr(3)), "{asked:?}");
    client.hear(addr(3), &more.packet(other_id, Body::NeedAck));
    let sent = client.take();
    assert!(acked(&sent).is_empty() && !sent.is_empty(), "{sent:?}");
}

/// ACK-9, ACK-10, PEER-12.
#[test]
fn a_server_asks_for_an_acknowledgement_ever_more_rarely_and_then_forgets() {
    let config = Config { max_need_acks: 6, client_silence_ns: 100 * SEC, ..Config::default() };
    let mut server = Side::new(1, config);
    server.hear(addr(2), &kernel(2).whole(2, 10));
    let rpc = server.requests()[0];
    server.respond(rpc, 10);
    server.take();
    let asked: Vec<u64> = server
        .pass(SEC)
        .iter()
        .filter(|sent| sent.is(PacketType::NeedAck))
        .map(|sent| sent.at.as_ns() / MS)
        .collect();
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!((2..=3).contains(&asked[0]), "{asked:?}");
    let gaps = asked.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.zip([4, 8, 16, 32, 64]).all(|(gap, want)| gap.abs_diff(want) <= 1), "{asked:?}");
    assert_eq!(done(&mut server), [DoneReason::ClientSilent]);
    assert!(server.endpoint.is_idle());
}

/// RESEND-22: NEED_ACKs from a server to an overloaded client, and the packets that answer them.
#[test]
fn need_acks_and_what_answers_them_are_spaced_however_many_rpcs_wait() {
    let spaced = Config { resend_spacing_ns: 10 * MS, ..Config::default() };
    let mut server = Side::new(1, spaced.clone());
    let of = kernel(2);
    for number in 1..=300 {
        server.hear(of.addr, &of.whole(2 * number, 10));
    }
    for rpc in server.requests() {
        server.respond(rpc, 10);
    }
    server.take();
    let asked = server.pass(SEC).iter().filter(|sent| sent.is(PacketType::NeedAck)).count();
    assert!((16..=117).contains(&asked), "16 and then 100 a second: {asked}");

    let mut client = Side::new(1, spaced);
    let of = kernel(2).server(client.client_port);
    client.pass(SEC);
    let rpcs: Vec<_> = (0..300).map(|_| client.call(of.addr, 100)).collect();
    client.pass(4 * MS);
    for rpc in rpcs {
        let id = client.id(rpc) | 1;
        client.hear(of.addr, &of.packet(id, Body::NeedAck));
    }
    let sent = client.take();
    let count = |kind| sent.iter().filter(|sent| sent.is(kind)).count();
    assert_eq!((count(PacketType::Resend), count(PacketType::Busy)), (17, 283));
}

/// ACK-11, LIMIT-1.
#[test]
fn acknowledgements_beyond_their_limit_forget_the_oldest() {
    let mut client = Side::new(1, Config { max_acks_per_peer: 2, ..Config::default() });
    let ids = answered(&mut client, 4);
    assert_eq!(client.stats().acks_forgotten, 2);
    client.call(addr(2), 20_000);
    assert_eq!(acked(&client.take()), ids[2..]);
    // A forgotten acknowledgement is requested by NEED_ACK.
    client.hear(addr(2), &kernel(2).server(client.client_port).packet(ids[0] | 1, Body::NeedAck));
    assert_eq!(acked(&client.take()), ids[..1]);
}

/// ACK-12, ABORT-1, ABORT-3.
#[test]
fn an_rpc_that_failed_is_acknowledged_at_once() {
    let (mut server, mut client) = pair(Config::default());
    let rpc = client.call(server.addr, 100);
    exchange(&mut server, &mut client);
    assert_eq!(server.requests().len(), 1);
    let now = client.now;
    client.endpoint.abort(now, rpc);
    client.endpoint.abort(now, rpc);
    assert_eq!(client.events().len(), 1);
    let sent = client.take();
    assert_eq!((sent.len(), sent[0].is(PacketType::Ack)), (1, true));
    server.hear_all(client.addr, &sent);
    assert_eq!(done(&mut server), [DoneReason::ClientGaveUp]);
    assert_eq!(client.pass(SEC).len(), 0);
}

/// ACK-13.
#[test]
fn a_host_that_falls_silent_says_before_what_is_over() {
    let mut client = Side::new(1, Config::default());
    let ids = answered(&mut client, 4);
    assert_eq!(acked(&client.take()), [] as [u64; 0], "they wait for a packet");
    client.endpoint.flush_acks(client.client_port);
    let sent = client.take();
    assert_eq!(acked(&sent), ids);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].packet.common.source_port, sent[0].packet.common.dest_port),
        (client.client_port, PORT)
    );
    client.endpoint.flush_acks(client.client_port);
    assert!(client.take().is_empty(), "once");
}
