//! Distributions of values.

use serde::Serialize;

/// The percentiles used in all tables.
pub const PERCENTILES: [f64; 9] = [0.0, 10.0, 30.0, 50.0, 70.0, 90.0, 99.0, 99.9, 100.0];

/// Values at [`PERCENTILES`]. The value at a percentage is the smallest one that this share of all values
/// does not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of values, at least 1.
    pub count: u64,
    /// Mean of the values.
    pub mean: f64,
    /// The minimum.
    pub p0: i64,
    /// The 10th percentile.
    pub p10: i64,
    /// The 30th percentile.
    pub p30: i64,
    /// The median.
    pub p50: i64,
    /// The 70th percentile.
    pub p70: i64,
    /// The 90th percentile.
    pub p90: i64,
    /// The 99th percentile.
    pub p99: i64,
    /// The 99.9th percentile.
    pub p99_9: i64,
    /// The maximum.
    pub p100: i64,
}

impl Percentiles {
    /// Summarizes these values, and sorts them. Returns `None` if there are none.
    #[must_use]
    pub fn of(values: &mut [i64]) -> Option<Percentiles> {
        if values.is_empty() {
            return None;
        }
        values.sort_unstable();
        let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
        let [p0, p10, p30, p50, p70, p90, p99, p99_9, p100] =
            PERCENTILES.map(|percent| values[rank(values.len(), percent)]);
        Some(Percentiles {
            count: values.len() as u64,
            mean: sum as f64 / values.len() as f64,
            p0,
            p10,
            p30,
            p50,
            p70,
            p90,
            p99,
            p99_9,
            p100,
        })
    }

    /// Returns the values in the order of [`PERCENTILES`].
    #[must_use]
    pub const fn values(&self) -> [i64; 9] {
        [self.p0, self.p10, self.p30, self.p50, self.p70, self.p90, self.p99, self.p99_9, self.p100]
    }
}

fn rank(count: usize, percent: f64) -> usize {
    ((count as f64 * percent / 100.0).ceil() as usize).clamp(1, count) - 1
}

/// Returns the median of these values, and sorts them.
pub(crate) fn median(values: &mut [i64]) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        let mut values: Vec<i64> = (1..=1_000).rev().collect();
        let found = Percentiles::of(&mut values).expect("values");
        assert_eq!(found.values(), [1, 100, 300, 500, 700, 900, 990, 999, 1_000]);
        assert_eq!((found.count, found.mean), (1_000, 500.5));
        assert_eq!(Percentiles::of(&mut []), None);
        assert_eq!(Percentiles::of(&mut [-7]).expect("a value").values(), [-7; 9]);
        assert_eq!(median(&mut [5, 1, 9, 7]), Some(5));
    }
}
