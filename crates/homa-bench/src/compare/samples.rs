//! Artificial results for the tests of table and report.

use homa_workload::Workload;

use super::options::{Load, Options};
use crate::compare::plan::Plan;
use crate::compare::results::{Results, Run};
use crate::engine::load::Pace;
use crate::engine::rtt::RttTable;
use crate::engine::tally::Tally;
use crate::protocol::Protocol;
use crate::workloads::{self, Truncation};
use std::time::Duration;

/// Returns results for W4: small slowdowns for Homa, large ones for TCP.
pub fn both() -> Results {
    let workload = workloads::named("w4", Truncation::default()).expect("a workload");
    let options = Options { load: Load::Gbps(2.0), ..Options::new(workload) };
    let plan = Plan::new(options).expect("valid options");
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
