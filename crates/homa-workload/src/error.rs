//! Errors in workloads that were requested.

use thiserror::Error;

/// A workload, load or merge that is not possible. The message says what to do instead.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The name is neither a built-in workload nor a number.
    #[error("unknown workload `{name}`: use w1 to w8, short-long, one-medium, starve, or a number of bytes")]
    UnknownName {
        /// The given name.
        name: String,
    },
    /// A message size is zero or does not fit in 32 bits. Such messages cannot be sent.
    #[error("message size `{size}` is out of range: use 1 to {} bytes", u32::MAX)]
    SizeOutOfRange {
        /// The given size.
        size: String,
    },
    /// A line of a user's CSV text breaks one of the format's rules.
    #[error("line {line}: {problem}")]
    Csv {
        /// The line's number, counted from 1.
        line: usize,
        /// The problem, and the rule that is broken.
        problem: String,
    },
    /// The CSV text has no points.
    #[error("no points: the text needs lines of `size,cumulative_fraction`, the last fraction being 1")]
    CsvEmpty,
    /// A message rate is outside the range of the arrival process.
    #[error(
        "{rate_per_sec} messages per second is out of range: use {} to {}; if it came from a bandwidth and a mean size, \
         check both",
        crate::arrivals::MIN_RATE_PER_SEC,
        crate::arrivals::MAX_RATE_PER_SEC
    )]
    RateOutOfRange {
        /// The given rate.
        rate_per_sec: f64,
    },
    /// Two recorders with different bins cannot be merged.
    #[error("the recorders have different bins: make both from the same workload")]
    BinsDiffer,
}
