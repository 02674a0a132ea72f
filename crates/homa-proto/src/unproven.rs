//! Arriving requests of unproven peers: the first to be evicted when there is no room.
//!
//! A peer is proven by information that only a receiver of our packets can have (SHARE-3). This is the id of
//! an RPC that we called, in a response, or the version of our cutoffs, which starts at a random value. An
//! acknowledgement of the peer's own request proves nothing.
//!
//! Any sender can send first packets from many addresses, each claiming a long message. The resources of such
//! a flood are given to later requests, the longest silent first. The flood therefore never locks out senders
//! that continue to send (LIMIT-9).

use crate::contract::DoneReason;
use crate::endpoint::Endpoint;
use crate::lists::{Links, List};
use crate::rpc::RpcState;
use crate::time::Time;

/// Maximum requests evicted for one packet: bounds the work, and makes room for the longest message in a few
/// packets.
const DISPLACED_PER_PACKET: usize = 16;

/// The RPCs of unproven peers whose requests are arriving, the longest silent first.
#[derive(Debug)]
pub(crate) struct UnprovenRpcs {
    links: Links,
    list: List,
}

impl UnprovenRpcs {
    pub(crate) fn new() -> UnprovenRpcs {
        UnprovenRpcs { links: Links::with_capacity(0), list: List::EMPTY }
    }

    /// Frees the memory for slots from `slots` on, none of which may be in the list.
    pub(crate) fn cut(&mut self, slots: usize) {
        self.links.fit(self.links.len().min(slots));
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    /// Moves the request to the end of the list, since one of its packets arrived.
    fn heard(&mut self, slot: u32) {
        self.links.ensure(slot);
        self.remove(slot);
        self.links.push_back(&mut self.list, 0, slot);
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        if self.contains(slot) {
            self.links.remove(&mut self.list, slot);
        }
    }

    /// Panics unless the list is sound; returns its length.
    pub(crate) fn check(&self) -> usize {
        self.links.check(&self.list, 0)
    }
}

impl Endpoint {
    /// Marks the peer as proven: it has shown that it receives our packets (SHARE-3).
    pub(crate) fn mark_served(&mut self, peer: u32) {
        if self.peers.prove(peer) {
            self.grants.set_served(peer, true);
        }
    }

    /// Records a packet of an incomplete request.
    pub(crate) fn unproven_heard(&mut self, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        if rpc.state == RpcState::RequestArriving && !self.peers[rpc.peer].served {
            self.unproven.heard(slot);
        }
    }

    /// Evicts requests of unproven peers until `fits`. Returns false if it still does not and no more may be
    /// evicted.
    pub(crate) fn make_room(&mut self, now: Time, fits: impl Fn(&Endpoint) -> bool) -> bool {
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
    pub(crate) fn displace(&mut self, now: Time) -> bool {
        self.settle_acks(now); // A forgotten peer's acks must not count for the next peer in its slot.
        let Some(slot) = self.unproven.list.head() else { return false };
        let peer = self.rpcs[slot as usize].peer;
        self.stats.strangers_displaced += 1;
        self.end_server(now, slot, DoneReason::ClientSilent);
        self.peers.forget(peer, now, &self.config);
        true
    }
}
