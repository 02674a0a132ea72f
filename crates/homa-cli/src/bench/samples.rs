//! Results made up for the tests of table and report.

use homa_workload::Workload;

use super::load::Pace;
use super::plan::Plan;
use super::results::{Results, Run};
use super::rtt::RttTable;
use super::tally::Tally;
use crate::args::{Cli, Command};
use crate::bench::protocol::Protocol;
use clap::Parser;
use std::time::Duration;

/// Homa with small and TCP with large slowdowns, over W4.
pub fn both() -> Results {
    let Command::Bench(args) = Cli::parse_from(["homa", "bench", "--gbps", "2"]).command else {
        panic!("not a bench")
    };
    let plan = Plan::new(&args).expect("valid options");
    let pace = Pace::Open { gbps: 2.0, max_outstanding: 200 };
    let unloaded = RttTable::new(vec![(1, 20_000), (1_000_000, 900_000)]);
    let runs = [(Protocol::Homa, 1), (Protocol::Tcp, 4)].map(|(protocol, factor)| {
        let tally = tally(&plan.workload, &unloaded, factor);
        Run::new(protocol, plan.workload.name(), pace, &tally)
    });
    Results::new(&plan, pace, &unloaded, Vec::new(), runs.into())
}

fn tally(workload: &Workload, unloaded: &RttTable, factor: u64) -> Tally {
    let mut tally = Tally::new(workload);
    for (index, size) in workload.sampler(1).take(20_000).enumerate() {
        let best_ns = unloaded.rtt_ns(size);
        let late = if index % 50 == 0 { 20 } else { 1 };
        tally.recorder.record(size, best_ns * factor * late + best_ns / 10, best_ns);
        tally.counted.started += 1;
        tally.counted.answered += 1;
        tally.counted.goodput_bytes += u64::from(size);
    }
    tally.measured = Duration::from_secs(5);
    tally.cpu = Duration::from_secs(6);
    tally
}
