//! Queue length over time.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Sampling interval of the distribution. Mean and maximum are exact.
const SAMPLE_NS: u64 = 20_000;

/// Length of a queue over time, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DepthSummary {
    /// Time-weighted mean.
    pub mean_bytes: f64,
    /// 99th percentile over time.
    pub p99_bytes: u64,
    /// Maximum.
    pub max_bytes: u64,
    /// Current length.
    pub now_bytes: u64,
}

/// Accumulates the length of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Depth {
    bytes: u64,
    max: u64,
    changed_ns: u64,
    started_ns: u64,
    /// Integral of the length up to the last change, in byte-nanoseconds.
    area: u128,
    sampled_ns: u64,
    /// Samples taken while the queue was not empty.
    samples: Histogram<u64>,
}

impl Depth {
    pub(crate) fn new(now_ns: u64) -> Depth {
        let samples = Histogram::new_with_bounds(1, 1 << 34, 2).expect("the bounds are valid");
        Depth {
            bytes: 0,
            max: 0,
            changed_ns: now_ns,
            started_ns: now_ns,
            area: 0,
            sampled_ns: now_ns,
            samples,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn pass(&mut self, now_ns: u64) {
        self.area += u128::from(self.bytes) * u128::from(now_ns.saturating_sub(self.changed_ns));
        self.changed_ns = self.changed_ns.max(now_ns);
        let periods = now_ns.saturating_sub(self.sampled_ns) / SAMPLE_NS;
        if periods > 0 {
            self.sampled_ns += periods * SAMPLE_NS;
            if self.bytes > 0 {
                self.samples.saturating_record_n(self.bytes, periods);
            }
        }
    }

    pub(crate) fn grow(&mut self, now_ns: u64, bytes: u64) {
        self.pass(now_ns);
        self.bytes += bytes;
        self.max = self.max.max(self.bytes);
    }

    pub(crate) fn shrink(&mut self, now_ns: u64, bytes: u64) {
        self.pass(now_ns);
        self.bytes -= bytes;
    }

    /// Returns the summary up to now.
    pub(crate) fn summary(&mut self, now_ns: u64) -> DepthSummary {
        self.pass(now_ns);
        let time = now_ns.saturating_sub(self.started_ns).max(1);
        // In intervals without a sample the queue was empty. They count too.
        let periods = (time / SAMPLE_NS).max(1) as f64;
        let samples = self.samples.len() as f64;
        let beyond = periods * 0.01;
        let p99_bytes =
            if samples <= beyond { 0 } else { self.samples.value_at_quantile(1.0 - beyond / samples) };
        DepthSummary {
            mean_bytes: self.area as f64 / time as f64,
            p99_bytes,
            max_bytes: self.max,
            now_bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_over_time_and_the_percentile_counts_when_nothing_waits() {
        let mut depth = Depth::new(1_000_000);
        let at = |us: u64| 1_000_000 + us * 1_000;
        depth.grow(at(100), 5_000);
        depth.grow(at(300), 5_000);
        depth.shrink(at(400), 10_000);
        let all = depth.summary(at(1_000));
        assert_eq!((all.mean_bytes, all.max_bytes, all.now_bytes), (2_000.0, 10_000, 0));
        assert!((9_900..=10_100).contains(&all.p99_bytes), "a tenth of the time it is as deep: {all:?}");
        let later = depth.summary(at(100_000));
        assert_eq!((later.mean_bytes, later.p99_bytes), (20.0, 0));
    }

    #[test]
    fn what_stays_counts_until_now() {
        let mut depth = Depth::new(0);
        depth.grow(0, 700);
        let all = depth.summary(50_000_000);
        assert_eq!((all.mean_bytes, all.now_bytes), (700.0, 700));
        assert!((695..=705).contains(&all.p99_bytes), "{all:?}");
        assert_eq!(Depth::new(5).summary(5).p99_bytes, 0);
    }
}
