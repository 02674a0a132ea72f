//! RESEND: when RESENDs are sent, what they request, and how they are answered.

use homa_proto::wire::{Body, PacketType, Resend, UnknownReason};
use homa_proto::{Config, Dialect, Event, MS, RpcError, SEC};

use super::kit::{Sent, Side, addr, exchange, kernel, ours, pair};

/// Returns the RESENDs among the packets.
fn resends(sent: &[Sent]) -> Vec<(u64, u32, Option<u32>)> {
    let resend = |sent: &Sent| match sent.packet.body {
        Body::Resend(Resend { offset, length, .. }) => Some((sent.at.as_ns() / MS, offset, length)),
        _ => None,
    };
    sent.iter().filter_map(resend).collect()
}

fn errors(side: &mut Side) -> Vec<RpcError> {
    let error = |event| if let Event::Failed { error, .. } = event { Some(error) } else { None };
    side.events().into_iter().filter_map(error).collect()
}

/// RESEND-1, RESEND-4, RESEND-5, RESEND-6, PEER-1, PEER-2, PEER-12.
#[test]
fn a_silent_server_is_asked_ever_more_rarely_and_then_the_rpc_ends() {
    let mut client = Side::new(1, Config { max_resends: 6, ..Config::default() });
    client.call(addr(2), 100);
    let other = client.call(addr(3), 100);
    let id = client.id(other) | 1;
    client.take();
    let mut asked = Vec::new();
    for _ in 0..500 {
        asked.extend(client.pass(MS).into_iter().filter(|sent| sent.to == addr(2)));
        let busy = kernel(3).server(client.client_port).packet(id, Body::Busy);
        client.hear(addr(3), &busy);
    }
    let asked = resends(&asked);
    assert!(asked.iter().all(|resend| (resend.1, resend.2) == (0, None)), "nothing is known of the response");
    let gaps: Vec<u64> = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked[0].0.abs_diff(5) <= 1, "{asked:?}");
    let doubled = [10, 20, 40, 50, 50];
    assert!(gaps.iter().zip(doubled).all(|(gap, want)| gap.abs_diff(want) <= 1), "{gaps:?}");
    assert_eq!(errors(&mut client), [RpcError::Timeout]);
    assert!(client.endpoint.rpc_id(other).is_some(), "PEER-2: the others stay");
}

/// RESEND-5: which events restart the interval, and which do not.
#[test]
fn bytes_begin_the_interval_anew_and_busy_does_not() {
    let mut client = Side::new(1, Config::default());
    let rpc = client.call(addr(2), 100);
    let id = client.id(rpc) | 1;
    let server = kernel(2).server(client.client_port);
    client.pass(100 * MS);
    client.hear(addr(2), &server.packet(id, Body::Busy)); // RESEND-18
    assert_eq!(resends(&client.pass(45 * MS)), [], "BUSY: the interval of 50 ms goes on");
    client.hear(addr(2), &server.data(id, 3_000, 3_000, (0, 1_000)));
    let asked = resends(&client.pass(6 * MS));
    assert_eq!(asked.iter().map(|resend| (resend.1, resend.2)).collect::<Vec<_>>(), [(1_000, Some(2_000))]);
}

/// RESEND-18, RESEND-11, PEER-3.
#[test]
fn a_server_that_computes_says_busy_for_as_long_as_it_takes() {
    let (mut server, mut client) = pair(Config { max_resends: 4, ..Config::default() });
    client.call(server.addr, 100);
    exchange(&mut server, &mut client);
    let rpc = server.requests()[0];
    let mut asked = Vec::new();
    for _ in 0..30_000 {
        let sent = client.pass(MS);
        server.hear_all(client.addr, &sent);
        let answers = server.pass(MS);
        let (busys, resends) =
            (answers.iter().filter(|sent| sent.is(PacketType::Busy)).count(), resends(&sent));
        assert_eq!(busys, resends.len());
        asked.extend(resends);
        client.hear_all(server.addr, &answers);
    }
    assert!((400..700).contains(&asked.len()), "about every 50 ms: {}", asked.len());
    server.respond(rpc, 10);
    exchange(&mut server, &mut client);
    assert_eq!(client.stats().responses_delivered, 1);
}

/// RESEND-2, RESEND-4.
#[test]
fn a_server_asks_for_what_is_missing_of_a_request() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    server.hear(client.addr, &client.data(2, 9_000, 8_000, (2_000, 1_000)));
    server.hear(client.addr, &client.data(2, 9_000, 8_000, (5_000, 1_000)));
    server.take();
    let asked = resends(&server.pass(6 * MS));
    let ranges: Vec<_> = asked.iter().map(|resend| (resend.1, resend.2)).collect();
    assert_eq!(ranges[0], (0, Some(2_000)), "the first missing range");
    assert!(ranges.contains(&(3_000, Some(2_000))), "{ranges:?}");
    let granted = server.endpoint.granted_bytes();
    assert!(ranges.iter().all(|(offset, length)| offset + length.unwrap() <= 9_000), "{granted} {ranges:?}");
}

/// RESEND-4.
#[test]
fn one_round_asks_for_sixteen_ranges() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    for packet in 0..20 {
        server.hear(client.addr, &client.data(2, 40_000, 40_000, (2_000 * packet, 1_000)));
    }
    server.take();
    let asked = resends(&server.pass(6 * MS));
    let expected: Vec<_> = (0..16).map(|range| (asked[0].0, 1_000 + 2_000 * range, Some(1_000))).collect();
    assert_eq!(asked, expected);
}

/// RESEND-1: the client's timer expires while bytes to be sent again wait for the link.
#[test]
fn a_client_asks_for_the_response_an_interval_after_it_has_sent_bytes_again() {
    const BYTES: u32 = 500_000;
    // The link needs 4 ms for the request.
    let mut client = Side::new(1, Config { link_mbps: Some(1_000), ..Config::default() });
    let rpc = client.call(addr(2), BYTES);
    let (id, server) = (client.id(rpc) | 1, kernel(2).server(client.client_port));
    client.hear(addr(2), &server.grant(id, BYTES, 1));
    client.pass(6 * MS);
    client.hear(addr(2), &server.resend(id, 0, Some(BYTES)));
    let sent = client.pass(100 * MS);
    let last = sent.iter().filter(|sent| sent.is(PacketType::Data)).map(|sent| sent.at).max().unwrap();
    let asked = sent.iter().find(|sent| sent.is(PacketType::Resend)).expect("a RESEND").at;
    assert!(asked > last && asked.since(last) < 10 * MS, "{last:?} {asked:?}");
    assert!(asked.since(last) >= 5 * MS - MS / 2, "RESEND too early: {last:?} {asked:?}");
}

/// RESEND-3.
#[test]
fn nothing_is_asked_for_that_was_not_granted_or_before_the_request_went_out() {
    // The link is so slow that the request needs a second.
    let slow = Config { link_mbps: Some(1), ..Config::default() };
    let mut client = Side::new(1, slow);
    client.call(addr(2), 100_000);
    assert_eq!(resends(&client.pass(300 * MS)), []);
    // A server that has no grants to give for the message sends no RESEND.
    let mut server = Side::new(1, Config { max_overcommit: 1, grant_fifo_fraction: 0, ..Config::default() });
    let of = |n, length| kernel(n).data(2, length, 2_000, (0, 2_000));
    server.hear(addr(2), &of(2, 500_000));
    server.hear(addr(3), &of(3, 900_000));
    let mut asked = Vec::new();
    for step in 0..20 {
        // The granted bytes arrive; otherwise the message would lose its slot (SHARE-7).
        server.hear(addr(2), &kernel(2).data(2, 500_000, 2_000, (2_000 + step * 20_000, 20_000)));
        asked.extend(server.pass(MS).into_iter().filter(|sent| sent.to == addr(3)));
    }
    assert_eq!(resends(&asked), []);
    // Neither does a NEED_ACK make a client send RESEND before the client has sent its request.
    let mut client = Side::new(1, Config { link_mbps: Some(1), ..Config::default() });
    let rpc = client.call(addr(2), 100_000);
    let id = client.id(rpc) | 1;
    client.pass(20 * MS);
    client.hear(addr(2), &kernel(2).server(client.client_port).packet(id, Body::NeedAck));
    assert_eq!(resends(&client.take()), []);
}

/// RESEND-7.
#[test]
fn many_silent_rpcs_of_a_peer_ask_at_a_bounded_rate() {
    let mut client = Side::new(1, Config { resend_spacing_ns: MS, ..Config::default() });
    for _ in 0..300 {
        client.call(addr(2), 100);
    }
    let asked: Vec<Sent> = client.pass(SEC).into_iter().filter(|sent| sent.is(PacketType::Resend)).collect();
    assert!(asked.len() > 500, "{}", asked.len());
    for rounds in [20, 100, 500] {
        let spans = asked.windows(rounds).map(|window| window[rounds - 1].at.since(window[0].at));
        let least = spans.min().unwrap();
        // A burst of 16, and the first and the last packet of the window, take no time.
        assert!(least >= (rounds as u64 - 18) * MS, "{rounds} rounds within {least} ns");
    }
}

/// RESEND-22: an overloaded server, for which every answer costs additional CPU time.
#[test]
fn many_rpcs_that_wait_for_a_slow_server_do_not_slow_it_further() {
    let asked_in_a_second = |busy: bool| {
        let (mut client, mut server) = pair(Config { max_resends: 255, ..Config::default() });
        for _ in 0..300 {
            client.call(server.addr, 100);
        }
        exchange(&mut client, &mut server);
        let mut asked = 0;
        for _ in 0..1_000 {
            let sent = client.pass(MS);
            asked += resends(&sent).len();
            if busy {
                server.hear_all(client.addr, &sent);
            }
            let answers = server.pass(0);
            client.hear_all(server.addr, &answers);
        }
        asked
    };
    let (silent, slow) = (asked_in_a_second(false), asked_in_a_second(true));
    assert!(silent > 4_000, "nothing says that it is only slow: one in 200 us: {silent}");
    assert!((100..300).contains(&slow), "one in 6.4 ms, once it is known: {slow}");
}

/// Makes a call to the kernel at `addr(2)`, whose server answers after `service_ns` and sends BUSY until
/// then. Returns how long after the request the RESENDs were sent, in ms.
fn call_slow_kernel(client: &mut Side, service_ns: u64) -> Vec<u64> {
    let rpc = client.call(addr(2), 100);
    let (id, server) = (client.id(rpc) | 1, kernel(2).server(client.client_port));
    client.take();
    let began = client.now;
    let mut asked = Vec::new();
    while client.now < began + service_ns {
        for sent in client.pass(MS / 4).iter().filter(|sent| sent.is(PacketType::Resend)) {
            asked.push(sent.at.since(began) / MS);
            client.hear(addr(2), &server.packet(id, Body::Busy));
        }
    }
    client.hear(addr(2), &server.whole(id, 100));
    client.take();
    assert!(matches!(client.events()[..], [Event::Response { .. }]));
    asked
}

/// Makes a call whose request is lost. The kernel does not know the request, receives it again, and answers
/// immediately. Returns when the first RESEND was sent, in ms.
fn call_losing_request(client: &mut Side) -> u64 {
    let rpc = client.call(addr(2), 100);
    let (id, server) = (client.id(rpc) | 1, kernel(2).server(client.client_port));
    client.take();
    let began = client.now;
    let asked = loop {
        if let Some(sent) = client.pass(MS / 4).first() {
            break sent.at.since(began) / MS;
        }
        assert!(client.now < began + SEC, "no RESEND");
    };
    client.hear(addr(2), &server.unknown(id, UnknownReason::Unknown));
    assert!(client.take()[0].is(PacketType::Data));
    client.hear(addr(2), &server.whole(id, 100));
    client.events();
    asked
}

/// RESEND-23.
#[test]
fn a_server_known_to_be_slow_is_not_asked_before_it_can_have_answered() {
    let mut client = Side::new(1, Config::default());
    assert_eq!(call_slow_kernel(&mut client, 8 * MS), [5], "nothing is known of it");
    for call in 0..400 {
        assert_eq!(call_slow_kernel(&mut client, 8 * MS), [0; 0], "call {call}");
    }
    // RESEND is sent to a silent server after three intervals at the latest, and then at the same rate as to
    // any other server.
    call_slow_kernel(&mut client, 14 * MS);
    let asked = call_slow_kernel(&mut client, 60 * MS);
    assert!(asked[0].abs_diff(15) <= 1 && asked[1].abs_diff(25) <= 1, "{asked:?}");
    assert_eq!(call_slow_kernel(&mut client, 8 * MS), [5], "its answers take too long");
    // Nothing is known about a second peer.
    client.call(addr(3), 100);
    let other = client.pass(6 * MS);
    assert_eq!(resends(&other).len(), 1);
}

/// RESEND-23: neither a grant nor the rest of a response depends on the server's application.
#[test]
fn what_is_missing_of_a_message_is_requested_after_the_interval_from_a_slow_server_too() {
    let mut client = Side::new(1, Config { wire_dialect: Dialect::Two, ..Config::default() });
    call_slow_kernel(&mut client, 12 * MS);
    client.call(addr(2), 500_000);
    assert!(client.take()[0].is(PacketType::Start));
    assert!(client.pass(6 * MS).iter().any(|sent| sent.is(PacketType::Start)), "DIALECT-5");
    let mut client = Side::new(1, Config::default());
    call_slow_kernel(&mut client, 12 * MS);
    let rpc = client.call(addr(2), 100);
    let (id, server) = (client.id(rpc) | 1, kernel(2).server(client.client_port));
    client.take();
    client.hear(addr(2), &server.data(id, 3_000, 3_000, (0, 1_000)));
    assert_eq!(resends(&client.pass(6 * MS)).len(), 1, "the rest of the response");
}

/// RESEND-24.
#[test]
fn after_a_loss_a_slow_server_is_asked_as_early_as_any() {
    let mut client = Side::new(1, Config::default());
    call_slow_kernel(&mut client, 10 * MS);
    let late = call_losing_request(&mut client);
    assert!(late > 5, "nothing was lost before: {late}");
    assert_eq!(call_losing_request(&mut client), 5);
    // The first 256 of the RESENDs that follow are sent early, although nothing is lost.
    let early = (0..300).filter(|_| call_slow_kernel(&mut client, 10 * MS) == [5]).count();
    assert_eq!(early, 256);
}

/// RESEND-25.
#[test]
fn an_answer_shows_nothing_of_the_server_if_the_request_or_it_was_sent_again() {
    let mut client = Side::new(1, Config::default());
    let rpc = client.call(addr(2), 100);
    let (id, server) = (client.id(rpc) | 1, kernel(2).server(client.client_port));
    client.pass(3 * MS);
    client.hear(addr(2), &server.resend(id, 0, Some(100)));
    client.pass(9 * MS);
    client.hear(addr(2), &server.whole(id, 100));
    client.events();
    let rpc = client.call(addr(2), 100);
    let (id, server) = (client.id(rpc) | 1, kernel(2).server(client.client_port));
    client.pass(9 * MS);
    let mut again = server.whole(id, 100);
    let Body::Data(data) = &mut again.body else { panic!("{again} is no DATA") };
    data.retransmit = true;
    client.hear(addr(2), &again);
    client.events();
    assert_eq!(call_slow_kernel(&mut client, 8 * MS), [5]);
}

/// RESEND-8, RESEND-9, RESEND-10, RESEND-21.
#[test]
fn a_resend_is_answered_with_bytes_a_grant_or_busy() {
    let mut client = Side::new(1, Config { unsched_bytes: 5_000, ..Config::default() });
    let rpc = client.call(addr(2), 20_000);
    let id = client.id(rpc) | 1;
    let server = kernel(2).server(client.client_port);
    client.take();
    let mut ask = |offset, length: Option<u32>| {
        client.hear(addr(2), &server.resend(id, offset, length));
        let sent = client.take();
        let ranges: Vec<(u32, u32)> = sent.iter().filter_map(Sent::range).collect();
        (ranges, sent.iter().filter(|sent| sent.is(PacketType::Busy)).count())
    };
    assert_eq!(ask(1_000, Some(1_424)), (vec![(1_000, 2_424)], 0));
    let all = ask(0, None);
    assert_eq!((all.0[0].0, all.0.last().unwrap().1, all.1), (0, 5_000, 0), "everything sent, and no grant");
    assert_eq!(ask(5_000, None), (vec![], 1), "nothing was sent from there on");
    // RESEND-9: acts as a grant up to 7,000.
    let (ranges, _) = ask(4_500, Some(2_500));
    assert_eq!((ranges[0], ranges.last().unwrap().1), ((4_500, 5_000), 7_000), "{ranges:?}");
    // RESEND-8: the retransmitted range is limited to the message's end.
    let (ranges, _) = ask(0, Some(1_000_000));
    let bytes: u32 = ranges.iter().map(|(start, end)| end - start).sum();
    assert_eq!((bytes, ranges.iter().map(|range| range.1).max()), (20_000, Some(20_000)));
    // RESEND-21: the same bytes are requested again before the first retransmission was sent.
    for _ in 0..3 {
        client.hear(addr(2), &server.resend(id, 0, Some(2_000)));
    }
    let bytes: u32 = client.take().iter().map(|sent| sent.packet.payload_len).sum();
    assert_eq!(bytes, 2_000);
}

/// RESEND-10: a RESEND for bytes that may be sent but have not been sent yet.
#[test]
fn bytes_that_wait_for_the_link_are_not_sent_twice() {
    let mut client = Side::new(1, Config { link_mbps: Some(10), ..Config::default() });
    let rpc = client.call(addr(2), 20_000);
    let id = client.id(rpc) | 1;
    client.take();
    client.hear(addr(2), &kernel(2).server(client.client_port).resend(id, 10_000, Some(2_000)));
    let sent = client.take();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].is(PacketType::Busy));
    let later = client.pass(SEC);
    assert_eq!(later.iter().map(|sent| sent.packet.payload_len).sum::<u32>(), 20_000 - 1_424);
}

/// RESEND-12.
#[test]
fn a_server_with_part_of_the_request_asks_for_the_rest() {
    let mut server = Side::new(1, Config { max_overcommit: 1, grant_fifo_fraction: 0, ..Config::default() });
    let client = kernel(2);
    server.hear(client.addr, &client.data(2, 500_000, 9_000, (0, 1_000)));
    server.take();
    server.hear(client.addr, &client.resend(2, 0, None));
    let asked = resends(&server.take());
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].1, asked[0].2.is_some()), (1_000, true), "{asked:?}");
    // If all granted bytes have arrived, no RESEND is due, since another message has the grants.
    server.hear(addr(3), &kernel(3).data(2, 900_000, 2_000, (0, 2_000)));
    server.take();
    server.hear(addr(3), &kernel(3).resend(2, 0, None));
    let answer: Vec<PacketType> = server.take().iter().map(|sent| sent.packet.body.packet_type()).collect();
    assert_eq!(answer, [PacketType::Busy]);
}

/// RESEND-13, RESEND-19, RESEND-16.
#[test]
fn rpc_unknown_answers_resends_and_nothing_else() {
    let (mut side, _) = pair(Config::default());
    let from = ours(2, 5);
    side.hear(from.addr, &from.resend(44, 0, None));
    let answer = side.take();
    assert_eq!(answer.len(), 1);
    assert_eq!(answer[0].packet.body, Body::RpcUnknown(UnknownReason::Unknown));
    assert_eq!((answer[0].packet.common.sender_id, answer[0].packet.common.source_port), (45, 99));
    let silent = [
        from.grant(44, 100, 1),
        from.packet(44, Body::Busy),
        from.unknown(44, UnknownReason::Unknown),
        from.ack(44, &[]),
        from.whole(45, 100),
        from.grant(45, 100, 1),
    ];
    for packet in silent {
        side.hear(from.addr, &packet);
        assert_eq!(side.take().len(), 0, "{packet}");
    }
    // A request that has run is reported as finished.
    side.hear(from.addr, &from.whole(46, 10));
    let rpc = side.requests()[0];
    side.respond(rpc, 10);
    side.take();
    side.hear(from.addr, &from.ack(46, &[]));
    side.hear(from.addr, &from.resend(46, 0, None));
    assert_eq!(side.take()[0].packet.body, Body::RpcUnknown(UnknownReason::Finished), "AMO-4");
}

/// RESEND-14, PEER-3.
#[test]
fn an_unknown_request_begins_anew_unless_its_response_has_begun() {
    let mut client = Side::new(1, Config { max_resends: 3, ..Config::default() });
    let rpc = client.call(addr(2), 3_000);
    let id = client.id(rpc) | 1;
    let server = kernel(2).server(client.client_port);
    client.pass(6 * MS);
    client.hear(addr(2), &server.unknown(id, UnknownReason::Unknown));
    let again = client.take();
    assert_eq!(
        again.iter().filter_map(Sent::range).map(|range| range.0).collect::<Vec<_>>(),
        [0, 1_424, 2_848]
    );
    client.hear(addr(2), &server.data(id, 2_000, 2_000, (0, 1_000)));
    client.pass(6 * MS);
    for _ in 0..5 {
        client.hear(addr(2), &server.unknown(id, UnknownReason::Unknown));
        client.pass(100 * MS);
    }
    assert_eq!(errors(&mut client), [RpcError::ResponseLost], "its RESENDs went unanswered");
}

/// RESEND-15.
#[test]
fn a_server_frees_what_its_client_does_not_know() {
    for responded in [false, true] {
        let mut server = Side::new(1, Config::default());
        let client = kernel(2);
        server.hear(client.addr, &client.whole(2, 100));
        let rpc = server.requests()[0];
        if responded {
            server.respond(rpc, 100);
        }
        server.hear(client.addr, &client.unknown(2, UnknownReason::Unknown));
        assert!(matches!(server.events()[..], [Event::Done { .. }]));
        assert_eq!(server.endpoint.open_rpcs(), 0);
    }
}

/// RESEND-17, RESEND-16, LIMIT-5, LIMIT-8.
#[test]
fn the_reasons_of_our_peers_end_the_rpc_with_their_error() {
    let outcome = |code: u32| {
        let mut client = Side::new(1, Config::default());
        let rpc = client.call(addr(2), 100);
        let id = client.id(rpc) | 1;
        client.pass(6 * MS);
        let from = ours(2, 9).server(client.client_port);
        let unknown = from.unknown(id, UnknownReason::NoSuchPort);
        let mut bytes = homa_proto::wire::encode(&unknown.common, &unknown.body).to_vec();
        bytes[4..8].copy_from_slice(&code.to_be_bytes());
        client.hear_bytes(addr(2), &bytes, bytes.len());
        (errors(&mut client), client.take().len())
    };
    assert_eq!(outcome(1).0, [RpcError::ResponseLost]);
    assert_eq!(outcome(2), (vec![RpcError::NoSuchPort], 0));
    assert_eq!(outcome(3).0, [RpcError::MessageTooLarge]);
    assert_eq!(outcome(0), (vec![], 1));
    assert_eq!(outcome(77), (vec![], 1), "an unknown reason counts as 0");
    let (mut server, mut client) = pair(Config { max_message: 5_000, ..Config::default() });
    server.endpoint.bind(100).unwrap();
    let (now, port) = (client.now, client.client_port);
    client.endpoint.send_request(now, port, server.addr, 98, 10, Default::default()).unwrap();
    exchange(&mut server, &mut client);
    assert_eq!((errors(&mut client), server.stats().drop_no_port), (vec![RpcError::NoSuchPort], 1));
}

/// RESEND-20, LIMIT-1.
#[test]
fn retransmissions_beyond_their_limit_are_dropped_and_counted() {
    let mut client = Side::new(1, Config { max_retransmits: 2, link_mbps: Some(1), ..Config::default() });
    let ids: Vec<u64> = (0..4)
        .map(|_| {
            let rpc = client.call(addr(2), 1_200);
            client.id(rpc) | 1
        })
        .collect();
    client.pass(100 * MS);
    let server = kernel(2).server(client.client_port);
    for &id in &ids {
        client.hear(addr(2), &server.resend(id, 0, None));
    }
    assert_eq!(client.stats().drop_retransmit_limit, 2);
    let sent = client.pass(100 * MS);
    assert_eq!(sent.iter().filter(|sent| sent.is(PacketType::Data)).count(), 2);
}
