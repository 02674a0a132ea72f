//! An incoming message: which of its bytes have arrived, were granted, or are missing.

use std::ops::Range;

use crate::gaps::Gaps;
use crate::prefix::PrefixId;

/// Maximum number of ranges requested in one round of RESENDs. It covers a megabyte message that has lost one
/// packet in 50, and also the gaps left by a full queue that kept the first packets of all senders in turn. A
/// range costs a packet of 37 bytes, now or an interval later.
pub(crate) const MAX_RANGES: usize = 16;

/// Minimum bytes charged for a message: even for the shortest message, the RPC and the smallest buffer take
/// this much memory (SHARE-1).
const LEAST_CHARGE: u32 = 1_024;

/// Returns the incoming bytes charged for a message of `length` bytes; 0 if no message has begun.
pub(crate) fn charge(length: u32) -> u64 {
    if length == 0 { 0 } else { length.max(LEAST_CHARGE).into() }
}

/// The state of a message's unscheduled bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnscheduledState {
    /// All of them have arrived, or nothing of the message has.
    #[default]
    Settled,
    /// They are in flight.
    InFlight,
    /// They count as lost, and the message waits for its turn to request them.
    Lost,
}

/// The packet that opened an incoming message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum FirstPacket {
    /// DATA that announces the unscheduled bytes.
    #[default]
    Data,
    /// DATA that does not announce unscheduled bytes: every byte is sent without a grant.
    WholeData,
    /// START_MSG: no byte is sent before it is granted.
    Start,
}

/// An incoming message. The default is a message of which nothing has arrived.
#[derive(Debug, Default)]
pub(crate) struct MessageIn {
    /// Length of the message in bytes; 0 until the first packet arrives.
    pub length: u32,
    /// Bytes that have arrived.
    pub received: u32,
    /// Exclusive end of the bytes that the sender may send.
    pub granted: u32,
    /// Unscheduled bytes as announced in the first packet.
    pub unscheduled: u32,
    /// Bytes granted and not yet received, as counted against `max_incoming`; 0 while the sender is silent.
    pub counted: u32,
    /// Value of `received` at the last progress check.
    pub received_at_check: u32,
    /// If the message is stalled because it arrives too slowly, it is not counted and receives no grants
    /// until this many bytes have arrived. 0: it is not stalled (SHARE-7).
    pub stalled_until: u32,
    /// Whether all bytes that may arrive were requested, or granted, since the last progress check.
    pub fresh: bool,
    /// Whether a progress check has excused the message because of `fresh`. The next check does not excuse it
    /// again.
    pub excused: bool,
    /// The prefix for which the request counts, if the request began while its peer was unproven; otherwise
    /// `None` (LIMIT-9, SHARE-12).
    pub prefix: Option<PrefixId>,
    /// The contiguous end that was last reported as readable.
    pub reported: u32,
    /// The packet that opened the message; [`FirstPacket::Data`] if nothing has arrived.
    pub first: FirstPacket,
    /// State of the unscheduled bytes.
    pub unscheduled_state: UnscheduledState,
    pub gaps: Gaps,
}

impl MessageIn {
    pub(crate) fn is_complete(&self) -> bool {
        self.length != 0 && self.received == self.length
    }

    /// Returns whether granted bytes are missing.
    pub(crate) fn expects_bytes(&self) -> bool {
        self.received < self.granted
    }

    /// Returns the bytes not yet granted: the receiver's SRPT key.
    pub(crate) fn ungranted(&self) -> u32 {
        self.length - self.granted
    }

    /// Returns the granted bytes in flight.
    pub(crate) fn outstanding(&self) -> u32 {
        self.granted.saturating_sub(self.received)
    }

    /// Returns whether the message arrived too slowly and lost its grants to others.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_until > 0
    }

    /// Whether the message may receive more grants: it is not stalled, and its unscheduled bytes do not count
    /// as lost.
    pub(crate) fn takes_grants(&self) -> bool {
        self.unscheduled_state != UnscheduledState::Lost && !self.is_stalled()
    }

    /// Checks the bytes received since the last check, about one RESEND interval ago. If they are less than
    /// an eighth of what might have arrived, the message stalls until an eighth of the rest has arrived.
    /// Returns whether it stalls from now on (SHARE-7).
    ///
    /// While the unscheduled bytes count as lost, no bytes are expected. The message then stalls only if a
    /// few bytes arrive nevertheless.
    pub(crate) fn stalls(&mut self) -> bool {
        let came = self.received - self.received_at_check;
        let outstanding = self.outstanding();
        let fresh = std::mem::take(&mut self.fresh);
        self.received_at_check = self.received;
        if self.is_stalled() || self.unscheduled_state == UnscheduledState::Lost && came == 0 {
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

    /// Returns the granted bytes in flight that are not counted, since the sender is silent.
    pub(crate) fn uncounted(&self) -> u32 {
        self.outstanding() - self.counted
    }

    /// Returns the missing ranges below the granted end (RESEND-4).
    pub(crate) fn missing(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let tail = self.gaps.end()..self.granted;
        let tail = (!tail.is_empty()).then_some(tail);
        self.gaps.missing().iter().cloned().chain(tail)
    }

    /// Panics unless the fields are consistent.
    pub(crate) fn check(&self) {
        let missing = self.gaps.check();
        assert_eq!(self.gaps.end() - missing, self.received, "received bytes of {self:?}");
        assert!(self.gaps.end() <= self.length && self.granted <= self.length, "{self:?}");
        assert!(self.received <= self.granted, "bytes beyond the grant raise it: {self:?}");
        assert!(self.counted == 0 || self.counted == self.outstanding(), "{self:?}");
    }
}
