//! `CLOCK_MONOTONIC` for little more than the cost of reading the time stamp counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::clock::{Clock, tsc};
use crate::os::{SystemClock, clock_ns};

/// A time on two clocks, from one reading of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// The same time on [`Clock::Tsc`], like [`Ticks::now`](crate::Ticks::now). `None` if the time is from
    /// the system's clock, because the counter cannot replace it.
    pub ticks: Option<u64>,
}

/// `CLOCK_MONOTONIC`, read from the time stamp counter if that is the system's own clock source.
///
/// Each thread reads both clocks together once per millisecond and counts ticks in between. A time therefore
/// differs from the system's for two reasons. The first is half of the time of reading both clocks: some 50
/// ns, and at most 500 ticks, because an interrupted reading is not used. The second is the change of the
/// rate since it was measured, over that millisecond: some nanoseconds if the clock is not adjusted. It is at
/// most a microsecond, because the system's clock is read instead if the two diverge faster.
///
/// Two threads may differ by twice as much. The times of one thread never decrease; a time from another
/// thread may be ahead by that difference.
///
/// After a suspension, or a migration to another machine, the counter no longer matches the system's clock.
/// At most a millisecond later both are read again; a counter that went back is not used at all.
///
/// ```
/// let clock = homa_trace::MonotonicClock::new();
/// let before = clock.now();
/// assert!(clock.now().ns >= before.ns);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    counts: bool,
}

impl Default for MonotonicClock {
    fn default() -> MonotonicClock {
        MonotonicClock::new()
    }
}

impl MonotonicClock {
    /// Checks, once per process, whether the counter can replace the system's clock. It must be invariant and
    /// the kernel's own clock source, because the kernel has compared it between processors and with other
    /// clocks.
    #[must_use]
    pub fn new() -> MonotonicClock {
        static COUNTS: OnceLock<bool> = OnceLock::new();
        let counts = *COUNTS.get_or_init(|| Clock::Tsc.available() == Clock::Tsc && is_clock_source());
        MonotonicClock { counts }
    }

    /// The time. Reads the counter, and once per millisecond in each thread the counter twice and the
    /// system's clock once.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        if !self.counts {
            return Moment { ns: monotonic_ns(), ticks: None };
        }
        let ticks = tsc();
        let told = THREAD.with(|reading| reading.get().ns_at(ticks));
        told.map_or_else(read_clock_and_ticks, |ns| Moment { ns, ticks: Some(ticks) })
    }
}

/// `CLOCK_MONOTONIC`, read from the system.
fn monotonic_ns() -> u64 {
    clock_ns(SystemClock::Monotonic)
}

/// Whether the counter is the kernel's clock source. If the kernel does not report it, it may have a reason
/// not to use it.
fn is_clock_source() -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(CURRENT).is_ok_and(|source| source.trim() == "tsc")
}

thread_local! {
    static THREAD: Cell<Reading> = const { Cell::new(Reading::NONE) };
}

/// Nanoseconds per tick with [`PLACES`] binary places, for all threads; 0 while unknown.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Threads never wait for this lock: a thread that does not get it uses the current rate. A child forked
/// while a thread held the lock keeps the rate.
static RATE: Mutex<Rate> = Mutex::new(Rate::UNKNOWN);

#[cold]
fn read_clock_and_ticks() -> Moment {
    let before = tsc();
    let ns = monotonic_ns();
    let after = tsc();
    let pair = Pair::new(before, ns, after);
    let rate = match (RATE.try_lock(), pair) {
        (Ok(mut rate), Some(pair)) => rate.learn(pair, &NS_PER_TICK),
        _ => NS_PER_TICK.load(Ordering::Relaxed),
    };
    THREAD.with(|reading| {
        let next = reading.get().after(pair, rate);
        reading.set(next);
        Moment { ns: ns.max(next.floor_ns), ticks: Some(after) }
    })
}

/// Binary places of a rate.
const PLACES: u32 = 32;

/// Validity of a reading of both clocks, in nanoseconds. It is so short that a change of the rate does not
/// matter, and so long that the cost of a reading does not matter.
const GOOD_NS: u64 = 1_000_000;

/// Maximum ticks of a reading of both clocks: several times the duration of an uninterrupted one.
const MOST_GAP_TICKS: u64 = 1_000;

/// Both clocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Pair {
    /// `None` if the reading was interrupted, or if its two counter values are from processors that disagree.
    fn new(before: u64, ns: u64, after: u64) -> Option<Pair> {
        let gap = after.wrapping_sub(before);
        (gap <= MOST_GAP_TICKS).then(|| Pair { ticks: before.wrapping_add(gap / 2), ns })
    }
}

/// A thread's last reading of both clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    pair: Pair,
    ns_per_tick: u64,
    /// Ticks for which the reading is valid; 0 if it is not.
    good_ticks: u64,
    /// Never return a time below this: a later one may already have been handed out.
    floor_ns: u64,
}

impl Reading {
    const NONE: Reading =
        Reading { pair: Pair { ticks: 0, ns: 0 }, ns_per_tick: 0, good_ticks: 0, floor_ns: 0 };

    /// The time at this value of the counter, if the reading is valid for it. A counter that went back counts
    /// as far ahead.
    #[inline]
    fn ns_at(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.pair.ticks);
        (passed < self.good_ticks).then(|| self.counted(passed).max(self.floor_ns))
    }

    #[inline]
    fn counted(&self, passed: u64) -> u64 {
        // The product has at most 52 bits: nanoseconds of a millisecond with the places of a rate.
        self.pair.ns + ((passed * self.ns_per_tick) >> PLACES)
    }

    /// The state after a new reading, which may have no pair, at a rate that may be unknown.
    fn after(&self, pair: Option<Pair>, ns_per_tick: u64) -> Reading {
        // The last time that may have been returned. If the counter went back, this is up to a millisecond
        // ahead, and the clock stands still for as long.
        let floor_ns = self.floor_ns.max(self.counted(self.good_ticks));
        match (pair, (GOOD_NS << PLACES).checked_div(ns_per_tick)) {
            (Some(pair), Some(good_ticks)) => Reading { pair, ns_per_tick, good_ticks, floor_ns },
            _ => Reading { floor_ns, ..Reading::NONE },
        }
    }
}

/// The measurement of the rate.
#[derive(Debug)]
struct Rate {
    /// The rate is measured since the first pair. The second pair replaces the first when it is old enough.
    since: Option<(Pair, Pair)>,
}

/// Minimum time over which the rate is measured, in nanoseconds. Two pairs, each with an error of some 50 ns,
/// then limit its error to a 10,000th, and that of a time to 100 ns.
const LEAST_SPAN_NS: u64 = 1_000_000;

/// Age of the second pair at which it replaces the first, in nanoseconds. The measurement of the rate spans
/// at most twice this time.
const SPAN_NS: u64 = 500_000_000;

/// Divisor of the largest plausible change of the rate: if a rate differs from the last one by more than this
/// fraction, the two clocks have diverged.
const PARTED: u64 = 1_000;

impl Rate {
    const UNKNOWN: Rate = Rate { since: None };

    /// Updates the rate by a new pair, stores it in `known` and returns it.
    fn learn(&mut self, pair: Pair, known: &AtomicU64) -> u64 {
        let before = known.load(Ordering::Relaxed);
        let Some((first, second)) = self.since else {
            self.since = Some((pair, pair));
            return before;
        };
        let rate = match (pair.ticks.checked_sub(first.ticks), pair.ns.checked_sub(first.ns)) {
            (Some(ticks @ 1..), Some(ns @ LEAST_SPAN_NS..)) => {
                u64::try_from((u128::from(ns) << PLACES) / u128::from(ticks)).unwrap_or(0)
            }
            // Too early to measure, or an older reading of another thread.
            (Some(_), Some(_)) | (None, None) => return before,
            // One of the two clocks went back.
            _ => 0,
        };
        // There is no rate to compare a first rate with. In a long span the machine may have been suspended,
        // while one of the two clocks stood still.
        let is_doubtful = before == 0 && pair.ns.saturating_sub(first.ns) > 2 * SPAN_NS;
        if rate == 0 || is_doubtful || before != 0 && rate.abs_diff(before) > before / PARTED {
            self.since = Some((pair, pair));
            known.store(0, Ordering::Relaxed);
            return 0;
        }
        if pair.ns.saturating_sub(second.ns) >= SPAN_NS {
            self.since = Some((second, pair));
        }
        known.store(rate, Ordering::Relaxed);
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate of a counter of 2.5 GHz.
    const RATE_25: u64 = (2 << PLACES) / 5;

    fn pair(ticks: u64, ns: u64) -> Pair {
        Pair { ticks, ns }
    }

    fn seen(ticks: u64, ns: u64) -> Reading {
        Reading::NONE.after(Some(pair(ticks, ns)), RATE_25)
    }

    #[test]
    fn ticks_are_counted_for_a_millisecond_and_no_longer() {
        let reading = seen(1_000, 70);
        assert_eq!([1_000, 1_005, 2_000].map(|ticks| reading.ns_at(ticks)), [Some(70), Some(71), Some(469)]);
        assert_eq!(reading.ns_at(1_000 + 2_499_990), Some(70 + 999_995));
        assert_eq!(reading.ns_at(1_000 + 2_500_010), None);
        assert_eq!(Reading::NONE.ns_at(0), None);
    }

    #[test]
    fn a_counter_that_went_back_is_not_believed_and_takes_no_time_back() {
        let reading = seen(1_000_000, 5_000_000);
        assert_eq!([reading.ns_at(999_999), reading.ns_at(0)], [None; 2]);
        let after = reading.after(Some(pair(10, 5_000_100)), RATE_25);
        assert!((5_999_990..=6_000_000).contains(&after.ns_at(11).expect("it was looked at")));
    }

    #[test]
    fn a_look_that_shows_an_earlier_time_takes_none_back() {
        // The assumed rate is 20 ppm too high.
        let reading = Reading::NONE.after(Some(pair(0, 0)), RATE_25 + RATE_25 / 50_000);
        let last =
            (2_490_000..2_500_000).rev().find_map(|ticks| reading.ns_at(ticks)).expect("good until then");
        let after = reading.after(Some(pair(2_499_960, 999_984)), RATE_25);
        assert_eq!(after.counted(0), 999_984);
        let told = [2_499_960, 2_500_000, 2_501_000].map(|ticks| after.ns_at(ticks).expect("good"));
        assert!(told[0] >= last && told.is_sorted(), "{last} {told:?}");
        assert_eq!(told[2], 999_984 + 415);
    }

    #[test]
    fn a_look_that_was_interrupted_is_not_used() {
        assert_eq!(Pair::new(100, 7, 300), Some(pair(200, 7)));
        assert_eq!(Pair::new(100, 7, 100 + MOST_GAP_TICKS + 1), None);
        assert_eq!(Pair::new(100, 7, 99), None);
        let reading = seen(1_000, 70).after(None, RATE_25);
        assert!(reading.ns_at(1_000).is_none() && reading.floor_ns > 70);
    }

    #[test]
    fn the_rate_is_that_of_the_last_second_and_forgotten_where_the_clocks_part() {
        let (mut rate, known) = (Rate::UNKNOWN, AtomicU64::new(0));
        let ticks_of = |ns: u64| ns * 5 / 2;
        assert_eq!(rate.learn(pair(0, 0), &known), 0);
        assert_eq!(rate.learn(pair(ticks_of(900_000), 900_000), &known), 0, "too early");
        assert_eq!(rate.learn(pair(ticks_of(1_000_000), 1_000_000), &known), RATE_25);
        // The rate is 100 ppm higher for so long that earlier pairs no longer count.
        let mut at = (ticks_of(1_000_000), 1_000_000);
        for _ in 0..30 {
            at = (at.0 + ticks_of(100_010_000), at.1 + 100_000_000);
            rate.learn(pair(at.0, at.1), &known);
        }
        let wanted = RATE_25 as f64 / 1.000_1;
        assert!((known.load(Ordering::Relaxed) as f64 - wanted).abs() < 2.0);
        // A reading of another thread from before.
        assert_eq!(rate.learn(pair(1, 1), &known), known.load(Ordering::Relaxed));
        // The machine is suspended for a minute, in which one clock continues.
        assert_eq!(rate.learn(pair(at.0 + ticks_of(60_000_000_000), at.1 + 50_000_000), &known), 0);
        at = (at.0 + ticks_of(60_001_000_000), at.1 + 51_000_000);
        assert_eq!(rate.learn(pair(at.0, at.1), &known), RATE_25);
        assert_eq!(rate.learn(pair(7, at.1 + 1), &known), 0, "the counter began anew");
        // Suspended again before a rate is known, for 8 hours; the system's clock advances by a minute.
        at = (ticks_of(28_860_000_000_000), at.1 + 60_000_000_000);
        assert_eq!(rate.learn(pair(at.0, at.1), &known), 0);
        assert_eq!(rate.learn(pair(at.0 + ticks_of(1_000_000), at.1 + 1_000_000), &known), RATE_25);
    }

    #[test]
    fn every_thread_has_the_systems_clock_and_none_sees_it_go_back() {
        // Difference allowed between two threads, and for a machine that adjusts its clock.
        const SLACK_NS: u64 = 5_000;
        let clock = MonotonicClock::new();
        let watch = || {
            let mut last = 0;
            // Several milliseconds, in each of which a thread reads the system's clock again.
            for _ in 0..100_000 {
                let early = monotonic_ns();
                let Moment { ns, ticks } = clock.now();
                let late = monotonic_ns();
                assert!(
                    (early.saturating_sub(SLACK_NS)..=late + SLACK_NS).contains(&ns),
                    "{early} {ns} {late}"
                );
                assert!(ns >= last, "{last} {ns}");
                assert_eq!(ticks.is_some(), clock.counts);
                last = ns;
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(watch))));
        // A clock without a usable counter.
        let asked = MonotonicClock { counts: false };
        let (early, moment, late) = (monotonic_ns(), asked.now(), monotonic_ns());
        assert!((early..=late).contains(&moment.ns) && moment.ticks.is_none());
    }
}
