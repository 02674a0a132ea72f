//! The clock of a host.

use homa_proto::Time;

/// A host's clock: its offset from the network's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostClock {
    ahead_ns: i64,
}

impl HostClock {
    /// Returns the clock's time at network time `now`; at least 0.
    pub(crate) fn read(self, now: Time) -> Time {
        Time::from_ns(now.as_ns().saturating_add_signed(self.ahead_ns))
    }

    /// Returns the network time at which the clock shows `at`.
    pub(crate) fn network_time(self, at: Time) -> Time {
        Time::from_ns(at.as_ns().saturating_add_signed(-self.ahead_ns))
    }

    /// Steps forward by `by_ns`, or back if it is negative.
    pub(crate) fn step(&mut self, by_ns: i64) {
        self.ahead_ns = self.ahead_ns.saturating_add(by_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_times_translate_both_ways() {
        let mut clock = HostClock::default();
        clock.step(500);
        clock.step(-200);
        let now = Time::from_ns(1_000);
        assert_eq!(clock.read(now), Time::from_ns(1_300));
        assert_eq!(clock.network_time(clock.read(now)), now);
        clock.step(-5_000);
        assert_eq!(clock.read(now), Time::ZERO, "no time is before the beginning");
    }
}
