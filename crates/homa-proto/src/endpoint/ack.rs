//! Sending, deferring and handling acknowledgements (PROTOCOL.md ACK).

use super::receive::ReceivedPacket;
use super::state::Endpoint;
use crate::ack::{AckAction, MAX_DEFERRED};
use crate::contract::DoneReason;
use crate::rpc::{EndedRpc, RpcState};
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::{Ack, AckList, Body, Common, MAX_ACKS};

impl Endpoint {
    /// Queues the acknowledgement of a finished client RPC, so that a packet can carry it to the server,
    /// which may then free the RPC (ACK-1).
    pub(super) fn queue_ack(&mut self, rpc: &EndedRpc) {
        if rpc.epoch != self.peers[rpc.peer].incarnation.epoch() {
            return;
        }
        if !rpc.is_complete {
            // ACK-12: if the server may still be working on a failed RPC, notify it immediately, by the id in
            // the header (ACK-4).
            let common = self.common(rpc.port, rpc.peer_port, rpc.id);
            self.send_acks(rpc.peer, &common);
            return;
        }
        let ack = Ack { client_id: rpc.id, server_port: rpc.peer_port };
        let limit = self.config.max_acks_per_peer as usize;
        let (action, forgets) = self.peers[rpc.peer].acks.add(ack, rpc.port, limit);
        self.stats.acks_forgotten += u64::from(forgets); // ACK-11
        match action {
            AckAction::Wait => {}
            AckAction::SetDeadline => {
                let due = self.now + self.config.need_ack_interval_ns / 2;
                self.waits.acks_due.push_back((due, rpc.peer));
            }
            AckAction::Send => self.send_waiting_acks(rpc.peer, rpc.port, MAX_ACKS),
        }
    }

    /// Returns the time at which waiting acknowledgements must be sent even without a request to carry them;
    /// [`Time::NEVER`] if none are waiting.
    pub(super) fn next_ack(&self) -> Time {
        self.waits.acks_due.front().map_or(Time::NEVER, |&(due, _)| due)
    }

    /// Sends acknowledgements in separate packets if five have waited for half of `need_ack_interval_ns`.
    /// After the whole interval the servers would send NEED_ACK (ACK-3).
    pub(super) fn send_due_acks(&mut self, now: Time) {
        while let Some(&(due, peer)) = self.waits.acks_due.front()
            && due <= now
        {
            self.waits.acks_due.pop_front();
            // The slot may hold a new peer, whose own entry follows.
            if self.peers.contains(peer) && self.peers[peer].acks.end_deadline() {
                self.send_waiting_acks(peer, self.peers[peer].acks.port(), MAX_ACKS);
            }
        }
    }

    /// Sends acknowledgements in ACK packets from the client port `from_port` while at least `least` of them
    /// wait for the peer.
    fn send_waiting_acks(&mut self, peer: u32, from_port: u16, least: usize) {
        while self.peers[peer].acks.len() >= least
            && let Some(first) = self.peers[peer].acks.pop()
        {
            let common = self.common(from_port, first.server_port, first.client_id);
            self.send_acks(peer, &common);
        }
    }

    /// Sends every waiting acknowledgement from the client port `from_port`. Called before a host stops
    /// sending, so that no server has to send NEED_ACK (ACK-13). Takes time in proportion to the number of
    /// peers.
    pub fn flush_acks(&mut self, from_port: u16) {
        let waiting: Vec<u32> =
            self.peers.iter().filter(|(_, peer)| !peer.acks.is_empty()).map(|(slot, _)| slot).collect();
        for peer in waiting {
            self.send_waiting_acks(peer, from_port, 1);
        }
    }

    /// Sends an ACK packet with the header `common` and up to five waiting acknowledgements.
    fn send_acks(&mut self, peer: u32, common: &Common) {
        let acks = self.peers[peer].acks.take();
        self.stats.acks_sent += 1;
        self.queue_control((self.peers[peer].addr, Some(peer)), common, &Body::Ack(acks));
    }

    /// Defers an acknowledgement carried by a DATA packet, so that the response to the packet's request does
    /// not wait for the acknowledged RPC to be freed. Deferred acknowledgements are handled in the next drive
    /// call without packets, which is due immediately, or before the packets of the next drive call with
    /// packets.
    #[inline(never)]
    pub(super) fn defer_ack(&mut self, now: Time, peer: u32, client_id: u64) {
        if self.waits.deferred_acks.len() >= MAX_DEFERRED {
            self.handle_deferred_acks(now);
        }
        self.waits.deferred_acks.push((peer, client_id));
    }

    /// Handles the deferred acknowledgements.
    #[inline]
    pub(super) fn handle_deferred_acks(&mut self, now: Time) {
        if !self.waits.deferred_acks.is_empty() {
            self.handle_some_deferred_acks(now);
        }
    }

    /// Does the work of `handle_deferred_acks`. Not inlined, so that it does not slow down packets of a large
    /// message.
    #[inline(never)]
    fn handle_some_deferred_acks(&mut self, now: Time) {
        let mut acks = std::mem::take(&mut self.waits.deferred_acks);
        for (peer, client_id) in acks.drain(..) {
            self.acknowledged(now, peer, client_id);
        }
        self.waits.deferred_acks = acks; // Keep its memory for reuse.
    }

    /// Handles the deferred acknowledgements if sending a message of `length` bytes would exceed a limit:
    /// RPCs that are already acknowledged must not keep the message from being sent.
    pub(super) fn make_room_to_send(&mut self, now: Time, length: u32) {
        let bytes = self.sending.outgoing_bytes + u64::from(length);
        if bytes > self.config.max_outgoing_bytes || self.rpcs.len() >= self.config.max_rpcs as usize {
            self.handle_deferred_acks(now);
        }
    }

    /// Frees the server RPC `client_id`, which the peer, as its client, has acknowledged (ACK-7).
    pub(super) fn acknowledged(&mut self, now: Time, peer: u32, client_id: u64) {
        let Some(slot) = self.tables.ids.server(peer, client_id | 1) else { return };
        let rpc = &self.rpcs[slot as usize];
        let answered = rpc.state == RpcState::Responding;
        let (peer, unscheduled) = (rpc.peer, rpc.outgoing.unscheduled);
        if answered {
            self.delivered(peer, unscheduled);
        }
        let reason = if answered { DoneReason::Acknowledged } else { DoneReason::ClientGaveUp };
        self.end_server(now, slot, reason);
    }

    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        peer: Option<u32>,
        common: &Common,
        acks: &AckList,
    ) -> Result<(), DropCause> {
        let peer = peer.ok_or(drop_as!(drop_unknown_rpc))?;
        if common.sender_id & 1 == 0 {
            self.acknowledged(now, peer, common.sender_id); // ACK-4
        }
        for ack in acks.iter() {
            self.acknowledged(now, peer, ack.client_id);
        }
        Ok(())
    }

    /// Handles a NEED_ACK: the server needs to know whether it may free the RPC.
    pub(super) fn handle_need_ack(
        &mut self,
        now: Time,
        packet: &ReceivedPacket<'_>,
    ) -> Result<(), DropCause> {
        let &ReceivedPacket { rx, peer, rpc, common } = packet;
        if packet.is_from_client() {
            return Err(drop_as!(drop_nonsense)); // Only servers send NEED_ACK.
        }
        // A planted fault that the swarm must find: a client acknowledges a response that has arrived only in
        // part.
        #[cfg(homa_canary)]
        let rpc = rpc.ok().filter(|&slot| {
            let is_arriving = self.rpcs[slot as usize].incoming.length > 0;
            !(crate::planted_faults::has("ack_frees_early") && is_arriving)
        });
        #[cfg(homa_canary)]
        let rpc = rpc.ok_or(());
        if let Ok(slot) = rpc {
            // ACK-6: the server has sent everything. Bytes that are missing after half an interval are most
            // likely lost.
            let rpc = &self.rpcs[slot as usize];
            let due = now.since(rpc.wait.quiet_since) >= self.config.resend_interval_ns / 2;
            // RESEND-3: if the next step is ours, there is nothing to request, and the server must not
            // conclude that the RPC has ended.
            let requests = due && self.waits_for_peer(slot) && self.take_resend_now(now, slot);
            let requests = requests && self.request_missing(slot, self.config.num_priorities - 1);
            if due && !requests {
                self.send_busy(slot);
            }
            return Ok(());
        }
        let answer = self.common(common.dest_port, common.source_port, common.sender_id ^ 1);
        let acks = peer.map_or_else(AckList::new, |peer| self.peers[peer].acks.take());
        let acks = Body::Ack(acks); // ACK-5
        if self.take_credit(peer, &answer, &acks) {
            self.stats.acks_sent += 1;
            self.queue_control((rx.from, peer), &answer, &acks);
        }
        Ok(())
    }
}
