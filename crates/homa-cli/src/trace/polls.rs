//! `homa trace polls`: shows unsuccessful polling, and bottlenecks.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{Bottleneck, MissingEvents, polls};

use super::answer::{Question, Text};
use super::columns::Table;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace polls traces/
  homa trace polls --from 10ms --until 20ms traces/

A host is saturated if almost every poll finds packets. Hosts that are more often client than server count as
clients.")]
pub struct PollsArgs {
    #[command(flatten)]
    pub question: Question,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &PollsArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = polls(&opened.model, &opened.select);
    if found.nodes.is_empty() {
        return Err(opened.missing_error(MissingEvents::Bursts));
    }
    let mut text = Text::default();
    text.line(match found.bottleneck {
        Bottleneck::Clients => {
            "The clients are the bottleneck: most polls of servers find nothing, those of clients do"
        }
        Bottleneck::Servers => {
            "The servers are the bottleneck: most polls of clients find nothing, those of servers do"
        }
        Bottleneck::Both => "Clients and servers are busy most of the time",
        Bottleneck::Neither => "Neither is the bottleneck: most polls of both find nothing",
        Bottleneck::Unknown => "The bottleneck is unknown: only one side has polls in these traces",
    });
    let mut table =
        Table::new(&["<node", "as client", "as server", "full", "empty", "of all", "processing", "sleeps"]);
    for of in &found.nodes {
        table.row([
            of.node.clone(),
            of.as_client.to_string(),
            of.as_server.to_string(),
            of.full.to_string(),
            of.empty.to_string(),
            format!("{:.1} %", of.empty_share * 100.0),
            format!("{:.1} %", of.busy_share * 100.0),
            of.sleeps.to_string(),
        ]);
    }
    text.table("Polls, and the share of the time in which bursts were processed", &table);
    opened.answer(&text, &found)
}
