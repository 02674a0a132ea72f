//! The difference between two clocks, computed from the packets between them.

use super::hull::{Band, Point, STEEPEST};

/// Maximum number of windows. The scatter of the windows' shortest times shows how accurately the edges of
/// the band are known.
const WINDOWS: usize = 32;
/// Minimum number of packets in a window. Fewer packets say little about the edges.
const WINDOW_PACKETS: usize = 8;
/// Clocks are read in whole nanoseconds.
const RESOLUTION_NS: f64 = 1.0;

/// The difference of two clocks as a function of the first clock:
/// `second - first = base + value + slope * (first - pivot)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// Time of the first clock at which the difference is known most accurately, in nanoseconds.
    pub(super) pivot: i64,
    /// A whole number of nanoseconds close to the difference at the pivot.
    pub(super) base: i64,
    /// The remainder of the difference, in nanoseconds.
    pub(super) value: f64,
    /// Growth of the difference per nanosecond of the first clock.
    pub(super) slope: f64,
    /// Maximum error of `value` if packets take the same shortest time in both directions.
    pub(super) value_error: f64,
    /// Maximum error of `slope`.
    pub(super) slope_error: f64,
    /// The shortest time to the second node plus the shortest time back, in nanoseconds. It is negative if no
    /// straight line fits between the bounds, for example because a clock was set.
    pub(super) round_trip: f64,
    /// Time from the first to the last packet, in nanoseconds.
    pub(super) span: f64,
}

impl Fit {
    /// Fits a line between the points that bound the difference from above (packets to the second node) and
    /// those that bound it from below (packets from the second node). Sorts both sets. Returns `None` if
    /// packets were sent in one direction only.
    pub(super) fn new(upper: &mut [Point], lower: &mut [Point]) -> Option<Fit> {
        upper.sort_unstable();
        lower.sort_unstable();
        let band = Band::new(upper, lower)?;
        let widest = band.widest();
        let round_trip = band.width(widest);
        let noise = noise(&band, widest, upper, lower).max(RESOLUTION_NS);
        // Use the middle of all slopes whose bands are narrower than the widest by less than the noise,
        // because that middle depends on more than three packets.
        let (from, to) = band.slopes(widest, round_trip - noise);
        let slope = from.midpoint(to);
        let middle = |slope| {
            let (high, low) = band.edges(slope);
            f64::midpoint(high, low)
        };
        let (first, last) = band.span;
        // The point at which the lines of all those slopes intersect.
        let pivot = if to > from { (middle(from) - middle(to)) / (to - from) } else { 0.0 };
        let pivot = pivot.clamp(first, last).round();
        let origin = band.origin();
        Some(Fit {
            pivot: origin.x + pivot as i64,
            base: origin.y,
            value: middle(slope) + slope * pivot,
            slope,
            value_error: noise / 2.0,
            slope_error: if from <= -STEEPEST && to >= STEEPEST { STEEPEST } else { (to - from) / 2.0 },
            round_trip: band.width(slope),
            span: last - first,
        })
    }
}

/// Returns by how much the shortest time within a window typically exceeds the overall shortest time, summed
/// over both directions, in nanoseconds.
fn noise(band: &Band, slope: f64, upper: &[Point], lower: &[Point]) -> f64 {
    let (high, low) = band.edges(slope);
    let origin = band.origin();
    let height = |point: &Point| (point.y - origin.y) as f64 - slope * (point.x - origin.x) as f64;
    let windows = (upper.len().min(lower.len()) / WINDOW_PACKETS).min(WINDOWS);
    // There are too few packets for windows: assume an error of half of the band.
    if windows < 4 {
        return (high - low).abs() / 2.0;
    }
    let up = usual(windows, upper, |point| height(point) - high);
    let down = usual(windows, lower, |point| low - height(point));
    up + down
}

/// Returns the median of the minima of `windows` equal parts of the points.
fn usual(windows: usize, points: &[Point], excess: impl Fn(&Point) -> f64) -> f64 {
    let mut least: Vec<f64> = points
        .chunks(points.len().div_ceil(windows).max(1))
        .map(|window| window.iter().map(&excess).fold(f64::INFINITY, f64::min))
        .collect();
    least.sort_unstable_by(f64::total_cmp);
    least.get(least.len() / 2).copied().unwrap_or(0.0)
}
