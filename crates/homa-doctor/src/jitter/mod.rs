//! Gaps of processors: durations, frequency and causes of intervals in which a program cannot run.
//!
//! On each processor, a thread continuously reads the clock. If two readings are further apart than a
//! threshold, the processor was used by another program, an interrupt, the firmware or a hypervisor.
//! [`measure`] finds these gaps, distinguishes timer ticks and stops of all processors from the rest, and
//! reads the kernel's counters before and after.

mod common_stops;
mod counters;
mod explain;
mod gaps;
mod report;
mod spin;
pub(crate) mod system;
mod tick;

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Result;
use homa_trace::{Clock, Ticks};

use crate::machine::Root;
pub use common_stops::CommonStop;
use counters::Counters;
pub use counters::{CounterChanges, Softnet};
pub use explain::GapCauses;
pub use gaps::{CLASSES, Count, Gap, Tally};
pub use report::Report;
pub use spin::{Core, Measurement, allowed_cpus};
pub use system::Fact;
pub use tick::Tick;

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// The processors, from [`allowed_cpus`].
    pub cpus: Vec<usize>,
    /// Duration of the measurement, within [`Options::SECONDS`]. All these processors are busy for this time.
    pub length: Duration,
    /// Minimum length of a gap in nanoseconds, within [`Options::THRESHOLD_NS`].
    pub threshold_ns: u64,
}

impl Options {
    /// Reasonable durations of a measurement, in seconds.
    pub const SECONDS: RangeInclusive<f64> = 0.01..=86_400.0;

    /// Reasonable thresholds, in nanoseconds. Two consecutive readings of the slower clock are tens of
    /// nanoseconds apart, so a lower threshold would find only those.
    pub const THRESHOLD_NS: RangeInclusive<u64> = 200..=1_000_000_000;
}

/// Measures the gaps of these processors. A progress bar is shown if standard error is a terminal.
///
/// # Errors
/// This process may not use one of the processors.
pub fn measure(options: &Options) -> Result<Report> {
    let Options { cpus, length, threshold_ns } = options;
    let root = Root::here();
    let ticks = Ticks::start();
    let facts = system::facts(&root);
    let before = Counters::read(&root, cpus);
    let measurement = spin::measure(cpus, *length, *threshold_ns, ticks)?;
    let counters = before.until(&Counters::read(&root, cpus));
    let causes = explain::explain(&measurement);
    let is_virtual = system::is_virtual(&root).unwrap_or(false);
    Ok(Report {
        threshold_ns: *threshold_ns,
        clock: if ticks.clock() == Clock::Tsc { "tsc" } else { "clock_monotonic_raw" },
        sentences: explain::conclusions(&measurement, &causes, &counters, is_virtual),
        measurement,
        causes,
        counters,
        facts,
    })
}
