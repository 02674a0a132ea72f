//! `report.html`, a self-contained page.

use std::fmt::Write;

use homa_report::chart::{Chart, Curve, Point, Scale, escape, size_ticks};
use homa_report::number::brief;
use homa_report::number::size;
use homa_report::page::{FOOT, head, table};
use homa_sim::ClusterReport;
use homa_workload::{BinSummary, Workload};
use serde_json::{Map, Value};

use super::knobs;
use super::published;
use super::steady;
use super::table::{row_label, totals};

/// The contents of a page about one run.
pub struct RunPage<'a> {
    pub setup: &'a Map<String, Value>,
    pub workload: &'a Workload,
    pub reports: &'a [ClusterReport],
    pub published: &'a [published::Curve],
}

/// Definition of slowdown, for readers who are new to it.
pub const SLOWDOWN: &str = "<p><b>Slowdown</b> is the time from when a message was given to its transport until all of it was at \
                            its receiver, divided by the least time in which the same message can get there when nothing else is on \
                            the way. 1 is ideal.</p>\n";

/// Renders the page of one run.
pub fn render(page: &RunPage<'_>) -> String {
    let names: Vec<&str> = page.reports.iter().map(|report| report.transport.as_str()).collect();
    let mut out = head(&format!("{}: messages in a simulated network", names.join(", ")));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<p class=\"quiet\">{}</p>\n{SLOWDOWN}", escape(&summary(page.setup)));
    let warnings = |report| [steady::unsteady_warning(report), steady::unfinished(report, 0.0)];
    for warning in page.reports.iter().flat_map(warnings).flatten() {
        let _ = writeln!(out, "<p class=\"warn\">{}</p>", escape(&warning));
    }
    out.push_str("<h2>Slowdown by message size</h2>\n");
    type Percentile = (&'static str, fn(&BinSummary) -> f64, fn(&published::Point) -> f64);
    let percentiles: [Percentile; 2] = [
        ("99th percentile of slowdown", |bin| bin.slowdown_p99, |point| point.p99),
        ("Median slowdown", |bin| bin.slowdown_p50, |point| point.p50),
    ];
    for (title, ours, theirs) in percentiles {
        let _ = writeln!(out, "<figure>\n{}</figure>", by_size(page, title, ours, theirs).figure());
    }
    let dashed = if page.published.is_empty() { "" } else { " Dashed: the published values." };
    let _ = writeln!(
        out,
        "<p class=\"quiet\">Lower is better. The width is the share of messages up to a size, so that equal parts have equally many.{dashed} \
         Point at a dot for its numbers.</p>"
    );
    if let Some(chart) = steady::chart(page.reports) {
        let _ = writeln!(
            out,
            "<h2>Messages under way</h2>\n<figure>\n{}</figure>\n<p class=\"quiet\">Each message counts with its whole \
             length until it has arrived. In steady state the curve is level where messages are measured.</p>",
            chart.figure()
        );
    }
    out.push_str("<h2>Slowdown in numbers</h2>\n");
    slowdowns(&mut out, page.reports);
    out.push_str("<h2>Totals</h2>\n");
    let head: Vec<String> = page.reports.iter().map(|report| report.transport.clone()).collect();
    out.push_str(&table(&head, &totals(page.reports)));
    out.push_str(
        "<p class=\"quiet\">Downlinks wasted: the share of time in which a host's downlink was idle although the host kept a message \
         waiting for a grant. Queues are in bytes with all overhead, over time and ports; the maximum counts the warm-up, too.</p>\n",
    );
    settings(&mut out, page.setup);
    out.push_str(FOOT);
    out
}

/// Summarizes a run in one sentence.
pub fn summary(setup: &Map<String, Value>) -> String {
    let text = |name: &str| setup.get(name).map_or(String::new(), knobs::short);
    let number = |name: &str| setup.get(name).and_then(Value::as_f64);
    let load = match (number("load"), number("senders")) {
        _ if number("outstanding").is_some() => {
            format!(", {} of each host under way at all times", text("outstanding"))
        }
        (Some(load), _) => {
            let counted = if text("load_counts") == "grants" { "data and grants" } else { "data packets" };
            format!(", {} % of the hosts' links by {counted}", brief(load * 100.0).trim_end_matches(".0"))
        }
        (None, Some(senders)) => format!(", {senders} messages at once to one host"),
        (None, None) => String::new(),
    };
    let rate = number("rate").map_or(String::new(), |bps| format!("{} Gbit/s", bps / 1e9));
    let time = |name: &str| number(name).map_or(String::new(), |ns| format!("{} ms", ns / 1e6));
    format!(
        "{}{load}; {} hosts ({}, {rate}), preset {}; {} measured after {}; seed {}",
        text("workload"),
        text("hosts"),
        text("topology"),
        text("preset"),
        time("duration"),
        time("warm_up"),
        text("seed")
    )
}

fn by_size(
    page: &RunPage<'_>,
    title: &str,
    ours: fn(&BinSummary) -> f64,
    theirs: fn(&published::Point) -> f64,
) -> Chart {
    let mut curves = Vec::new();
    for report in page.reports {
        let bins = report.bins.len() - usize::from(report.has_largest);
        let mut before = 0.0;
        let mut points = Vec::new();
        for bin in &report.bins[..bins] {
            let upto = page.workload.cdf(bin.max_bytes);
            let middle = f64::midpoint(before, upto);
            before = upto;
            if bin.count > 0 {
                points.push(Point { x: middle, y: ours(bin), title: bin_title(report, bin, ours(bin)) });
            }
        }
        let (label, class) = (report.transport.clone(), report.transport.clone());
        curves.push(Curve { label, class, is_reference: false, points });
    }
    for curve in page.published {
        let point = |point: &published::Point| Point {
            x: point.middle.min(1.0),
            y: theirs(point),
            title: String::new(),
        };
        curves.push(Curve {
            label: format!("{}, published", curve.protocol),
            class: class_of_published(&curve.protocol),
            is_reference: true,
            points: curve.points.iter().map(point).collect(),
        });
    }
    Chart {
        x_title: "Message size; equal parts hold equally many messages".to_owned(),
        y_title: title.to_owned(),
        scale: Scale::Log,
        x_ticks: size_ticks(
            page.workload.min_bytes(),
            |part| page.workload.quantile(part),
            |bytes| page.workload.cdf(bytes),
        ),
        curves,
    }
}

/// Returns the style class of a protocol, given its name in the publication.
fn class_of_published(protocol: &str) -> String {
    let name = protocol.to_ascii_lowercase();
    name.strip_prefix("srpt-").unwrap_or(&name).to_owned()
}

fn bin_title(report: &ClusterReport, bin: &BinSummary, value: f64) -> String {
    format!(
        "{} {}: messages up to {}, {} of them",
        report.transport,
        brief(value),
        size(bin.max_bytes),
        bin.count
    )
}

fn slowdowns(out: &mut String, reports: &[ClusterReport]) {
    let Some(first) = reports.first() else { return };
    let _ = write!(out, "<div class=\"scroll\"><table>\n<tr><th></th><th></th>");
    for report in reports {
        let name = escape(&report.transport);
        let _ = write!(out, "<th class=\"first {name}\" colspan=\"4\">{name}</th>");
    }
    let _ = write!(out, "</tr>\n<tr><th>messages up to, bytes</th><th>count</th>");
    for _ in reports {
        let _ = write!(out, "<th class=\"first\">mean</th><th>P50</th><th>P99</th><th>P99.9</th>");
    }
    out.push_str("</tr>\n");
    for row in 0..first.bins.len() {
        let _ = write!(out, "<tr><td>{}</td><td>{}</td>", row_label(first, row), first.bins[row].count);
        for bin in reports.iter().map(|report| &report.bins[row]) {
            let values = [bin.slowdown_mean, bin.slowdown_p50, bin.slowdown_p99, bin.slowdown_p999];
            for (index, value) in values.into_iter().enumerate() {
                let class = if index == 0 { " class=\"first\"" } else { "" };
                let text = if bin.count == 0 { "-".to_owned() } else { brief(value) };
                let _ = write!(out, "<td{class}>{text}</td>");
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

/// Writes all settings of a run.
pub fn settings(out: &mut String, setup: &Map<String, Value>) {
    out.push_str("<h2>Settings</h2>\n<p class=\"quiet\">Times in nanoseconds, rates in bits per second, sizes in bytes.</p>\n");
    out.push_str("<div class=\"scroll\"><table class=\"settings\">\n");
    let homa = setup.get("homa").and_then(Value::as_object);
    let protocol = homa.into_iter().flatten().map(|(name, value)| (format!("homa.{name}"), value));
    let plain = setup.iter().filter(|(name, _)| *name != "homa").map(|(name, value)| (name.clone(), value));
    for (name, value) in plain.chain(protocol) {
        let _ = writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(&name), escape(&knobs::short(value)));
    }
    out.push_str("</table></div>\n");
}
