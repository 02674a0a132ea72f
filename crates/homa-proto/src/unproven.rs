//! Requests that arrive from peers which are not proven: the first to go where there is no room.
//!
//! A peer is proven by what only a receiver of our packets can know (SHARE-3): the id of a call of ours,
//! which it answers, or the version of our cutoffs, which begins anywhere. That it acknowledges its own
//! request says nothing.
//!
//! Anybody can send first packets under many addresses, each with the claim of a long message. What such a flood takes is
//! given to whoever comes next, the longest silent first, so that it never keeps out those who go on sending (LIMIT-9).

use crate::contract::DoneReason;
use crate::endpoint::Endpoint;
use crate::lists::{Links, List};
use crate::rpc::RpcState;
use crate::time::Time;

/// Requests given up at most for one packet: bounds the work, and makes room for the longest message in a few packets.
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

    /// Gives the memory for slots from `slots` on back. None of them is among them.
    pub(crate) fn cut(&mut self, slots: usize) {
        self.links.fit(self.links.len().min(slots));
    }

    /// Whether `slot` is among them.
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    /// A packet of the request came.
    fn heard(&mut self, slot: u32) {
        self.links.ensure(slot);
        self.remove(slot);
        self.links.push_back(&mut self.list, 0, slot);
    }

    /// Takes `slot` out, if it is in.
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
    /// The peer has shown that it gets what we send (SHARE-3).
    pub(crate) fn mark_served(&mut self, peer: u32) {
        if self.peers.prove(peer) {
            self.grants.set_served(peer, true);
        }
    }

    /// A packet of a request came that is not whole.
    pub(crate) fn unproven_heard(&mut self, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        if rpc.state == RpcState::RequestArriving && !self.peers[rpc.peer].served {
            self.unproven.heard(slot);
        }
    }

    /// Gives up requests of unproven peers until `fits`; false if it still does not and no more may be given up.
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

    /// Gives up the longest silent request of an unproven peer, and forgets that peer where nothing else is known of it.
    pub(crate) fn displace(&mut self, now: Time) -> bool {
        self.settle_acks(now); // A peer that is forgotten must not leave any to the next one in its place.
        let Some(slot) = self.unproven.list.head() else { return false };
        let peer = self.rpcs[slot as usize].peer;
        self.stats.strangers_displaced += 1;
        self.end_server(now, slot, DoneReason::ClientSilent);
        self.peers.forget(peer, now, &self.config);
        true
    }
}
