//! Incoming packets: finding the RPC to which a packet belongs, and the effect of each packet type.

use std::net::SocketAddr;

use homa_trace::{EventKind, Place, packet_word};

use super::admission::NewRequest;
use super::state::Endpoint;
use crate::contract::{CallOptions, DoneReason, Event, Reassembly, RpcError, RxPacket};
use crate::dialect::KERNEL_MAX_MESSAGE;
use crate::message_in::{FirstPacket, UnscheduledState, charge};
use crate::peer::peer_number;
use crate::receive_coalescing::RunCursor;
use crate::rpc::{Rpc, RpcInput, RpcState};
use crate::share::Refusal;
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::{
    self, Body, Common, Cutoffs, DATA_HEADER_LEN, Data, DecodeError, Grant, Packet, UnknownReason,
};

/// `Ok` if the packet was used; otherwise the reason to drop it.
type Outcome = Result<(), DropCause>;

/// The payload of a DATA packet: its bytes, or no bytes if the packet carried only a length.
struct Payload<'a> {
    bytes: &'a [u8],
    len: u32,
}

impl Payload<'_> {
    /// Returns `len` bytes from `skip` on.
    fn part(&self, skip: u32, len: u32) -> &[u8] {
        if self.bytes.is_empty() { &[] } else { &self.bytes[skip as usize..][..len as usize] }
    }
}

/// A received packet, with its sender and its RPC.
#[derive(Clone, Copy)]
pub(super) struct ReceivedPacket<'a> {
    pub rx: &'a RxPacket<'a>,
    pub common: &'a Common,
    /// The sender; `None`: an unknown peer.
    pub peer: Option<u32>,
    /// The RPC. If there is none, the error is the reason to drop packets that need an RPC.
    pub rpc: Result<u32, DropCause>,
}

impl ReceivedPacket<'_> {
    /// Returns whether the sender is the client of the RPC (ID-1).
    pub(super) fn is_from_client(&self) -> bool {
        self.common.sender_id & 1 == 0
    }

    /// Returns the RPC's id in the server's form.
    pub(super) fn server_id(&self) -> u64 {
        self.common.sender_id | 1
    }
}

/// Returns the reason to drop an invalid packet.
#[cold]
fn invalid(error: &DecodeError) -> DropCause {
    match error {
        DecodeError::EmptyStart => drop_as!(drop_start_empty),
        DecodeError::MixedForms => drop_as!(drop_mixed_forms),
        _ => drop_as!(drop_invalid),
    }
}

impl Endpoint {
    /// Handles one packet. If it is a DATA packet that may be followed by others with the same header,
    /// returns the position in the message after its bytes.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        rx: &RxPacket<'_>,
        sink: &mut impl Reassembly,
    ) -> Option<RunCursor> {
        self.stats.packets_received += 1;
        let (mut id, mut word) = (0, packet_word(0, rx.wire_len as u32));
        // Matched by reference: a `Packet` is large, and each move of it costs as much as finding its RPC.
        let outcome = match &wire::decode(rx.bytes, rx.wire_len) {
            Ok(packet) => {
                id = packet.common.sender_id ^ 1;
                word = packet_word(packet.body.packet_type() as u8, rx.wire_len as u32);
                let offset = if let Body::Data(data) = &packet.body { data.offset } else { 0 };
                let sender = self.identify_sender(now, rx, packet);
                let number = sender.as_ref().ok().copied().flatten().map_or(0, peer_number);
                let priority = Place::priority_received(rx.priority);
                self.trace.record_with(EventKind::PacketReceived, id, word, offset, number, priority); // TRACE-1
                sender.and_then(|peer| self.dispatch(now, rx, peer, packet, sink))
            }
            Err(error) => Err(invalid(error)),
        };
        outcome.unwrap_or_else(|reason| {
            *(reason.counter)(&mut self.stats) += 1;
            self.trace.record(EventKind::PacketDropped, id, word, reason.number);
            None
        })
    }

    fn dispatch(
        &mut self,
        now: Time,
        rx: &RxPacket<'_>,
        peer: Option<u32>,
        packet: &Packet,
        sink: &mut impl Reassembly,
    ) -> Result<Option<RunCursor>, DropCause> {
        let common = &packet.common;
        let rpc = self.find_rpc(peer, common.sender_id);
        let received = ReceivedPacket { rx, common, peer, rpc };
        if let Ok(slot) = rpc
            && !matches!(packet.body, Body::RpcUnknown(_))
        {
            let rpc = &mut self.rpcs[slot as usize];
            rpc.wait.answered = true;
            let (peer, is_client) = (rpc.peer, rpc.state.is_client());
            if is_client {
                self.prove_incarnation(peer, common.incarnation);
            }
        }
        if let Ok(slot) = rpc
            && self.is_too_long_for(slot, common)
        {
            self.end_with_error(slot, RpcError::MessageTooLarge); // SEND-13
            return Ok(None);
        }
        match &packet.body {
            Body::Data(data) => {
                self.stats.data_received += 1;
                self.stats.data_bytes_received += u64::from(packet.payload_len);
                let payload = Payload {
                    bytes: rx.bytes.get(DATA_HEADER_LEN..).unwrap_or_default(),
                    len: packet.payload_len,
                };
                return self.handle_data(now, &received, data, &payload, sink);
            }
            Body::Grant(grant) => {
                self.stats.grants_received += 1;
                self.handle_grant(now, rpc?, grant)
            }
            Body::Resend(resend) => {
                self.stats.resends_received += 1;
                self.handle_resend(now, &received, resend)
            }
            Body::RpcUnknown(reason) => {
                self.stats.unknowns_received += 1;
                if rpc.is_err() && self.take_answer(peer, packet) {
                    return Ok(None);
                }
                self.handle_unknown(now, rpc?, *reason)
            }
            Body::Busy => {
                self.stats.busys_received += 1;
                let rpc = &mut self.rpcs[rpc? as usize];
                self.trace.record_with(EventKind::BusyReceived, rpc.id, 0, 0, peer_number(rpc.peer), 0);
                let resends = &mut self.peers[rpc.peer].resends;
                resends.answers.note_busy(now, rpc, self.config.resend_interval_ns); // RESEND-23
                rpc.wait.note_busy(now);
                resends.count_useless(&self.config); // RESEND-22
                Ok(())
            }
            Body::Cutoffs(cutoffs) => {
                self.stats.cutoffs_received += 1;
                self.handle_cutoffs(peer, cutoffs)
            }
            Body::Freeze => {
                self.stats.freezes_received += 1;
                self.note_freeze(rx.from);
                Ok(())
            }
            Body::NeedAck => {
                self.stats.need_acks_received += 1;
                self.handle_need_ack(now, &received)
            }
            Body::Ack(acks) => {
                self.stats.acks_received += 1;
                self.handle_ack(now, peer, common, acks)
            }
            Body::Start(start) => {
                self.stats.starts_received += 1;
                self.handle_start(now, &received, start)
            }
        }
        .map(|()| None)
    }

    /// Returns the RPC to which a packet belongs (ID-2, ID-5, ID-8), or the reason to drop the packet if
    /// there is none. An RPC that was aborted or has ended is no longer in the tables (ABORT-2). The cost of
    /// a lookup does not depend on the number of open RPCs (RECV-9).
    pub(super) fn find_rpc(&self, peer: Option<u32>, sender_id: u64) -> Result<u32, DropCause> {
        let Some(peer) = peer else { return Err(drop_as!(drop_unknown_rpc)) };
        let id = sender_id ^ 1;
        let slot = self.tables.ids.find(peer, id).ok_or(drop_as!(drop_unknown_rpc))?;
        let rpc = &self.rpcs[slot as usize];
        if rpc.peer != peer {
            return Err(drop_as!(drop_wrong_peer));
        }
        if rpc.epoch != self.peers[peer].incarnation.epoch() {
            return Err(drop_as!(drop_unknown_rpc));
        }
        Ok(slot)
    }

    /// Returns whether a packet of an RPC shows that our message exceeds the receiver's limit: a Linux Homa
    /// receiver has dropped all of it.
    fn is_too_long_for(&self, slot: u32, common: &Common) -> bool {
        let rpc = &self.rpcs[slot as usize];
        rpc.outgoing.length > KERNEL_MAX_MESSAGE
            && rpc.state == RpcState::Requesting
            && common.incarnation.is_none()
            && !self.peers[rpc.peer].is_ours()
    }

    fn handle_data(
        &mut self,
        now: Time,
        packet: &ReceivedPacket<'_>,
        data: &Data,
        payload: &Payload<'_>,
        sink: &mut impl Reassembly,
    ) -> Result<Option<RunCursor>, DropCause> {
        let &ReceivedPacket { peer, rpc, common, .. } = packet;
        if let (Some(peer), Some(ack)) = (peer, data.ack) {
            self.defer_ack(now, peer, ack.client_id);
        }
        let slot = match rpc {
            // The acknowledgement in this packet may have ended the packet's own RPC.
            Ok(slot) if self.rpcs.get(slot as usize).is_some_and(|rpc| rpc.id == common.sender_id ^ 1) => {
                slot
            }
            Err(_) if packet.is_from_client() => self.open_server_rpc(now, packet, data)?,
            Ok(_) => return Err(drop_as!(drop_unknown_rpc)),
            Err(counter) => return Err(counter), // RECV-11
        };
        let peer = self.rpcs[slot as usize].peer;
        self.peers[peer].cutoffs.kept = data.cutoff_version;
        if data.cutoff_version != self.receiving.cutoffs.version() {
            self.send_cutoffs(now, slot, peer); // PRIO-8, DIALECT-11
        }
        self.receive_bytes(now, slot, data, payload, sink)
    }

    /// Checks whether a request must be refused for a reason other than lack of room. If the request has
    /// already run, no other reason is reported (AMO-1).
    fn check_request(
        &mut self,
        now: Time,
        packet: &ReceivedPacket<'_>,
        data: &Data,
    ) -> Result<(), DropCause> {
        let &ReceivedPacket { rx, peer, common, .. } = packet;
        // Only a host that announces its incarnation can send a reason. Without a reason, the client would
        // send the request again immediately.
        let is_ours = !common.incarnation.is_none() && !self.incarnation.is_none();
        if data.retransmit && is_ours && self.is_owner_lost(now, common) {
            self.send_unknown(rx.from, common, UnknownReason::OwnerGone); // HOST-10
            return Err(drop_as!(drop_owner_gone));
        }
        let id = packet.server_id();
        // If the RPC still exists here, it belongs to the peer's earlier epoch, whose RPCs are being ended.
        let peer_of_earlier = peer.filter(|&peer| self.peers[peer].rpcs.reaped);
        if let Some(slot) = peer_of_earlier.and_then(|peer| self.tables.ids.server(peer, id)) {
            self.end_of_earlier_epoch(now, slot);
        }
        if self.has_run(now, peer, id) {
            return Err(drop_as!(drop_finished)); // AMO-1, AMO-3
        }
        if !self.tables.ports.accepts(common.dest_port) {
            if is_ours {
                self.send_unknown(rx.from, common, UnknownReason::NoSuchPort); // LIMIT-8, ID-15
            }
            return Err(drop_as!(drop_no_port));
        }
        if data.message_length > self.config.max_message {
            if is_ours {
                self.send_unknown(rx.from, common, UnknownReason::TooLarge); // LIMIT-5
            }
            return Err(drop_as!(drop_too_large));
        }
        Ok(())
    }

    /// Returns whether the peer's request with this id is remembered as finished.
    pub(super) fn has_run(&self, now: Time, peer: Option<u32>, id: u64) -> bool {
        peer.is_some_and(|peer| {
            self.lifetimes.finished.contains(now, peer, self.peers[peer].incarnation.restarts(), id)
        })
    }

    /// Returns whether this endpoint has no use for a packet of a request from `from`: the destination port
    /// accepts no requests, and the request is neither open nor finished (LIMIT-8, ID-15).
    pub fn has_nobody_for(&self, from: SocketAddr, common: &Common) -> bool {
        let peer = self.peers.find(&from);
        !self.tables.ports.accepts(common.dest_port)
            && self.find_rpc(peer, common.sender_id).is_err()
            && !self.has_run(self.now, peer, common.sender_id | 1)
    }

    /// Creates the state of a request from the first packet to arrive, which may hold any part of the message
    /// (RECV-1). Only DATA and START_MSG reach this function (RECV-10).
    pub(super) fn open_server_rpc(
        &mut self,
        now: Time,
        packet: &ReceivedPacket<'_>,
        data: &Data,
    ) -> Result<u32, DropCause> {
        let &ReceivedPacket { rx, peer, common, .. } = packet;
        self.check_request(now, packet, data)?;
        let id = packet.server_id();
        // LIMIT-4: a quarter is reserved for responses.
        let (length, limit) = (data.message_length, self.config.max_incoming_bytes / 4 * 3);
        let (bytes, cutoff_version) = (charge(length), data.cutoff_version);
        let request = NewRequest { addr: rx.from, common, cutoff_version, bytes, limit };
        self.within_share(now, &request)?;
        if !self.has_free_rpc() || !self.has_room(length, limit) {
            self.handle_deferred_acks(now);
        }
        // LIMIT-9: evict the unproven request that has been silent the longest.
        if !self.make_room(now, Endpoint::has_free_rpc) {
            return Err(drop_as!(drop_rpc_limit)); // LIMIT-3
        }
        if bytes > limit || !self.make_room(now, |endpoint| endpoint.has_room(length, limit)) {
            self.trace_full_buffer(id, peer, length, limit);
            return Err(drop_as!(drop_buffer_limit));
        }
        let peer = match self.find_or_add_sender(now, &request) {
            Err(Refusal::Bound) if self.evict_unproven(now) => self.find_or_add_sender(now, &request),
            found => found,
        };
        let peer = peer.map_err(|refusal| match refusal {
            Refusal::Bound => drop_as!(drop_peer_limit),
            Refusal::Share => self.refuse_for_prefix(&request),
        })?;
        let known = &mut self.peers[peer];
        // The packet may have created the peer.
        known.silence.note_packet(now);
        known.incarnation.note_first(common.incarnation);
        known.allowance.earn_first(rx.wire_len);
        let epoch = known.incarnation.epoch();
        // SHARE-3: only a host that received our CUTOFFS knows their version.
        let proves = !known.allowance.proven && self.receiving.cutoffs.proves(data.cutoff_version);
        if !known.is_ours() {
            self.learn_dialect(now, peer, rx); // The peer may be new.
        }
        if proves {
            self.mark_served(peer);
        }
        let slot = self.insert_rpc(Rpc {
            options: CallOptions {
                readable_step: self.config.request_readable_step,
                ..CallOptions::default()
            },
            response_limit: data.response_limit.filter(|_| !self.incarnation.is_none()).unwrap_or(u32::MAX),
            ..Rpc::new(
                now,
                id,
                (peer, epoch),
                RpcState::RequestArriving,
                (common.dest_port, common.source_port),
            )
        });
        self.tables.ids.add_server(peer, id, slot);
        if let Some(prefix) = self.peers[peer].allowance.prefix {
            self.rpcs[slot as usize].incoming.prefix = Some(prefix);
            self.peers.prefixes.add_rpc(prefix);
            self.note_unproven_packet(slot);
        }
        self.trace.record_with(EventKind::RpcStart, id, 1, data.message_length, peer_number(peer), 0);
        Ok(slot)
    }

    /// Records in the trace that a message of this RPC exceeds the buffer limit and must be sent again later.
    fn trace_full_buffer(&mut self, id: u64, peer: Option<u32>, length: u32, limit: u64) {
        let free = u32::try_from(limit.saturating_sub(self.receiving.incoming_bytes)).unwrap_or(u32::MAX);
        self.trace.record_with(EventKind::WaitBuffer, id, length, free, peer.map_or(0, peer_number), 0);
    }

    fn has_room(&self, length: u32, limit: u64) -> bool {
        self.receiving.incoming_bytes + charge(length) <= limit
    }

    /// Begins an incoming message: its first packet fixes its length and its granted bytes.
    fn begin_message(&mut self, now: Time, slot: u32, data: &Data) -> Outcome {
        let rpc = &self.rpcs[slot as usize];
        if rpc.incoming.length != 0 {
            return self.continue_after_start(slot, data);
        }
        let is_client = rpc.state.is_client();
        if is_client && data.message_length > self.config.max_message {
            self.end_with_error(slot, RpcError::MessageTooLarge); // LIMIT-5
            return Err(drop_as!(drop_too_large));
        }
        self.claim_message(slot, data.message_length)?;
        let incoming = &mut self.rpcs[slot as usize].incoming;
        // GRANT-1, WIRE-10: the sender states its number of unscheduled bytes. A wrong value only changes the
        // time of the first grant or RESEND.
        incoming.granted = data.incoming.min(data.message_length);
        if data.incoming == 0 {
            (incoming.granted, incoming.first) = (data.message_length, FirstPacket::WholeData); // DIALECT-10
        }
        incoming.unscheduled = incoming.granted;
        let peer = self.rpcs[slot as usize].peer;
        let unlimited = self.peers[peer].unsched_bytes(&self.config);
        let unscheduled = data.message_length.min(unlimited);
        if is_client {
            self.receiving.unscheduled_quota.observe(unscheduled);
        } else {
            let claims = &mut self.peers[peer].allowance.claims;
            self.receiving.incast_estimator.observe(now, unscheduled, claims, &self.config);
        }
        Ok(())
    }

    /// Counts the length of a new message against the limit, if there is room for it (RECV-7, LIMIT-7).
    /// Memory may be allocated from here on.
    #[inline]
    pub(super) fn claim_message(&mut self, slot: u32, length: u32) -> Outcome {
        let is_client = self.rpcs[slot as usize].state.is_client();
        if is_client && !self.has_room(length, self.config.max_incoming_bytes) {
            let rpc = &self.rpcs[slot as usize];
            self.trace_full_buffer(rpc.id, Some(rpc.peer), length, self.config.max_incoming_bytes);
            return Err(drop_as!(drop_buffer_limit));
        }
        self.receiving.incoming_bytes += charge(length);
        let rpc = &mut self.rpcs[slot as usize];
        rpc.incoming.length = length;
        if !is_client {
            self.peers[rpc.peer].rpcs.request_bytes += charge(length);
            if let Some(prefix) = rpc.incoming.prefix {
                self.peers.prefixes.charge(prefix, charge(length));
            }
        }
        Ok(())
    }

    /// Writes the payload to the sink and updates the message.
    fn receive_bytes(
        &mut self,
        now: Time,
        slot: u32,
        data: &Data,
        payload: &Payload<'_>,
        sink: &mut impl Reassembly,
    ) -> Result<Option<RunCursor>, DropCause> {
        let begins = self.rpcs[slot as usize].incoming.received == 0;
        if begins {
            self.begin_message(now, slot, data)?;
        }
        let key = self.key(slot);
        let rpc = &mut self.rpcs[slot as usize];
        if begins {
            sink.begin(key, rpc.port, data.message_length);
        }
        let incoming = &mut rpc.incoming;
        if data.message_length != incoming.length {
            return Err(drop_as!(drop_length_mismatch)); // WIRE-8
        }
        let (start, end) = (data.offset, data.offset + payload.len);
        let length = incoming.length;
        let write = |from: u32, to: u32| {
            sink.write(key, length, from, to - from, payload.part(from - start, to - from)); // RECV-2
        };
        let max_gaps = self.config.max_gaps as usize; // RECV-4
        let fresh =
            incoming.gaps.insert(start, end, max_gaps, write).map_err(|_| drop_as!(drop_gap_limit))?;
        if fresh == 0 {
            if data.retransmit {
                self.peers[rpc.peer].resends.count_useless(&self.config); // RESEND-22
            }
            return Err(drop_as!(drop_duplicate));
        }
        if data.retransmit {
            self.peers[rpc.peer].resends.count_useful();
        } else if rpc.wait.backoff > 0 {
            let answers = &mut self.peers[rpc.peer].resends.answers;
            answers.note_late(now, rpc, self.config.resend_interval_ns); // RESEND-23
        }
        rpc.wait.progressed(now); // PEER-3
        let incoming = &mut rpc.incoming;
        incoming.received += fresh;
        incoming.granted = incoming.granted.max(incoming.gaps.end());
        let is_last = incoming.gaps.end() == end && !incoming.is_complete();
        let before = rpc.state;
        if let Some(state) = before.after(RpcInput::ResponseBytes).filter(|state| *state != before) {
            rpc.state = state;
            self.response_began(now, slot);
        }
        self.bytes_arrived(now, slot, begins);
        Ok(is_last.then_some(RunCursor { slot, end }))
    }

    /// Updates an RPC after bytes of its message were written. In a coalesced run of packets, only the first
    /// may begin the message, and only the last may complete it.
    pub(super) fn bytes_arrived(&mut self, now: Time, slot: u32, begins: bool) {
        let rpc = &mut self.rpcs[slot as usize];
        let incoming = &mut rpc.incoming;
        let outstanding = incoming.outstanding();
        if incoming.received >= incoming.stalled_until {
            incoming.stalled_until = 0;
            self.receiving.grants.granted.recount(incoming, rpc.peer, outstanding);
        }
        let (complete, ungranted, peer) = (incoming.is_complete(), incoming.ungranted(), rpc.peer);
        if outstanding == 0 {
            self.set_unscheduled_state(slot, UnscheduledState::Settled);
        } else if begins && self.rpcs[slot as usize].wait.requested_in_part {
            self.mark_unscheduled_lost(slot);
        } else if begins && self.rpcs[slot as usize].incoming.first == FirstPacket::Data
            || self.rpcs[slot as usize].incoming.unscheduled_state == UnscheduledState::Lost
        {
            // These bytes were probably late, not lost.
            self.set_unscheduled_state(slot, UnscheduledState::InFlight);
        }
        if complete {
            self.message_complete(slot); // RECV-5
            return;
        }
        self.note_unproven_packet(slot);
        self.report_readable(slot);
        if ungranted == 0 {
            self.receiving.grants.remove(slot, peer);
        } else if !self.receiving.grants.contains(slot) && self.rpcs[slot as usize].incoming.takes_grants() {
            self.receiving.grants.add(slot, peer, ungranted);
        }
        self.receiving.grants.dirty = true;
        if outstanding > 0 {
            self.await_peer(now, slot);
        } else {
            self.schedule_rare_check(now, slot); // PEER-15
        }
    }

    /// RECV-8: records that a response has begun. It shows that the server has the complete request, so no
    /// more of the request must be sent.
    pub(super) fn response_began(&mut self, now: Time, slot: u32) {
        let &Rpc { peer, outgoing, .. } = &self.rpcs[slot as usize];
        self.message_arrived(now, peer, outgoing.length);
        self.sending.ready.remove(slot);
        self.sending.retransmits.remove(slot);
        let rpc = &mut self.rpcs[slot as usize];
        let outgoing = &mut rpc.outgoing;
        (outgoing.next, outgoing.granted) = (outgoing.length, outgoing.length);
        let (peer, unscheduled) = (rpc.peer, outgoing.unscheduled);
        self.delivered(peer, unscheduled);
    }

    fn message_complete(&mut self, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        let is_client = rpc.state.is_client();
        let (id, length, peer) = (rpc.id, rpc.incoming.length, rpc.peer);
        self.receiving.cutoffs.observe(length, rpc.incoming.unscheduled.max(1)); // SHARE-10
        let number = peer_number(peer);
        // The packet recorded just before completed the message.
        let place = self.trace.place(number, 0);
        self.trace.record_again(EventKind::MessageComplete, id, u32::from(is_client), length, place);
        self.receiving.grants.remove(slot, peer);
        // GRANT-11: other messages may be waiting for the bytes counted for this message, even if it was
        // granted in full.
        self.receiving.grants.dirty = true;
        if is_client {
            self.end_with_response(slot);
            return;
        }
        let Some(state) = rpc.state.after(RpcInput::RequestComplete) else { return };
        rpc.state = state;
        let port = rpc.port;
        self.not_arriving(slot);
        self.waits.timers.disarm(slot);
        self.stats.requests_delivered += 1;
        let peer = self.peers[peer].addr;
        self.events.push_back(Event::Request { rpc: self.key(slot), peer, port, length });
    }

    /// RECV-6: reports how far the message can be read, if the receiver requested such reports.
    pub(super) fn report_readable(&mut self, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        let step = rpc.options.readable_step;
        let end = rpc.incoming.gaps.contiguous();
        if step != 0 && end >= rpc.incoming.reported.saturating_add(step) {
            rpc.incoming.reported = end;
            let length = rpc.incoming.length;
            self.events.push_back(Event::Readable { rpc: self.key(slot), end, length });
        }
    }

    fn handle_grant(&mut self, now: Time, slot: u32, grant: &Grant) -> Outcome {
        let num_priorities = self.config.num_priorities;
        let rpc = &mut self.rpcs[slot as usize];
        if !matches!(rpc.state, RpcState::Requesting | RpcState::Responding) {
            return Err(drop_as!(drop_nonsense)); // GRANT-13
        }
        let (id, number, priority) = (rpc.id, peer_number(rpc.peer), grant.priority);
        self.trace.record_with(
            EventKind::GrantReceived,
            id,
            grant.offset,
            u32::from(priority),
            number,
            priority,
        );
        let known = &mut self.peers[rpc.peer];
        self.stats.rtt_samples += u64::from(known.rtt.record_grant(now, rpc.id, self.config.rtt_window_ns));
        let before = rpc.outgoing.granted;
        if rpc.outgoing.grant(grant.offset) {
            if rpc.outgoing.may_send_new() {
                rpc.wait.progressed(now); // PEER-3
            } else {
                rpc.wait.sign_of_life(now);
            }
            rpc.outgoing.sched_priority = grant.priority.min(num_priorities - 1); // GRANT-14
            let (peer, more) = (rpc.peer, rpc.outgoing.granted - before);
            self.delivered(peer, more); // A grant shows that as many bytes have arrived.
            self.queue_if_sendable(slot);
        }
        Ok(())
    }

    fn handle_unknown(&mut self, now: Time, slot: u32, reason: UnknownReason) -> Outcome {
        let rpc = &mut self.rpcs[slot as usize];
        let error = match (rpc.state, reason) {
            (RpcState::RequestArriving | RpcState::InService | RpcState::Responding, _) => {
                self.end_server(now, slot, DoneReason::ClientGaveUp); // RESEND-15
                return Ok(());
            }
            // RESEND-17
            (_, UnknownReason::NoSuchPort) => RpcError::NoSuchPort,
            (_, UnknownReason::TooLarge) => RpcError::MessageTooLarge,
            (_, UnknownReason::Finished) => RpcError::ResponseLost,
            (_, UnknownReason::OwnerGone) => RpcError::PeerRestarted, // HOST-10
            (RpcState::ResponseArriving, UnknownReason::Unknown) => {
                // RESEND-14: this packet was most likely delayed, and sent before the response. If not,
                // RESENDs will go unanswered.
                rpc.wait.unknown_received = true;
                return Ok(());
            }
            // RESEND-14: a peer that sends RPC_UNKNOWN without a RESEND must not cause the request to be sent
            // repeatedly.
            (RpcState::Requesting, UnknownReason::Unknown) if !rpc.wait.resend_sent => return Ok(()),
            (RpcState::Requesting, UnknownReason::Unknown) => {
                rpc.wait.note_unknown(now);
                // While the request is still being sent, the server's answer is older than the packets in
                // flight.
                if !rpc.outgoing.is_ready() && rpc.outgoing.next > 0 {
                    let peer = rpc.peer;
                    let had_request = rpc.requested.any() || rpc.outgoing.granted > rpc.outgoing.unscheduled;
                    if had_request {
                        self.forget_dialect(peer); // DIALECT-3: the host has lost its memory.
                    } else {
                        self.peers[peer].resends.answers.note_loss(); // RESEND-24
                    }
                    let unscheduled = self.unscheduled_to(peer, u32::MAX);
                    let rpc = &mut self.rpcs[slot as usize];
                    rpc.outgoing.restart(unscheduled); // RESEND-14
                    if !rpc.outgoing.is_all_unscheduled() {
                        self.open_long_message(slot);
                    }
                    let rpc = &mut self.rpcs[slot as usize];
                    rpc.requested.repeats = rpc.requested.repeats.saturating_add(1);
                    self.peers[peer].rtt.discard_probe(rpc.id);
                    self.stats.requests_restarted += 1;
                    self.sending.retransmits.remove(slot);
                    self.request_path_check(now, slot);
                    self.queue_if_sendable(slot);
                }
                return Ok(());
            }
        };
        self.end_with_error(slot, error);
        Ok(())
    }

    pub(super) fn handle_cutoffs(&mut self, peer: Option<u32>, cutoffs: &Cutoffs) -> Outcome {
        let peer = peer.ok_or(drop_as!(drop_unknown_rpc))?; // PRIO-12
        self.peers[peer].cutoffs.receive(cutoffs, !self.incarnation.is_none());
        Ok(())
    }
}
