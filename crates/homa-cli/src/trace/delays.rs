//! `homa trace delays`: the delay of packets in each stage.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{Bursts, DelayTable, MissingEvents, Stage, delays};
use homa_analysis::model::Direction;

use super::answer::{Question, Text, at, percentiles};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace delays traces/
  homa trace delays --pairs --node host-03 traces/
  homa trace delays --json - client.trace server.trace

Stages: `out`, from creation until the burst goes to the driver; `driver`, until the device has sent the
packet or the driver has returned; `network`, until the receiver's device has the packet, or the packet has
left the last switch; `wake-up`, until the reading thread runs; `gap`, until the packet is read; `batch`,
until its turn in its burst. They add up to `total`. `rest` is the processing time of the burst after the
packet. A stage without time stamps is shown as `-`, and its time is included in the next stage with time
stamps.")]
pub struct DelaysArgs {
    #[command(flatten)]
    pub question: Question,
    /// Also list each pair of nodes
    #[arg(long)]
    pub pairs: bool,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &DelaysArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = delays(&opened.model, &opened.select, args.pairs);
    if found.tables.is_empty() && found.bursts.is_empty() {
        return Err(opened.missing_error(MissingEvents::BothEnds));
    }
    let mut text = Text::default();
    for table in &found.tables {
        let columns = table.stages.iter().map(|(stage, took)| (name(*stage), *took));
        text.table(&heading(table), &percentiles(&columns.collect::<Vec<_>>(), us));
    }
    if !found.bursts.is_empty() {
        text.table("Bursts: packets, and times in us, at P50 / P99", &bursts(&found.bursts));
    }
    text.missing_events(&found.missing_events);
    opened.answer(&text, &found)
}

fn heading(table: &DelayTable) -> String {
    let way = match table.direction {
        Direction::ToServer => "client -> server",
        Direction::ToClient => "server -> client",
    };
    let count = table.stages[&Stage::Total].map_or(0, |total| total.count);
    let of = match (&table.from, &table.to) {
        (Some(from), Some(to)) => format!(", {from} -> {to}"),
        _ => String::new(),
    };
    format!("{} packets, {way}{of}: {count} lives in us", table.packets.to_ascii_uppercase())
}

fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Out => "out",
        Stage::Driver => "driver",
        Stage::Network => "network",
        Stage::WakeUp => "wake-up",
        Stage::Gap => "gap",
        Stage::Batch => "batch",
        Stage::Total => "total",
        Stage::Rest => "rest",
    }
}

fn bursts(bursts: &[Bursts]) -> Table {
    let mut table = Table::new(&[
        "<node",
        "bursts in",
        "packets",
        "gap",
        "processing",
        "bursts out",
        "packets",
        "driver",
    ]);
    for of in bursts {
        let count =
            |column: homa_analysis::answers::Column| column.map_or(0, |found| found.count).to_string();
        let both = |column, show: fn(i64) -> String| {
            format!("{} / {}", at(column, |found| found.p50, show), at(column, |found| found.p99, show))
        };
        let number = |value: i64| value.to_string();
        table.row([
            of.node.clone(),
            count(of.packets_in),
            both(of.packets_in, number),
            both(of.gap_in_ns, us),
            both(of.processing_ns, us),
            count(of.packets_out),
            both(of.packets_out, number),
            both(of.driver_ns, us),
        ]);
    }
    table
}
