//! Gaps of processors: length, frequency and causes of the intervals in which a program cannot run.
//!
//! A thread on each processor reads the clock without a pause. If two readings are further apart than a
//! threshold, another program, an interrupt, the firmware or a hypervisor had the processor. [`measure`]
//! finds these gaps, distinguishes timer ticks and stops of all processors from the rest, and reads the
//! kernel's counters before and after.

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
    /// The length of the measurement, within [`Options::SECONDS`]. All these processors are busy for as long.
    pub length: Duration,
    /// The shortest gap that counts, nanoseconds, within [`Options::THRESHOLD_NS`].
    pub threshold_ns: u64,
}

impl Options {
    /// Sensible lengths of a measurement, seconds.
    pub const SECONDS: RangeInclusive<f64> = 0.01..=86_400.0;

    /// Sensible thresholds, nanoseconds. Two readings of the slower clock are some tens of nanoseconds apart:
    /// a lower threshold would find nothing else.
    pub const THRESHOLD_NS: RangeInclusive<u64> = 200..=1_000_000_000;
}

/// Measures the gaps of these processors. A progress bar is shown if standard error is a terminal.
///
/// # Errors
/// A processor may not be used.
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
