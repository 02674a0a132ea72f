//! Short messages have a short tail under load.

use homa_proto::{MS, Time};
use homa_sim::{Load, NetworkConfig, PayloadMode, Simulation, SimulationConfig};
use homa_workload::Workload;

const HOSTS: usize = 10;

/// Returns the lengths and times of all RPCs, shortest first, under an echo load of 80 % of each link,
/// headers included.
fn loaded_rtts_ns(workload: &Workload) -> Vec<(u32, u64)> {
    let mut network = NetworkConfig::new(5, HOSTS);
    network.payload = PayloadMode::LengthOnly;
    network.protocol.max_message = workload.max_bytes();
    // Each link carries the requests of one host and the responses to another. A message is a single packet
    // or consists of full packets.
    let mean_bytes = workload.mean_bytes();
    let header_bytes = 122.0 * (mean_bytes / 1_424.0).max(1.0);
    let gbps = 0.8 * 25.0 / 2.0 * mean_bytes / (mean_bytes + header_bytes);
    let load = Load {
        clients: 0..HOSTS,
        servers: 0..HOSTS,
        record_rtts: true,
        ..Load::open(workload.clone(), gbps, Time::from_ns(10 * MS))
    };
    let mut simulation = Simulation::new(SimulationConfig::new(network, load));
    let report = simulation.run();
    assert_eq!(report.problems(), Vec::<String>::new(), "{report}");
    assert_eq!(report.network.overflowed, 0, "{report}");
    let hosts = simulation.network().hosts();
    let mut rtts: Vec<(u32, u64)> =
        hosts.iter().flat_map(|host| host.app().counts.rtts_ns.iter().copied()).collect();
    rtts.sort_unstable();
    rtts
}

#[test]
fn short_messages_do_not_wait_behind_long_ones_at_eighty_percent_load() {
    for name in ["w3", "w4"] {
        let rtts = loaded_rtts_ns(&Workload::named(name).unwrap().truncated(1_000_000).unwrap());
        let mut shorter_half: Vec<u64> = rtts[..rtts.len() / 2].iter().map(|&(_, rtt_ns)| rtt_ns).collect();
        shorter_half.sort_unstable();
        let (least, p99) = (shorter_half[0], shorter_half[shorter_half.len() * 99 / 100]);
        // The pacer lets a packet wait twice behind a NIC backlog of 5 us. A single long message ahead would
        // cost a millisecond.
        assert!(p99 < 3 * least, "{name}: {p99} ns at P99, {least} ns at best");
    }
}
