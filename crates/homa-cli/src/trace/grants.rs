//! `homa trace grants`: shows the delay, recipients and use of grants.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{Grants, MissingEvents, ReceiverGrants, grants};
use homa_report::units::duration_ns;

use super::answer::{LinkQuestion, Text, at, percentiles, rate_line};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace grants traces/
  homa trace grants --unused 50us --rate 25gbit --node host-03 traces/

Late: the sender had been waiting for the grant. Wasted: bytes that the receiver's link could have carried
meanwhile and did not. Unused: the sender did not send the granted bytes for longer than --unused.")]
pub struct GrantsArgs {
    #[command(flatten)]
    pub asked: LinkQuestion,
    /// A grant is of no use if it is unused for this long, as in 100us
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration_ns)]
    pub unused: u64,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &GrantsArgs) -> Result<()> {
    let opened = args.asked.question.open()?;
    let rate = args.asked.link.rate(&opened.model);
    let found = grants(&opened.model, &opened.select, rate, args.unused);
    if found.pairs.is_empty() {
        return Err(opened.missing_error(MissingEvents::Grants));
    }
    let mut text = Text::default();
    text.line(rate_line(rate));
    let columns =
        [("way", found.way_ns), ("sender waited", found.waited_ns), ("used after", found.used_after_ns)];
    text.table("Times in us", &percentiles(&columns, us));
    text.table("Who was granted what", &pairs(&found, args.asked.list));
    text.table("Receivers", &receivers(&found.receivers));
    text.missing_events(&found.missing_events);
    opened.answer(&text, &found)
}

fn pairs(found: &Grants, count: usize) -> Table {
    let mut table = Table::new(&[
        "<receiver < sender",
        "messages",
        "grants",
        "bytes",
        "late",
        "waited us",
        "wasted bytes",
        "unused",
        "unused bytes",
    ]);
    for pair in found.pairs.iter().take(count) {
        table.row([
            format!("{} < {}", pair.receiver, pair.sender),
            pair.messages.to_string(),
            pair.grants.to_string(),
            pair.bytes.to_string(),
            pair.late.to_string(),
            us(pair.waited_ns as i64),
            pair.wasted_bytes.to_string(),
            pair.unused.to_string(),
            pair.unused_bytes.to_string(),
        ]);
    }
    table
}

fn receivers(receivers: &[ReceiverGrants]) -> Table {
    let mut table =
        Table::new(&["<receiver", "grants", "messages at once", "P99", "max", "bytes ahead P50", "P99"]);
    for of in receivers {
        table.row([
            of.node.clone(),
            of.grants.to_string(),
            format!("{:.2}", of.messages.mean),
            of.messages.p99.to_string(),
            of.messages.max.to_string(),
            at(of.ahead_bytes, |found| found.p50, |bytes| bytes.to_string()),
            at(of.ahead_bytes, |found| found.p99, |bytes| bytes.to_string()),
        ]);
    }
    table
}
