//! `homa trace timeline`: shows the stages of short RPCs.

use anyhow::{Result, bail};
use clap::Args;
use homa_analysis::selection::Baseline;
use homa_analysis::timeline::{self, Band, STAGES, Timeline};
use serde_json::{Value, json};

use super::answer::Answer;
use super::columns::Table;
use super::load::Inputs;
use super::select::FilterArgs;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace timeline traces/
  homa trace timeline --max-size 100 --node client traces/

Includes only RPCs whose request and response are one packet each, sent once. Each column is a mean in
nanoseconds: of the fastest tenth, of those from P45 to P55, and of the slowest hundredth. A stage without
data is included in the next stage with data.")]
pub struct TimelineArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub answer: Answer,
}

/// Names of the bands in JSON.
const BANDS: [&str; 3] = ["fastest", "median", "p99"];

/// # Errors
/// A file cannot be read or written, or there are no short RPCs.
pub fn run(args: &TimelineArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let model = args.inputs.model()?;
    let held = args.filter.selection(&model, Baseline::default())?;
    let timeline = timeline::timeline(&model, &held.chosen);
    if timeline.rpcs == 0 {
        bail!("no selected RPC has a request and a response of one packet each");
    }
    let text = format!("{} short RPCs; means in ns\n\n{}", timeline.rpcs, table(&timeline).text());
    let bands: serde_json::Map<String, Value> =
        BANDS.iter().zip(&timeline.bands).map(|(name, band)| ((*name).to_owned(), to_json(band))).collect();
    outputs.answer(&text, &json!({ "rpcs": timeline.rpcs, "bands": bands }))
}

/// Returns the stages as a table, with client and server columns for each band.
pub fn table(timeline: &Timeline) -> Table {
    let mut table = Table::new(&[
        "<stage",
        "fastest 10 %: client",
        "server",
        "P45-P55: client",
        "server",
        "from P99: client",
        "server",
    ]);
    for (stage, (name, _)) in STAGES.iter().enumerate() {
        let sides = timeline.bands.iter().map(|band| band.stages.get(stage).copied().unwrap_or_default());
        let cells: Vec<Option<f64>> = sides.flatten().collect();
        if cells.iter().any(Option::is_some) {
            let shown = cells.iter().map(|cell| cell.map_or(String::new(), |ns| format!("{ns:.0}")));
            table.row(std::iter::once((*name).to_owned()).chain(shown));
        }
    }
    table
}

fn to_json(band: &Band) -> Value {
    let stages = STAGES.iter().zip(&band.stages).filter(|(_, sides)| sides.iter().any(Option::is_some));
    let stages = stages.map(
        |((name, _), [client, server])| json!({ "stage": name, "client_ns": client, "server_ns": server }),
    );
    json!({ "rpcs": band.rpcs, "stages": stages.collect::<Vec<_>>() })
}
