//! Control packets, which are sent before all messages: answers and CUTOFFS, and the limits on control
//! packets (PROTOCOL.md PRIO, LIMIT, SHARE).

use std::net::SocketAddr;

use homa_trace::{EventKind, packet_word};

use super::state::Endpoint;
use crate::contract::Transmit;
use crate::dialect::Dialect;
use crate::peer::peer_number;
use crate::time::Time;
use crate::wire::{self, Body, Common, UnknownReason};

impl Endpoint {
    /// Returns the header of a packet of this host (ID-7).
    pub(super) fn common(&self, source_port: u16, dest_port: u16, sender_id: u64) -> Common {
        Common { source_port, dest_port, sender_id, incarnation: self.incarnation, bundle_endpoints: 0 }
    }

    /// Queues a control packet of a live RPC.
    pub(super) fn send_control(&mut self, slot: u32, body: Body) {
        let rpc = &self.rpcs[slot as usize];
        let common = self.common(rpc.port, rpc.peer_port, rpc.id);
        let (peer, is_client) = (rpc.peer, rpc.state.is_client());
        if is_client || self.take_credit(Some(peer), &common, &body) {
            self.queue_control((self.peers[peer].addr, Some(peer)), &common, &body);
        }
    }

    /// Deducts the bytes of a control packet from the credit of an unproven peer (SHARE-9). Returns whether
    /// the packet may be sent. An unknown address needs no credit: only answers are sent to it, each at most
    /// three times as long as the packet that it answers.
    pub(super) fn take_credit(&mut self, peer: Option<u32>, common: &Common, body: &Body) -> bool {
        let Some(peer) = peer.filter(|&peer| !self.peers[peer].allowance.proven) else { return true };
        let may = self.peers[peer].allowance.take_credit(wire::encode(common, body).as_slice().len());
        self.stats.drop_unproven_limit += u64::from(!may);
        may
    }

    /// Queues a control packet (PRIO-2) to an address, and to the peer there if it is known.
    pub(super) fn queue_control(
        &mut self,
        (to, peer): (SocketAddr, Option<u32>),
        common: &Common,
        body: &Body,
    ) {
        if self.sending.control.len() >= self.config.max_control_packets as usize {
            self.stats.drop_control_limit += 1; // LIMIT-6
            return;
        }
        let header = wire::encode(common, body);
        let word = packet_word(body.packet_type() as u8, header.as_slice().len() as u32);
        let priority = self.config.num_priorities - 1;
        let number = peer.map_or(0, peer_number);
        self.trace.record_with(EventKind::PacketSent, common.sender_id, word, 0, number, priority);
        let bundle = peer.and_then(|peer| self.peers[peer].bundle(common.sender_id));
        self.sending.control.push_back(Transmit { to, priority, bundle, header, payload: None });
    }

    /// Answers a RESEND for an RPC that does not exist here, or DATA that is refused with a reason
    /// (RESEND-19). The answer swaps the packet's ports and inverts bit 0 of its id.
    pub(super) fn send_unknown(&mut self, to: SocketAddr, received: &Common, reason: UnknownReason) {
        let common = self.common(received.dest_port, received.source_port, received.sender_id ^ 1);
        let peer = self.peers.find(&to);
        // INCAST-6: if nothing of a request arrived, it will be sent again. It must not overflow the same
        // queue again, so the limit is sent too. LIMIT-6: if there is room for only one packet, send the
        // answer.
        let has_room = self.sending.control.len() + 2 <= self.config.max_control_packets as usize;
        if has_room
            && reason == UnknownReason::Unknown
            && received.sender_id & 1 == 0
            && !self.is_limit_known(&to)
        {
            let cutoffs = self.present_cutoffs();
            if self.take_credit(peer, &common, &cutoffs) {
                self.queue_control((to, None), &common, &cutoffs);
            }
        }
        let answer = Body::RpcUnknown(reason);
        if self.take_credit(peer, &common, &answer) {
            self.stats.unknowns_sent += 1;
            self.queue_control((to, None), &common, &answer);
        }
    }

    /// Returns whether there is no limit, or the peer's last DATA was already sent under it.
    fn is_limit_known(&self, from: &SocketAddr) -> bool {
        let peer = || self.peers.find(from);
        let kept = |peer| self.peers[peer].cutoffs.kept == self.receiving.cutoffs.version();
        let reads_none = |peer| self.dialect_of(peer) == Dialect::Three; // DIALECT-11
        self.receiving.incast_estimator.limit().is_none()
            || peer().is_some_and(|peer| kept(peer) || reads_none(peer))
    }

    /// Sends our cutoffs to a peer, unless the same version was sent to it just before.
    pub(super) fn send_cutoffs(&mut self, now: Time, slot: u32, peer: u32) {
        if self.dialect_of(peer) == Dialect::Three {
            return; // DIALECT-11
        }
        if self.peers[peer].cutoffs.take_if_due(now, self.receiving.cutoffs.version()) {
            let cutoffs = self.present_cutoffs();
            self.send_control(slot, cutoffs);
        }
    }

    /// INCAST-6: sends the current limit before the next response, if no answer to the peer's DATA has
    /// carried it yet.
    pub(super) fn send_changed_limit(&mut self, now: Time, slot: u32, peer: u32) {
        let known = &self.peers[peer];
        if self.receiving.incast_estimator.limit().is_some()
            && known.is_ours()
            && !known.cutoffs.were_sent(self.receiving.cutoffs.version())
        {
            self.send_cutoffs(now, slot, peer);
        }
    }

    pub(super) fn present_cutoffs(&mut self) -> Body {
        self.stats.cutoffs_sent += 1;
        Body::Cutoffs(wire::Cutoffs {
            cutoffs: *self.receiving.cutoffs.levels(),
            version: self.receiving.cutoffs.version(),
            unsched_limit: self.receiving.incast_estimator.limit(),
        })
    }
}
