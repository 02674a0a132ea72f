//! The results as text for a terminal of 110 columns.

use std::fmt::Write;

use super::comparisons::Comparison;
use super::results::{Config, Limits, Metric, Row};
use super::targets::{Basis, Verdict};
use crate::engine::summary::Summary;

/// A column: its header, its width, the factor from the metric's unit, and the metric.
type Column = (&'static str, usize, f64, Metric);

const MEDIANS: [Column; 14] = [
    ("P50", 7, 1.0, Metric::PollingP50),
    ("P99", 7, 1.0, Metric::PollingP99),
    ("P50", 8, 1.0, Metric::SleepingP50),
    ("P99", 7, 1.0, Metric::SleepingP99),
    ("P50", 8, 1.0, Metric::LowLatencyP50),
    ("P99", 7, 1.0, Metric::LowLatencyP99),
    ("1", 7, 1e-3, Metric::Rpcs1),
    ("8", 6, 1e-3, Metric::Rpcs8),
    ("32", 6, 1e-3, Metric::Rpcs32),
    ("128", 6, 1e-3, Metric::Rpcs128),
    ("Gbps", 6, 1.0, Metric::Bulk),
    ("RPC", 7, 1.0, Metric::CpuRpc),
    ("pkt", 6, 1.0, Metric::CpuPacket),
    ("1MB", 6, 1.0, Metric::CpuBulkPacket),
];

/// The metrics in the tables of ranges and ratios: header, factor from the metric's unit, metric.
const CHOSEN: [(&str, f64, Metric); 6] = [
    ("polling us", 1.0, Metric::PollingP50),
    ("sleeping us", 1.0, Metric::SleepingP50),
    ("k RPCs/s 1", 1e-3, Metric::Rpcs1),
    ("k RPCs/s 32", 1e-3, Metric::Rpcs32),
    ("1 MB Gbps", 1.0, Metric::Bulk),
    ("CPU ns/RPC", 1.0, Metric::CpuRpc),
];

/// The parts of the page: title, and the metrics of the part's table.
pub const PARTS: [(&str, &[Metric]); 5] = [
    ("Highest rate of workloads over loopback, Gbps", &Metric::MAXIMA),
    (
        "Round trips of 100 bytes, microseconds",
        &[
            Metric::PollingP50,
            Metric::PollingP99,
            Metric::SleepingP50,
            Metric::SleepingP99,
            Metric::LowLatencyP50,
            Metric::LowLatencyP99,
        ],
    ),
    ("RPCs of 100 bytes per second", &[Metric::Rpcs1, Metric::Rpcs8, Metric::Rpcs32, Metric::Rpcs128]),
    ("Messages of 1 MB, Gbps", &[Metric::Bulk]),
    ("Processor time, nanoseconds", &[Metric::CpuRpc, Metric::CpuPacket, Metric::CpuBulkPacket]),
];

/// Width of the names of rows.
const NAME: usize = 16;

/// Width of the names of rows in the comparison with TCP.
const COMPARED: usize = 18;

/// Renders the comparison with TCP, then medians, ranges, ratios and figures of all rows.
pub fn render(limits: &Limits) -> String {
    let mut text = String::new();
    let out = &mut text;
    // Writing to a string cannot fail.
    let _ = head(out, limits)
        .and_then(|()| comparisons(out, limits))
        .and_then(|()| medians(out, limits))
        .and_then(|()| ranges(out, limits))
        .and_then(|()| ratios(out, limits, "bare/udp"))
        .and_then(|()| ratios(out, limits, "tcp"))
        .and_then(|()| skipped(out, limits))
        .and_then(|()| figures(out, limits));
    text
}

fn head(out: &mut String, limits: &Limits) -> std::fmt::Result {
    let config = &limits.config;
    let place = place(config);
    writeln!(
        out,
        "\nOver {place}.\nOne client thread, one server thread, each on processors of its own. Messages of 100 bytes and \
         of 1 MB.\nMedians of {} repetitions in turn, {} ms each.",
        config.repetitions, config.slice_ms
    )?;
    for note in &config.notes {
        writeln!(out, "Note: {note}.")?;
    }
    Ok(())
}

/// Describes the network between clients and servers.
pub fn place(config: &Config) -> String {
    match config.mtu {
        Some(mtu) => {
            let one_by_one = if config.wire { ", packets one by one as on a wire" } else { "" };
            format!("a veth pair between two network namespaces, MTU {mtu}{one_by_one}")
        }
        None => "loopback".to_owned(),
    }
}

/// Returns the rows that have a value in at least one column.
fn measured(limits: &Limits) -> impl Iterator<Item = &Row> {
    let has_value = |row: &Row| MEDIANS.iter().any(|(.., metric)| row.get(*metric).is_some());
    limits.rows.iter().filter(move |row| has_value(row))
}

fn comparisons(out: &mut String, limits: &Limits) -> std::fmt::Result {
    if limits.comparisons.is_empty() {
        return Ok(());
    }
    let target = if limits.config.targets.is_some() { "target" } else { "" };
    let heads =
        format!("\n{:COMPARED$}{:>18}{:>18}{:>18}{:>17}", "", "Homa", "TCP", "bare UDP", "Homa / TCP");
    writeln!(out, "{}", format!("{heads}  {target}").trim_end())?;
    for row in &limits.comparisons {
        let value = |summary: &Option<Summary>, factor: f64| {
            let scaled = |value: f64| number(Some(value * factor));
            summary.as_ref().map_or("-".to_owned(), |summary| {
                format!("{} ({}-{})", scaled(summary.median), scaled(summary.min), scaled(summary.max))
            })
        };
        write!(out, "{:COMPARED$}", row.text)?;
        for summary in [&row.homa, &row.tcp, &row.bare_udp] {
            write!(out, "{:>18}", value(summary, row.factor))?;
        }
        let ratio = format!("{:>17}  {}", value(&row.over_tcp, 1.0), verdict_text(row));
        writeln!(out, "{}", ratio.trim_end())?;
    }
    writeln!(
        out,
        "Medians (smallest-largest of the repetitions); W1 to W5 over loopback, the others as above."
    )
}

/// Describes the verdict on a row, with the relevant bound of the row's target.
fn verdict_text(row: &Comparison) -> String {
    let Some(target) = &row.target else { return String::new() };
    let bound = match (row.verdict, target.goal) {
        (None, _) => return "not measured".to_owned(),
        (Some(Verdict::Goal), Some(goal)) => goal,
        _ => target.floor,
    };
    let unit = if target.basis == Basis::Ratio { 1.0 } else { row.factor };
    format!("{} {}", verdict(row.verdict), number(Some(bound * unit)))
}

/// Describes a verdict.
pub fn verdict(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        None => "-",
        Some(Verdict::BelowFloor) => "below floor",
        Some(Verdict::Reached) => "reached",
        Some(Verdict::Goal) => "goal",
    }
}

fn medians(out: &mut String, limits: &Limits) -> std::fmt::Result {
    if measured(limits).next().is_none() {
        return Ok(());
    }
    let columns: Vec<Column> = MEDIANS
        .into_iter()
        .filter(|(.., metric)| {
            limits.config.low_latency || !matches!(metric, Metric::LowLatencyP50 | Metric::LowLatencyP99)
        })
        .collect();
    write!(out, "\n{:NAME$}{:>14}{:>15}", "", "polling us", "sleeping us")?;
    if limits.config.low_latency {
        write!(out, "{:>15}", "low latency us")?;
    }
    writeln!(out, "{:>25}{:>6}{:>19}", "1000 RPCs/s, N open", "1 MB", "CPU ns per")?;
    write!(out, "{:NAME$}", "")?;
    for (head, width, ..) in &columns {
        write!(out, "{head:>width$}")?;
    }
    writeln!(out)?;
    for row in measured(limits) {
        write!(out, "{:NAME$}", row.name)?;
        for (_, width, factor, metric) in &columns {
            write!(out, "{:>width$}", number(row.get(*metric).map(|summary| summary.median * factor)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn ranges(out: &mut String, limits: &Limits) -> std::fmt::Result {
    if measured(limits).next().is_none() {
        return Ok(());
    }
    writeln!(out, "\nSmallest to largest of the repetitions")?;
    heads(out)?;
    for row in measured(limits) {
        write!(out, "{:NAME$}", row.name)?;
        for (_, factor, metric) in CHOSEN {
            let range = |summary: &Summary| {
                let ends = [summary.min, summary.max].map(|end| number(Some(end * factor)));
                format!("{}-{}", ends[0], ends[1])
            };
            write!(out, "{:>15}", row.get(metric).map_or("-".to_owned(), range))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn heads(out: &mut String) -> std::fmt::Result {
    write!(out, "{:NAME$}", "")?;
    for (head, ..) in CHOSEN {
        write!(out, "{head:>15}")?;
    }
    writeln!(out)
}

fn ratios(out: &mut String, limits: &Limits, name: &str) -> std::fmt::Result {
    let Some(below) = measured(limits).find(|row| row.name == name) else { return Ok(()) };
    writeln!(out, "\nDivided by {name} in the same repetition: median")?;
    heads(out)?;
    for row in measured(limits).filter(|row| row.name != name) {
        write!(out, "{:NAME$}", row.name)?;
        for (_, _, metric) in CHOSEN {
            let ratio = row.get(metric).zip(below.get(metric)).and_then(|(above, below)| above.over(below));
            write!(out, "{:>15}", ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn skipped(out: &mut String, limits: &Limits) -> std::fmt::Result {
    for (index, row) in limits.rows.iter().filter(|row| row.skipped.is_some()).enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}: skipped: {}", row.name, row.skipped.as_deref().unwrap_or_default())?;
    }
    for row in limits.rows.iter().filter(|row| row.errors > 0) {
        let first = row.first_error.as_deref().unwrap_or_default();
        writeln!(out, "{}: {} RPCs failed; the first: {first}", row.name, row.errors)?;
    }
    Ok(())
}

fn figures(out: &mut String, limits: &Limits) -> std::fmt::Result {
    writeln!(out, "\n{:58}{:>8}{:>8}{:>10}{:>15}  ok", "figures", "floor", "goal", "measured", "range")?;
    for figure in &limits.figures {
        let sign = if figure.at_most { "<=" } else { ">=" };
        let aim = figure.aim.map_or(String::new(), |aim| format!("{aim:.2}"));
        let (measured, range) = match &figure.measured {
            Some(ratio) => (format!("{:.2}", ratio.median), format!("{:.2}-{:.2}", ratio.min, ratio.max)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let ok = match (figure.ok, figure.aim_reached) {
            (Some(true), Some(true)) => "yes, goal",
            (Some(true), _) => "yes",
            (Some(false), _) => "NO",
            (None, _) => "-",
        };
        let asked = figure.asked.map_or(String::new(), |floor| format!("{sign}{floor:.2}"));
        writeln!(out, "{:58}{asked:>8}{aim:>8}{measured:>10}{range:>15}  {ok}", figure.text)?;
    }
    Ok(())
}

/// Formats a number in about five characters; a dash for `None`.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::samples;

    #[test]
    fn everything_is_said_within_the_width() {
        let text = render(&samples::limits());
        for part in [
            "bare/udp",
            "homa/packet",
            "low latency us",
            "Smallest to largest",
            "Divided by bare/udp",
            "Divided by tcp",
            "quic: skipped: this program was built",
            "figures",
            "Note: nothing of note.",
            "yes, goal",
            "below floor 1.40",
            "reached 0.85",
            "goal 1500",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(110), "{widest:?}:\n{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn heads_stand_over_their_columns() {
        let text = render(&samples::limits());
        let mut lines = text.lines().skip_while(|line| !line.contains("polling us"));
        let (above, heads) = (lines.next().expect("heads"), lines.next().expect("heads"));
        assert_eq!(above.len(), heads.len(), "\n{above}\n{heads}");
        assert!(lines.next().is_some_and(|row| row.len() == heads.len() && row.starts_with("bare/udp")));
    }

    #[test]
    fn the_comparison_alone_where_only_workloads_were_measured() {
        let mut limits = samples::limits();
        for row in &mut limits.rows {
            row.metrics.retain(|name, _| name.starts_with("max_gbps"));
        }
        limits.comparisons.retain(|row| row.name.starts_with("max_gbps"));
        let text = render(&limits);
        assert!(text.contains("W5 max, Gbit/s"), "{text}");
        for part in ["polling us", "Smallest to largest of", "Divided by"] {
            assert!(!text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_target_of_a_row_that_was_not_measured_says_so() {
        let mut limits = samples::limits();
        let row = limits.comparisons.iter_mut().find(|row| row.name == "rpcs_per_s_32").expect("a row");
        row.verdict = None;
        assert!(render(&limits).contains("not measured"));
    }

    #[test]
    fn without_low_latency_there_is_no_such_column() {
        let mut limits = samples::limits();
        limits.config.low_latency = false;
        assert!(!render(&limits).contains("low latency us"));
    }

    #[test]
    fn a_figure_that_fails_is_shouted() {
        let text = render(&samples::limits());
        // Homa's 5 us are 0.83 of TCP's 6 us; the floor is 0.85. QUIC was not measured.
        let line = |part: &str| text.lines().find(|line| line.contains(part)).expect("a line").to_owned();
        assert!(line("/ TCP, polling").ends_with("yes"), "{text}");
        assert!(line("QUIC (quinn)").ends_with('-'), "{text}");
        let mut limits = samples::limits();
        limits.figures[0].ok = Some(false);
        assert!(render(&limits).contains("  NO"));
    }
}
