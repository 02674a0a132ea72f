//! SEND: contents and order of sent packets.

use std::collections::BTreeMap;

use homa_proto::wire::{Body, PacketType, UnknownReason};
use homa_proto::{Config, Event, MS, RpcError, SEC, SendError, US};

use super::kit::{Sent, Side, addr, exchange, kernel, pair};

fn end_of(sent: &[Sent]) -> u32 {
    sent.iter().filter_map(Sent::range).map(|(_, end)| end).max().unwrap_or(0)
}

/// SEND-1, SEND-2, GRANT-13.
#[test]
fn a_sender_sends_what_it_may_and_no_byte_more() {
    let mut client = Side::new(1, Config { unsched_bytes: 5_000, ..Config::default() });
    let rpc = client.call(addr(2), 20_000);
    let id = client.id(rpc);
    let server = kernel(2).server(client.client_port);
    assert_eq!(end_of(&client.take()), 5_000);
    for (granted, end) in [(8_000, 8_000), (6_000, 0), (8_000, 0), (0, 0), (0x7fff_ffff, 20_000), (20_000, 0)]
    {
        client.hear(addr(2), &server.grant(id | 1, granted, 0));
        assert_eq!(end_of(&client.take()), end, "granted {granted}");
        client.endpoint.check();
    }
    client.hear(addr(2), &server.grant(id + 101, 20_000, 0));
    assert_eq!((client.take().len(), client.stats().drop_unknown_rpc), (0, 1));
}

/// Returns the ids of the DATA packets, one entry for each run.
fn order(sent: &[Sent]) -> Vec<u64> {
    let mut ids: Vec<u64> = sent.iter().map(|sent| sent.packet.common.sender_id).collect();
    ids.dedup();
    ids
}

/// SEND-3, SEND-4.
#[test]
fn the_shortest_message_goes_first_and_equal_ones_as_they_came() {
    let mut client = Side::new(1, Config { pacer_fifo_fraction: 0, ..Config::default() });
    let lengths = [9_000, 30_000, 200, 9_000, 20_000, 9_000];
    let ids: Vec<u64> = lengths
        .iter()
        .map(|&length| {
            let rpc = client.call(addr(2), length);
            client.id(rpc)
        })
        .collect();
    assert_eq!(order(&client.take()), [2, 0, 3, 5, 4, 1].map(|at: usize| ids[at]));
    // The order is by remaining bytes: 2,000 of 30,000 bytes are fewer than 5,000.
    let long = client.call(addr(2), 30_000);
    let long = client.id(long);
    for _ in 0..20 {
        client.take_one();
    }
    let short = client.call(addr(2), 5_000);
    let short = client.id(short);
    assert_eq!(order(&client.take()), [long, short]);
}

/// SEND-5.
#[test]
fn the_oldest_message_gets_its_share_of_the_bytes() {
    for thousandths in [0, 50, 200] {
        let config =
            Config { pacer_fifo_fraction: thousandths, unsched_bytes: 1_000_000, ..Config::default() };
        let mut client = Side::new(1, config);
        let oldest = client.call(addr(2), 1_000_000);
        let oldest = client.id(oldest);
        for _ in 0..200 {
            client.call(addr(2), 14_240);
        }
        let mut bytes = BTreeMap::<bool, u32>::new();
        for _ in 0..1_500 {
            let sent = client.take_one().unwrap();
            *bytes.entry(sent.packet.common.sender_id == oldest).or_default() += sent.packet.payload_len;
        }
        let share = u64::from(bytes.get(&true).copied().unwrap_or(0)) * 1_000 / (1_500 * 1_424);
        assert!(share.abs_diff(thousandths.into()) <= 5, "{share} thousandths instead of {thousandths}");
    }
}

/// SEND-5: one path may carry larger packets than the others.
#[test]
fn the_share_of_the_oldest_message_may_be_one_packet_of_a_wide_path() {
    let config =
        Config { max_packet: 100, pacer_fifo_fraction: 499, unsched_bytes: 1_000_000, ..Config::default() };
    let mut client = Side::new(1, config);
    client.call(addr(3), 100_000);
    client.endpoint.set_peer_max_packet(addr(3), 9_000);
    client.call(addr(2), 100_000);
    let sent = client.take();
    assert_eq!(sent.iter().map(|sent| sent.packet.payload_len).sum::<u32>(), 200_000);
}

fn paced() -> Config {
    // A byte takes 8 ns, and a full packet with its overhead 12 us.
    Config { link_mbps: Some(1_000), link_margin: 0, pacer_fifo_fraction: 0, ..Config::default() }
}

/// SEND-6, SEND-8.
#[test]
fn the_pacer_holds_full_packets_back_while_the_nic_is_busy() {
    let mut client = Side::new(1, paced());
    client.call(addr(2), 30_000);
    let at_once = client.take();
    assert_eq!(at_once.len(), 1, "the second would wait for more than 5 us");
    let packet_ns = u64::from(1_480 + Config::default().link_overhead) * 8;
    let free = client.endpoint.poll_timeout().unwrap();
    assert_eq!(free.since(client.now), packet_ns - 5 * US);
    let sent = client.pass(10 * packet_ns);
    assert_eq!(sent.len(), 10, "one for each time that a packet takes");
    assert!(sent.windows(2).all(|pair| pair[1].at.since(pair[0].at) == packet_ns), "{sent:?}");
    assert!(client.stats().pacer_waits > 0);
}

/// SEND-7.
#[test]
fn short_and_control_packets_pass_the_pacer_and_count_all_the_same() {
    let mut client = Side::new(1, paced());
    client.call(addr(2), 30_000);
    assert_eq!(client.take().len(), 1);
    let before = client.endpoint.poll_timeout().unwrap();
    let short_payload = Config::default().defer_min_bytes - 57;
    client.call(addr(2), short_payload);
    let short = client.take();
    assert_eq!((short.len(), short[0].packet.payload_len), (1, short_payload));
    let after = client.endpoint.poll_timeout().unwrap();
    assert!(after > before, "its bytes count");
    client.hear(addr(2), &kernel(2).resend(44, 0, None));
    let control = client.take();
    assert_eq!(control.len(), 1);
    assert!(control[0].is(PacketType::RpcUnknown));
    assert!(client.endpoint.poll_timeout().unwrap() > after, "and so do those of control packets");
    client.call(addr(2), short_payload + 1);
    assert_eq!(client.take().len(), 0, "one byte more waits");
}

/// SEND-9.
#[test]
fn without_a_link_rate_nothing_is_paced_and_the_metrics_say_so() {
    let mut client = Side::new(1, Config { link_mbps: None, ..paced() });
    assert_eq!(client.stats().pacer_off, 1);
    client.call(addr(2), 30_000);
    assert_eq!(end_of(&client.take()), 30_000);
    assert_eq!((Side::new(1, paced()).stats().pacer_off, client.stats().pacer_waits), (0, 0));
}

/// SEND-10.
#[test]
fn a_retransmission_waits_for_the_pacer_and_reaches_no_further_than_the_grant() {
    let mut client = Side::new(1, Config { unsched_bytes: 20_000, ..paced() });
    let rpc = client.call(addr(2), 30_000);
    let id = client.id(rpc);
    client.pass(100 * US);
    let server = kernel(2).server(client.client_port);
    client.hear(addr(2), &server.resend(id | 1, 0, Some(1_424)));
    client.hear(addr(2), &server.resend(id | 1, 2_848, Some(1_424)));
    let sent = client.take();
    assert!(sent.len() <= 1, "the link is still busy with what was sent: {sent:?}");
    let sent: Vec<Sent> = sent.into_iter().chain(client.pass(30 * US)).collect();
    assert_eq!(sent[0].range(), Some((0, 1_424)), "before fresh bytes");
    assert!(sent[0].data().retransmit);
    client.hear(addr(2), &server.resend(id | 1, 0, None));
    assert_eq!(end_of(&client.pass(SEC / 1_000)), 20_000);
}

/// SEND-12.
#[test]
fn a_message_without_a_byte_is_refused_and_leaves_nothing() {
    let (mut server, mut client) = pair(Config::default());
    assert_eq!(client.try_call(addr(1), 0), Err(SendError::EmptyMessage));
    assert_eq!((client.endpoint.open_rpcs(), client.endpoint.known_peers()), (0, 0));
    client.call(server.addr, 10);
    exchange(&mut server, &mut client);
    let rpc = server.requests()[0];
    let now = server.now;
    assert_eq!(server.endpoint.send_response(now, rpc, 0), Err(SendError::EmptyMessage));
    server.respond(rpc, 1);
}

/// SEND-13: a kernel accepts a million bytes.
#[test]
fn a_peer_that_is_not_ours_is_sent_no_more_than_it_takes() {
    let config = Config { max_message: 2_000_000, ..Config::default() };
    let mut client = Side::new(1, config.clone());
    client.call(addr(2), 2_000_000); // Nothing has been received from this peer yet.
    client.hear(addr(2), &kernel(2).whole(2, 10));
    let refused = Err(SendError::MessageTooLarge { length: 1_000_001, limit: 1_000_000 });
    assert_eq!(client.try_call(addr(2), 1_000_001), refused);
    assert!(client.try_call(addr(2), 1_000_000).is_ok());
    let rpc = client.requests()[0];
    let now = client.now;
    assert_eq!(client.endpoint.send_response(now, rpc, 1_000_001).err(), refused.err());
    client.respond(rpc, 1_000_000);
    let (mut server, mut client) = pair(config);
    client.call(server.addr, 10);
    exchange(&mut server, &mut client);
    assert!(client.try_call(server.addr, 2_000_000).is_ok(), "one of ours takes more");
    let refused = Err(SendError::MessageTooLarge { length: 2_000_001, limit: 2_000_000 });
    assert_eq!(client.try_call(server.addr, 2_000_001), refused);
}

/// SEND-14, RECV-8, RESEND-8.
#[test]
fn requests_and_responses_can_be_sent_again_for_as_long_as_they_may_be_asked_for() {
    let (mut server, mut client) = pair(Config { unsched_bytes: 20_000, ..Config::default() });
    let rpc = client.call(server.addr, 5_000);
    let id = client.id(rpc);
    exchange(&mut server, &mut client);
    let request = server.requests()[0];
    let port = client.client_port;
    // While the response has not started, the whole request can be requested again.
    let from_server = kernel(1).server(port);
    client.hear(server.addr, &from_server.resend(id | 1, 0, None));
    assert_eq!(client.take().iter().map(|sent| sent.packet.payload_len).sum::<u32>(), 5_000);
    server.respond(request, 30_000);
    let response = server.take();
    assert_eq!(response.len(), 15, "what may be sent unasked");
    let mut from_client = kernel(2);
    from_client.port = port;
    for _ in 0..3 {
        server.hear(client.addr, &from_client.resend(id, 1_000, Some(500)));
        assert_eq!(server.take()[0].range(), Some((1_000, 1_500)));
    }
    server.hear(client.addr, &from_client.ack(id, &[]));
    server.hear(client.addr, &from_client.resend(id, 1_000, Some(500)));
    let after = server.take();
    assert!(after.iter().all(|sent| sent.packet.body == Body::RpcUnknown(UnknownReason::Unknown)
        || sent.is(PacketType::RpcUnknown)));
    client.hear_all(server.addr, &response[..1]);
    client.take();
    client.hear(server.addr, &from_server.resend(id | 1, 0, None));
    assert_eq!(client.take().len(), 0, "the server has the request: its RESEND is an old one");
}

/// SEND-15, SEND-16: returns the lengths, including headers, of the packets that a client sends to a server.
/// Packets longer than `fits` do not reach the server, which sends a RESEND every 10 ms.
fn lengths_until_arrived(length: u32, fits: usize) -> Vec<usize> {
    let (mut server, mut client) = pair(Config { max_packet: 8_972, ..Config::default() });
    client.call(server.addr, length);
    let mut lengths = Vec::new();
    for _ in 0..100 {
        for sent in client.pass(10 * MS) {
            let wire_len =
                if let Body::Data(_) = sent.packet.body { 56 + sent.packet.payload_len as usize } else { 28 };
            lengths.push(wire_len);
            if wire_len <= fits {
                server.hear(client.addr, &sent.packet);
            }
        }
        let sent = server.pass(10 * MS);
        client.hear_all(server.addr, &sent);
        if !server.requests().is_empty() {
            return lengths;
        }
    }
    panic!("the request never arrives: {:?}, {lengths:?}", client.events());
}

#[test]
fn packets_become_smaller_where_long_ones_do_not_arrive() {
    for fits in [1_472, 1_452, 1_232, 600] {
        for length in [1_500, 8_916, 30_000] {
            let lengths = lengths_until_arrived(length, fits);
            let longest = lengths.iter().copied().filter(|&length| length <= fits).max().unwrap();
            assert!(longest >= 528.min(fits), "{fits}: {lengths:?}");
        }
    }
    let never = lengths_until_arrived(30_000, 9_000);
    assert_eq!(never.iter().max(), Some(&8_972));
}

/// SEND-15.
#[test]
fn bytes_that_are_sent_again_are_cut_by_what_the_path_takes_now() {
    let (mut server, mut client) = pair(Config { max_packet: 8_972, ..Config::default() });
    client.call(server.addr, 20_000);
    let sent = client.take();
    assert_eq!(client.endpoint.poll_path(), None);
    server.hear(client.addr, &sent[2].packet);
    let asks = server.pass(6 * MS);
    client.hear_all(server.addr, &asks);
    assert_eq!(client.endpoint.poll_path(), Some(server.addr));
    assert_eq!(client.endpoint.poll_path(), None, "once");
    client.endpoint.set_peer_max_packet(server.addr, 1_472);
    let again = client.take();
    assert!(again.iter().all(|sent| sent.packet.payload_len <= 1_416), "{again:?}");
    server.hear_all(client.addr, &again);
    assert_eq!(server.requests().len(), 1);
}

/// SEND-7: if all packets are short, the rate of overtaking packets is still bounded.
#[test]
fn packets_that_are_all_short_are_paced_as_well() {
    let config = Config {
        link_mbps: Some(1_000),
        link_margin: 0,
        max_packet: 600,
        unsched_bytes: 400_000,
        unsched_from_rtt: false,
        ..Config::default()
    };
    let mut client = Side::new(1, config);
    client.call(addr(2), 400_000);
    let at_once: u32 = client.take().iter().map(|sent| sent.packet.payload_len).sum();
    assert!(at_once <= 10_000, "{at_once} bytes at once");
    let sent: u32 = client.pass(1_000 * US).iter().map(|sent| sent.packet.payload_len).sum();
    assert!((90_000..=125_000 + 10_000).contains(&sent), "{sent} bytes in a millisecond at 125 bytes/us");
}

/// SEND-13: a message that is too large for a kernel fails with that reason as soon as the peer turns out to
/// be a kernel.
#[test]
fn a_long_message_to_a_kernel_ends_as_too_large_with_its_first_packet() {
    let mut client = Side::new(1, Config { max_message: 4_000_000, incarnation: 9, ..Config::default() });
    let long = client.call(addr(2), 1_000_001);
    let short = client.call(addr(2), 1_000_000);
    let id = client.id(long) | 1;
    client.take();
    client.pass(6 * MS);
    client.hear(addr(2), &kernel(2).server(client.client_port).unknown(id, UnknownReason::Unknown));
    let errors: Vec<RpcError> = client
        .events()
        .iter()
        .filter_map(|event| if let Event::Failed { error, .. } = event { Some(*error) } else { None })
        .collect();
    assert_eq!(errors, [RpcError::MessageTooLarge]);
    assert!(client.endpoint.rpc_id(short).is_some());
    let again = client.take().into_iter().filter(|sent| sent.packet.common.sender_id == id - 1);
    assert!(again.filter(|sent| sent.is(PacketType::Data)).count() == 0, "and is not sent again");
}
