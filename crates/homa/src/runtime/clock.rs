//! The host's clock: one look at it serves the protocol and the time trace.

use homa_proto::Time;
use homa_trace::{Clock, Moment, MonotonicClock, Ticks};

/// The monotonic clock of the machine, which all of its processes share, counted from when the host was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    system: MonotonicClock,
    /// What it shows at [`Time::ZERO`], in nanoseconds.
    zero_ns: u64,
    /// The clock of the time trace, where there is one.
    trace: Option<Ticks>,
}

impl HostClock {
    /// A clock that begins when the machine's shows `zero_ns`.
    pub(crate) fn new(zero_ns: u64, trace: Option<Ticks>) -> HostClock {
        HostClock { system: MonotonicClock::new(), zero_ns, trace }
    }

    /// The time.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.time(self.system.now())
    }

    /// The same moment on the trace's clock, for what is recorded once the lock is had, and as the protocol has it. 0 on a trace's
    /// clock where there is none.
    #[inline]
    pub(crate) fn look(&self) -> (u64, Time) {
        let moment = self.system.now();
        let at = match (self.trace, moment.ticks) {
            (None, _) => 0,
            (Some(trace), Some(ticks)) if trace.clock() == Clock::Tsc => ticks,
            // To the trace another of the system's clocks is the right one, and so is the counter where the system has reasons not to use
            // it.
            (Some(trace), _) => trace.now(),
        };
        (at, self.time(moment))
    }

    fn time(&self, moment: Moment) -> Time {
        Time::from_ns(moment.ns.saturating_sub(self.zero_ns))
    }
}

#[cfg(test)]
mod tests {
    use homa_trace::Trace;

    use super::*;

    #[test]
    fn one_look_is_on_both_clocks() {
        let zero_ns = MonotonicClock::new().now().ns;
        let (traced, untraced) = (Trace::new(1, Clock::Tsc).ticks(), None);
        let ticks = traced.expect("a live clock");
        let clock = HostClock::new(zero_ns, traced);
        let (early, early_at) = (clock.now(), ticks.now());
        let (at, now) = clock.look();
        assert!((early_at..=ticks.now()).contains(&at) && (early..=clock.now()).contains(&now));
        assert_eq!(HostClock::new(zero_ns, untraced).look().0, 0);
        // A trace of the clock that nobody adjusts.
        let raw = Trace::new(1, Clock::Monotonic).ticks();
        let (early_at, (at, _)) = (raw.expect("a live clock").now(), HostClock::new(zero_ns, raw).look());
        assert!((early_at..=early_at + 60_000_000_000).contains(&at));
    }

    #[test]
    fn a_clock_that_begins_later_stands_still_until_then() {
        let clock = HostClock::new(MonotonicClock::new().now().ns + 60_000_000_000, None);
        assert_eq!(clock.now(), Time::ZERO);
    }
}
