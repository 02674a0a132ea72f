//! A short version of `examples/faults.rs`: loss, duplication and reordering, for several seeds.

use super::common::{Peer, call, config, network, settle};
use homa_proto::{MS, SEC};
use homa_sim::{Drain, FaultProfile, Load, Network, NetworkConfig, Report, Simulation, SimulationConfig};
use homa_workload::Workload;

fn run(seed: u64, faults: FaultProfile, workload: &Workload, rpcs: u64, check_every: u64) -> Report {
    let mut network = NetworkConfig { faults, check_every, ..NetworkConfig::new(seed, 4) };
    network.protocol.max_message = 1 << 24;
    let load = Load { rpcs, clients: 0..2, servers: 2..4, ..Load::closed(workload.clone(), 32) };
    Simulation::new(SimulationConfig::new(network, load)).run()
}

fn assert_perfect(report: &Report) {
    assert_eq!(report.problems(), Vec::<String>::new(), "{report}");
    assert!(report.faults.lost > 0, "the faults did nothing: {report}");
}

#[test]
fn w3_untruncated_at_five_percent_of_everything() {
    let w3 = Workload::named("w3").unwrap();
    for seed in 0..3 {
        assert_perfect(&run(seed, FaultProfile::uniform(0.05), &w3, 2_000, 100));
    }
}

#[test]
fn short_messages_at_twenty_percent_of_everything_with_every_step_checked() {
    let short = Workload::named("w1").unwrap().truncated(10_000).unwrap();
    for seed in 0..3 {
        assert_perfect(&run(seed, FaultProfile::uniform(0.2), &short, 500, 1));
    }
}

#[test]
fn packets_delayed_by_seconds_execute_nothing_twice() {
    let mut faults = FaultProfile::uniform(0.05);
    faults.reordering_delay_ns = (MS, 3 * SEC);
    let short = Workload::fixed(2_000).unwrap();
    for seed in 0..3 {
        assert_perfect(&run(seed, faults.clone(), &short, 500, 1));
    }
}

#[test]
fn corrupted_packets_break_nothing_and_leave_nothing() {
    let faults = FaultProfile { corruption: 0.05, ..FaultProfile::uniform(0.02) };
    for seed in 0..5 {
        let report = run(seed, faults.clone(), &Workload::named("w2").unwrap(), 1_000, 1);
        // Payload is not checked, and a packet may have turned into a packet of another RPC, but all RPCs
        // must end.
        assert!(report.idle, "{report} {:?}", report.leftovers);
        assert_eq!((report.unfinished, report.stored_rpcs, report.unexpected), (0, 0, 0), "{report}");
        assert!(report.faults.corrupted > 0);
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let w3 = Workload::named("w3").unwrap();
    let runs = [5, 5, 6].map(|seed| run(seed, FaultProfile::uniform(0.05), &w3, 300, 0));
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0].network, runs[2].network);
}

#[test]
fn a_destination_whose_driver_queue_is_full_keeps_no_other_waiting() {
    let mut network = network(config(1, 3));
    network.set_driver_queue(0, 1, Some(Drain::Stopped));
    for cookie in 0..40 {
        call(&mut network, 0, 1 + (cookie % 2) as usize, cookie, 20_000);
    }
    network.run_for(50 * MS);
    let odd: Vec<u64> = (0..40).filter(|cookie| cookie % 2 == 1).collect();
    let answered = |network: &Network<Peer>| {
        let mut cookies = network.host(0).app().cookies();
        cookies.sort_unstable();
        cookies
    };
    assert_eq!(answered(&network), odd);
    network.set_driver_queue(0, 1, Some(Drain::Slow { packet_ns: 10_000 }));
    network.run_for(500 * MS);
    assert_eq!(answered(&network), (0..40).collect::<Vec<u64>>());
    network.set_driver_queue(0, 1, None);
    settle(&mut network, 20 * SEC);
}
