//! Slowdown by message size: the time that a message took, divided by the time that it takes in an unloaded
//! network.
//!
//! # Rows
//!
//! There are ten bins of equal message count. They are derived from the workload's distribution, not from the
//! measured messages, so that the rows of two runs can be compared. An additional last row is for the largest
//! 1 % of the messages, which the tenth bin also contains. A workload with few sizes has fewer bins, because
//! bins that would end at the same size are merged. The last row is omitted if it would repeat the bin before
//! it, as with a fixed size; see [`SlowdownRecorder::has_largest_row`].
//!
//! # Short messages
//!
//! A short message is shorter than 1500 bytes and among the shortest 10 % of the workload: its size is at
//! most the 10th percentile, and at most 1499 bytes. If more than 10 % of the messages have the smallest
//! size, only messages of that size are short. If a workload has no messages under 1500 bytes, the count of
//! short messages stays 0.
//!
//! # Precision
//!
//! Percentiles come from histograms with three significant digits (slowdowns are stored in thousandths);
//! means and counts are exact. A percentile is the smallest value such that at least this share of the
//! messages does not exceed it. In a row without messages, all values are zero.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::dist::Workload;
use crate::error::WorkloadError;

/// Number of bins of equal message count.
const BINS: u32 = 10;

/// Maximum size of a short message, in bytes: it fits in one ordinary packet.
const SHORT_MAX_BYTES: u32 = 1499;

/// Maximum recorded value. Longer times (in nanoseconds) and larger slowdowns (in thousandths) are recorded
/// as this value. The limit keeps a histogram below about 300 kB. As a time it is 73 minutes, longer than any
/// timeout.
const MAX_RECORDED: u64 = 1 << 42;

/// One row of the slowdown table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BinSummary {
    /// The largest size of the row, in bytes, inclusive. A row begins where the previous row ends. The
    /// exception is the row of the largest 1 %, which ends where the last bin ends.
    pub max_bytes: u32,
    /// Number of messages recorded.
    pub count: u64,
    /// Mean slowdown.
    pub slowdown_mean: f64,
    /// Median slowdown.
    pub slowdown_p50: f64,
    /// 99th percentile of slowdown.
    pub slowdown_p99: f64,
    /// 99.9th percentile of slowdown.
    pub slowdown_p999: f64,
    /// Median round-trip time, in microseconds.
    pub rtt_p50_us: f64,
    /// 99th percentile of the round-trip time, in microseconds.
    pub rtt_p99_us: f64,
}

/// Round-trip times of the messages up to a maximum size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShortSummary {
    /// The maximum size, in bytes, inclusive.
    pub max_bytes: u32,
    /// Number of messages recorded.
    pub count: u64,
    /// Median round-trip time, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the round-trip time, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the round-trip time, in microseconds.
    pub p999_us: f64,
    /// Median slowdown.
    pub slowdown_p50: f64,
    /// 99th percentile of slowdown.
    pub slowdown_p99: f64,
}

/// Records round-trip times and summarizes them by message size. Use one recorder per thread, and merge them
/// at the end.
#[derive(Debug, Clone)]
pub struct SlowdownRecorder {
    /// The bins, by increasing size.
    bins: Vec<Row>,
    /// The smallest size of the largest 1 %, and the row for them; `None` if they are the whole last bin.
    largest: Option<(u32, Row)>,
    short: Group,
    short_half: Group,
    slowdown_sum: f64,
    count: u64,
}

impl SlowdownRecorder {
    /// Creates a recorder with the bins of this workload, which may be truncated.
    pub fn new(workload: &Workload) -> Self {
        Self::with_bins(workload, BINS)
    }

    /// Like [`SlowdownRecorder::new`], with `bins` bins of equal message count; at least 1.
    pub fn with_bins(workload: &Workload, bins: u32) -> Self {
        let bins = bins.max(1);
        Self::with_edges(workload, (1..=bins).map(|bin| workload.quantile(f64::from(bin) / f64::from(bins))))
    }

    /// Like [`SlowdownRecorder::new`], with bins that end at the sizes `edges`, inclusive and increasing.
    /// Without edges, there is one bin for all messages.
    pub fn with_edges(workload: &Workload, edges: impl IntoIterator<Item = u32>) -> Self {
        let mut edges: Vec<u32> = edges.into_iter().collect();
        if edges.is_empty() {
            edges.push(workload.max_bytes());
        }
        edges.dedup();
        let last_bin_after = edges.iter().rev().nth(1).copied().unwrap_or(0);
        let max_bytes = workload.max_bytes();
        // The row covers sizes above the 99th percentile, or only the largest size if more than 1 % of the
        // messages have that size.
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

    /// Records a message of `size_bytes` that took `rtt_ns`, and that takes `best_ns` in an unloaded network.
    ///
    /// Messages above the workload's largest size count in the last bin. A `best_ns` of 0 counts as 1.
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
    /// [`WorkloadError::BinsDiffer`] if the other recorder has different bins. In that case nothing is added.
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

    /// Returns the rows: the bins by increasing size, then the largest 1 % if
    /// [`SlowdownRecorder::has_largest_row`].
    pub fn bins(&self) -> Vec<BinSummary> {
        self.bins.iter().chain(self.largest.iter().map(|(_, row)| row)).map(Row::summary).collect()
    }

    /// Returns whether the last row of [`SlowdownRecorder::bins`] is the row for the largest 1 % instead of a
    /// bin.
    pub fn has_largest_row(&self) -> bool {
        self.largest.is_some()
    }

    /// Returns the mean slowdown of all messages; 0 if there were none.
    pub fn slowdown_mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.slowdown_sum / self.count as f64 }
    }

    /// Returns the number of messages recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the figures of the short messages, as defined in the module's documentation.
    pub fn short(&self) -> ShortSummary {
        self.short.summary()
    }

    /// Returns the figures of the smaller half of the messages by count: the messages up to the workload's
    /// median size. These are more than half of all messages if many have the median size.
    pub fn short_half(&self) -> ShortSummary {
        self.short_half.summary()
    }

    /// Every size at which a row begins or ends. Recorders with the same edges can be merged.
    fn edges(&self) -> impl Iterator<Item = u32> + '_ {
        let largest = self.largest.iter().map(|(from, _)| *from);
        let groups = [self.short.max_bytes, self.short_half.max_bytes];
        self.bins.iter().map(|row| row.max_bytes).chain([0]).chain(largest).chain([0]).chain(groups)
    }
}

/// A row of the table while messages are being recorded.
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

/// Round-trip times of the messages up to a maximum size.
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

/// Returns a histogram whose memory grows with its values, so that the many rows of many threads stay small.
fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three significant digits are within what the histogram supports")
}

fn put(histogram: &mut Histogram<u64>, value: u64) {
    histogram.record(value.clamp(1, MAX_RECORDED)).expect("a histogram can grow to the clamped range");
}

fn add(histogram: &mut Histogram<u64>, other: &Histogram<u64>) {
    histogram.add(other).expect("a histogram can grow to the clamped range");
}

/// Returns a percentile in a unit a thousand times that of the histogram: ns to us, thousandths to a ratio.
fn thousandths(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() { 0.0 } else { histogram.value_at_quantile(quantile) as f64 / 1000.0 }
}
