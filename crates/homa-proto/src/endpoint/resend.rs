//! Silence and loss: when to send RESEND, and how to answer it (PROTOCOL.md RESEND, PEER).

use std::net::SocketAddr;
use std::ops::Range;

use homa_trace::EventKind;

use super::receive::ReceivedPacket;
use super::state::Endpoint;
use crate::contract::{DoneReason, RpcError};
use crate::message_in::{FirstPacket, MAX_RANGES, UnscheduledState};
use crate::peer::peer_number;
use crate::rpc::RpcState;
use crate::silence::SilenceAction;
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::{Body, Common, Resend, UnknownReason};

/// Maximum number of RPCs examined to find one for a probe.
const PROBE_LOOKS: usize = 16;

/// The purpose of a timer: `b` of [`EventKind::TimerFired`].
#[derive(Clone, Copy)]
enum TimerPurpose {
    Resend = 1,
    NeedAck = 2,
    GivenUp = 3,
    Probe = 4,
}

impl Endpoint {
    /// Starts waiting for an RPC's peer: RESEND is due if nothing arrives for an interval.
    pub(super) fn await_peer(&mut self, now: Time, slot: u32) {
        self.schedule_check_within(now, slot, self.config.resend_interval_ns);
    }

    /// Handles the timer of an RPC. The RPC's state determines whether anything is due.
    pub(super) fn rpc_timer(&mut self, now: Time, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        if rpc.epoch != self.peers[rpc.peer].incarnation.epoch() {
            self.end_of_earlier_epoch(now, slot);
        } else if rpc.state == RpcState::InService {
            // The application is processing the request, which has no time limit.
        } else if now >= rpc.wait.stalled_at(self.config.max_stall_ns) {
            self.give_up(now, slot); // PEER-15
        } else if rpc.state == RpcState::Responding && rpc.outgoing.all_sent() {
            self.need_ack_timer(now, slot);
        } else {
            self.check_progress(slot);
            if self.rpcs[slot as usize].outgoing.is_ready() || self.sending.retransmits.contains(slot) {
                self.sender_timer(now, slot);
            } else if self.waits_for_peer(slot) {
                self.receiver_timer(now, slot);
            } else {
                self.watch(now, slot);
            }
        }
    }

    /// Returns whether the next step is the peer's: bytes, or at least a sign of life, are due from it
    /// (RESEND-3). If the next step is our own (a packet to send or a grant to give), that step rearms the
    /// timer for an earlier time.
    pub(super) fn waits_for_peer(&self, slot: u32) -> bool {
        let rpc = &self.rpcs[slot as usize];
        match rpc.state {
            _ if rpc.incoming.unscheduled_state == UnscheduledState::Lost => false,
            RpcState::Requesting => !rpc.outgoing.is_ready(),
            RpcState::ResponseArriving | RpcState::RequestArriving => rpc.incoming.expects_bytes(),
            RpcState::InService | RpcState::Responding => false,
        }
    }

    /// Returns the time at which the RPC has been silent for long enough to send RESEND.
    fn resend_due(&self, slot: u32) -> Time {
        let rpc = &self.rpcs[slot as usize];
        let (floor, ceiling) = (self.config.resend_interval_ns, self.config.resend_interval_max_ns);
        if rpc.wait.backoff == 0 && rpc.awaits_answer() {
            let answers = &self.peers[rpc.peer].resends.answers;
            return answers.first_resend(rpc.wait.quiet_since, floor); // RESEND-23
        }
        rpc.wait.due(floor, ceiling)
    }

    /// RESEND-1, RESEND-2: handles the timer of an RPC that waits for bytes. Client and server use the same
    /// rules to request missing bytes.
    fn receiver_timer(&mut self, now: Time, slot: u32) {
        let due = self.resend_due(slot);
        let rpc = &self.rpcs[slot as usize];
        if now < due {
            if rpc.wait.backoff == 0 && now >= rpc.wait.quiet_since + self.config.resend_interval_ns {
                self.peers[rpc.peer].resends.answers.prolong();
            }
            self.waits.timers.arm(slot, due);
        // RESEND-6, PEER-12
        } else if u32::from(rpc.wait.tries) >= self.config.max_resends {
            self.give_up(now, slot);
        } else {
            let peer = rpc.peer;
            let known = &mut self.peers[peer];
            self.waits.resend_links.push_back(&mut known.resends.queue, peer, slot);
            let at = known.resends.next(now, &self.config);
            if at <= now {
                self.serve_resends(now, peer);
            } else {
                self.waits.peer_timers.arm_by(peer, at);
            }
        }
    }

    /// SHARE-7: checks a message's progress. A message whose bytes arrive too slowly must not keep other
    /// messages from getting grants.
    fn check_progress(&mut self, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        if rpc.incoming.expects_bytes() && rpc.incoming.stalls() {
            self.receiving.grants.granted.recount(&mut rpc.incoming, rpc.peer, 0);
            self.receiving.grants.remove(slot, rpc.peer);
            self.receiving.grants.dirty = true;
            // Other messages must no longer wait for bytes of this one.
            self.set_unscheduled_state(slot, UnscheduledState::Settled);
            self.stats.messages_stalled += 1;
        }
    }

    /// Records that a timer of this RPC fired and had an effect. Most firings only check the state and are
    /// not recorded.
    fn note_timer(&mut self, now: Time, due: Time, slot: u32, fired: TimerPurpose) {
        let late = now.since(due).min(u64::from(u32::MAX)) as u32;
        let rpc = &self.rpcs[slot as usize];
        self.trace.record_with(EventKind::TimerFired, rpc.id, late, fired as u32, peer_number(rpc.peer), 0);
    }

    /// PEER-1, PEER-2: gives up this RPC only, since the peer may still serve its other RPCs.
    pub(super) fn give_up(&mut self, now: Time, slot: u32) {
        self.note_timer(now, self.resend_due(slot), slot, TimerPurpose::GivenUp);
        let rpc = &self.rpcs[slot as usize];
        if rpc.state.is_client() {
            self.forget_dialect(rpc.peer); // DIALECT-3
            let rpc = &self.rpcs[slot as usize];
            let error = if rpc.wait.unknown_received { RpcError::ResponseLost } else { RpcError::Timeout };
            self.end_with_error(slot, error);
        } else {
            self.end_server(now, slot, DoneReason::ClientSilent);
        }
    }

    /// Sends RESENDs for as many of a peer's silent RPCs as its rate allows (RESEND-7), a bounded number at a
    /// time. An RPC that received a packet while it was queued leaves the queue without a RESEND.
    fn serve_resends(&mut self, now: Time, peer: u32) {
        for _ in 0..self.config.reap_limit {
            let known = &mut self.peers[peer];
            let Some(slot) = known.resends.queue.head() else { return };
            if known.resends.next(now, &self.config) > now {
                break;
            }
            self.waits.resend_links.remove(&mut known.resends.queue, slot);
            let due = self.resend_due(slot);
            if !self.waits_for_peer(slot) {
                if self.rpcs[slot as usize].state != RpcState::InService {
                    self.schedule_check_within(now, slot, self.config.resend_interval_ns);
                }
                continue;
            }
            if now < due {
                self.waits.timers.arm(slot, due);
                continue;
            }
            self.peers[peer].resends.take(now, &self.config);
            self.note_timer(now, due, slot, TimerPurpose::Resend);
            self.send_resend_round(now, slot);
        }
        if !self.peers[peer].resends.queue.is_empty() {
            let at = self.peers[peer].resends.next(now, &self.config);
            self.waits.peer_timers.arm_by(peer, at.max(now));
        }
    }

    /// Sends a round of RESENDs, and doubles the interval to the next round.
    fn send_resend_round(&mut self, now: Time, slot: u32) {
        let highest = self.config.num_priorities - 1;
        let reopens = self.awaits_first_grant(slot) && self.rpcs[slot as usize].state == RpcState::Requesting;
        let rpc = &mut self.rpcs[slot as usize];
        if rpc.wait.backoff == 0 && rpc.awaits_answer() {
            self.peers[rpc.peer].resends.answers.ask(now);
        }
        let overflowed =
            self.receiving.unscheduled_loss.overflowed_since(now, self.config.resend_interval_max_ns);
        rpc.wait.requested_in_part = rpc.incoming.length == 0 && rpc.state.is_client() && overflowed;
        if reopens {
            self.reopen(slot); // DIALECT-5
        } else if rpc.wait.requested_in_part {
            // INCAST-8: after a queue overflow, requesting every response in full would overflow the queue
            // again. Request only its first bytes; once they arrive, it is known which bytes are missing.
            self.send_resend(slot, Some(0..self.config.min_unsched_bytes), highest);
        } else {
            self.request_round(slot, highest);
        }
        let rpc = &mut self.rpcs[slot as usize];
        rpc.wait.count_try(now);
        rpc.wait.resend_sent |= !reopens;
        // GRANT-11: the grants of a silent sender go to other senders until the silent one sends again.
        self.receiving.grants.granted.recount(&mut rpc.incoming, rpc.peer, 0);
        self.receiving.grants.dirty = true;
        let due = self.resend_due(slot);
        self.waits.timers.arm(slot, due);
    }

    /// Sends one round of RESENDs for the missing bytes.
    fn request_round(&mut self, slot: u32, priority: u8) {
        let rpc = &self.rpcs[slot as usize];
        if rpc.incoming.first == FirstPacket::Start && rpc.incoming.expects_bytes() {
            // A lost grant is more likely than the loss of every byte. A sender that gets the grant and then
            // a RESEND would send everything twice.
            let lacks_grant = rpc.incoming.received == 0 && rpc.wait.backoff == 0;
            self.repeat_grant(slot); // DIALECT-8
            if lacks_grant {
                return;
            }
        }
        self.request_missing(slot, priority);
    }

    /// Handles the timer of a peer: sends RESENDs that the rate limit had delayed, and checks the peer's
    /// silence.
    pub(super) fn peer_timer(&mut self, now: Time, peer: u32) {
        if !self.peers.contains(peer) {
            return;
        }
        self.serve_resends(now, peer);
        let known = &mut self.peers[peer];
        if known.rpcs.servers() == 0 {
            return;
        }
        match known.silence.check(now, self.config.client_silence_ns) {
            SilenceAction::Wait(next) => self.waits.peer_timers.arm_by(peer, next),
            SilenceAction::Probe(next) => {
                self.probe_client(peer);
                self.waits.peer_timers.arm_by(peer, next);
            }
            SilenceAction::End => {
                if !std::mem::replace(&mut known.silence.ends, true) {
                    self.lifetimes.reaper.end_silent(peer); // PEER-5
                }
            }
        }
    }

    /// Probes a silent client with NEED_ACK: a client that waits for grants from this host has nothing to
    /// send (ACK-6).
    fn probe_client(&mut self, peer: u32) {
        // If we are the client of an RPC, our own RESENDs make the peer answer. So examining a few RPCs is
        // enough: either one of them is a server RPC, or no probe is needed.
        let known = &self.peers[peer];
        let oldest = self.tables.peer_rpcs.iter(&known.rpcs.list).take(PROBE_LOOKS);
        let server = oldest.into_iter().find(|&slot| !self.rpcs[slot as usize].state.is_client());
        if let Some(slot) = server.filter(|&slot| self.rpcs[slot as usize].epoch == known.incarnation.epoch())
        {
            self.stats.need_acks_sent += 1;
            self.note_timer(self.now, self.now, slot, TimerPurpose::Probe);
            self.send_control(slot, Body::NeedAck);
        }
    }

    /// Counts a RESEND that is not due yet against the rate limit of the RPC's peer (RESEND-7). Returns
    /// whether the limit permits it; the caller then sends the RESEND.
    pub(super) fn take_resend_now(&mut self, now: Time, slot: u32) -> bool {
        self.peers[self.rpcs[slot as usize].peer].resends.take_if_due(now, &self.config)
    }

    /// Requests the missing bytes (RESEND-4). Returns whether any are missing.
    pub(super) fn request_missing(&mut self, slot: u32, priority: u8) -> bool {
        let rpc = &self.rpcs[slot as usize];
        if rpc.incoming.length == 0 {
            self.send_resend(slot, None, priority);
            return true;
        }
        let mut ranges: [Range<u32>; MAX_RANGES] = Default::default();
        let mut count = 0;
        for range in rpc.incoming.missing().take(MAX_RANGES) {
            ranges[count] = range;
            count += 1;
        }
        for range in &ranges[..count] {
            self.send_resend(slot, Some(range.clone()), priority);
        }
        count > 0
    }

    fn send_resend(&mut self, slot: u32, range: Option<Range<u32>>, priority: u8) {
        let (offset, length) = range.map_or((0, None), |range| (range.start, Some(range.end - range.start)));
        self.stats.resends_sent += 1;
        let rpc = &self.rpcs[slot as usize];
        let (id, number) = (rpc.id, peer_number(rpc.peer));
        self.trace.record_with(
            EventKind::ResendSent,
            id,
            length.unwrap_or(u32::MAX),
            offset,
            number,
            priority,
        );
        self.send_control(slot, Body::Resend(Resend { offset, length, priority }));
    }

    /// Handles the timer for NEED_ACK (ACK-9, ACK-10).
    fn need_ack_timer(&mut self, now: Time, slot: u32) {
        let (floor, ceiling) = (self.config.need_ack_interval_ns, self.config.need_ack_interval_max_ns);
        let rpc = &self.rpcs[slot as usize];
        let due = rpc.wait.due(floor, ceiling);
        if now < due {
            self.waits.timers.arm(slot, due);
            return;
        }
        let tries = u32::from(rpc.wait.tries);
        self.note_timer(now, due, slot, TimerPurpose::NeedAck);
        if tries >= self.config.max_need_acks {
            self.end_server(now, slot, DoneReason::ClientSilent);
            return;
        }
        let rpc = &mut self.rpcs[slot as usize];
        rpc.wait.back_off(now);
        self.waits.timers.arm(slot, rpc.wait.due(floor, ceiling));
        if !self.peers[rpc.peer].resends.take_need_ack(now, &self.config) {
            return; // RESEND-22: it is sent at a later firing.
        }
        let rpc = &mut self.rpcs[slot as usize];
        rpc.wait.tries = rpc.wait.tries.saturating_add(1);
        self.stats.need_acks_sent += 1;
        self.send_control(slot, Body::NeedAck);
    }

    pub(super) fn handle_resend(
        &mut self,
        now: Time,
        packet: &ReceivedPacket<'_>,
        resend: &Resend,
    ) -> Result<(), DropCause> {
        let Ok(slot) = packet.rpc else {
            return self.answer_unknown_resend(now, packet.rx.from, packet.peer, packet.common);
        };
        self.note_requested(now, slot, resend.offset);
        let rpc = &mut self.rpcs[slot as usize];
        self.peers[rpc.peer].rtt.discard_probe(rpc.id);
        if rpc.state.is_client() {
            let peer = rpc.peer;
            self.mark_served(peer); // SHARE-3: the server knows the id of our call.
        }
        let rpc = &self.rpcs[slot as usize];
        let (length, number) = (resend.length.unwrap_or(u32::MAX), peer_number(rpc.peer));
        self.trace.record_with(
            EventKind::ResendReceived,
            rpc.id,
            length,
            resend.offset,
            number,
            resend.priority,
        );
        match rpc.state {
            RpcState::Requesting | RpcState::Responding => self.send_again(slot, resend), // SEND-14
            RpcState::ResponseArriving => Ok(()), // Older than the response that has begun.
            RpcState::InService => {
                self.send_busy(slot); // RESEND-11
                Ok(())
            }
            RpcState::RequestArriving => {
                let lost = rpc.incoming.unscheduled_state == UnscheduledState::Lost;
                // DIALECT-13: to a kernel client, a RESEND from the server is no sign of life.
                let needs_busy = !self.peers[rpc.peer].is_ours();
                let requests = !lost && self.request_missing(slot, self.config.num_priorities - 1);
                if !requests || needs_busy {
                    self.send_busy(slot); // RESEND-12
                }
                Ok(())
            }
        }
    }

    /// Handles a RESEND for an RPC that does not exist here (RESEND-13).
    pub(super) fn answer_unknown_resend(
        &mut self,
        now: Time,
        from: SocketAddr,
        peer: Option<u32>,
        common: &Common,
    ) -> Result<(), DropCause> {
        let ran = common.sender_id & 1 == 0 && self.has_run(now, peer, common.sender_id | 1);
        let reads_reason = !common.incarnation.is_none() && !self.incarnation.is_none();
        let reason = match (ran, reads_reason) {
            (false, true) if self.is_owner_lost(now, common) => UnknownReason::OwnerGone, // HOST-10
            (false, _) => UnknownReason::Unknown,
            (true, true) => UnknownReason::Finished,
            // AMO-4: a client that ignores the reason would keep sending the request, for longer than the id
            // is remembered. Send nothing: silence makes the client end the RPC.
            (true, false) => return Err(drop_as!(drop_finished)),
        };
        self.send_unknown(from, common, reason);
        Ok(())
    }

    /// Queues the requested bytes, and treats a RESEND beyond the granted end as a grant (RESEND-8 to
    /// RESEND-10).
    fn send_again(&mut self, slot: u32, resend: &Resend) -> Result<(), DropCause> {
        if resend.length.is_none() && self.awaits_first_grant(slot) {
            self.repeat_opening(self.now, slot); // DIALECT-6
            return Ok(());
        }
        let highest = self.config.num_priorities - 1;
        let rpc = &mut self.rpcs[slot as usize];
        let outgoing = &mut rpc.outgoing;
        let end = resend.length.map_or(outgoing.next, |length| resend.offset.saturating_add(length));
        // RESEND-9: as with a grant, the priority applies to bytes not sent yet.
        if resend.length.is_some() && outgoing.grant(end) {
            outgoing.sched_priority = resend.priority.min(highest);
            if rpc.outgoing.may_send_new() {
                rpc.wait.progressed(self.now);
            }
        }
        let sent = resend.offset..end.min(rpc.outgoing.next);
        let sent = self.within_budget(slot, sent);
        if sent.is_empty() {
            self.queue_if_sendable(slot);
            self.send_busy(slot);
            return Ok(());
        }
        // PRIO-13
        let bytes = sent.end - sent.start;
        let added = self.sending.retransmits.add(slot, sent, resend.priority.min(highest));
        self.queue_if_sendable(slot);
        let peer = self.rpcs[slot as usize].peer;
        self.peers[peer].allowance.resend_budget.give(bytes - added.unwrap_or(0));
        if added == Some(0) {
            self.send_busy(slot); // RESEND-10: they already wait their turn.
        }
        added.map(|_| ()).ok_or(drop_as!(drop_retransmit_limit))
    }

    /// Returns the first part of `range` that the peer's budget covers (SHARE-4), in whole packets, or all of
    /// `range`. Deducts these bytes from the budget.
    fn within_budget(&mut self, slot: u32, range: Range<u32>) -> Range<u32> {
        if range.is_empty() {
            return range;
        }
        let (now, peer) = (self.now, self.rpcs[slot as usize].peer);
        let (payload, wanted) = (self.max_payload(peer), range.end - range.start);
        let allowance = &mut self.peers[peer].allowance;
        let refill = allowance.resend_refill(payload, &self.config);
        let taken = allowance.resend_budget.take(now, wanted, refill);
        // A planted fault that the swarm must find: a peer's retransmissions are not limited.
        #[cfg(homa_canary)]
        let taken = if crate::planted_faults::has("resend_unlimited") { wanted } else { taken };
        if taken == wanted {
            return range;
        }
        let whole = taken - taken % payload.max(1);
        allowance.resend_budget.give(taken - whole);
        allowance.refused += 1;
        self.stats.resends_over_budget += 1;
        self.prove_by_challenge(now, slot);
        range.start..range.start + whole
    }

    /// Credits the peer's retransmission budget with bytes that have arrived at the peer.
    pub(super) fn delivered(&mut self, peer: u32, bytes: u32) {
        self.peers[peer].allowance.resend_budget.give(bytes); // SHARE-4
    }

    pub(super) fn send_busy(&mut self, slot: u32) {
        self.stats.busys_sent += 1;
        let rpc = &self.rpcs[slot as usize];
        self.trace.record_with(EventKind::BusySent, rpc.id, 0, 0, peer_number(rpc.peer), 0);
        self.send_control(slot, Body::Busy);
    }
}
