//! Several endpoints behind one address.

use std::net::SocketAddr;

use homa_proto::wire::{self, Body, PRIORITIES, UnknownReason, owner_of};
use homa_proto::{
    CallOptions, Config, DoneReason, Endpoint, Event, PortError, Reassembly, RpcError, RpcKey, RxPacket,
    SendError, Time,
};
use homa_trace::Trace;

struct NoMemory;

impl Reassembly for NoMemory {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

/// Returns the address of the host with several endpoints. The next function returns the address of its peer.
fn shared() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 0))
}
fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 0))
}

const NOW: Time = Time::from_ns(1_000_000);

fn endpoint(incarnation: u64, change: impl FnOnce(&mut Config)) -> Endpoint {
    let mut config = Config { seed: incarnation, incarnation, ..Config::default() };
    change(&mut config);
    Endpoint::new(config, Trace::off()).unwrap()
}

/// Returns the packets to send, with payload of zeros.
fn packets(endpoint: &mut Endpoint, now: Time) -> Vec<Vec<u8>> {
    let next = || endpoint.poll_transmit(now);
    std::iter::from_fn(next)
        .map(|packet| {
            let mut bytes = packet.header.as_slice().to_vec();
            bytes.resize(bytes.len() + packet.payload.map_or(0, |range| range.len as usize), 0);
            bytes
        })
        .collect()
}

fn give(to: &mut Endpoint, now: Time, from: SocketAddr, packets: &[Vec<u8>]) {
    to.handle_packets(now, packets.iter().map(|bytes| RxPacket::new(from, bytes)), &mut NoMemory);
}

fn give_foreign(to: &mut Endpoint, now: Time, from: SocketAddr, packets: &[Vec<u8>]) {
    for bytes in packets {
        // DATA for other endpoints arrives without its payload, as a filter delivers it.
        let cut = &bytes[..bytes.len().min(if bytes[11] == 0x10 { 56 } else { bytes.len() })];
        to.handle_foreign(now, &RxPacket::new(from, cut));
    }
}

fn events(endpoint: &mut Endpoint) -> Vec<Event> {
    std::iter::from_fn(|| endpoint.poll_event()).collect()
}

fn call(client: &mut Endpoint, from: u16, to_port: u16, length: u32) -> RpcKey {
    client.send_request(NOW, from, shared(), to_port, length, CallOptions::default()).unwrap()
}

/// Takes the only pending request and answers it with 100 bytes.
fn answer(server: &mut Endpoint) {
    let [Event::Request { rpc, .. }] = events(server)[..] else { panic!("no request") };
    server.send_response(NOW, rpc, 100).unwrap();
}

fn body(bytes: &[u8]) -> Body {
    wire::decode(bytes, bytes.len()).unwrap().body
}

#[test]
fn an_acknowledgement_that_rides_to_another_port_frees_the_rpc() {
    let (mut one, mut other, mut client) = (endpoint(7, |_| ()), endpoint(7, |_| ()), endpoint(9, |_| ()));
    one.bind(99).unwrap();
    other.bind(98).unwrap();
    let port = client.open_client_port().unwrap();
    call(&mut client, port, 99, 100);
    give(&mut one, NOW, peer(), &packets(&mut client, NOW));
    answer(&mut one);
    give(&mut client, NOW, shared(), &packets(&mut one, NOW));
    call(&mut client, port, 98, 100);
    let sent = packets(&mut client, NOW);
    let data = |bytes: &Vec<u8>| matches!(body(bytes), Body::Data(data) if data.ack.is_some());
    assert!(sent.iter().any(data), "the request carries the acknowledgement");
    give(&mut other, NOW, peer(), &sent);
    give_foreign(&mut one, NOW, peer(), &sent);
    assert!(matches!(events(&mut one)[..], [Event::Done { reason: DoneReason::Acknowledged, .. }]));
    assert!(one.is_idle() && other.open_rpcs() == 1); // HOST-7, ACK-8
    one.check();
}

#[test]
fn an_ack_packet_for_one_port_frees_rpcs_of_all() {
    let (mut one, mut other, mut client) = (endpoint(7, |_| ()), endpoint(7, |_| ()), endpoint(9, |_| ()));
    one.bind(99).unwrap();
    other.bind(98).unwrap();
    let port = client.open_client_port().unwrap();
    // Five acknowledgements that no request carries are sent in a separate packet, for the port of the first
    // one.
    let mut acks = Vec::new();
    for server_port in [99, 99, 99, 99, 98] {
        call(&mut client, port, server_port, 100);
    }
    let requests = packets(&mut client, NOW);
    let to = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    for request in &requests {
        let server = if to(request) == 99 { &mut one } else { &mut other };
        give(server, NOW, peer(), std::slice::from_ref(request));
        answer(server);
        give(&mut client, NOW, shared(), &packets(server, NOW));
        acks.extend(packets(&mut client, NOW));
    }
    let due = client.poll_timeout().unwrap();
    client.handle_timeout(due);
    acks.extend(packets(&mut client, due));
    let acks: Vec<_> = acks.into_iter().filter(|bytes| matches!(body(bytes), Body::Ack(_))).collect();
    assert_eq!(acks.len(), 1);
    let (owner, stranger) = if to(&acks[0]) == 99 { (&mut one, &mut other) } else { (&mut other, &mut one) };
    give(owner, NOW, peer(), &acks);
    give_foreign(stranger, NOW, peer(), &acks);
    events(&mut one);
    events(&mut other);
    assert!(one.is_idle() && other.is_idle());
}

#[test]
fn foreign_packets_make_no_state_and_are_never_answered() {
    let (mut stranger, mut client) = (endpoint(7, |_| ()), endpoint(9, |_| ()));
    stranger.bind(98).unwrap();
    let port = client.open_client_port().unwrap();
    call(&mut client, port, 99, 30_000);
    let mut sent = packets(&mut client, NOW);
    while !sent.iter().any(|bytes| matches!(body(bytes), Body::Resend(_))) {
        let due = client.poll_timeout().unwrap();
        client.handle_timeout(due);
        sent.extend(packets(&mut client, due));
    }
    sent.push(vec![0xff; 40]);
    sent.push(vec![0; 12]);
    let before = stranger.stats().clone();
    give_foreign(&mut stranger, NOW, peer(), &sent);
    assert!(packets(&mut stranger, NOW).is_empty() && events(&mut stranger).is_empty());
    assert_eq!((stranger.open_rpcs(), stranger.known_peers()), (0, 0));
    let mut after = stranger.stats().clone();
    assert_eq!(after.foreign_received, sent.len() as u64);
    after.foreign_received = 0;
    assert_eq!(after, before, "nothing else is counted");
    stranger.check();
}

#[test]
fn a_restart_seen_at_another_port_ends_this_ones_rpcs() {
    let (mut one, mut server) = (endpoint(7, |_| ()), endpoint(9, |_| ()));
    server.bind(99).unwrap();
    let port = one.open_client_port().unwrap();
    let call = |one: &mut Endpoint| {
        one.send_request(NOW, port, peer(), 99, 100, CallOptions::default()).unwrap();
    };
    call(&mut one);
    give(&mut server, NOW, shared(), &packets(&mut one, NOW));
    answer(&mut server);
    give(&mut one, NOW, peer(), &packets(&mut server, NOW));
    events(&mut one);
    call(&mut one);
    packets(&mut one, NOW);
    let mut restarted = endpoint(10, |_| ());
    let from = restarted.open_client_port().unwrap();
    restarted.send_request(NOW, from, shared(), 98, 100, CallOptions::default()).unwrap();
    give_foreign(&mut one, NOW, peer(), &packets(&mut restarted, NOW));
    one.handle_timeout(NOW);
    assert_eq!(events(&mut one), [], "the peer is asked first");
    give(&mut restarted, NOW, shared(), &packets(&mut one, NOW));
    give(&mut one, NOW, peer(), &packets(&mut restarted, NOW));
    one.handle_timeout(NOW);
    assert!(matches!(events(&mut one)[..], [Event::Failed { error: RpcError::PeerRestarted, .. }]));
}

#[test]
fn cutoffs_that_come_to_another_port_are_used_by_all() {
    let (mut one, mut other, mut server) = (endpoint(7, |_| ()), endpoint(7, |_| ()), endpoint(9, |_| ()));
    server.bind(99).unwrap();
    let request = |client: &mut Endpoint| {
        let port = client.open_client_port().unwrap();
        client.send_request(NOW, port, peer(), 99, 100, CallOptions::default()).unwrap();
        packets(client, NOW)
    };
    request(&mut other); // Makes the peer known.
    give(&mut server, NOW, shared(), &request(&mut one));
    let answers = packets(&mut server, NOW);
    assert!(answers.iter().any(|bytes| matches!(body(bytes), Body::Cutoffs(_))));
    give_foreign(&mut other, NOW, peer(), &answers);
    let sent = request(&mut other);
    assert!(matches!(body(&sent[0]), Body::Data(data) if data.cutoff_version == server.cutoffs().1));
}

#[test]
fn endpoints_take_each_its_own_ids_of_a_range_and_none_beyond_it() {
    for (first, count) in [(1_000, 10), (0, 4_096), (0xffff_fff8, 100), (u64::MAX - 15, 8), (6, 1), (8, 0)] {
        for endpoints in [2, 3, 64] {
            let mut given = 0;
            let mut ids = Vec::new();
            for endpoint in 0..endpoints {
                let mut client = endpoint_of(endpoints, endpoint);
                let port = client.open_client_port().unwrap();
                client.set_ids(first, count); // HOST-3, ID-4
                while client.ids_left() > 0 {
                    let rpc = call(&mut client, port, 99, 100);
                    let id = client.rpc_id(rpc).unwrap();
                    assert_eq!((id & 1, owner_of(id, endpoints)), (0, endpoint));
                    ids.push(id);
                }
                let own = u64::try_from(client.open_rpcs()).unwrap();
                let whole = first == 1_000 || first == 0;
                assert!(!whole || own >= (count - 1) / u64::from(endpoints), "{own} of {count}");
                given += own;
            }
            assert!(given <= count, "{given} ids of {count} from {first:x}");
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len() as u64, given, "no id is given twice");
        }
    }
}

fn endpoint_of(endpoints: u32, number: u32) -> Endpoint {
    endpoint(7, |config| (config.endpoints, config.endpoint) = (endpoints, number))
}

#[test]
fn ids_come_from_the_range_that_was_given_and_end_with_it() {
    let mut client = endpoint(7, |_| ());
    let port = client.open_client_port().unwrap();
    client.set_ids(1_000, 2); // HOST-3
    let ids = [(); 2].map(|()| {
        let rpc = call(&mut client, port, 99, 100);
        client.rpc_id(rpc).unwrap()
    });
    assert_eq!((ids[1].wrapping_sub(ids[0]), client.ids_left()), (2, 0));
    let refused = client.send_request(NOW, port, shared(), 99, 100, CallOptions::default());
    assert_eq!(refused, Err(SendError::NoIds));
    client.set_ids(0, 2);
    let rpc = call(&mut client, port, 99, 100);
    assert!(client.rpc_id(rpc).is_some());
    assert_eq!(client.ids_left(), 0, "the count 0 is passed over");
}

#[test]
fn ports_chosen_elsewhere_are_opened_once() {
    let mut one = endpoint(7, |_| ());
    assert_eq!(one.open_port(40_000), Ok(()));
    assert_eq!(one.open_port(40_000), Err(PortError::InUse(40_000)));
    assert_eq!(one.open_port(0), Err(PortError::OutOfRange(0)));
    assert!(one.is_port_open(40_000));
    one.close_port(NOW, 40_000);
    one.handle_timeout(NOW);
    assert!(!one.is_port_open(40_000));
}

#[test]
fn grants_stay_within_the_budget_given_and_go_on_when_it_grows() {
    let mut server = endpoint(7, |_| ());
    let mut client = endpoint(9, |_| ());
    server.bind(99).unwrap();
    server.set_grant_budget(NOW, 45_000); // HOST-5
    let port = client.open_client_port().unwrap();
    call(&mut client, port, 99, 500_000);
    let mut sent = packets(&mut client, NOW);
    assert_eq!(sent.remove(0)[11], 0x19, "START_MSG, since the peer may be a kernel (DIALECT-4)");
    give(&mut server, NOW, peer(), &sent[..1]);
    let grants = |server: &mut Endpoint| {
        let packets = packets(server, NOW);
        packets.iter().filter(|bytes| matches!(body(bytes), Body::Grant(_))).count()
    };
    let unscheduled = server.granted_bytes();
    assert!(unscheduled > 35_000 && grants(&mut server) == 0, "5,000 bytes more are not worth a packet");
    assert!(server.grant_demand() > 190_000 && server.grant_demand() < 400_000);
    server.set_grant_budget(NOW, 100_000);
    assert!((100_001 - 1_424..=100_000).contains(&server.granted_bytes()), "but for less than a packet");
    assert_eq!(grants(&mut server), 1);
    server.set_grant_budget(NOW, 10_000);
    give(&mut server, NOW, peer(), &sent[1..]);
    assert_eq!(grants(&mut server), 0, "what was granted stays granted, and no more comes to it");
    server.check();
}

#[test]
fn who_follows_takes_cutoffs_over_and_leaves_what_it_saw_to_the_leader() {
    let quick = |config: &mut Config| (config.cutoff_interval_ns, config.cutoff_min_bytes) = (1, 1);
    let (mut follower, mut leader, mut client) =
        (endpoint(7, quick), endpoint(7, quick), endpoint(9, |_| ()));
    follower.bind(99).unwrap();
    follower.follow_cutoffs(true);
    let port = client.open_client_port().unwrap();
    for length in [100, 400, 9_000] {
        call(&mut client, port, 99, length);
    }
    give(&mut follower, NOW, peer(), &packets(&mut client, NOW));
    assert_eq!(follower.cutoffs().1, 1, "it computes none");
    let mut bytes = 0;
    follower.take_observed(|bucket, some| {
        bytes += some;
        leader.add_observed(bucket, some);
    });
    assert_eq!(bytes, 9_500);
    follower.take_observed(|_, _| panic!("taken twice"));
    give(&mut leader, NOW, peer(), &[]);
    let (levels, version) = leader.cutoffs();
    assert_eq!(version, 2);
    follower.set_cutoffs(levels, version); // HOST-4
    assert_eq!(follower.cutoffs(), (levels, 2));
    assert_ne!(levels, [0; PRIORITIES]);
}

#[test]
fn what_others_send_holds_our_packets_back() {
    let link = |config: &mut Config| config.link_mbps = Some(10_000);
    let mut client = endpoint(7, link);
    let port = client.open_client_port().unwrap();
    client.set_uplink_backlog(NOW, 1_000_000); // HOST-6
    call(&mut client, port, 99, 20_000);
    assert!(packets(&mut client, NOW).is_empty());
    assert_eq!(client.uplink_sent_ns(), 0);
    assert!(!packets(&mut client, NOW + 1_000_000).is_empty());
    assert!(client.uplink_sent_ns() > 1_000);
}

#[test]
fn a_request_that_may_have_run_in_a_process_that_is_gone_is_not_sent_again() {
    // A peer of this implementation, and a peer without an incarnation, like a kernel.
    for incarnation in [9, 0] {
        let (mut heir, mut client) = (endpoint(7, |_| ()), endpoint(incarnation, |_| ()));
        heir.bind(99).unwrap();
        let until = NOW + 1_000_000_000;
        heir.note_lost_owner(99, until); // HOST-10
        let port = client.open_client_port().unwrap();
        call(&mut client, port, 99, 100);
        packets(&mut client, NOW); // The earlier owner got it.
        let mut asked = Vec::new();
        while asked.is_empty() {
            let due = client.poll_timeout().unwrap();
            client.handle_timeout(due);
            asked = packets(&mut client, due);
        }
        give(&mut heir, NOW, peer(), &asked);
        let answer = packets(&mut heir, NOW);
        let Body::RpcUnknown(reason) = body(&answer[0]) else { panic!("{answer:?}") };
        give(&mut client, NOW, shared(), &answer);
        match incarnation {
            0 => assert_eq!(reason, UnknownReason::Unknown, "who reads no reason is told none"),
            _ => {
                assert_eq!(reason, UnknownReason::OwnerGone);
                assert!(matches!(
                    events(&mut client)[..],
                    [Event::Failed { error: RpcError::PeerRestarted, .. }]
                ));
                assert!(packets(&mut client, NOW).is_empty());
            }
        }
        give(&mut heir, until, peer(), &asked);
        assert_eq!(body(&packets(&mut heir, until)[0]), Body::RpcUnknown(UnknownReason::Unknown));
    }
}

#[test]
fn a_packet_sent_again_opens_no_request_that_may_have_run_in_a_process_that_is_gone() {
    let (mut heir, mut client) = (endpoint(7, |_| ()), endpoint(9, |_| ()));
    heir.bind(99).unwrap();
    heir.note_lost_owner(99, Time::NEVER); // HOST-10
    let port = client.open_client_port().unwrap();
    call(&mut client, port, 99, 100);
    let first = packets(&mut client, NOW);
    let mut again = first.clone();
    again[0][48] = 1; // retransmit
    give(&mut heir, NOW, peer(), &again);
    assert_eq!(body(&packets(&mut heir, NOW)[0]), Body::RpcUnknown(UnknownReason::OwnerGone));
    assert_eq!((heir.open_rpcs(), heir.stats().drop_owner_gone), (0, 1));
    give(&mut heir, NOW, peer(), &first);
    assert_eq!(heir.open_rpcs(), 1, "one that is new is taken");
    heir.note_lost_owner(99, Time::ZERO);
    call(&mut client, port, 99, 100);
    let mut again = packets(&mut client, NOW);
    again[0][48] = 1;
    give(&mut heir, NOW, peer(), &again);
    assert_eq!(heir.open_rpcs(), 2, "withdrawn");
}
