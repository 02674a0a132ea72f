//! Median and range of a metric over repetitions.

use serde::Serialize;

/// A metric over the repetitions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// The values in the order of the repetitions.
    pub samples: Vec<f64>,
}

impl Summary {
    /// Summarises these values; returns `None` if there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut summary = Summary::default();
        samples.into_iter().for_each(|value| summary.add(value));
        (!summary.samples.is_empty()).then_some(summary)
    }

    /// Adds the value of a repetition.
    pub fn add(&mut self, value: f64) {
        self.samples.push(value);
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        self.median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        (self.min, self.max) = (sorted[0], sorted[sorted.len() - 1]);
    }

    /// Returns the summary with all values multiplied by `factor`, to convert its unit.
    pub fn scaled(&self, factor: f64) -> Summary {
        let samples = self.samples.iter().map(|value| value * factor).collect();
        Summary { median: self.median * factor, min: self.min * factor, max: self.max * factor, samples }
    }

    /// Divides the values by those of `below` in the same repetition, for the repetitions that both summaries
    /// have. Returns `None` if there are none.
    pub fn over(&self, below: &Summary) -> Option<Summary> {
        let pairs = self.samples.iter().zip(&below.samples);
        Summary::of(pairs.filter(|(_, below)| **below > 0.0).map(|(above, below)| above / below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_range() {
        let summary = Summary::of([3.0, 1.0, 10.0]).expect("values");
        assert_eq!((summary.median, summary.min, summary.max), (3.0, 1.0, 10.0));
        assert_eq!(Summary::of([1.0, 2.0]).expect("values").median, 1.5);
        assert!(Summary::of([]).is_none());
        let half = summary.scaled(0.5);
        assert_eq!((half.median, half.min, half.max, half.samples), (1.5, 0.5, 5.0, vec![1.5, 0.5, 5.0]));
    }

    #[test]
    fn ratios_are_of_the_same_repetition() {
        let above = Summary::of([2.0, 30.0, 8.0]).expect("values");
        let below = Summary::of([1.0, 10.0]).expect("values");
        assert_eq!(above.over(&below).expect("values").samples, [2.0, 3.0]);
        assert!(above.over(&Summary::of([0.0]).expect("values")).is_none());
    }
}
