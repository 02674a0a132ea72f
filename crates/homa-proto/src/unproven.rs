//! Arriving requests of unproven peers: the first to be evicted when there is no room.
//!
//! A peer is proven by information that only a receiver of our packets can have (SHARE-3): a response with
//! the id of one of our requests, or the version of our cutoffs, which starts at a random value. An
//! acknowledgement of the peer's own request proves nothing.
//!
//! Any sender can send first packets from many addresses, each claiming a long message. To make room for
//! later requests, the requests of such a flood are evicted, the longest silent first. The flood therefore
//! never locks out senders that continue to send (LIMIT-9). A flood from addresses of one prefix evicts only
//! requests of that prefix (SHARE-12).

use crate::lists::{Links, List};

/// The RPCs of unproven peers whose requests are arriving; the one silent for longest comes first.
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
        self.links.resize(self.links.len().min(slots));
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    /// Moves the request to the end of the list, since one of its packets arrived.
    pub(crate) fn note_packet(&mut self, slot: u32) {
        self.links.ensure(slot);
        self.remove(slot);
        self.links.push_back(&mut self.list, 0, slot);
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        if self.contains(slot) {
            self.links.remove(&mut self.list, slot);
        }
    }

    /// Returns the request that has been silent for longest.
    pub(crate) fn longest_silent(&self) -> Option<u32> {
        self.list.head()
    }

    /// Panics unless the list is consistent; returns its length.
    pub(crate) fn check(&self) -> usize {
        self.links.check(&self.list, 0)
    }
}
