//! Measurements of the software switch on one processor, between virtual devices.
//!
//! The forwarding rate of one processor is measured with frames that are already queued (`gate`). A source
//! that sends at the same time from the other processor would hardly be faster than the switch, because it
//! also does half of the veth pair's work.
//!
//! A rate is computed over all windows of 10 ms that begin and end with a frame. It is measured twice: by the
//! switch's clock when the switch has passed frames to its device, and by the sink's clock when the sink
//! receives them. The targets apply to the switch's clock, because the sink has other work to do.
//!
//! A gap is a round of the switch that took far longer than its frames need: the switch's thread was not
//! scheduled, or its virtual processor did not run. The targets apply to all windows; the rates of windows
//! without a gap are reported in addition.

mod cells;
mod choices;
pub(crate) mod gate;
pub(crate) mod load;
mod page;
pub(crate) mod place;
mod results;
mod running_switch;
mod table;
mod windows;

use std::time::Duration;

use anyhow::Result;
use homa_report::progress::Progress;
use homa_switch::Forwarding;
use strum::VariantArray;

use cells::{Bench, RATES, Value};
pub use choices::{Measurement, PortPath};
use load::Load;
pub use page::render as page;
use place::Place;
pub use results::Results;
use results::{MEASURES, PathResults, SCHEMA};
pub use table::render as text;

/// Time to start and end a switch, for the progress bar.
const SETUP: Duration = Duration::from_millis(150);

/// The settings of the switch's measurements.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The interfaces between the switch and its devices; empty: all. An interface that cannot be opened is
    /// skipped, and the reason is reported.
    pub paths: Vec<PortPath>,
    /// The measurements; empty: all.
    pub measurements: Vec<Measurement>,
    /// Number of repetitions, at least 1. In each of them, all interfaces take turns. `None`: the default.
    pub repetitions: Option<u32>,
    /// Measurement time of each value per repetition, at least 20 ms; `None`: the default.
    pub slice: Option<Duration>,
    /// Whether to measure only briefly, to check that everything works.
    pub quick: bool,
}

/// Returns the named choices, or all choices if none is named.
fn chosen<T: Copy + VariantArray>(named: &[T]) -> Vec<T> {
    if named.is_empty() { T::VARIANTS.to_vec() } else { named.to_vec() }
}

/// Measures the switch.
///
/// # Errors
/// A privilege is missing, or a device cannot be created.
pub fn measure(options: &Options) -> Result<Results> {
    let (paths_wanted, measurements) = (chosen(&options.paths), chosen(&options.measurements));
    let repetitions = options.repetitions.unwrap_or(if options.quick { 1 } else { 5 });
    let usual = Duration::from_millis(if options.quick { 30 } else { 300 });
    let slice = options.slice.unwrap_or(usual);
    // The processors are counted before this thread is restricted to some of them.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let place = Place::set_up()?;
    let mut load = Load::open()?;
    let mut notes = Vec::new();
    if place.is_crowded() {
        notes.push(
            "source, sink and switch share one processor: the results do not show the switch's own speed"
                .to_owned(),
        );
    }
    let mut paths: Vec<PathResults> =
        paths_wanted.iter().map(|path| PathResults { name: path.name(), ..PathResults::default() }).collect();
    let each: Duration = measurements.iter().map(|&what| length(what, slice)).sum();
    let mut progress = Progress::new(each * paths_wanted.len() as u32 * repetitions);
    for repetition in 1..=repetitions {
        for (&port_path, path) in paths_wanted.iter().zip(&mut paths) {
            for &what in &measurements {
                let text = format!("{}: repetition {repetition} of {repetitions}", port_path.name());
                progress.step(&text, length(what, slice));
                let mut bench = Bench { place: &place, load: &mut load, slice };
                // A measurement that fails does not stop the others.
                part(&mut bench, port_path, what, |result| match result {
                    Ok(values) => values.into_iter().for_each(|value| path.add(value)),
                    Err(error) => path.skipped = Some(homa_report::output::error_line(&error)),
                });
            }
        }
    }
    drop(progress);
    Ok(Results {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        cpus,
        repetitions,
        slice_ms: slice.as_millis() as u64,
        load: load.path(),
        missed: load.sink_drops(),
        notes,
        measures: MEASURES.to_vec(),
        paths,
    })
}

/// Estimates the duration of a measurement.
fn length(what: Measurement, slice: Duration) -> Duration {
    let (switches, slices) = match what {
        Measurement::Capacity => (10, 10),
        Measurement::Rate => (3, 4),
        Measurement::Probe => (6, 6),
        Measurement::Overload => (2, 7),
    };
    SETUP * switches + (slice + slice / 4) * slices
}

/// Runs one measurement, and calls `say` with the result of each of its parts.
fn part(
    bench: &mut Bench<'_>,
    port_path: PortPath,
    what: Measurement,
    mut say: impl FnMut(Result<Vec<Value>>),
) {
    match what {
        Measurement::Capacity => say(bench.capacity(port_path)),
        Measurement::Rate => {
            RATES.into_iter().for_each(|rate| say(bench.rate(port_path, rate)));
            say(bench.machine());
        }
        Measurement::Probe => {
            for rate in RATES {
                for forwarding in [Forwarding::CutThrough, Forwarding::StoreAndForward] {
                    say(bench.probe(port_path, rate, forwarding));
                }
            }
        }
        Measurement::Overload => say(bench.overload(port_path)),
    }
}
