//! Loss of unscheduled bytes. If more unscheduled bytes were sent than may be in flight at all, and then no
//! packet arrives, a queue in the network has overflowed. RESENDs then request the missing bytes, limited to
//! the number of bytes that may be in flight (PROTOCOL.md INCAST-4, INCAST-5).
//!
//! The timers of RESEND would request the same bytes later and for all messages at once, and so overflow the
//! queue again.

use crate::endpoint::Endpoint;
use crate::lists::Links;
use crate::message_in::{RECLAIM_RANGES, UnscheduledState};
use crate::srpt::SrptQueue;
use crate::time::Time;

/// Precision of the order in which lost bytes are requested: one part in 16, as for grants (GRANT-6).
const SUB: u32 = 4;

/// The messages with unscheduled bytes in flight, or lost.
#[derive(Debug)]
pub(crate) struct LossAccounting {
    links: Links,
    coming: SrptQueue<SUB>,
    aside: SrptQueue<SUB>,
    /// When the bytes in flight count as lost, unless a packet arrives before.
    at: Option<Time>,
    /// When a queue in the network last overflowed, as far as known.
    overflowed: Option<Time>,
    /// There may be room for more requests than one call sends.
    more_to_ask: bool,
}

impl LossAccounting {
    pub(crate) fn with_capacity(rpcs: usize) -> LossAccounting {
        LossAccounting {
            links: Links::with_capacity(rpcs),
            coming: SrptQueue::new(),
            aside: SrptQueue::new(),
            at: None,
            overflowed: None,
            more_to_ask: false,
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn fit(&mut self, slots: usize) {
        self.links.fit(slots);
    }

    /// When `handle_timeout` must be called; [`Time::NEVER`] if nothing is due.
    pub(crate) fn next(&self, now: Time) -> Time {
        if self.more_to_ask { now } else { self.at.unwrap_or(Time::NEVER) }
    }

    /// Whether a queue in the network overflowed in the last `ns` nanoseconds.
    pub(crate) fn overflowed_since(&self, now: Time, ns: u64) -> bool {
        self.overflowed.is_some_and(|at| now.since(at) <= ns)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.coming.is_empty() && self.aside.is_empty()
    }

    /// Whether unscheduled bytes wait to be requested.
    pub(crate) fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Moves a message with `bytes` missing bytes to another state.
    fn place(&mut self, slot: u32, at: &mut UnscheduledState, to: UnscheduledState, bytes: u32) {
        match std::mem::replace(at, to) {
            UnscheduledState::Settled => {}
            UnscheduledState::Coming => self.coming.remove(&mut self.links, slot),
            UnscheduledState::Aside => self.aside.remove(&mut self.links, slot),
        }
        match to {
            UnscheduledState::Settled => {}
            UnscheduledState::Coming => self.coming.insert(&mut self.links, slot, bytes),
            UnscheduledState::Aside => self.aside.insert(&mut self.links, slot, bytes),
        }
    }

    /// Panics unless the queues agree. Returns the messages with bytes in flight, and those set aside.
    pub(crate) fn check(&self) -> (Vec<u32>, Vec<u32>) {
        let slots = |queue: &SrptQueue<SUB>| {
            let mut slots = queue.check(&self.links);
            slots.sort_unstable();
            slots
        };
        (slots(&self.coming), slots(&self.aside))
    }
}

impl Endpoint {
    /// Moves a message to another state of its unscheduled bytes. While they are set aside, nothing more of
    /// it is granted.
    #[inline]
    pub(crate) fn place_unasked(&mut self, slot: u32, to: UnscheduledState) {
        if self.rpcs[slot as usize].incoming.unasked != to {
            self.replace_unasked(slot, to);
        }
    }

    fn replace_unasked(&mut self, slot: u32, to: UnscheduledState) {
        let rpc = &mut self.rpcs[slot as usize];
        let incoming = &mut rpc.incoming;
        let (bytes, ungranted) = (incoming.outstanding(), incoming.ungranted());
        self.unscheduled_loss.place(slot, &mut incoming.unasked, to, bytes);
        if to == UnscheduledState::Aside {
            self.grants.remove(slot, rpc.peer);
        } else if ungranted > 0 && !incoming.is_stalled() && !self.grants.contains(slot) {
            self.grants.add(slot, rpc.peer, ungranted);
        }
    }

    /// Marks the message's unscheduled bytes as lost; they are requested when there is room.
    pub(crate) fn set_unasked_aside(&mut self, slot: u32) {
        self.place_unasked(slot, UnscheduledState::Aside);
        let rpc = &mut self.rpcs[slot as usize];
        self.grants.recount(&mut rpc.incoming, rpc.peer, 0);
        self.grants.dirty = true;
        self.stats.unscheduled_reclaimed += 1;
    }

    /// Packets arrived. If more bytes are in flight than grants alone could cause, they count as lost after
    /// `incast_quiet_ns` without another packet.
    pub(crate) fn watch_unasked(&mut self, now: Time) {
        let most = u64::from(self.config.max_incoming) + u64::from(self.config.fifo_grant_increment);
        let overflows = !self.unscheduled_loss.coming.is_empty() && self.grants.total_incoming > most;
        self.unscheduled_loss.at = overflows.then(|| now + self.config.incast_quiet_ns);
    }

    /// Sets aside the bytes that did not arrive, a bounded number of messages at a time (INCAST-4).
    pub(crate) fn reclaim_unasked(&mut self, now: Time) {
        self.grants.dirty |= std::mem::take(&mut self.unscheduled_loss.more_to_ask);
        if self.unscheduled_loss.at.is_none_or(|at| at > now) {
            return;
        }
        for _ in 0..self.config.reap_limit {
            let Some(slot) = self.unscheduled_loss.coming.first() else { break };
            self.set_unasked_aside(slot);
        }
        self.unscheduled_loss.overflowed = Some(now);
        let more = !self.unscheduled_loss.coming.is_empty();
        self.unscheduled_loss.at = more.then_some(now);
        self.grants.dirty = true;
    }

    /// Requests the bytes that were set aside, the shortest message first, as far as the grant budget allows
    /// (INCAST-5). Returns whether grants may be sent as well.
    pub(crate) fn ask_for_reclaimed(&mut self, now: Time) -> bool {
        if self.unscheduled_loss.at.is_some_and(|at| at <= now) {
            return false; // Not all of it has been set aside yet.
        }
        let budget = self.grant_budget();
        for _ in 0..self.config.reap_limit {
            let Some(slot) = self.unscheduled_loss.aside.first() else { return true };
            let outstanding = self.rpcs[slot as usize].incoming.outstanding();
            let total = self.grants.total_incoming;
            if total > 0 && total + u64::from(outstanding) > budget {
                // Arriving bytes make room for this message, unless grants take that room. Only shorter
                // messages may therefore get grants.
                return self.grants.shortest().is_some_and(|ungranted| ungranted < outstanding);
            }
            self.place_unasked(slot, UnscheduledState::Coming);
            let rpc = &mut self.rpcs[slot as usize];
            let outstanding = rpc.incoming.outstanding();
            rpc.incoming.fresh = true;
            self.grants.recount(&mut rpc.incoming, rpc.peer, outstanding);
            self.request_missing(slot, self.config.max_sched_prio, RECLAIM_RANGES);
            self.rpcs[slot as usize].quiet_since = now;
            self.await_peer(now, slot);
        }
        self.unscheduled_loss.more_to_ask = true;
        false
    }
}
