//! Message-size distributions.
//!
//! # Sources
//!
//! W1-W5 are the workloads of "Homa: A Receiver-Driven Low-Latency Transport Protocol Using Network
//! Priorities" (Montazeri, Li, Alizadeh, Ousterhout; SIGCOMM 2018, figure 1), which took them from:
//!
//! | name | workload | source |
//! |---|---|---|
//! | `w1` | memcached at Facebook | Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012 |
//! | `w2` | a search application at Google | measured at Google, given to the authors of the Homa paper |
//! | `w3` | all applications of a Google datacentre | measured at Google, given to the authors of the Homa paper |
//! | `w4` | Hadoop at Facebook | Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM 2015 |
//! | `w5` | web search | Alizadeh et al., "Data Center TCP", SIGCOMM 2010 |
//! | `w6` | heavy middle | invented by the authors of Homa's simulations |
//! | `w7` | cache followers at Facebook | Roy et al., SIGCOMM 2015 |
//! | `w8` | web servers at Facebook | Roy et al., SIGCOMM 2015 |
//!
//! The tables here are our own. Each has at most 60 rows, is within 0.005 of every published cumulative
//! fraction, and is within 0.5 % of the published mean.
//!
//! Further workloads:
//!
//! | name | workload |
//! |---|---|
//! | `short-long` | 75 % of 30 bytes and 25 % of 500,000 bytes: RAMCloud's mix in which long messages delay short ones |
//! | `one-medium` | always 130,000 bytes, as in RAMCloud; every message needs grants |
//! | `starve` | 100,000, 200,000 ... 900,000 bytes in equal numbers, and half as many of 1,000,000: the sizes with which Linux Homa's own benchmark makes SRPT starve the longest messages. Not a realistic load; for offered loads of 100 % or more |
//! | a number | always that many bytes |
//!
//! # Representation
//!
//! A distribution consists of spans. The messages of a span are spread evenly over consecutive sizes. A span
//! of a single size is a step. Published and user-defined distributions list every size that occurs, so the
//! points of a user-defined distribution are all steps. The built-in tables replace runs of many rare sizes
//! with wider spans of the same mass and mean.

use std::fmt;
use std::sync::Arc;

use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

use crate::error::WorkloadError;
use crate::{csv, tables};

pub use crate::csv::MAX_CSV_POINTS;

/// Makes the random numbers for sizes independent of those for arrivals when both start from the same seed.
const SIZE_STREAM: u64 = 0x73a9_05d1_6e2b_48cf;

/// Tolerance for rounding errors in sums of fractions, so that a quantile exactly at the upper edge of a step
/// is attributed to that step.
const ROUNDING: f64 = 1e-12;

/// Messages spread evenly over the sizes `first..=last`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    /// Smallest size, in bytes, at least 1.
    first: u32,
    /// Largest size, in bytes, inclusive.
    last: u32,
    /// Share of all messages that are shorter than `first`.
    below: f64,
    /// Share of all messages up to and including `last`.
    upto: f64,
}

impl Span {
    fn mass(&self) -> f64 {
        self.upto - self.below
    }

    fn width(&self) -> f64 {
        f64::from(self.last - self.first) + 1.0
    }

    fn mean_bytes(&self) -> f64 {
        (f64::from(self.first) + f64::from(self.last)) / 2.0
    }

    /// Returns the smallest size such that at least `fraction` of all messages are no larger. `fraction` is
    /// at most `upto`.
    fn quantile(&self, fraction: f64) -> u32 {
        if self.first == self.last {
            return self.first;
        }
        let sizes = ((fraction - self.below) / self.mass() * self.width()).ceil().clamp(1.0, self.width());
        self.first + (sizes as u32 - 1)
    }
}

/// A distribution of message sizes, in bytes. Clones share its table.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    name: String,
    spans: Arc<[Span]>,
    mean_bytes: f64,
    truncated_at: Option<u32>,
}

impl Workload {
    /// Returns the built-in workload of this name, in upper or lower case, or a workload of a fixed size if
    /// the name is a number.
    ///
    /// # Errors
    /// [`WorkloadError::UnknownName`], and [`WorkloadError::SizeOutOfRange`] for a number outside 1 to
    /// `u32::MAX`.
    pub fn named(name: &str) -> Result<Self, WorkloadError> {
        let lower = name.trim().to_ascii_lowercase();
        if let Some((name, _, rows)) = tables::PUBLISHED.iter().find(|(name, ..)| *name == lower) {
            let rows = rows.iter().map(|&(first, last, upto_ppm)| (first, last, f64::from(upto_ppm) / 1e6));
            return Ok(Self::from_rows((*name).to_owned(), rows));
        }
        match lower.as_str() {
            "short-long" => Ok(Self::from_steps(lower, [(30, 0.75), (500_000, 1.0)])),
            "one-medium" => Ok(Self::from_steps(lower, [(130_000, 1.0)])),
            "starve" => {
                // The weight is 2 for each of nine sizes, and 1 for the tenth.
                let steps = (1..=9u32).map(|k| (k * 100_000, f64::from(2 * k) / 19.0));
                Ok(Self::from_steps(lower, steps.chain([(1_000_000, 1.0)])))
            }
            digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let bytes = digits.parse().ok().filter(|&bytes: &u32| bytes > 0);
                bytes
                    .ok_or_else(|| WorkloadError::SizeOutOfRange { size: lower.clone() })
                    .map(Self::fixed_size)
            }
            _ => Err(WorkloadError::UnknownName { name: name.to_owned() }),
        }
    }

    /// Returns a workload in which every message has the same length.
    ///
    /// # Errors
    /// [`WorkloadError::SizeOutOfRange`] for 0 bytes: the wire format has no empty message.
    pub fn fixed(bytes: u32) -> Result<Self, WorkloadError> {
        if bytes == 0 {
            return Err(WorkloadError::SizeOutOfRange { size: "0".to_owned() });
        }
        Ok(Self::fixed_size(bytes))
    }

    /// Parses a user-defined distribution: the text of a CSV file with one `size,cumulative_fraction` pair
    /// per line.
    ///
    /// Only the listed sizes occur. Blank lines and lines that start with `#` are skipped, as is one header
    /// line before the first point. Sizes are in bytes, at least 1, and increase from line to line. Fractions
    /// are from 0 to 1, do not decrease, and end at 1 (a last fraction within a millionth of 1 counts as 1).
    /// There may be at most [`MAX_CSV_POINTS`] points.
    ///
    /// # Errors
    /// [`WorkloadError::Csv`] with the number of the line that breaks a rule; [`WorkloadError::CsvEmpty`] if
    /// there is no point.
    pub fn from_csv(name: &str, text: &str) -> Result<Self, WorkloadError> {
        Ok(Self::from_steps(name.to_owned(), csv::parse(text)?))
    }

    /// Returns the names that [`Workload::named`] accepts in addition to numbers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        tables::PUBLISHED.iter().map(|(name, ..)| *name).chain(["short-long", "one-medium", "starve"])
    }

    /// Returns the published mean of W1-W8, in bytes; `None` for other names. [`Workload::mean_bytes`]
    /// returns the mean of our table.
    pub fn published_mean_bytes(name: &str) -> Option<f64> {
        let name = name.to_ascii_lowercase();
        tables::PUBLISHED.iter().find(|(known, ..)| *known == name).map(|(_, mean, _)| *mean)
    }

    /// Returns the same workload with all messages longer than `max_bytes` shortened to `max_bytes`.
    ///
    /// Published runs of Linux Homa do the same: they shorten longer messages to the maximum instead of
    /// omitting them. The fractions for all sizes below the maximum stay the same, and the mean decreases.
    ///
    /// # Errors
    /// [`WorkloadError::SizeOutOfRange`] for 0 bytes.
    pub fn truncated(&self, max_bytes: u32) -> Result<Self, WorkloadError> {
        if max_bytes == 0 {
            return Err(WorkloadError::SizeOutOfRange { size: "0".to_owned() });
        }
        if max_bytes >= self.max_bytes() {
            return Ok(self.clone());
        }
        let whole = self.spans.iter().take_while(|span| span.last < max_bytes);
        let mut rows: Vec<(u32, u32, f64)> = whole.map(|span| (span.first, span.last, span.upto)).collect();
        if let Some(cut) = self.spans.get(rows.len()).filter(|span| span.first < max_bytes) {
            rows.push((cut.first, max_bytes - 1, self.cdf(max_bytes - 1)));
        }
        rows.push((max_bytes, max_bytes, 1.0));
        Ok(Self { truncated_at: Some(max_bytes), ..Self::from_rows(self.name.clone(), rows) })
    }

    /// Returns the workload's name: the requested name in lower case, the number for a fixed size, or the
    /// given name for a user-defined distribution.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the maximum that [`Workload::truncated`] imposed; `None` if no message had to be shortened.
    pub fn truncated_at(&self) -> Option<u32> {
        self.truncated_at
    }

    /// Returns the mean message length, in bytes, after truncation.
    pub fn mean_bytes(&self) -> f64 {
        self.mean_bytes
    }

    /// Returns the length of the shortest message, in bytes.
    pub fn min_bytes(&self) -> u32 {
        self.spans[0].first
    }

    /// Returns the length of the longest message, in bytes.
    pub fn max_bytes(&self) -> u32 {
        self.spans[self.spans.len() - 1].last
    }

    /// Returns the share of messages with at most `bytes` bytes, from 0 to 1.
    pub fn cdf(&self, bytes: u32) -> f64 {
        let at = self.spans.partition_point(|span| span.last < bytes);
        match self.spans.get(at) {
            None => 1.0,
            Some(span) if bytes < span.first => span.below,
            Some(span) if bytes == span.last => span.upto,
            Some(span) => span.below + span.mass() * (f64::from(bytes - span.first) + 1.0) / span.width(),
        }
    }

    /// Returns the smallest size in bytes such that at least `fraction` of all messages are no larger.
    ///
    /// A fraction of 0 or less gives the shortest message, a fraction of 1 or more the longest.
    pub fn quantile(&self, fraction: f64) -> u32 {
        let fraction = fraction - ROUNDING;
        let at = self.spans.partition_point(|span| span.upto < fraction);
        self.spans.get(at).map_or(self.max_bytes(), |span| span.quantile(fraction))
    }

    /// Returns sizes that represent equal numbers of messages, in increasing order: [`Workload::quantile`] at
    /// the middle of each of `parts` equal parts of all messages.
    ///
    /// All quantiles together take one pass through the distribution, instead of one search per quantile.
    pub fn quantiles(&self, parts: u32) -> Quantiles<'_> {
        Quantiles { workload: self, span: 0, part: 0, parts }
    }

    /// Draws one message length, in bytes, using one number from `rng`.
    ///
    /// The same random number gives the same quantile of every workload, so two runs with the same seed
    /// differ only where their workloads differ.
    pub fn sample(&self, rng: &mut impl RngCore) -> u32 {
        // 53 random bits, the precision of an `f64`, shifted to (0, 1].
        let fraction = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.quantile(fraction)
    }

    /// Returns an endless series of message lengths that depends only on the seed.
    pub fn sampler(&self, seed: u64) -> SizeSampler {
        SizeSampler { workload: self.clone(), rng: Pcg64::seed_from_u64(seed ^ SIZE_STREAM) }
    }

    fn fixed_size(bytes: u32) -> Self {
        Self::from_steps(bytes.to_string(), [(bytes, 1.0)])
    }

    fn from_steps(name: String, steps: impl IntoIterator<Item = (u32, f64)>) -> Self {
        Self::from_rows(name, steps.into_iter().map(|(size, upto)| (size, size, upto)))
    }

    /// Builds the workload from rows of first size, last size and cumulative fraction, increasing and ending
    /// at 1. Rows without messages are omitted: otherwise the minimum or maximum size might never occur.
    fn from_rows(name: String, rows: impl IntoIterator<Item = (u32, u32, f64)>) -> Self {
        let mut spans: Vec<Span> = Vec::new();
        let mut below = 0.0;
        for (first, last, upto) in rows {
            assert!(first >= 1 && first <= last && spans.last().is_none_or(|span| span.last < first));
            if upto > below {
                spans.push(Span { first, last, below, upto });
                below = upto;
            }
        }
        assert!(below == 1.0, "the rows of a distribution end at 1");
        let mean_bytes = spans.iter().map(|span| span.mass() * span.mean_bytes()).sum();
        Self { name, spans: spans.into(), mean_bytes, truncated_at: None }
    }
}

/// Prints the name, and the truncation if there is one.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.truncated_at {
            None => f.write_str(&self.name),
            Some(max_bytes) => write!(f, "{} truncated to {max_bytes} bytes", self.name),
        }
    }
}

/// Representative sizes of a workload, in bytes. See [`Workload::quantiles`].
#[derive(Debug, Clone)]
pub struct Quantiles<'a> {
    workload: &'a Workload,
    /// Index of the span of the last quantile.
    span: usize,
    /// Index of the next quantile.
    part: u32,
    parts: u32,
}

impl Iterator for Quantiles<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.part >= self.parts {
            return None;
        }
        let fraction = (f64::from(self.part) + 0.5) / f64::from(self.parts) - ROUNDING;
        self.part += 1;
        while let Some(span) = self.workload.spans.get(self.span) {
            if span.upto >= fraction {
                return Some(span.quantile(fraction));
            }
            self.span += 1;
        }
        Some(self.workload.max_bytes())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = (self.parts - self.part) as usize;
        (rest, Some(rest))
    }
}

/// An endless series of message lengths of a workload, in bytes. See [`Workload::sampler`].
#[derive(Debug, Clone)]
pub struct SizeSampler {
    workload: Workload,
    rng: Pcg64,
}

impl Iterator for SizeSampler {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Some(self.workload.sample(&mut self.rng))
    }
}
