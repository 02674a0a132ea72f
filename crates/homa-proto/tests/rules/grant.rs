//! GRANT: which messages receive grants, and how large the grants are.

use homa_proto::wire::{Body, Grant, PacketType};
use homa_proto::{Config, MS};

use super::kit::{Sent, Side, addr, exchange, kernel, pair, serve_once};

/// Returns a receiver without FIFO grants.
fn plain() -> Config {
    Config {
        unsched_bytes: 10_000,
        max_incoming: 100_000,
        max_overcommit: 2,
        grant_fifo_fraction: 0,
        ..Config::default()
    }
}

/// Returns a server whose clients are proven (LIMIT-9).
fn receiver(config: Config) -> Side {
    let mut server = Side::new(1, config);
    (2..8).for_each(|n| serve_once(&mut server, &kernel(n)));
    server
}

/// Returns the grants among the packets: their destination, end and priority.
fn grants(sent: &[Sent]) -> Vec<(u8, u32, u8)> {
    let grant = |sent: &Sent| match (sent.to.ip(), sent.packet.body) {
        (std::net::IpAddr::V4(ip), Body::Grant(Grant { offset, priority })) => {
            Some((ip.octets()[3], offset, priority))
        }
        _ => None,
    };
    sent.iter().filter_map(grant).collect()
}

/// Delivers the first packet of a request of kernel `n` with id 2, which announces 10,000 unscheduled bytes.
/// Returns the resulting grants.
fn begin(server: &mut Side, n: u8, length: u32) -> Vec<(u8, u32, u8)> {
    server.hear(addr(n), &kernel(n).data(2, length, 10_000, (0, 1_000)));
    grants(&server.take())
}

/// Delivers further bytes of that request. Returns the resulting grants.
fn go_on(server: &mut Side, n: u8, length: u32, range: (u32, u32)) -> Vec<(u8, u32, u8)> {
    server.hear(addr(n), &kernel(n).data(2, length, 10_000, range));
    grants(&server.take())
}

/// GRANT-1, GRANT-5.
#[test]
fn unscheduled_bytes_count_as_granted_from_the_first_packet_on() {
    let mut server = receiver(plain());
    server.hear(addr(2), &kernel(2).data(2, 8_000, 10_000, (0, 1_000)));
    assert_eq!(server.endpoint.granted_bytes(), 7_000);
    server.hear(addr(3), &kernel(3).data(2, 300_000, 10_000, (0, 1_000)));
    let granted = grants(&server.take());
    assert_eq!(granted.len(), 1);
    assert_eq!(server.endpoint.granted_bytes(), u64::from(7_000 + granted[0].1 - 1_000));
}

/// GRANT-2, GRANT-3, PRIO-6, PRIO-7.
#[test]
fn the_shortest_messages_are_granted_to_one_of_each_peer() {
    let mut server = receiver(Config { max_incoming: 400_000, ..plain() });
    let mut granted = begin(&mut server, 2, 400_000);
    granted.extend(begin(&mut server, 3, 200_000));
    assert_eq!(granted.iter().map(|grant| grant.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(granted[1].2, 1, "the shorter of two has the higher of the two priorities in use");
    // The third message is the shortest, so the third and the second are active from now on, regardless of
    // what arrives.
    assert_eq!(begin(&mut server, 4, 100_000).iter().map(|grant| grant.0).collect::<Vec<_>>(), [4]);
    let mut to = std::collections::BTreeSet::new();
    for step in 1..10 {
        for (n, length) in [(2, 400_000), (3, 200_000), (4, 100_000)] {
            let more = go_on(&mut server, n, length, (step * 1_000, 1_000));
            assert!(more.iter().all(|grant| grant.2 <= Config::default().max_sched_prio), "{more:?}");
            to.extend(more.iter().map(|grant| grant.0));
        }
    }
    assert!(!to.contains(&2), "{to:?}");
    // A second message of a peer only competes with that peer's first one.
    let mut server = receiver(plain());
    begin(&mut server, 2, 100_000);
    server.hear(addr(2), &kernel(2).data(4, 120_000, 10_000, (0, 1_000)));
    assert_eq!(grants(&server.take()), [], "GRANT-3");
    assert_eq!(begin(&mut server, 3, 300_000).len(), 1, "the other active message is of another peer");
}

/// GRANT-4, GRANT-15.
#[test]
fn a_grant_reaches_a_window_beyond_what_was_received_and_not_beyond_the_message() {
    let payload = Config::default().max_packet - 56;
    // The unscheduled bytes, and as many full packets as the window has room for.
    let within = |window: u32| 10_000 + (1_000 + window - 10_000) / payload * payload;
    let mut server = receiver(plain());
    assert_eq!(begin(&mut server, 2, 400_000), [(2, within(100_000 / 2), 0)], "one active message");
    assert_eq!(begin(&mut server, 3, 300_000)[0].1, within(100_000 / 3), "two");
    let mut server = receiver(Config { window: 22_000, ..plain() });
    assert_eq!(begin(&mut server, 2, 400_000), [(2, within(22_000), 0)]);
    assert_eq!(begin(&mut server, 3, 12_000), [(3, 12_000, 1)]);
}

/// GRANT-5.
#[test]
fn no_grant_raises_the_granted_bytes_above_max_incoming() {
    let mut server =
        receiver(Config { max_overcommit: 8, window: 60_000, min_grant_increment: 1, ..plain() });
    let mut given = 0;
    for step in 0..10 {
        for n in 2..8 {
            let before = server.endpoint.granted_bytes();
            given += go_on(&mut server, n, 400_000, (step * 1_000, 1_000)).len();
            let after = server.endpoint.granted_bytes();
            // The unscheduled bytes of a new message count, although they were not granted.
            assert!(after <= 100_000.max(before + 9_000), "{after} after {before}");
        }
    }
    assert!(given > 10 && server.endpoint.granted_bytes() > 90_000, "{given}");
}

/// GRANT-6.
#[test]
fn of_equally_long_messages_the_first_to_come_is_granted_to() {
    let mut server = receiver(Config { max_overcommit: 1, ..plain() });
    let mut granted = Vec::new();
    for n in [5, 2, 4, 3] {
        granted.extend(begin(&mut server, n, 200_000 + u32::from(n)));
    }
    assert_eq!(granted.iter().map(|grant| grant.0).collect::<Vec<_>>(), [5]);
    // The client of the active message aborts it. The second message is next.
    server.hear(addr(5), &kernel(5).ack(2, &[]));
    assert_eq!(grants(&server.take()).iter().map(|grant| grant.0).collect::<Vec<_>>(), [2]);
}

/// GRANT-7: regardless of what arrives, and in which order.
#[test]
fn a_granted_end_never_goes_back() {
    let config =
        Config { max_overcommit: 1, grant_fifo_fraction: 200, fifo_grant_increment: 3_000, ..plain() };
    let mut server = receiver(config);
    let mut ends = std::collections::BTreeMap::new();
    let mut count = 0;
    for step in 0..40_u32 {
        for (n, length) in [(2, 300_000), (3, 200_000), (4, 250_000)] {
            let offset = (step ^ 1) * 5_000;
            for (to, end, _) in go_on(&mut server, n, length, (offset, 5_000)) {
                let last = ends.insert(to, end).unwrap_or(0);
                assert!(end > last, "{to} had {last} and gets {end}");
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} grants");
}

/// GRANT-8: with a window or budget smaller than the minimum grant, a message still proceeds.
#[test]
fn no_message_waits_for_a_grant_that_would_be_too_small() {
    let small = [(0, 1), (0, 900), (1, 100_000), (500, 100_000), (20_000, 700), (20_000, 1)];
    for (window, max_incoming) in small {
        let config = Config { window, max_incoming, unsched_bytes: 1_000, ..plain() };
        let (mut server, mut client) = pair(config);
        client.call(server.addr, 3_000);
        exchange(&mut server, &mut client);
        assert_eq!(server.requests().len(), 1, "window {window}, max_incoming {max_incoming}");
        assert_eq!(server.stats().resends_sent, 0);
    }
}

/// GRANT-9, GRANT-10.
#[test]
fn the_oldest_message_gets_its_share_of_the_grants_at_the_highest_priority() {
    let share = 100;
    let increment = 5_000;
    let config = Config {
        grant_fifo_fraction: share,
        fifo_grant_increment: increment,
        max_overcommit: 1,
        max_message: 10_000_000,
        ..plain()
    };
    let mut server = receiver(config);
    // The oldest and longest message is never active, since there are always two shorter messages of another
    // peer.
    let oldest = Message { n: 2, id: 2, length: 5_000_000, granted: 10_000, at: 0 };
    let short = |id| Message { n: 3, id, length: 200_000, granted: 10_000, at: 0 };
    let mut messages = vec![oldest, short(2), short(4)];
    for at in 0..3 {
        send_and_be_granted(&mut server, &mut messages, at);
    }
    let (mut fifo, mut all, mut ended) = (0, 0, 0);
    while ended < 40 {
        for at in 0..messages.len() {
            for (n, bytes, priority) in send_and_be_granted(&mut server, &mut messages, at) {
                assert!(priority <= 6 && (n != 2 || priority == 6), "GRANT-10: {priority} for {n}");
                all += bytes;
                fifo += if n == 2 { bytes } else { 0 };
                let want = u64::from(all) * u64::from(share) / 1_000;
                assert!(
                    u64::from(fifo).abs_diff(want) <= u64::from(increment) + 1_000,
                    "{fifo} instead of {want}"
                );
            }
        }
        if messages[1].at == messages[1].length {
            ended += 1;
            messages.remove(1);
            messages.push(short(4 + 2 * ended));
        }
    }
}

/// A message whose sender transmits everything that was granted, 1,000 bytes at a time.
struct Message {
    n: u8,
    id: u64,
    length: u32,
    granted: u32,
    at: u32,
}

/// Delivers bytes of one message; returns the resulting grants: peer, bytes, priority.
fn send_and_be_granted(server: &mut Side, messages: &mut [Message], at: usize) -> Vec<(u8, u32, u8)> {
    let message = &mut messages[at];
    let len = 1_000.min(message.granted - message.at);
    if len > 0 {
        let packet = kernel(message.n).data(message.id, message.length, 10_000, (message.at, len));
        server.hear(addr(message.n), &packet);
        message.at += len;
    }
    let mut granted = Vec::new();
    for sent in server.take() {
        let Body::Grant(grant) = sent.packet.body else { continue };
        let id = sent.packet.common.sender_id & !1;
        let to = messages.iter_mut().find(|message| addr(message.n) == sent.to && message.id == id).unwrap();
        granted.push((to.n, grant.offset - to.granted, grant.priority));
        to.granted = grant.offset;
    }
    granted
}

/// GRANT-11, ABORT-1.
#[test]
fn what_an_ended_message_was_granted_goes_to_others_at_once() {
    let ends: [fn(&mut Side); 3] = [
        |server| server.hear(addr(2), &kernel(2).ack(2, &[])),
        |server| server.hear(addr(2), &kernel(2).unknown(2, Default::default())),
        |server| server.hear(addr(2), &kernel(2).data(2, 60_000, 10_000, (1_000, 59_000))),
    ];
    for (which, end) in ends.into_iter().enumerate() {
        let mut server = receiver(Config { window: 100_000, ..plain() });
        assert_eq!(begin(&mut server, 2, 60_000).len(), 1);
        server.hear(addr(3), &kernel(3).data(2, 500_000, 40_000, (0, 1_000)));
        server.take();
        let waiting = server.endpoint.granted_bytes();
        assert!(waiting > 90_000, "{waiting}");
        end(&mut server);
        let more = grants(&server.take());
        assert_eq!(more.iter().map(|grant| grant.0).collect::<Vec<_>>(), [3], "end {which}: {more:?}");
    }
}

/// GRANT-13.
#[test]
fn grants_for_what_was_sent_or_is_not_there_do_nothing() {
    let (mut server, mut client) = pair(plain());
    let rpc = client.call(server.addr, 30_000);
    let id = client.id(rpc);
    exchange(&mut server, &mut client);
    let from = kernel(1).server(client.client_port);
    for end in [30_000, 5_000, 0x7fff_ffff] {
        client.hear(server.addr, &from.grant(id | 1, end, 3));
    }
    client.hear(server.addr, &from.grant((id | 1) + 2, 9_000, 3));
    assert_eq!((client.take().len(), client.events().len(), client.endpoint.open_rpcs()), (0, 0, 1));
    let request = server.requests()[0];
    let mut to_server = kernel(2);
    to_server.port = client.client_port;
    server.hear(client.addr, &to_server.grant(id, 9_000, 3));
    assert_eq!((server.take().len(), server.stats().drop_nonsense), (0, 1), "the request is in hand");
    server.respond(request, 10);
    exchange(&mut server, &mut client);
    assert_eq!(client.stats().responses_delivered, 1);
}

/// GRANT-14, PRIO-1.
#[test]
fn scheduled_packets_travel_at_the_priority_of_the_last_grant() {
    let mut client = Side::new(1, Config { num_priorities: 6, ..plain() });
    let rpc = client.call(addr(2), 30_000);
    let id = client.id(rpc);
    let unscheduled = client.take();
    assert!(unscheduled.iter().all(|sent| sent.priority > 3));
    let server = kernel(2).server(client.client_port);
    for (end, told, used) in [(14_000, 2, 2), (17_000, 0, 0), (20_000, 7, 5)] {
        client.hear(addr(2), &server.grant(id | 1, end, told));
        let sent = client.take();
        assert!(!sent.is_empty() && sent.iter().all(|sent| sent.priority == used), "{sent:?}");
    }
}

/// RESEND-9, GRANT-13: a RESEND for the granted bytes replaces a lost grant.
#[test]
fn a_lost_grant_does_not_stop_a_message() {
    let (mut server, mut client) = pair(Config { unsched_bytes: 2_000, ..plain() });
    client.call(server.addr, 50_000);
    let first = client.take();
    server.hear_all(client.addr, &first);
    let lost = server.take();
    assert!(lost.iter().any(|sent| sent.is(PacketType::Grant)));
    for _ in 0..20 {
        let sent = server.pass(MS);
        client.hear_all(server.addr, &sent);
        exchange(&mut server, &mut client);
    }
    assert_eq!(server.requests().len(), 1);
}
