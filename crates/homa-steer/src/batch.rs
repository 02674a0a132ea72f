//! Batches: packets that a core takes from a device together, and how many they may be.

use std::fmt;
use std::str::FromStr;

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
    pub const fn packets(self) -> u32 {
        self.0
    }

    /// How many packets are taken where so many wait.
    #[must_use]
    pub fn take(self, waiting: u32) -> u32 {
        waiting.min(self.0)
    }
}

impl FromStr for BatchCap {
    type Err = SteerError;

    /// A number of packets.
    fn from_str(text: &str) -> Result<BatchCap, SteerError> {
        // What is no number is as far out of range as a number can be.
        BatchCap::new(text.parse().unwrap_or(u32::MAX))
    }
}

impl fmt::Display for BatchCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for BatchCap {
    /// In the middle of what was found best.
    fn default() -> BatchCap {
        BatchCap(16)
    }
}

/// Batches where nobody tells of them, from the times at which packets come: on a core that is behind they come without a pause.
/// The first packet of a batch looks as if it came alone.
///
/// The exact time of a packet may cost as much as all else that is done for it, and so it is asked for only as often as it takes: for
/// the first [`Arrivals::FIRST`] packets of a batch, and then for every [`Arrivals::EVERY`]th. One between, in the same tick of a
/// coarse clock as the one before it, is taken to be of the batch. So up to three packets that come alone behind a longer batch are
/// taken to be of it, and lone packets behind lone ones never.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gap_ns: u64,
    cap: BatchCap,
    last: Vec<Last>,
}

/// What is known of the last packet that came on a core.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// The coarse clock then.
    tick_ns: u64,
    /// Its place in its batch.
    position: u32,
    /// The place in that batch of the last one whose exact time was asked for.
    read_at: u32,
    /// That time; 0: never.
    read_ns: u64,
}

/// Packets that come with less time between them are of one batch, by default: longer than the kernel takes for a packet from a
/// device that has more, and shorter
/// than it takes to be called by an interrupt.
pub const GAP_NS: u64 = 5_000;

impl Arrivals {
    /// Packets of a batch whose exact time is asked for in any case.
    pub const FIRST: u32 = 3;
    /// The others whose time is asked for are those at places that are multiples of this.
    pub const EVERY: u32 = 4;

    /// Packets that come less than `gap_ns` after each other, or as fast on average where not each time is asked for, are of one
    /// batch, of `cap` packets at most.
    #[must_use]
    pub fn new(gap_ns: u64, cap: BatchCap) -> Arrivals {
        Arrivals { gap_ns, cap, last: vec![Last::default(); CORE_NUMBERS] }
    }

    /// A packet comes on this core, whose number is below [`CORE_NUMBERS`], at this time of a coarse clock: what is known of its batch,
    /// and the time by the exact clock where it was asked, else when it last was for a packet on this core.
    pub fn arrive(&mut self, core: Core, tick_ns: u64, exact_ns: impl FnOnce() -> u64) -> (Batch, u64) {
        let last = &mut self.last[usize::from(core)];
        let next = last.position + 1;
        let has_room = next < self.cap.0;
        let is_between = next >= Arrivals::FIRST && !next.is_multiple_of(Arrivals::EVERY);
        if has_room && is_between && last.tick_ns == tick_ns {
            last.position = next;
            return (Batch { position: next, size: next + 1 }, last.read_ns);
        }
        let now_ns = exact_ns();
        let gaps = u64::from(next - last.read_at);
        let goes_on = crate::load::is_recent(now_ns, last.read_ns, self.gap_ns.saturating_mul(gaps));
        let position = if goes_on && has_room { next } else { 0 };
        *last = Last { tick_ns, position, read_at: position, read_ns: now_ns };
        // What follows a full batch without a pause did not come alone.
        (Batch { position, size: if goes_on { (position + 1).max(2) } else { 1 } }, now_ns)
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
        assert_eq!(cap.to_string(), "3");
        assert!(BatchCap::new(0).is_err() && BatchCap::new(BatchCap::MAX + 1).is_err());
    }

    #[test]
    fn packets_without_a_pause_are_of_one_batch() {
        let mut arrivals = Arrivals::new(1_000, BatchCap::new(3).unwrap());
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

    /// Places of a batch whose time is asked for, of a flood with so much time between packets, and between ticks.
    fn asked(between_ns: u64, tick_ns: u64) -> Vec<(u32, u64)> {
        let mut arrivals = Arrivals::new(1_000, BatchCap::new(16).unwrap());
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
        // A tick between the 10th and the 11th.
        expected.insert(5, (10, 10));
        assert_eq!(asked(40, 1_000_400), expected);
    }

    #[test]
    fn what_comes_alone_behind_a_batch_is_known_for_it_after_three_packets_at_most() {
        for batch in 2..16 {
            let mut arrivals = Arrivals::new(1_000, BatchCap::new(16).unwrap());
            let mut lone = |now_ns, tick_ns| arrivals.arrive(0, tick_ns, || now_ns).0.is_lone();
            (0..batch).for_each(|number| assert_eq!(lone(10_000 + number, 1), number == 0));
            let later =
                (1..=4).map(|number| lone(10_000 + 100_000 * number, 1)).take_while(|is_lone| !is_lone);
            assert!(later.count() <= 3, "{batch}");
        }
        let mut arrivals = Arrivals::new(1_000, BatchCap::new(16).unwrap());
        for number in 0..6 {
            arrivals.arrive(0, 1, || 10_000 + number);
        }
        assert!(arrivals.arrive(0, 2, || 50_000).0.is_lone(), "another tick");
    }
}
