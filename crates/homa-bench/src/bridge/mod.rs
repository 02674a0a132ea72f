//! Ways to build a bridge, measured side by side on the same devices.
//!
//! The bridge's own speed is measured with frames that are already queued, as in `homa bench switch`, while
//! the source sleeps. Batch sizes are counted while the source sends, since frames queued in advance always
//! fill the batches.

mod batches;
mod kernel;
mod line;
mod pair;
mod results;
mod run;
mod single_thread;
mod variants;

use std::time::Duration;

use anyhow::Result;
use homa_report::findings::Findings;
use homa_report::progress::Progress;

use crate::switch::PortPath;
use crate::switch::load::Load;
use crate::switch::place::Place;
use results::{Row, findings};
use run::Bench;
use variants::{BASELINE, ForwardingThreads};
pub use variants::{VARIANTS, Variant};

/// Time to open the devices twice and to wait until frames pass.
const SETUP: Duration = Duration::from_millis(300);

/// The settings of the bridge measurements.
#[derive(Clone, Debug)]
pub struct Options {
    /// Variants to compare with the baseline, which is always measured; empty: all.
    pub variants: Vec<Variant>,
    /// The interface between the bridge and its devices.
    pub path: PortPath,
    /// Length of the frames in bytes excluding the check sequence: 64 to 1514.
    pub frame_bytes: u16,
    /// Measurement time of each variant per repetition, at least 20 ms.
    pub slice: Duration,
    /// Number of repetitions, at least 1. In each of them, all variants take turns.
    pub repetitions: u32,
}

impl Default for Options {
    /// Measures all variants with the shortest frames, over AF_XDP in generic mode, which every device
    /// supports.
    fn default() -> Options {
        Options {
            variants: Vec::new(),
            path: PortPath::XdpGeneric,
            frame_bytes: 64,
            slice: Duration::from_millis(300),
            repetitions: 5,
        }
    }
}

/// Returns the baseline, followed by the named variants, or by all variants if none is named.
fn chosen(named: &[Variant]) -> Vec<Variant> {
    let others = VARIANTS.into_iter().filter(|variant| *variant != BASELINE);
    let others = others.filter(|variant| named.is_empty() || named.contains(variant));
    [BASELINE].into_iter().chain(others).collect()
}

/// Measures the variants. Results are not judged: a slow variant is not an error.
///
/// # Errors
/// A privilege is missing, or a device cannot be created.
pub fn measure(options: &Options) -> Result<Findings> {
    let mut rows: Vec<Row> = chosen(&options.variants).into_iter().map(Row::new).collect();
    let place = Place::set_up()?;
    let mut load = Load::open()?;
    let mut notes = Vec::new();
    if place.is_crowded() {
        notes.push(
            "source, sink and bridge share one processor: the results do not show a bridge's own speed"
                .to_owned(),
        );
    }
    let slice = options.slice;
    let each = SETUP + slice * 9 / 4;
    let mut progress = Progress::new(each * rows.len() as u32 * options.repetitions);
    for repetition in 1..=options.repetitions {
        for row in &mut rows {
            let text = format!("{}: repetition {repetition} of {}", row.variant.name, options.repetitions);
            progress.step(&text, each);
            let mut bench = Bench {
                place: &place,
                load: &mut load,
                port_path: options.path,
                slice,
                bytes: options.frame_bytes.into(),
            };
            let seen = match row.variant.work {
                ForwardingThreads::Kernel => bench.measure_kernel(),
                _ => bench.measure(row.variant),
            };
            // A variant that cannot be measured does not stop the others.
            match seen {
                Ok(seen) => row.add(&seen),
                Err(error) => row.skipped = Some(homa_report::output::error_line(&error)),
            }
        }
    }
    drop(progress);
    Ok(findings(options, &rows, load.path(), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_always_there_once_and_first() {
        assert_eq!(chosen(&[]), VARIANTS);
        let named = [VARIANTS[3], BASELINE, VARIANTS[1]];
        assert_eq!(chosen(&named), [BASELINE, VARIANTS[1], VARIANTS[3]]);
    }
}
