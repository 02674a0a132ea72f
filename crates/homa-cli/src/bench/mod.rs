//! `homa bench`: compares the tail latency of a workload over Homa and over TCP.

mod args;
mod bridge;
mod limits;
mod on_rack;
mod switch;

use anyhow::Result;
use homa_bench::compare::{self, Plan, results::Run};
use homa_rack::experiment::comparison;
use homa_report::output::error_line;
use homa_report::outputs::Outputs;
use homa_report::progress::Progress;

pub use args::{BenchArgs, BenchCommand};

/// Share of the total duration that each protocol gets in a comparison over loopback of the default two
/// protocols.
const LOOPBACK_SHARE: f64 = 0.4;

/// Runs the bench. Returns true if every RPC was answered exactly once and correctly.
pub fn run(args: &BenchArgs) -> Result<bool> {
    match &args.command {
        Some(BenchCommand::Limits(args)) => return limits::run(args),
        Some(BenchCommand::Switch(args)) => return switch::run(args),
        Some(BenchCommand::Bridge(args)) => return bridge::run(args),
        None => (),
    }
    if !args.loopback {
        match compare_on_rack(args) {
            Err(error) if comparison::is_refusal(&error) && !args.is_rack_wanted => {
                let duration = args.duration.min(args.rack.total_seconds() * LOOPBACK_SHARE);
                let args = BenchArgs { duration, ..args.clone() };
                // Check the options first, so that an error in them is the only output, in one line.
                let plan = Plan::new(args.options()?)?;
                eprintln!("homa: {}", comparison::refusal(&error_line(&error)));
                return over_loopback(&args, &plan);
            }
            result => return result,
        }
    }
    over_loopback(args, &Plan::new(args.options()?)?)
}

/// Compares the protocols on a rack of hosts on this machine.
fn compare_on_rack(args: &BenchArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let comparison = comparison::run(&args.on_rack())?;
    outputs.write(&comparison.text, &comparison.json, || comparison.page)?;
    Ok(comparison.is_clean)
}

/// Compares the protocols between processes of this machine over the loopback device, or with other machines.
fn over_loopback(args: &BenchArgs, plan: &Plan) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let results = compare::measure(plan, Progress::new(compare::total_time(plan)))?;
    let workload = plan.workload_text();
    outputs.write(&compare::text(&results, &workload), &results, || compare::page(&results, &workload))?;
    for run in results.runs.iter().filter(|run| !run.clean()) {
        let title = run.protocol.title();
        eprintln!("homa: {title}: {}", run.first_error.as_deref().unwrap_or("a request ran more than once"));
    }
    Ok(results.runs.iter().all(Run::clean))
}
