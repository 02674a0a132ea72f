//! An incoming message: what is there, what was granted, what is missing.

use std::ops::Range;

use crate::gaps::Gaps;
use crate::unscheduled_loss::UnscheduledState;

/// Ranges asked for in one round of RESENDs: enough for a burst of scattered losses, and a bound on the packets.
pub(crate) const MAX_RANGES: usize = 4;

/// Ranges asked for at a time when a queue has overflowed: it took what came first of all senders in turn, and so left many.
pub(crate) const RECLAIM_RANGES: usize = 16;

/// Least bytes that a message counts for: its RPC, and the smallest buffer, take as many however short it is
/// (SHARE-1).
const LEAST_CHARGE: u32 = 1_024;

/// What a message of `length` bytes counts for among the incoming ones; 0 where none has begun.
pub(crate) fn charge(length: u32) -> u64 {
    if length == 0 { 0 } else { length.max(LEAST_CHARGE).into() }
}

/// A message on its way in. The default is one of which nothing has arrived.
#[derive(Debug, Default)]
pub(crate) struct MessageIn {
    /// Bytes of the message; 0: no packet has told yet.
    pub length: u32,
    /// Bytes that are there.
    pub received: u32,
    /// Exclusive end of what the sender may send.
    pub granted: u32,
    /// What the first packet said that comes unasked.
    pub unscheduled: u32,
    /// Bytes granted and not received, as counted against `max_incoming`; set aside while the sender is silent.
    pub counted: u32,
    /// Bytes that were there when its progress was last looked at.
    pub looked_at: u32,
    /// It came too slowly, and is neither counted nor granted to until so many bytes are there; 0: it did not
    /// (SHARE-7).
    pub stalled_until: u32,
    /// All of it that may come was asked for, or granted, since the last look.
    pub fresh: bool,
    /// A look has passed it over for that, and the next one does not.
    pub excused: bool,
    /// The request of a peer that had had nothing from us when it began (LIMIT-9).
    pub of_unproven: bool,
    /// Last contiguous end that was reported as readable.
    pub reported: u32,
    /// Where its unscheduled bytes stand.
    pub unasked: UnscheduledState,
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

    /// Whether it lost its grants to others.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_until > 0
    }

    /// Whether more may be granted of it, as far as what was granted before says.
    pub(crate) fn takes_grants(&self) -> bool {
        self.unasked != UnscheduledState::Aside && !self.is_stalled()
    }

    /// Looks at what came since the last look, which was about an interval of RESENDs ago. Where that is less
    /// than an eighth of what might have, the message stalls until an eighth of the rest has come. Returns
    /// whether it does so from now on (SHARE-7).
    ///
    /// While its unscheduled bytes are set aside nothing of it is expected, and only one that trickles all
    /// the same stalls.
    pub(crate) fn stalls(&mut self) -> bool {
        let came = self.received - self.looked_at;
        let outstanding = self.outstanding();
        let fresh = std::mem::take(&mut self.fresh);
        self.looked_at = self.received;
        if self.is_stalled() || self.unasked == UnscheduledState::Aside && came == 0 {
            return false;
        }
        let comes = u64::from(came) * 8 >= u64::from(came) + u64::from(outstanding);
        let excused = !comes && fresh && !self.excused;
        self.excused = excused || self.excused && !comes;
        if comes || excused {
            return false;
        }
        self.stalled_until = self.received + (outstanding / 8).max(1);
        true
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
