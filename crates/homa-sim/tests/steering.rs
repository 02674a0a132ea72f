//! Published findings about receive steering that the simulator reproduces.
//! docs/perf/2026-11-22-steering-simulated.md lists all findings, including those that the simulator does not
//! reproduce.
//!
//! The costs are those in `costs/`, which were fixed before the first comparison.

use std::ops::ControlFlow;

use homa_sim::{CoresConfig, RouterConfig, SteerConfig, SteerLoad, SteerReport};
use homa_steer::PolicyName::{self, Bypass, Gen2, HomaHash, RssHash, SameCore, Sparse};
use homa_steer::wake::WakeOrder;
use homa_workload::Workload;

const SEED: u64 = 1;

/// Logical cores of the hosts in the published measurements.
const CORES: usize = 20;

fn workload(name: &str) -> Workload {
    Workload::named(name).expect("a built-in workload")
}

fn run(config: &SteerConfig) -> SteerReport {
    let report = config.run(&mut |_| ControlFlow::Continue(()));
    println!("seed {}: {report:?}", config.seed);
    report
}

fn loaded(policy: PolicyName, name: &str, load: f64, rpcs: u64) -> SteerConfig {
    let cores = CoresConfig::x86(CORES, policy);
    SteerConfig { rpcs, seed: SEED, ..SteerConfig::new(workload(name), SteerLoad::Share(load), cores) }
}

/// Returns a run with RPCs of 100 bytes between two hosts, a low load, and threads that do not poll, as in
/// versions without polling.
fn idle(wake_order: WakeOrder, server_threads: usize) -> SteerConfig {
    let base = CoresConfig::x86(CORES, SameCore);
    let cores = CoresConfig { wake_order, server_threads, client_threads: 1, poll_ns: 0, ..base };
    let small = Workload::fixed(100).expect("a size");
    SteerConfig {
        hosts: 2,
        rpcs: 5_000,
        seed: SEED,
        ..SteerConfig::new(small, SteerLoad::Share(0.02), cores)
    }
}

/// Published: a tail that is 20 to 35 % shorter (notes of the kernel module, July 2020). The simulated gain
/// is larger.
#[test]
fn gen2_shortens_the_tail_of_short_messages_among_long_ones() {
    let [hash, gen2] = [RssHash, Gen2].map(|policy| run(&loaded(policy, "w4", 0.5, 5_000)));
    assert!(gen2.short_p99_us < 0.8 * hash.short_p99_us, "{} of {}", gen2.short_p99_us, hash.short_p99_us);
}

/// Published: a lone packet that stays on its core saves 2 or 3 us of a round trip.
#[test]
fn bypass_helps_where_cores_have_time() {
    let [hash, bypass] = [HomaHash, Bypass].map(|policy| run(&loaded(policy, "w3", 0.05, 3_000)));
    let saved_us = hash.short_p50_us - bypass.short_p50_us;
    assert!((1.5..4.0).contains(&saved_us), "{saved_us} us");
    assert!(bypass.short_p99_us < hash.short_p99_us);
}

#[test]
fn bypass_harms_where_the_cores_that_receive_have_none() {
    let few = |policy| {
        let base = loaded(policy, "w3", 0.5, 4_000);
        SteerConfig { cores: CoresConfig { receive_cores: 2, ..base.cores.clone() }, ..base }
    };
    let [hash, bypass] = [HomaHash, Bypass].map(|policy| run(&few(policy)));
    assert!(bypass.counts.busiest_core > 0.95, "the cores that receive are saturated");
    assert!(bypass.short_p50_us > hash.short_p50_us && bypass.gbps < hash.gbps);
}

/// Published: a gain of 200 to 500 ns at low loads (notes of the kernel module, 2019), with a pool of threads
/// larger than the load needs.
#[test]
fn waking_the_last_to_sleep_saves_as_much_as_published() {
    let [lifo, fifo] = [WakeOrder::Lifo, WakeOrder::Fifo].map(|order| run(&idle(order, 18)));
    for saved_us in [fifo.short_p50_us - lifo.short_p50_us, fifo.short_mean_us - lifo.short_mean_us] {
        assert!((0.2..=0.5).contains(&saved_us), "{saved_us} us");
    }
    assert!(lifo.counts.cold_messages < fifo.counts.cold_messages / 2);
}

/// Published: "Without RPS enabled, Homa performance is limited by a single core".
#[test]
fn without_steering_one_core_limits_a_host() {
    let busy = |policy| {
        let base = CoresConfig::x86(16, policy);
        let cores = CoresConfig { server_threads: 16, client_threads: 16, sender_threads: 8, ..base };
        let small = Workload::fixed(100).expect("a size");
        let load = SteerLoad::Outstanding(100);
        SteerConfig { hosts: 2, rpcs: 5_000, seed: SEED, ..SteerConfig::new(small, load, cores) }
    };
    let [alone, steered] = [SameCore, RssHash].map(|policy| run(&busy(policy)));
    assert!(alone.counts.busiest_core > 0.99 && alone.counts.mean_core < 0.5, "one core does it");
    assert!(steered.krpcs_per_sec > 1.5 * alone.krpcs_per_sec);
}

/// Published: a gain of 41 % with one connection in each direction, and none with 24 to 32 connections. The
/// simulation shows the same trend, but its gain is largest with two connections, which are therefore tested.
#[test]
fn sparse_gains_with_few_connections_and_nothing_with_many() {
    let mbps = |policy, flows| {
        let run = |seed| {
            RouterConfig { duration_ns: 1_000_000_000, ..RouterConfig::new(policy, flows, seed) }.run()
        };
        let reports = (SEED..SEED + 10).map(run);
        reports.map(|report| report.forward_mbps + report.back_mbps).sum::<f64>()
    };
    let gain = |flows| mbps(Sparse, flows) / mbps(RssHash, flows) - 1.0;
    let [few, many] = [2, 28].map(gain);
    println!("seeds {SEED} to {}: {few:+.3} with 2 connections, {many:+.3} with 28", SEED + 9);
    assert!(few > 0.02 && many.abs() < 0.05, "{few:+.3}, {many:+.3}");
}
