//! The clocks of the operating system and the core of the calling thread. A target without an operating
//! system, such as wasm32-unknown-unknown, has neither; a trace on such a target uses virtual time.

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemClock {
    Monotonic,
    MonotonicCoarse,
    MonotonicRaw,
    Realtime,
    RealtimeCoarse,
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{HAS_CLOCKS, clock_ns, core_plus_one, time_of_day_ns};
#[cfg(not(target_os = "linux"))]
pub(crate) use none::{HAS_CLOCKS, clock_ns, core_plus_one, time_of_day_ns};

#[cfg(target_os = "linux")]
mod linux {
    use super::SystemClock;

    pub(crate) const HAS_CLOCKS: bool = true;

    /// Returns the time of one of the system's clocks, in nanoseconds. Under Miri, `CLOCK_MONOTONIC` replaces
    /// `CLOCK_MONOTONIC_RAW`.
    pub(crate) fn clock_ns(clock: SystemClock) -> u64 {
        let clock = match clock {
            SystemClock::Monotonic => libc::CLOCK_MONOTONIC,
            SystemClock::MonotonicCoarse => libc::CLOCK_MONOTONIC_COARSE,
            SystemClock::MonotonicRaw if cfg!(miri) => libc::CLOCK_MONOTONIC,
            SystemClock::MonotonicRaw => libc::CLOCK_MONOTONIC_RAW,
            SystemClock::Realtime => libc::CLOCK_REALTIME,
            SystemClock::RealtimeCoarse => libc::CLOCK_REALTIME_COARSE,
        };
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a timespec that outlives the call; the call writes nothing else.
        let result = unsafe { libc::clock_gettime(clock, &mut now) };
        // Linux has had all of these clocks since 2.6.32, and the pointer is valid, so no other error is
        // possible.
        assert_eq!(result, 0, "clock_gettime({clock}) failed");
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// Returns the time of day from `gettimeofday`, in nanoseconds.
    pub(crate) fn time_of_day_ns() -> u64 {
        let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: `now` is a timeval that outlives the call; no time zone is requested.
        unsafe { libc::gettimeofday(&mut now, std::ptr::null_mut()) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_usec as u64 * 1_000
    }

    /// Returns one more than the core on which the caller runs, or 0 if the system does not report the core.
    #[inline]
    pub(crate) fn core_plus_one() -> u16 {
        // SAFETY: the call has no arguments and accesses no memory of ours.
        let core = unsafe { libc::sched_getcpu() };
        u16::try_from(core + 1).unwrap_or(0)
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use super::SystemClock;

    pub(crate) const HAS_CLOCKS: bool = false;

    pub(crate) fn clock_ns(_: SystemClock) -> u64 {
        0
    }

    pub(crate) fn time_of_day_ns() -> u64 {
        0
    }

    pub(crate) fn core_plus_one() -> u16 {
        0
    }
}
