//! `homa trace incoming`: shows the bytes that receivers had granted but not yet received.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{MissingEvents, incoming};

use super::answer::{Link, Question, Text, rate_line};
use super::columns::Table;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace incoming traces/
  homa trace incoming --rate 25gbit --node host-03 traces/

Counts bytes of messages that had a grant; shares and percentiles are of time.")]
pub struct IncomingArgs {
    #[command(flatten)]
    pub question: Question,
    #[command(flatten)]
    pub link: Link,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &IncomingArgs) -> Result<()> {
    let opened = args.question.open()?;
    let rate = args.link.rate(&opened.model);
    let found = incoming(&opened.model, &opened.select, rate);
    if found.receivers.is_empty() {
        return Err(opened.missing_error(MissingEvents::Grants));
    }
    let mut text = Text::default();
    text.line(rate_line(rate));
    let mut table = Table::new(&[
        "<receiver",
        "bytes",
        "P50",
        "P99",
        "max",
        "of the time",
        "link use then",
        "at all times",
    ]);
    for of in &found.receivers {
        let used = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        table.row([
            of.node.clone(),
            format!("{:.0}", of.bytes.mean),
            of.bytes.p50.to_string(),
            of.bytes.p99.to_string(),
            of.bytes.max.to_string(),
            used(Some(of.share)),
            used(of.link_use),
            used(of.link_use_all),
        ]);
    }
    text.table("Granted and not received", &table);
    opened.answer(&text, &found)
}
