//! Admission to the queues of a switch port: the buffer, the thresholds of queues, and marks.
//!
//! The software switch (`homa-switch`) and the simulator (`homa-sim`) both use these types and rules, so that
//! a configuration means the same in both. A property test of `homa-sim` compares the two on the same
//! arrivals.

#![forbid(unsafe_code)]

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of priorities, and maximum number of queues per port.
pub const PRIORITIES: usize = 8;

/// Returns the queue for packets of a priority, 0 to 7, at a port with this many queues, 1 to 8. Queue 0 is
/// served last. With fewer than 8 queues, the lowest priorities share queue 0.
#[inline]
#[must_use]
pub fn queue_of(priority: u8, queues: usize) -> usize {
    usize::from(priority).saturating_sub(PRIORITIES - queues)
}

/// Threshold of a queue in a port's own buffer, as a multiple of the free bytes of that buffer. A single busy
/// queue gets eight ninths of the buffer. Without a threshold, the lowest priority would fill the port, and
/// the switch would drop control packets of the highest.
pub const QUEUE_ALPHA: Alpha = Alpha::whole(8);

/// Size of a switch's buffer, and how queues divide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// A separate buffer for each port.
    PerPort {
        /// Size of the buffer in bytes.
        bytes: u64,
    },
    /// One buffer for all ports. A queue may hold `alpha` times the bytes that are free (dynamic thresholds,
    /// as in switch chips). A single busy queue thus gets `alpha / (1 + alpha)` of the buffer, and each of
    /// several gets less.
    Shared {
        /// Size of the buffer in bytes.
        bytes: u64,
        /// Threshold of a queue, as a multiple of the free bytes.
        alpha: Alpha,
    },
}

impl Buffer {
    /// Returns the total buffer size in bytes of a switch with this many ports.
    #[must_use]
    pub fn bytes(self, ports: usize) -> u64 {
        match self {
            Buffer::PerPort { bytes } => bytes * ports as u64,
            Buffer::Shared { bytes, .. } => bytes,
        }
    }
}

/// When a switch sends a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// When it has arrived completely, as with a real link behind a store-and-forward switch.
    #[default]
    StoreAndForward,
    /// When its beginning has arrived. The links are busy for the same time.
    CutThrough,
}

/// Threshold of a queue as a multiple of the free bytes of its buffer, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alpha(u32);

/// The parts of one in an [`Alpha`].
const PARTS: u32 = 1_000;

impl Alpha {
    /// The largest multiple: 64.
    pub const MAX: Alpha = Alpha::whole(64);

    /// Returns a whole multiple of the free bytes.
    #[must_use]
    pub const fn whole(multiple: u32) -> Alpha {
        Alpha(multiple * PARTS)
    }

    /// Returns a multiple in percent.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Alpha {
        Alpha(percent.saturating_mul(PARTS / 100))
    }

    /// Returns a multiple, rounded to a thousandth. `None` unless the result is above 0 and at most
    /// [`Alpha::MAX`].
    #[must_use]
    pub fn from_multiple(multiple: f64) -> Option<Alpha> {
        // The cast saturates, and a number that is not one becomes 0.
        let alpha = Alpha((multiple * f64::from(PARTS)).round() as u32);
        (alpha > Alpha(0) && alpha <= Alpha::MAX).then_some(alpha)
    }

    /// Returns the multiple.
    #[must_use]
    pub fn multiple(self) -> f64 {
        f64::from(self.0) / f64::from(PARTS)
    }

    /// Returns the multiple in percent, rounded down.
    #[must_use]
    pub const fn percent(self) -> u32 {
        self.0 / (PARTS / 100)
    }

    /// Returns the threshold of a queue whose buffer has this many free bytes.
    #[inline]
    #[must_use]
    pub fn of(self, free: u64) -> u64 {
        free.saturating_mul(u64::from(self.0)) / u64::from(PARTS)
    }
}

impl Serialize for Alpha {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.multiple())
    }
}

impl<'de> Deserialize<'de> for Alpha {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Alpha, D::Error> {
        let multiple = f64::deserialize(deserializer)?;
        Alpha::from_multiple(multiple).ok_or_else(|| D::Error::custom("an alpha is above 0 and at most 64"))
    }
}

/// The room that a packet finds in the buffer of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free bytes of the buffer.
    pub free: u64,
    /// Threshold of a queue; `None`: a queue may take all free bytes.
    pub alpha: Option<Alpha>,
}

impl Room {
    /// Returns whether a packet of `bytes` fits into a queue that holds `queued` bytes. An empty queue may
    /// always take a packet that fits into the buffer: otherwise, a threshold below the length of a packet
    /// would close the queue.
    #[inline]
    #[must_use]
    pub fn admits(self, queued: u64, bytes: u64) -> bool {
        let is_below = |alpha: Alpha| queued == 0 || queued + bytes <= alpha.of(self.free);
        bytes <= self.free && self.alpha.is_none_or(is_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_queue_gets_alpha_of_one_and_alpha() {
        for (alpha, expected) in [(Alpha::whole(1), 500), (QUEUE_ALPHA, 888), (Alpha::from_percent(50), 333)]
        {
            let mut queued = 0;
            while (Room { free: 1_000 - queued, alpha: Some(alpha) }).admits(queued, 1) {
                queued += 1;
            }
            assert!((expected..=expected + 2).contains(&queued), "{alpha:?}: {queued}");
        }
        assert!(
            Room { free: 10, alpha: None }.admits(990, 10) && !Room { free: 9, alpha: None }.admits(0, 10)
        );
    }

    #[test]
    fn an_empty_queue_takes_what_fits_into_the_buffer() {
        let room = Room { free: 1_000, alpha: Some(Alpha::from_percent(1)) };
        assert!(room.admits(0, 1_000) && !room.admits(0, 1_001) && !room.admits(1, 10) && room.admits(1, 9));
    }

    #[test]
    fn alphas_are_thousandths_in_a_range() {
        let of = |multiple| Alpha::from_multiple(multiple).map(Alpha::multiple);
        assert_eq!([0.5, 0.125, 8.0, 64.0].map(of), [0.5, 0.125, 8.0, 64.0].map(Some));
        assert_eq!([0.0, -1.0, 64.1, f64::NAN, 0.0001].map(of), [None; 5]);
        assert_eq!((Alpha::from_percent(37).percent(), Alpha::from_percent(37).of(100)), (37, 37));
    }
}
