//! The ring of records.

use crate::clock::{Anchor, Clock, core_plus_one, monotonic_raw_ns, tsc};
use crate::event::EventKind;
use crate::place::Place;
use crate::ticks::Ticks;

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
    /// Latest time of all records.
    last_time: u64,
    /// Kind of the newest record.
    last_kind: u16,
    /// The core on which the recorder runs plus one; 0: not known.
    core_plus_one: u16,
    /// Which of its host's endpoints it is of.
    endpoint: u8,
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
            last_time: 0,
            last_kind: 0,
            core_plus_one: 0,
            endpoint: 0,
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
        Trace { ring, recording: true, clock, start, last_time: start.time, ..Trace::off() }
    }

    /// As [`new`](Trace::new) with [`Clock::Virtual`], for a clock whose zero was at this moment of `CLOCK_MONOTONIC_RAW`, and which
    /// runs as that does: its dump tells times that can be held against those of other dumps of the machine.
    #[must_use]
    pub fn since(records: usize, zero_ns: u64) -> Trace {
        let start = Anchor { time: 0, monotonic_ns: zero_ns };
        Trace { start, ..Trace::new(records, Clock::Virtual) }
    }

    /// Records one event of a host now, that is about no peer. Does nothing when the trace is off or frozen.
    #[inline]
    pub fn record(&mut self, kind: EventKind, id: u64, a: u32, b: u32) {
        self.record_at(kind, id, a, b, self.place(0, 0));
    }

    /// Records one event of a host now, about the peer of this number and a packet of this priority.
    #[inline]
    pub fn record_with(&mut self, kind: EventKind, id: u64, a: u32, b: u32, peer: u16, priority: u8) {
        if self.recording {
            self.push(self.now(), kind, id, a, b, self.place(peer, priority));
        }
    }

    /// As [`record_with`](Trace::record_with), with the time of the event before where that is of the kind `before`, from which this one
    /// follows at once.
    #[inline]
    pub fn record_after(
        &mut self,
        before: EventKind,
        (kind, id, a, b): (EventKind, u64, u32, u32),
        (peer, priority): (u16, u8),
    ) {
        if self.recording {
            let time = if self.last_kind == before as u16 { self.last_time } else { self.now() };
            self.push(time, kind, id, a, b, self.place(peer, priority));
        }
    }

    /// Records one event now, and where.
    #[inline]
    pub fn record_at(&mut self, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        if self.recording {
            self.push(self.now(), kind, id, a, b, place);
        }
    }

    /// Records one event with the time of the one before, for what follows at once from that: to read the counter is most of what
    /// a record costs.
    #[inline]
    pub fn record_again(&mut self, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        self.record_stamped(self.last_time, kind, id, a, b, place);
    }

    /// Records one event with a time that was taken before, from the clock that [`Trace::ticks`] gives: for what happened where the
    /// trace was not at hand. The ring is then not in the order of time; a dump is.
    #[inline]
    pub fn record_stamped(&mut self, time: u64, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        if self.recording {
            self.push(time, kind, id, a, b, place);
        }
    }

    // A call of its own, so that where nothing is recorded a branch is all there is.
    #[inline]
    fn push(&mut self, time: u64, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        // The length is a power of two and not zero while recording, so the mask is below it.
        let index = self.written as usize & self.ring.len().wrapping_sub(1);
        self.ring[index] = Record { time, id, a, b, kind: kind as u16, place };
        self.written += 1;
        self.last_kind = kind as u16;
        // One that was taken before does not put back what the next ones share.
        self.last_time = self.last_time.max(time);
    }

    /// Says which of its host's endpoints the trace is of, for the records from here on; the first one by default.
    pub fn set_endpoint(&mut self, endpoint: u8) {
        self.endpoint = endpoint;
    }

    /// The place of an event at this host: the number of the peer, 0 for none, the priority, the endpoint, and the core that
    /// [`Trace::note_core`] found.
    #[inline]
    #[must_use]
    pub fn place(&self, peer: u16, priority: u8) -> Place {
        Place::at_host(peer, priority, self.endpoint, self.core_plus_one)
    }

    /// Notes on which core the caller runs, for the records from here on. To ask for it with each record would cost a quarter of
    /// what that does; whoever takes turns at a trace calls this at the beginning of his. Does nothing where the clock is
    /// [`Clock::Virtual`], or nothing is recorded.
    #[inline]
    pub fn note_core(&mut self) {
        if self.recording && self.clock != Clock::Virtual {
            self.core_plus_one = core_plus_one();
        }
    }

    /// The clock of a trace that records live, to be read by those who do not have the trace; `None` for one that is off or whose
    /// clock is [`Clock::Virtual`].
    #[must_use]
    pub fn ticks(&self) -> Option<Ticks> {
        (!self.is_off() && self.clock != Clock::Virtual).then(|| Ticks::of(self.clock, self.start))
    }

    /// The latest time of all records, in ticks; the start of the trace where there is none.
    #[inline]
    #[must_use]
    pub fn last_time(&self) -> u64 {
        self.last_time
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

    /// The records in the order in which they were written.
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

    #[test]
    fn stamps_taken_before_are_kept_and_put_nothing_back() {
        let mut trace = numbered(8, 2);
        trace.set_endpoint(3);
        trace.record_stamped(3, EventKind::AppSend, 7, 0, 0, trace.place(2, 5));
        trace.record_again(EventKind::RpcStart, 8, 0, 0, trace.place(0, 0));
        let times: Vec<u64> = trace.iter().map(|record| record.time).collect();
        assert_eq!((times, trace.last_time()), (vec![0, 10, 3, 10], 10));
        let place = trace.iter().nth(2).unwrap().place;
        assert_eq!((place.peer(), place.priority(), place.endpoint(), place.core()), (Some(2), 5, 3, None));
        trace.freeze(0, 0);
        trace.record_stamped(4, EventKind::AppSend, 9, 0, 0, Place::default());
        assert_eq!(trace.len(), 5);
        assert!(trace.ticks().is_none() && Trace::off().ticks().is_none());
    }

    #[test]
    fn what_follows_at_once_shares_the_time_of_its_kind_alone() {
        let mut trace = Trace::new(8, Clock::Virtual);
        let mut packet = |before: EventKind, now_ns| {
            trace.set_virtual_now(now_ns);
            trace.record(before, 0, 1, 0);
            trace.set_virtual_now(now_ns + 5);
            trace.record_after(EventKind::BurstIn, (EventKind::PacketReceived, 4, 0, 0), (9, 0));
        };
        packet(EventKind::BurstIn, 100);
        packet(EventKind::BurstOut, 200);
        let times: Vec<u64> = trace.iter().map(|record| record.time).collect();
        assert_eq!(times, [100, 100, 200, 205]);
        assert_eq!(trace.iter().nth(1).and_then(|record| record.place.peer()), Some(9));
    }

    #[test]
    fn a_live_trace_knows_its_core_and_lends_its_clock() {
        let mut trace = Trace::new(8, Clock::Tsc);
        trace.note_core();
        let ticks = trace.ticks().expect("a live clock");
        let before = ticks.now();
        trace.record(EventKind::AppSend, 1, 0, 0);
        let after = ticks.now();
        let record = *trace.iter().next().unwrap();
        assert!((before..=after).contains(&record.time), "{before} {} {after}", record.time);
        assert!(record.place.core().is_some());
        let mut simulated = Trace::new(8, Clock::Virtual);
        simulated.note_core();
        simulated.record(EventKind::AppSend, 1, 0, 0);
        assert_eq!(simulated.iter().next().unwrap().place.core(), None);
    }
}
