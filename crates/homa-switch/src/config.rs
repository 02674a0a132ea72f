//! Configuration of a switch.

use serde::{Deserialize, Serialize};

/// Lowest rate of a link in bits per second.
pub const MIN_RATE_BPS: u64 = 1_000_000;

/// Highest rate of a link in bits per second: the rate at which one core forwards full frames.
pub const MAX_RATE_BPS: u64 = 10_000_000_000;

/// Link overhead of an Ethernet frame in bytes: check sequence, preamble and inter-frame gap.
pub const ETHERNET_OVERHEAD_BYTES: u32 = 24;

/// Size of the switch's buffer, and how queues divide it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// A separate buffer for each port. A single busy queue gets eight ninths of it.
    PerPort {
        /// Size of the buffer in bytes of frames.
        bytes: u64,
    },
    /// One buffer for all ports. A queue may hold `alpha` times the bytes that are free (dynamic thresholds,
    /// as in switch chips). A single busy queue thus gets `alpha / (1 + alpha)` of the buffer, and each of
    /// several gets less.
    Shared {
        /// Size of the buffer in bytes of frames.
        bytes: u64,
        /// Threshold of a queue, as a multiple of the free bytes.
        alpha: f64,
    },
}

/// When a frame leaves the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// When its last bit has crossed the link, as on a real link.
    #[default]
    StoreAndForward,
    /// When its first bit would leave. The link is busy for the same time.
    CutThrough,
}

/// Number of priorities, and maximum number of queues per port.
pub const PRIORITIES: usize = 8;

/// Configuration of a [`Switch`](crate::Switch). All ports have the same configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchConfig {
    /// Rate of each port in bits per second, from [`MIN_RATE_BPS`] to [`MAX_RATE_BPS`] inclusive; `None`:
    /// unlimited.
    pub rate_bps: Option<u64>,
    /// Link overhead per frame in bytes.
    pub overhead_bytes: u32,
    /// The buffer.
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
    /// When a frame leaves.
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
    #[error("a buffer of {bytes} bytes holds no frame: use at least {} a port", Buffer::LEAST_BYTES)]
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

impl Buffer {
    /// The longest frame at MTU 1500.
    pub const LEAST_BYTES: u64 = 1_522;

    /// Returns the total buffer size in bytes of a switch with this many ports.
    #[must_use]
    pub fn bytes(self, ports: usize) -> u64 {
        match self {
            Buffer::PerPort { bytes } => bytes * ports as u64,
            Buffer::Shared { bytes, .. } => bytes,
        }
    }
}

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
        if bytes < Buffer::LEAST_BYTES {
            return Err(ConfigError::Buffer { bytes });
        }
        match self.buffer {
            Buffer::Shared { alpha, .. } if !(alpha > 0.0 && alpha <= 64.0) => {
                Err(ConfigError::Alpha { alpha })
            }
            _ => Ok(()),
        }
    }

    /// Returns the queue for frames of a priority; queue 0 is served last.
    #[must_use]
    pub(crate) fn queue_of(&self, priority: u8) -> usize {
        usize::from(priority).saturating_sub(PRIORITIES - self.priorities)
    }
}

#[cfg(test)]
mod tests {
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
        says(|config| config.buffer = Buffer::Shared { bytes: 100_000, alpha: 0.0 }, "above 0");
        assert_eq!(of(|config| config.rate_bps = None), Ok(()));
    }

    #[test]
    fn fewer_queues_join_the_lowest_priorities() {
        let queues = |priorities| {
            let config = SwitchConfig { priorities, ..SwitchConfig::default() };
            (0..8).map(|priority| config.queue_of(priority)).collect::<Vec<_>>()
        };
        assert_eq!(queues(8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(queues(3), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(queues(1), [0; 8]);
    }
}
