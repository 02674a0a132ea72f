//! Configuration of a switch.

use homa_egress::{Alpha, Buffer, Forwarding, PRIORITIES};
use serde::{Deserialize, Serialize};

/// Lowest rate of a link in bits per second.
pub const MIN_RATE_BPS: u64 = 1_000_000;

/// Highest rate of a link in bits per second: the rate at which one core forwards full frames.
pub const MAX_RATE_BPS: u64 = 10_000_000_000;

/// Link overhead of an Ethernet frame in bytes: check sequence, preamble and inter-frame gap.
pub const ETHERNET_OVERHEAD_BYTES: u32 = 24;

/// Configuration of a [`Switch`](crate::Switch). All ports have the same configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchConfig {
    /// Rate of each port in bits per second, from [`MIN_RATE_BPS`] to [`MAX_RATE_BPS`] inclusive; `None`:
    /// unlimited.
    pub rate_bps: Option<u64>,
    /// Link overhead per frame in bytes.
    pub overhead_bytes: u32,
    /// The buffer. It holds the bytes of frames, without their overhead on a link.
    pub buffer: Buffer,
    /// Number of queues per port, 1 to 8. With fewer than 8, the lowest priorities share one queue.
    pub priorities: usize,
    /// Queue length of a port in bytes at and above which ECN-capable frames are marked.
    pub mark_bytes: Option<u64>,
    /// Delay of every frame in nanoseconds, in addition to serialization.
    pub delay_ns: u64,
    /// Fraction of frames dropped at random, 0 to 1.
    pub loss: f64,
    /// Seed of the random drops.
    pub seed: u64,
    /// When a frame leaves. With [`Forwarding::CutThrough`], a frame leaves when its first bit would. The link
    /// is busy for the same time.
    pub forwarding: Forwarding,
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The rate is out of range.
    #[error("a rate of {bps} bit/s: use {MIN_RATE_BPS} to {MAX_RATE_BPS}")]
    Rate {
        /// Bits per second.
        bps: u64,
    },
    /// The number of queues is not between 1 and 8.
    #[error("{queues} queues to a port: use 1 to 8")]
    Priorities {
        /// The rejected value.
        queues: usize,
    },
    /// The fraction is not between 0 and 1.
    #[error("a loss of {loss}: use a share of frames, 0 to 1")]
    Loss {
        /// The rejected value.
        loss: f64,
    },
    /// The buffer is too small for a frame.
    #[error("a buffer of {bytes} bytes holds no frame: use at least {MIN_BUFFER_BYTES} a port")]
    Buffer {
        /// The rejected value.
        bytes: u64,
    },
    /// Alpha is out of range.
    #[error("an alpha of {alpha}: use a number above 0, 64 at most")]
    Alpha {
        /// The rejected value.
        alpha: f64,
    },
}

/// Smallest buffer: the longest frame at MTU 1500.
const MIN_BUFFER_BYTES: u64 = 1_522;

impl Default for SwitchConfig {
    /// Returns 1 Gbit/s, with a buffer of 1 ms for each port.
    fn default() -> SwitchConfig {
        SwitchConfig {
            rate_bps: Some(1_000_000_000),
            overhead_bytes: ETHERNET_OVERHEAD_BYTES,
            buffer: Buffer::PerPort { bytes: 125_000 },
            priorities: PRIORITIES,
            mark_bytes: None,
            delay_ns: 0,
            loss: 0.0,
            seed: 1,
            forwarding: Forwarding::StoreAndForward,
        }
    }
}

impl SwitchConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(bps) = self.rate_bps.filter(|bps| !(MIN_RATE_BPS..=MAX_RATE_BPS).contains(bps)) {
            return Err(ConfigError::Rate { bps });
        }
        if !(1..=PRIORITIES).contains(&self.priorities) {
            return Err(ConfigError::Priorities { queues: self.priorities });
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(ConfigError::Loss { loss: self.loss });
        }
        let (Buffer::PerPort { bytes } | Buffer::Shared { bytes, .. }) = self.buffer;
        if bytes < MIN_BUFFER_BYTES {
            return Err(ConfigError::Buffer { bytes });
        }
        Ok(())
    }

    /// Returns a shared buffer of `bytes`, in which a queue may hold `alpha` times the free bytes.
    ///
    /// # Errors
    /// `alpha` is out of range.
    pub fn shared_buffer(bytes: u64, alpha: f64) -> Result<Buffer, ConfigError> {
        let alpha = Alpha::from_multiple(alpha).ok_or(ConfigError::Alpha { alpha })?;
        Ok(Buffer::Shared { bytes, alpha })
    }
}

#[cfg(test)]
mod tests {
    use homa_egress::queue_of;

    use super::*;

    #[test]
    fn what_cannot_be_is_said() {
        let of = |change: fn(&mut SwitchConfig)| {
            let mut config = SwitchConfig::default();
            change(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(of(|_| ()), Ok(()));
        let says = |change, part: &str| {
            let error = of(change).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        says(|config| config.rate_bps = Some(999_999), "use 1000000 to 10000000000");
        says(|config| config.rate_bps = Some(u64::MAX), "use 1000000 to");
        says(|config| config.priorities = 0, "1 to 8");
        says(|config| config.priorities = 9, "1 to 8");
        says(|config| config.loss = 1.5, "0 to 1");
        says(|config| config.loss = f64::NAN, "0 to 1");
        says(|config| config.buffer = Buffer::PerPort { bytes: 100 }, "holds no frame");
        for alpha in [0.0, 65.0, f64::NAN] {
            let error = SwitchConfig::shared_buffer(100_000, alpha).unwrap_err().to_string();
            assert!(error.contains("above 0"), "{error}");
        }
        assert_eq!(of(|config| config.rate_bps = None), Ok(()));
    }

    #[test]
    fn fewer_queues_join_the_lowest_priorities() {
        let queues = |priorities| {
            let config = SwitchConfig { priorities, ..SwitchConfig::default() };
            (0..8).map(|priority| queue_of(priority, config.priorities)).collect::<Vec<_>>()
        };
        assert_eq!(queues(8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(queues(3), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(queues(1), [0; 8]);
    }
}
