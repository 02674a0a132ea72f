//! `homa bench bridge`: ways to build a bridge, measured side by side on the same devices.
//!
//! What the bridge does by itself is measured with frames that wait for it already, as `homa bench switch` does: while it works the source
//! sleeps. Sizes of batches are counted while the source works, since what waits always fills them.

pub mod args;
mod batches;
mod complete;
mod kernel;
mod line;
mod pair;
mod results;
mod run;
mod variants;

use std::time::Duration;

use anyhow::Result;
use homa_report::findings::Findings;
use homa_report::outputs::Outputs;
use homa_report::progress::Progress;

use super::switch::load::Load;
use super::switch::place::Place;
use args::BridgeBenchArgs;
use results::{Row, findings};
use run::Bench;
use variants::{BASELINE, VARIANTS, Variant, Work};

/// What it takes to open devices twice and to wait until frames get through.
const SETUP: Duration = Duration::from_millis(300);

/// Measures. True: a slow variant is no error.
pub fn run(args: &BridgeBenchArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let findings = measure(args)?;
    outputs.write(&findings.text(), &findings.json, || findings.page())?;
    Ok(true)
}

/// The baseline first, and those that were named, or all.
fn chosen(named: &[Variant]) -> Vec<Variant> {
    let others = VARIANTS.into_iter().filter(|variant| *variant != BASELINE);
    let others = others.filter(|variant| named.is_empty() || named.contains(variant));
    [BASELINE].into_iter().chain(others).collect()
}

fn measure(args: &BridgeBenchArgs) -> Result<Findings> {
    let mut rows: Vec<Row> = chosen(&args.variant).into_iter().map(Row::new).collect();
    let place = Place::lay()?;
    let mut load = Load::open()?;
    let mut notes = Vec::new();
    if place.is_crowded() {
        notes.push("everything shares one processor: nothing here says what a bridge can do".to_owned());
    }
    let slice = Duration::from_millis(args.duration);
    let each = SETUP + slice * 9 / 4;
    let mut progress = Progress::new(each * rows.len() as u32 * args.repetitions);
    for repetition in 1..=args.repetitions {
        for row in &mut rows {
            let text = format!("{}: repetition {repetition} of {}", row.variant.name, args.repetitions);
            progress.step(&text, each);
            let mut bench = Bench {
                place: &place,
                load: &mut load,
                port_path: args.path,
                slice,
                bytes: args.frame_bytes.into(),
            };
            let seen = match row.variant.work {
                Work::Kernel => bench.measure_kernel(),
                _ => bench.measure(row.variant),
            };
            // One that cannot be measured does not keep the others from it.
            match seen {
                Ok(seen) => row.add(&seen),
                Err(error) => row.skipped = Some(homa_report::output::in_words(&error)),
            }
        }
    }
    drop(progress);
    Ok(findings(args, &rows, load.path(), notes))
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
