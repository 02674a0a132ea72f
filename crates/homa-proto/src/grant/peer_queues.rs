//! The messages with ungranted bytes, in a queue for each peer (PROTOCOL.md GRANT-3).

use crate::lists::Links;
use crate::srpt::SrptQueue;

/// Precision of the receiver's order: one part in 16 (GRANT-6).
const SUB: u32 = 4;

/// A queue of messages, or of peers, in the receiver's order.
pub(super) type GrantQueue = SrptQueue<SUB>;

/// Number of emptied queues kept for peers that need one later.
const SPARE_QUEUES: usize = 16;

/// For each peer, its messages with ungranted bytes, the shortest first.
#[derive(Debug)]
pub(super) struct PeerQueues {
    /// Links of RPC slots in their peer's queue.
    links: Links,
    queues: Vec<Option<GrantQueue>>,
    spare: Vec<GrantQueue>,
}

impl PeerQueues {
    pub(super) fn with_capacity(rpcs: usize) -> PeerQueues {
        PeerQueues { links: Links::with_capacity(rpcs), queues: Vec::new(), spare: Vec::new() }
    }

    /// Makes `slot` a valid index.
    pub(super) fn resize(&mut self, slots: usize) {
        self.links.resize(slots);
    }

    pub(super) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    /// Adds a message of `peer`.
    pub(super) fn insert(&mut self, slot: u32, peer: u32, ungranted: u32) {
        if self.queues.len() <= peer as usize {
            self.queues.resize_with(peer as usize + 1, || None);
        }
        let spare = &mut self.spare;
        let queue =
            self.queues[peer as usize].get_or_insert_with(|| spare.pop().unwrap_or_else(GrantQueue::new));
        queue.insert(&mut self.links, slot, ungranted);
    }

    /// Sets the ungranted bytes of a message. Returns whether the peer has a queue.
    pub(super) fn update(&mut self, slot: u32, peer: u32, ungranted: u32) -> bool {
        let Some(queue) = &mut self.queues[peer as usize] else { return false };
        queue.update(&mut self.links, slot, ungranted);
        true
    }

    /// Removes a message of `peer`. If it is the last one, [`retire`](PeerQueues::retire) must follow.
    pub(super) fn remove(&mut self, slot: u32, peer: u32) {
        if let Some(queue) = &mut self.queues[peer as usize] {
            queue.remove(&mut self.links, slot);
        }
    }

    /// The queue of `peer`, if it has messages that wait.
    pub(super) fn of(&self, peer: u32) -> Option<&GrantQueue> {
        self.queues[peer as usize].as_ref()
    }

    /// Removes the empty queue of `peer`.
    pub(super) fn retire(&mut self, peer: u32) {
        let queue = self.queues[peer as usize].take();
        if self.spare.len() < SPARE_QUEUES {
            self.spare.extend(queue);
        }
    }

    /// Panics unless the queues are consistent and none is empty; returns the waiting slots, and the peers
    /// that have a queue.
    pub(super) fn check(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut waiting, mut with_queue) = (Vec::new(), Vec::new());
        for (peer, queue) in self.queues.iter().enumerate() {
            let Some(queue) = queue else { continue };
            assert!(!queue.is_empty(), "peer {peer} keeps an empty queue");
            waiting.extend(queue.check(&self.links));
            with_queue.push(peer as u32);
        }
        (waiting, with_queue)
    }
}
