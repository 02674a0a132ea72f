//! `homa trace lost`: lists lost packets.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{LossDetection, LossSite, Losses, lost};
use homa_switch::DropReason;

use super::answer::{Question, Text, format_us, percentiles, share};
use super::columns::Table;
use super::format::{packet_type, us};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace lost traces/
  homa trace lost --list 100 --node host-03 traces/

A packet is lost if a switch or its receiver dropped it, or if its receiver's trace continues for 20 ms
without it. `found` is how the loss was detected: the receiver requested the packet (resend), or the sender
retransmitted it. Cost: how much earlier the message would have been complete.")]
pub struct LostArgs {
    #[command(flatten)]
    pub question: Question,
    /// Maximum number of losses to list, the most costly first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// # Errors
/// A file cannot be read or written.
pub fn run(args: &LostArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = lost(&opened.model, &opened.select);
    let mut text = Text::default();
    let count = found.losses.len() as u64;
    text.line(format!(
        "{count} of {} packets were lost ({}); the traces do not show the end of {}",
        found.packets,
        share(count, found.packets),
        found.unknown
    ));
    if count > 0 {
        text.table("Where", &places(&found));
        let columns = [
            ("found after", found.found_after_ns),
            ("repaired after", found.repaired_after_ns),
            ("cost", found.cost_ns),
        ];
        text.table("Times in us", &percentiles(&columns, us));
        text.table("The most costly losses, times in us", &list(&found, args.list));
    }
    opened.answer(&text, &found)
}

fn place(place: &LossSite) -> String {
    match place {
        LossSite::Switch { switch, port, queue, reason } => {
            format!("{switch}, port {port}, queue {queue}: {}", reason_name(*reason))
        }
        LossSite::Host { host, reason: None } => format!("{host} dropped it"),
        LossSite::Host { host, reason: Some(reason) } => format!("{host} dropped it: {reason}"),
        LossSite::Between { after, before } => format!("between {after} and {before}"),
    }
}

fn reason_name(reason: u16) -> &'static str {
    const FULL: u16 = DropReason::Full as u16;
    const LOST: u16 = DropReason::Lost as u16;
    const DEVICE: u16 = DropReason::Device as u16;
    match reason {
        FULL => "its buffer was full",
        LOST => "dropped on purpose",
        DEVICE => "the device refused it",
        _ => "dropped",
    }
}

fn places(found: &Losses) -> Table {
    let mut table = Table::new(&["<where", "packets", "bytes"]);
    for one in &found.places {
        table.row([place(&one.place), one.packets.to_string(), one.bytes.to_string()]);
    }
    table
}

fn list(found: &Losses, count: usize) -> Table {
    let mut table = Table::new(&[
        "<packet",
        "RPC",
        "offset",
        "<from > to",
        "at ms",
        "<where",
        "<found",
        "after",
        "repaired",
        "cost",
    ]);
    let mut losses: Vec<_> = found.losses.iter().collect();
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.cost_ns));
    for loss in losses.into_iter().take(count) {
        let how = match loss.found {
            LossDetection::Resend => "resend",
            LossDetection::Sender => "sender",
            LossDetection::Never => "-",
        };
        table.row([
            packet_type(loss.packet_type).to_owned(),
            loss.rpc.to_string(),
            loss.offset.to_string(),
            format!("{} > {}", loss.from, loss.to),
            format!("{:.3}", loss.at_ns as f64 / 1e6),
            place(&loss.place),
            how.to_owned(),
            format_us(loss.found_after_ns),
            format_us(loss.repaired_after_ns),
            format_us(loss.cost_ns),
        ]);
    }
    table
}
