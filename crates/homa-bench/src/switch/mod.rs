//! What the switch does on one processor, between devices of its own.
//!
//! How many frames a second one core forwards is measured with frames that wait for it already (`gate`): a source on the other core,
//! which pays for half of a veth pair as well, is hardly faster than the switch.
//!
//! A rate is looked at over all times of 10 ms that begin and end with a frame, twice: by the clock of the switch when it has handed frames
//! to its device, and by that of the sink when it finds them. The sink has more to do than to look, so that the first is the one that
//! something is asked of. A round of the switch that took far longer than its frames is a gap: its thread did not run, or its processor
//! was given away. What is asked holds for all times; those without a gap are told besides.

mod cells;
mod choices;
pub(crate) mod gate;
pub(crate) mod load;
mod page;
pub(crate) mod place;
mod results;
mod running;
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

/// What it takes to start and end a switch, for the progress bar.
const SETUP: Duration = Duration::from_millis(150);

/// Measurements of the switch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The ways of frames into the switch and out of it; none: all. What cannot be opened is skipped, with the
    /// reason.
    pub paths: Vec<PortPath>,
    /// The measurements; none: all.
    pub measurements: Vec<Measurement>,
    /// Repetitions, each with all paths in turn, at least 1; `None`: enough for a median.
    pub repetitions: Option<u32>,
    /// Measured time of each value in a repetition, at least 20 ms; `None`: as much as is usual.
    pub slice: Option<Duration>,
    /// Only see whether it works.
    pub quick: bool,
}

/// All of a kind, or those that were named.
fn chosen<T: Copy + VariantArray>(named: &[T]) -> Vec<T> {
    if named.is_empty() { T::VARIANTS.to_vec() } else { named.to_vec() }
}

/// Measures the switch.
///
/// # Errors
/// A privilege is missing, or a device cannot be made.
pub fn measure(options: &Options) -> Result<Results> {
    let (paths_wanted, measurements) = (chosen(&options.paths), chosen(&options.measurements));
    let repetitions = options.repetitions.unwrap_or(if options.quick { 1 } else { 5 });
    let usual = Duration::from_millis(if options.quick { 30 } else { 300 });
    let slice = options.slice.unwrap_or(usual);
    // Before this thread is given some of them.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let place = Place::lay()?;
    let mut load = Load::open()?;
    let mut notes = Vec::new();
    if place.is_crowded() {
        notes.push(
            "source, sink and switch share one processor: nothing here says what the switch can do"
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
                // One that cannot be measured does not keep the others from it.
                part(&mut bench, port_path, what, |result| match result {
                    Ok(values) => values.into_iter().for_each(|value| path.add(value)),
                    Err(error) => path.skipped = Some(homa_report::output::in_words(&error)),
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
        missed: load.missed(),
        notes,
        measures: MEASURES.to_vec(),
        paths,
    })
}

/// About how long it takes.
fn length(what: Measurement, slice: Duration) -> Duration {
    let (switches, slices) = match what {
        Measurement::Capacity => (10, 10),
        Measurement::Rate => (3, 4),
        Measurement::Probe => (6, 6),
        Measurement::Overload => (2, 7),
    };
    SETUP * switches + (slice + slice / 4) * slices
}

/// Measures it, and says what came of each of its parts.
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
