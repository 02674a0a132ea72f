//! `homa trace rtt-bytes`: shows how many bytes must be in flight on each path, and packet delays by length.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{MissingEvents, PathBytes, rtt_bytes};

use super::answer::{LinkQuestion, Text, at, rate_line};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace rtt-bytes traces/
  homa trace rtt-bytes --rate 25gbit --node client --node server traces/

Round: at the sender, from sending a packet until the arrival of the grant that it caused. RTTbytes: the
payload that the link carries in the round of 90 % of the grants, in whole packets; with fewer bytes in
flight, a single large message waits for grants. Record the trace with one large message at a time. The line A
x bytes + B is fitted to the minimum delay of each length.")]
pub struct RttBytesArgs {
    #[command(flatten)]
    pub asked: LinkQuestion,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &RttBytesArgs) -> Result<()> {
    let (opened, rate) = args.asked.open()?;
    let found = rtt_bytes(&opened.model, &opened.select, rate);
    if found.paths.is_empty() {
        return Err(opened.missing_error(MissingEvents::BothEnds));
    }
    let mut text = Text::default();
    text.line(rate_line(Some(rate)));
    text.table("RTTbytes by path, rounds in us", &rounds(&found.paths, args.asked.list));
    text.table(
        "Delay = A x bytes + B through the least of each length",
        &lines(&found.paths, args.asked.list),
    );
    if found.paths.iter().all(|path| path.round_ns.is_none()) {
        text.missing_events(&[MissingEvents::Grants]);
    }
    opened.answer(&text, &found)
}

fn rounds(paths: &[PathBytes], count: usize) -> Table {
    let mut table = Table::new(&[
        "<sender > receiver",
        "messages",
        "waited",
        "grants",
        "round P0",
        "P50",
        "P90",
        "P99",
        "bytes P50",
        "P99",
        "RTTbytes",
    ]);
    for of in paths.iter().take(count) {
        table.row([
            format!("{} > {}", of.sender, of.receiver),
            of.messages.to_string(),
            of.waited.to_string(),
            of.round_ns.map_or(0, |found| found.count).to_string(),
            at(of.round_ns, |found| found.p0, us),
            at(of.round_ns, |found| found.p50, us),
            at(of.round_ns, |found| found.p90, us),
            at(of.round_ns, |found| found.p99, us),
            at(of.bytes, |found| found.p50, |bytes| bytes.to_string()),
            at(of.bytes, |found| found.p99, |bytes| bytes.to_string()),
            of.rtt_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ]);
    }
    table
}

fn lines(paths: &[PathBytes], count: usize) -> Table {
    let mut table = Table::new(&[
        "<sender > receiver",
        "packets",
        "lengths",
        "A ns/byte",
        "B us",
        "residual us P50",
        "P99",
        "max",
    ]);
    for of in paths.iter().take(count) {
        let line =
            |value: fn(homa_analysis::answers::Line) -> String| of.line.map_or_else(|| "-".to_owned(), value);
        table.row([
            format!("{} > {}", of.sender, of.receiver),
            of.packets.to_string(),
            of.lengths.to_string(),
            line(|line| format!("{:.3}", line.ns_per_byte)),
            line(|line| format!("{:.2}", line.base_ns / 1e3)),
            at(of.residual_ns, |found| found.p50, us),
            at(of.residual_ns, |found| found.p99, us),
            at(of.residual_ns, |found| found.p100, us),
        ]);
    }
    table
}
