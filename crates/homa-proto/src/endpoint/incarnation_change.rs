//! Incarnations of peers: how a restart is detected, and how a peer is challenged if the restart is not
//! certain (PEER-6 to PEER-9, PEER-16).
//!
//! A sender's address can be forged, and so can an incarnation. But an off-path attacker cannot know the ids
//! of our RPCs. A packet that carries the id of one of our RPCs, or repeats the number from a challenge,
//! therefore comes from a host that receives our packets.

use std::net::SocketAddr;

use super::state::Endpoint;
use crate::contract::RxPacket;
use crate::incarnation_end::IncarnationEnd;
use crate::peer::{ChangeEvidence, IncarnationChange};
use crate::ports::FIRST_CLIENT_PORT;
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, Incarnation, Packet, Resend};

impl Endpoint {
    /// Finds the peer of a packet, and checks whether the peer has restarted.
    pub(super) fn identify_sender(
        &mut self,
        now: Time,
        rx: &RxPacket<'_>,
        packet: &Packet,
    ) -> Result<Option<u32>, DropCause> {
        let Some(peer) = self.peers.find(&rx.from) else { return Ok(None) };
        let known = &mut self.peers[peer];
        if !known.allowance.proven {
            known.allowance.earn(rx.wire_len); // SHARE-9
        }
        let announced = packet.common.incarnation;
        // Both branches note the packet, so that only the rare one looks up the peer again.
        if !known.incarnation.is(announced) || announced.is_none() || known.belief.is_known() {
            self.handle_change(now, rx, peer, packet)?;
            self.peers[peer].note_packet(now, packet);
        } else {
            known.note_packet(now, packet);
        }
        Ok(Some(peer))
    }

    /// Handles a packet unless it carries the known incarnation of a peer of this implementation.
    #[cold]
    fn handle_change(
        &mut self,
        now: Time,
        rx: &RxPacket<'_>,
        peer: u32,
        packet: &Packet,
    ) -> Result<(), DropCause> {
        let announced = packet.common.incarnation;
        // PEER-10
        if !self.peers[peer].incarnation.is(announced) && !announced.is_none() {
            self.compare_incarnations(now, rx.from, peer, packet)?;
        }
        if announced.is_none() || self.peers[peer].belief.is_known() {
            self.note_evidence(now, peer, rx, packet)?;
        }
        Ok(())
    }

    /// Returns whether a packet carries the proven incarnation of its peer. Only the packet's header is
    /// needed.
    pub fn has_proven(&self, packet: &RxPacket<'_>) -> bool {
        let wire_len = packet.wire_len.max(DATA_HEADER_LEN + 1);
        let known = self.peers.find(&packet.from).map(|peer| &self.peers[peer]);
        let Ok(decoded) = wire::decode(packet.bytes, wire_len) else { return false };
        known.is_some_and(|known| known.incarnation.has_proven(decoded.common.incarnation))
    }

    /// Like [`handle_foreign`](Endpoint::handle_foreign), for a packet whose incarnation [is
    /// proven](Endpoint::has_proven) at another, trusted endpoint of this host.
    pub fn handle_proven_foreign(&mut self, now: Time, packet: &RxPacket<'_>) {
        let now = self.advance(now);
        let wire_len = packet.wire_len.max(DATA_HEADER_LEN + 1);
        if let Ok(decoded) = wire::decode(packet.bytes, wire_len)
            && let Some(peer) = self.peers.find(&packet.from)
            && !decoded.common.incarnation.is_none()
        {
            let (announced, known) = (decoded.common.incarnation, &mut self.peers[peer].incarnation);
            known.prove_elsewhere();
            known.note_first(announced);
            if !known.is(announced) {
                self.replace_incarnation(now, peer, &decoded, false);
            }
        }
        self.handle_foreign(now, packet);
    }

    /// Handles a packet whose incarnation differs from the known one of its peer.
    #[cold]
    fn compare_incarnations(
        &mut self,
        now: Time,
        from: SocketAddr,
        peer: u32,
        packet: &Packet,
    ) -> Result<(), DropCause> {
        let common = &packet.common;
        let answers = self.answers_challenge(peer, packet);
        let names_request = self.find_rpc(Some(peer), common.sender_id).is_ok() && common.sender_id & 1 == 1;
        let known = &mut self.peers[peer];
        let silent_ns = now.since(known.silence.last_packet_at());
        let none_is_late = silent_ns > self.config.max_packet_lifetime_ns;
        let evidence = ChangeEvidence { answers, names_request, none_is_late };
        let refusal = match known.incarnation.compare(common.incarnation, evidence) {
            IncarnationChange::First => return Ok(()),
            IncarnationChange::Replaced => {
                self.replace_incarnation(now, peer, packet, answers);
                return Ok(());
            }
            IncarnationChange::Unproven => drop_as!(drop_unproven_incarnation),
            IncarnationChange::Stale => drop_as!(drop_stale_incarnation),
        };
        if matches!(packet.body, Body::Data(_)) && common.sender_id & 1 == 0 {
            known.incarnation.challenge.add_claim(common);
        }
        // The packet may be a challenge, which must be answered: two hosts that each know an earlier
        // incarnation of the other would otherwise drop each other's challenges forever. The answer is queued
        // before our own challenge: if there is room for only one control packet (LIMIT-6), the hosts would
        // otherwise keep challenging each other without an answer.
        let may_challenge = matches!(packet.body, Body::Resend(_));
        let answered = if may_challenge && self.find_rpc(Some(peer), common.sender_id).is_err() {
            self.answer_unknown_resend(now, from, Some(peer), common)
        } else {
            Ok(())
        };
        self.challenge(now, peer, common.dest_port, common.source_port);
        answered?;
        Err(refusal)
    }

    /// PEER-6, PEER-7: replaces the peer's incarnation by that of `packet`, which is proven.
    fn replace_incarnation(&mut self, now: Time, peer: u32, packet: &Packet, answers: bool) {
        self.handle_deferred_acks(now);
        // The earlier incarnation may have been forged. In that case the peer still has our requests.
        let survivors = if self.peers[peer].incarnation.is_proven() {
            self.answered_by_new_incarnation(peer, packet).into_iter().collect()
        } else {
            self.requests_to(peer)
        };
        self.end_peer_epoch(peer, IncarnationEnd::Restarted);
        let announced = packet.common.incarnation;
        let known = &mut self.peers[peer].incarnation;
        known.replace(announced);
        let claims = known.challenge.take_claims();
        if !answers {
            known.challenge.end();
        }
        for slot in survivors {
            self.carry_over(slot);
        }
        for claim in claims.iter().filter(|claim| claim.incarnation == announced) {
            self.request_dropped(peer, claim);
        }
    }

    /// Returns the RPC of a packet that shows a peer's restart, if only the new incarnation can have sent
    /// this answer (PEER-6).
    fn answered_by_new_incarnation(&self, peer: u32, packet: &Packet) -> Option<u32> {
        // A host sends any other packet about an RPC only after receiving packets of that RPC.
        let answers = !matches!(packet.body, Body::RpcUnknown(_) | Body::Freeze | Body::Ack(_));
        let slot = self.find_rpc(Some(peer), packet.common.sender_id).ok()?;
        let rpc = &self.rpcs[slot as usize];
        (answers && rpc.state.is_client() && !rpc.wait.answered).then_some(slot)
    }

    /// Returns our open requests that belong to the peer's current epoch.
    fn requests_to(&self, peer: u32) -> Vec<u32> {
        let known = &self.peers[peer];
        if known.rpcs.count() == known.rpcs.servers() {
            return Vec::new();
        }
        let is_ours = |&slot: &u32| {
            let rpc = &self.rpcs[slot as usize];
            rpc.state.is_client() && rpc.epoch == known.incarnation.epoch()
        };
        self.tables.peer_rpcs.iter(&known.rpcs.list).filter(is_ours).collect()
    }

    /// Moves an RPC into its peer's current epoch, where it becomes the youngest of the peer's RPCs.
    fn carry_over(&mut self, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        let peer = &mut self.peers[rpc.peer];
        rpc.epoch = peer.incarnation.epoch();
        self.tables.peer_rpcs.remove(&mut peer.rpcs.list, slot);
        self.tables.peer_rpcs.push_back(&mut peer.rpcs.list, rpc.peer, slot);
    }

    /// Sends RESEND for a request whose packet was dropped before the incarnation was proven, so that the
    /// request need not wait for the client's own timeout.
    fn request_dropped(&mut self, peer: u32, dropped: &Common) {
        if self.tables.ports.accepts(dropped.dest_port) {
            let common = self.common(dropped.dest_port, dropped.source_port, dropped.sender_id | 1);
            self.queue_resend_of_all(peer, &common);
        }
    }

    fn queue_resend_of_all(&mut self, peer: u32, common: &Common) {
        self.stats.resends_sent += 1;
        let priority = self.config.num_priorities - 1;
        let to: SocketAddr = self.peers[peer].addr;
        let resend = Resend { offset: 0, length: None, priority };
        self.queue_control((to, Some(peer)), common, &Body::Resend(resend));
    }

    /// Challenges a peer to prove its identity, by sending RESEND for an RPC that does not exist. Every Homa
    /// implementation answers with RPC_UNKNOWN and the same id; a peer of this implementation adds its
    /// incarnation (PEER-16). The RESEND is sent from `port` if that port is open here.
    pub(super) fn challenge(&mut self, now: Time, peer: u32, port: u16, peer_port: u16) {
        if !self.peers[peer].incarnation.challenge.take_if_due(now, self.config.resend_spacing_ns) {
            return;
        }
        if !self.peers[peer].incarnation.challenge.is_open() {
            let id = self.unpredictable_id();
            self.peers[peer].incarnation.challenge.open(id);
        }
        let Some(port) = self.own_port(peer, port) else { return };
        self.stats.challenges_sent += 1;
        // Ids in a server's packets have bit 0 set.
        let id = self.peers[peer].incarnation.challenge.id() | u64::from(port < FIRST_CLIENT_PORT);
        let common = self.common(port, peer_port, id);
        self.queue_resend_of_all(peer, &common);
    }

    /// Returns an unpredictable id that steers packets to this endpoint and that no open request of ours has.
    fn unpredictable_id(&mut self) -> u64 {
        loop {
            let id = self.ids.challenge(&self.config);
            if self.tables.ids.client(id).is_none() {
                return id;
            }
        }
    }

    /// Returns a port of this endpoint to which the peer can answer: `port`, or the port of an RPC with the
    /// peer if another endpoint owns `port`.
    fn own_port(&self, peer: u32, port: u16) -> Option<u16> {
        if self.tables.ports.is_open(port) {
            return Some(port);
        }
        let oldest = self.peers[peer].rpcs.list.head().map(|slot| self.rpcs[slot as usize].port);
        oldest.or_else(|| self.tables.ports.any_open())
    }

    fn answers_challenge(&self, peer: u32, packet: &Packet) -> bool {
        matches!(packet.body, Body::RpcUnknown(_))
            && self.peers[peer].incarnation.challenge.is_of(packet.common.sender_id)
    }

    /// Handles the answer to a challenge; returns whether the packet is such an answer. The packet's
    /// incarnation is already stored as the peer's.
    pub(super) fn take_answer(&mut self, peer: Option<u32>, packet: &Packet) -> bool {
        let Some(peer) = peer.filter(|&peer| self.answers_challenge(peer, packet)) else { return false };
        self.peers[peer].incarnation.note_answer(packet.common.incarnation);
        self.mark_served(peer); // SHARE-3
        true
    }

    /// Records that the peer has sent the id of one of our requests, which proves `announced` if it is the
    /// known incarnation.
    pub(super) fn prove_incarnation(&mut self, peer: u32, announced: Incarnation) {
        self.peers[peer].incarnation.prove(announced);
    }
}
