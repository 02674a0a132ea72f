//! The clocks from which records get their times.

use crate::os::{HAS_CLOCKS, SystemClock, clock_ns};

/// A clock that can be requested for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Clock {
    /// The processor's time stamp counter, which takes a few nanoseconds to read. The trace uses
    /// [`Clock::Monotonic`] instead if the processor does not declare the counter invariant (constant rate,
    /// never stopped), and on processors other than x86-64.
    Tsc = 0,
    /// `CLOCK_MONOTONIC_RAW` in nanoseconds. Reading it takes 20-30 ns, so events cost more than with
    /// [`Clock::Tsc`].
    Monotonic = 1,
    /// The time last passed to [`Trace::set_virtual_now`](crate::Trace::set_virtual_now), in nanoseconds;
    /// used for simulated time.
    Virtual = 2,
}

impl Clock {
    pub(crate) const fn from_u16(value: u16) -> Option<Clock> {
        match value {
            0 => Some(Clock::Tsc),
            1 => Some(Clock::Monotonic),
            2 => Some(Clock::Virtual),
            _ => None,
        }
    }

    /// Returns the clock that a trace on this machine uses if this clock is requested.
    #[must_use]
    pub fn available(self) -> Clock {
        match self {
            _ if !HAS_CLOCKS => Clock::Virtual,
            Clock::Tsc if !tsc_is_invariant() => Clock::Monotonic,
            clock => clock,
        }
    }
}

/// `CLOCK_MONOTONIC_RAW`, in nanoseconds.
pub(crate) fn monotonic_raw_ns() -> u64 {
    clock_ns(SystemClock::MonotonicRaw)
}

/// Returns the time stamp counter. The value is meaningful only if [`tsc_is_invariant`] returns true.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn tsc() -> u64 {
    // Deliberately not serialized: a fence would cost more than the event, and a trace does not need accuracy
    // to a few cycles. SAFETY: RDTSC has no preconditions beyond x86-64; Linux leaves it enabled for user
    // space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
pub(crate) fn tsc() -> u64 {
    monotonic_raw_ns()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const EXTENDED_MAX: u32 = 0x8000_0000;
    const ADVANCED_POWER: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    #[allow(
        unused_unsafe,
        reason = "later toolchains than the oldest supported one have made CPUID a safe function"
    )]
    // SAFETY: every x86-64 processor has CPUID, and the leaf is read only if the processor reports that the
    // leaf exists.
    unsafe {
        __cpuid(EXTENDED_MAX).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & INVARIANT_TSC != 0
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn tsc_is_invariant() -> bool {
    false
}

/// A simultaneous reading of two clocks: `CLOCK_MONOTONIC_RAW` and the clock of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// The time in ticks of the trace's clock.
    pub(crate) time: u64,
    pub(crate) monotonic_ns: u64,
}

/// Maximum time between the two readings of an anchor, in nanoseconds: half of the time that the reads take,
/// unless all attempts were interrupted.
pub(crate) const ANCHOR_ERROR_NS: u64 = 50;

impl Anchor {
    /// Reads both clocks as close together as possible. Keeps the fastest of a few attempts, so that an
    /// interruption between the two reads does not ruin the pair.
    pub(crate) fn of_tsc() -> Anchor {
        Anchor::within(0)
    }

    /// Like [`Anchor::of_tsc`], but accepts the first attempt that takes at most `ticks`, so that in most
    /// cases only one attempt is needed.
    pub(crate) fn within(ticks: u64) -> Anchor {
        const TRIES: usize = 8;
        let mut best = Anchor { time: 0, monotonic_ns: 0 };
        let mut best_gap = u64::MAX;
        for _ in 0..TRIES {
            let before = tsc();
            let monotonic_ns = monotonic_raw_ns();
            let gap = tsc().saturating_sub(before);
            if gap < best_gap {
                best_gap = gap;
                best = Anchor { time: before + gap / 2, monotonic_ns };
            }
            if best_gap <= ticks {
                break;
            }
        }
        best
    }
}

/// Minimum span over which the counter's rate is measured. An anchor has an error of about 50 ns, so after 10
/// ms the error of the rate is about 10 parts per million. For a trace of one second, it is a tenth of a part
/// per million.
const CALIBRATION_MIN_NS: u64 = 10_000_000;

/// Returns the rate of the time stamp counter in Hz, measured from `start` until now, and the measured span
/// in nanoseconds. Busy-waits if `start` is less than [`CALIBRATION_MIN_NS`] ago.
pub(crate) fn calibrate(start: Anchor) -> (u64, u64) {
    while monotonic_raw_ns() < start.monotonic_ns + CALIBRATION_MIN_NS {
        std::hint::spin_loop();
    }
    let end = Anchor::of_tsc();
    let span_ns = end.monotonic_ns - start.monotonic_ns;
    let ticks = end.time.saturating_sub(start.time);
    ((u128::from(ticks) * 1_000_000_000 / u128::from(span_ns)) as u64, span_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_run_backwards() {
        let (ns, ticks) = (monotonic_raw_ns(), tsc());
        assert!(monotonic_raw_ns() >= ns);
        assert!(Clock::Tsc.available() == Clock::Monotonic || tsc() >= ticks);
    }

    #[test]
    fn calibration_spans_at_least_the_minimum() {
        let (hz, span_ns) = calibrate(Anchor::of_tsc());
        assert!(span_ns >= CALIBRATION_MIN_NS);
        if Clock::Tsc.available() == Clock::Tsc {
            // Every x86-64 processor with an invariant counter runs it at 100 MHz to 10 GHz.
            assert!((100_000_000..10_000_000_000).contains(&hz), "{hz} Hz");
        }
    }

    #[test]
    fn numbers_of_clocks_come_back() {
        for clock in [Clock::Tsc, Clock::Monotonic, Clock::Virtual] {
            assert_eq!(Clock::from_u16(clock as u16), Some(clock));
        }
        assert_eq!(Clock::from_u16(3), None);
    }
}
