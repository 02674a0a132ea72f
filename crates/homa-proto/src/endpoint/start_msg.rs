//! Messages that START_MSG opens, in both directions (PROTOCOL.md DIALECT).

use super::receive::ReceivedPacket;
use super::state::Endpoint;
use crate::contract::RxPacket;
use crate::dialect::{Belief, Dialect};
use crate::message_in::FirstPacket;
use crate::message_out::Opening;
use crate::rpc::{Rpc, RpcInput, RpcState};
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::{self, Body, Evidence, Grant, Packet, Start};

impl Endpoint {
    /// Derives the sender's dialect from a packet that lacks our mark, or that has the mark although the peer
    /// was presumed to be another implementation (DIALECT-2). Fails if the packet fits no dialect.
    #[cold]
    pub(super) fn note_evidence(
        &mut self,
        now: Time,
        peer: u32,
        rx: &RxPacket<'_>,
        packet: &Packet,
    ) -> Result<(), DropCause> {
        if wire::evidence(rx.bytes, rx.wire_len) == Evidence::OffsetInSequence
            && let Ok(slot) = self.find_rpc(Some(peer), packet.common.sender_id)
            && self.rpcs[slot as usize].incoming.first == FirstPacket::Start
        {
            return Err(drop_as!(drop_mixed_forms)); // DIALECT-12
        }
        // Packets that claim to come from this implementation are easily forged. A kernel at that address
        // proves itself by an id that only a receiver of our requests knows.
        let common = &packet.common;
        let names_request =
            || common.sender_id & 1 == 1 && self.find_rpc(Some(peer), common.sender_id).is_ok();
        if self.peers[peer].is_ours() && common.incarnation.is_none() && !names_request() {
            return Ok(());
        }
        let restarted = self.peers[peer].cutoffs.kept != 0
            && matches!(packet.body, Body::Data(data) if data.cutoff_version == 0);
        if restarted {
            self.forget_dialect(peer); // DIALECT-3
        }
        self.learn_dialect(now, peer, rx);
        Ok(())
    }

    /// Updates the presumed dialect of a peer from one packet (DIALECT-2).
    #[cold]
    pub(super) fn learn_dialect(&mut self, now: Time, peer: u32, rx: &RxPacket<'_>) {
        let known = &mut self.peers[peer];
        let before = known.believed(now);
        known.belief = before.after(wire::evidence(rx.bytes, rx.wire_len), known.is_kernel_udp());
        let changes = before.is_known() && before.dialect() != known.belief.dialect();
        self.stats.dialect_changes += u64::from(changes);
    }

    /// Forgets the peer's presumed dialect, since its kernel may have changed (DIALECT-3).
    pub(super) fn forget_dialect(&mut self, peer: u32) {
        self.peers[peer].belief = Belief::UNKNOWN;
    }

    /// Returns the peer's presumed dialect.
    pub(super) fn dialect_of(&self, peer: u32) -> Dialect {
        self.peers[peer].dialect(self.now, &self.config)
    }

    /// Opens an outgoing message that is longer than its unscheduled bytes, in the form that the dialect of
    /// its peer needs (DIALECT-4). Called before any of the message is sent, or when it restarts from the
    /// beginning.
    pub(super) fn open_long_message(&mut self, slot: u32) {
        let peer = self.rpcs[slot as usize].peer;
        let opening = match self.dialect_of(peer) {
            Dialect::Ours | Dialect::One => return,
            Dialect::Unknown if !self.peers[peer].may_be_kernel() => return,
            Dialect::Unknown => Opening::StartAndData,
            Dialect::Two => Opening::StartAlone,
            Dialect::Three => {
                let outgoing = &mut self.rpcs[slot as usize].outgoing;
                outgoing.opening = Opening::Data;
                outgoing.set_unscheduled(u32::MAX);
                return;
            }
        };
        let outgoing = &mut self.rpcs[slot as usize].outgoing;
        outgoing.opening = opening;
        if opening == Opening::StartAlone {
            outgoing.set_unscheduled(0);
        }
        self.send_start(slot);
    }

    fn send_start(&mut self, slot: u32) {
        self.stats.starts_sent += 1;
        let message_length = self.rpcs[slot as usize].outgoing.length;
        self.send_control(slot, Body::Start(Start { message_length }));
    }

    /// Returns whether START_MSG has opened the RPC's outgoing message, and no byte of the message may be
    /// sent yet.
    pub(super) fn awaits_first_grant(&self, slot: u32) -> bool {
        let outgoing = &self.rpcs[slot as usize].outgoing;
        outgoing.opening == Opening::StartAlone && outgoing.granted == 0 && outgoing.length > 0
    }

    /// Opens a message again because its START_MSG was not answered: it was lost, or the peer does not know
    /// START_MSG (DIALECT-5). The message is now opened as for a peer of unknown dialect, so that either case
    /// costs one interval.
    pub(super) fn reopen(&mut self, slot: u32) {
        // A planted fault that the swarm's pairings must find: START_MSG is repeated until it is answered.
        #[cfg(homa_canary)]
        if crate::planted_faults::has("start_alone") && self.awaits_first_grant(slot) {
            return self.send_start(slot);
        }
        let peer = self.rpcs[slot as usize].peer;
        if self.dialect_of(peer) == Dialect::Two {
            self.forget_dialect(peer);
        }
        let unscheduled = match self.dialect_of(peer) {
            Dialect::Three => u32::MAX,
            _ => {
                let rpc = &self.rpcs[slot as usize];
                self.unscheduled_to(peer, if rpc.state.is_client() { u32::MAX } else { rpc.response_limit })
            }
        };
        let outgoing = &mut self.rpcs[slot as usize].outgoing;
        outgoing.opening = Opening::StartAndData;
        outgoing.set_unscheduled(unscheduled);
        self.send_start(slot);
        self.queue_if_sendable(slot);
    }

    /// Answers a RESEND for everything sent, if only START_MSG was sent (DIALECT-6).
    pub(super) fn repeat_opening(&mut self, now: Time, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        let waited_ns = now.since(rpc.wait.progress_at);
        let crossed = waited_ns < self.config.resend_interval_ns && self.dialect_of(rpc.peer) == Dialect::Two;
        if crossed { self.send_start(slot) } else { self.reopen(slot) }
    }

    /// Handles a START_MSG (DIALECT-7 to DIALECT-9).
    pub(super) fn handle_start(
        &mut self,
        now: Time,
        packet: &ReceivedPacket<'_>,
        start: &Start,
    ) -> Result<(), DropCause> {
        let length = start.message_length;
        if length > self.config.max_message {
            return Err(drop_as!(drop_start_too_large));
        }
        let slot = match packet.rpc {
            Ok(slot) => slot,
            Err(_) if packet.is_from_client() => {
                if self.has_run(now, packet.peer, packet.server_id()) {
                    return Err(drop_as!(drop_start_finished)); // AMO-1, AMO-3
                }
                let opening = wire::Data {
                    message_length: length,
                    incoming: 0,
                    ack: None,
                    cutoff_version: 0,
                    retransmit: false,
                    offset: 0,
                    response_limit: None,
                };
                self.open_server_rpc(now, packet, &opening)?
            }
            Err(cause) => return Err(cause), // RECV-11
        };
        let incoming = &self.rpcs[slot as usize].incoming;
        match incoming.length {
            0 => self.begin_by_start(now, slot, length),
            known if known != length => Err(drop_as!(drop_start_mismatch)),
            _ => {
                self.stats.starts_repeated += 1;
                self.answer_start(slot);
                Ok(())
            }
        }
    }

    /// Begins a message whose first packet is a START_MSG: none of its bytes arrive before a grant.
    fn begin_by_start(&mut self, now: Time, slot: u32, length: u32) -> Result<(), DropCause> {
        self.claim_message(slot, length)?;
        let rpc = &mut self.rpcs[slot as usize];
        rpc.incoming.first = FirstPacket::Start;
        rpc.wait.requested_in_part = false;
        let peer = rpc.peer;
        self.peers[peer].resends.answers.note_late(now, rpc, self.config.resend_interval_ns); // RESEND-23
        rpc.wait.progressed(now); // PEER-3
        if let Some(state) = rpc.state.after(RpcInput::ResponseBytes) {
            rpc.state = state;
            self.response_began(now, slot); // RECV-8: a server answers a whole request.
        }
        self.note_unproven_packet(slot);
        self.receiving.grants.add(slot, peer, length);
        self.receiving.grants.dirty = true;
        self.schedule_rare_check(now, slot); // PEER-15
        Ok(())
    }

    /// Handles the first DATA of a message that START_MSG has opened.
    #[cold]
    pub(super) fn continue_after_start(&mut self, slot: u32, data: &wire::Data) -> Result<(), DropCause> {
        let rpc = &mut self.rpcs[slot as usize];
        if rpc.incoming.length != data.message_length {
            return Err(drop_as!(drop_length_mismatch)); // WIRE-8
        }
        if !rpc.state.is_client() && !self.incarnation.is_none() {
            // START_MSG carries no limit for the response.
            rpc.response_limit = data.response_limit.unwrap_or(rpc.response_limit);
        }
        Ok(())
    }

    /// Answers a START_MSG of a message that has already begun. The sender is waiting for a grant that was
    /// lost or has not been given yet.
    fn answer_start(&mut self, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        let arriving = matches!(rpc.state, RpcState::RequestArriving | RpcState::ResponseArriving);
        if arriving && rpc.incoming.expects_bytes() {
            self.repeat_grant(slot);
        } else {
            self.send_busy(slot);
        }
    }

    /// Challenges an unproven peer whose retransmission budget is used up (SHARE-4). A request with the
    /// version of our cutoffs proves the peer, too, but the peer's first calls may all have begun without the
    /// cutoffs, and dialect 3 never uses cutoffs (DIALECT-14).
    pub(super) fn prove_by_challenge(&mut self, now: Time, slot: u32) {
        let &Rpc { peer, port, peer_port, .. } = &self.rpcs[slot as usize];
        if !self.peers[peer].allowance.proven {
            self.challenge(now, peer, port, peer_port);
        }
    }

    /// Retransmits the last grant of a message.
    pub(super) fn repeat_grant(&mut self, slot: u32) {
        self.stats.grants_sent += 1;
        let grant =
            Grant { offset: self.rpcs[slot as usize].incoming.granted, priority: self.config.max_sched_prio };
        self.send_control(slot, Body::Grant(grant));
    }
}
