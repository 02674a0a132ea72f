//! Outgoing packets: control packets first, then the shortest message. Within a message, requested
//! retransmissions go first (PROTOCOL.md SEND).

use std::ops::Range;

use homa_trace::{EventKind, packet_word};

use super::state::Endpoint;
use crate::contract::{PayloadRange, Transmit};
use crate::peer::peer_number;
use crate::rpc::RpcState;
use crate::time::Time;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, Data};

/// A DATA packet to be encoded.
pub(super) struct PlannedData {
    pub slot: u32,
    pub offset: u32,
    pub len: u32,
    pub priority: u8,
    pub retransmit: bool,
}

impl Endpoint {
    /// Returns whether [`poll_transmit`](Endpoint::poll_transmit) may return a packet. Cheaper than polling
    /// in vain. Also true if only the pacer holds packets back.
    #[inline]
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        !self.sending.control.is_empty()
            || !self.sending.ready.is_empty()
            || self.sending.ready.waits_for_pacer
    }

    /// Returns the next packet to send now, if any. A returned packet counts as sent.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let now = self.advance(now);
        self.sending.ready.waits_for_pacer = false;
        match self.next_control(now) {
            Some(packet) => Some(packet),
            None => {
                let part = self.next_part(now)?;
                Some(self.data_packet(now, &part))
            }
        }
    }

    /// Returns the next waiting control packet, which then counts as sent.
    pub(super) fn next_control(&mut self, now: Time) -> Option<Transmit> {
        let packet = self.sending.control.pop_front()?;
        let bytes = packet.header.as_slice().len() as u32;
        self.sending.pacer.sent(now, bytes); // SEND-7
        self.sending.last_sent = now;
        self.stats.packets_sent += 1;
        Some(packet)
    }

    /// Returns the part of a message that the next DATA packet carries.
    pub(super) fn next_part(&mut self, now: Time) -> Option<PlannedData> {
        for _ in 0..self.config.reap_limit {
            let slot = self.sending.ready.choose(self.config.max_packet)?;
            // A planted fault that the swarm must find: retransmissions are sent before all other bytes.
            #[cfg(homa_canary)]
            let slot = match self.sending.retransmits.any() {
                Some(first) if crate::planted_faults::has("resend_first") => first,
                _ => slot,
            };
            let rpc = &self.rpcs[slot as usize];
            if rpc.epoch != self.peers[rpc.peer].incarnation.epoch() {
                self.end_of_earlier_epoch(now, slot);
                continue;
            }
            // SHARE-5, SEND-10
            return match self.sending.retransmits.first(slot) {
                Some((range, priority)) => self.plan_retransmission(now, slot, &range, priority),
                None => self.plan_new_data(now, slot),
            };
        }
        None
    }

    /// Adds an RPC to the messages to send, if it may send.
    pub(super) fn queue_if_sendable(&mut self, slot: u32) {
        let again = self.sending.retransmits.bytes(slot);
        let outgoing = &self.rpcs[slot as usize].outgoing;
        if again > 0 || outgoing.is_ready() {
            self.sending.ready.place(slot, outgoing.remaining().saturating_add(again));
        }
    }

    /// Returns the bytes of the message not yet sent, plus bytes to be retransmitted: the sender's SRPT key
    /// (SHARE-5).
    pub(super) fn left_to_send(&self, slot: u32) -> u32 {
        self.rpcs[slot as usize].outgoing.remaining().saturating_add(self.sending.retransmits.bytes(slot))
    }

    pub(super) fn max_payload(&self, peer: u32) -> u32 {
        self.peers[peer].path.longest() - DATA_HEADER_LEN as u32
    }

    /// Returns whether the pacer admits a packet with `payload` bytes of a message (SEND-6, SEND-7). Records
    /// the wait if it does not.
    fn pacer_admits(&mut self, now: Time, payload: u32, slot: u32) -> bool {
        let bytes = payload + DATA_HEADER_LEN as u32;
        if self.sending.pacer.admits(now, bytes) {
            return true;
        }
        self.sending.ready.waits_for_pacer = true;
        self.stats.pacer_waits += 1;
        let backlog = self.sending.pacer.backlog_ns(now).min(u64::from(u32::MAX)) as u32;
        let rpc = &self.rpcs[slot as usize];
        self.trace.record_with(EventKind::WaitPacer, rpc.id, backlog, payload, peer_number(rpc.peer), 0);
        false
    }

    /// Plans a packet with the first bytes of `range`, which were sent before. They are within the granted
    /// bytes, and the pacer applies to them as to all other bytes.
    #[cold]
    fn plan_retransmission(
        &mut self,
        now: Time,
        slot: u32,
        range: &Range<u32>,
        priority: u8,
    ) -> Option<PlannedData> {
        let len = self.max_payload(self.rpcs[slot as usize].peer).min(range.end - range.start);
        if !self.pacer_admits(now, len, slot) {
            return None;
        }
        self.sending.ready.account(len, self.config.max_packet, self.config.pacer_fifo_fraction);
        self.sending.retransmits.sent(slot, len);
        self.stats.retransmits += 1;
        let rpc = &self.rpcs[slot as usize];
        if self.sending.retransmits.bytes(slot) > 0 || rpc.outgoing.is_ready() {
            self.sending.ready.place(slot, self.left_to_send(slot));
        } else {
            let awaits_response = rpc.state == RpcState::Requesting;
            self.sending.ready.remove(slot);
            if awaits_response {
                // RESEND-1: the timer may have expired while these bytes waited, and then expires late.
                self.await_peer(now, slot);
            }
        }
        Some(PlannedData { slot, offset: range.start, len, priority, retransmit: true })
    }

    fn plan_new_data(&mut self, now: Time, slot: u32) -> Option<PlannedData> {
        let rpc = &self.rpcs[slot as usize];
        let peer = &self.peers[rpc.peer];
        let (offset, len) = rpc.outgoing.next_packet(self.max_payload(rpc.peer));
        let priority = if offset < rpc.outgoing.unscheduled {
            let levels = self.config.num_priorities;
            peer.cutoffs.unscheduled_priority(rpc.outgoing.length, levels)
        } else {
            rpc.outgoing.sched_priority
        };
        let retransmit = rpc.outgoing.is_sent_again();
        if !self.pacer_admits(now, len, slot) {
            return None;
        }
        self.sending.ready.account(len, self.config.max_packet, self.config.pacer_fifo_fraction);
        self.advance_message(now, slot, len);
        Some(PlannedData { slot, offset, len, priority, retransmit })
    }

    /// Counts `len` more bytes of the message as sent.
    pub(super) fn advance_message(&mut self, now: Time, slot: u32, len: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        if !rpc.outgoing.is_sent_again() {
            rpc.wait.progress_at = now;
        }
        rpc.outgoing.next += len;
        rpc.wait.quiet_since = now;
        if rpc.outgoing.is_ready() {
            let remaining = rpc.outgoing.remaining();
            self.sending.ready.place(slot, remaining);
            return;
        }
        self.sending.ready.remove(slot);
        if !rpc.outgoing.all_sent() {
            let (granted, length) = (rpc.outgoing.granted, rpc.outgoing.length);
            self.trace.record_with(EventKind::WaitGrant, rpc.id, granted, length, peer_number(rpc.peer), 0);
        }
        if rpc.state == RpcState::Requesting {
            self.await_peer(now, slot);
        } else if rpc.outgoing.all_sent() {
            (rpc.wait.tries, rpc.wait.backoff) = (0, 0);
            self.schedule_check_within(now, slot, self.config.need_ack_interval_ns); // ACK-9
        }
    }

    pub(super) fn data_packet(&mut self, now: Time, part: &PlannedData) -> Transmit {
        let rpc = &self.rpcs[part.slot as usize];
        let common = self.common(rpc.port, rpc.peer_port, rpc.id);
        let peer = &mut self.peers[rpc.peer];
        // WIRE-23: in packets to a kernel, this field must be zero, as in the kernel's own packets.
        let bundle_endpoints = if peer.is_ours() { self.bundle_endpoints } else { 0 };
        let common = Common { bundle_endpoints, ..common };
        // INCAST-1, INCAST-7: for a kernel this field is padding, and must stay zero.
        let has_limit = rpc.state.is_client()
            && rpc.response_limit != u32::MAX
            && (peer.is_ours() || !peer.silence.has_sent());
        let data = Data {
            message_length: rpc.outgoing.length,
            incoming: rpc.outgoing.granted.max(rpc.outgoing.unscheduled),
            ack: peer.acks.pop(),                   // ACK-2
            cutoff_version: peer.cutoffs.version(), // PRIO-5
            retransmit: part.retransmit,
            offset: part.offset,
            response_limit: has_limit.then_some(rpc.response_limit),
        };
        let needs_grant = rpc.outgoing.unscheduled < rpc.outgoing.length;
        if part.offset == 0
            && !part.retransmit
            && needs_grant
            && rpc.outgoing.unscheduled >= peer.unsched_bytes(&self.config)
        {
            peer.rtt.sent(now, rpc.id); // RTT-1
        }
        let header = wire::encode(&common, &Body::Data(data));
        let bytes = DATA_HEADER_LEN as u32 + part.len;
        self.stats.packets_sent += 1;
        self.stats.data_sent += 1;
        self.stats.data_bytes_sent += u64::from(part.len);
        self.sending.pacer.sent(now, bytes);
        self.sending.last_sent = now;
        let word = packet_word(wire::PacketType::Data as u8, bytes);
        let priority = part.priority.min(self.config.num_priorities - 1); // PRIO-1
        let number = peer_number(rpc.peer);
        self.trace.record_with(EventKind::PacketSent, rpc.id, word, part.offset, number, priority);
        Transmit {
            to: peer.addr,
            priority,
            bundle: peer.bundle(rpc.id),
            header,
            payload: Some(PayloadRange { rpc: self.key(part.slot), offset: part.offset, len: part.len }),
        }
    }
}
