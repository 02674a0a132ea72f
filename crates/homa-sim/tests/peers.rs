//! Peers that restart, vanish, compute for a long time, or abort.

use super::common::{self, Answer, PORT, Peer, call, config, network, rpc_id, sent, settle};
use homa_proto::wire::{self, Body, Common, Data, Incarnation, PacketType, UnknownReason};
use homa_proto::{CallOptions, DoneReason, MS, RpcError, SEC, Time, US, Unreachable};
use homa_sim::{Fate, FaultProfile, Network, NetworkConfig, PayloadMode, Reply};

fn failed(network: &Network<Peer>, host: usize) -> Vec<(u64, RpcError)> {
    network.host(host).app().failed.iter().map(|&(_, cookie, error)| (cookie, error)).collect()
}

fn silent_network(hosts: usize) -> Network<Peer> {
    Network::new(config(1, hosts), |_| Peer::new(Answer::Fixed(Reply::Never)))
}

#[test]
fn a_server_that_restarts_ends_the_open_rpcs_at_once() {
    let mut network = silent_network(2);
    for cookie in 0..3 {
        call(&mut network, 0, 1, cookie, 5_000);
    }
    network.run_for(MS);
    assert_eq!(network.host(1).app().requests.len(), 3);
    network.crash(1);
    network.run_for(MS);
    network.restart(1);
    network.host_mut(0).app_mut().answer = Answer::Echo;
    network.host_mut(1).app_mut().answer = Answer::Echo;
    // The first packet of the new incarnation shows the restart. Here it goes to a client at the restarted
    // host, long before any RESEND.
    network.act(1, |_, host| host.call(0, PORT, 100, CallOptions::default())).unwrap().unwrap();
    network.run_for(MS);
    call(&mut network, 0, 1, 3, 100);
    network.run_for(100 * MS);
    let mut ended = failed(&network, 0);
    ended.sort_unstable_by_key(|end| end.0);
    assert_eq!(ended, [0, 1, 2].map(|cookie| (cookie, RpcError::PeerRestarted)));
    assert!(network.host(0).app().failed.iter().all(|failed| failed.0 < Time::from_ns(4 * MS)));
    assert_eq!(network.host(0).app().cookies(), [3]);
    settle(&mut network, 20 * SEC);
}

#[test]
fn a_server_that_restarts_is_found_out_by_the_client_alone() {
    let mut network = silent_network(2);
    call(&mut network, 0, 1, 0, 5_000);
    network.run_for(MS);
    network.crash(1);
    network.restart(1);
    network.run_for(50 * MS);
    assert_eq!(failed(&network, 0), [(0, RpcError::PeerRestarted)]);
    settle(&mut network, 20 * SEC);
}

#[test]
fn a_client_that_restarts_frees_its_requests_and_is_served_again() {
    let mut network = silent_network(2);
    for cookie in 0..3 {
        call(&mut network, 0, 1, cookie, 5_000);
    }
    network.run_for(MS);
    network.crash(0);
    network.restart(0);
    network.host_mut(1).app_mut().answer = Answer::Echo;
    call(&mut network, 0, 1, 10, 5_000);
    network.run_for(MS);
    assert_eq!(network.host(0).app().cookies(), [10]);
    let restarted =
        network.host(1).app().done.iter().filter(|done| done.2 == DoneReason::ClientRestarted).count();
    assert_eq!(restarted, 3);
    settle(&mut network, 20 * SEC);
}

#[test]
fn a_packet_of_an_earlier_life_changes_nothing() {
    let mut network = silent_network(2);
    // The network delays a request of the first incarnation by 50 ms. The second incarnation sends packets
    // before the request arrives.
    let delayed =
        FaultProfile { reordering: 1.0, reordering_delay_ns: (50 * MS, 50 * MS), ..FaultProfile::default() };
    network.set_faults(delayed);
    call(&mut network, 0, 1, 0, 100);
    network.run_for(10 * US);
    network.set_faults(FaultProfile::default());
    network.crash(0);
    network.restart(0);
    call(&mut network, 0, 1, 1, 200);
    network.run_for(100 * MS);
    let lengths: Vec<u32> = network.host(1).app().requests.iter().map(|request| request.3).collect();
    assert_eq!(lengths, [200]);
    assert_eq!(network.host(1).endpoint().unwrap().stats().drop_stale_incarnation, 1);
}

#[test]
fn a_client_that_vanishes_leaves_nothing_at_the_server() {
    let mut network = silent_network(2);
    call(&mut network, 0, 1, 0, 5_000);
    call(&mut network, 0, 1, 1, 500_000);
    network.run_for(100 * US);
    network.crash(0);
    let before = network.stats().sent;
    network.run_for(30 * SEC);
    assert!(network.host(1).is_idle(), "{:?}", network.host(1).leftovers());
    let reasons: Vec<DoneReason> = network.host(1).app().done.iter().map(|done| done.2).collect();
    assert_eq!(reasons, [DoneReason::ClientSilent; 2]);
    let packets = network.stats().sent - before;
    assert!(packets <= 2 * 20, "{packets} packets for two RPCs of a vanished client");
}

#[test]
fn a_client_that_vanishes_before_its_acknowledgement_costs_at_most_twenty_packets() {
    let mut network = network(config(1, 2));
    call(&mut network, 0, 1, 0, 5_000);
    network.run_until_done(Time::from_ns(SEC), |network| !network.host(0).app().responses.is_empty());
    network.crash(0);
    let before = network.stats().sent;
    network.run_for(30 * SEC);
    assert!(network.host(1).is_idle(), "{:?}", network.host(1).leftovers());
    let packets = network.stats().sent - before;
    assert!((1..=20).contains(&packets), "{packets} packets");
}

#[test]
fn a_lost_server_costs_at_most_twenty_packets_and_one_error() {
    for length in [100, 30_000] {
        let mut network = network(config(1, 2));
        network.crash(1);
        call(&mut network, 0, 1, 0, length);
        network.run_for(1);
        let first = length.div_ceil(1_424) as u64;
        settle(&mut network, 30 * SEC);
        assert_eq!(failed(&network, 0), [(0, RpcError::Timeout)]);
        let packets = network.stats().sent - first;
        assert!((2..=20).contains(&packets), "{packets} packets beside the request's {first}");
    }
}

#[test]
fn a_thousand_rpcs_to_a_lost_server_ask_at_a_bounded_rate() {
    let mut network = network(config(1, 3));
    network.crash(1);
    for cookie in 0..1_000 {
        call(&mut network, 0, 1, cookie, 100);
    }
    call(&mut network, 0, 2, 5_000, 100);
    settle(&mut network, 600 * SEC);
    assert_eq!(network.host(0).app().failed.len(), 1_000);
    assert_eq!(network.host(0).app().cookies(), [5_000]);
    let resends = sent(&network, PacketType::Resend);
    assert!(resends.len() <= 20_000, "{}", resends.len());
    let spacing_ns = homa_proto::Config::default().resend_spacing_ns;
    // After a pause, a burst of 16 may be sent at once.
    for window in resends.windows(100) {
        let span_ns = window[99].0.at.since(window[0].0.at);
        assert!(span_ns >= (99 - 17) * spacing_ns, "a hundred RESENDs within {span_ns} ns");
    }
}

#[test]
fn a_server_that_computes_for_long_is_busy_and_its_client_waits() {
    let mut network = network(config(1, 2));
    network.host_mut(1).app_mut().answer = Answer::Fixed(Reply::After { delay_ns: 10 * SEC, length: 20_000 });
    call(&mut network, 0, 1, 0, 20_000);
    settle(&mut network, 30 * SEC);
    assert_eq!(network.host(0).app().cookies(), [0]);
    let (resends, busys) = (sent(&network, PacketType::Resend).len(), sent(&network, PacketType::Busy).len());
    assert!(busys > 10 && busys == resends, "{busys} BUSY for {resends} RESENDs");
}

#[test]
fn a_lost_busy_client_and_server_find_each_other_again_after_a_partition() {
    let mut network = network(config(1, 2));
    network.host_mut(1).app_mut().answer = Answer::Fixed(Reply::After { delay_ns: 300 * MS, length: 20_000 });
    call(&mut network, 0, 1, 0, 20_000);
    network.run_for(MS);
    network.set_blocked(1, 0, true);
    network.run_for(200 * MS);
    network.set_blocked(1, 0, false);
    settle(&mut network, 30 * SEC);
    assert_eq!(network.host(0).app().cookies(), [0]);
    assert_eq!(network.host(1).app().requests.len(), 1);
}

#[test]
fn a_response_that_waits_long_for_grants_is_not_given_up() {
    let mut config = NetworkConfig::new(1, 3);
    config.payload = PayloadMode::LengthOnly;
    config.link.rate_bps = 1_000_000_000;
    config.protocol.link_mbps = Some(1_000);
    config.protocol.max_overcommit = 1;
    config.protocol.grant_fifo_fraction = 0;
    config.protocol.max_message = 2_000_000;
    let mut network = network(config);
    // Shorter responses of another server take all grants for two seconds. Each takes 7.8 ms of link time.
    network.host_mut(2).app_mut().answer = Answer::Fixed(Reply::Now(900_000));
    network.host_mut(1).app_mut().answer = Answer::Fixed(Reply::Now(2_000_000));
    for cookie in 0..300 {
        call(&mut network, 0, 2, cookie, 100);
        if cookie > 10 {
            network.run_for(7 * MS);
        }
        if cookie == 10 {
            network.run_for(MS);
            call(&mut network, 0, 1, 1_000, 30_000);
        }
    }
    assert!(!network.host(0).app().cookies().contains(&1_000), "the grants were not taken for long enough");
    settle(&mut network, 20 * SEC);
    assert_eq!(failed(&network, 0), []);
    assert_eq!(network.host(0).app().responses.len(), 301);
}

#[test]
fn an_abort_frees_both_sides() {
    for (length, after_ns) in
        [(100, 0), (100, 50 * US), (1_000_000, 5 * US), (1_000_000, 100 * US), (1_000_000, 50 * MS)]
    {
        let mut network = silent_network(2);
        let rpc = call(&mut network, 0, 1, 4, length);
        network.run_for(after_ns);
        network.act(0, |_, host| host.abort(rpc));
        network.run_for(MS);
        assert_eq!(failed(&network, 0), [(4, RpcError::Aborted)], "{length} B after {after_ns} ns");
        assert!(network.host(0).is_idle(), "{:?}", network.host(0).leftovers());
        network.run_for(100 * MS);
        assert!(
            network.host(1).is_idle(),
            "{length} B after {after_ns} ns: {:?}",
            network.host(1).leftovers()
        );
        settle(&mut network, 10 * SEC);
    }
}

#[test]
fn an_abort_in_the_middle_of_the_response_frees_both_sides() {
    let mut network = network(config(1, 2));
    network.host_mut(1).app_mut().answer = Answer::Fixed(Reply::Now(1_000_000));
    let rpc = call(&mut network, 0, 1, 4, 100);
    network.run_for(100 * US);
    assert!(network.host(0).stored_bytes() > 0);
    network.act(0, |_, host| host.abort(rpc));
    network.run_for(100 * MS);
    assert!(network.is_idle(), "{:?}", network.host(1).leftovers());
}

#[test]
fn a_request_that_the_server_gives_up_ends_in_an_error() {
    let mut network = silent_network(2);
    call(&mut network, 0, 1, 4, 100);
    network.run_for(MS);
    let rpc = network.host(1).app().requests[0].1;
    network.act(1, |_, host| host.abort(rpc));
    settle(&mut network, 10 * SEC);
    assert_eq!(failed(&network, 0), [(4, RpcError::ResponseLost)]);
    assert_eq!(network.host(1).app().done.first().map(|done| done.2), Some(DoneReason::Aborted));
}

#[test]
fn a_port_without_a_server_and_a_message_too_large_are_told() {
    let mut config = config(1, 2);
    config.protocol.max_message = 2_000_000;
    let mut network = network(config);
    let call_port = |_: &mut Peer, host: &mut homa_sim::HostCtx<'_>| {
        host.call(1, PORT + 1, 100, CallOptions { cookie: 1, ..CallOptions::default() })
    };
    network.act(0, call_port).unwrap().unwrap();
    network.run_for(MS);
    assert_eq!(failed(&network, 0), [(1, RpcError::NoSuchPort)]);
    settle(&mut network, SEC);
}

#[test]
fn an_icmp_report_ends_rpcs_and_forgets_no_finished_request() {
    let mut network = network(config(1, 2));
    let every_packet_again_after_a_second = FaultProfile {
        duplication: 1.0,
        reordering: 0.5,
        reordering_delay_ns: (SEC, SEC),
        ..FaultProfile::default()
    };
    network.set_faults(every_packet_again_after_a_second);
    for cookie in 0..40 {
        call(&mut network, 0, 1, cookie, 100);
    }
    network.run_for(100 * MS);
    network.set_faults(FaultProfile::default());
    let ran = network.host(1).app().requests.len();
    assert!(ran > 0);
    // The client's host once reports that its port is closed, or an attacker forges such a report. Then the
    // duplicates arrive.
    network.act(1, |_, host| {
        let now = host.now();
        host.endpoint().peer_unreachable(now, homa_sim::host_address(0), Unreachable::Peer { rpc_id: None });
    });
    settle(&mut network, 60 * SEC);
    assert!(network.host(1).endpoint().unwrap().stats().drop_finished > 0);
}

fn report(network: &mut Network<Peer>, host: usize, about: usize, report: Unreachable) {
    network.act(host, |_, host| {
        let now = host.now();
        host.endpoint().peer_unreachable(now, homa_sim::host_address(about), report);
    });
}

/// Starts RPCs from the first host to the second, reports the second host as unreachable in this way, and
/// returns the RPCs that failed.
fn failed_after(config: NetworkConfig, told: fn(Option<u64>) -> Unreachable) -> Vec<(u64, RpcError)> {
    let mut network = network(config);
    network.run_for(MS);
    let calls: Vec<_> = (0..20).map(|cookie| call(&mut network, 0, 1, cookie, 100)).collect();
    let quoted = network.host(0).endpoint().unwrap().rpc_id(calls[7]);
    let other = |_: &mut Peer, host: &mut homa_sim::HostCtx<'_>| {
        host.call(1, PORT + 1, 100, CallOptions { cookie: 100, ..CallOptions::default() })
    };
    network.act(0, other).unwrap().unwrap();
    report(&mut network, 0, 1, told(quoted));
    let after = |_: &mut Peer, host: &mut homa_sim::HostCtx<'_>| {
        host.call(1, PORT, 100, CallOptions { cookie: 200, ..CallOptions::default() })
    };
    network.act(0, after).unwrap().unwrap();
    settle(&mut network, 60 * SEC);
    let of_others = |cookie| matches!(cookie, 100 | 200);
    let mut failed = failed(&network, 0);
    failed.retain(|&(cookie, error)| !of_others(cookie) || error != RpcError::NoSuchPort || cookie == 200);
    failed
}

#[test]
fn a_refused_port_ends_the_rpcs_to_it_that_were_open_and_no_others() {
    // PEER-4, with RPCs ended in batches as in ABORT-4.
    for reap_limit in [1, 7, 64] {
        let mut config = config(1, 2);
        config.protocol.reap_limit = reap_limit;
        let failed = failed_after(config, |rpc_id| Unreachable::Port { port: PORT, rpc_id });
        let all: Vec<_> = (0..20).map(|cookie| (cookie, RpcError::NoSuchPort)).collect();
        assert_eq!(failed, all, "reap_limit {reap_limit}");
    }
}

#[test]
fn a_refused_protocol_ends_all_rpcs_to_the_host() {
    let failed = failed_after(config(1, 2), |rpc_id| Unreachable::Protocol { rpc_id });
    let all: Vec<_> = (0..20).chain([100]).map(|cookie| (cookie, RpcError::ProtocolUnreachable)).collect();
    assert_eq!(failed, all);
}

#[test]
fn a_refused_client_port_frees_the_one_request_that_the_report_names() {
    let mut network = Network::new(config(1, 2), |_| Peer::new(Answer::Fixed(Reply::Never)));
    for cookie in 0..2 {
        call(&mut network, 0, 1, cookie, 100);
    }
    network.run_for(MS);
    let first = network.host(1).app().requests[0].1;
    network.act(1, |_, host| {
        let now = host.now();
        let rpc_id = host.endpoint().rpc_id(first);
        for (port, rpc_id) in [(PORT, rpc_id), (32_768, None), (32_768, rpc_id)] {
            let report = Unreachable::Port { port, rpc_id };
            host.endpoint().peer_unreachable(now, homa_sim::host_address(0), report);
        }
    });
    network.run_for(MS);
    let done: Vec<_> = network.host(1).app().done.iter().map(|done| (done.1, done.2)).collect();
    assert_eq!(done, [(first, DoneReason::ClientSilent)]);
}

#[test]
fn a_delayed_duplicate_of_a_finished_request_does_not_run_again() {
    let mut network = network(config(1, 2));
    // Every packet arrives twice, the second copy up to five seconds later.
    network.set_faults(FaultProfile {
        duplication: 1.0,
        reordering: 0.5,
        reordering_delay_ns: (10 * MS, 5 * SEC),
        ..FaultProfile::default()
    });
    for cookie in 0..50 {
        call(&mut network, 0, 1, cookie, 100);
        call(&mut network, 0, 1, 100 + cookie, 5_000);
        network.run_for(MS);
    }
    settle(&mut network, 60 * SEC);
    assert_eq!(network.host(0).app().responses.len(), 100);
    assert_eq!(network.host(1).app().requests.len(), 100);
    assert!(network.host(1).endpoint().unwrap().stats().drop_finished > 0);
}

/// Makes a packet of a kernel client, which has no incarnation.
fn kernel_packet(id: u64, body: Body, payload: &[u8]) -> Vec<u8> {
    let common = Common {
        source_port: 32_768,
        dest_port: PORT,
        sender_id: id,
        incarnation: Incarnation::NONE,
        bundle_endpoints: 0,
    };
    let mut bytes = wire::encode(&common, &body).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn kernel_request(id: u64, length: u32) -> Vec<u8> {
    let data = Data {
        message_length: length,
        incoming: length,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        offset: 0,
        response_limit: None,
    };
    kernel_packet(id, Body::Data(data), &vec![0; length as usize])
}

#[test]
fn a_kernel_client_that_reboots_and_begins_at_id_two_again_is_served() {
    let mut config = config(1, 2);
    config.payload = PayloadMode::LengthOnly;
    let lifetime_ns = config.protocol.max_packet_lifetime_ns;
    let mut network = network(config);
    // Host 0 does not run our endpoint: its packets are made here.
    network.crash(0);
    let ack = || kernel_packet(2, Body::Ack(wire::AckList::new()), &[]);
    network.inject(0, 1, 7, kernel_request(2, 100));
    network.run_for(MS);
    network.inject(0, 1, 7, ack());
    network.run_for(MS);
    assert_eq!(network.host(1).app().requests.len(), 1);
    // The request may be a delayed duplicate, or come from the client after a fast reboot. It is not
    // executed.
    network.inject(0, 1, 7, kernel_request(2, 100));
    network.run_for(MS);
    assert_eq!(network.host(1).app().requests.len(), 1);
    network.run_for(2 * lifetime_ns);
    network.inject(0, 1, 7, kernel_request(2, 150));
    network.run_for(MS);
    let lengths: Vec<u32> = network.host(1).app().requests.iter().map(|request| request.3).collect();
    assert_eq!(lengths, [100, 150]);
    network.inject(0, 1, 7, ack());
    network.run_for(MS);
    assert!(network.host(1).is_idle());
}

#[test]
fn a_kernel_client_that_repeats_a_request_in_hand_is_served_once() {
    let mut config = config(1, 2);
    config.payload = PayloadMode::LengthOnly;
    let mut network = network(config);
    network.crash(0);
    for _ in 0..3 {
        network.inject(0, 1, 7, kernel_request(2, 100));
        network.run_for(MS);
    }
    assert_eq!(network.host(1).app().requests.len(), 1);
    // The client's RESENDs are answered with the response.
    let resend = Body::Resend(wire::Resend { offset: 0, length: None, priority: 6 });
    network.inject(0, 1, 7, kernel_packet(2, resend, &[]));
    network.run_for(MS);
    let answers = network.captured().iter().filter(|seen| {
        seen.from == 1
            && seen.fate == Fate::Sent
            && seen.packet.is_some_and(|packet| common::data_end(&packet).is_some())
    });
    assert_eq!(answers.count(), 2);
}

#[test]
fn a_new_life_may_use_the_id_of_a_request_of_the_old_one_at_once() {
    let mut config = config(1, 2);
    config.payload = PayloadMode::LengthOnly;
    let mut network = Network::new(config, |_| Peer::new(Answer::Fixed(Reply::Never)));
    network.crash(0);
    // Our endpoints do not do this, since IDs begin at a random number. An attacker may.
    let host_zero_says = |network: &mut Network<Peer>, life: u64| {
        let mut request = kernel_request(2, 100);
        let incarnation = Incarnation::new(life);
        let common =
            Common { source_port: 32_768, dest_port: PORT, sender_id: 2, incarnation, bundle_endpoints: 0 };
        let Body::Data(data) = wire::decode(&request, request.len()).unwrap().body else { unreachable!() };
        let header = wire::encode(&common, &Body::Data(data));
        request[..header.len()].copy_from_slice(&header);
        network.inject(0, 1, 7, request);
        network.run_for(MS);
    };
    host_zero_says(&mut network, 5);
    host_zero_says(&mut network, 6);
    assert_eq!(network.host(1).app().requests.len(), 1, "the new life is asked first");
    // PEER-16
    let (_, asked) = *sent(&network, PacketType::Resend).last().unwrap();
    let Common { source_port, dest_port, sender_id, .. } = asked.common;
    let common = Common {
        source_port: dest_port,
        dest_port: source_port,
        sender_id: sender_id ^ 1,
        incarnation: Incarnation::new(6),
        bundle_endpoints: 0,
    };
    let answer = wire::encode(&common, &Body::RpcUnknown(UnknownReason::Unknown));
    network.inject(0, 1, 7, answer.to_vec());
    network.run_for(MS);
    host_zero_says(&mut network, 6);
    assert_eq!(network.host(1).app().requests.len(), 2);
    let reasons: Vec<DoneReason> = network.host(1).app().done.iter().map(|done| done.2).collect();
    assert_eq!(reasons, [DoneReason::ClientRestarted]);
    network.run_for(30 * SEC);
    assert!(network.host(1).is_idle());
}

#[test]
fn a_late_rpc_unknown_does_not_end_an_rpc_whose_response_arrives() {
    let mut network = network(config(1, 2));
    network.host_mut(1).app_mut().answer = Answer::Fixed(Reply::Now(500_000));
    call(&mut network, 0, 1, 4, 100);
    network.run_for(50 * US);
    assert!(network.host(0).stored_bytes() > 0, "the response has begun");
    // The server's answer to a RESEND that arrived before the request, which the network has delayed until
    // now.
    let request = sent(&network, PacketType::Data)[0].1.common;
    let common = Common {
        source_port: request.dest_port,
        dest_port: request.source_port,
        sender_id: request.sender_id | 1,
        incarnation: request.incarnation,
        bundle_endpoints: 0,
    };
    let unknown = wire::encode(&common, &Body::RpcUnknown(UnknownReason::Unknown));
    network.inject(1, 0, 7, unknown.to_vec());
    settle(&mut network, SEC);
    assert_eq!(network.host(0).app().cookies(), [4]);
}

#[test]
fn a_resend_for_an_unknown_rpc_is_answered_and_makes_nothing() {
    let mut network = network(config(1, 2));
    network.crash(0);
    let resend = Body::Resend(wire::Resend { offset: 0, length: None, priority: 6 });
    network.inject(0, 1, 7, kernel_packet(44, resend, &[]));
    network.run_for(MS);
    let unknown = sent(&network, PacketType::RpcUnknown);
    assert_eq!(unknown.len(), 1);
    assert_eq!(rpc_id(&unknown[0].1), 44);
    assert_eq!(unknown[0].1.body, Body::RpcUnknown(UnknownReason::Unknown));
    assert!(network.host(1).is_idle());
}
