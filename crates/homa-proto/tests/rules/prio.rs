//! PRIO: the priority of each packet.

use homa_proto::wire::{Body, Cutoffs, PacketType};
use homa_proto::{Config, MS};

use super::kit::{Forger, Sent, Side, addr, exchange, kernel, ours, pair};

fn cutoffs(from: &Forger, sender_id: u64, cutoffs: [u32; 8], version: u16) -> homa_proto::wire::Packet {
    from.packet(sender_id, Body::Cutoffs(Cutoffs { cutoffs, version, unsched_limit: None }))
}

/// PRIO-1, PRIO-2.
#[test]
fn no_packet_uses_a_level_that_is_not_there_and_control_uses_the_highest() {
    for num_priorities in 1..=8 {
        let max_sched_prio = 3.min(num_priorities - 1);
        let (mut server, mut client) =
            pair(Config { num_priorities, max_sched_prio, unsched_bytes: 3_000, ..Config::default() });
        client.call(server.addr, 90_000);
        let said = exchange(&mut server, &mut client);
        assert!(said.iter().all(|(_, sent)| sent.priority < num_priorities));
        let mut control = said.iter().filter(|(_, sent)| !sent.is(PacketType::Data));
        assert!(control.all(|(_, sent)| sent.priority == num_priorities - 1), "{num_priorities} levels");
        assert!(said.iter().any(|(_, sent)| sent.is(PacketType::Grant)));
    }
}

fn first_priority(client: &mut Side, length: u32) -> (u8, u16) {
    client.call(addr(2), length);
    let sent = client.take();
    assert!(sent.iter().all(|other| other.priority == sent[0].priority));
    (sent[0].priority, sent[0].data().cutoff_version)
}

/// PRIO-3, PRIO-4, PRIO-5, PRIO-12.
#[test]
fn unscheduled_packets_follow_the_peers_cutoffs() {
    let mut client = Side::new(1, Config::default());
    assert_eq!(first_priority(&mut client, 100), (6, 0));
    assert_eq!(first_priority(&mut client, 30_000), (6, 0));
    let server = kernel(2).server(client.client_port);
    // PRIO-12: CUTOFFS apply regardless of the RPC in their header.
    client.hear(addr(2), &cutoffs(&server, 77, [0, 0, 0, 0, 900_000, 15_000, 2_800, 200], 9));
    let expected = [(200, 7), (201, 6), (2_800, 6), (2_801, 5), (15_000, 5), (15_001, 4), (900_001, 0)];
    for (length, priority) in expected {
        assert_eq!(first_priority(&mut client, length), (priority, 9), "{length} B");
    }
    client.hear(addr(2), &cutoffs(&server, 77, [0, 0, 0, 0, 0, 0, 0, 1_000_000], 10));
    assert_eq!(first_priority(&mut client, 30_000), (7, 10));
    let (peers, rpcs) = (client.endpoint.known_peers(), client.endpoint.open_rpcs());
    client.hear(addr(3), &cutoffs(&kernel(3), 2, [0; 8], 4));
    assert_eq!((client.endpoint.known_peers(), client.endpoint.open_rpcs()), (peers, rpcs));
    let mut few = Side::new(1, Config { num_priorities: 3, max_sched_prio: 1, ..Config::default() });
    assert_eq!(first_priority(&mut few, 100), (2, 0), "PRIO-3 where there are fewer");
}

/// PRIO-8, PRIO-9.
#[test]
fn data_of_another_cutoff_version_is_answered_with_ours() {
    let mut server = Side::new(1, Config::default());
    let client = kernel(2);
    let with_version = |id, version| {
        let mut packet = client.whole(id, 100);
        if let Body::Data(data) = &mut packet.body {
            data.cutoff_version = version;
        }
        packet
    };
    let told = |server: &mut Side| {
        let cutoffs =
            |sent: Sent| if let Body::Cutoffs(cutoffs) = sent.packet.body { Some(cutoffs) } else { None };
        server.take().into_iter().filter_map(cutoffs).collect::<Vec<_>>()
    };
    for (id, version) in [(2, 0), (4, 7)] {
        server.hear(client.addr, &with_version(id, version));
        let answer = told(&mut server);
        assert_eq!(answer.len(), 1, "version {version}");
        assert_eq!((answer[0].cutoffs, answer[0].version), (Config::default().unsched_cutoffs, 1));
        server.pass(2 * MS);
    }
    server.hear(client.addr, &with_version(6, 1));
    assert_eq!(told(&mut server), [], "it has them");
}

/// PRIO-9, PRIO-11.
#[test]
fn new_cutoffs_have_a_new_version_and_fall_with_the_level() {
    let config = Config { cutoff_interval_ns: MS, cutoff_min_bytes: 1, ..Config::default() };
    let mut server = Side::new(1, config);
    let mut versions = Vec::new();
    for round in 0..8_u32 {
        for n in 0..50 {
            let length = 1 + (n * 37 + 1) * (round * 977 % 1_200 + 1);
            server.hear(addr(2), &kernel(2).whole(2 + 2 * u64::from(round * 50 + n), length));
        }
        server.pass(2 * MS);
        let (levels, version) = server.endpoint.cutoffs();
        versions.push(version);
        let unscheduled = &levels[4..];
        assert!(unscheduled.windows(2).all(|pair| pair[0] >= pair[1]), "{levels:?}");
        if version > 1 {
            assert!(
                levels[4] >= 1_000_000 && levels[..4] == [0; 4],
                "the lowest takes any length: {levels:?}"
            );
        }
    }
    assert!(versions.windows(2).all(|pair| pair[0] <= pair[1]) && versions[7] > 2, "{versions:?}");
    assert!(!versions.contains(&0));
}

/// PRIO-13.
#[test]
fn what_a_resend_asks_for_travels_at_the_priority_that_it_names() {
    let mut client = Side::new(1, Config { num_priorities: 6, ..Config::default() });
    let rpc = client.call(addr(2), 3_000);
    let id = client.id(rpc);
    client.take();
    let server = kernel(2).server(client.client_port);
    for (named, used) in [(0, 0), (4, 4), (7, 5)] {
        let mut resend = server.resend(id | 1, 0, Some(3_000));
        if let Body::Resend(resend) = &mut resend.body {
            resend.priority = named;
        }
        client.hear(addr(2), &resend);
        let sent = client.take();
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|sent| sent.priority == used), "{named}: {sent:?}");
    }
}

/// INCAST-6.
#[test]
fn a_limit_goes_before_the_request_that_begins_again_unless_its_sender_keeps_it() {
    let mut server = Side::new(1, Config::for_link(1_000));
    for crowd in 10..60 {
        server.hear(addr(crowd), &ours(crowd, 5).data(2, 100_000, 100_000, (0, 1_000)));
    }
    server.take();
    let (_, version) = server.endpoint.cutoffs();
    assert_ne!(version, 1, "it has a limit");
    let client = ours(2, 5);
    let both = &[PacketType::Cutoffs, PacketType::RpcUnknown][..];
    for (kept, expected) in [(None, both), (Some(1), both), (Some(version), &both[1..])] {
        if let Some(cutoff_version) = kept {
            let mut request = client.whole(2 * u64::from(cutoff_version), 100);
            let Body::Data(data) = &mut request.body else { unreachable!("it is a request") };
            data.cutoff_version = cutoff_version;
            server.hear(client.addr, &request);
            server.take();
        }
        server.hear(client.addr, &client.resend(100, 0, None));
        let told: Vec<_> = server.take().iter().map(|sent| sent.packet.body.packet_type()).collect();
        assert_eq!(told, expected, "one whose DATA has version {kept:?}");
    }
}

/// INCAST-6, LIMIT-6: the answer to a RESEND is sent even if there is room for only one control packet.
#[test]
fn a_limit_to_be_told_does_not_take_the_room_of_the_answer() {
    let config = Config { link_mbps: Some(25_000), max_control_packets: 1, ..Config::default() };
    let mut server = Side::new(1, config);
    for n in 2..42 {
        server.hear(addr(n), &kernel(n).data(2, 40_000, 40_000, (0, 1_000)));
    }
    assert!(server.endpoint.unsched_limit().is_some());
    server.take();
    let client = ours(50, 5);
    server.hear(client.addr, &client.resend(2, 0, None));
    assert!(server.take().iter().any(|sent| sent.is(PacketType::RpcUnknown)));
}
