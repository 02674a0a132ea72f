//! The share of the oldest message: grants that it receives however many shorter messages wait (PROTOCOL.md
//! GRANT-9).

use crate::lists::{Links, List};

/// All waiting messages by age, and the credit of the oldest one.
#[derive(Debug)]
pub(crate) struct OldestShare {
    links: Links,
    /// The messages, oldest first.
    messages: List,
    /// Credit of the oldest message, in thousandths of a byte.
    credit: u64,
}

impl OldestShare {
    pub(super) fn with_capacity(rpcs: usize) -> OldestShare {
        OldestShare { links: Links::with_capacity(rpcs), messages: List::EMPTY, credit: 0 }
    }

    /// Makes `slot` a valid index.
    pub(super) fn resize(&mut self, slots: usize) {
        self.links.resize(slots);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message, as the newest.
    pub(super) fn add(&mut self, slot: u32) {
        self.links.push_back(&mut self.messages, 0, slot);
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.links.remove(&mut self.messages, slot);
    }

    /// Credits the oldest message with `share` thousandths of `bytes`, which were granted.
    pub(crate) fn earn(&mut self, bytes: u32, share: u32) {
        self.credit += u64::from(bytes) * u64::from(share);
    }

    /// Returns the oldest message, if its credit covers a grant of `increment` bytes.
    pub(crate) fn due(&mut self, increment: u32) -> Option<u32> {
        let cost = u64::from(increment) * 1000;
        // If the oldest message could not use its share because its last grant was still in flight, the share
        // must not accumulate.
        self.credit = self.credit.min(2 * cost);
        if increment == 0 || self.credit < cost {
            return None;
        }
        self.messages.head()
    }

    /// Deducts a grant of `bytes` to the oldest message from its credit. The grant itself also counts among
    /// the granted bytes, `share` thousandths of which are credited to the oldest message.
    pub(crate) fn spend(&mut self, bytes: u32, share: u32) {
        self.credit -= u64::from(bytes) * (1000 - u64::from(share));
    }

    /// Panics unless the list is consistent; returns the number of messages.
    pub(super) fn check(&self) -> usize {
        self.links.check(&self.messages, 0)
    }
}
