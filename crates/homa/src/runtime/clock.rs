//! The host's clock: a single read serves both the protocol and the time trace.

use homa_proto::Time;
use homa_trace::{Clock, Moment, MonotonicClock, Ticks};

/// The machine's monotonic clock, shared by all processes, counted from the creation of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    system: MonotonicClock,
    /// The system clock's value at [`Time::ZERO`], in nanoseconds.
    zero_ns: u64,
    /// The clock of the time trace, if any.
    trace: Option<Ticks>,
}

impl HostClock {
    /// Creates a clock that starts when the machine's clock shows `zero_ns`.
    pub(crate) fn new(zero_ns: u64, trace: Option<Ticks>) -> HostClock {
        HostClock { system: MonotonicClock::new(), zero_ns, trace }
    }

    /// Returns the current time.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.time(self.system.now())
    }

    /// Reads the current time on two clocks at once: on the trace's clock, for events that are recorded later
    /// under the lock, and on the protocol's clock. The trace's time is 0 if there is no trace clock.
    #[inline]
    pub(crate) fn read_both(&self) -> (u64, Time) {
        let moment = self.system.now();
        let at = match (self.trace, moment.ticks) {
            (None, _) => 0,
            (Some(trace), Some(ticks)) if trace.clock() == Clock::Tsc => ticks,
            // Use the trace's own clock: the trace may use a different system clock, or the time-stamp
            // counter even where the system avoids it.
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
        let (at, now) = clock.read_both();
        assert!((early_at..=ticks.now()).contains(&at) && (early..=clock.now()).contains(&now));
        assert_eq!(HostClock::new(zero_ns, untraced).read_both().0, 0);
        // Case: the trace uses a clock that is never adjusted.
        let raw = Trace::new(1, Clock::Monotonic).ticks();
        let (early_at, (at, _)) =
            (raw.expect("a live clock").now(), HostClock::new(zero_ns, raw).read_both());
        assert!((early_at..=early_at + 60_000_000_000).contains(&at));
    }

    #[test]
    fn a_clock_that_begins_later_stands_still_until_then() {
        let clock = HostClock::new(MonotonicClock::new().now().ns + 60_000_000_000, None);
        assert_eq!(clock.now(), Time::ZERO);
    }
}
