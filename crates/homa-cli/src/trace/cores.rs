//! `homa trace cores`: the activity of each core.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::cores;

use super::answer::{Question, Text};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace cores traces/
  homa trace cores --list 100 --node host-03 traces/

A migration: an endpoint reads a burst on another core than the previous one. Not running: the driving thread
noticed that it had not run although it was not asleep.")]
pub struct CoresArgs {
    #[command(flatten)]
    pub question: Question,
    /// Maximum number of cores to list, the busiest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &CoresArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = cores(&opened.model, &opened.select);
    if let Some(missing) = found.missing_events.first() {
        return Err(opened.missing_error(*missing));
    }
    let mut text = Text::default();
    let mut table = Table::new(&[
        "<node",
        "core",
        "events",
        "of its node",
        "packets out",
        "in",
        "RPCs",
        "woken",
        "migrations",
        "not running",
        "us",
        "endpoints",
    ]);
    for of in found.cores.iter().take(args.list) {
        table.row([
            of.node.clone(),
            of.core.to_string(),
            of.events.to_string(),
            format!("{:.1} %", of.share * 100.0),
            of.packets_out.to_string(),
            of.packets_in.to_string(),
            of.rpcs.to_string(),
            of.wakes.to_string(),
            of.migrations.to_string(),
            of.not_running.to_string(),
            us(of.not_running_ns as i64),
            of.endpoints.to_string(),
        ]);
    }
    text.table("Cores", &table);
    for of in &found.shared {
        text.line(format!(
            "\nCore {} is shared by {} driving endpoints of {}, if these are on one machine: they did not run {} times, {} us together",
            of.core,
            of.endpoints,
            of.nodes.join(", "),
            of.not_running,
            us(of.not_running_ns as i64)
        ));
    }
    opened.answer(&text, &found)
}
