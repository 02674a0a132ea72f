//! `homa switch top`: a live view of a switch.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use homa_report::output;
use homa_switch::{PortSnapshot, QueueSnapshot, Snapshot};

use super::args::TopArgs;
use super::table;

/// Prints the changes after each interval.
pub fn run(args: &TopArgs) -> Result<()> {
    let mut before = homa_switch::ask(&args.control)?;
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        thread::sleep(Duration::from_nanos(args.interval));
        let now = match homa_switch::ask(&args.control) {
            // It is not an error if the switch exits while it is being watched.
            Err(_) if looks > 0 && args.count.is_none() => return Ok(()),
            asked => asked?,
        };
        let change = change(&before, &now);
        if args.json {
            let line = serde_json::to_string(&change).context("cannot write the counters as JSON")? + "\n";
            output::print(line.as_bytes())?;
        } else {
            output::redraw(&screen(&change))?;
        }
        before = now;
        looks += 1;
    }
    Ok(())
}

fn screen(change: &Snapshot) -> String {
    let mut text = table::head();
    for port in &change.ports {
        table::line(&mut text, &port.name, &table::port_cells(port, port.utilisation), &port.depth);
    }
    text + &table::others(change) + "\n"
}

/// Returns the difference between two snapshots. Queue depths are still those since the switch was created,
/// because distributions cannot be subtracted.
fn change(before: &Snapshot, now: &Snapshot) -> Snapshot {
    let time_ns = now.time_ns.saturating_sub(before.time_ns);
    let ports = now.ports.iter().zip(&before.ports).map(|(now, before)| {
        let busy_ns = now.busy_ns.saturating_sub(before.busy_ns);
        let queues = now.queues.iter().zip(&before.queues).map(|(now, before)| QueueSnapshot {
            frames: now.frames - before.frames,
            bytes: now.bytes - before.bytes,
            dropped_frames: now.dropped_frames - before.dropped_frames,
            dropped_bytes: now.dropped_bytes - before.dropped_bytes,
            marked_frames: now.marked_frames - before.marked_frames,
            depth: now.depth,
        });
        PortSnapshot {
            received_frames: now.received_frames - before.received_frames,
            received_bytes: now.received_bytes - before.received_bytes,
            receive_drops: now.receive_drops - before.receive_drops,
            too_long: now.too_long - before.too_long,
            refused: now.refused - before.refused,
            lost: now.lost - before.lost,
            utilisation: busy_ns as f64 / time_ns.max(1) as f64,
            busy_ns,
            queues: queues.collect(),
            ..now.clone()
        }
    });
    Snapshot {
        time_ns,
        flooded: now.flooded - before.flooded,
        filtered: now.filtered - before.filtered,
        malformed: now.malformed - before.malformed,
        no_memory: now.no_memory - before.no_memory,
        rounds: now.rounds - before.rounds,
        busy_rounds: now.busy_rounds - before.busy_rounds,
        ports: ports.collect(),
        ..now.clone()
    }
}
