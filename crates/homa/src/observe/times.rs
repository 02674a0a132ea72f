//! Durations of calls and answers, by size. The tables have a fixed size, so the cost of recording an RPC
//! does not depend on how many were recorded before.

use std::time::Duration;

/// Upper bound in bytes of each class except the last. The classes hold messages that fit in a packet, that
/// are sent unscheduled, that need grants, and that need grants for a long time.
const CLASS_ENDS: [usize; CLASSES - 1] = [1_000, 10_000, 100_000, 1_000_000];

/// Names of the classes.
const CLASS_NAMES: [&str; CLASSES] = ["0-1000", "1001-10000", "10001-100000", "100001-1000000", "1000001-"];

const CLASSES: usize = 5;

/// Binary logarithm of the upper end of the first bucket in nanoseconds, about a microsecond. No network is
/// faster.
const FIRST_BITS: u32 = 10;

/// Binary logarithm of the lower end of the last bucket in nanoseconds, 17 s. Calls time out earlier.
const LAST_BITS: u32 = 34;

/// Binary logarithm of the number of buckets for each doubling of time. The width of a bucket is therefore at
/// most a quarter of its lower end.
const STEP_BITS: u32 = 2;

const BUCKETS: usize = 2 + ((LAST_BITS - FIRST_BITS) << STEP_BITS) as usize;

/// Times of RPCs, classified by the length of the request or the response, whichever is longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimesBySize {
    classes: [Times; CLASSES],
}

impl TimesBySize {
    /// Returns each size class, the smallest first: its name, such as "1001-10000" (bytes, both ends
    /// inclusive), and its times.
    pub fn classes(&self) -> impl Iterator<Item = (&'static str, &Times)> {
        CLASS_NAMES.into_iter().zip(&self.classes)
    }

    /// Records an RPC.
    pub(crate) fn record(&mut self, bytes: usize, ns: u64) {
        let class = CLASS_ENDS.iter().take_while(|&&end| bytes > end).count();
        self.classes[class].record(ns);
    }

    /// Adds the times of another endpoint.
    pub(crate) fn add(&mut self, other: &TimesBySize) {
        for (times, other) in self.classes.iter_mut().zip(&other.classes) {
            times.add(other);
        }
    }
}

/// A histogram of times whose buckets grow wider with the times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times { counts: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Times {
    /// Returns the number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all recorded times.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the buckets in order of time, each with its inclusive end and the number of times in it. The
    /// last bucket has no end. The number and the ends of the buckets never change while a program runs.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        self.counts.iter().enumerate().map(|(index, &count)| (end_ns(index).map(Duration::from_nanos), count))
    }

    /// Returns the quantile of the recorded times for a fraction (0 to 1). The result is the end of the
    /// bucket that contains the quantile, which is at most a quarter too long. Returns `None` if nothing was
    /// recorded, or if the quantile is in the last bucket (over 17 s).
    #[must_use]
    pub fn quantile(&self, fraction: f64) -> Option<Duration> {
        let rank = ((self.count() as f64 * fraction.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        let mut reached = self.buckets().skip_while(|(_, count)| {
            seen += count;
            seen < rank
        });
        reached.next()?.0
    }

    fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(ns);
    }

    fn add(&mut self, other: &Times) {
        for (count, other) in self.counts.iter_mut().zip(&other.counts) {
            *count += other;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

/// Returns the index of the bucket that counts a time.
fn bucket(ns: u64) -> usize {
    // A bucket's end belongs to that bucket.
    let above = ns.saturating_sub(1);
    if above >> FIRST_BITS == 0 {
        return 0;
    }
    let bits = above.ilog2();
    if bits >= LAST_BITS {
        return BUCKETS - 1;
    }
    let step = (above >> (bits - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    1 + (((bits - FIRST_BITS) << STEP_BITS) as usize) + step as usize
}

/// Returns the end of a bucket, or `None` for the last bucket, which has no end.
fn end_ns(index: usize) -> Option<u64> {
    let Some(index) = index.checked_sub(1) else { return Some(1 << FIRST_BITS) };
    if index == BUCKETS - 2 {
        return None;
    }
    let (octave, step) = (index >> STEP_BITS, index as u64 & ((1 << STEP_BITS) - 1));
    Some(((1 << STEP_BITS) + step + 1) << (FIRST_BITS - STEP_BITS + octave as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_whose_ends_are_around_it() {
        let ends: Vec<u64> = (0..BUCKETS - 1).map(|index| end_ns(index).expect("an end")).collect();
        assert!(ends.is_sorted_by(|one, next| one < next));
        assert_eq!((ends.first(), ends.last()), (Some(&1_024), Some(&(1 << LAST_BITS))));
        assert!(end_ns(BUCKETS - 1).is_none());
        for ns in ends.iter().flat_map(|&end| [end - 1, end, end + 1]).chain([0, 1, u64::MAX]) {
            let index = bucket(ns);
            assert!(end_ns(index).is_none_or(|end| ns <= end), "{ns}");
            assert!(index == 0 || end_ns(index - 1).is_some_and(|end| ns > end), "{ns}");
        }
        let widest =
            ends.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / pair[0] as f64).fold(0.0, f64::max);
        assert!(widest <= 0.25, "{widest}");
    }

    #[test]
    fn sizes_have_their_class_and_endpoints_add_up() {
        let mut all = TimesBySize::default();
        for bytes in [0, 1_000, 1_001, 1_000_000, 1_000_001, usize::MAX] {
            let mut one = TimesBySize::default();
            one.record(bytes, 5_000);
            all.add(&one);
        }
        let counts: Vec<u64> = all.classes().map(|(_, times)| times.count()).collect();
        assert_eq!(counts, [2, 1, 0, 1, 2]);
        let (name, times) = all.classes().next().expect("a class");
        assert_eq!((name, times.sum()), ("0-1000", Duration::from_micros(10)));
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let mut times = Times::default();
        assert_eq!(times.quantile(0.5), None);
        for us in 1..=100 {
            times.record(us * 1_000);
        }
        for (fraction, exact_us) in [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let estimate = times.quantile(fraction).expect("there are some").as_nanos() as u64;
            assert!(estimate >= exact_us * 1_000 && estimate <= exact_us * 1_250, "{fraction}: {estimate}");
        }
        times.record(u64::MAX);
        assert_eq!(times.quantile(1.0), None);
    }
}
