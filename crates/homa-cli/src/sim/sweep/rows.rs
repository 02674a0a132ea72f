//! Results of a sweep, with a row for each combination of settings, summarized over its seeds.

use std::collections::BTreeMap;

use homa_report::chart::{Chart, Curve, Point, Scale, class_of, escape};
use homa_report::number::brief;
use homa_report::page::{FOOT, head, table};
use homa_report::table::{TableRow, columns};
use homa_sim::ClusterReport;
use homa_workload::BinSummary;
use serde::Serialize;

use super::super::knobs;
use super::super::page;
use super::super::table::{RESENDS, count};
use super::file::{Run, Sweep};

/// The transport used as the baseline for the figures of the others.
const ORACLE: &str = "oracle";

/// A figure of a run.
pub struct Metric {
    /// Name in JSON.
    pub name: &'static str,
    /// Title in tables and charts.
    pub title: &'static str,
    /// Scale of the figure's chart; `None` if there is no chart.
    scale: Option<Scale>,
    value: fn(&ClusterReport) -> f64,
    /// Whether the figure is divided by the oracle's value for the same messages. In sweeps without the
    /// oracle, such a figure is missing.
    over_oracle: bool,
}

impl Metric {
    const fn new(
        name: &'static str,
        title: &'static str,
        scale: Option<Scale>,
        value: fn(&ClusterReport) -> f64,
    ) -> Metric {
        Metric { name, title, scale, value, over_oracle: false }
    }

    const fn ratio_to_oracle(
        name: &'static str,
        title: &'static str,
        scale: Option<Scale>,
        value: fn(&ClusterReport) -> f64,
    ) -> Metric {
        Metric { name, title, scale, value, over_oracle: true }
    }
}

fn short_half_p99(report: &ClusterReport) -> f64 {
    report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p99)
}

/// Returns the last bin, if any of its messages arrived in time.
fn largest(report: &ClusterReport) -> Option<&BinSummary> {
    report.bins.last().filter(|bin| bin.count > 0)
}

/// Returns the mean P99 over all regular bins, with equal weights. The largest 1 % of messages are not added,
/// because they are part of the last regular bin.
fn sizes_p99(report: &ClusterReport) -> f64 {
    let bins = report.bins.len() - usize::from(report.has_largest);
    let bins = report.bins[..bins].iter().filter(|bin| bin.count > 0);
    let (sum, count) = bins.fold((0.0, 0u32), |(sum, count), bin| (sum + bin.slowdown_p99, count + 1));
    sum / f64::from(count.max(1))
}

const METRICS: &[Metric] = &[
    Metric::new("slowdown_mean", "mean slowdown", None, |report| report.slowdown_mean),
    Metric::new("short_half_p50", "shorter half P50", Some(Scale::Log), |report| {
        report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p50)
    }),
    Metric::new("short_half_p99", "shorter half P99", Some(Scale::Log), short_half_p99),
    Metric::new("sizes_p99", "P99 by size, mean", Some(Scale::Log), sizes_p99),
    Metric::ratio_to_oracle("slowdown_mean_over_oracle", "mean / oracle", Some(Scale::Linear), |report| {
        report.slowdown_mean
    }),
    Metric::ratio_to_oracle(
        "short_half_p99_over_oracle",
        "shorter half P99 / oracle",
        Some(Scale::Linear),
        short_half_p99,
    ),
    Metric::ratio_to_oracle("sizes_p99_over_oracle", "P99 by size / oracle", Some(Scale::Linear), sizes_p99),
    Metric::new("largest_p50", "largest P50", Some(Scale::Log), |report| {
        largest(report).map_or(f64::NAN, |bin| bin.slowdown_p50)
    }),
    Metric::new("largest_p99", "largest P99", Some(Scale::Log), |report| {
        largest(report).map_or(f64::NAN, |bin| bin.slowdown_p99)
    }),
    Metric::new("goodput_percent", "goodput %", None, |report| report.goodput * 100.0),
    Metric::new("downlink_wasted_percent", "wasted %", Some(Scale::Linear), |report| {
        report.downlink_wasted * 100.0
    }),
    Metric::new("edge_queue_mean_kb", "queue mean kB", None, |report| report.edge_queue.mean_bytes / 1e3),
    Metric::new("edge_queue_max_kb", "queue max kB", Some(Scale::Linear), |report| {
        report.edge_queue.max_bytes as f64 / 1e3
    }),
    Metric::new("dropped", "dropped", None, |report| report.dropped as f64),
    Metric::new("resends", "resends", None, |report| count(report, RESENDS).unwrap_or(0) as f64),
    Metric::new("unfinished", "not arrived", None, |report| report.unfinished as f64),
    Metric::new("completed_over_offered", "completed/offered", None, |report| {
        report.steady.as_ref().map_or(f64::NAN, |steady| steady.completed_over_offered)
    }),
    Metric::new("steady_percent", "steady %", None, |report| {
        report.steady.as_ref().map_or(f64::NAN, |steady| if steady.reached { 100.0 } else { 0.0 })
    }),
];

/// Mean and range of a figure over all seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    mean: f64,
    min: f64,
    max: f64,
}

/// A combination of settings.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    transport: String,
    /// The value on each axis; `null` if the axis does not apply to the transport.
    settings: serde_json::Map<String, serde_json::Value>,
    seeds: Vec<u64>,
    /// Names of the files of the runs.
    runs: Vec<String>,
    metrics: BTreeMap<&'static str, Spread>,
    #[serde(skip)]
    values: Vec<Option<String>>,
}

/// Summarizes runs. Runs with the same combination of settings must be adjacent.
pub fn rows(sweep: &Sweep, runs: &[(Run, ClusterReport)], file_name: fn(&Run) -> String) -> Vec<Row> {
    let same = |left: &(Run, ClusterReport), right: &(Run, ClusterReport)| {
        left.0.transport == right.0.transport && left.0.values == right.0.values
    };
    let oracles = Oracles::new(sweep, runs);
    let row = |of: &[(Run, ClusterReport)]| {
        let metric = |metric: &'static Metric| {
            let values = of.iter().map(|(run, report)| value(metric, report, oracles.of(sweep, run)));
            (metric.name, Spread::of(values.flatten()))
        };
        Row {
            transport: of[0].0.transport.clone(),
            settings: sweep
                .axes
                .iter()
                .zip(&of[0].0.values)
                .map(|(axis, value)| {
                    (axis.name.clone(), value.clone().map_or(serde_json::Value::Null, Into::into))
                })
                .collect(),
            seeds: of.iter().map(|(run, _)| run.seed).collect(),
            runs: of.iter().map(|(run, _)| file_name(run)).collect(),
            metrics: visible_metrics(sweep).map(metric).collect(),
            values: of[0].0.values.clone(),
        }
    };
    runs.chunk_by(same).map(row).collect()
}

/// Returns the figures shown for a sweep.
fn visible_metrics(sweep: &Sweep) -> impl Iterator<Item = &'static Metric> {
    let has_oracle = sweep.transports.iter().any(|name| name == ORACLE);
    METRICS.iter().filter(move |metric| has_oracle || !metric.over_oracle)
}

/// Reports of the oracle, keyed by the seed and by the settings that apply to the oracle.
struct Oracles<'a>(BTreeMap<(u64, Vec<Option<&'a str>>), &'a ClusterReport>);

impl<'a> Oracles<'a> {
    fn new(sweep: &Sweep, runs: &'a [(Run, ClusterReport)]) -> Oracles<'a> {
        let runs = runs.iter().filter(|(run, _)| run.transport == ORACLE);
        Oracles(runs.map(|(run, report)| (Oracles::key(sweep, run), report)).collect())
    }

    fn key<'b>(sweep: &Sweep, run: &'b Run) -> (u64, Vec<Option<&'b str>>) {
        let values = sweep.axes.iter().zip(&run.values);
        let settings =
            values.map(|(axis, value)| value.as_deref().filter(|_| knobs::concerns(&axis.name, ORACLE)));
        (run.seed, settings.collect())
    }

    /// Returns the oracle's report for the same messages.
    fn of(&self, sweep: &Sweep, run: &Run) -> Option<&'a ClusterReport> {
        self.0.get(&Oracles::key(sweep, run)).copied()
    }
}

/// Returns the figure, or `None` if the run does not have it or has no messages that count towards it.
fn value(metric: &Metric, report: &ClusterReport, oracle: Option<&ClusterReport>) -> Option<f64> {
    let value = (metric.value)(report);
    let value = if metric.over_oracle { value / (metric.value)(oracle?) } else { value };
    Some(value).filter(|value| value.is_finite())
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        Spread {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn cells(sweep: &Sweep, rows: &[Row]) -> (Vec<String>, Vec<TableRow>) {
    let axes = sweep.axes.iter().map(|axis| axis.name.clone());
    let head = axes.chain(visible_metrics(sweep).map(|metric| metric.title.to_owned())).collect();
    let line = |row: &Row| {
        let values = row.values.iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned()));
        let metrics = visible_metrics(sweep).map(|metric| brief(row.metrics[metric.name].mean));
        (row.transport.clone(), values.chain(metrics).collect())
    };
    (head, rows.iter().map(line).collect())
}

/// Formats the results as text.
pub fn text(sweep: &Sweep, rows: &[Row]) -> String {
    let (head, lines) = cells(sweep, rows);
    let seeds = match sweep.seeds.len() {
        1 => "1 seed".to_owned(),
        count => format!("{count} seeds, means"),
    };
    format!("{}: {} combinations, {seeds}\n\n{}", sweep.title, rows.len(), columns(&head, &lines))
}

/// Formats the results as a page.
pub fn page(sweep: &Sweep, rows: &[Row], setup: &serde_json::Map<String, serde_json::Value>) -> String {
    let mut out = head(&sweep.title);
    out.push_str(page::SLOWDOWN);
    out.push_str("<p class=\"quiet\">Points are means over the seeds; the shorter half are the messages up to the median size, the largest \
                  the last row of the table of a run. Point at a dot for its range.</p>\n");
    for metric in visible_metrics(sweep) {
        let Some(scale) = metric.scale else { continue };
        let svg = chart(sweep, rows, metric, scale).figure();
        if !svg.is_empty() {
            out.push_str(&format!("<h2>{}</h2>\n<figure>\n{svg}</figure>\n", escape(metric.title)));
        }
    }
    let (head, lines) = cells(sweep, rows);
    out.push_str("<h2>In numbers</h2>\n");
    out.push_str(&table(&head, &lines));
    out.push_str("<p class=\"quiet\">The settings below are those of the first run.</p>\n");
    page::settings(&mut out, setup);
    out.push_str(FOOT);
    out
}

/// Plots a figure over the values of the last axis, with a curve for each combination of the others.
fn chart(sweep: &Sweep, rows: &[Row], metric: &Metric, scale: Scale) -> Chart {
    let Some((axis, others)) = sweep.axes.split_last() else {
        return Chart {
            x_title: String::new(),
            y_title: String::new(),
            scale,
            x_ticks: Vec::new(),
            curves: Vec::new(),
        };
    };
    let place = |index: usize| (index as f64 + 0.5) / axis.values.len() as f64;
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let value = row.values.last().and_then(Option::as_ref);
        let Some(index) = axis.values.iter().position(|other| Some(other) == value) else { continue };
        let names = row.values[..others.len()].iter().flatten().cloned();
        let label = if sweep.transports.len() > 1 || others.is_empty() {
            std::iter::once(row.transport.clone()).chain(names).collect::<Vec<_>>().join(" ")
        } else {
            names.collect::<Vec<_>>().join(" ")
        };
        let Spread { mean, min, max } = row.metrics[metric.name];
        if !mean.is_finite() {
            continue;
        }
        let title = format!(
            "{label}, {} {}: {} {} (seeds: {} to {})",
            axis.name,
            axis.values[index],
            metric.title,
            brief(mean),
            brief(min),
            brief(max)
        );
        let point = Point { x: place(index), y: mean, title };
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                class: class_of(curves.len()),
                label,
                is_reference: false,
                points: vec![point],
            }),
        }
    }
    let x_ticks =
        axis.values.iter().enumerate().map(|(index, value)| (place(index), value.clone())).collect();
    Chart { x_title: axis.name.clone(), y_title: metric.title.to_owned(), scale, x_ticks, curves }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str) -> &'static Metric {
        METRICS.iter().find(|metric| metric.name == name).unwrap()
    }

    #[test]
    fn what_no_message_tells_is_not_there() {
        let report = ClusterReport { slowdown_mean: 3.0, ..ClusterReport::default() };
        assert_eq!(value(metric("largest_p99"), &report, None), None);
        assert_eq!(value(metric("slowdown_mean"), &report, None), Some(3.0));
        assert!(Spread::of(std::iter::empty()).mean.is_nan());
    }

    #[test]
    fn a_ratio_needs_the_oracle() {
        let report = ClusterReport { slowdown_mean: 3.0, ..ClusterReport::default() };
        let oracle = ClusterReport { slowdown_mean: 2.0, ..ClusterReport::default() };
        let ratio = metric("slowdown_mean_over_oracle");
        assert_eq!(value(ratio, &report, Some(&oracle)), Some(1.5));
        assert_eq!(value(ratio, &report, None), None);
        assert_eq!(value(ratio, &report, Some(&ClusterReport::default())), None);
    }
}
