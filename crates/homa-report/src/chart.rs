//! Line charts as SVG; the page's style sheet sets the colours.

use std::fmt::Write;

use crate::labels::{self, Label};
use crate::number::size;

/// Size and margins of a chart, in pixels when shown at full size.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// CSS class of the chart.
    class: &'static str,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// Minimum distance between two ticks of the x axis, as a fraction of the width.
    x_tick_apart: f64,
    /// Whether a legend above the chart names the curves, instead of labels at their ends.
    has_legend: bool,
}

/// Layout for wide pages. The right margin has room for the longest name of a published curve.
const WIDE: Layout = Layout {
    class: "wide",
    width: 960.0,
    height: 430.0,
    left: 76.0,
    right: 196.0,
    top: 16.0,
    bottom: 62.0,
    x_tick_apart: 0.0,
    has_legend: false,
};

/// Layout for phones, where the text of a wide chart would be unreadable.
const NARROW: Layout = Layout {
    class: "narrow",
    width: 400.0,
    height: 400.0,
    left: 62.0,
    right: 24.0,
    top: 12.0,
    bottom: 58.0,
    x_tick_apart: 0.17,
    has_legend: true,
};

/// Minimum distance between two labels at the ends of curves, in pixels.
const LABEL_HEIGHT: f64 = 16.0;

/// Height of a line in the legend, in pixels.
const LEGEND_HEIGHT: f64 = 18.0;

/// Maximum number of points in a curve that has markers; more markers would overlap.
const MAX_POINTS: usize = 80;

/// Scale of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Logarithmic. Values at or below 0 are not drawn.
    Log,
    /// Linear from 0.
    Linear,
}

/// A point of a curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// Position as a fraction of the width, 0 to 1.
    pub x: f64,
    /// Value on the vertical axis, in the unit of `y_title`.
    pub y: f64,
    /// Tooltip.
    pub title: String,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name shown at the curve's end and in the legend.
    pub label: String,
    /// CSS class that sets the colour.
    pub class: String,
    /// Whether the curve is drawn thin and without markers, as published curves are.
    pub is_reference: bool,
    /// The points, in the order in which they are connected.
    pub points: Vec<Point>,
}

/// Number of colours in the style sheet for numbered curves.
const COLOURS: usize = 8;
/// Number of dash patterns in the style sheet, including the solid line.
const DASHES: usize = 5;

/// Returns the CSS classes of the curve with this number, starting from 0: first the colours, then the
/// colours with each dash pattern, then all of these with hollow markers. Up to 80 curves look different.
pub fn class_of(number: usize) -> String {
    let (dash, is_hollow) = (number / COLOURS % DASHES, number / (COLOURS * DASHES) % 2 == 1);
    let dash = if dash > 0 { format!(" dash{dash}") } else { String::new() };
    format!("s{}{dash}{}", number % COLOURS, if is_hollow { " hollow" } else { "" })
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Title of the vertical axis.
    pub y_title: String,
    /// Scale of the vertical axis.
    pub scale: Scale,
    /// Ticks of the horizontal axis: position (0 to 1) and text.
    pub x_ticks: Vec<(f64, String)>,
    /// All curves; the first curves get the most distinct colours.
    pub curves: Vec<Curve>,
}

/// Returns the ticks of an axis on which equal lengths represent equal numbers of messages. The ticks are the
/// message sizes at each tenth, each size once. `quantile` and `cdf` describe the distribution of sizes.
pub fn size_ticks(
    min_bytes: u32,
    quantile: impl Fn(f64) -> u32,
    cdf: impl Fn(u32) -> f64,
) -> Vec<(f64, String)> {
    let mut ticks = vec![(0.0, size(min_bytes))];
    for tenth in 1..=10u32 {
        let bytes = quantile(f64::from(tenth) / 10.0);
        let (place, text) = (cdf(bytes), size(bytes));
        if ticks.last().is_none_or(|(last, before)| place - last > 0.04 && *before != text) {
            ticks.push((place, text));
        }
    }
    ticks
}

impl Chart {
    /// Returns two SVGs, for wide and for narrow pages, of which the style sheet shows one; empty if there is
    /// nothing to draw.
    pub fn figure(&self) -> String {
        self.svg_as(WIDE) + &self.svg_as(NARROW)
    }

    /// Returns SVG for wide pages; empty if there is nothing to draw.
    #[cfg(test)]
    pub fn svg(&self) -> String {
        self.svg_as(WIDE)
    }

    fn svg_as(&self, mut layout: Layout) -> String {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.y);
        let drawn: Vec<f64> = values().filter(|value| self.is_drawn(*value)).collect();
        if drawn.is_empty() {
            return String::new();
        }
        let low = drawn.iter().copied().fold(f64::INFINITY, f64::min);
        let high = drawn.iter().copied().fold(0.0, f64::max);
        if layout.has_legend {
            layout.top += LEGEND_HEIGHT * self.curves.len() as f64;
        }
        let frame = match self.scale {
            Scale::Log => Frame { chart: self, layout, low: low.min(1.0) * 0.95, high: high.max(2.0) * 1.1 },
            Scale::Linear => {
                Frame { chart: self, layout, low: 0.0, high: if high > 0.0 { high * 1.08 } else { 1.0 } }
            }
        };
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = frame.draw(&mut out);
        out
    }

    fn is_drawn(&self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || (self.scale == Scale::Linear && value == 0.0))
    }
}

struct Frame<'a> {
    chart: &'a Chart,
    layout: Layout,
    low: f64,
    high: f64,
}

impl Frame<'_> {
    fn x(&self, share: f64) -> f64 {
        let Layout { width, left, right, .. } = self.layout;
        left + (width - left - right) * share
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.chart.scale {
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            Scale::Linear => value / self.high,
        };
        let Layout { height, top, bottom, .. } = self.layout;
        top + (height - top - bottom) * (1.0 - share)
    }

    fn draw(&self, out: &mut String) -> std::fmt::Result {
        let (x_title, y_title) = (escape(&self.chart.x_title), escape(&self.chart.y_title));
        let Layout { class, width, height, right, bottom, has_legend, .. } = self.layout;
        writeln!(
            out,
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{y_title} by {x_title}\">"
        )?;
        self.axes(out)?;
        let mut labels = Vec::new();
        for (index, curve) in self.chart.curves.iter().enumerate() {
            self.curve(out, curve)?;
            if has_legend {
                self.legend(out, curve, index)?;
                continue;
            }
            let last = curve.points.iter().rev().find(|point| self.chart.is_drawn(point.y));
            labels.extend(last.map(|last| Label {
                end: (self.x(last.x), self.y(last.y)),
                text: escape(&curve.label),
                class: escape(&curve.class),
            }));
        }
        labels::draw(out, labels, (width - right, height - bottom), LABEL_HEIGHT)?;
        writeln!(out, "</svg>")
    }

    fn legend(&self, out: &mut String, curve: &Curve, line: usize) -> std::fmt::Result {
        let (class, text) = (escape(&curve.class), escape(&curve.label));
        let (begin, base) = (self.layout.left, LEGEND_HEIGHT * (line as f64 + 1.0));
        let (end, middle, x) = (begin + 24.0, base - 5.0, begin + 32.0);
        writeln!(
            out,
            "<line class=\"curve {class}\" x1=\"{begin}\" x2=\"{end}\" y1=\"{middle}\" y2=\"{middle}\"/>\
             <text class=\"label {class}\" x=\"{x}\" y=\"{base}\">{text}</text>"
        )
    }

    fn axes(&self, out: &mut String) -> std::fmt::Result {
        let Layout { width, height, top, x_tick_apart, .. } = self.layout;
        let (left, right, bottom) =
            (self.layout.left, width - self.layout.right, height - self.layout.bottom);
        for value in ticks(self.chart.scale, self.low, self.high) {
            let y = self.y(value);
            let class = if value == 1.0 && self.chart.scale == Scale::Log { "grid one" } else { "grid" };
            writeln!(
                out,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            )?;
            let (x, base) = (left - 8.0, y + 4.0);
            writeln!(out, "<text class=\"tick end\" x=\"{x}\" y=\"{base:.1}\">{}</text>", plain(value))?;
        }
        let mut last = f64::NEG_INFINITY;
        for (share, text) in &self.chart.x_ticks {
            if share - last < x_tick_apart {
                continue;
            }
            last = *share;
            let x = self.x(*share);
            let (end, base) = (bottom + 5.0, bottom + 20.0);
            writeln!(out, "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{end}\"/>")?;
            writeln!(out, "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{base}\">{}</text>", escape(text))?;
        }
        writeln!(out, "<line class=\"mark\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>")?;
        let (middle, base) = (self.x(0.5), bottom + 46.0);
        // An explanation may follow a semicolon in the title; a narrow page has no room for it.
        let whole = self.chart.x_title.as_str();
        let title = if self.layout.has_legend { whole.split(';').next().unwrap_or(whole) } else { whole };
        writeln!(out, "<text class=\"axis mid\" x=\"{middle:.1}\" y=\"{base}\">{}</text>", escape(title))?;
        let middle = (top + bottom) / 2.0;
        writeln!(
            out,
            "<text class=\"axis mid\" transform=\"translate(16 {middle}) rotate(-90)\">{}</text>",
            escape(&self.chart.y_title)
        )
    }

    fn curve(&self, out: &mut String, curve: &Curve) -> std::fmt::Result {
        let shown = || curve.points.iter().filter(|point| self.chart.is_drawn(point.y));
        let points: Vec<String> =
            shown().map(|point| format!("{:.1},{:.1}", self.x(point.x), self.y(point.y))).collect();
        let class = escape(&curve.class);
        let reference = if curve.is_reference { " reference" } else { "" };
        writeln!(out, "<polyline class=\"curve {class}{reference}\" points=\"{}\"/>", points.join(" "))?;
        if curve.is_reference || points.len() > MAX_POINTS {
            return Ok(());
        }
        for point in shown() {
            let (x, y, title) = (self.x(point.x), self.y(point.y), escape(&point.title));
            writeln!(
                out,
                "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{title}</title></circle>"
            )?;
        }
        Ok(())
    }
}

fn ticks(scale: Scale, low: f64, high: f64) -> Vec<f64> {
    match scale {
        Scale::Log => {
            let decades = (high / low).log10();
            let factors: &[f64] = match decades {
                4.0.. => &[1.0],
                0.8..4.0 => &[1.0, 2.0, 5.0],
                _ => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
            };
            let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let all = exponents
                .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)));
            all.filter(|value| (low..=high).contains(value)).collect()
        }
        Scale::Linear => {
            let step = 10f64.powf((high / 5.0).log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * step);
            let step = step.into_iter().find(|step| high / step <= 6.0).unwrap_or(high);
            (0..).map(|index| f64::from(index) * step).take_while(|value| *value <= high).collect()
        }
    }
}

/// Formats a tick's value in at most five characters, as required by narrow charts.
fn plain(value: f64) -> String {
    let unit = [(1e9_f64, "G"), (1e6, "M"), (1e3, "k")].into_iter().find(|(unit, _)| value >= unit.max(1e4));
    if let Some((unit, suffix)) = unit {
        return plain(value / unit) + suffix;
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".to_owned() } else { text.to_owned() }
}

/// Escapes text for HTML, because names come from files and the command line.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, values: &[f64]) -> Chart {
        let point = |(index, &y): (usize, &f64)| Point { x: index as f64 / 10.0, y, title: format!("{y}") };
        Chart {
            x_title: "<size>".to_owned(),
            y_title: "slowdown".to_owned(),
            scale,
            x_ticks: vec![(0.0, "1 B".to_owned())],
            curves: vec![Curve {
                label: "homa & more".to_owned(),
                class: "homa".to_owned(),
                is_reference: false,
                points: values.iter().enumerate().map(point).collect(),
            }],
        }
    }

    #[test]
    fn every_point_is_drawn_and_named() {
        let svg = chart(Scale::Log, &[1.0, 2.5, 30.0]).svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        for text in ["homa &amp; more", "&lt;size&gt;", "1 B", ">10<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        assert_eq!(chart(Scale::Log, &[0.0, f64::NAN]).svg(), "");
        assert_eq!(chart(Scale::Log, &[0.0, 2.0]).svg().matches("<circle").count(), 1);
        assert_eq!(chart(Scale::Linear, &[0.0, 2.0]).svg().matches("<circle").count(), 2);
        assert!(!chart(Scale::Linear, &[0.0]).svg().contains("NaN"));
    }

    /// Checks that the classes exist in the style sheet, and that no two curves look the same.
    #[test]
    fn curves_with_numbers_are_told_apart() {
        let classes: Vec<String> = (0..80).map(class_of).collect();
        assert_eq!(
            [0, 7, 8, 17, 40, 79].map(class_of),
            ["s0", "s7", "s0 dash1", "s1 dash2", "s0 hollow", "s7 dash4 hollow"]
        );
        let style = include_str!("page.css");
        for (number, class) in classes.iter().enumerate() {
            assert!(!classes[..number].contains(class), "{class}");
            assert!(class.split(' ').all(|part| style.contains(&format!(".{part} {{"))), "{class}");
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(Scale::Log, 0.9, 12.0), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks(Scale::Linear, 0.0, 0.55).len(), 6);
        assert_eq!([0.0, 0.1, 20.0, 5e3].map(plain), ["0", "0.1", "20", "5000"]);
        assert_eq!([1e4, 2.5e5, 1e6, 5e6, 1e9].map(plain), ["10k", "250k", "1M", "5M", "1G"]);
    }
}
