//! Poisson arrivals of messages for an offered load.
//!
//! The load from many independent senders resembles a Poisson process: the gaps between messages are
//! exponentially distributed and do not depend on how long earlier messages took ("open loop"). Here, Gbps
//! means 10^9 bits per second of message payload in one direction, as in the published runs; headers are not
//! included.

use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

use crate::error::WorkloadError;

/// Minimum rate in messages per second. At this rate the longest possible gap, 37 times the mean gap, does
/// not overflow.
pub const MIN_RATE_PER_SEC: f64 = 1e-6;

/// Maximum rate in messages per second: one per nanosecond, the unit of the gaps.
pub const MAX_RATE_PER_SEC: f64 = 1e9;

/// Makes the random numbers for arrivals independent of those for sizes when both start from the same seed.
const ARRIVAL_STREAM: u64 = 0x1f83_d9ab_fb41_bd6b;

/// An endless series of gaps between messages, in nanoseconds, which depends only on the rate and the seed.
///
/// The logarithm function is the platform's, so on another platform some gaps of a replay may differ by a
/// nanosecond.
#[derive(Debug, Clone)]
pub struct Poisson {
    rng: Pcg64,
    mean_gap_ns: f64,
    /// The remainder from rounding to whole nanoseconds, 0 to 1 (exclusive), which is added to the next gap.
    /// Without it, gaps would be half a nanosecond too short on average, which would make high rates
    /// noticeably too high.
    carry_ns: f64,
}

impl Poisson {
    /// Creates a process with an average of `rate_per_sec` messages per second.
    ///
    /// # Errors
    /// [`WorkloadError::RateOutOfRange`] outside [`MIN_RATE_PER_SEC`] to [`MAX_RATE_PER_SEC`], both
    /// inclusive, and for a rate that is not a number.
    pub fn new(rate_per_sec: f64, seed: u64) -> Result<Self, WorkloadError> {
        if !(MIN_RATE_PER_SEC..=MAX_RATE_PER_SEC).contains(&rate_per_sec) {
            return Err(WorkloadError::RateOutOfRange { rate_per_sec });
        }
        let rng = Pcg64::seed_from_u64(seed ^ ARRIVAL_STREAM);
        Ok(Self { rng, mean_gap_ns: 1e9 / rate_per_sec, carry_ns: 0.0 })
    }

    /// Creates a process that offers a load of `gbps` (10^9 bits of payload per second) with messages of
    /// `mean_bytes` bytes on average.
    ///
    /// # Errors
    /// [`WorkloadError::RateOutOfRange`] if the resulting rate is out of range or not a number.
    pub fn for_gbps(gbps: f64, mean_bytes: f64, seed: u64) -> Result<Self, WorkloadError> {
        Self::new(rate_per_sec(gbps, mean_bytes), seed)
    }
}

impl Iterator for Poisson {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // 53 random bits, shifted to (0, 1], since 0 has no logarithm.
        let uniform = ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let exact_ns = -uniform.ln() * self.mean_gap_ns + self.carry_ns;
        let whole_ns = exact_ns.floor();
        self.carry_ns = exact_ns - whole_ns;
        Some(whole_ns as u64)
    }
}

/// Returns the number of messages per second that carries a load of `gbps` (10^9 bits of payload per second)
/// if messages have `mean_bytes` bytes on average.
///
/// If `mean_bytes` is 0, the result is infinite or not a number, which [`Poisson::new`] reports as an error.
pub fn rate_per_sec(gbps: f64, mean_bytes: f64) -> f64 {
    gbps * 1e9 / (8.0 * mean_bytes)
}

/// Returns the payload bandwidth, in 10^9 bits per second, of `rate_per_sec` messages per second of
/// `mean_bytes` bytes on average.
pub fn gbps(rate_per_sec: f64, mean_bytes: f64) -> f64 {
    rate_per_sec * mean_bytes * 8.0 / 1e9
}
