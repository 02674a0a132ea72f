//! `homa jitter`: what takes the processors away.

pub mod args;
mod counters;
mod explain;
mod gaps;
mod report;
mod spin;
pub mod system;
mod tick;
mod together;

use std::time::Duration;

use anyhow::Result;
use homa_report::outputs::Outputs;
use homa_trace::{Clock, Ticks};

use crate::machine::Root;
use args::JitterArgs;
use counters::Counters;
use report::Report;

/// Measures, and says what was found.
///
/// # Errors
/// A processor may not be used, or a file cannot be written.
pub fn run(args: &JitterArgs) -> Result<()> {
    let cpus = spin::choose(args.cpus.as_ref().map(|cpus| cpus.0.as_slice()))?;
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let root = Root::here();
    let ticks = Ticks::start();
    let facts = system::facts(&root);
    let before = Counters::read(&root, &cpus);
    let measure = spin::measure(&cpus, Duration::from_secs_f64(args.seconds), args.threshold, ticks)?;
    let counted = before.until(&Counters::read(&root, &cpus));
    let explained = explain::explain(&measure);
    let is_virtual = system::is_virtual(&root).unwrap_or(false);
    let sentences = explain::sentences(&measure, &explained, &counted, is_virtual);
    let clock = if ticks.clock() == Clock::Tsc { "tsc" } else { "clock_monotonic_raw" };
    let report = Report {
        threshold_ns: args.threshold,
        clock,
        measure: &measure,
        explained: &explained,
        counted: &counted,
        facts: &facts,
        sentences: &sentences,
    };
    let findings = report.findings();
    outputs.write(&findings.text(), &findings.json, || findings.page())
}
