//! Proving peers, and evicting requests of unproven ones (PROTOCOL.md SHARE-3, LIMIT-9).

use super::state::Endpoint;
use crate::contract::DoneReason;
use crate::rpc::RpcState;
use crate::time::Time;

/// Maximum requests evicted for one packet: bounds the work, and makes room for the longest message in a few
/// packets.
const DISPLACED_PER_PACKET: usize = 16;

impl Endpoint {
    /// Marks the peer as proven: it has shown that it receives our packets (SHARE-3).
    pub(super) fn mark_served(&mut self, peer: u32) {
        if self.peers.prove(peer) {
            self.grants.set_served(peer, true);
        }
    }

    /// Records a packet of an incomplete request.
    pub(super) fn unproven_heard(&mut self, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        if rpc.state == RpcState::RequestArriving && !self.peers[rpc.peer].served {
            self.unproven.heard(slot);
        }
    }

    /// Evicts requests of unproven peers until `fits`. Returns false if it still does not and no more may be
    /// evicted.
    pub(super) fn make_room(&mut self, now: Time, fits: impl Fn(&Endpoint) -> bool) -> bool {
        for _ in 0..DISPLACED_PER_PACKET {
            if fits(self) {
                return true;
            }
            if !self.displace(now) {
                return false;
            }
        }
        fits(self)
    }

    /// Evicts the longest silent request of an unproven peer, and forgets that peer if nothing else is known
    /// of it.
    pub(super) fn displace(&mut self, now: Time) -> bool {
        self.settle_acks(now); // A forgotten peer's acks must not count for the next peer in its slot.
        let Some(slot) = self.unproven.longest_silent() else { return false };
        let peer = self.rpcs[slot as usize].peer;
        self.stats.strangers_displaced += 1;
        self.end_server(now, slot, DoneReason::ClientSilent);
        self.peers.forget(peer, now, &self.config);
        true
    }
}
