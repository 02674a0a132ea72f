//! A clock for whoever reads it in a loop of its own, without a trace.

use crate::clock::{Anchor, Clock, calibrate, monotonic_raw_ns, tsc};

/// A clock that costs as little as this machine has to offer: the time stamp counter where it is invariant, else
/// `CLOCK_MONOTONIC_RAW`.
///
/// It counts in ticks, whose worth [`Ticks::rate`] measures. Its copies are the same clock. Between processors the counter is as
/// equal as Linux finds it to be when it takes it for its own clock source.
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
    /// Chooses the clock. Its rate is measured from here on.
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

    /// The clock of a trace that began at `start`.
    pub(crate) fn of(clock: Clock, start: Anchor) -> Ticks {
        Ticks { clock, start }
    }

    /// Which clock it is: [`Clock::Tsc`] or [`Clock::Monotonic`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The time in ticks. Where the clock is the counter, it is read without a fence: loads and stores around it may be done on
    /// either side.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.clock == Clock::Tsc { tsc() } else { monotonic_raw_ns() }
    }

    /// What a tick is worth, measured from [`Ticks::start`] to now: the longer that is, the better. Busy-waits some milliseconds
    /// where it is too short to measure anything.
    #[must_use]
    pub fn rate(&self) -> TickRate {
        let hz = if self.clock == Clock::Tsc { calibrate(self.start).0 } else { NS_PER_S };
        TickRate { hz: hz.max(1) }
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// What a tick of [`Ticks`] is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate {
    /// Ticks per second, at least 1.
    hz: u64,
}

impl TickRate {
    /// Ticks per second.
    #[must_use]
    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// This many ticks in nanoseconds, rounded down.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * u128::from(NS_PER_S) / u128::from(self.hz);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// This many nanoseconds in ticks, rounded down.
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
    fn the_clock_goes_on_and_its_rate_is_that_of_the_other_clock() {
        let ticks = Ticks::start();
        let begin = (ticks.now(), monotonic_raw_ns());
        let rate = ticks.rate();
        let (passed, real) = (rate.ns(ticks.now() - begin.0), monotonic_raw_ns() - begin.1);
        // An interruption between the reads of the two clocks may be long, but it adds to neither more than to the other by much.
        assert!(passed > 0 && real > 0 && passed < 10 * real && real < 10 * passed, "{passed} and {real} ns");
    }
}
