//! Sizes of the batches in which packets are received or handed over.

use serde::Serialize;

/// Upper bounds of the size classes, inclusive.
pub const CLASSES: [usize; 5] = [1, 7, 31, 63, usize::MAX];

/// Names of the classes.
pub const CLASS_NAMES: [&str; 5] = ["1", "2-7", "8-31", "32-63", "64 and more"];

/// Counts of batches by size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    count: u64,
    packets: u64,
    classes: [u64; CLASSES.len()],
}

/// Statistics of batches, for results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BatchSummary {
    /// Number of batches.
    pub count: u64,
    /// Mean packets per batch.
    pub mean: f64,
    /// Share of batches in each size class: 1, 2-7, 8-31, 32-63, 64 and more.
    pub shares: [f64; CLASSES.len()],
}

impl Batches {
    /// Adds a batch of this many packets. A batch of 0 packets is not counted.
    pub fn add(&mut self, packets: usize) {
        if packets > 0 {
            self.count += 1;
            self.packets += packets as u64;
            let class = CLASSES.iter().position(|&most| packets <= most).unwrap_or(0);
            self.classes[class] += 1;
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Batches) {
        self.count += other.count;
        self.packets += other.packets;
        self.classes.iter_mut().zip(other.classes).for_each(|(sum, more)| *sum += more);
    }

    /// Returns the statistics, or `None` if there was no batch.
    pub fn summary(&self) -> Option<BatchSummary> {
        let share = |count: u64| count as f64 / self.count as f64;
        (self.count > 0).then(|| BatchSummary {
            count: self.count,
            mean: self.packets as f64 / self.count as f64,
            shares: self.classes.map(share),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_by_size_and_none_is_no_batch() {
        let mut batches = Batches::default();
        assert_eq!(batches.summary(), None);
        for packets in [0, 1, 1, 7, 8, 32, 0, 64, 63, 1_000] {
            batches.add(packets);
        }
        let mut twice = batches;
        twice.merge(&batches);
        let summary = twice.summary().expect("batches");
        assert_eq!((summary.count, summary.mean), (16, 1_176.0 / 8.0));
        assert_eq!(summary.shares, [0.25, 0.125, 0.125, 0.25, 0.25]);
    }
}
