//! `CLOCK_MONOTONIC`, at little more than the cost of reading the time stamp counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::clock::{Clock, tsc};
use crate::os::{SystemClock, clock_ns};

/// A time on two clocks, derived from reading one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// The same time on [`Clock::Tsc`], as from [`Ticks::now`](crate::Ticks::now). `None` if the counter
    /// cannot replace the system's clock, in which case the time was read from the system.
    pub ticks: Option<u64>,
}

/// `CLOCK_MONOTONIC`, derived from the time stamp counter if the counter is the system's own clock source.
///
/// Each thread reads both clocks together once per millisecond and counts ticks in between. A time therefore
/// differs from the system's time for two reasons. The first is the error of the reading: half of the time it
/// took to read both clocks, or about 50 ns. It is at most 500 ticks, because interrupted readings are
/// discarded. The second is that the rate may have changed since it was measured, less than a millisecond
/// ago. This causes a few nanoseconds of error if the clock is not being adjusted. The error is at most a
/// microsecond, because the system's clock is read instead if the two clocks diverge faster.
///
/// The times of two threads may differ by twice as much. The times that one thread gets never decrease, but a
/// time from another thread may be ahead by that difference.
///
/// After a suspension, or a migration to another machine, the counter no longer matches the system's clock.
/// At most a millisecond later, both clocks are read again. A counter that has gone back is not used at all.
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
    /// Checks, once per process, whether the counter can replace the system's clock. The counter must be
    /// invariant. It must also be the kernel's own clock source, because the kernel has checked that its
    /// clock source agrees between processors and with other clocks.
    #[must_use]
    pub fn new() -> MonotonicClock {
        static COUNTS: OnceLock<bool> = OnceLock::new();
        let counts = *COUNTS.get_or_init(|| Clock::Tsc.available() == Clock::Tsc && is_clock_source());
        MonotonicClock { counts }
    }

    /// Returns the time, which is derived from the counter. Once per millisecond, each thread also reads the
    /// counter two more times and the system's clock once.
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

/// Returns whether the counter is the kernel's clock source. If the kernel does not use it, it may have a
/// reason not to.
fn is_clock_source() -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(CURRENT).is_ok_and(|source| source.trim() == "tsc")
}

thread_local! {
    static THREAD: Cell<Reading> = const { Cell::new(Reading::NONE) };
}

/// Nanoseconds per tick as a fixed-point number with [`PLACES`] binary places, for all threads; 0 while
/// unknown.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// No thread ever waits for this lock: a thread that does not get it uses the current rate. If a process
/// forks while a thread holds the lock, the rate never changes in the child.
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

/// Number of binary places of a rate.
const PLACES: u32 = 32;

/// Time in nanoseconds for which a reading of both clocks is valid. It is short enough to make changes of the
/// rate negligible, and long enough to make the cost of the readings negligible.
const GOOD_NS: u64 = 1_000_000;

/// Maximum duration in ticks of reading both clocks: several times longer than an uninterrupted reading
/// takes.
const MOST_GAP_TICKS: u64 = 1_000;

/// The values of both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Pair {
    /// Returns `None` if the reading was interrupted, or if its two counter values come from processors whose
    /// counters disagree.
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
    /// Number of ticks for which the reading is valid; 0 if it is invalid.
    good_ticks: u64,
    /// Never return a time below this: a later one may already have been handed out.
    floor_ns: u64,
}

impl Reading {
    const NONE: Reading =
        Reading { pair: Pair { ticks: 0, ns: 0 }, ns_per_tick: 0, good_ticks: 0, floor_ns: 0 };

    /// Returns the time at this value of the counter, if the reading is valid for it. A counter that has gone
    /// back is treated as if it were far ahead.
    #[inline]
    fn ns_at(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.pair.ticks);
        (passed < self.good_ticks).then(|| self.counted(passed).max(self.floor_ns))
    }

    #[inline]
    fn counted(&self, passed: u64) -> u64 {
        // The product has at most 52 bits: a millisecond in nanoseconds, plus the binary places of a rate.
        self.pair.ns + ((passed * self.ns_per_tick) >> PLACES)
    }

    /// Returns the state after a new reading. The reading may lack a pair, and the rate may be unknown.
    fn after(&self, pair: Option<Pair>, ns_per_tick: u64) -> Reading {
        // This is the latest time that may have been returned. If the counter has gone back, this time is up
        // to a millisecond ahead, and the clock stands still until then.
        let floor_ns = self.floor_ns.max(self.counted(self.good_ticks));
        match (pair, (GOOD_NS << PLACES).checked_div(ns_per_tick)) {
            (Some(pair), Some(good_ticks)) => Reading { pair, ns_per_tick, good_ticks, floor_ns },
            _ => Reading { floor_ns, ..Reading::NONE },
        }
    }
}

/// Measures the rate.
#[derive(Debug)]
struct Rate {
    /// Two pairs of readings. The rate is measured from the first one; the second one replaces it when old
    /// enough.
    since: Option<(Pair, Pair)>,
}

/// Minimum time over which the rate is measured, in nanoseconds. Two pairs, each with an error of about 50
/// ns, then limit the error of the rate to 1/10,000, and the error of a time to 100 ns.
const LEAST_SPAN_NS: u64 = 1_000_000;

/// Age, in nanoseconds, at which the second pair replaces the first. The measurement of the rate spans at
/// most twice this time.
const SPAN_NS: u64 = 500_000_000;

/// Reciprocal of the largest plausible relative change of the rate. If the rate differs from the previous one
/// by more, the two clocks have diverged.
const PARTED: u64 = 1_000;

impl Rate {
    const UNKNOWN: Rate = Rate { since: None };

    /// Updates the rate from a new pair, stores it in `known`, and returns it.
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
            // It is too early to measure, or the pair is an older reading from another thread.
            (Some(_), Some(_)) | (None, None) => return before,
            // One of the two clocks has gone back.
            _ => 0,
        };
        // A first rate cannot be compared with an earlier one. If the span is long, the machine may have been
        // suspended, during which one of the two clocks stood still.
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
        // The rate that the reading assumes is 20 ppm too high.
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
        // The rate is 100 ppm higher for so long that earlier pairs are no longer used.
        let mut at = (ticks_of(1_000_000), 1_000_000);
        for _ in 0..30 {
            at = (at.0 + ticks_of(100_010_000), at.1 + 100_000_000);
            rate.learn(pair(at.0, at.1), &known);
        }
        let wanted = RATE_25 as f64 / 1.000_1;
        assert!((known.load(Ordering::Relaxed) as f64 - wanted).abs() < 2.0);
        // An older reading by another thread.
        assert_eq!(rate.learn(pair(1, 1), &known), known.load(Ordering::Relaxed));
        // The machine is suspended for a minute, during which only one clock runs.
        assert_eq!(rate.learn(pair(at.0 + ticks_of(60_000_000_000), at.1 + 50_000_000), &known), 0);
        at = (at.0 + ticks_of(60_001_000_000), at.1 + 51_000_000);
        assert_eq!(rate.learn(pair(at.0, at.1), &known), RATE_25);
        assert_eq!(rate.learn(pair(7, at.1 + 1), &known), 0, "the counter began anew");
        // The machine is suspended for 8 hours before a rate is known. The system's clock advances by a
        // minute.
        at = (ticks_of(28_860_000_000_000), at.1 + 60_000_000_000);
        assert_eq!(rate.learn(pair(at.0, at.1), &known), 0);
        assert_eq!(rate.learn(pair(at.0 + ticks_of(1_000_000), at.1 + 1_000_000), &known), RATE_25);
    }

    #[test]
    fn every_thread_has_the_systems_clock_and_none_sees_it_go_back() {
        // Maximum difference between two threads, and tolerance for a machine that adjusts its clock.
        const SLACK_NS: u64 = 5_000;
        let clock = MonotonicClock::new();
        let watch = || {
            let mut last = 0;
            // The loop takes several milliseconds. In each of them, the thread reads the system's clock
            // again.
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
