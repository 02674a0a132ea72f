//! `homa trace decompose`: the causes of each packet's delay.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{DelayedPacket, MissingEvents, decompose};

use super::answer::{LinkQuestion, Text, format_us, percentiles, rate_line, share};
use super::columns::Table;
use super::format::{packet_type, us};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace decompose traces/
  homa trace decompose --rate 25gbit --list 50 --json - traces/

The extra delay is a packet's delay beyond the best case for its length on its path. The best case is known if
at least three undelayed packets took the same time and none took less. The sender's part is the data queued
there divided by the link's rate. `receive` is the packet's wait in its burst beyond the minimum. `poll` is
the time in which the receiver's link brought nothing, at most since its queue was last seen empty. The
remainder is the switch's part, which is checked if switches recorded traces.")]
pub struct DecomposeArgs {
    #[command(flatten)]
    pub asked: LinkQuestion,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &DecomposeArgs) -> Result<()> {
    let (opened, rate) = args.asked.open()?;
    let Some(found) = decompose(&opened.model, &opened.select, rate, args.asked.list) else {
        return Err(opened.missing_error(MissingEvents::BothEnds));
    };
    let mut text = Text::default();
    text.line(rate_line(Some(rate)));
    let of = |ns: i64| share(ns.max(0) as u64, found.sums.extra_ns.max(0) as u64);
    let sums = found.sums;
    text.line(format!(
        "{} packets; of all extra delay the sender has {}, switches {}, polling {}, receiving {}; {} sums are wrong",
        found.packets,
        of(sums.sender_ns),
        of(sums.switch_ns),
        of(sums.poll_ns),
        of(sums.receive_ns),
        found.unequal
    ));
    if found.left_out > 0 {
        text.line(format!(
            "{} packets of {} paths are left out: no three packets there took the same time, so that all may have \
             been delayed; record more events (--trace-records), or record at a lower load",
            found.left_out, found.paths_left_out
        ));
    }
    let columns = [
        ("extra", found.extra_ns),
        ("sender", found.sender_ns),
        ("switch", found.switch_ns),
        ("poll", found.poll_ns),
        ("receive", found.receive_ns),
    ];
    text.table("Extra delay in us", &percentiles(&columns, us));
    if let Some(check) = found.check {
        text.line(format!(
            "\nSwitches recorded {} delays of a packet's time and more: true median {} us, found {} us; error {:.1} % at the median, {:.1} % at \
             P90; sum {:.3} times the true one",
            check.packets,
            us(check.true_p50_ns),
            us(check.found_p50_ns),
            check.error_p50_percent,
            check.error_p90_percent,
            check.sum_ratio
        ));
    }
    if !found.worst.is_empty() {
        text.table("The most delayed packets, in us", &worst(&found.worst));
    }
    text.missing_events(&found.missing_events);
    opened.answer(&text, &found)
}

fn worst(worst: &[DelayedPacket]) -> Table {
    let mut table = Table::new(&[
        "<packet",
        "RPC",
        "offset",
        "bytes",
        "<from > to",
        "at ms",
        "delay",
        "best",
        "sender",
        "switch",
        "poll",
        "receive",
        "true switch",
    ]);
    for of in worst {
        table.row([
            packet_type(of.packet_type).to_owned(),
            of.rpc.to_string(),
            of.offset.to_string(),
            of.length.to_string(),
            format!("{} > {}", of.from, of.to),
            format!("{:.3}", of.sent_ns as f64 / 1e6),
            us(of.delay_ns),
            us(of.best_ns),
            us(of.parts.sender_ns),
            us(of.parts.switch_ns),
            us(of.parts.poll_ns),
            us(of.parts.receive_ns),
            format_us(of.true_switch_ns),
        ]);
    }
    table
}
