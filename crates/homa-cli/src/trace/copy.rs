//! `homa trace copy`: shows the throughput of copying messages in and out.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{MissingEvents, copy};

use super::answer::{Question, Text, percentiles};
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace copy traces/
  homa trace copy --node host-03 traces/

`hand over`: from the application's send until the first packet is created. `burst in`: from reading a burst
until its packets are processed, which includes copying their payload. `taken`: from the last byte until the
application has the message, including its wake-up. Throughputs are of messages of at least 10,000 bytes. A
message's first packets are sent before all of it is copied: its `hand over` throughput is only a bound.")]
pub struct CopyArgs {
    #[command(flatten)]
    pub question: Question,
}

/// # Errors
/// A file cannot be read or written, or the traces lack the required events.
pub fn run(args: &CopyArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = copy(&opened.model, &opened.select);
    let steps = [("hand over", &found.hand_over), ("burst in", &found.bursts_in), ("taken", &found.taken)];
    if steps.iter().all(|(_, step)| step.count == 0) {
        return Err(opened.missing_error(MissingEvents::Application));
    }
    let mut text = Text::default();
    let mut columns: Vec<_> = steps.iter().map(|(name, step)| (*name, step.took_ns)).collect();
    text.table("Times in us", &percentiles(&columns, us));
    columns = steps.iter().map(|(name, step)| (*name, step.large_mbps)).collect();
    let gbps = |mbps: i64| format!("{:.2}", mbps as f64 / 1e3);
    text.table("Throughput of 10,000 bytes and more in Gbit/s", &percentiles(&columns, gbps));
    text.missing_events(&found.missing_events);
    opened.answer(&text, &found)
}
