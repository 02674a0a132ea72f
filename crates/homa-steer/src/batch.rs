//! Batches of packets that a core takes from a device together, and the maximum size of a batch.

use std::fmt;
use std::str::FromStr;

use crate::cores::{CORE_NUMBERS, Core};
use crate::error::SteerError;

/// The position of a packet in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of packets of the batch before this one.
    pub position: u32,
    /// Number of packets in the batch; greater than the position. A caller that does not know whether more
    /// packets follow passes the number so far.
    pub size: u32,
}

impl Batch {
    /// A packet that arrived alone, which shows that the core taking packets from the device is not busy.
    pub const LONE: Batch = Batch { position: 0, size: 1 };

    /// Returns whether the packet arrived alone.
    #[must_use]
    pub fn is_lone(self) -> bool {
        self.size == 1
    }
}

/// Maximum number of packets that a core takes from a device before it hands them on.
///
/// According to the published notes on Homa in Linux, larger batches are better up to 10 to 20 packets, since
/// handing packets on costs a wake-up. In larger batches, grants wait too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCap(u32);

impl BatchCap {
    /// The largest cap.
    pub const MAX: u32 = 1 << 16;

    /// Creates a cap from 1 to [`BatchCap::MAX`].
    ///
    /// # Errors
    /// The number is outside this range.
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

    /// Returns the cap in packets.
    #[must_use]
    pub const fn packets(self) -> u32 {
        self.0
    }

    /// Returns the number of packets to take if `waiting` packets are queued.
    #[must_use]
    pub fn take(self, waiting: u32) -> u32 {
        waiting.min(self.0)
    }
}

impl FromStr for BatchCap {
    type Err = SteerError;

    /// Parses a number of packets.
    fn from_str(text: &str) -> Result<BatchCap, SteerError> {
        // Text that is not a number counts as out of range.
        BatchCap::new(text.parse().unwrap_or(u32::MAX))
    }
}

impl fmt::Display for BatchCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for BatchCap {
    /// Returns the middle of the range that was found best.
    fn default() -> BatchCap {
        BatchCap(16)
    }
}

/// Infers batches from arrival times, for callers that do not know the batches: on a core that has fallen
/// behind, packets arrive without a pause. The first packet of a batch appears to have arrived alone.
///
/// Reading the exact time of a packet may cost as much as all other work for it, so it is read only when
/// necessary: for the first [`Arrivals::FIRST`] packets of a batch, and then for every [`Arrivals::EVERY`]th.
/// A packet whose exact time is not read counts as part of the batch if it arrives in the same tick of a
/// coarse clock as its predecessor. Therefore up to three packets that arrive alone after a longer batch
/// count as part of that batch. A lone packet after another lone packet never does.
#[derive(Clone, Debug)]
pub struct Arrivals {
    batching: Batching,
    last: Vec<LastArrival>,
}

/// The last packet that arrived on a core.
#[derive(Clone, Copy, Debug, Default)]
struct LastArrival {
    /// The coarse clock when the packet arrived.
    tick_ns: u64,
    /// The packet's position in its batch.
    position: u32,
    /// Position in that batch of the last packet whose exact time was read.
    read_at: u32,
    /// The exact time that was last read, in nanoseconds; 0 if none has been read.
    read_ns: u64,
}

/// Default gap below which consecutive packets belong to one batch. It is longer than the kernel takes for a
/// packet when the device has more packets, and shorter than an interrupt takes.
pub const GAP_NS: u64 = 5_000;

/// How packets that arrive on a core are grouped into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Packets that arrive less than this apart belong to one batch.
    pub gap_ns: u64,
    /// Maximum number of packets in a batch.
    pub cap: BatchCap,
}

impl Default for Batching {
    /// Returns [`GAP_NS`] and the default cap.
    fn default() -> Batching {
        Batching { gap_ns: GAP_NS, cap: BatchCap::default() }
    }
}

impl Arrivals {
    /// Number of leading packets of a batch whose exact time is always read.
    pub const FIRST: u32 = 3;
    /// After the first packets, the exact time is read at positions that are multiples of this.
    pub const EVERY: u32 = 4;

    /// Creates a detector of batches. Between packets whose time is read, the average gap applies.
    #[must_use]
    pub fn new(batching: Batching) -> Arrivals {
        Arrivals { batching, last: vec![LastArrival::default(); CORE_NUMBERS] }
    }

    /// Records the arrival of a packet on this core, whose number is below [`CORE_NUMBERS`], at the time
    /// `tick_ns` of a coarse clock. Returns the packet's batch, as far as it is known, and the exact time:
    /// this packet's if it was read, otherwise the last one read for this core.
    pub fn arrive(&mut self, core: Core, tick_ns: u64, exact_ns: impl FnOnce() -> u64) -> (Batch, u64) {
        let last = &mut self.last[usize::from(core)];
        let next = last.position + 1;
        let has_room = next < self.batching.cap.0;
        let is_between = next >= Arrivals::FIRST && !next.is_multiple_of(Arrivals::EVERY);
        if has_room && is_between && last.tick_ns == tick_ns {
            last.position = next;
            return (Batch { position: next, size: next + 1 }, last.read_ns);
        }
        let now_ns = exact_ns();
        let gaps = u64::from(next - last.read_at);
        let goes_on = crate::load::is_recent(now_ns, last.read_ns, self.batching.gap_ns.saturating_mul(gaps));
        let position = if goes_on && has_room { next } else { 0 };
        *last = LastArrival { tick_ns, position, read_at: position, read_ns: now_ns };
        // A packet that follows a full batch without a pause did not arrive alone.
        (Batch { position, size: if goes_on { (position + 1).max(2) } else { 1 } }, now_ns)
    }
}

/// The destination of each core's last batch, so that the batch's packets stay together and in order.
#[derive(Clone, Debug)]
pub(crate) struct LastBatch {
    cores: Vec<Option<Core>>,
}

impl LastBatch {
    pub(crate) fn new() -> LastBatch {
        LastBatch { cores: vec![None; CORE_NUMBERS] }
    }

    /// Returns the destination of this packet's batch; `None` if the packet begins a batch.
    pub(crate) fn of(&self, arrival: Core, batch: Batch) -> Option<Core> {
        if batch.position == 0 { None } else { *self.cores.get(usize::from(arrival))? }
    }

    /// Sets the destination of the batch that arrives on this core. With `None`, a destination is chosen
    /// separately for the batch's next packet.
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
        assert_eq!(cap.to_string(), "3");
        assert!(BatchCap::new(0).is_err() && BatchCap::new(BatchCap::MAX + 1).is_err());
    }

    fn arrivals(cap: u32) -> Arrivals {
        Arrivals::new(Batching { gap_ns: 1_000, cap: BatchCap::new(cap).unwrap() })
    }

    #[test]
    fn packets_without_a_pause_are_of_one_batch() {
        let mut arrivals = arrivals(3);
        let mut at = |core, now_ns| {
            let (batch, seen_ns) = arrivals.arrive(core, now_ns, || now_ns);
            assert_eq!(seen_ns, now_ns);
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

    /// Returns the positions and times at which the exact time is read in a flood, given the times between
    /// packets and between ticks.
    fn asked(between_ns: u64, tick_ns: u64) -> Vec<(u32, u64)> {
        let mut arrivals = arrivals(16);
        let mut asked = Vec::new();
        for number in 0..20 {
            let now_ns = 1_000_000 + number * between_ns;
            let mut is_asked = false;
            let (batch, seen_ns) = arrivals.arrive(0, now_ns / tick_ns, || {
                is_asked = true;
                now_ns
            });
            assert!(is_asked || seen_ns < now_ns);
            if is_asked {
                asked.push((batch.position, number));
            }
        }
        asked
    }

    #[test]
    fn the_exact_time_of_most_packets_of_a_batch_is_not_asked_for() {
        let mut expected = vec![(0, 0), (1, 1), (2, 2), (4, 4), (8, 8), (12, 12), (0, 16), (1, 17), (2, 18)];
        assert_eq!(asked(1, 1_000_000), expected);
        assert_eq!(asked(999, 1_000_000), expected, "as many gaps as there were");
        assert!(asked(1_000, 1_000_000).iter().all(|&(position, _)| position == 0));
        // There is a tick between the 10th and the 11th packet.
        expected.insert(5, (10, 10));
        assert_eq!(asked(40, 1_000_400), expected);
    }

    #[test]
    fn what_comes_alone_behind_a_batch_is_known_for_it_after_three_packets_at_most() {
        for batch in 2..16 {
            let mut arrivals = arrivals(16);
            let mut lone = |now_ns, tick_ns| arrivals.arrive(0, tick_ns, || now_ns).0.is_lone();
            (0..batch).for_each(|number| assert_eq!(lone(10_000 + number, 1), number == 0));
            let later =
                (1..=4).map(|number| lone(10_000 + 100_000 * number, 1)).take_while(|is_lone| !is_lone);
            assert!(later.count() <= 3, "{batch}");
        }
        let mut arrivals = arrivals(16);
        for number in 0..6 {
            arrivals.arrive(0, 1, || 10_000 + number);
        }
        assert!(arrivals.arrive(0, 2, || 50_000).0.is_lone(), "another tick");
    }
}
