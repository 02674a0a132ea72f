//! A clock for loops that have no trace.

use crate::clock::{Anchor, Clock, calibrate, monotonic_raw_ns, tsc};
use crate::os::{SystemClock, clock_ns};

/// The cheapest clock of this machine: the time stamp counter if it is invariant, or else
/// `CLOCK_MONOTONIC_RAW`.
///
/// The clock counts ticks, whose duration [`Ticks::rate`] measures. All copies represent the same clock. The
/// counters of different processors agree as closely as Linux requires for its own clock source.
///
/// ```
/// let ticks = homa_trace::Ticks::start();
/// let before = ticks.now();
/// let passed = ticks.now() - before;
/// println!("{} ns between two looks at the clock", ticks.rate().ns(passed));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    clock: Clock,
    start: Anchor,
}

impl Ticks {
    /// Chooses the clock, and starts the measurement of its rate.
    #[must_use]
    pub fn start() -> Ticks {
        let clock = Clock::Tsc.available();
        let start = if clock == Clock::Tsc {
            Anchor::of_tsc()
        } else {
            let now = monotonic_raw_ns();
            Anchor { time: now, monotonic_ns: now }
        };
        Ticks { clock, start }
    }

    /// Returns the clock of a trace that began at `start`.
    pub(crate) fn of(clock: Clock, start: Anchor) -> Ticks {
        Ticks { clock, start }
    }

    /// Returns the clock in use: [`Clock::Tsc`] or [`Clock::Monotonic`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the time in ticks. The counter is read without a fence, so loads and stores may be reordered
    /// around the read.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.clock == Clock::Tsc { tsc() } else { monotonic_raw_ns() }
    }

    /// Reads this clock and the system's real-time clock together, so that real-time timestamps taken close
    /// to the reading can be converted.
    ///
    /// Reads two of the system's clocks, with or without system calls, and this clock before and after each.
    /// An interrupted reading is repeated.
    #[must_use]
    pub fn beside_real_time(&self) -> RealTime {
        let mut best = RealTime { ticks: 0, real_ns: 0, hz: NS_PER_S, error_ticks: u64::MAX };
        for _ in 0..REAL_TIME_TRIES {
            let before = self.now();
            let real_ns = clock_ns(SystemClock::Realtime);
            let gap = self.now().saturating_sub(before);
            if gap / 2 < best.error_ticks {
                best = RealTime { ticks: before + gap / 2, real_ns, error_ticks: gap / 2, ..best };
            }
            // If the pair was interrupted, repeat it; most are not.
            if best.error_ticks <= GOOD_PAIR_TICKS {
                break;
            }
        }
        best.hz = self.rate_so_far().hz;
        best
    }

    /// Like [`Ticks::rate`], but uses the time that has passed so far, however short, and therefore never
    /// waits. After a millisecond the error is 1/10,000.
    #[must_use]
    pub fn rate_so_far(&self) -> TickRate {
        if self.clock != Clock::Tsc {
            return TickRate { hz: NS_PER_S };
        }
        // Use the best of several readings. When there was only one, a thread preempted in the middle of it
        // got such a wrong rate that times a few milliseconds in the past were off by tens of microseconds.
        let now = Anchor::within(2 * GOOD_PAIR_TICKS);
        let passed_ns = u128::from(now.monotonic_ns.saturating_sub(self.start.monotonic_ns)).max(1);
        let passed = u128::from(now.time.saturating_sub(self.start.time)).max(1);
        let hz = u64::try_from(passed * u128::from(NS_PER_S) / passed_ns).unwrap_or(NS_PER_S);
        TickRate { hz: hz.max(1) }
    }

    /// Returns the rate, measured from [`Ticks::start`] until now. The more time has passed, the more
    /// accurate the rate. Busy-waits for a few milliseconds if the time is too short for a measurement.
    #[must_use]
    pub fn rate(&self) -> TickRate {
        let hz = if self.clock == Clock::Tsc { calibrate(self.start).0 } else { NS_PER_S };
        TickRate { hz: hz.max(1) }
    }
}

const NS_PER_S: u64 = 1_000_000_000;

const REAL_TIME_TRIES: usize = 4;

/// Maximum error of an uninterrupted pair of readings, in ticks: 200 ns at 5 GHz. The error is half of the
/// time that the pair takes.
const GOOD_PAIR_TICKS: u64 = 1_000;

/// A simultaneous reading of a trace's clock and of the real-time clock. The real-time clock may be set and
/// slewed, so the pair is only useful for a short time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTime {
    ticks: u64,
    real_ns: u64,
    hz: u64,
    error_ticks: u64,
}

impl RealTime {
    /// Converts a time of the real-time clock in nanoseconds to ticks. The error is half of the time it took
    /// to read both clocks, about 50 ns, plus 1/2,000 of the distance from the reading, since this is the
    /// maximum rate at which the system slews its clock.
    #[must_use]
    pub fn ticks(&self, real_ns: u64) -> u64 {
        let distance_ns = i128::from(real_ns) - i128::from(self.real_ns);
        let distance = distance_ns * i128::from(self.hz) / i128::from(NS_PER_S);
        u64::try_from(i128::from(self.ticks) + distance).unwrap_or(0)
    }
}

/// The rate of [`Ticks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate {
    /// Ticks per second, at least 1.
    hz: u64,
}

impl TickRate {
    /// Returns the ticks per second.
    #[must_use]
    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// Converts ticks to nanoseconds, rounded down.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * u128::from(NS_PER_S) / u128::from(self.hz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Converts nanoseconds to ticks, rounded down.
    #[must_use]
    pub fn ticks(&self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.hz) / u128::from(NS_PER_S);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_are_each_others_inverse() {
        let rate = TickRate { hz: 2_500_000_000 };
        assert_eq!((rate.ns(2_500), rate.ticks(1_000)), (1_000, 2_500));
        assert_eq!(rate.ns(u64::MAX), (u128::from(u64::MAX) * 2 / 5) as u64);
        assert_eq!(TickRate { hz: u64::MAX }.ticks(u64::MAX), u64::MAX);
    }

    #[test]
    fn real_times_around_a_pair_are_converted_both_ways() {
        let pair = RealTime { ticks: 10_000, real_ns: 5_000, hz: 2_000_000_000, error_ticks: 0 };
        assert_eq!([4_000, 5_000, 6_500].map(|real_ns| pair.ticks(real_ns)), [8_000, 10_000, 13_000]);
        assert_eq!(RealTime { ticks: 5, ..pair }.ticks(0), 0);
    }

    #[test]
    fn a_real_time_between_two_looks_is_between_them() {
        let ticks = Ticks::start();
        let before = ticks.now();
        let real_ns = clock_ns(SystemClock::Realtime);
        let after = ticks.now();
        let pair = ticks.beside_real_time();
        let slack = 2 * pair.error_ticks + (after - before) + 1_000;
        let converted = pair.ticks(real_ns);
        assert!((before - slack..=after + slack).contains(&converted), "{before} {converted} {after}");
    }

    #[test]
    fn the_clock_goes_on_and_its_rate_is_that_of_the_other_clock() {
        let ticks = Ticks::start();
        let begin = (ticks.now(), monotonic_raw_ns());
        let rate = ticks.rate();
        let (passed, real) = (rate.ns(ticks.now() - begin.0), monotonic_raw_ns() - begin.1);
        // An interruption between the readings of the two clocks may be long, but it adds nearly the same
        // time to both.
        assert!(passed > 0 && real > 0 && passed < 10 * real && real < 10 * passed, "{passed} and {real} ns");
    }
}
