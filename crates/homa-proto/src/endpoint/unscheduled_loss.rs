//! Requesting unscheduled bytes that were lost in a queue overflow (PROTOCOL.md INCAST-4, INCAST-5).

use super::state::Endpoint;
use crate::message_in::UnscheduledState;
use crate::time::Time;

impl Endpoint {
    /// Changes the state of a message's unscheduled bytes. While they count as lost, no more of the message
    /// is granted.
    #[inline]
    pub(super) fn set_unscheduled_state(&mut self, slot: u32, to: UnscheduledState) {
        if self.rpcs[slot as usize].incoming.unscheduled_state != to {
            self.change_unscheduled_state(slot, to);
        }
    }

    fn change_unscheduled_state(&mut self, slot: u32, to: UnscheduledState) {
        let rpc = &mut self.rpcs[slot as usize];
        let incoming = &mut rpc.incoming;
        let (bytes, ungranted) = (incoming.outstanding(), incoming.ungranted());
        self.receiving.unscheduled_loss.place(slot, &mut incoming.unscheduled_state, to, bytes);
        if to == UnscheduledState::Lost {
            self.receiving.grants.remove(slot, rpc.peer);
        } else if ungranted > 0 && !incoming.is_stalled() && !self.receiving.grants.contains(slot) {
            self.receiving.grants.add(slot, rpc.peer, ungranted);
        }
    }

    /// Marks the message's unscheduled bytes as lost; they are requested when there is room.
    pub(super) fn mark_unscheduled_lost(&mut self, slot: u32) {
        self.set_unscheduled_state(slot, UnscheduledState::Lost);
        let rpc = &mut self.rpcs[slot as usize];
        self.receiving.grants.granted.recount(&mut rpc.incoming, rpc.peer, 0);
        self.receiving.grants.dirty = true;
        self.stats.unscheduled_lost += 1;
    }

    /// Records that packets arrived. If more bytes are in flight than grants alone permit, they count as lost
    /// after `incast_quiet_ns` without another packet.
    pub(super) fn watch_unscheduled(&mut self, now: Time) {
        let most = u64::from(self.config.max_incoming) + u64::from(self.config.fifo_grant_increment);
        self.receiving.unscheduled_loss.watch(
            now,
            self.receiving.grants.granted.total(),
            most,
            self.config.incast_quiet_ns,
        );
    }

    /// Marks the bytes that did not arrive as lost, a bounded number of messages at a time (INCAST-4).
    pub(super) fn detect_unscheduled_loss(&mut self, now: Time) {
        self.receiving.grants.dirty |= self.receiving.unscheduled_loss.take_left_requests();
        if !self.receiving.unscheduled_loss.is_due(now) {
            return;
        }
        for _ in 0..self.config.reap_limit {
            let Some(slot) = self.receiving.unscheduled_loss.first_in_flight() else { break };
            self.mark_unscheduled_lost(slot);
        }
        self.receiving.unscheduled_loss.overflowed(now);
        self.receiving.grants.dirty = true;
    }

    /// Requests the lost bytes, the shortest message first, as far as the grant budget allows
    /// (INCAST-5). Returns whether grants may be sent as well.
    pub(super) fn request_lost(&mut self, now: Time) -> bool {
        if self.receiving.unscheduled_loss.is_due(now) {
            return false; // Not all of them are marked yet.
        }
        let budget = self.grant_budget();
        for _ in 0..self.config.reap_limit {
            let Some(slot) = self.receiving.unscheduled_loss.first_lost() else { return true };
            let outstanding = self.rpcs[slot as usize].incoming.outstanding();
            let total = self.receiving.grants.granted.total();
            if total > 0 && total + u64::from(outstanding) > budget {
                // Arriving bytes make room for requesting this message's lost bytes, unless grants take that
                // room. Only shorter messages may therefore receive grants.
                return self.receiving.grants.shortest().is_some_and(|ungranted| ungranted < outstanding);
            }
            self.set_unscheduled_state(slot, UnscheduledState::InFlight);
            let rpc = &mut self.rpcs[slot as usize];
            let outstanding = rpc.incoming.outstanding();
            rpc.incoming.fresh = true;
            self.receiving.grants.granted.recount(&mut rpc.incoming, rpc.peer, outstanding);
            self.request_missing(slot, self.config.max_sched_prio);
            self.rpcs[slot as usize].wait.quiet_since = now;
            self.await_peer(now, slot);
        }
        self.receiving.unscheduled_loss.leave_requests();
        false
    }
}
