//! The ring of records.

use crate::clock::{Anchor, Clock, monotonic_raw_ns, tsc};
use crate::event::EventKind;
use crate::place::Place;

/// Largest ring, in records: 512 MiB of memory. [`Trace::new`] gives no more than this.
pub const MAX_RECORDS: usize = 1 << 24;

/// One event, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Record {
    /// When, in ticks of the trace's clock: nanoseconds, except with [`Clock::Tsc`], whose rate is in the dump.
    pub time: u64,
    /// The RPC's id, or 0 for events that belong to none.
    pub id: u64,
    /// First argument; its meaning is with the [`EventKind`].
    pub a: u32,
    /// Second argument; its meaning is with the [`EventKind`].
    pub b: u32,
    /// The number of the [`EventKind`].
    pub kind: u16,
    /// Where.
    pub place: Place,
}

const _: () = assert!(size_of::<Record>() == Record::BYTES);

impl Record {
    /// Size of a record, in memory and in a dump.
    pub const BYTES: usize = 32;

    /// The kind, or `None` when a newer version recorded one that this version does not know.
    #[must_use]
    pub fn event(&self) -> Option<EventKind> {
        EventKind::from_u16(self.kind)
    }

    pub(crate) fn to_words(self) -> [u64; 4] {
        let [r0, r1, r2] = self.place.raw().map(u64::from);
        [
            self.time,
            self.id,
            u64::from(self.a) | u64::from(self.b) << 32,
            u64::from(self.kind) | r0 << 16 | r1 << 32 | r2 << 48,
        ]
    }

    pub(crate) fn from_words(words: [u64; 4]) -> Record {
        let [time, id, arguments, kind] = words;
        Record {
            time,
            id,
            a: arguments as u32,
            b: (arguments >> 32) as u32,
            kind: kind as u16,
            place: Place::from_raw([(kind >> 16) as u16, (kind >> 32) as u16, (kind >> 48) as u16]),
        }
    }
}

/// A recorder with one owner: a ring of records and a clock.
///
/// Once the ring is full the newest record takes the place of the oldest.
#[derive(Debug)]
pub struct Trace {
    ring: Box<[Record]>,
    /// Records ever written; the next one goes to this position modulo the ring's length.
    written: u64,
    recording: bool,
    clock: Clock,
    virtual_now_ns: u64,
    start: Anchor,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace::off()
    }
}

impl Trace {
    /// A trace that records nothing and owns no memory.
    #[must_use]
    pub fn off() -> Trace {
        Trace {
            ring: Box::default(),
            written: 0,
            recording: false,
            clock: Clock::Virtual,
            virtual_now_ns: 0,
            start: Anchor { time: 0, monotonic_ns: 0 },
        }
    }

    /// A trace that keeps the last `records` events, rounded up to a power of two and held between 1 and [`MAX_RECORDS`].
    ///
    /// Allocates and touches the whole ring (32 bytes a record), so that recording meets no page fault.
    #[must_use]
    pub fn new(records: usize, clock: Clock) -> Trace {
        let clock = clock.available();
        let start = match clock {
            Clock::Tsc => Anchor::of_tsc(),
            Clock::Monotonic => {
                let now_ns = monotonic_raw_ns();
                Anchor { time: now_ns, monotonic_ns: now_ns }
            }
            Clock::Virtual => Anchor { time: 0, monotonic_ns: 0 },
        };
        let records = records.clamp(1, MAX_RECORDS).next_power_of_two();
        let mut ring = vec![Record::default(); records].into_boxed_slice();
        // Zeroed memory may come from the kernel untouched; a write that the compiler cannot drop brings its pages in.
        for record in &mut ring {
            std::hint::black_box(&mut *record).kind = 0;
        }
        Trace { ring, written: 0, recording: true, clock, virtual_now_ns: 0, start }
    }

    /// As [`new`](Trace::new) with [`Clock::Virtual`], for a clock whose zero was at this moment of `CLOCK_MONOTONIC_RAW`, and which
    /// runs as that does: its dump tells times that can be held against those of other dumps of the machine.
    #[must_use]
    pub fn since(records: usize, zero_ns: u64) -> Trace {
        let start = Anchor { time: 0, monotonic_ns: zero_ns };
        Trace { start, ..Trace::new(records, Clock::Virtual) }
    }

    /// Records one event now. Does nothing when the trace is off or frozen.
    #[inline]
    pub fn record(&mut self, kind: EventKind, id: u64, a: u32, b: u32) {
        self.record_at(kind, id, a, b, Place::default());
    }

    /// The same, and where.
    #[inline]
    pub fn record_at(&mut self, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        if !self.recording {
            return;
        }
        let time = self.now();
        // The length is a power of two and not zero while recording, so the mask is below it.
        let index = self.written as usize & self.ring.len().wrapping_sub(1);
        self.ring[index] = Record { time, id, a, b, kind: kind as u16, place };
        self.written += 1;
    }

    #[inline]
    fn now(&self) -> u64 {
        match self.clock {
            Clock::Tsc => tsc(),
            Clock::Virtual => self.virtual_now_ns,
            Clock::Monotonic => monotonic_raw_ns(),
        }
    }

    /// Sets the time of the next events of a trace with [`Clock::Virtual`]; other clocks ignore it.
    #[inline]
    pub fn set_virtual_now(&mut self, now_ns: u64) {
        self.virtual_now_ns = now_ns;
    }

    /// Records [`EventKind::Freeze`] for this RPC and stops recording, so that what led here is not overwritten. `cause` is
    /// that event's `a`. Does nothing when the trace is off or frozen already.
    pub fn freeze(&mut self, id: u64, cause: u32) {
        self.record(EventKind::Freeze, id, cause, 0);
        self.recording = false;
    }

    /// Goes on recording behind what the ring holds. Does nothing when the trace is off.
    pub fn unfreeze(&mut self) {
        self.recording = !self.ring.is_empty();
    }

    /// Whether events are being recorded: neither off nor frozen.
    #[inline]
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Whether the trace was created [off](Trace::off).
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.ring.is_empty()
    }

    /// The clock in use, which [`Trace::new`] may have had to choose in place of the one asked for.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Records that the ring has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Records in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.written.min(self.ring.len() as u64) as usize
    }

    /// Whether the ring holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Records that newer ones have overwritten.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.written - self.len() as u64
    }

    /// The records from the oldest to the newest.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Record> + '_ {
        let mask = self.ring.len().wrapping_sub(1);
        let first = self.overwritten() as usize;
        (0..self.len()).map(move |i| &self.ring[first.wrapping_add(i) & mask])
    }

    pub(crate) fn start(&self) -> Anchor {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(capacity: usize, events: u64) -> Trace {
        let mut trace = Trace::new(capacity, Clock::Virtual);
        for i in 0..events {
            trace.set_virtual_now(i * 10);
            trace.record(EventKind::AppSend, i, i as u32, 7);
        }
        trace
    }

    fn ids(trace: &Trace) -> Vec<u64> {
        trace.iter().map(|record| record.id).collect()
    }

    #[test]
    fn a_trace_that_is_off_stays_empty() {
        let mut trace = Trace::off();
        trace.record(EventKind::RpcStart, 1, 2, 3);
        trace.freeze(1, 0);
        trace.unfreeze();
        trace.record(EventKind::RpcStart, 1, 2, 3);
        assert!(trace.is_empty() && trace.is_off() && !trace.is_recording());
        assert_eq!((trace.capacity(), trace.iter().len()), (0, 0));
    }

    #[test]
    fn capacity_is_a_power_of_two_within_its_bounds() {
        assert_eq!(Trace::new(0, Clock::Virtual).capacity(), 1);
        assert_eq!(Trace::new(5, Clock::Virtual).capacity(), 8);
        assert_eq!(Trace::new(8, Clock::Virtual).capacity(), 8);
    }

    #[test]
    fn records_keep_time_and_arguments() {
        let trace = numbered(4, 3);
        let last = trace.iter().last().copied().unwrap();
        assert_eq!((last.time, last.id, last.a, last.b), (20, 2, 2, 7));
        assert_eq!(last.event(), Some(EventKind::AppSend));
    }

    #[test]
    fn a_full_ring_gives_up_its_oldest_records() {
        assert_eq!(ids(&numbered(4, 3)), [0, 1, 2]);
        assert_eq!(ids(&numbered(4, 4)), [0, 1, 2, 3]);
        let trace = numbered(4, 6);
        assert_eq!(ids(&trace), [2, 3, 4, 5]);
        assert_eq!((trace.len(), trace.overwritten()), (4, 2));
    }

    #[test]
    fn freeze_is_the_last_event_until_unfreeze() {
        let mut trace = numbered(8, 2);
        trace.freeze(99, 1);
        trace.record(EventKind::RpcEnd, 5, 0, 0);
        trace.freeze(100, 1);
        assert_eq!(ids(&trace), [0, 1, 99]);
        assert_eq!(trace.iter().last().unwrap().event(), Some(EventKind::Freeze));
        trace.unfreeze();
        trace.record(EventKind::RpcEnd, 5, 0, 0);
        assert_eq!(ids(&trace), [0, 1, 99, 5]);
    }

    #[test]
    fn live_clocks_give_times_in_order() {
        for clock in [Clock::Tsc, Clock::Monotonic] {
            let mut trace = Trace::new(64, clock);
            for i in 0..64 {
                trace.record(EventKind::AppSend, i, 0, 0);
            }
            assert!(trace.iter().is_sorted_by_key(|record| record.time), "{clock:?}");
            assert!(trace.iter().all(|record| record.time != 0), "{clock:?}");
        }
    }
}
