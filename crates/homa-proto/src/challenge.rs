//! The challenge by which a peer proves its incarnation (PROTOCOL.md PEER-16).

use crate::rate_limit::RateLimit;
use crate::time::Time;
use crate::wire::Common;

/// Maximum number of packets with a disputed incarnation that are remembered for a peer. Once the incarnation
/// is proven, RESENDs request these packets.
const MAX_CLAIMS: usize = 8;

/// The challenge of one peer.
#[derive(Debug, Default)]
pub(crate) struct Challenge {
    /// The id that the peer must repeat, in the client's form; 0: no challenge is open.
    id: u64,
    spaced: RateLimit,
    /// Headers of requests whose packets were dropped because they did not carry the peer's proven
    /// incarnation.
    claims: Vec<Common>,
}

impl Challenge {
    /// Returns whether an answer is awaited.
    pub(crate) fn is_open(&self) -> bool {
        self.id != 0
    }

    /// Opens the challenge. An answer must repeat `id`, which is in the client's form and not 0.
    pub(crate) fn open(&mut self, id: u64) {
        self.id = id;
    }

    /// Returns the id that an answer must repeat.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether a packet with this id may answer the challenge.
    pub(crate) fn is_of(&self, sender_id: u64) -> bool {
        self.is_open() && sender_id & !1 == self.id
    }

    /// Ends the challenge. Later packets no longer answer it.
    pub(crate) fn end(&mut self) {
        self.id = 0;
    }

    /// Counts a challenge packet if it may be sent now. Returns whether it may.
    pub(crate) fn take_if_due(&mut self, now: Time, space_ns: u64) -> bool {
        self.spaced.take_if_due(now, space_ns)
    }

    /// Remembers the header of a request whose packet is dropped, unless too many headers are remembered.
    pub(crate) fn add_claim(&mut self, common: &Common) {
        if self.claims.len() < MAX_CLAIMS && !self.claims.contains(common) {
            self.claims.push(*common);
        }
    }

    /// Removes the remembered headers.
    pub(crate) fn take_claims(&mut self) -> Vec<Common> {
        std::mem::take(&mut self.claims)
    }
}
