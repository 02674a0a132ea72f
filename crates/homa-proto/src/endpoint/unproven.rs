//! Proving peers, and evicting requests of unproven ones (PROTOCOL.md SHARE-3, SHARE-12, LIMIT-9).

use std::net::IpAddr;

use super::state::Endpoint;
use crate::contract::DoneReason;
use crate::rpc::RpcState;
use crate::time::Time;

/// Maximum number of requests evicted for one packet. This bounds the work; a few packets still make room for
/// the longest message.
pub(super) const EVICTIONS_PER_PACKET: usize = 16;

impl Endpoint {
    /// Marks the peer as proven: it has shown that it receives our packets (SHARE-3).
    #[inline]
    pub(super) fn mark_served(&mut self, peer: u32) {
        if self.peers.prove(peer) {
            self.receiving.grants.set_prefix(peer, None);
        }
    }

    /// Records a packet of an incomplete request. If its peer has been proven since the request began, the
    /// request is no longer evicted to make room for others. The request stays in the class of unproven
    /// peers.
    pub(super) fn note_unproven_packet(&mut self, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        let Some(prefix) = rpc.incoming.prefix else { return };
        if self.peers[rpc.peer].allowance.proven {
            self.not_arriving(slot);
        } else if rpc.state == RpcState::RequestArriving {
            self.receiving.unproven.note_packet(slot);
            self.peers.prefixes.note_packet(prefix, slot);
        }
    }

    /// Excludes a request from eviction, since it is complete or has ended, or its peer is proven.
    pub(super) fn not_arriving(&mut self, slot: u32) {
        if self.receiving.unproven.contains(slot) {
            self.receiving.unproven.remove(slot);
            self.peers.prefixes.silence(slot);
        }
    }

    /// Evicts requests of unproven peers until `fits` returns true. Returns false if no more requests may be
    /// evicted and `fits` is still false.
    pub(super) fn make_room(&mut self, now: Time, fits: impl Fn(&Endpoint) -> bool) -> bool {
        for _ in 0..EVICTIONS_PER_PACKET {
            if fits(self) {
                return true;
            }
            if !self.evict_unproven(now) {
                return false;
            }
        }
        fits(self)
    }

    /// Evicts the request that has been silent the longest among those of all unproven peers. Forgets its
    /// peer if there is no other state for the peer.
    pub(super) fn evict_unproven(&mut self, now: Time) -> bool {
        self.handle_deferred_acks(now); // A forgotten peer's acks must not count for the next peer in its slot.
        let Some(slot) = self.receiving.unproven.longest_silent() else { return false };
        self.displace_slot(now, slot);
        true
    }

    /// Evicts the request that has been silent the longest among those of an address's prefix.
    pub(super) fn displace_of_prefix(&mut self, now: Time, ip: IpAddr) -> bool {
        self.handle_deferred_acks(now);
        let Some(slot) = self.peers.prefixes.longest_silent(ip) else { return false };
        self.displace_slot(now, slot);
        true
    }

    fn displace_slot(&mut self, now: Time, slot: u32) {
        let peer = self.rpcs[slot as usize].peer;
        self.stats.unproven_evicted += 1;
        self.end_server(now, slot, DoneReason::ClientSilent);
        self.peers.forget(peer, now, &self.config);
    }
}
