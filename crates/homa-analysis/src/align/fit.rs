//! The difference between two clocks, from the packets between them.

use super::hull::{Band, Point, STEEPEST};

/// The packets are cut into as many windows to see how well those of one reach the edges of the band.
const WINDOWS: usize = 32;
/// A window of fewer packets says little.
const WINDOW_PACKETS: usize = 8;
/// Clocks are read in whole nanoseconds.
const RESOLUTION_NS: f64 = 1.0;

/// The difference of two clocks, as a function of the first one: `second - first = base + value + slope * (first - pivot)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// A moment of the first clock where the difference is known best, in nanoseconds.
    pub(super) pivot: i64,
    /// Most of the difference there.
    pub(super) base: i64,
    /// The rest of it.
    pub(super) value: f64,
    /// What the difference grows by in each nanosecond of the first clock.
    pub(super) slope: f64,
    /// How far `value` may be off if packets take the same shortest time in both directions.
    pub(super) value_error: f64,
    /// How far `slope` may be off.
    pub(super) slope_error: f64,
    /// The shortest time to the second node plus the shortest time back, in nanoseconds; less than zero where no straight line
    /// goes between what the packets say, as when a clock was set.
    pub(super) round_trip: f64,
    /// From the first packet to the last, in nanoseconds.
    pub(super) span: f64,
}

impl Fit {
    /// From the points that bound the difference from above (packets to the second node) and from below (packets from it). Sorts
    /// them. `None` where packets went one way only.
    pub(super) fn new(upper: &mut [Point], lower: &mut [Point]) -> Option<Fit> {
        upper.sort_unstable();
        lower.sort_unstable();
        let band = Band::new(upper, lower)?;
        let widest = band.widest();
        let round_trip = band.width(widest);
        let noise = noise(&band, widest, upper, lower).max(RESOLUTION_NS);
        // Of the slopes that noise cannot tell apart the middle one: it hangs on more than three packets.
        let (from, to) = band.slopes(widest, round_trip - noise);
        let slope = from.midpoint(to);
        let middle = |slope| {
            let (high, low) = band.edges(slope);
            f64::midpoint(high, low)
        };
        let (first, last) = band.span;
        // Where the lines of all those slopes meet.
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

/// By how much the shortest times of a part of the packets usually exceed those of all, both ways together, in nanoseconds.
fn noise(band: &Band, slope: f64, upper: &[Point], lower: &[Point]) -> f64 {
    let (high, low) = band.edges(slope);
    let origin = band.origin();
    let height = |point: &Point| (point.y - origin.y) as f64 - slope * (point.x - origin.x) as f64;
    let windows = (upper.len().min(lower.len()) / WINDOW_PACKETS).min(WINDOWS);
    // Too few to look at parts of them: what is not known may be half of all that is possible.
    if windows < 4 {
        return (high - low).abs() / 2.0;
    }
    let up = usual(windows, upper, |point| height(point) - high);
    let down = usual(windows, lower, |point| low - height(point));
    up + down
}

/// The median of the smallest values of so many equal parts of the points.
fn usual(windows: usize, points: &[Point], excess: impl Fn(&Point) -> f64) -> f64 {
    let mut least: Vec<f64> = points
        .chunks(points.len().div_ceil(windows).max(1))
        .map(|window| window.iter().map(&excess).fold(f64::INFINITY, f64::min))
        .collect();
    least.sort_unstable_by(f64::total_cmp);
    least.get(least.len() / 2).copied().unwrap_or(0.0)
}
