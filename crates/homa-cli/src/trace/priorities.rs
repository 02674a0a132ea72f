//! `homa trace priorities`: shows the use of priorities, and priority inversions.

use anyhow::Result;
use clap::Args;
use homa_analysis::answers::{InversionSite, Priorities, RecordingPoint, priorities};

use super::answer::{Question, Text, share};
use super::columns::Table;
use super::format::us;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace priorities traces/
  homa trace priorities --json - --node tor traces/

An inversion in a switch: a packet was sent while a packet of a higher queue had been waiting for longer than
one packet's time. At a sender: DATA of a lower priority was sent while a message waited to begin. Homa
deliberately reserves a share for the oldest message, which shows as the latter. A priority one level below
the sent one: the packet shared a datagram with a packet of that level. Any other change: the network rewrites
the DSCP, and queues behind that point cannot tell short messages from long ones.")]
pub struct PrioritiesArgs {
    #[command(flatten)]
    pub question: Question,
    /// Maximum number of inversions to list, the longest waits first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// # Errors
/// A file cannot be read or written.
pub fn run(args: &PrioritiesArgs) -> Result<()> {
    let opened = args.question.open()?;
    let found = priorities(&opened.model, &opened.select);
    let mut text = Text::default();
    text.line(format!(
        "Inversions: {} of {} packets in switches, {} of {} messages at their senders",
        found.switch_inversions, found.switched, found.sender_inversions, found.messages
    ));
    for line in received(&found) {
        text.line(line);
    }
    text.table("What hosts sent and received, and what left the ports of switches", &uses(&found));
    if !found.inversions.is_empty() && args.list > 0 {
        text.table("The longest waits", &list(&found, args.list));
    }
    opened.answer(&text, &found)
}

/// Returns lines of text about the priorities of received packets.
fn received(found: &Priorities) -> Vec<String> {
    let mut lines = Vec::new();
    if found.compared > 0 {
        let changed: u64 = found.changes.iter().map(|change| change.packets).sum();
        let each = found.changes.iter().map(|of| format!("{} to {}: {}", of.sent, of.received, of.packets));
        let each: Vec<String> = each.collect();
        let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) };
        lines.push(format!(
            "Priorities changed on the way: {changed} of {} packets of which both ends are known{each}",
            found.compared
        ));
    }
    if found.received_unknown > 0 {
        lines.push(format!(
            "Received without a priority: {} packets; over UDP and raw IPv6 hosts with --trace-device-times record it",
            found.received_unknown
        ));
    }
    lines
}

fn uses(found: &Priorities) -> Table {
    let mut table =
        Table::new(&["<node", "priority", "DATA", "bytes", "others", "bytes", "of packets", "of bytes"]);
    for node in &found.nodes {
        let sum =
            |of: fn(&homa_analysis::answers::PriorityUse) -> u64| node.priorities.values().map(of).sum();
        let packets = sum(|used| used.data_packets + used.other_packets);
        let bytes = sum(|used| used.data_bytes + used.other_bytes);
        for (priority, used) in node.priorities.iter().rev() {
            table.row([
                match (&node.port, node.seen_as) {
                    (Some(port), _) => format!("{} port {port}", node.node),
                    (None, RecordingPoint::Received) => format!("{} received", node.node),
                    (None, _) => format!("{} sent", node.node),
                },
                priority.to_string(),
                used.data_packets.to_string(),
                used.data_bytes.to_string(),
                used.other_packets.to_string(),
                used.other_bytes.to_string(),
                share(used.data_packets + used.other_packets, packets),
                share(used.data_bytes + used.other_bytes, bytes),
            ]);
        }
    }
    table
}

fn list(found: &Priorities, count: usize) -> Table {
    let mut table = Table::new(&["<where", "at ms", "waited us", "RPC", "priority", "behind", "packets"]);
    for one in found.inversions.iter().take(count) {
        let at = match &one.at {
            InversionSite::Switch { switch, port } => format!("{switch} port {port}"),
            InversionSite::Sender { host } => host.clone(),
        };
        table.row([
            at,
            format!("{:.3}", one.at_ns as f64 / 1e6),
            us(one.waited_ns as i64),
            one.rpc.to_string(),
            one.higher.to_string(),
            one.lower.to_string(),
            one.packets.to_string(),
        ]);
    }
    table
}
