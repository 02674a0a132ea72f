//! `homa trace throughput`: shows the bytes that each host sent and received over time.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{NodeThroughput, Throughput, throughput};
use homa_report::units::duration_ns;

use super::answer::{Question, Text, share};
use super::columns::Table;

/// Characters for bars, in order of height.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Number of bars in a line, next to the numbers.
const LINE: usize = 48;
/// Maximum number of intervals to print individually. If there are more, use the JSON output.
const PRINTED: usize = 2_000;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace throughput traces/                             means and lines of bars
  homa trace throughput --interval 100us --table --node host-03 traces/
  homa trace throughput --json rates.json traces/

Bytes are those of Homa's packets, without lower headers. Goodput is payload that was received for the first
time. The highest bar in a line is the maximum of all nodes, which is printed.")]
pub struct ThroughputArgs {
    #[command(flatten)]
    pub question: Question,
    /// The length of an interval, as in 100us
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = interval)]
    pub interval: u64,
    /// Print each interval
    #[arg(long)]
    pub table: bool,
}

fn interval(text: &str) -> Result<u64, String> {
    match duration_ns(text)? {
        0 => Err("use more than 0".to_owned()),
        ns => Ok(ns),
    }
}

/// # Errors
/// A file cannot be read or written.
pub fn run(args: &ThroughputArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = throughput(&opened.model, &opened.select, args.interval);
    let highest =
        |node: &NodeThroughput| node.out_bytes.iter().chain(&node.in_bytes).copied().max().unwrap_or(0);
    let highest = found.nodes.iter().map(highest).max().unwrap_or(0);
    let mut text = Text::default();
    text.line(format!(
        "{} intervals of {} us; the highest bar is {:.3} Gbit/s",
        found.intervals,
        found.interval_ns as f64 / 1e3,
        found.gbps(highest)
    ));
    text.table("Means in Gbit/s", &means(&found, highest));
    if args.table {
        for node in &found.nodes {
            text.table(&format!("{}: Gbit/s from then on", node.node), &intervals(&found, node));
        }
        if found.intervals > PRINTED {
            text.line(format!(
                "\nnote: the first {PRINTED} intervals of {}; --json has all",
                found.intervals
            ));
        }
    }
    opened.answer(&text, &found)
}

fn means(found: &Throughput, highest: u64) -> Table {
    let mut table =
        Table::new(&["<node", "out", "in", "goodput", "sent again", "<out over time", "<in over time"]);
    for node in &found.nodes {
        let sum = |bytes: &[u64]| bytes.iter().sum::<u64>();
        let mean = |bytes: &[u64]| format!("{:.3}", found.gbps(sum(bytes)) / found.intervals.max(1) as f64);
        table.row([
            node.node.clone(),
            mean(&node.out_bytes),
            mean(&node.in_bytes),
            mean(&node.goodput_bytes),
            share(sum(&node.again_bytes), sum(&node.out_bytes)),
            bars(&node.out_bytes, highest),
            bars(&node.in_bytes, highest),
        ]);
    }
    table
}

fn intervals(found: &Throughput, node: &NodeThroughput) -> Table {
    let mut table = Table::new(&["<ms", "out", "in", "goodput", "sent again"]);
    for index in 0..found.intervals.min(PRINTED) {
        let begin_ns = found.from_ns + index as u64 * found.interval_ns;
        let columns = [&node.out_bytes, &node.in_bytes, &node.goodput_bytes, &node.again_bytes];
        let cells = columns.map(|bytes| format!("{:.3}", found.gbps(bytes[index])));
        table.row(std::iter::once(format!("{:.3}", begin_ns as f64 / 1e6)).chain(cells));
    }
    table
}

/// Draws a line of bars. Each bar shows the mean of as many intervals as needed to fit all of them into the
/// line.
fn bars(bytes: &[u64], highest: u64) -> String {
    let each = bytes.len().div_ceil(LINE).max(1);
    let bar = |part: &[u64]| {
        let mean = part.iter().sum::<u64>() as f64 / part.len() as f64;
        BARS[((mean / highest.max(1) as f64 * 8.0).ceil() as usize).min(8)]
    };
    bytes.chunks(each).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_share() {
        assert_eq!(bars(&[0, 1, 40, 80], 80), " ▁▄█");
        assert_eq!(bars(&vec![80; 1_000], 80).chars().count(), 1_000_usize.div_ceil(21));
        assert!(interval("0").is_err() && interval("5us") == Ok(5_000));
    }
}
