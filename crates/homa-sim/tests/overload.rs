//! A load above the network's capacity: goodput stays at its peak.

use homa_proto::{MS, Time};
use homa_sim::{Load, NetworkConfig, PayloadMode, Report, Simulation, SimulationConfig, Topology};
use homa_workload::Workload;

const INTERVAL_NS: u64 = 5 * MS;

/// Returns the goodput of the best and of the worst interval, excluding the first and the last, which are
/// partial.
fn peak_and_trough(report: &Report, intervals: usize) -> (u64, u64) {
    let whole = &report.goodput_bytes[1..intervals - 1];
    (whole.iter().copied().max().unwrap_or_default(), whole.iter().copied().min().unwrap_or_default())
}

/// Returns two clients and one server at 10 Gbit/s, whose pacer knows the rate.
fn network(seed: u64) -> NetworkConfig {
    let mut network = NetworkConfig::new(seed, 3);
    network.topology = Topology::Switch { delay_ns: 250 };
    network.link.rate_bps = 10_000_000_000;
    network.protocol.link_mbps = Some(10_000);
    network.payload = PayloadMode::LengthOnly;
    network
}

#[test]
fn two_clients_with_hundreds_of_throttled_short_rpcs_do_not_collapse() {
    let load = Load {
        rpcs: u64::MAX,
        stop_at: Time::from_ns(100 * MS),
        clients: 0..2,
        servers: 2..3,
        goodput_interval_ns: INTERVAL_NS,
        ..Load::closed(Workload::fixed(1_000).unwrap(), 400)
    };
    let report = Simulation::new(SimulationConfig::new(network(1), load)).run();
    assert_eq!(report.problems(), Vec::<String>::new(), "{report}");
    let (peak, trough) = peak_and_trough(&report, 20);
    assert!(trough * 100 >= peak * 95, "{trough} of {peak} bytes: {:?}", report.goodput_bytes);
    // 1,122 bytes on the wire per 1,000 of payload, in both directions: 2 x 8.9 Gbit/s at most.
    let most = 2 * INTERVAL_NS * 10 / 8 * 1_000 / 1_122;
    assert!(peak * 100 >= most * 90, "the best interval has {peak} of {most} bytes");
}

/// Returns the mean goodput in the second half of a run of 200 ms, in bytes per interval. Two clients
/// together offer this percentage of the link's capacity, with the workload ShortLong.
fn shortlong_goodput(percent: u32) -> u64 {
    let load = Load {
        clients: 0..2,
        servers: 2..3,
        goodput_interval_ns: INTERVAL_NS,
        ..Load::open(
            Workload::named("short-long").unwrap(),
            f64::from(percent) / 20.0,
            Time::from_ns(200 * MS),
        )
    };
    let report = Simulation::new(SimulationConfig::new(network(2), load)).run();
    assert_eq!(report.problems(), Vec::<String>::new(), "{report}");
    let late = &report.goodput_bytes[20..40];
    late.iter().sum::<u64>() / late.len() as u64
}

#[test]
fn shortlong_offered_at_120_percent_does_not_collapse() {
    let goodput: Vec<u64> = [70, 80, 90, 100, 120].into_iter().map(shortlong_goodput).collect();
    let peak = goodput.iter().copied().max().unwrap_or_default();
    assert!(goodput[4] * 100 >= peak * 95, "bytes per interval at 70, 80, 90, 100 and 120 %: {goodput:?}");
}
