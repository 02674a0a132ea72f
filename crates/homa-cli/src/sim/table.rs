//! Reports as text for a terminal.

use std::fmt::Write;

use homa_report::number::{brief, brief_bytes};
use homa_report::table::TableRow;
use homa_sim::{ClusterReport, QueueLengths, SteadyState};

use super::steady;

/// Maximum number of transports side by side, limited by the width of a terminal.
const SIDE_BY_SIDE: usize = 4;

/// Returns the label of a row in the slowdown table.
pub fn row_label(report: &ClusterReport, row: usize) -> String {
    if report.has_largest && row + 1 == report.bins.len() {
        "largest 1 %".to_owned()
    } else {
        report.bins[row].max_bytes.to_string()
    }
}

/// Formats slowdown by size, with a column per transport.
pub fn slowdowns(reports: &[ClusterReport]) -> String {
    let mut out = String::new();
    for (index, reports) in reports.chunks(SIDE_BY_SIDE).enumerate() {
        if index > 0 {
            out.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = slowdowns_of(&mut out, reports);
    }
    out
}

fn slowdowns_of(out: &mut String, reports: &[ClusterReport]) -> std::fmt::Result {
    let Some(first) = reports.first() else { return Ok(()) };
    write!(out, "{:>12} {:>9}", "", "")?;
    for report in reports {
        write!(out, " |{:^22}", report.transport)?;
    }
    write!(out, "\n{:>12} {:>9}", "bytes up to", "messages")?;
    for _ in reports {
        write!(out, " |{:>6}{:>8}{:>8}", "P50", "P99", "P99.9")?;
    }
    writeln!(out)?;
    for row in 0..first.bins.len() {
        write!(out, "{:>12} {:>9}", row_label(first, row), first.bins[row].count)?;
        for bin in reports.iter().map(|report| &report.bins[row]) {
            let [p50, p99, p999] = match bin.count {
                0 => ["-", "-", "-"].map(str::to_owned),
                _ => [bin.slowdown_p50, bin.slowdown_p99, bin.slowdown_p999].map(brief),
            };
            write!(out, " |{p50:>6}{p99:>8}{p999:>8}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Returns a counter that has different names in different transports, or `None` if this transport has no
/// such counter.
pub fn count(report: &ClusterReport, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| report.transport_counts.get(*name).copied())
}

/// Names of the transports' counters for retransmissions, or for requests for retransmission.
pub const RESENDS: &[&str] = &["resends_sent", "resends", "retransmits", "retransmissions"];

/// Returns the totals of each transport.
pub fn totals(reports: &[ClusterReport]) -> Vec<TableRow> {
    let mut rows: Vec<TableRow> = Vec::new();
    let mut row = |label: &str, value: &dyn Fn(&ClusterReport) -> String| {
        rows.push((label.to_owned(), reports.iter().map(value).collect()));
    };
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    row("messages", &|report| report.started.to_string());
    row("not arrived in time", &|report| {
        let share = report.unfinished as f64 / report.started.max(1) as f64;
        format!("{} ({})", report.unfinished, percent(share))
    });
    row("in steady state", &steady::cell);
    row("completed/offered", &|report| of_steady(report, |steady| brief(steady.completed_over_offered)));
    row("under way, mean", &|report| of_steady(report, |steady| brief_bytes(steady.backlog_bytes)));
    row("under way, change", &|report| of_steady(report, |steady| percent(steady.backlog_rise)));
    row("mean slowdown", &|report| brief(report.slowdown_mean));
    row("shorter half, P50", &|report| half(report, |half| half.slowdown_p50));
    row("shorter half, P99", &|report| half(report, |half| half.slowdown_p99));
    row("goodput, of the links", &|report| percent(report.goodput));
    row("ended in time, of the links", &|report| percent(report.throughput));
    row("downlinks idle", &|report| percent(report.downlink_idle));
    row("downlinks wasted", &|report| percent(report.downlink_wasted));
    type Queue = fn(&ClusterReport) -> QueueLengths;
    let queues: [(&str, Queue); 3] = [
        ("queue to host", |report| report.edge_queue),
        ("queue to spine", |report| report.to_spine_queue),
        ("queue to leaf", |report| report.to_leaf_queue),
    ];
    for (label, queue) in queues {
        if reports.iter().all(|report| queue(report) == QueueLengths::default()) {
            continue;
        }
        row(&format!("{label}, mean"), &|report| brief_bytes(queue(report).mean_bytes));
        row(&format!("{label}, P99"), &|report| brief_bytes(queue(report).p99_bytes as f64));
        row(&format!("{label}, max"), &|report| brief_bytes(queue(report).max_bytes as f64));
    }
    row("dropped packets", &|report| report.dropped.to_string());
    row("lost packets", &|report| report.lost.to_string());
    row("resends", &|report| count(report, RESENDS).map_or("-".to_owned(), |count| count.to_string()));
    for priority in (0..reports.first().map_or(0, |report| report.bytes_by_priority.len())).rev() {
        row(&format!("bytes of priority {priority}"), &|report| {
            let sum: u64 = report.bytes_by_priority.iter().sum();
            percent(report.bytes_by_priority[priority] as f64 / sum.max(1) as f64)
        });
    }
    rows
}

fn of_steady(report: &ClusterReport, value: impl Fn(&SteadyState) -> String) -> String {
    report.steady.as_ref().map_or("-".to_owned(), value)
}

fn half(report: &ClusterReport, value: fn(&homa_workload::ShortSummary) -> f64) -> String {
    report.short_half.as_ref().map_or("-".to_owned(), |half| brief(value(half)))
}
