//! `CLOCK_MONOTONIC` for little more than a look at the time stamp counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::clock::{Clock, tsc};
use crate::os::{SystemClock, clock_ns};

/// A moment on two clocks, by one look at one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// The same moment on [`Clock::Tsc`], as [`Ticks::now`](crate::Ticks::now) would have it; `None` where the system's clock alone was
    /// asked, since the counter cannot stand in for it.
    pub ticks: Option<u64>,
}

/// `CLOCK_MONOTONIC`, read from the time stamp counter where that is the system's own clock source.
///
/// Each thread looks at both clocks side by side once a millisecond and counts ticks in between, so that a time differs from the
/// system's by half of what such a look takes (some 50 ns, and no more than 500 ticks: one that was interrupted is not used), and by
/// what the rate has changed since it was measured, over that millisecond: some nanoseconds where nobody adjusts the clock, and no more
/// than a microsecond, since where the clocks part faster than that the system is asked again. Two threads may differ by twice as much.
/// What one thread is told never goes back; what it hears of another may be that much ahead.
///
/// A machine that was suspended, or moved to another one, has a counter that does not go with its clock. A millisecond later at most
/// both are looked at again; a counter that went back is not believed at all.
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
    /// Looks, once for a process, whether the counter can stand in for the system's clock: whether it is invariant, and what the kernel
    /// itself counts, which has compared it between processors and with other clocks.
    #[must_use]
    pub fn new() -> MonotonicClock {
        static COUNTS: OnceLock<bool> = OnceLock::new();
        let counts = *COUNTS.get_or_init(|| Clock::Tsc.available() == Clock::Tsc && is_clock_source());
        MonotonicClock { counts }
    }

    /// The time. Costs a look at the counter, and once a millisecond in each thread two of them and one at the system's clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        if !self.counts {
            return Moment { ns: monotonic_ns(), ticks: None };
        }
        let ticks = tsc();
        let told = THREAD.with(|sight| sight.get().ns_at(ticks));
        told.map_or_else(look_at_both, |ns| Moment { ns, ticks: Some(ticks) })
    }
}

/// `CLOCK_MONOTONIC`, by asking the system.
fn monotonic_ns() -> u64 {
    clock_ns(SystemClock::Monotonic)
}

/// Whether the kernel makes its clocks of the counter. Where it says nothing, it may have found a reason not to.
fn is_clock_source() -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(CURRENT).is_ok_and(|source| source.trim() == "tsc")
}

thread_local! {
    static THREAD: Cell<Sight> = const { Cell::new(Sight::NONE) };
}

/// Nanoseconds a tick with [`PLACES`] binary places, of all threads; 0 while that is not known.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Never waited for: who does not get it takes the rate as it is. A child that was forked while a thread had it keeps the rate.
static RATE: Mutex<Rate> = Mutex::new(Rate::UNKNOWN);

#[cold]
fn look_at_both() -> Moment {
    let before = tsc();
    let ns = monotonic_ns();
    let after = tsc();
    let pair = Pair::new(before, ns, after);
    let rate = match (RATE.try_lock(), pair) {
        (Ok(mut rate), Some(pair)) => rate.learn(pair, &NS_PER_TICK),
        _ => NS_PER_TICK.load(Ordering::Relaxed),
    };
    THREAD.with(|sight| {
        let next = sight.get().after(pair, rate);
        sight.set(next);
        Moment { ns: ns.max(next.floor_ns), ticks: Some(after) }
    })
}

/// Binary places of a rate.
const PLACES: u32 = 32;

/// For how long a look at both clocks is good, in nanoseconds: so short that no change of the rate amounts to anything, so long that
/// the look costs nothing beside what goes on meanwhile.
const GOOD_NS: u64 = 1_000_000;

/// Ticks that a look at both clocks may take: several times what it takes where nothing comes between.
const MOST_GAP_TICKS: u64 = 1_000;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Pair {
    /// `None` where the look was interrupted, or the two looks at the counter were of processors that do not agree.
    fn new(before: u64, ns: u64, after: u64) -> Option<Pair> {
        let gap = after.wrapping_sub(before);
        (gap <= MOST_GAP_TICKS).then(|| Pair { ticks: before.wrapping_add(gap / 2), ns })
    }
}

/// What a thread last saw of both clocks.
#[derive(Clone, Copy, Debug)]
struct Sight {
    pair: Pair,
    ns_per_tick: u64,
    /// Ticks from there on for which it is good; 0: for none.
    good_ticks: u64,
    /// No time before this is told: a later one may have been.
    floor_ns: u64,
}

impl Sight {
    const NONE: Sight = Sight { pair: Pair { ticks: 0, ns: 0 }, ns_per_tick: 0, good_ticks: 0, floor_ns: 0 };

    /// The time when the counter shows this, if that is near enough to what was seen. A counter that went back is far ahead.
    #[inline]
    fn ns_at(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.pair.ticks);
        (passed < self.good_ticks).then(|| self.counted(passed).max(self.floor_ns))
    }

    #[inline]
    fn counted(&self, passed: u64) -> u64 {
        // At most a millisecond's, with the places of a rate: 52 bits.
        self.pair.ns + ((passed * self.ns_per_tick) >> PLACES)
    }

    /// What is gone by after a new look, of which there may be no pair, at a rate that may not be known.
    fn after(&self, pair: Option<Pair>, ns_per_tick: u64) -> Sight {
        // The last time that can have been told. Where the counter went back it is up to a millisecond away, which the clock then stands
        // still.
        let floor_ns = self.floor_ns.max(self.counted(self.good_ticks));
        match (pair, (GOOD_NS << PLACES).checked_div(ns_per_tick)) {
            (Some(pair), Some(good_ticks)) => Sight { pair, ns_per_tick, good_ticks, floor_ns },
            _ => Sight { floor_ns, ..Sight::NONE },
        }
    }
}

/// What is known of the rate.
#[derive(Debug)]
struct Rate {
    /// The rate is measured from the first of the two on. The second one takes its place when it is old enough.
    since: Option<(Pair, Pair)>,
}

/// The least time over which the rate is measured, in nanoseconds: two pairs, each good to some 50 ns, then make it good to a
/// 10,000th, and a time to 100 ns.
const LEAST_SPAN_NS: u64 = 1_000_000;

/// The time over which it is measured later: as old as it may be, at most twice that old while it is used.
const SPAN_NS: u64 = 500_000_000;

/// A rate that differs from the last one by more than this part of it is that of clocks which have parted.
const PARTED: u64 = 1_000;

impl Rate {
    const UNKNOWN: Rate = Rate { since: None };

    /// Takes in what somebody saw, and tells the rate, which it keeps in `known`.
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
            // Too early to tell, or another thread's look, from before.
            (Some(_), Some(_)) | (None, None) => return before,
            // One of the two went back.
            _ => 0,
        };
        // A first rate has none to be compared with: the machine may have been asleep in a long span, in which one of the two stood still.
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

    /// Of a counter with 2.5 GHz.
    const RATE_25: u64 = (2 << PLACES) / 5;

    fn pair(ticks: u64, ns: u64) -> Pair {
        Pair { ticks, ns }
    }

    fn seen(ticks: u64, ns: u64) -> Sight {
        Sight::NONE.after(Some(pair(ticks, ns)), RATE_25)
    }

    #[test]
    fn ticks_are_counted_for_a_millisecond_and_no_longer() {
        let sight = seen(1_000, 70);
        assert_eq!([1_000, 1_005, 2_000].map(|ticks| sight.ns_at(ticks)), [Some(70), Some(71), Some(469)]);
        assert_eq!(sight.ns_at(1_000 + 2_499_990), Some(70 + 999_995));
        assert_eq!(sight.ns_at(1_000 + 2_500_010), None);
        assert_eq!(Sight::NONE.ns_at(0), None);
    }

    #[test]
    fn a_counter_that_went_back_is_not_believed_and_takes_no_time_back() {
        let sight = seen(1_000_000, 5_000_000);
        assert_eq!([sight.ns_at(999_999), sight.ns_at(0)], [None; 2]);
        let after = sight.after(Some(pair(10, 5_000_100)), RATE_25);
        assert!((5_999_990..=6_000_000).contains(&after.ns_at(11).expect("it was looked at")));
    }

    #[test]
    fn a_look_that_shows_an_earlier_time_takes_none_back() {
        // The rate was taken for 20 ppm too high.
        let sight = Sight::NONE.after(Some(pair(0, 0)), RATE_25 + RATE_25 / 50_000);
        let last =
            (2_490_000..2_500_000).rev().find_map(|ticks| sight.ns_at(ticks)).expect("good until then");
        let after = sight.after(Some(pair(2_499_960, 999_984)), RATE_25);
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
        let sight = seen(1_000, 70).after(None, RATE_25);
        assert!(sight.ns_at(1_000).is_none() && sight.floor_ns > 70);
    }

    #[test]
    fn the_rate_is_that_of_the_last_second_and_forgotten_where_the_clocks_part() {
        let (mut rate, known) = (Rate::UNKNOWN, AtomicU64::new(0));
        let ticks_of = |ns: u64| ns * 5 / 2;
        assert_eq!(rate.learn(pair(0, 0), &known), 0);
        assert_eq!(rate.learn(pair(ticks_of(900_000), 900_000), &known), 0, "too early");
        assert_eq!(rate.learn(pair(ticks_of(1_000_000), 1_000_000), &known), RATE_25);
        // For long it runs 100 ppm faster, and none of what was before counts any more.
        let mut at = (ticks_of(1_000_000), 1_000_000);
        for _ in 0..30 {
            at = (at.0 + ticks_of(100_010_000), at.1 + 100_000_000);
            rate.learn(pair(at.0, at.1), &known);
        }
        let wanted = RATE_25 as f64 / 1.000_1;
        assert!((known.load(Ordering::Relaxed) as f64 - wanted).abs() < 2.0);
        // Somebody else's look, from before all of this.
        assert_eq!(rate.learn(pair(1, 1), &known), known.load(Ordering::Relaxed));
        // Asleep for a minute, in which the one clock went on.
        assert_eq!(rate.learn(pair(at.0 + ticks_of(60_000_000_000), at.1 + 50_000_000), &known), 0);
        at = (at.0 + ticks_of(60_001_000_000), at.1 + 51_000_000);
        assert_eq!(rate.learn(pair(at.0, at.1), &known), RATE_25);
        assert_eq!(rate.learn(pair(7, at.1 + 1), &known), 0, "the counter began anew");
        // Asleep again before a rate was known, for 8 hours of which the system's clock has a minute.
        at = (ticks_of(28_860_000_000_000), at.1 + 60_000_000_000);
        assert_eq!(rate.learn(pair(at.0, at.1), &known), 0);
        assert_eq!(rate.learn(pair(at.0 + ticks_of(1_000_000), at.1 + 1_000_000), &known), RATE_25);
    }

    #[test]
    fn every_thread_has_the_systems_clock_and_none_sees_it_go_back() {
        // As far as two threads may be apart, and a machine that adjusts its clock.
        const SLACK_NS: u64 = 5_000;
        let clock = MonotonicClock::new();
        let watch = || {
            let mut last = 0;
            // Several milliseconds, in each of which a thread looks at the system's clock anew.
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
        // A clock without a counter behind it.
        let asked = MonotonicClock { counts: false };
        let (early, moment, late) = (monotonic_ns(), asked.now(), monotonic_ns());
        assert!((early..=late).contains(&moment.ns) && moment.ticks.is_none());
    }
}
