//! Labels at the right ends of a chart's curves.

use std::fmt::{Result, Write};

/// The label of a curve.
#[derive(Clone, Debug)]
pub struct Label {
    /// End point of the curve: x and y in pixels.
    pub end: (f64, f64),
    /// HTML, already escaped.
    pub text: String,
    /// CSS class that sets the colour.
    pub class: String,
}

/// Draws labels to the right of `right` and above `bottom`, at least `apart` pixels apart, each with a line
/// to its curve.
pub fn draw(out: &mut String, mut labels: Vec<Label>, (right, bottom): (f64, f64), apart: f64) -> Result {
    labels.sort_by(|one, other| one.end.1.total_cmp(&other.end.1));
    let mut lowest = f64::NEG_INFINITY;
    let overflow = bottom - apart * labels.len() as f64;
    for (index, Label { end, text, class }) in labels.into_iter().enumerate() {
        let place = end.1.max(lowest + apart).min(overflow + apart * (index + 1) as f64);
        lowest = place;
        let x = right + 14.0;
        let (begin, y, line_end, base) = (end.0 + 6.0, end.1, x - 3.0, place + 4.0);
        writeln!(
            out,
            "<line class=\"lead {class}\" x1=\"{begin:.1}\" y1=\"{y:.1}\" x2=\"{line_end}\" y2=\"{place:.1}\"/>\
             <text class=\"label {class}\" x=\"{x}\" y=\"{base:.1}\">{text}</text>"
        )?;
    }
    Ok(())
}
