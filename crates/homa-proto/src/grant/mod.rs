//! The receiver's choice of the messages that receive grants, and of the granted bytes (PROTOCOL.md GRANT).

mod decision;
mod granted_bytes;
mod oldest;
mod peer_queues;
mod places;

pub(crate) use decision::{GrantRoom, next_fifo_grant, next_grant, window};

use crate::prefix::PrefixId;
use granted_bytes::GrantedBytes;
use oldest::OldestShare;
use peer_queues::PeerQueues;
use places::Places;

/// The messages that wait for grants.
#[derive(Debug)]
pub(crate) struct Grants {
    /// The waiting messages, in a queue for each peer.
    queues: PeerQueues,
    /// The order in which peers get places among the active messages.
    places: Places,
    /// The waiting messages by age.
    pub oldest: OldestShare,
    /// Bytes granted and not yet received, of all messages.
    pub granted: GrantedBytes,
    /// Maximum to which grants may raise the bytes granted and not yet received.
    budget: u64,
    /// Whether anything changed since grants were last chosen.
    pub dirty: bool,
}

impl Grants {
    /// Creates the state for `rpcs` RPCs. `window` is the configured window of one message; 0: none is
    /// configured.
    pub(crate) fn with_capacity(rpcs: usize, budget: u64, window: u64) -> Grants {
        Grants {
            queues: PeerQueues::with_capacity(rpcs),
            places: Places::new(),
            oldest: OldestShare::with_capacity(rpcs),
            granted: GrantedBytes::new(budget, window),
            budget,
            dirty: false,
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.queues.resize(slots);
        self.oldest.resize(slots);
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.queues.contains(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.is_empty()
    }

    /// Adds a message of `peer` that has `ungranted` bytes, at least 1, to be granted.
    pub(crate) fn add(&mut self, slot: u32, peer: u32, ungranted: u32) {
        self.places.ensure(peer);
        self.queues.insert(slot, peer, ungranted);
        self.oldest.add(slot);
        self.rank_peer(peer);
        self.dirty = true;
    }

    /// Sets the ungranted bytes of a message.
    pub(crate) fn update(&mut self, slot: u32, peer: u32, ungranted: u32) {
        if ungranted == 0 {
            self.remove(slot, peer);
        } else if self.queues.update(slot, peer, ungranted) {
            self.rank_peer(peer);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32, peer: u32) {
        if self.contains(slot) {
            self.remove_waiting(slot, peer);
        }
    }

    fn remove_waiting(&mut self, slot: u32, peer: u32) {
        self.queues.remove(slot, peer);
        self.oldest.remove(slot);
        self.rank_peer(peer);
        self.places.pass_turn(peer);
        self.dirty = true;
    }

    /// Ranks `peer` by its shortest message.
    fn rank_peer(&mut self, peer: u32) {
        let Some(queue) = self.queues.of(peer) else { return };
        match queue.first_key() {
            Some(ungranted) => self.places.rank(peer, ungranted),
            None => {
                self.places.remove(peer);
                self.queues.retire(peer);
            }
        }
    }

    /// Sets the prefix that a peer counts for; `None`: the peer is proven.
    pub(crate) fn set_prefix(&mut self, peer: u32, prefix: Option<PrefixId>) {
        self.granted.ensure(peer);
        if self.places.set_prefix(peer, prefix) {
            self.rank_peer(peer);
        }
    }

    /// Counts `bytes` granted to `peer` in its turn. A turn ends after `max_incoming` bytes, or when a
    /// message of the peer no longer waits.
    pub(crate) fn spend_turn(&mut self, peer: u32, bytes: u32) {
        self.places.spend_turn(peer, bytes, self.budget);
    }

    /// Returns the active messages in rank order: the shortest message of each of the first `max` peers
    /// (GRANT-2, GRANT-3).
    pub(crate) fn active(&self, max: usize) -> impl Iterator<Item = u32> + '_ {
        self.places.active(max).filter_map(|peer| self.queues.of(peer)?.first())
    }

    /// Sets the maximum to which grants may raise the bytes granted and not yet received. Returns whether the
    /// maximum rose.
    pub(crate) fn set_budget(&mut self, bytes: u64) -> bool {
        let more = bytes > self.budget;
        self.budget = bytes;
        self.dirty |= more;
        more
    }

    /// Returns approximately the ungranted bytes of the message that has the fewest.
    pub(crate) fn shortest(&self) -> Option<u32> {
        self.places.shortest()
    }

    /// Maximum to which grants may raise the bytes granted and not yet received.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Panics unless the queues agree; returns the waiting slots.
    pub(crate) fn check(&self) -> Vec<u32> {
        let (waiting, with_queue) = self.queues.check();
        assert_eq!(self.places.check(), with_queue, "peers with waiting messages");
        assert_eq!(self.oldest.check(), waiting.len(), "messages by age");
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_message_of_each_peer_is_active() {
        let mut grants = Grants::with_capacity(0, 400_000, 0);
        (0..3).for_each(|peer| grants.set_prefix(peer, None));
        for (slot, peer, ungranted) in [(0, 1, 9_000), (1, 0, 50_000), (2, 0, 500), (3, 2, 100), (4, 0, 20)] {
            grants.resize(slot as usize + 1);
            grants.add(slot, peer, ungranted);
        }
        assert_eq!(grants.active(8).collect::<Vec<_>>(), [4, 3, 0]);
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [4, 3]);
        grants.remove(4, 0);
        grants.update(0, 1, 90);
        assert_eq!(grants.active(8).collect::<Vec<_>>(), [0, 3, 2]);
        assert_eq!(grants.check().len(), 4);
    }

    // LIMIT-10
    #[test]
    fn the_last_place_of_unproven_peers_goes_from_peer_to_peer() {
        let mut grants = Grants::with_capacity(0, 400_000, 0);
        grants.resize(6);
        (0..3).for_each(|peer| grants.set_prefix(peer, Some(PrefixId::new(0))));
        for (slot, peer, ungranted) in [(0, 1, 9_000), (1, 0, 90_000), (2, 2, 500), (3, 2, 600)] {
            grants.add(slot, peer, ungranted);
        }
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [0], "it was the first to wait");
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [2, 0]);
        grants.spend_turn(2, 400_000);
        grants.spend_turn(1, 399_999);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [0]);
        grants.spend_turn(1, 1);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [1]);
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [2, 1]);
        grants.remove(1, 0);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [2]);
        grants.remove(2, 2);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [0], "another message of the same peer has to wait");
        assert_eq!(grants.check().len(), 2);
    }

    // LIMIT-10
    #[test]
    fn the_last_place_goes_from_prefix_to_prefix() {
        let mut grants = Grants::with_capacity(0, 400_000, 0);
        grants.resize(20);
        for peer in 0..11 {
            grants.set_prefix(peer, Some(PrefixId::new(usize::from(peer == 10))));
            grants.add(peer, peer, 90_000);
        }
        let mut turns = Vec::new();
        for _ in 0..6 {
            let peer = grants.active(1).next().unwrap();
            grants.spend_turn(peer, 400_000);
            turns.push(peer);
        }
        assert_eq!(turns, [0, 10, 1, 10, 2, 10]);
        grants.set_prefix(10, None);
        grants.remove(3, 3);
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [10, 4], "a proven peer and the next unproven one");
        assert_eq!(grants.check().len(), 10);
    }
}
