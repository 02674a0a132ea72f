//! The line between two sets of points.
//!
//! Each packet in one direction bounds the difference of two clocks from above, and each packet in the
//! opposite direction bounds the difference from below. If the difference is linear in time, its line runs
//! between the two sets of points. Undelayed packets touch the edges of the band that contains the line.

/// A time of one clock and its difference from the other clock. Both are in nanoseconds and below 2^62 in
/// magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) x: i64,
    pub(super) y: i64,
}

/// Returns the corners of the lower hull of points sorted by `x`.
fn lower_hull(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        while let [.., first, second] = hull[..] {
            if is_below(first, second, point) {
                break;
            }
            hull.pop();
        }
        // Of several points with the same time, only the lowest matters.
        match hull.last_mut() {
            Some(last) if last.x == point.x => last.y = last.y.min(point.y),
            _ => hull.push(point),
        }
    }
    hull
}

/// Returns whether the middle point lies below the straight line between the other two.
fn is_below(first: Point, middle: Point, last: Point) -> bool {
    let difference = |a: i64, b: i64| i128::from(a) - i128::from(b);
    difference(middle.y, first.y) * difference(last.x, first.x)
        < difference(last.y, first.y) * difference(middle.x, first.x)
}

/// For every slope, the band between the points that bound a line from above and the points that bound it
/// from below.
#[derive(Debug)]
pub(super) struct Band {
    /// The lower hull of the upper points, and that of the lower points with negated `y`.
    hulls: [Vec<(f64, f64)>; 2],
    origin: Point,
    /// First and last time of all points, relative to the origin.
    pub(super) span: (f64, f64),
}

/// Maximum slope of the search. A clock that is wrong by a thousandth is broken.
pub(super) const STEEPEST: f64 = 1e-3;

/// Number of bisections of a range of slopes, enough to get from 2 * [`STEEPEST`] down to the resolution of a
/// double.
const HALVINGS: usize = 60;

impl Band {
    /// Computes the band between two sets of points. Both sets must be sorted by `x`. Returns `None` if one
    /// of them is empty.
    pub(super) fn new(upper: &[Point], lower: &[Point]) -> Option<Band> {
        let (first, below) = (upper.first()?, lower.first()?);
        let last = upper.last()?.x.max(lower.last()?.x);
        let start = first.x.min(below.x);
        let origin = Point { x: start + (last - start) / 2, y: first.y };
        let turned = lower.iter().map(|point| Point { x: point.x, y: -point.y });
        let relative = |hull: Vec<Point>, sign: i64| -> Vec<(f64, f64)> {
            hull.iter()
                .map(|point| ((point.x - origin.x) as f64, (sign * point.y - origin.y) as f64))
                .collect()
        };
        let hulls = [relative(lower_hull(upper.iter().copied()), 1), relative(lower_hull(turned), -1)];
        Some(Band { hulls, origin, span: ((start - origin.x) as f64, (last - origin.x) as f64) })
    }

    /// Returns the point that serves as the origin of both axes.
    pub(super) fn origin(&self) -> Point {
        self.origin
    }

    /// Returns the heights at the origin of the highest and the lowest line of this slope that the points
    /// allow. If no line of this slope fits, the first height is below the second.
    pub(super) fn edges(&self, slope: f64) -> (f64, f64) {
        let [upper, lower] = &self.hulls;
        let high = upper.iter().map(|(x, y)| y - slope * x).fold(f64::INFINITY, f64::min);
        let low = lower.iter().map(|(x, y)| y - slope * x).fold(f64::NEG_INFINITY, f64::max);
        (high, low)
    }

    /// Returns the distance between the edges, which is a concave function of the slope.
    pub(super) fn width(&self, slope: f64) -> f64 {
        let (high, low) = self.edges(slope);
        high - low
    }

    /// Returns the slope with the widest band. Undelayed packets touch both edges over the whole span, so a
    /// line of a different slope has less room.
    pub(super) fn widest(&self) -> f64 {
        let (mut from, mut to) = (-STEEPEST, STEEPEST);
        for _ in 0..2 * HALVINGS {
            let (left, right) = (from + (to - from) / 3.0, to - (to - from) / 3.0);
            if self.width(left) < self.width(right) {
                from = left;
            } else {
                to = right;
            }
        }
        from.midpoint(to)
    }

    /// Returns the range of slopes around the widest one for which the band is at least this wide.
    pub(super) fn slopes(&self, widest: f64, width: f64) -> (f64, f64) {
        let bound = |limit: f64| {
            let (mut inside, mut outside) = (widest, limit);
            if self.width(outside) >= width {
                return outside;
            }
            for _ in 0..HALVINGS {
                let middle = inside.midpoint(outside);
                if self.width(middle) >= width { inside = middle } else { outside = middle }
            }
            inside
        };
        (bound(-STEEPEST), bound(STEEPEST))
    }
}
