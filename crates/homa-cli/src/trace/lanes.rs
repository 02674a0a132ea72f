//! Draws RPCs as timelines and causes as bars, in SVG with the colours of the page.

use std::fmt::Write;

use homa_analysis::model::Rpc;
use homa_analysis::{Amounts, Cause, Model, Path};
use homa_report::chart::escape;

use super::format::{percent, time};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 90.0;
const LANE: f64 = 22.0;
/// Maximum number of spans drawn separately. If there are more, adjacent spans are merged, because they would
/// be too small to point at.
const SPANS: usize = 500;
const LANES: [&str; 3] = ["client", "network", "server"];

/// Returns the colours of the causes for the page's style sheet. Consecutive causes in the list have very
/// different hues.
pub fn style() -> String {
    let mut out = String::from(
        "td.words, th.words { text-align: left; }\n.key { display: inline-block; width: .8em; height: .8em; }\n",
    );
    for (index, cause) in Cause::ALL.iter().enumerate() {
        let hue = (index * 137) % 360;
        // Writing to a string cannot fail.
        let _ = writeln!(out, ".c-{cause} {{ fill: hsl({hue} 62% 52%); background: hsl({hue} 62% 52%); }}");
    }
    out
}

/// Draws a legend of the causes that occur.
pub fn key(amounts: &Amounts) -> String {
    let shown = Cause::ALL.iter().filter(|cause| amounts[**cause] > 0);
    let one = |cause: &Cause| {
        format!(
            "<span class=\"key c-{cause}\"></span> <span title=\"{}\">{cause}</span>",
            escape(cause.says())
        )
    };
    format!("<p class=\"quiet\">{}</p>\n", shown.map(one).collect::<Vec<_>>().join(" &nbsp; "))
}

/// Draws bars of equal width, each split by cause.
pub fn bars(rows: &[(String, Amounts)]) -> String {
    let height = 8.0 + rows.len() as f64 * (LANE + 6.0);
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"shares of causes\">\n");
    let left = LEFT + 60.0;
    for (row, (name, amounts)) in rows.iter().enumerate() {
        let (y, all) = (4.0 + row as f64 * (LANE + 6.0), amounts.total().max(1) as f64);
        let (x_text, y_text) = (left - 8.0, y + LANE - 6.0);
        let _ = writeln!(
            out,
            "<text class=\"tick end\" x=\"{x_text}\" y=\"{y_text:.1}\">{}</text>",
            escape(name)
        );
        let mut x = left;
        for cause in Cause::ALL.iter().filter(|cause| amounts[**cause] > 0) {
            let share = amounts[*cause] as f64 / all;
            let width = (WIDTH - left) * share;
            let title = format!("{cause}: {}", percent(share));
            let _ = writeln!(
                out,
                "<rect class=\"c-{cause}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{LANE}\"><title>{title}</title></rect>"
            );
            x += width;
        }
    }
    out.push_str("</svg>\n");
    out
}

/// A part of a timeline.
struct Part {
    from_ns: u64,
    to_ns: u64,
    cause: Cause,
    lane: usize,
    title: String,
}

/// Draws the critical path of an RPC.
pub fn rpc(model: &Model, rpc: &Rpc, path: &Path) -> String {
    let (Some(first), Some(last)) = (path.spans.first(), path.spans.last()) else { return String::new() };
    let (start, all) = (first.from_ns, (last.to_ns - first.from_ns).max(1) as f64);
    let height = 3.0 * (LANE + 4.0) + 26.0;
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"RPC {}\">\n", rpc.id);
    for (lane, name) in LANES.iter().enumerate() {
        let y = lane as f64 * (LANE + 4.0);
        let (x, base) = (LEFT - 8.0, y + LANE - 6.0);
        let _ = writeln!(out, "<text class=\"tick end\" x=\"{x}\" y=\"{base:.1}\">{name}</text>");
        let (x2, middle) = (WIDTH, y + LANE / 2.0);
        let _ =
            writeln!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{x2}\" y1=\"{middle}\" y2=\"{middle}\"/>");
    }
    let x = |ns: u64| LEFT + (WIDTH - LEFT) * ((ns - start) as f64 / all);
    for part in parts(model, rpc, path) {
        let (from, to, y) = (x(part.from_ns), x(part.to_ns), part.lane as f64 * (LANE + 4.0));
        let width = (to - from).max(0.3);
        let _ = writeln!(
            out,
            "<rect class=\"c-{}\" x=\"{from:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{LANE}\"><title>{}</title></rect>",
            part.cause,
            escape(&part.title)
        );
    }
    for quarter in 0..=4_u64 {
        let ns = (all * quarter as f64 / 4.0) as u64;
        let class = if quarter == 4 { "tick end" } else { "tick" };
        let (x, y) = (x(start + ns), height - 8.0);
        let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\">{}</text>", time(ns));
    }
    out.push_str("</svg>\n");
    out
}

fn parts(model: &Model, rpc: &Rpc, path: &Path) -> Vec<Part> {
    let one = |span: &homa_analysis::Span| Part {
        from_ns: span.from_ns,
        to_ns: span.to_ns,
        cause: span.cause,
        lane: match span.cause {
            Cause::Network | Cause::SwitchQueue | Cause::NetworkQueue | Cause::LossWait => 1,
            _ if span.node == rpc.server => 2,
            _ => 0,
        },
        title: format!(
            "{} {} at {}",
            span.cause,
            time(span.to_ns - span.from_ns),
            model.place(span.node, span.port)
        ),
    };
    let all: Vec<Part> = path.spans.iter().map(one).collect();
    if all.len() <= SPANS {
        return all;
    }
    // Divide the time into equal pieces, and draw each in the colour of its most frequent cause.
    let (start, end) = (path.spans[0].from_ns, path.spans[path.spans.len() - 1].to_ns);
    let step = (end - start).div_ceil(SPANS as u64).max(1);
    let mut pieces: Vec<Part> = Vec::new();
    let mut next = all.into_iter().peekable();
    let mut from = start;
    while from < end {
        let until = (from + step).min(end);
        let mut most: Option<Part> = None;
        while let Some(part) = next.peek() {
            let within = |part: &Part| part.to_ns.min(until).saturating_sub(part.from_ns.max(from));
            let is_more = most.as_ref().is_none_or(|most| within(part) > within(most));
            let goes_on = part.to_ns > until;
            if is_more {
                most = Some(Part { title: part.title.clone(), ..*part });
            }
            if goes_on {
                break;
            }
            next.next();
        }
        if let Some(part) = most {
            match pieces.last_mut() {
                Some(last) if (last.cause, last.lane) == (part.cause, part.lane) => last.to_ns = until,
                _ => pieces.push(Part {
                    from_ns: from,
                    to_ns: until,
                    title: format!("mostly {}", part.cause),
                    ..part
                }),
            }
        }
        from = until;
    }
    pieces
}
