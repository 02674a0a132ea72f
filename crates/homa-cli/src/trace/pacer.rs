//! `homa trace pacer`: shows how long the pacer delayed packets.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::pacer;

use super::answer::{Question, Text, at};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace pacer traces/
  homa trace pacer --node host-03 --json - traces/

A wait lasts until the host sends DATA again. Backlog: bytes that the link had not yet sent. Held: bytes of the message
that could have been sent.")]
pub struct PacerArgs {
    #[command(flatten)]
    pub question: Question,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &PacerArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = pacer(&opened.model, &opened.select);
    let mut text = Text::default();
    if found.is_empty() {
        text.line("No packet waited for a pacer");
    }
    let mut table = Table::new(&[
        "<node",
        "waits",
        "of the time",
        "us P50",
        "P99",
        "max",
        "backlog us P50",
        "P99",
        "held bytes P50",
        "P99",
    ]);
    for of in &found {
        table.row([
            of.node.clone(),
            of.waits.to_string(),
            format!("{:.2} %", of.share * 100.0),
            at(of.waited_ns, |found| found.p50, us),
            at(of.waited_ns, |found| found.p99, us),
            at(of.waited_ns, |found| found.p100, us),
            at(of.backlog_ns, |found| found.p50, us),
            at(of.backlog_ns, |found| found.p99, us),
            at(of.held_bytes, |found| found.p50, |bytes| bytes.to_string()),
            at(of.held_bytes, |found| found.p99, |bytes| bytes.to_string()),
        ]);
    }
    if !found.is_empty() {
        text.table("Waits for the pacer", &table);
    }
    opened.answer(&text, &serde_json::json!({ "nodes": found }))
}
