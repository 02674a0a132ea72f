//! How long RPCs wait: only progress restarts their timeouts (PROTOCOL.md PEER-3, PEER-14, PEER-15).

use super::state::Endpoint;
use crate::resend_mark::Request;
use crate::rpc::RpcState;
use crate::time::{SEC, Time};

/// Minimum interval between checks of an RPC whose next step is local: a packet to send or a grant to give. A
/// million RPCs may be in this state, and each check takes 80 instructions. A driver that accepts no packets
/// is detected after the same interval.
const WATCH_NS: u64 = SEC;

impl Endpoint {
    /// Records a RESEND for the RPC's outgoing message, beginning at `offset` (PEER-3). The RESEND is
    /// progress only if it begins at a higher offset than all earlier RESENDs. A client that requests a
    /// response keeps the server's RPC alive, until PEER-15 ends it.
    pub(super) fn note_requested(&mut self, now: Time, slot: u32, offset: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        if !matches!(rpc.state, RpcState::Requesting | RpcState::Responding) {
            return;
        }
        // While these bytes wait here to be sent, for the first time or again, the RESEND does not show
        // whether they have arrived.
        let waits_here = self.sending.retransmits.contains(slot) || offset >= rpc.outgoing.next;
        let request = if waits_here { Request::Between } else { rpc.requested.note(offset) };
        // A planted fault that the swarm must find: a peer that requests the same bytes repeatedly keeps an
        // RPC alive.
        #[cfg(homa_canary)]
        let request = match request {
            Request::Repeated if crate::planted_faults::has("resend_keeps_rpc") => Request::Beyond,
            request => request,
        };
        match request {
            Request::Beyond => rpc.wait.progressed(now),
            _ if rpc.state == RpcState::Responding => rpc.wait.sign_of_life(now),
            Request::Ahead => rpc.wait.sign_of_life(now),
            Request::Repeated | Request::Between => {}
        }
        if !waits_here {
            self.request_path_check(now, slot);
        }
    }

    /// Schedules a check of the RPC in at most `interval_ns`.
    pub(super) fn schedule_check_within(&mut self, now: Time, slot: u32, interval_ns: u64) {
        if self.waits.resend_links.list_of(slot).is_none() {
            self.waits.timers.arm_by(slot, now + interval_ns);
        }
    }

    /// PEER-15: schedules a check of an RPC that waits for a local step, after `WATCH_NS` at the latest.
    pub(super) fn schedule_rare_check(&mut self, now: Time, slot: u32) {
        self.schedule_check_within(now, slot, WATCH_NS.min(self.config.max_stall_ns));
    }

    /// PEER-15: schedules a check of an RPC that expects nothing from its peer. The interval grows with each
    /// check, since many RPCs may wait in this state for a long time.
    pub(super) fn watch(&mut self, now: Time, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        let pause_ns = now.since(rpc.wait.progress_at).max(WATCH_NS);
        let at = (now + pause_ns).min(rpc.wait.stalled_at(self.config.max_stall_ns));
        self.waits.timers.arm(slot, at);
    }

    /// PEER-14: handles the timer of an RPC with bytes to send. While other messages are sent, the RPC waits
    /// its turn. If nothing at all is sent, the driver accepts no packets. A client tolerates this for as
    /// long as it tolerates a peer's silence.
    pub(super) fn sender_timer(&mut self, now: Time, slot: u32) {
        let (floor, ceiling) = (self.config.resend_interval_ns, self.config.resend_interval_max_ns);
        let rpc = &mut self.rpcs[slot as usize];
        let due = rpc.wait.due(floor, ceiling);
        let link_is_busy =
            self.sending.last_sent >= rpc.wait.quiet_since || !self.sending.pacer.may_send(now);
        if rpc.state != RpcState::Requesting || link_is_busy {
            rpc.wait.quiet_since = now;
            self.watch(now, slot);
        } else if now < due {
            self.waits.timers.arm(slot, due);
        } else if u32::from(rpc.wait.tries) >= self.config.max_resends {
            self.give_up(now, slot);
        } else {
            rpc.wait.count_try(now);
            let due = rpc.wait.due(floor, ceiling);
            self.waits.timers.arm(slot, due);
        }
    }
}
