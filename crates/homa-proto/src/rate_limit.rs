//! The rate of one kind of packet to one peer (PROTOCOL.md RESEND-7, RESEND-22).

use crate::time::Time;

/// Number of packets that may be sent to a peer at once after a pause, so that RPCs that lost packets at the
/// same time do not wait for each other.
const BURST: u64 = 16;

/// Limits the rate of one kind of packet to one peer. On average, packets keep a minimum spacing; after a
/// pause, [`BURST`] of them may be sent at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// The time at which the next packet may be sent; earlier after a pause.
    at: Time,
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit { at: Time::ZERO }
    }
}

impl RateLimit {
    /// Returns the time at which the next packet may be sent.
    pub(crate) fn next(self, now: Time, space_ns: u64) -> Time {
        self.at.max(Time::from_ns(now.as_ns().saturating_sub(BURST * space_ns)))
    }

    /// Counts a packet that is sent now.
    pub(crate) fn take(&mut self, now: Time, space_ns: u64) {
        self.at = self.next(now, space_ns) + space_ns;
    }

    /// Counts a packet if it may be sent now. Returns whether it may.
    pub(crate) fn take_if_due(&mut self, now: Time, space_ns: u64) -> bool {
        let is_due = self.next(now, space_ns) <= now;
        if is_due {
            self.take(now, space_ns);
        }
        is_due
    }
}
