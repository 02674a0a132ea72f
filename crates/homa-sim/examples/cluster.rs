//! Runs a cluster, for profiling: `cargo run --release -p homa-sim --example cluster -- WORKLOAD LOAD MS
//! [TRANSPORT [DRAIN_MS [HOSTS]]]`.
use std::ops::ControlFlow;
use std::time::Instant;

use homa_sim::{ClusterConfig, TransportConfig};
use homa_workload::Workload;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let workload = Workload::named(&args[0]).expect("a workload");
    let mut config = ClusterConfig::sigcomm18(workload, args[1].parse().expect("a load"), 1);
    config.duration_ns = (args[2].parse::<f64>().expect("milliseconds") * 1e6) as u64;
    if let Some(ms) = args.get(4) {
        config.drain_ns = (ms.parse::<f64>().expect("milliseconds") * 1e6) as u64;
    }
    if let Some(hosts) = args.get(5) {
        config.hosts = hosts.parse().expect("a number of hosts");
        // First contacts between all hosts would take up most of a short run.
        config.acquaint = config.hosts <= 256;
    }
    config.warm_up_ns = config.duration_ns / 5;
    let name = args.get(3).map_or("homa", String::as_str);
    let transport = TransportConfig::named(name, &config).expect("a transport");
    println!("{} {transport:?}", config.rtt_bytes());
    let start = Instant::now();
    let report = transport.run(config, &mut |_| ControlFlow::Continue(()));
    let took = start.elapsed().as_secs_f64();
    for bin in &report.bins {
        println!(
            "{:>9} {:>8} {:8.3} {:8.3} {:8.3} {:8.3}",
            bin.max_bytes,
            bin.count,
            bin.slowdown_mean,
            bin.slowdown_p50,
            bin.slowdown_p99,
            bin.slowdown_p999
        );
    }
    println!("{:?} {:?}", report.short_half, report.edge_queue);
    println!(
        "started {} delivered {} unfinished {} goodput {:.3} idle {:.3} wasted {:.3} dropped {}",
        report.started,
        report.delivered,
        report.unfinished,
        report.goodput,
        report.downlink_idle,
        report.downlink_wasted,
        report.dropped
    );
    println!("{:?}", report.bytes_by_priority);
    println!("{:?}", report.transport_counts.iter().filter(|(_, count)| **count > 0).collect::<Vec<_>>());
    println!(
        "{took:.2} s, {:.2} M hops/s, {:.2} M events/s",
        report.hops as f64 / took / 1e6,
        report.events as f64 / took / 1e6
    );
}
