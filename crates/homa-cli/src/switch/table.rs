//! The counters of a switch as tables.

use std::fmt::Write;

use homa_switch::{DepthSummary, PortSnapshot, Snapshot};

/// Formats the counters since the switch was created, with a line per port and a line per queue that had
/// traffic.
pub fn whole(snapshot: &Snapshot) -> String {
    let mut text = head();
    for port in &snapshot.ports {
        line(&mut text, &port.name, &port_cells(port, port.utilisation), &port.depth);
        for (number, queue) in port.queues.iter().enumerate().rev() {
            if queue.frames + queue.dropped_frames > 0 {
                let cells = [
                    String::new(),
                    queue.frames.to_string(),
                    queue.bytes.to_string(),
                    String::new(),
                    queue.dropped_frames.to_string(),
                    queue.marked_frames.to_string(),
                ];
                line(&mut text, &format!("  priority {number}"), &cells, &queue.depth);
            }
        }
    }
    let _ = writeln!(text, "{}", others(snapshot));
    text
}

/// Returns the heading for [`line`].
pub fn head() -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<14}{:>12}{:>12}{:>16}{:>8}{:>10}{:>10}   queued bytes: mean, P99, max",
        "port", "frames in", "out", "bytes out", "used %", "dropped", "marked"
    );
    text
}

/// Writes the line for a port or a queue.
pub fn line(text: &mut String, name: &str, cells: &[String; 6], depth: &DepthSummary) {
    let [received, frames, bytes, used, dropped, marked] = cells;
    let _ = writeln!(
        text,
        "{name:<14}{received:>12}{frames:>12}{bytes:>16}{used:>8}{dropped:>10}{marked:>10}   {:>10.0}{:>10}{:>10}",
        depth.mean_bytes, depth.p99_bytes, depth.max_bytes
    );
}

/// Returns the cells for a port. `used` is the utilization of the port's link.
pub fn port_cells(port: &PortSnapshot, used: f64) -> [String; 6] {
    let sum =
        |of: fn(&homa_switch::QueueSnapshot) -> u64| port.queues.iter().map(of).sum::<u64>().to_string();
    [
        port.received_frames.to_string(),
        sum(|queue| queue.frames),
        sum(|queue| queue.bytes),
        format!("{:.1}", 100.0 * used),
        sum(|queue| queue.dropped_frames),
        sum(|queue| queue.marked_frames),
    ]
}

/// Formats the remaining counters that are not zero.
pub fn others(snapshot: &Snapshot) -> String {
    let of_ports = |of: fn(&PortSnapshot) -> u64| snapshot.ports.iter().map(of).sum::<u64>();
    let counts = [
        (snapshot.flooded, "frames to all ports"),
        (snapshot.filtered, "for the port of their arrival"),
        (of_ports(|port| port.receive_drops), "too fast for the switch"),
        (
            of_ports(|port| port.too_long),
            "longer than the MTU (the sender's device should have divided them)",
        ),
        (of_ports(|port| port.refused), "refused by their device"),
        (of_ports(|port| port.lost), "dropped by --loss"),
        (snapshot.no_memory, "without memory"),
        (snapshot.malformed, "malformed"),
    ];
    let said = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let said: Vec<String> = said.collect();
    let time = snapshot.time_ns as f64 / 1e9;
    format!(
        "{time:.1} s, {} addresses{}{}",
        snapshot.addresses,
        if said.is_empty() { "" } else { "; " },
        said.join(", ")
    )
}
