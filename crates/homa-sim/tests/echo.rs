//! RPCs over a network without faults.

use super::common::{PORT, call, config, network, sent, settle};
use homa_proto::wire::PacketType;
use homa_proto::{CallOptions, MS, SEC, SendError};
use homa_sim::{Load, NetworkConfig, PayloadMode, Simulation, SimulationConfig};
use homa_workload::Workload;

#[test]
fn messages_of_every_interesting_length_come_back_right_to_the_byte() {
    // Lengths close to one packet (1424 B of payload), close to the unscheduled limit (40,000 B), and far
    // above.
    let lengths = [
        1, 2, 7, 8, 9, 100, 1_423, 1_424, 1_425, 2_848, 2_849, 39_999, 40_000, 40_001, 41_425, 130_000,
        999_999, 1_000_000,
    ];
    for (cookie, &length) in lengths.iter().enumerate() {
        let mut network = network(config(1, 2));
        call(&mut network, 0, 1, cookie as u64, length);
        settle(&mut network, SEC);
        let client = network.host(0).app();
        assert_eq!(client.responses.len(), 1, "{length}");
        assert_eq!((client.responses[0].1, client.responses[0].2), (cookie as u64, length));
        assert_eq!(network.host(1).app().requests.len(), 1);
        assert_eq!(sent(&network, PacketType::Resend).len(), 0, "{length}: nothing was lost");
        assert_eq!(network.stats().overflowed, 0);
    }
}

#[test]
fn an_unloaded_short_rpc_takes_two_crossings_and_no_more() {
    let mut network = network(config(1, 2));
    // The first RPC between two hosts also exchanges their cutoffs.
    call(&mut network, 0, 1, 6, 100);
    network.run_for(MS);
    call(&mut network, 0, 1, 7, 100);
    settle(&mut network, SEC);
    // 222 bytes at 25 Gbit/s take 72 ns, then 500 ns on the wire and 500 ns in the host; twice.
    assert_eq!(network.host(0).app().answered_at(7).as_ns(), MS + 2 * (72 + 500 + 500));
}

#[test]
fn all_hosts_of_a_switch_talk_to_all_at_once() {
    let mut network = network(config(1, 8));
    for from in 0..8 {
        for to in (0..8).filter(|&to| to != from) {
            call(&mut network, from, to, (from * 8 + to) as u64, 50_000);
        }
    }
    settle(&mut network, SEC);
    for host in network.hosts() {
        assert_eq!((host.app().responses.len(), host.app().requests.len()), (7, 7));
        assert_eq!(host.counts().lengths_wrong, 0);
    }
}

#[test]
fn ten_thousand_rpcs_of_w4_in_a_closed_loop_are_all_answered() {
    let mut network = NetworkConfig::new(3, 4);
    network.check_every = 1_000;
    network.protocol.max_message = 1 << 24;
    let workload = Workload::named("w4").unwrap().truncated(100_000).unwrap();
    let load = Load { rpcs: 10_000, clients: 0..4, servers: 0..4, ..Load::closed(workload, 16) };
    let report = Simulation::new(SimulationConfig::new(network, load)).run();
    assert_eq!(report.problems(), Vec::<String>::new(), "{report}");
    assert!(report.idle_at.since(report.load_ended) < SEC, "acknowledgements take {report}");
}

#[test]
fn payload_as_a_length_changes_nothing_but_the_payload() {
    let run = |payload| {
        let network = NetworkConfig { payload, ..NetworkConfig::new(9, 3) };
        let workload = Workload::named("w3").unwrap().truncated(200_000).unwrap();
        let load = Load { rpcs: 2_000, clients: 0..3, servers: 0..3, ..Load::closed(workload, 8) };
        Simulation::new(SimulationConfig::new(network, load)).run()
    };
    let (real, length_only) = (run(PayloadMode::Real), run(PayloadMode::LengthOnly));
    assert_eq!(length_only.problems(), Vec::<String>::new(), "{length_only}");
    assert_eq!(real, length_only);
}

#[test]
fn what_cannot_be_sent_is_refused_and_leaves_nothing() {
    let mut network = network(config(1, 2));
    let mut try_call = |length| {
        network.act(0, |_, host| host.call(1, PORT, length, CallOptions::default())).expect("the host is up")
    };
    assert_eq!(try_call(0), Err(SendError::EmptyMessage));
    assert_eq!(try_call(1_000_001), Err(SendError::MessageTooLarge { length: 1_000_001, limit: 1_000_000 }));
    network.run_for(10 * MS);
    assert_eq!(network.stats().sent, 0);
    settle(&mut network, SEC);
}

#[test]
fn a_limit_that_is_reached_is_named_and_gives_way_when_rpcs_end() {
    let mut config = config(1, 2);
    config.protocol.max_rpcs = 4;
    config.protocol.max_outgoing_bytes = 250_000;
    let mut network = network(config);
    for cookie in 0..2 {
        call(&mut network, 0, 1, cookie, 100_000);
    }
    let bytes = network.act(0, |_, host| host.call(1, PORT, 100_000, CallOptions::default()));
    assert_eq!(bytes, Some(Err(SendError::LimitReached { name: "max_outgoing_bytes" })));
    for cookie in 2..4 {
        call(&mut network, 0, 1, cookie, 100);
    }
    let rpcs = network.act(0, |_, host| host.call(1, PORT, 100, CallOptions::default()));
    assert_eq!(rpcs, Some(Err(SendError::LimitReached { name: "max_rpcs" })));
    settle(&mut network, 10 * SEC);
    assert_eq!(network.host(0).app().responses.len(), 4);
    call(&mut network, 0, 1, 4, 100_000);
    settle(&mut network, 10 * SEC);
    assert_eq!(network.host(0).app().responses.len(), 5);
}
