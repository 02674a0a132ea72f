//! `homa bench`: the tail latency of a workload over Homa and over TCP, side by side.

pub mod bridge;
pub mod cpu;
pub mod driver;
pub mod homa_link;
mod inflight;
pub mod limits;
pub mod link;
pub mod load;
mod max_rate;
pub mod pattern;
pub mod placement;
pub mod plan;
pub mod protocol;
mod report;
pub mod results;
mod rig;
pub mod rtt;
#[cfg(test)]
mod samples;
pub mod servers;
pub mod summary;
pub mod svg;
pub mod switch;
pub mod table;
mod tables_page;
pub mod tally;
pub mod workloads;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::args::{BenchArgs, BenchCommand};
use crate::bench::protocol::Protocol;
use crate::rack::experiment::comparison;
use homa_report::output::in_words;
use homa_report::outputs::Outputs;
use homa_report::progress::Progress;
use load::Pace;
use plan::{Load, Plan};
use results::{Maximum, Results, Run};
use rig::Rig;
use tally::Tally;

/// Share of the time of a comparison that each protocol gets over loopback, where there are two by default.
const LOOPBACK_SHARE: f64 = 0.4;

/// Runs the bench. True if every RPC was answered exactly once, and right.
pub fn run(args: &BenchArgs) -> Result<bool> {
    match &args.command {
        Some(BenchCommand::Limits(args)) => return limits::run(args),
        Some(BenchCommand::Switch(args)) => return switch::run(args),
        Some(BenchCommand::Bridge(args)) => return bridge::run(args),
        None => (),
    }
    if !args.loopback {
        match comparison::run(args) {
            Err(error) if comparison::is_refusal(&error) && !args.is_rack_wanted => {
                let duration = args.duration.min(args.rack.total_seconds() * LOOPBACK_SHARE);
                let args = BenchArgs { duration, ..args.clone() };
                // An error in the options is reported alone, in one line.
                Plan::new(&args)?;
                eprintln!("homa: {}", comparison::refusal(&in_words(&error)));
                return over_loopback(&args);
            }
            result => return result,
        }
    }
    over_loopback(args)
}

/// Between processes of this machine over its loopback device, or from here to other machines.
fn over_loopback(args: &BenchArgs) -> Result<bool> {
    let plan = Plan::new(args)?;
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let results = measure(&plan, Progress::new(total_time(&plan)))?;
    let text = table::render(&results, &plan.workload_text());
    outputs.write(&text, &results, || report::render(&results, &plan.workload_text()))?;
    for run in results.runs.iter().filter(|run| !run.clean()) {
        let title = run.protocol.title();
        eprintln!("homa: {title}: {}", run.first_error.as_deref().unwrap_or("a request ran more than once"));
    }
    Ok(results.runs.iter().all(Run::clean))
}

/// Runs a plan from the start of its servers to their end.
fn measure(plan: &Plan, progress: Progress) -> Result<Results> {
    let mut rig = Rig::start(plan, progress)?;
    let mut max = Vec::new();
    if matches!(plan.load, Load::Fraction(_) | Load::FindMax) {
        max = max_rate::find(&mut rig, max_time(plan))?;
    }
    let pace = match plan.load {
        Load::Gbps(gbps) => plan.open(gbps),
        Load::Outstanding(outstanding) => Pace::Closed { outstanding },
        Load::Fraction(fraction) => {
            let (protocol, slower) = max_rate::slower(&max).context("no protocol was measured")?;
            let title = protocol.title();
            ensure!(
                slower > 0.0,
                "{title} answered nothing while its maximum was measured; try a longer --duration"
            );
            plan.open(slower * fraction)
        }
        Load::FindMax => Pace::Closed { outstanding: plan.args.max_outstanding },
    };
    let mut tallies = match plan.load {
        Load::FindMax => max.iter().map(|(max, tally)| (max.protocol, tally.clone())).collect(),
        _ => take_turns(&mut rig, pace)?,
    };
    let max: Vec<Maximum> = max.into_iter().map(|(max, _)| max).collect();
    let unloaded = rig.unloaded().clone();
    for (protocol, too_many) in rig.finish()? {
        if let Some((_, tally)) = tallies.iter_mut().find(|(other, _)| *other == protocol) {
            tally.counted.duplicated += too_many;
        }
    }
    let runs = tallies.iter().map(|(protocol, tally)| Run::new(*protocol, plan.workload.name(), pace, tally));
    let runs = runs.collect();
    Ok(Results::new(plan, pace, &unloaded, max, runs))
}

/// The slices of all protocols in turn.
fn take_turns(rig: &mut Rig<'_>, pace: Pace) -> Result<Vec<(Protocol, Tally)>> {
    let plan = rig.plan;
    let mut tallies: Vec<_> =
        plan.protocols.iter().map(|&protocol| (protocol, Tally::new(&plan.workload))).collect();
    for number in 1..=plan.slices {
        for (protocol, sum) in &mut tallies {
            let text = format!("{}: slice {number} of {}", protocol.title(), plan.slices);
            let tally = rig.slice(*protocol, pace, plan.slice, u64::from(number), &text)?;
            sum.measured += tally.measured;
            sum.cpu += tally.cpu;
            sum.add(tally)?;
        }
    }
    Ok(tallies)
}

/// The measured time at each level of the search for a maximum.
fn max_time(plan: &Plan) -> Duration {
    match plan.load {
        Load::FindMax => plan.slice * plan.slices,
        _ => max_rate::CALIBRATION.min(plan.slice),
    }
}

/// About how long all of it takes.
fn total_time(plan: &Plan) -> Duration {
    let protocols = plan.protocols.len() as u32;
    let levels = max_rate::levels(plan.args.max_outstanding).len() as u32;
    let warm = |measured: Duration| measured + plan.warmup.min(measured / 5);
    let search = warm(max_time(plan)) * levels * protocols;
    let slices = warm(plan.slice) * plan.slices * protocols;
    Rig::start_time(plan)
        + match plan.load {
            Load::FindMax => search,
            Load::Fraction(_) => search + slices,
            Load::Gbps(_) | Load::Outstanding(_) => slices,
        }
}
