//! The curves of slowdown by message size, as SVG. The colours come from the page's style.

use std::fmt::Write;

use crate::compare::results::{Results, Run};
use homa_report::number::{short_number, size};
use homa_report::{Label, draw_labels};
use homa_workload::BinSummary;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 128.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 84.0;
/// Gap between the last bin and the slot of the largest 1 %.
const GAP: f64 = 18.0;
/// Minimum distance between two labels at the end of the curves.
const LABEL_HEIGHT: f64 = 17.0;

/// A percentile with a curve: its name, its CSS class, and its value in a bin.
type Percentile = (&'static str, &'static str, fn(&BinSummary) -> f64);

const PERCENTILES: [Percentile; 2] =
    [("P99", "p99", |bin| bin.slowdown_p99), ("median", "p50", |bin| bin.slowdown_p50)];

/// Draws all runs. Returns an empty string if there are no values.
pub fn chart(results: &Results) -> String {
    let Some(frame) = Frame::new(results) else { return String::new() };
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = frame.open(&mut out);
    let _ = frame.y_axis(&mut out);
    let _ = frame.x_axis(&mut out);
    let mut labels = Vec::new();
    for run in &results.runs {
        for (name, class, value) in PERCENTILES {
            let class = format!("{} {class}", run.protocol.name());
            let _ = frame.curve(&mut out, run, name, &class, value);
            let last = run.bins.iter().rev().find(|bin| bin.count > 0).map(value);
            labels.extend(last.map(|last| {
                (frame.y(last), format!("{} {name}", run.protocol.title()), run.protocol.name())
            }));
        }
    }
    let _ = frame.labels(&mut out, labels);
    out.push_str("</svg>\n");
    out
}

/// The scales of the chart.
struct Frame<'a> {
    /// The bins of equal count, followed by the largest 1 % if `largest_row` is true.
    rows: &'a [BinSummary],
    largest_row: bool,
    smallest_bytes: Option<u32>,
    low: f64,
    high: f64,
}

impl<'a> Frame<'a> {
    fn new(results: &'a Results) -> Option<Frame<'a>> {
        let first = results.runs.first()?;
        let drawn = results.runs.iter().flat_map(|run| &run.bins).filter(|bin| bin.count > 0);
        let values: Vec<f64> = drawn
            .flat_map(|bin| PERCENTILES.map(|(_, _, value)| value(bin)))
            .filter(|&value| value > 0.0)
            .collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        if values.is_empty() {
            return None;
        }
        Some(Frame {
            rows: &first.bins,
            largest_row: first.largest_row,
            smallest_bytes: results.unloaded.first().map(|point| point.bytes),
            low: low.min(1.0) * 0.9,
            high: high.max(2.0) * 1.15,
        })
    }

    /// Returns the number of bins without the largest 1 %.
    fn bins(&self) -> usize {
        self.rows.len() - usize::from(self.largest_row)
    }

    fn slot(&self) -> f64 {
        let gap = if self.largest_row { GAP } else { 0.0 };
        (WIDTH - LEFT - RIGHT - gap) / self.rows.len() as f64
    }

    /// Returns the left edge of a row's slot.
    fn edge(&self, row: usize) -> f64 {
        let gap = if row >= self.bins() && self.largest_row && row < self.rows.len() { GAP } else { 0.0 };
        LEFT + self.slot() * row as f64 + gap
    }

    fn center(&self, row: usize) -> f64 {
        self.edge(row) + self.slot() / 2.0
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)
    }

    fn open(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Slowdown by message size, median and 99th \
             percentile of each protocol\">"
        )
    }

    fn y_axis(&self, out: &mut String) -> std::fmt::Result {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        for value in ticks(self.low, self.high) {
            let y = self.y(value);
            let class = if value == 1.0 { "grid one" } else { "grid" };
            writeln!(
                out,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            )?;
            let (x, base) = (left - 8.0, y + 4.0);
            writeln!(out, "<text class=\"tick end\" x=\"{x}\" y=\"{base:.1}\">{}</text>", plain(value))?;
        }
        let middle = TOP + (HEIGHT - TOP - BOTTOM) / 2.0;
        writeln!(
            out,
            "<text class=\"axis mid\" transform=\"translate(18 {middle}) rotate(-90)\">Slowdown (times the unloaded round \
             trip, log scale)</text>"
        )
    }

    fn x_axis(&self, out: &mut String) -> std::fmt::Result {
        let bottom = HEIGHT - BOTTOM;
        let base = bottom + 20.0;
        let mut tick = |x: f64, label: &str| {
            let end = bottom + 5.0;
            writeln!(out, "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{end}\"/>")?;
            writeln!(out, "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{base}\">{label}</text>")
        };
        let single = self.bins() == 1;
        if let Some(bytes) = self.smallest_bytes.filter(|_| !single) {
            tick(self.edge(0), &size(bytes))?;
        }
        for (row, bin) in self.rows[..self.bins()].iter().enumerate() {
            let x = if single { self.center(row) } else { self.edge(row) + self.slot() };
            tick(x, &size(bin.max_bytes))?;
        }
        if self.largest_row {
            let x = self.center(self.bins());
            let class = "class=\"tick mid\"";
            writeln!(out, "<text {class} x=\"{x:.1}\" y=\"{}\">largest</text>", bottom + 34.0)?;
            writeln!(out, "<text {class} x=\"{x:.1}\" y=\"{}\">1 %</text>", bottom + 48.0)?;
        }
        let middle = LEFT + self.slot() * self.bins() as f64 / 2.0;
        let title = if single {
            "Message size".to_owned()
        } else {
            format!(
                "Message size; each of the {} sections holds a tenth of all messages, or one common size",
                self.bins()
            )
        };
        writeln!(out, "<text class=\"axis mid\" x=\"{middle:.1}\" y=\"{}\">{title}</text>", bottom + 52.0)?;
        let right = WIDTH - RIGHT;
        writeln!(out, "<line class=\"mark\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>")
    }

    fn curve(
        &self,
        out: &mut String,
        run: &Run,
        name: &str,
        class: &str,
        value: fn(&BinSummary) -> f64,
    ) -> std::fmt::Result {
        let shown = || run.bins.iter().enumerate().filter(|(_, bin)| bin.count > 0);
        let points: Vec<String> = shown()
            .filter(|(row, _)| *row < self.bins())
            .map(|(row, bin)| format!("{:.1},{:.1}", self.center(row), self.y(value(bin))))
            .collect();
        writeln!(out, "<polyline class=\"curve {class}\" points=\"{}\"/>", points.join(" "))?;
        if let [.., last, largest] = &run.bins[..]
            && self.largest_row
        {
            // This line is thin, because it leads to a part of the last bin rather than to another bin.
            let (x1, y1) = (self.center(self.bins() - 1), self.y(value(last)));
            let (x2, y2) = (self.center(self.bins()), self.y(value(largest)));
            writeln!(
                out,
                "<line class=\"lead {class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
            )?;
        }
        for (row, bin) in shown() {
            let (x, y) = (self.center(row), self.y(value(bin)));
            let what = if row < self.bins() {
                format!("messages up to {}", size(bin.max_bytes))
            } else {
                "the largest 1 % of the messages".to_owned()
            };
            write!(out, "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">")?;
            let (title, slowdown) = (run.protocol.title(), short_number(value(bin)));
            writeln!(
                out,
                "<title>{title} {name} {slowdown}: {what}, {} of them</title></circle>",
                bin.count
            )?;
        }
        Ok(())
    }

    /// Draws the names at the right end of the curves.
    fn labels(&self, out: &mut String, labels: Vec<(f64, String, &str)>) -> std::fmt::Result {
        let end = self.center(self.rows.len() - 1);
        let label =
            |(y, text, class): (f64, String, &str)| Label { end: (end, y), text, class: class.to_owned() };
        let labels = labels.into_iter().map(label).collect();
        draw_labels(out, labels, (WIDTH - RIGHT, HEIGHT - BOTTOM), LABEL_HEIGHT)
    }
}

/// Returns ticks at 1, 2 and 5 times powers of ten within the limits, or only at powers of ten if the range
/// exceeds four decades.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let all =
        (first..=last).flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)));
    all.filter(|value| (low..=high).contains(value)).collect()
}

/// Formats a tick's value without trailing digits.
fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::samples;

    #[test]
    fn every_curve_is_drawn_and_named() {
        let results = samples::both();
        let svg = chart(&results);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert_eq!(svg.matches("<circle").count(), 4 * results.runs[0].bins.len());
        for label in
            ["Homa P99", "Homa median", "TCP P99", "TCP median", "largest", "Slowdown", "Message size"]
        {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn labels_do_not_overlap_and_stay_inside() {
        let results = samples::both();
        let frame = Frame::new(&results).expect("something to draw");
        let mut out = String::new();
        let same = |name: &str| (frame.y(frame.low), name.to_owned(), "homa");
        frame.labels(&mut out, vec![same("a"), same("b"), same("c")]).expect("a string");
        let mut places = Vec::new();
        for text in out.split("<text").skip(1) {
            let y = text.split("y=\"").nth(1).and_then(|rest| rest.split('"').next());
            places.push(y.and_then(|y| y.parse::<f64>().ok()).expect("a number"));
        }
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_HEIGHT - 0.2), "{places:?}");
        assert!(places.iter().all(|&y| y < HEIGHT - BOTTOM + 6.0), "{places:?}");
    }

    #[test]
    fn nothing_measured_draws_nothing() {
        let mut results = samples::both();
        results.runs.clear();
        assert_eq!(chart(&results), "");
    }

    #[test]
    fn ticks_and_sizes_are_round() {
        assert_eq!(ticks(0.9, 12.0), [1.0, 2.0, 5.0, 10.0]);
    }
}
