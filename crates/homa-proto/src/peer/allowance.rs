//! Resources of this host that one peer may use: budgets that are used up and refilled (PROTOCOL.md SHARE).

use crate::config::Config;
use crate::incast::PeerEstimate;
use crate::prefix::PrefixId;
use crate::share::{Budget, Refill};

/// Bytes that an unproven peer may be sent for each byte received from it (as in QUIC, RFC 9000, 8.1).
const UNPROVEN_TIMES: u32 = 3;

/// A proven peer's retransmission budget gains one packet per round of RESENDs; an unproven peer's budget
/// gains one packet per this many rounds.
const UNPROVEN_ROUNDS: u64 = 16;

/// Minimum burst, in full packets, that can be retransmitted to a peer at once.
const BURST_PACKETS: u64 = 64;

/// The budgets of one peer.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Whether the peer is proven: it has shown that it receives our packets (SHARE-3).
    pub proven: bool,
    /// The prefix for which the peer counts while it is unproven.
    pub prefix: Option<PrefixId>,
    /// Bytes of control packets that the peer may be sent while it is unproven (SHARE-9).
    credit: u32,
    /// Estimate of the unscheduled bytes that the peer would have sent recently without a limit (SHARE-8).
    pub claims: PeerEstimate,
    /// Budget of bytes that may be retransmitted to the peer (SHARE-4).
    pub resend_budget: Budget,
    /// Packets of the peer that were refused because it had used up its share.
    pub refused: u64,
}

impl Allowance {
    /// Returns the budgets of a new peer, which counts for `prefix`.
    pub(crate) fn new(prefix: Option<PrefixId>) -> Allowance {
        Allowance {
            proven: false,
            prefix,
            credit: 0,
            claims: PeerEstimate::default(),
            resend_budget: Budget::FULL,
            refused: 0,
        }
    }

    /// Adds the credit for a packet of `bytes` from the peer, while the peer is unproven.
    pub(crate) fn earn(&mut self, bytes: usize) {
        let earned = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(UNPROVEN_TIMES);
        self.credit = self.credit.saturating_add(earned);
    }

    /// Like [`earn`](Allowance::earn), for the packet that created the peer. Does nothing if the peer has any
    /// credit already, since the packet is then already counted.
    pub(crate) fn earn_first(&mut self, bytes: usize) {
        if self.credit == 0 {
            self.earn(bytes);
        }
    }

    /// Deducts the bytes of a control packet to the peer from the peer's credit (SHARE-9). Returns whether
    /// the packet may be sent.
    pub(crate) fn take_credit(&mut self, bytes: usize) -> bool {
        let left = self.credit.checked_sub(bytes as u32);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// Returns how the retransmission budget refills, with packets of up to `payload` bytes. Its maximum is
    /// twice the bytes that may be in flight to a host, so that a lost burst can be repaired immediately. The
    /// budget gains one packet for each round of RESENDs that the peer may send (RESEND-7), and the bytes
    /// delivered to the peer.
    pub(crate) fn resend_refill(&self, payload: u32, config: &Config) -> Refill {
        if !self.proven {
            let every_ns = config.resend_spacing_ns.saturating_mul(UNPROVEN_ROUNDS);
            return Refill { most: BURST_PACKETS * u64::from(payload), bytes: payload.into(), every_ns };
        }
        let burst = (2 * u64::from(config.max_incoming)).max(BURST_PACKETS * u64::from(payload));
        Refill { most: burst, bytes: payload.into(), every_ns: config.resend_spacing_ns }
    }
}
