//! What came of a sweep: a row for each combination, over its seeds.

use homa_sim::ClusterReport;
use serde::Serialize;

use super::super::page::{self, table};
use super::super::plot::{Chart, Curve, Point, Scale, escape};
use super::super::table::{RESENDS, TotalRow, brief, columns, count};
use super::file::{Run, Sweep};

/// A figure of a run.
pub struct Metric {
    /// In JSON.
    pub name: &'static str,
    /// In tables and plots.
    pub title: &'static str,
    /// How it is drawn; `None`: it is not.
    scale: Option<Scale>,
    value: fn(&ClusterReport) -> f64,
}

const METRICS: &[Metric] = &[
    Metric {
        name: "slowdown_mean",
        title: "mean slowdown",
        scale: None,
        value: |report| report.slowdown_mean,
    },
    Metric {
        name: "short_half_p50",
        title: "shorter half P50",
        scale: Some(Scale::Log),
        value: |report| report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p50),
    },
    Metric {
        name: "short_half_p99",
        title: "shorter half P99",
        scale: Some(Scale::Log),
        value: |report| report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p99),
    },
    Metric {
        name: "largest_p50",
        title: "largest P50",
        scale: Some(Scale::Log),
        value: |report| report.bins.last().map_or(0.0, |bin| bin.slowdown_p50),
    },
    Metric {
        name: "largest_p99",
        title: "largest P99",
        scale: Some(Scale::Log),
        value: |report| report.bins.last().map_or(0.0, |bin| bin.slowdown_p99),
    },
    Metric {
        name: "goodput_percent",
        title: "goodput %",
        scale: None,
        value: |report| report.goodput * 100.0,
    },
    Metric {
        name: "downlink_wasted_percent",
        title: "wasted %",
        scale: Some(Scale::Linear),
        value: |report| report.downlink_wasted * 100.0,
    },
    Metric {
        name: "edge_queue_mean_kb",
        title: "queue mean kB",
        scale: None,
        value: |report| report.edge_queue.mean_bytes / 1e3,
    },
    Metric {
        name: "edge_queue_max_kb",
        title: "queue max kB",
        scale: Some(Scale::Linear),
        value: |report| report.edge_queue.max_bytes as f64 / 1e3,
    },
    Metric { name: "dropped", title: "dropped", scale: None, value: |report| report.dropped as f64 },
    Metric {
        name: "resends",
        title: "resends",
        scale: None,
        value: |report| count(report, RESENDS).unwrap_or(0) as f64,
    },
    Metric {
        name: "unfinished",
        title: "not arrived",
        scale: None,
        value: |report| report.unfinished as f64,
    },
];

/// A figure over the seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    mean: f64,
    min: f64,
    max: f64,
}

/// A combination.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    transport: String,
    /// A value for each setting that is varied; `null` where it means nothing to the transport.
    settings: serde_json::Map<String, serde_json::Value>,
    seeds: Vec<u64>,
    /// Files of the runs.
    runs: Vec<String>,
    metrics: std::collections::BTreeMap<&'static str, Spread>,
    #[serde(skip)]
    values: Vec<Option<String>>,
}

/// Sums runs up; those of one combination follow each other.
pub fn rows(sweep: &Sweep, runs: &[(Run, ClusterReport)], file_name: fn(&Run) -> String) -> Vec<Row> {
    let same = |left: &(Run, ClusterReport), right: &(Run, ClusterReport)| {
        left.0.transport == right.0.transport && left.0.values == right.0.values
    };
    let row = |runs: &[(Run, ClusterReport)]| Row {
        transport: runs[0].0.transport.clone(),
        settings: sweep
            .axes
            .iter()
            .zip(&runs[0].0.values)
            .map(|(axis, value)| {
                (axis.name.clone(), value.clone().map_or(serde_json::Value::Null, Into::into))
            })
            .collect(),
        seeds: runs.iter().map(|(run, _)| run.seed).collect(),
        runs: runs.iter().map(|(run, _)| file_name(run)).collect(),
        metrics: METRICS.iter().map(|metric| (metric.name, spread(metric, runs))).collect(),
        values: runs[0].0.values.clone(),
    };
    runs.chunk_by(same).map(row).collect()
}

fn spread(metric: &Metric, runs: &[(Run, ClusterReport)]) -> Spread {
    let values = || runs.iter().map(|(_, report)| (metric.value)(report));
    Spread {
        mean: values().sum::<f64>() / runs.len().max(1) as f64,
        min: values().fold(f64::INFINITY, f64::min),
        max: values().fold(f64::NEG_INFINITY, f64::max),
    }
}

fn cells(sweep: &Sweep, rows: &[Row]) -> (Vec<String>, Vec<TotalRow>) {
    let axes = sweep.axes.iter().map(|axis| axis.name.clone());
    let head = axes.chain(METRICS.iter().map(|metric| metric.title.to_owned())).collect();
    let line = |row: &Row| {
        let values = row.values.iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned()));
        let metrics = METRICS.iter().map(|metric| brief(row.metrics[metric.name].mean));
        (row.transport.clone(), values.chain(metrics).collect())
    };
    (head, rows.iter().map(line).collect())
}

/// As text.
pub fn text(sweep: &Sweep, rows: &[Row]) -> String {
    let (head, lines) = cells(sweep, rows);
    let seeds = match sweep.seeds.len() {
        1 => "1 seed".to_owned(),
        count => format!("{count} seeds, means"),
    };
    format!("{}: {} combinations, {seeds}\n\n{}", sweep.title, rows.len(), columns(&head, &lines))
}

/// As a page.
pub fn page(sweep: &Sweep, rows: &[Row], setup: &serde_json::Map<String, serde_json::Value>) -> String {
    let mut out = page::head(&sweep.title);
    out.push_str(page::SLOWDOWN);
    out.push_str("<p class=\"quiet\">Points are means over the seeds; the shorter half are the messages up to the median size, the largest \
                  the last row of the table of a run. Point at a dot for its range.</p>\n");
    for metric in METRICS {
        let Some(scale) = metric.scale else { continue };
        let svg = chart(sweep, rows, metric, scale).svg();
        if !svg.is_empty() {
            out.push_str(&format!("<h2>{}</h2>\n<figure>\n{svg}</figure>\n", escape(metric.title)));
        }
    }
    let (head, lines) = cells(sweep, rows);
    out.push_str("<h2>In numbers</h2>\n");
    out.push_str(&table(&head, &lines));
    out.push_str("<p class=\"quiet\">The settings below are those of the first run.</p>\n");
    page::settings(&mut out, setup);
    out.push_str(page::FOOT);
    out
}

/// A figure over the values of the last axis, with a curve for each combination of the others.
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
                class: format!("s{}", curves.len() % 8),
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
