//! The application's operations on an RPC: sending the request, answering it, taking it early, and giving up
//! the RPC.

use std::net::SocketAddr;

use homa_trace::EventKind;

use super::state::Endpoint;
use crate::contract::{ArrivingRequest, CallOptions, RpcKey, SendError};
use crate::dialect::KERNEL_MAX_MESSAGE;
use crate::message_out::{MessageOut, whole_packets};
use crate::peer::peer_number;
use crate::rpc::{Rpc, RpcInput, RpcState};
use crate::time::Time;

impl Endpoint {
    /// Starts an RPC with a request of `length` bytes from the open port `from_port` to the port `to_port` of
    /// `to`.
    ///
    /// # Errors
    /// Nothing was sent: the message is empty or too large, the port is not open, or a limit is reached.
    pub fn send_request(
        &mut self,
        now: Time,
        from_port: u16,
        to: SocketAddr,
        to_port: u16,
        length: u32,
        options: CallOptions,
    ) -> Result<RpcKey, SendError> {
        let now = self.advance(now);
        if !self.tables.ports.is_open(from_port) {
            return Err(SendError::PortNotOpen(from_port));
        }
        self.make_room_to_send(now, length);
        self.check_length(length)?;
        if self.rpcs.len() >= self.config.max_rpcs as usize {
            return Err(SendError::LimitReached { name: "max_rpcs" }); // LIMIT-2
        }
        let peer = self.find_or_add_peer(now, to).ok_or(SendError::LimitReached { name: "max_peers" })?;
        self.widen_path(now, peer);
        let known = &self.peers[peer];
        if length > KERNEL_MAX_MESSAGE && known.silence.has_sent() && !known.is_ours() {
            return Err(SendError::MessageTooLarge { length, limit: KERNEL_MAX_MESSAGE }); // SEND-13
        }
        let slot = self.rpcs.next_slot();
        let id = self.take_id(peer, slot).ok_or(SendError::NoIds)?; // ID-3: one counter for all ports.
        let epoch = self.peers[peer].incarnation.epoch();
        let unlimited = self.peers[peer].unsched_bytes(&self.config);
        let limit = self.receiving.unscheduled_quota.next(now, &self.config, unlimited);
        self.stats.requests_limited += u64::from(limit.is_some_and(|limit| limit < unlimited));
        let unscheduled = self.unscheduled_to(peer, u32::MAX);
        let inserted = self.insert_rpc(Rpc {
            outgoing: MessageOut::new(length, unscheduled),
            response_limit: limit.unwrap_or(u32::MAX),
            options,
            ..Rpc::new(now, id, (peer, epoch), RpcState::Requesting, (from_port, to_port))
        });
        debug_assert_eq!(inserted, slot, "the id leads to the RPC");
        self.sending.outgoing_bytes += u64::from(length);
        self.stats.requests_started += 1;
        self.trace.record_with(EventKind::RpcStart, id, 0, length, peer_number(peer), 0);
        if length > unscheduled {
            self.open_long_message(slot); // DIALECT-4
        }
        self.queue_if_sendable(slot);
        // A planted fault that the swarm must find: a call has no timer before its request has been sent.
        #[cfg(homa_canary)]
        if crate::planted_faults::has("call_unwatched") {
            return Ok(self.key(slot));
        }
        self.waits.timers.arm(slot, now + self.config.resend_interval_ns); // PEER-15
        Ok(self.key(slot))
    }

    /// Answers a request with a response of `length` bytes.
    ///
    /// # Errors
    /// Nothing was sent: the message is empty or too large, the RPC is gone or answered, or a limit is
    /// reached.
    pub fn send_response(&mut self, now: Time, rpc: RpcKey, length: u32) -> Result<(), SendError> {
        let now = self.advance(now);
        self.make_room_to_send(now, length);
        let slot = self.slot(rpc).ok_or(SendError::UnknownRpc)?; // ABORT-6
        self.check_length(length)?;
        let &Rpc { peer, response_limit, .. } = &self.rpcs[slot as usize];
        self.widen_path(now, peer);
        let unscheduled = self.unscheduled_to(peer, response_limit);
        let rpc = &mut self.rpcs[slot as usize];
        if length > KERNEL_MAX_MESSAGE && !self.peers[rpc.peer].is_ours() {
            return Err(SendError::MessageTooLarge { length, limit: KERNEL_MAX_MESSAGE }); // SEND-13
        }
        rpc.state = rpc.state.after(RpcInput::Respond).ok_or(SendError::UnknownRpc)?;
        rpc.outgoing = MessageOut::new(length, unscheduled);
        rpc.wait.progressed(now);
        self.sending.outgoing_bytes += u64::from(length);
        self.stats.responses_started += 1;
        self.send_changed_limit(now, slot, peer);
        if length > unscheduled {
            self.open_long_message(slot); // DIALECT-4
        }
        self.queue_if_sendable(slot);
        self.waits.timers.arm(slot, now + self.config.need_ack_interval_ns); // PEER-15
        Ok(())
    }

    /// Sets [`Config::request_readable_step`](crate::Config::request_readable_step) for requests that begin
    /// from now on. Such a request is reported each time its contiguous bytes have grown by `step`. 0: a
    /// request is reported only when it is complete.
    pub fn set_request_readable_step(&mut self, step: u32) {
        self.config.request_readable_step = step;
    }

    /// Returns the state of a request that is still arriving; `None` if it is complete or has ended.
    pub fn arriving_request(&self, rpc: RpcKey) -> Option<ArrivingRequest> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        let (end, length) = (rpc.incoming.gaps.contiguous(), rpc.incoming.length);
        let arriving = ArrivingRequest { peer: self.peers[rpc.peer].addr, port: rpc.port, end, length };
        (rpc.state == RpcState::RequestArriving).then_some(arriving)
    }

    /// Hands an incomplete request to the application, after [`Event::Readable`](crate::Event::Readable) has
    /// reported it. After that, it is reported each time `step` more bytes are contiguous (0: never). The
    /// reports end with [`Event::Request`](crate::Event::Request) when the request is complete, or with
    /// [`Event::Done`](crate::Event::Done) if it never will be. In either case the request is not delivered
    /// again (AMO-12). It can be answered once it is complete. Returns false if the request is already
    /// complete or has ended.
    pub fn take_early(&mut self, rpc: RpcKey, step: u32) -> bool {
        let Some(slot) = self.slot(rpc) else { return false };
        let rpc = &mut self.rpcs[slot as usize];
        let arrives = rpc.state == RpcState::RequestArriving && rpc.incoming.reported > 0;
        if arrives {
            self.stats.requests_taken_early += u64::from(!rpc.taken_early);
            rpc.taken_early = true;
            rpc.options.readable_step = step;
        }
        arrives
    }

    /// Gives up an RPC, on either side. One event ends it (ABORT-1). A stale key is ignored.
    pub fn abort(&mut self, now: Time, rpc: RpcKey) {
        let now = self.advance(now);
        if let Some(slot) = self.slot(rpc) {
            self.stats.rpcs_aborted += 1;
            self.abort_slot(now, slot);
        }
    }

    /// Ends an RPC on this side only, without an event and without a packet to the peer. On a server, the
    /// request counts as served, and its id as finished. A stale key is ignored.
    ///
    /// Only for simulations of one-way messages, whose harness ends both sides when the request is delivered.
    /// Code that talks to a peer never calls it.
    pub fn forget(&mut self, now: Time, rpc: RpcKey) {
        let now = self.advance(now);
        let Some(slot) = self.slot(rpc) else { return };
        let rpc = self.remove_rpc(slot);
        self.mark_served(rpc.peer);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, 0, 0, peer_number(rpc.peer), 0);
        if !rpc.state.is_client() {
            self.remember_finished(now, &rpc);
        }
    }

    fn check_length(&self, length: u32) -> Result<(), SendError> {
        if length == 0 {
            return Err(SendError::EmptyMessage); // SEND-12
        }
        if length > self.config.max_message {
            return Err(SendError::MessageTooLarge { length, limit: self.config.max_message });
        }
        if self.sending.outgoing_bytes + u64::from(length) > self.config.max_outgoing_bytes {
            return Err(SendError::LimitReached { name: "max_outgoing_bytes" });
        }
        Ok(())
    }

    /// Returns the unscheduled bytes that a message to `peer` may send (SEND-1), at most `limit`.
    pub(super) fn unscheduled_to(&self, peer: u32, limit: u32) -> u32 {
        let known = &self.peers[peer];
        let limit = whole_packets(limit.min(known.cutoffs.unsched_limit()), self.max_payload(peer));
        known.unsched_bytes(&self.config).min(limit)
    }
}
