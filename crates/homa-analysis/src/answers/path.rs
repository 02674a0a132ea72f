//! The minimum delay of packets on a path, as a function of their length.

use std::collections::BTreeMap;

use serde::Serialize;

use super::percentiles::Percentiles;

/// Maximum weight of one length, in packets. Beyond it, more packets do not make the minimum more certain.
const WEIGHT_MAX: u64 = 100;
/// Number of rounds in which lengths above the line are removed.
const ROUNDS: usize = 4;

/// The minimum delay and the number of packets for each length in bytes.
#[derive(Clone, Debug, Default)]
pub struct Minima(BTreeMap<u32, (i64, u64)>);

/// A linear model: delay = A x bytes + B.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// A: nanoseconds per byte.
    pub ns_per_byte: f64,
    /// B: nanoseconds for an empty packet.
    pub base_ns: f64,
}

impl Line {
    /// Returns the delay of a packet of this length, in nanoseconds.
    #[must_use]
    pub fn ns(&self, length: u32) -> f64 {
        self.base_ns + self.ns_per_byte * f64::from(length)
    }
}

impl Minima {
    /// Adds one packet.
    pub fn add(&mut self, length: u32, delay_ns: i64) {
        let least = self.0.entry(length).or_insert((delay_ns, 0));
        *least = (least.0.min(delay_ns), least.1 + 1);
    }

    /// Adds all packets of another path.
    pub fn join(&mut self, other: &Minima) {
        for (length, (delay, count)) in &other.0 {
            let least = self.0.entry(*length).or_insert((*delay, 0));
            *least = (least.0.min(*delay), least.1 + count);
        }
    }

    /// Returns the number of different lengths.
    #[must_use]
    pub fn lengths(&self) -> usize {
        self.0.len()
    }

    /// Returns the least-squares line through the minima, weighted by packets, or `None` for fewer than two
    /// lengths.
    #[must_use]
    pub fn least_squares(&self) -> Option<Line> {
        fit_line(&self.points())
    }

    /// Returns the differences between the minima and the line.
    #[must_use]
    pub fn residuals(&self, line: Line) -> Option<Percentiles> {
        let residual =
            |(length, (least, _)): (&u32, &(i64, u64))| (*least as f64 - line.ns(*length)).round() as i64;
        Percentiles::of(&mut self.0.iter().map(residual).collect::<Vec<_>>())
    }

    /// Returns a line that is below all packets and close to the undelayed ones. If the lengths do not
    /// determine a slope, the line has the slope of `other`.
    #[must_use]
    pub fn lower_line(&self, other: Option<Line>) -> Option<Line> {
        let mut points = self.points();
        let mut line = fit_line(&points);
        for _ in 0..ROUNDS {
            let Some(of) = line else { break };
            points.retain(|(length, least, _)| *least <= of.ns(*length as u32) + 0.5);
            match fit_line(&points) {
                Some(closer) => line = Some(closer),
                None => break,
            }
        }
        let usable = line.filter(|line| line.ns_per_byte > 0.0).or(other);
        let ns_per_byte = usable.map_or(0.0, |line| line.ns_per_byte.max(0.0));
        let base = self.0.iter().map(|(length, (least, _))| *least as f64 - ns_per_byte * f64::from(*length));
        let base_ns = base.min_by(f64::total_cmp)?;
        Some(Line { ns_per_byte, base_ns })
    }

    /// Returns, for each length, the length, the minimum delay and the weight.
    fn points(&self) -> Vec<(f64, f64, f64)> {
        let point = |(length, (least, count)): (&u32, &(i64, u64))| {
            (f64::from(*length), *least as f64, (*count).min(WEIGHT_MAX) as f64)
        };
        self.0.iter().map(point).collect()
    }
}

fn fit_line(points: &[(f64, f64, f64)]) -> Option<Line> {
    let weight: f64 = points.iter().map(|point| point.2).sum();
    let mean = |of: fn(&(f64, f64, f64)) -> f64| {
        points.iter().map(|point| of(point) * point.2).sum::<f64>() / weight
    };
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| point.2 * (point.0 - x).powi(2)).sum();
    if points.len() < 2 || spread <= 0.0 {
        return None;
    }
    let both: f64 = points.iter().map(|point| point.2 * (point.0 - x) * (point.1 - y)).sum();
    let ns_per_byte = both / spread;
    Some(Line { ns_per_byte, base_ns: y - ns_per_byte * x })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_undelayed_packets_is_found_among_delayed_ones() {
        let mut minima = Minima::default();
        for length in (100..1_500_u32).step_by(100) {
            minima.add(length, 1_000 + i64::from(length) * 2);
            minima.add(length, 9_000);
        }
        let line = minima.least_squares().expect("a line");
        assert!((line.ns_per_byte - 2.0).abs() < 1e-6 && (line.base_ns - 1_000.0).abs() < 1e-6, "{line:?}");
        assert_eq!(minima.residuals(line).map(|found| found.p100), Some(0));
        // Only delayed packets have this length.
        minima.add(150, 5_000);
        minima.add(1_450, 20_000);
        let lower = minima.lower_line(None).expect("a line");
        assert!(
            (lower.ns_per_byte - 2.0).abs() < 1e-6 && (lower.base_ns - 1_000.0).abs() < 1e-6,
            "{lower:?}"
        );
        assert!(minima.residuals(line).map(|found| found.p100) > Some(10_000));
    }

    #[test]
    fn one_length_has_the_slope_of_others() {
        let mut minima = Minima::default();
        assert!(minima.lower_line(None).is_none());
        minima.add(1_000, 3_000);
        assert_eq!(minima.least_squares(), None);
        let other = Line { ns_per_byte: 2.0, base_ns: 0.0 };
        assert_eq!(minima.lower_line(Some(other)), Some(Line { ns_per_byte: 2.0, base_ns: 1_000.0 }));
    }
}
