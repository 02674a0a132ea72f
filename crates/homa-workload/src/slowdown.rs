//! Slowdown by message size: how much longer a message took than the same message alone.
//!
//! # Rows
//!
//! There are ten bins of equal message count according to the workload's own distribution, not to the
//! measured messages, so that the rows of two runs can be compared. One more row, the last, is for the
//! largest 1 % of the messages, which the tenth bin also contains. A workload with few sizes has fewer bins:
//! bins that would end at the same size are merged. The last row is left out if it would repeat the bin
//! before it, as with a fixed size; see [`SlowdownRecorder::has_largest_row`].
//!
//! # Short messages
//!
//! "Short" is under 1500 bytes and among the shortest 10 % of the workload: at most the size that 10 % of the
//! messages do not exceed, and at most 1499 bytes. If more than 10 % of the messages have the smallest size,
//! short means that size. A workload without messages under 1500 bytes has no short ones: the count stays 0.
//!
//! # Precision
//!
//! Percentiles come from histograms with three significant digits (slowdowns are stored in thousandths);
//! means and counts are exact. A percentile is the value that at least this share of the messages does not
//! exceed. All values of a row without messages are zero.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::dist::Workload;
use crate::error::WorkloadError;

/// Bins of equal message count.
const BINS: u32 = 10;

/// Maximum bytes of a short message: one ordinary packet carries it.
const SHORT_MAX_BYTES: u32 = 1499;

/// Maximum recorded value: longer times in nanoseconds, and larger slowdowns in thousandths, count as this.
/// It bounds a histogram to some 300 kB. As a time it is 73 minutes, longer than every timeout.
const MAX_RECORDED: u64 = 1 << 42;

/// One row of the slowdown table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BinSummary {
    /// The largest size of the row, in bytes, inclusive. The row begins after the end of the previous one,
    /// except for the row of the largest 1 %, which ends where the last bin ends.
    pub max_bytes: u32,
    /// Messages recorded.
    pub count: u64,
    /// Mean slowdown.
    pub slowdown_mean: f64,
    /// Median slowdown.
    pub slowdown_p50: f64,
    /// 99th percentile of slowdown.
    pub slowdown_p99: f64,
    /// 99.9th percentile of slowdown.
    pub slowdown_p999: f64,
    /// Median round trip, in microseconds.
    pub rtt_p50_us: f64,
    /// 99th percentile of the round trip, in microseconds.
    pub rtt_p99_us: f64,
}

/// Round trips of the messages up to a maximum size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShortSummary {
    /// The maximum size, in bytes, inclusive.
    pub max_bytes: u32,
    /// Messages recorded.
    pub count: u64,
    /// Median round trip, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the round trip, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the round trip, in microseconds.
    pub p999_us: f64,
    /// Median slowdown.
    pub slowdown_p50: f64,
    /// 99th percentile of slowdown.
    pub slowdown_p99: f64,
}

/// Records round trips and summarizes them by size. Use one per thread and merge them at the end.
#[derive(Debug, Clone)]
pub struct SlowdownRecorder {
    /// The bins, by increasing size.
    bins: Vec<Row>,
    /// The smallest size of the largest 1 %, and its row; `None` if that is the whole last bin.
    largest: Option<(u32, Row)>,
    short: Group,
    short_half: Group,
    slowdown_sum: f64,
    count: u64,
}

impl SlowdownRecorder {
    /// A recorder with the bins of this workload, which may be truncated.
    pub fn new(workload: &Workload) -> Self {
        Self::with_bins(workload, BINS)
    }

    /// Like [`SlowdownRecorder::new`], with this number of bins of equal message count, at least 1.
    pub fn with_bins(workload: &Workload, bins: u32) -> Self {
        let bins = bins.max(1);
        Self::with_edges(workload, (1..=bins).map(|bin| workload.quantile(f64::from(bin) / f64::from(bins))))
    }

    /// Like [`SlowdownRecorder::new`], with bins that end at these sizes, inclusive and increasing; without
    /// any, one bin takes all messages.
    pub fn with_edges(workload: &Workload, edges: impl IntoIterator<Item = u32>) -> Self {
        let mut edges: Vec<u32> = edges.into_iter().collect();
        if edges.is_empty() {
            edges.push(workload.max_bytes());
        }
        edges.dedup();
        let last_bin_after = edges.iter().rev().nth(1).copied().unwrap_or(0);
        let max_bytes = workload.max_bytes();
        // Sizes above the 99th percentile, or the largest size alone if it has more than 1 % of the messages.
        let largest_from = workload.quantile(0.99).saturating_add(1).min(max_bytes);
        let whole_last_bin = workload.cdf(largest_from - 1) <= workload.cdf(last_bin_after);
        Self {
            bins: edges.into_iter().map(Row::new).collect(),
            largest: (!whole_last_bin).then(|| (largest_from, Row::new(max_bytes))),
            short: Group::new(workload.quantile(0.10).min(SHORT_MAX_BYTES)),
            short_half: Group::new(workload.quantile(0.50)),
            slowdown_sum: 0.0,
            count: 0,
        }
    }

    /// Records a message of `size_bytes` that took `rtt_ns`, where the same message alone takes `best_ns`.
    ///
    /// A size above the workload's largest counts in the last bin. A `best_ns` of 0 counts as 1.
    pub fn record(&mut self, size_bytes: u32, rtt_ns: u64, best_ns: u64) {
        let slowdown = rtt_ns as f64 / best_ns.max(1) as f64;
        self.count += 1;
        self.slowdown_sum += slowdown;
        let bin = self.bins.partition_point(|row| row.max_bytes < size_bytes).min(self.bins.len() - 1);
        self.bins[bin].record(rtt_ns, slowdown);
        if let Some((_, row)) = self.largest.as_mut().filter(|(from, _)| size_bytes >= *from) {
            row.record(rtt_ns, slowdown);
        }
        self.short.record(size_bytes, rtt_ns, slowdown);
        self.short_half.record(size_bytes, rtt_ns, slowdown);
    }

    /// Adds the records of another recorder of the same workload.
    ///
    /// # Errors
    /// [`WorkloadError::BinsDiffer`] if the other has different bins; nothing is added then.
    pub fn merge(&mut self, other: &Self) -> Result<(), WorkloadError> {
        if !self.edges().eq(other.edges()) {
            return Err(WorkloadError::BinsDiffer);
        }
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.merge(theirs);
        }
        if let (Some((_, mine)), Some((_, theirs))) = (&mut self.largest, &other.largest) {
            mine.merge(theirs);
        }
        self.short.merge(&other.short);
        self.short_half.merge(&other.short_half);
        self.slowdown_sum += other.slowdown_sum;
        self.count += other.count;
        Ok(())
    }

    /// The rows: the bins by increasing size, then the largest 1 % if [`SlowdownRecorder::has_largest_row`].
    pub fn bins(&self) -> Vec<BinSummary> {
        self.bins.iter().chain(self.largest.iter().map(|(_, row)| row)).map(Row::summary).collect()
    }

    /// Whether the last row of [`SlowdownRecorder::bins`] is the largest 1 %, not a bin.
    pub fn has_largest_row(&self) -> bool {
        self.largest.is_some()
    }

    /// Mean slowdown of all messages; 0 if there were none.
    pub fn slowdown_mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.slowdown_sum / self.count as f64 }
    }

    /// Messages recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The short messages as defined in the module's documentation.
    pub fn short(&self) -> ShortSummary {
        self.short.summary()
    }

    /// The smaller half of the messages by count: those up to the workload's median size. This is more than
    /// half if many messages have the median size.
    pub fn short_half(&self) -> ShortSummary {
        self.short_half.summary()
    }

    /// Every size at which a row begins or ends: recorders with the same edges can be merged.
    fn edges(&self) -> impl Iterator<Item = u32> + '_ {
        let largest = self.largest.iter().map(|(from, _)| *from);
        let groups = [self.short.max_bytes, self.short_half.max_bytes];
        self.bins.iter().map(|row| row.max_bytes).chain([0]).chain(largest).chain([0]).chain(groups)
    }
}

/// One row of the table while messages are recorded.
#[derive(Debug, Clone)]
struct Row {
    max_bytes: u32,
    slowdown_sum: f64,
    slowdown_milli: Histogram<u64>,
    rtt_ns: Histogram<u64>,
}

impl Row {
    fn new(max_bytes: u32) -> Self {
        Self { max_bytes, slowdown_sum: 0.0, slowdown_milli: histogram(), rtt_ns: histogram() }
    }

    fn record(&mut self, rtt_ns: u64, slowdown: f64) {
        self.slowdown_sum += slowdown;
        put(&mut self.slowdown_milli, (slowdown * 1000.0).round() as u64);
        put(&mut self.rtt_ns, rtt_ns);
    }

    fn merge(&mut self, other: &Self) {
        self.slowdown_sum += other.slowdown_sum;
        add(&mut self.slowdown_milli, &other.slowdown_milli);
        add(&mut self.rtt_ns, &other.rtt_ns);
    }

    fn summary(&self) -> BinSummary {
        let count = self.rtt_ns.len();
        BinSummary {
            max_bytes: self.max_bytes,
            count,
            slowdown_mean: if count == 0 { 0.0 } else { self.slowdown_sum / count as f64 },
            slowdown_p50: thousandths(&self.slowdown_milli, 0.5),
            slowdown_p99: thousandths(&self.slowdown_milli, 0.99),
            slowdown_p999: thousandths(&self.slowdown_milli, 0.999),
            rtt_p50_us: thousandths(&self.rtt_ns, 0.5),
            rtt_p99_us: thousandths(&self.rtt_ns, 0.99),
        }
    }
}

/// The round trips of messages up to a maximum size.
#[derive(Debug, Clone)]
struct Group {
    max_bytes: u32,
    rtt_ns: Histogram<u64>,
    slowdown_milli: Histogram<u64>,
}

impl Group {
    fn new(max_bytes: u32) -> Self {
        Self { max_bytes, rtt_ns: histogram(), slowdown_milli: histogram() }
    }

    fn record(&mut self, size_bytes: u32, rtt_ns: u64, slowdown: f64) {
        if size_bytes <= self.max_bytes {
            put(&mut self.rtt_ns, rtt_ns);
            put(&mut self.slowdown_milli, (slowdown * 1000.0).round() as u64);
        }
    }

    fn merge(&mut self, other: &Self) {
        add(&mut self.rtt_ns, &other.rtt_ns);
        add(&mut self.slowdown_milli, &other.slowdown_milli);
    }

    fn summary(&self) -> ShortSummary {
        ShortSummary {
            max_bytes: self.max_bytes,
            count: self.rtt_ns.len(),
            p50_us: thousandths(&self.rtt_ns, 0.5),
            p99_us: thousandths(&self.rtt_ns, 0.99),
            p999_us: thousandths(&self.rtt_ns, 0.999),
            slowdown_p50: thousandths(&self.slowdown_milli, 0.5),
            slowdown_p99: thousandths(&self.slowdown_milli, 0.99),
        }
    }
}

/// A histogram that grows with its values, so that the many rows of many threads stay small.
fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three significant digits are within what the histogram supports")
}

fn put(histogram: &mut Histogram<u64>, value: u64) {
    histogram.record(value.clamp(1, MAX_RECORDED)).expect("a histogram can grow to the clamped range");
}

fn add(histogram: &mut Histogram<u64>, other: &Histogram<u64>) {
    histogram.add(other).expect("a histogram can grow to the clamped range");
}

/// A percentile in a unit a thousand times that of the histogram: ns to µs, thousandths to a ratio.
fn thousandths(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() { 0.0 } else { histogram.value_at_quantile(quantile) as f64 / 1000.0 }
}
