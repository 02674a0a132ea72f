//! An incoming message: what is there, what was granted, what is missing.

use std::ops::Range;

use crate::gaps::Gaps;
use crate::reclaim::Unasked;

/// Ranges asked for in one round of RESENDs: enough for a burst of scattered losses, and a bound on the packets.
pub(crate) const MAX_RANGES: usize = 4;

/// Ranges asked for at a time when a queue has overflowed: it took what came first of all senders in turn, and so left many.
pub(crate) const RECLAIM_RANGES: usize = 16;

/// A message on its way in. The default is one of which nothing has arrived.
#[derive(Debug, Default)]
pub(crate) struct MessageIn {
    /// Bytes of the message; 0: no packet has told yet.
    pub length: u32,
    /// Bytes that are there.
    pub received: u32,
    /// Exclusive end of what the sender may send.
    pub granted: u32,
    /// Bytes granted and not received, as counted against `max_incoming`; set aside while the sender is silent.
    pub counted: u32,
    /// The request of a peer that had had nothing from us when it began (LIMIT-9).
    pub of_stranger: bool,
    /// Last contiguous end that was reported as readable.
    pub reported: u32,
    /// Where its unscheduled bytes stand.
    pub unasked: Unasked,
    pub gaps: Gaps,
}

impl MessageIn {
    pub(crate) fn is_complete(&self) -> bool {
        self.length != 0 && self.received == self.length
    }

    /// Whether bytes that were granted are not there.
    pub(crate) fn expects_bytes(&self) -> bool {
        self.received < self.granted
    }

    /// Bytes not yet granted: the receiver's SRPT key.
    pub(crate) fn ungranted(&self) -> u32 {
        self.length - self.granted
    }

    /// Granted bytes on their way.
    pub(crate) fn outstanding(&self) -> u32 {
        self.granted.saturating_sub(self.received)
    }

    /// Granted bytes on their way that are not counted, since their sender is silent.
    pub(crate) fn set_aside(&self) -> u32 {
        self.outstanding() - self.counted
    }

    /// The missing ranges below the granted end (RESEND-4).
    pub(crate) fn missing(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let tail = self.gaps.end()..self.granted;
        let tail = (!tail.is_empty()).then_some(tail);
        self.gaps.missing().iter().cloned().chain(tail)
    }

    /// Panics unless the numbers agree.
    pub(crate) fn check(&self) {
        let missing = self.gaps.check();
        assert_eq!(self.gaps.end() - missing, self.received, "received bytes of {self:?}");
        assert!(self.gaps.end() <= self.length && self.granted <= self.length, "{self:?}");
        assert!(self.received <= self.granted, "bytes beyond the grant raise it: {self:?}");
        assert!(self.counted == 0 || self.counted == self.outstanding(), "{self:?}");
    }
}
