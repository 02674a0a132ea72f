//! The messages that have bytes to send, and the choice among them (PROTOCOL.md SEND).

use crate::lists::{Links, List};
use crate::srpt::{SrptQueue, bucket_of};

/// Precision of the sender's order: one part in 64 (SEND-4).
const SUB: u32 = 6;

/// Returns whether a message with `left` bytes to send is longer than a message with `bytes` to send, by more
/// than the precision of the sender's order.
pub(crate) fn is_clearly_longer(left: u32, bytes: u32) -> bool {
    bucket_of(left, SUB) > bucket_of(bytes, SUB)
}

/// The messages that have bytes to send and may send them.
#[derive(Debug)]
pub(crate) struct Ready {
    links: Links,
    shortest: SrptQueue<SUB>,
    fifo_links: Links,
    fifo: List,
    /// Credit of the oldest message, in thousandths of a byte (SEND-5).
    fifo_credit: u64,
    /// Whether the last poll found only packets that the pacer holds back.
    pub waits_for_pacer: bool,
    /// Whether other endpoints of this host have shorter messages and therefore precedence.
    pub gives_way: bool,
}

impl Ready {
    pub(crate) fn with_capacity(rpcs: usize) -> Ready {
        Ready {
            links: Links::with_capacity(rpcs),
            shortest: SrptQueue::new(),
            fifo_links: Links::with_capacity(rpcs),
            fifo: List::EMPTY,
            fifo_credit: 0,
            waits_for_pacer: false,
            gives_way: false,
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.links.resize(slots);
        self.fifo_links.resize(slots);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shortest.is_empty()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    /// Inserts the message at the position for its remaining bytes, or moves it there.
    pub(crate) fn place(&mut self, slot: u32, remaining: u32) {
        if self.links.list_of(slot).is_some() {
            self.shortest.update(&mut self.links, slot, remaining);
        } else {
            self.shortest.insert(&mut self.links, slot, remaining);
            self.fifo_links.push_back(&mut self.fifo, 0, slot);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.contains(slot) {
            self.remove_ready(slot);
        }
    }

    fn remove_ready(&mut self, slot: u32) {
        self.shortest.remove(&mut self.links, slot);
        self.fifo_links.remove(&mut self.fifo, slot);
    }

    /// Returns the message whose turn it is (SEND-3): the shortest, or the oldest if its credit covers a
    /// packet of `packet` bytes.
    pub(crate) fn choose(&self, packet: u32) -> Option<u32> {
        let earned = self.fifo_credit >= u64::from(packet) * 1000;
        if earned { self.fifo.head() } else { self.shortest.first() }
    }

    /// Accounts for `bytes` sent from the message that was chosen to send a packet of at most `packet` bytes.
    /// The oldest message is credited with `share` thousandths of these bytes.
    pub(crate) fn account(&mut self, bytes: u32, packet: u32, share: u32) {
        if self.fifo_credit >= u64::from(packet) * 1000 {
            // On a path whose packets are longer than `max_packet`, one packet may cost more than the credit.
            self.fifo_credit = self.fifo_credit.saturating_sub(u64::from(bytes) * 1000);
        }
        if self.shortest.len() > 1 {
            self.fifo_credit += u64::from(bytes) * u64::from(share);
        }
    }

    /// Returns the shortest message, if messages wait for the pacer.
    pub(crate) fn shortest_waiting(&self) -> Option<u32> {
        if self.waits_for_pacer { self.shortest.first() } else { None }
    }

    /// Returns the shortest message, unless it is the oldest message's turn to send a packet of `packet`
    /// bytes.
    pub(crate) fn shortest_in_turn(&self, packet: u32) -> Option<u32> {
        let earned = self.fifo_credit >= u64::from(packet) * 1000;
        if earned { None } else { self.shortest.first() }
    }

    /// Records that other endpoints sent `bytes` while they had precedence. Credits the oldest message here
    /// with its share of these bytes, up to a packet of `packet` bytes.
    pub(crate) fn earn(&mut self, bytes: u32, packet: u32, share: u32) {
        let most = self.fifo_credit.max(u64::from(packet) * 1000);
        self.fifo_credit = (self.fifo_credit + u64::from(bytes) * u64::from(share)).min(most);
    }

    /// Like [`Ready::account`], for further packets of the chosen message while it is the shortest message's
    /// turn. Returns how many of `packets`, each of `bytes`, were accounted for.
    pub(crate) fn account_run(&mut self, packets: u32, bytes: u32, packet: u32, share: u32) -> u32 {
        if self.shortest.len() <= 1 || share == 0 {
            return if self.fifo_credit >= u64::from(packet) * 1000 { 0 } else { packets };
        }
        for accounted in 0..packets {
            if self.fifo_credit >= u64::from(packet) * 1000 {
                return accounted;
            }
            self.account(bytes, packet, share);
        }
        packets
    }

    /// Panics unless both orders hold the same messages; returns them.
    pub(crate) fn check(&self) -> Vec<u32> {
        let slots = self.shortest.check(&self.links);
        assert_eq!(self.fifo_links.check(&self.fifo, 0), slots.len(), "ready messages by age");
        slots
    }
}
