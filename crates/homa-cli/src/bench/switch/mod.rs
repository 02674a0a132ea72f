//! `homa bench switch`: what the switch does on one processor, between devices of its own.
//!
//! How many frames a second one core forwards is measured with frames that wait for it already (`gate`): a source on the other core,
//! which pays for half of a veth pair as well, is hardly faster than the switch.
//!
//! A rate is looked at over all times of 10 ms that begin and end with a frame, twice: by the clock of the switch when it has handed frames
//! to its device, and by that of the sink when it finds them. The sink has more to do than to look, so that the first is the one that
//! something is asked of. A round of the switch that took far longer than its frames is a gap: its thread did not run, or its processor
//! was given away. What is asked holds for all times; those without a gap are told besides.

pub mod args;
mod cells;
pub mod choices;
pub(in crate::bench) mod gate;
pub(in crate::bench) mod load;
mod page;
pub(in crate::bench) mod place;
mod results;
mod running;
mod table;
mod windows;

use std::time::Duration;

use anyhow::Result;
use homa_report::outputs::Outputs;
use homa_report::progress::Progress;
use homa_switch::Forwarding;
use strum::VariantArray;

use args::SwitchBenchArgs;
use cells::{Bench, RATES, Value};
use choices::{Measurement, PortPath};
use load::Load;
use place::Place;
use results::{MEASURES, PathResults, Results, SCHEMA};

/// What it takes to start and end a switch, for the progress bar.
const SETUP: Duration = Duration::from_millis(150);

/// Measures. True: what falls short is marked, and is no error.
pub fn run(args: &SwitchBenchArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let results = measure(args)?;
    outputs.write(&table::render(&results), &results, || page::render(&results))?;
    Ok(true)
}

/// All of a kind, or those that were named.
fn chosen<T: Copy + VariantArray>(named: &[T]) -> Vec<T> {
    if named.is_empty() { T::VARIANTS.to_vec() } else { named.to_vec() }
}

fn measure(args: &SwitchBenchArgs) -> Result<Results> {
    let (ways, whats) = (chosen(&args.path), chosen(&args.measure));
    let repetitions = args.repetitions.unwrap_or(if args.quick { 1 } else { 5 });
    let slice_ms = args.slice_ms.unwrap_or(if args.quick { 30 } else { 300 });
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
        ways.iter().map(|path| PathResults { name: path.name(), ..PathResults::default() }).collect();
    let slice = Duration::from_millis(slice_ms);
    let each: Duration = whats.iter().map(|&what| length(what, slice)).sum();
    let mut progress = Progress::new(each * ways.len() as u32 * repetitions);
    for repetition in 1..=repetitions {
        for (&port_path, path) in ways.iter().zip(&mut paths) {
            for &what in &whats {
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
        slice_ms,
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
