//! The clocks of this machine that a program can read, so that they can be compared.

use crate::clock::{Clock, monotonic_raw_ns, tsc};
use crate::os::{SystemClock, clock_ns, time_of_day_ns};

/// A clock that a program can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The processor's time stamp counter, in ticks.
    Tsc,
    /// `CLOCK_MONOTONIC_RAW`: the counter as calibrated by the kernel, without adjustments.
    MonotonicRaw,
    /// `CLOCK_MONOTONIC`: never set, but sped up and slowed down by time synchronization.
    Monotonic,
    /// `CLOCK_REALTIME`: time of day, set and adjusted.
    Realtime,
    /// `gettimeofday`: the time of day in whole microseconds.
    TimeOfDay,
    /// `CLOCK_MONOTONIC_COARSE`: `CLOCK_MONOTONIC` at the last timer tick.
    MonotonicCoarse,
    /// `CLOCK_REALTIME_COARSE`: `CLOCK_REALTIME` at the last timer tick.
    RealtimeCoarse,
}

impl Source {
    /// All sources.
    pub const ALL: [Source; 7] = [
        Source::Tsc,
        Source::MonotonicRaw,
        Source::Monotonic,
        Source::Realtime,
        Source::TimeOfDay,
        Source::MonotonicCoarse,
        Source::RealtimeCoarse,
    ];

    /// Returns the usual name of the source in programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Source::Tsc => "TSC",
            Source::MonotonicRaw => "CLOCK_MONOTONIC_RAW",
            Source::Monotonic => "CLOCK_MONOTONIC",
            Source::Realtime => "CLOCK_REALTIME",
            Source::TimeOfDay => "gettimeofday",
            Source::MonotonicCoarse => "CLOCK_MONOTONIC_COARSE",
            Source::RealtimeCoarse => "CLOCK_REALTIME_COARSE",
        }
    }

    /// Returns whether this machine has the source. The time stamp counter must be invariant.
    #[must_use]
    pub fn is_available(self) -> bool {
        self != Source::Tsc || Clock::Tsc.available() == Clock::Tsc
    }

    /// Returns the current value of the source: nanoseconds, or ticks of the counter.
    #[inline]
    #[must_use]
    pub fn now(self) -> u64 {
        match self {
            Source::Tsc => tsc(),
            Source::MonotonicRaw => monotonic_raw_ns(),
            Source::Monotonic => clock_ns(SystemClock::Monotonic),
            Source::Realtime => clock_ns(SystemClock::Realtime),
            Source::TimeOfDay => time_of_day_ns(),
            Source::MonotonicCoarse => clock_ns(SystemClock::MonotonicCoarse),
            Source::RealtimeCoarse => clock_ns(SystemClock::RealtimeCoarse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_goes_on_and_those_of_one_kind_agree() {
        for source in Source::ALL {
            let before = source.now();
            assert!(before > 0 && (source.now() >= before || source == Source::Realtime), "{source:?}");
        }
        // Only this source is in whole microseconds.
        assert_eq!(Source::TimeOfDay.now() % 1_000, 0);
        for (coarse, fine) in [
            (Source::MonotonicCoarse, Source::Monotonic),
            (Source::RealtimeCoarse, Source::Realtime),
            (Source::TimeOfDay, Source::Realtime),
        ] {
            let (early, late) = (coarse.now(), fine.now());
            assert!(early <= late && late - early < 60_000_000_000, "{coarse:?}: {early} {late}");
        }
    }
}
