//! Batches: packets that a core takes from a device together, and how many they may be.

use crate::cores::{CORE_NUMBERS, Core};
use crate::error::SteerError;

/// Which packet of a batch one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Packets of the batch before it.
    pub position: u32,
    /// Packets of the batch; more than the position. Whoever does not know what comes later says how many it is so far.
    pub size: u32,
}

impl Batch {
    /// A packet that came alone: the core that takes packets from the device has time.
    pub const LONE: Batch = Batch { position: 0, size: 1 };

    /// Whether the packet came alone.
    #[must_use]
    pub fn is_lone(self) -> bool {
        self.size == 1
    }
}

/// Most packets that a core takes from a device before it hands them on.
///
/// The published notes on Homa in Linux found larger batches better up to 10 to 20 packets, since handing on costs a wake-up; beyond that
/// grants wait in them for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCap(u32);

impl BatchCap {
    /// The largest cap.
    pub const MAX: u32 = 1 << 16;

    /// A cap from 1 to [`BatchCap::MAX`].
    ///
    /// # Errors
    /// It is none of these.
    pub fn new(packets: u32) -> Result<BatchCap, SteerError> {
        if (1..=BatchCap::MAX).contains(&packets) {
            return Ok(BatchCap(packets));
        }
        Err(SteerError::Setting {
            setting: "the batch cap",
            value: packets.into(),
            range: "1 to 65536 packets",
        })
    }

    /// In packets.
    #[must_use]
    pub fn packets(self) -> u32 {
        self.0
    }

    /// How many packets are taken where so many wait.
    #[must_use]
    pub fn take(self, waiting: u32) -> u32 {
        waiting.min(self.0)
    }
}

impl Default for BatchCap {
    /// In the middle of what was found best.
    fn default() -> BatchCap {
        BatchCap(16)
    }
}

/// Batches where nobody tells of them, from the times at which packets come: on a core that is behind they come without a pause.
/// The first packet of a batch
/// looks as if it came alone.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gap_ns: u64,
    cap: BatchCap,
    /// For each core when its last packet came, and that packet's place in its batch.
    last: Vec<(u64, u32)>,
}

/// Packets that come with less time between them are of one batch, by default: longer than the kernel takes for a packet from a
/// device that has more, and shorter
/// than it takes to be called by an interrupt.
pub const GAP_NS: u64 = 5_000;

impl Arrivals {
    /// Packets that come less than `gap_ns` after each other are of one batch, of `cap` packets at most.
    #[must_use]
    pub fn new(gap_ns: u64, cap: BatchCap) -> Arrivals {
        Arrivals { gap_ns, cap, last: vec![(0, 0); CORE_NUMBERS] }
    }

    /// A packet comes on this core, whose number is below [`CORE_NUMBERS`]: what is known of its batch.
    pub fn arrive(&mut self, core: Core, now_ns: u64) -> Batch {
        let (last_ns, last) = self.last[usize::from(core)];
        let goes_on = crate::load::is_recent(now_ns, last_ns, self.gap_ns);
        let next = last + 1;
        let position = if goes_on && next < self.cap.0 { next } else { 0 };
        self.last[usize::from(core)] = (now_ns, position);
        // What follows a full batch without a pause did not come alone.
        Batch { position, size: if goes_on { (position + 1).max(2) } else { 1 } }
    }
}

/// Where the last batch of each core went, so that its packets stay together and in their order.
#[derive(Clone, Debug)]
pub(crate) struct LastBatch {
    cores: Vec<Option<Core>>,
}

impl LastBatch {
    pub(crate) fn new() -> LastBatch {
        LastBatch { cores: vec![None; CORE_NUMBERS] }
    }

    /// Where the batch goes that this packet is of, unless it begins one.
    pub(crate) fn of(&self, arrival: Core, batch: Batch) -> Option<Core> {
        if batch.position == 0 { None } else { *self.cores.get(usize::from(arrival))? }
    }

    /// The batch that arrives on this core goes there; with `None` its next packet is to be decided anew.
    pub(crate) fn set(&mut self, arrival: Core, core: Option<Core>) {
        if let Some(place) = self.cores.get_mut(usize::from(arrival)) {
            *place = core;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_bounds_what_is_taken() {
        let cap = BatchCap::new(3).unwrap();
        assert_eq!([0, 2, 3, 100].map(|waiting| cap.take(waiting)), [0, 2, 3, 3]);
        assert!(BatchCap::new(0).is_err() && BatchCap::new(BatchCap::MAX + 1).is_err());
    }

    #[test]
    fn packets_without_a_pause_are_of_one_batch() {
        let mut arrivals = Arrivals::new(1_000, BatchCap::new(3).unwrap());
        let mut at = |core, now_ns| {
            let batch = arrivals.arrive(core, now_ns);
            (batch.position, batch.size)
        };
        assert_eq!(at(0, 10_000), (0, 1), "nothing came before it");
        assert_eq!(at(0, 10_999), (1, 2));
        assert_eq!(at(1, 11_000), (0, 1), "another core");
        assert_eq!(at(0, 11_500), (2, 3));
        assert_eq!(at(0, 12_000), (0, 2), "the batch is full, and this one did not come alone");
        assert_eq!(at(0, 13_000), (0, 1), "after a pause");
        assert_eq!(at(0, 12_000), (0, 1), "time that goes back is a pause");
    }
}
