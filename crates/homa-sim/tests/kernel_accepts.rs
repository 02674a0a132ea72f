//! Checks that every packet of a simulated network meets the kernel's requirements, which `homa-proto`'s test
//! of the same name explains.
//!
//! A capture here contains decoded packets, which are encoded again for the checks. The other test checks the
//! original bytes.

use super::validator::Validator;
use homa_proto::wire;
use homa_sim::{Fate, FaultProfile, Load, NetworkConfig, Simulation, SimulationConfig, host_address};
use homa_workload::Workload;

const HOSTS: usize = 4;

/// Runs a load in which every host is both client and server. Returns the number of checked packets by type.
fn check_all(seed: u64, incarnation: u64, faults: FaultProfile, workload: &Workload, rpcs: u64) -> [u64; 10] {
    let mut network = NetworkConfig { faults, capture: true, ..NetworkConfig::new(seed, HOSTS) };
    network.protocol.incarnation = incarnation;
    let load = Load { rpcs, clients: 0..HOSTS, servers: 0..HOSTS, ..Load::closed(workload.clone(), 16) };
    let protocol = network.protocol.clone();
    let mut simulation = Simulation::new(SimulationConfig::new(network, load));
    let report = simulation.run();
    assert_eq!(report.broken_promises(), Vec::<String>::new(), "seed {seed}: {report}");

    let mut validators: Vec<Validator> = (0..HOSTS).map(|_| Validator::new(&protocol)).collect();
    for captured in simulation.network().captured() {
        let packet = captured.packet.expect("nothing corrupts packets here");
        let header = wire::encode(&packet.common, &packet.body);
        match captured.fate {
            Fate::Sent => {
                let (to, priority) = (host_address(captured.to), captured.priority);
                let checked = validators[captured.from].sent(to, priority, &header, packet.payload_len);
                if let Err(reason) = checked {
                    panic!(
                        "seed {seed}, {:?}, host {} to {}: {reason}: {packet}",
                        captured.at, captured.from, captured.to
                    );
                }
            }
            Fate::Delivered => validators[captured.to].received(host_address(captured.from), &header),
            Fate::Lost | Fate::Overflow | Fate::HostDown => {}
        }
    }
    let mut sum = [0; 10];
    for validator in validators {
        sum.iter_mut().zip(validator.checked).for_each(|(sum, count)| *sum += count);
    }
    sum
}

#[test]
fn every_packet_under_a_load_with_faults() {
    let w3 = Workload::named("w3").unwrap().truncated(1_000_000).unwrap();
    let mut sum = [0; 10];
    for seed in 0..6 {
        let faults = FaultProfile::uniform([0.0, 0.02, 0.1][seed as usize % 3]);
        // In half of the runs, the hosts treat each other as kernels.
        let checked = check_all(seed, seed / 3, faults, &w3, 600);
        sum.iter_mut().zip(checked).for_each(|(sum, count)| *sum += count);
    }
    println!("packets checked, by type: {sum:?}");
    // FREEZE is not sent, and START_MSG goes to no peer over UDP (DIALECT-4).
    let unchecked: Vec<usize> = (0..sum.len()).filter(|&kind| sum[kind] == 0).collect();
    assert_eq!(unchecked, [6, 9], "{sum:?}");
}

#[test]
fn every_packet_of_long_messages_that_wait_for_grants() {
    let long = Workload::fixed(300_000).unwrap();
    for incarnation in [0, 1] {
        let checked = check_all(7, incarnation, FaultProfile::uniform(0.01), &long, 100);
        assert!(checked[1] > 0, "no grants: {checked:?}");
    }
}
