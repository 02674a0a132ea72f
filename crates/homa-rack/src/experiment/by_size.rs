//! Charts of slowdown by message size. Equal distances on the x axis represent equal numbers of messages.

use homa_report::chart::{Chart, Curve, Point, Scale, size_ticks};
use homa_report::number::short_number;
use homa_report::number::size;
use homa_workload::{BinSummary, Workload};

/// The slowdowns of one contender.
pub struct Line<'a> {
    /// The label of the curve.
    pub label: String,
    /// CSS class with the curve's colour.
    pub class: String,
    /// Whether to draw a thin curve, for results that were not measured here.
    pub is_reference: bool,
    /// The bins of all message sizes.
    pub bins: &'a [BinSummary],
    /// Whether the last bin is the largest 1 %, which overlaps with other bins.
    pub has_largest: bool,
}

/// Draws a curve of `value` for each line.
pub fn chart(lines: &[Line<'_>], workload: &Workload, title: &str, value: fn(&BinSummary) -> f64) -> Chart {
    let curve = |line: &Line<'_>| {
        let bins = &line.bins[..line.bins.len() - usize::from(line.has_largest)];
        let mut before = 0.0;
        let points = bins.iter().map(|bin| {
            let upto = workload.cdf(bin.max_bytes);
            let x = f64::midpoint(before, upto);
            before = upto;
            let (label, value) = (&line.label, value(bin));
            let title = format!(
                "{label} {}: messages up to {}, {} of them",
                short_number(value),
                size(bin.max_bytes),
                bin.count
            );
            (bin.count > 0).then_some(Point { x, y: value, title })
        });
        Curve {
            points: points.flatten().collect(),
            label: line.label.clone(),
            class: line.class.clone(),
            is_reference: line.is_reference,
        }
    };
    Chart {
        x_title: "Message size; equal parts hold equally many messages".to_owned(),
        y_title: title.to_owned(),
        scale: Scale::Log,
        x_ticks: size_ticks(
            workload.min_bytes(),
            |part| workload.quantile(part),
            |bytes| workload.cdf(bytes),
        ),
        curves: lines.iter().map(curve).collect(),
    }
}
