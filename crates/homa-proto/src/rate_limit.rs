//! The rate of one kind of packet to one peer (PROTOCOL.md RESEND-7, RESEND-22).

use crate::time::Time;

/// Packets that may go to a peer at once after a pause, so that RPCs that lost packets at one moment do not
/// wait for each other.
const BURST: u64 = 16;

/// Limits the rate of one kind of packet to one peer. Packets keep a minimum space on average; [`BURST`] of
/// them may go at once after a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// When the next packet may go; earlier after a pause.
    at: Time,
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit { at: Time::ZERO }
    }
}

impl RateLimit {
    /// When the next packet may go.
    pub(crate) fn next(self, now: Time, space_ns: u64) -> Time {
        self.at.max(Time::from_ns(now.as_ns().saturating_sub(BURST * space_ns)))
    }

    /// Counts a packet that goes now.
    pub(crate) fn take(&mut self, now: Time, space_ns: u64) {
        self.at = self.next(now, space_ns) + space_ns;
    }

    /// Counts a packet if it may go now. Returns whether it may.
    pub(crate) fn take_if_due(&mut self, now: Time, space_ns: u64) -> bool {
        let is_due = self.next(now, space_ns) <= now;
        if is_due {
            self.take(now, space_ns);
        }
        is_due
    }
}
