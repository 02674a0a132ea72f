//! A comparison of protocols under one workload: over loopback, or between machines.

mod homa_clients;
mod max_rate;
mod options;
mod placement;
mod plan;
mod report;
pub mod results;
mod rig;
#[cfg(test)]
pub(crate) mod samples;
mod servers;
pub(crate) mod svg;
mod table;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use homa_report::progress::Progress;

pub use options::{Load, Options, RemoteServer};
pub(crate) use placement::CpuSplit;
pub use placement::Placement;
pub use plan::Plan;
pub use report::render as page;
pub use table::render as text;

use crate::engine::load::Pace;
use crate::engine::tally::Tally;
use crate::protocol::Protocol;
use results::{Maximum, Results, Run};
use rig::Rig;

/// Runs a plan from the start of its servers to their end.
///
/// # Errors
/// A server or a client cannot be started, a link breaks, or a protocol answers no RPC.
pub fn measure(plan: &Plan, progress: Progress) -> Result<Results> {
    let mut rig = Rig::start(plan, progress)?;
    let mut max = Vec::new();
    if matches!(plan.options.load, Load::Fraction(_) | Load::FindMax) {
        max = max_rate::find(&mut rig, max_time(plan))?;
    }
    let pace = match plan.options.load {
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
        Load::FindMax => Pace::Closed { outstanding: plan.options.max_outstanding },
    };
    let mut tallies = match plan.options.load {
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

/// Measures all slices. The protocols take turns.
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

/// Returns the measurement time at each level of the search for a maximum.
fn max_time(plan: &Plan) -> Duration {
    match plan.options.load {
        Load::FindMax => plan.slice * plan.slices,
        _ => max_rate::CALIBRATION.min(plan.slice),
    }
}

/// Estimates how long [`measure`] takes.
pub fn total_time(plan: &Plan) -> Duration {
    let protocols = plan.protocols.len() as u32;
    let levels = max_rate::levels(plan.options.max_outstanding).len() as u32;
    let warm = |measured: Duration| measured + plan.warmup.min(measured / 5);
    let search = warm(max_time(plan)) * levels * protocols;
    let slices = warm(plan.slice) * plan.slices * protocols;
    Rig::start_time(plan)
        + match plan.options.load {
            Load::FindMax => search,
            Load::Fraction(_) => search + slices,
            Load::Gbps(_) | Load::Outstanding(_) => slices,
        }
}
