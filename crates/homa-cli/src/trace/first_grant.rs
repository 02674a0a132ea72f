//! `homa trace first-grant`: shows the time until the first grant.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{MissingEvents, first_grant};

use super::answer::{Question, Text, at};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace first-grant traces/
  homa trace first-grant --json - --node host-03 traces/

`round`: at the sender, from a message's first packet until the arrival of its first grant. `granting`: at the
receiver, from the first packet until the grant is sent. `way`: delay of the grant in the network.")]
pub struct FirstGrantArgs {
    #[command(flatten)]
    pub question: Question,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &FirstGrantArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = first_grant(&opened.model, &opened.select);
    if found.is_empty() {
        return Err(opened.missing_error(MissingEvents::Grants));
    }
    let mut text = Text::default();
    let mut table = Table::new(&[
        "<bytes up to",
        "messages",
        "waited",
        "round P10",
        "P50",
        "P90",
        "P99",
        "granting P50",
        "P99",
        "way P50",
        "P99",
    ]);
    for of in &found {
        let bytes = if of.up_to_bytes == u32::MAX { "any".to_owned() } else { of.up_to_bytes.to_string() };
        table.row([
            bytes,
            of.messages.to_string(),
            of.waited.to_string(),
            at(of.round_ns, |found| found.p10, us),
            at(of.round_ns, |found| found.p50, us),
            at(of.round_ns, |found| found.p90, us),
            at(of.round_ns, |found| found.p99, us),
            at(of.granting_ns, |found| found.p50, us),
            at(of.granting_ns, |found| found.p99, us),
            at(of.way_ns, |found| found.p50, us),
            at(of.way_ns, |found| found.p99, us),
        ]);
    }
    text.table("First grants, times in us", &table);
    opened.answer(&text, &serde_json::json!({ "sizes": found }))
}
