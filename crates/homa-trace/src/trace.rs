//! The ring of records.

use crate::clock::{Anchor, Clock, monotonic_raw_ns, tsc};
use crate::event::EventKind;
use crate::os::core_plus_one;
use crate::place::Place;
use crate::ticks::Ticks;

/// Maximum size of a ring in records: 512 MiB of memory. [`Trace::new`] limits its argument to this value.
pub const MAX_RECORDS: usize = 1 << 24;

/// Maximum number of records in one [stage](Trace::begin_stage) that share a timestamp: enough for a few
/// packets, processed in less than a microsecond. A higher limit would hide the time that packets of a burst
/// spend queued behind each other.
const STAGE_RECORDS: u8 = 16;

/// One event, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Record {
    /// The time in ticks of the trace's clock. Ticks are nanoseconds, except with [`Clock::Tsc`], whose rate
    /// is in the dump.
    pub time: u64,
    /// The RPC's ID, or 0 for events without an RPC.
    pub id: u64,
    /// First argument; its meaning depends on the [`EventKind`].
    pub a: u32,
    /// Second argument; its meaning depends on the [`EventKind`].
    pub b: u32,
    /// The number of the [`EventKind`].
    pub kind: u16,
    /// Where the event happened.
    pub place: Place,
}

const _: () = assert!(size_of::<Record>() == Record::BYTES);

impl Record {
    /// Size of a record, in memory and in a dump.
    pub const BYTES: usize = 32;

    /// Returns the kind, or `None` for a kind recorded by a newer version and unknown to this one.
    #[inline]
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
/// Once the ring is full, the newest record replaces the oldest.
#[derive(Debug)]
pub struct Trace {
    ring: Box<[Record]>,
    /// Total number of records written. The next record is written at this position modulo the ring's length.
    written: u64,
    recording: bool,
    clock: Clock,
    virtual_now_ns: u64,
    start: Anchor,
    /// The latest time of any record.
    last_time: u64,
    /// The last time read in a stage.
    stage_time: u64,
    /// Number of further records that share `stage_time`, or `None` if each record has its own time.
    stage_left: Option<u8>,
    /// The core on which the recorder runs, plus one; 0 if unknown.
    core_plus_one: u16,
    /// Whether the next record must read the core again.
    core_is_old: bool,
    /// The host's endpoint to which the trace belongs.
    endpoint: u8,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace::off()
    }
}

impl Trace {
    /// Returns a trace that records nothing and allocates no memory.
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
            stage_time: 0,
            stage_left: None,
            core_plus_one: 0,
            core_is_old: false,
            endpoint: 0,
        }
    }

    /// Creates a trace that keeps the last `records` events. The number is rounded up to a power of two and
    /// clamped to the range 1 to [`MAX_RECORDS`].
    ///
    /// Allocates and touches the whole ring (32 bytes per record), so that recording causes no page fault.
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
        // The kernel may provide zeroed memory without mapping its pages. To map them, write to the pages in
        // a way that the compiler cannot remove.
        for record in &mut ring {
            std::hint::black_box(&mut *record).kind = 0;
        }
        Trace { ring, recording: true, clock, start, last_time: start.time, ..Trace::off() }
    }

    /// Like [`new`](Trace::new) with [`Clock::Virtual`], for a virtual clock that was zero when
    /// `CLOCK_MONOTONIC_RAW` was `zero_ns`, and that runs at the same rate. The times in the trace's dump can
    /// be compared with those in other dumps of the machine.
    #[must_use]
    pub fn since(records: usize, zero_ns: u64) -> Trace {
        let start = Anchor { time: 0, monotonic_ns: zero_ns };
        Trace { start, ..Trace::new(records, Clock::Virtual) }
    }

    /// Records an event of a host at the current time, without a peer. Does nothing if the trace is off or
    /// frozen.
    #[inline]
    pub fn record(&mut self, kind: EventKind, id: u64, a: u32, b: u32) {
        self.record_with(kind, id, a, b, 0, 0);
    }

    /// Records an event of a host at the current time, for the peer with this number and a packet of this
    /// priority.
    #[inline]
    pub fn record_with(&mut self, kind: EventKind, id: u64, a: u32, b: u32, peer: u16, priority: u8) {
        if self.recording {
            self.record_live(kind, id, a, b, peer, priority);
        }
    }

    /// Records an event at the current time and at this place.
    #[inline]
    pub fn record_at(&mut self, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        if self.recording {
            let now = self.now();
            self.push(now, kind, id, a, b, place);
        }
    }

    /// Not inlined, so that a trace that does not record costs only a branch per event. If inlined, this
    /// function would make up a fifth of the code around it.
    #[inline(never)]
    fn record_live(&mut self, kind: EventKind, id: u64, a: u32, b: u32, peer: u16, priority: u8) {
        let (now, place) = (self.now(), self.place(peer, priority));
        self.push(now, kind, id, a, b, place);
    }

    /// Begins a stage of the work: the next record reads the clock, and the records after it share its time,
    /// because reading the clock is most of the cost of a record. The clock is read again after every few
    /// records, so that each time is accurate to within a microsecond of work.
    ///
    /// Call this where one step of the work ends and another begins. Until the first call, each record reads
    /// the clock. Does nothing with [`Clock::Virtual`], which costs nothing to read.
    #[inline]
    pub fn begin_stage(&mut self) {
        if self.clock != Clock::Virtual {
            self.stage_left = Some(0);
        }
    }

    /// Like [`begin_stage`](Trace::begin_stage), with a time that was just read from the clock that
    /// [`Trace::ticks`] returns.
    #[inline]
    pub fn begin_stage_at(&mut self, time: u64) {
        if self.clock != Clock::Virtual {
            self.stage_time = time;
            self.stage_left = Some(STAGE_RECORDS);
        }
    }

    /// Records an event that is part of the same step as the previous record, with that record's time.
    #[inline]
    pub fn record_again(&mut self, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        self.record_stamped(self.last_time, kind, id, a, b, place);
    }

    /// Records an event with a time read earlier from the clock that [`Trace::ticks`] returns, when the trace
    /// was not available. The ring is then not sorted by time, but a dump is.
    #[inline]
    pub fn record_stamped(&mut self, time: u64, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        if self.recording {
            self.push(time, kind, id, a, b, place);
        }
    }

    // A separate function, so that a trace that does not record costs only a branch per event.
    #[inline]
    fn push(&mut self, time: u64, kind: EventKind, id: u64, a: u32, b: u32, place: Place) {
        // While recording, the length is a power of two and not zero, so the masked index is less than the
        // length.
        let index = self.written as usize & self.ring.len().wrapping_sub(1);
        self.ring[index] = Record { time, id, a, b, kind: kind as u16, place };
        self.written += 1;
        // An earlier time must not set back the time that later records share.
        self.last_time = self.last_time.max(time);
    }

    /// Sets the host's endpoint for later records. The default is the first endpoint.
    pub fn set_endpoint(&mut self, endpoint: u8) {
        self.endpoint = endpoint;
    }

    /// Returns the place of an event at this host: the number of the peer (0 for none), the priority, the
    /// endpoint and the core. The core is read at the first event of each turn ([`Trace::begin_turn`]).
    #[inline]
    #[must_use]
    pub fn place(&mut self, peer: u16, priority: u8) -> Place {
        if self.core_is_old {
            (self.core_plus_one, self.core_is_old) = (core_plus_one(), false);
        }
        Place::at_host(peer, priority, self.endpoint, self.core_plus_one)
    }

    /// Begins a turn of the calling thread: begins a stage, and marks the last known core as outdated.
    /// Reading the core for each record would increase a record's cost by a quarter. Does nothing with
    /// [`Clock::Virtual`].
    #[inline]
    pub fn begin_turn(&mut self) {
        self.core_is_old = self.clock != Clock::Virtual;
        self.begin_stage();
    }

    /// Returns the clock of a live trace, for threads without access to the trace, or `None` if the trace is
    /// off or uses [`Clock::Virtual`].
    #[must_use]
    pub fn ticks(&self) -> Option<Ticks> {
        (!self.is_off() && self.clock != Clock::Virtual).then(|| Ticks::of(self.clock, self.start))
    }

    /// Returns the latest time of any record, in ticks, or the start of the trace if there are no records.
    #[inline]
    #[must_use]
    pub fn last_time(&self) -> u64 {
        self.last_time
    }

    /// Returns the time of the next record.
    #[inline]
    fn now(&mut self) -> u64 {
        match self.stage_left {
            None => self.read_clock(),
            Some(0) => {
                self.stage_left = Some(STAGE_RECORDS - 1);
                self.stage_time = self.read_clock();
                self.stage_time
            }
            Some(left) => {
                self.stage_left = Some(left - 1);
                self.stage_time
            }
        }
    }

    #[inline]
    fn read_clock(&self) -> u64 {
        match self.clock {
            Clock::Tsc => tsc(),
            Clock::Virtual => self.virtual_now_ns,
            Clock::Monotonic => monotonic_raw_ns(),
        }
    }

    /// Sets the time of later events in a trace with [`Clock::Virtual`]; other clocks ignore it.
    #[inline]
    pub fn set_virtual_now(&mut self, now_ns: u64) {
        self.virtual_now_ns = now_ns;
    }

    /// Records [`EventKind::Freeze`] for this RPC and stops recording, so that the events before the freeze
    /// are not overwritten. `cause` becomes argument `a` of the freeze event. Does nothing if the trace is
    /// off or already frozen.
    pub fn freeze(&mut self, id: u64, cause: u32) {
        self.begin_stage();
        self.record(EventKind::Freeze, id, cause, 0);
        self.recording = false;
    }

    /// Resumes recording after a freeze, and keeps the records in the ring. Does nothing if the trace is off.
    pub fn unfreeze(&mut self) {
        self.recording = !self.ring.is_empty();
    }

    /// Returns whether the trace records events, that is, whether it is neither off nor frozen.
    #[inline]
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Returns whether the trace was created [off](Trace::off).
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns the clock in use, which may differ from the one passed to [`Trace::new`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the maximum number of records in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Returns the number of records in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.written.min(self.ring.len() as u64) as usize
    }

    /// Returns whether the ring holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Returns the number of records that were overwritten by newer ones.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.written - self.len() as u64
    }

    /// Returns the records in the order in which they were written.
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
        let (place, nowhere) = (trace.place(2, 5), trace.place(0, 0));
        trace.record_stamped(3, EventKind::AppSend, 7, 0, 0, place);
        trace.record_again(EventKind::RpcStart, 8, 0, 0, nowhere);
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
    fn records_of_a_stage_share_a_time_and_a_long_stage_has_several() {
        let mut trace = Trace::new(64, Clock::Monotonic);
        let note = |trace: &mut Trace, records: u8| {
            (0..records).for_each(|_| trace.record(EventKind::PacketReceived, 4, 0, 0));
        };
        let times = |trace: &Trace| -> Vec<u64> { trace.iter().map(|record| record.time).collect() };
        trace.begin_stage();
        note(&mut trace, STAGE_RECORDS);
        let first = times(&trace)[0];
        assert!(times(&trace).iter().all(|time| *time == first));
        // The clock counts nanoseconds. The loop waits until the time has changed.
        while monotonic_raw_ns() == first {}
        note(&mut trace, 1);
        let second = times(&trace)[usize::from(STAGE_RECORDS)];
        assert!(second > first, "the stage is too long for one time");
        while monotonic_raw_ns() == second {}
        trace.begin_stage();
        note(&mut trace, 1);
        assert!(trace.last_time() > second);
        trace.begin_stage_at(trace.last_time() + 7);
        note(&mut trace, 2);
        assert_eq!(times(&trace)[usize::from(STAGE_RECORDS) + 2..], [trace.last_time(); 2]);
    }

    #[test]
    fn virtual_time_has_no_stages() {
        let mut trace = numbered(8, 1);
        trace.begin_stage_at(99);
        trace.record(EventKind::AppSend, 1, 0, 0);
        trace.set_virtual_now(5);
        trace.record(EventKind::AppSend, 2, 0, 0);
        assert!(trace.iter().map(|record| record.time).eq([0, 0, 5]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sched_getcpu")]
    fn a_live_trace_knows_its_core_and_lends_its_clock() {
        let mut trace = Trace::new(8, Clock::Tsc);
        trace.begin_turn();
        let ticks = trace.ticks().expect("a live clock");
        let before = ticks.now();
        trace.record(EventKind::AppSend, 1, 0, 0);
        let after = ticks.now();
        let record = *trace.iter().next().unwrap();
        assert!((before..=after).contains(&record.time), "{before} {} {after}", record.time);
        assert!(record.place.core().is_some());
        let mut simulated = Trace::new(8, Clock::Virtual);
        simulated.begin_turn();
        simulated.record(EventKind::AppSend, 1, 0, 0);
        assert_eq!(simulated.iter().next().unwrap().place.core(), None);
    }
}
