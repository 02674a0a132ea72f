//! Choosing and sending grants (PROTOCOL.md GRANT).

use homa_trace::EventKind;

use super::state::Endpoint;
use crate::grant::{GrantRoom, next_fifo_grant, next_grant, window};
use crate::incast;
use crate::peer::peer_number;
use crate::priority;
use crate::time::Time;
use crate::wire::{Body, Grant};

impl Endpoint {
    /// Returns the bytes granted and not yet received, including unscheduled bytes, summed over all incoming
    /// messages. Grants to proven peers raise the sum to at most `max_incoming` (GRANT-5).
    pub fn granted_bytes(&self) -> u64 {
        self.receiving.grants.granted.total()
    }

    /// Returns the part of [`granted_bytes`](Endpoint::granted_bytes) that counts against `max_incoming` in
    /// grants to proven peers (LIMIT-10).
    pub fn counted_bytes(&self) -> u64 {
        self.receiving.grants.granted.counted(self.receiving.grants.budget())
    }

    /// Returns whether any incoming message has ungranted bytes.
    pub fn waits_for_grants(&self) -> bool {
        !self.receiving.grants.is_empty()
    }

    /// Returns the bytes that may still be granted within the windows of the active messages.
    pub(super) fn grant_windows(&self) -> u64 {
        let max = self.config.max_overcommit as usize;
        let window = window(&self.config, self.receiving.grants.active(max).count());
        let open = |slot: u32| {
            let incoming = &self.rpcs[slot as usize].incoming;
            let end = incoming.received.saturating_add(window).min(incoming.length);
            u64::from(end.saturating_sub(incoming.granted))
        };
        self.receiving.grants.active(max).map(open).sum()
    }

    /// Returns the maximum bytes granted and not yet received: the budget minus the reserve for unscheduled
    /// bytes.
    pub(super) fn grant_budget(&self) -> u64 {
        let budget = self.receiving.grants.budget();
        budget
            - incast::reserved(
                self.now,
                budget,
                &self.receiving.unscheduled_quota,
                &self.receiving.incast_estimator,
            )
    }

    /// Chooses and queues grants. Called once at the end of a burst, which costs less than choosing after
    /// each of its packets.
    #[inline]
    pub(super) fn send_grants(&mut self, now: Time) {
        if !std::mem::take(&mut self.receiving.grants.dirty)
            || self.receiving.grants.is_empty() && !self.receiving.unscheduled_loss.has_lost()
        {
            return;
        }
        self.choose_grants(now);
    }

    fn choose_grants(&mut self, now: Time) {
        if !self.request_lost(now) || self.receiving.grants.is_empty() {
            return;
        }
        let most = self.grant_budget();
        if self.receiving.grants.granted.counted(most) >= most {
            // The budget is used up, as it is after most packets at a busy receiver.
            self.send_fifo_grant(now);
            return;
        }
        let max = self.config.max_overcommit as usize;
        let mut active = std::mem::take(&mut self.receiving.active);
        active.clear();
        active.extend(self.receiving.grants.active(max));
        let window = window(&self.config, active.len());
        for (rank, &slot) in active.iter().enumerate() {
            let incoming = &self.rpcs[slot as usize].incoming;
            let peer = self.rpcs[slot as usize].peer;
            let counted = self.receiving.grants.granted.counted_for(incoming, peer, most);
            let budget = most.saturating_sub(counted);
            let (received, granted, length) = (incoming.received, incoming.granted, incoming.length);
            // GRANT-8: an increment above the budget would never be available.
            let min_increment = u64::from(self.config.min_grant_increment).min(most / 2) as u32;
            let payload = self.max_payload(peer);
            let room = GrantRoom { window, budget, min_increment, payload };
            if let Some(end) = next_grant(received, granted, length, room) {
                let priority = priority::scheduled(rank, active.len(), self.config.max_sched_prio);
                self.grant(now, slot, end, priority);
                self.receiving.grants.oldest.earn(end - granted, self.config.grant_fifo_fraction);
            }
        }
        self.receiving.active = active;
        self.send_fifo_grant(now);
    }

    /// GRANT-9: grants the oldest message its share, at the highest priority of any grant (GRANT-10).
    fn send_fifo_grant(&mut self, now: Time) {
        let increment = self.config.fifo_grant_increment;
        let Some(slot) = self.receiving.grants.oldest.due(increment) else { return };
        let rpc = &self.rpcs[slot as usize];
        let Some(end) = next_fifo_grant(&rpc.incoming, increment, self.max_payload(rpc.peer)) else { return };
        self.receiving.grants.oldest.spend(end - rpc.incoming.granted, self.config.grant_fifo_fraction);
        self.stats.fifo_grants += 1;
        let highest = self.config.num_priorities.saturating_sub(2).max(self.config.max_sched_prio);
        self.grant(now, slot, end, highest);
    }

    /// Raises the granted end of an incoming message to `end` (GRANT-7: never lowers it) and sends the grant.
    fn grant(&mut self, now: Time, slot: u32, end: u32, priority: u8) {
        let rpc = &mut self.rpcs[slot as usize];
        rpc.incoming.fresh |= !rpc.incoming.expects_bytes();
        let bytes = end - rpc.incoming.granted;
        rpc.incoming.granted = end;
        let outstanding = rpc.incoming.outstanding();
        self.receiving.grants.granted.recount(&mut rpc.incoming, rpc.peer, outstanding);
        let (peer, ungranted, id) = (rpc.peer, rpc.incoming.ungranted(), rpc.id);
        self.receiving.grants.spend_turn(peer, bytes);
        self.receiving.grants.update(slot, peer, ungranted);
        self.await_peer(now, slot);
        self.stats.grants_sent += 1;
        self.trace.record_with(
            EventKind::GrantSent,
            id,
            end,
            u32::from(priority),
            peer_number(peer),
            priority,
        );
        self.send_control(slot, Body::Grant(Grant { offset: end, priority }));
    }
}
