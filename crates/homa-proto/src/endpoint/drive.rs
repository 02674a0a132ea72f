//! The drive contract: packets and times go in; events and the time of the next call come out.

use super::state::Endpoint;
use crate::contract::{Event, Reassembly, RxPacket};
use crate::receive_coalescing::ReceiveRun;
use crate::time::Time;

impl Endpoint {
    /// Handles a burst of packets. The payload of incoming messages goes to `sink`; all other results must be
    /// polled.
    pub fn handle_packets<'a>(
        &mut self,
        now: Time,
        burst: impl IntoIterator<Item = RxPacket<'a>>,
        sink: &mut impl Reassembly,
    ) {
        let now = self.advance(now);
        self.handle_deferred_acks(now);
        let mut run = ReceiveRun::default();
        for packet in burst {
            if !self.continue_run(&mut run, &packet, sink) {
                self.end_run(now, &mut run);
                let cursor = self.handle_packet(now, &packet, sink);
                run.begin(packet, cursor);
            }
        }
        self.end_run(now, &mut run);
        if self.receiving.cutoffs.update(now, &self.config) {
            self.stats.cutoff_changes += 1;
        }
        // The endpoint that computes a host's cutoffs also sets its peers' limits: both share one version
        // (HOST-4).
        if !self.receiving.cutoffs.followed && self.receiving.incast_estimator.update(&self.config) {
            self.receiving.cutoffs.renew_version();
            self.stats.incast_limit_changes += 1;
        }
        self.watch_unscheduled(now);
        self.send_grants(now);
        self.reap(now);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which `handle_timeout` and `poll_transmit` must be called next. It may be in the
    /// past.
    pub fn poll_timeout(&self) -> Option<Time> {
        let reap = if self.has_reaping() { self.now } else { Time::NEVER };
        let pacer =
            if self.sending.ready.waits_for_pacer { self.sending.pacer.free_at() } else { Time::NEVER };
        let timers = self.waits.timers.next().min(self.waits.peer_timers.next());
        let tables =
            self.next_shrink().min(self.next_ack()).min(self.receiving.unscheduled_loss.next(self.now));
        let next = timers.min(tables).min(reap).min(pacer);
        (next != Time::NEVER).then_some(next)
    }

    /// Handles a bounded part of the work that is due, so that received packets need not wait. `poll_timeout`
    /// reports whether more is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.advance(now);
        if !self.waits.deferred_acks.is_empty() {
            self.handle_deferred_acks(now);
            if self.poll_timeout().is_none_or(|due| due > now) {
                // Nothing else was due. Every RPC of a server reaches this point.
                self.send_grants(now);
                return;
            }
        }
        self.reap(now);
        let mut budget = self.config.reap_limit;
        while let Some(slot) = self.waits.timers.pop_due(now, &mut budget) {
            self.rpc_timer(now, slot);
        }
        while let Some(peer) = self.waits.peer_timers.pop_due(now, &mut budget) {
            self.peer_timer(now, peer);
        }
        self.send_due_acks(now);
        self.expire_finished(now);
        self.detect_unscheduled_loss(now);
        self.send_grants(now);
        self.shrink_if_due(now);
        // A caller whose driver is full cannot poll for packets, so do not report the same pacer time again.
        self.sending.ready.waits_for_pacer &= !self.sending.pacer.may_send(now);
    }

    /// Returns whether only peers and finished ids are left: no RPC, timer, queued packet or counted byte
    /// (ABORT-7).
    pub fn is_idle(&self) -> bool {
        self.rpcs.is_empty()
            && self.waits.timers.armed() == 0
            && self.sending.ready.is_empty()
            && self.sending.retransmits.len() == 0
            && self.sending.control.is_empty()
            && self.receiving.grants.is_empty()
            && self.receiving.grants.granted.total() == 0
            && self.receiving.unscheduled_loss.is_empty()
            && (self.sending.outgoing_bytes, self.receiving.incoming_bytes) == (0, 0)
            && self.tables.ids.is_empty()
            && !self.has_reaping()
    }
}
