//! `homa metrics`: prints a snapshot.

use anyhow::{Context, Result};
use homa_metrics::Source;
use homa_report::output::{Output, print};

use super::args::MetricsArgs;

/// Prints a snapshot, and saves it if requested.
pub fn run(args: &MetricsArgs) -> Result<()> {
    let from = args.from.as_deref().context("say where the metrics are: homa metrics ADDR")?;
    let out = args.out.as_deref().map(Output::check).transpose()?;
    let scrape = Source::of(from).read()?;
    if let Some(out) = out {
        out.write(scrape.to_file().as_bytes())?;
    }
    let text = if args.json {
        serde_json::to_string_pretty(&scrape.json()).context("cannot write the metrics as JSON")? + "\n"
    } else {
        scrape.text()
    };
    print(text.as_bytes())
}
