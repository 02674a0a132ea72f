//! Beginning and end of RPCs: how they enter the tables and leave them.

use std::net::SocketAddr;

use homa_trace::EventKind;

use super::state::Endpoint;
use crate::contract::{CallOptions, DoneReason, Event, RpcError, RpcKey};
use crate::message_in::{UnscheduledState, charge};
use crate::peer::peer_number;
use crate::rpc::{EndedRpc, Rpc, RpcState};
use crate::time::Time;

impl Endpoint {
    /// Returns the peer at `addr`, and creates it if it is not known. `None` if `max_peers` are known and
    /// none of the examined peers can be forgotten.
    pub(super) fn find_or_add_peer(&mut self, now: Time, addr: SocketAddr) -> Option<u32> {
        if let Some(peer) = self.peers.find(&addr) {
            return Some(peer);
        }
        if self.peers.len() >= self.config.max_peers as usize {
            self.handle_deferred_acks(now); // A forgotten peer's acks must not count for the next peer in its slot.
            // Expired ids must not keep a peer in the table, even if they have not been removed yet.
            self.expire_many_finished(now);
        }
        let (peer, evicted) = self.peers.add(addr, now, &self.config)?;
        self.stats.peers_evicted += u64::from(evicted);
        self.peers[peer].ids = self.ids.offset(addr, self.config.endpoints);
        self.waits.peer_timers.ensure(peer);
        // The slot may have held another peer.
        self.receiving.grants.set_prefix(peer, self.peers[peer].allowance.prefix);
        Some(peer)
    }

    pub(super) fn key(&self, slot: u32) -> RpcKey {
        self.rpcs.key(slot)
    }

    /// Returns the slot of a live RPC.
    pub(super) fn slot(&self, key: RpcKey) -> Option<u32> {
        self.rpcs.slot(key)
    }

    /// Inserts a new RPC into the table, and makes room for it in every structure indexed by slot.
    pub(super) fn insert_rpc(&mut self, rpc: Rpc) -> u32 {
        let (peer, port) = (rpc.peer, rpc.port);
        let slot = self.rpcs.insert(rpc);
        if slot as usize >= self.tables.peer_rpcs.len() {
            self.fit_tables(slot as usize + 1);
        }
        self.tables.port_rpcs.add(port, slot);
        let known = &mut self.peers[peer];
        self.tables.peer_rpcs.push_back(&mut known.rpcs.list, peer, slot);
        let is_client = self.rpcs[slot as usize].state.is_client();
        known.rpcs.add(is_client);
        if !is_client {
            self.waits.peer_timers.arm_by(peer, self.now + self.config.client_silence_ns / 2); // PEER-5
        }
        slot
    }

    /// Removes an RPC from the table and from every queue. The caller reports the reason in an event.
    pub(super) fn remove_rpc(&mut self, slot: u32) -> EndedRpc {
        self.waits.timers.disarm(slot);
        self.sending.ready.remove(slot);
        self.sending.retransmits.remove(slot);
        self.set_unscheduled_state(slot, UnscheduledState::Settled);
        self.not_arriving(slot);
        let rpc = &mut self.rpcs[slot as usize];
        self.tables.port_rpcs.remove(rpc.port, slot);
        self.receiving.grants.remove(slot, rpc.peer);
        self.receiving.grants.granted.recount(&mut rpc.incoming, rpc.peer, 0);
        self.receiving.grants.dirty = true;
        let charged = charge(rpc.incoming.length);
        if let Some(prefix) = rpc.incoming.prefix {
            self.peers.prefixes.remove_rpc(prefix, charged);
        }
        let peer = &mut self.peers[rpc.peer];
        self.tables.peer_rpcs.remove(&mut peer.rpcs.list, slot);
        if self.waits.resend_links.list_of(slot).is_some() {
            self.waits.resend_links.remove(&mut peer.resends.queue, slot);
        }
        self.tables.ids.remove(rpc.peer, rpc.id);
        peer.rpcs.remove(rpc.state.is_client(), charged);
        self.sending.outgoing_bytes -= u64::from(rpc.outgoing.length);
        self.receiving.incoming_bytes -= charged;
        let ended = rpc.ended();
        self.rpcs.remove(slot); // ABORT-3: from here on the key is stale.
        ended
    }

    /// Ends a client RPC with its complete response.
    pub(super) fn end_with_response(&mut self, slot: u32) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.responses_delivered += 1;
        self.mark_served(rpc.peer);
        // The message was completed just before, and the trace event of its completion has the time.
        let place = self.trace.place(peer_number(rpc.peer), 0);
        self.trace.record_again(EventKind::RpcEnd, rpc.id, 0, 0, place);
        self.queue_ack(&rpc);
        let CallOptions { cookie, private, .. } = rpc.options; // ID-13
        self.events.push_back(Event::Response { rpc: key, cookie, private, length: rpc.length });
    }

    /// Ends a client RPC with an error. Its message is freed too, so that no byte of it can be sent again
    /// (AMO-9).
    pub(super) fn end_with_error(&mut self, slot: u32, error: RpcError) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.rpcs_failed += 1;
        self.stats.rpcs_timed_out += u64::from(error == RpcError::Timeout);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, 1 + error as u32, 0, peer_number(rpc.peer), 0);
        // ACK-12: the server need not keep a response for which no client waits.
        if !matches!(
            error,
            RpcError::Unreachable
                | RpcError::ProtocolUnreachable
                | RpcError::PeerRestarted
                | RpcError::NoSuchPort
        ) {
            self.queue_ack(&rpc);
        }
        let CallOptions { cookie, private, .. } = rpc.options;
        self.events.push_back(Event::Failed { rpc: key, cookie, private, error });
    }

    /// Frees a server RPC. Its id counts as finished if the application has seen any part of the request
    /// (AMO-2, AMO-3, AMO-12, ABORT-5).
    pub(super) fn end_server(&mut self, now: Time, slot: u32, reason: DoneReason) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.clients_silent += u64::from(reason == DoneReason::ClientSilent);
        let cause = u32::from(reason != DoneReason::Acknowledged);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, cause, 1, peer_number(rpc.peer), 0);
        if (rpc.state != RpcState::RequestArriving || rpc.taken_early)
            && reason != DoneReason::ClientRestarted
        {
            self.remember_finished(now, &rpc);
        }
        self.events.push_back(Event::Done { rpc: key, reason });
    }

    /// Ends an RPC that this side gives up.
    pub(super) fn abort_slot(&mut self, now: Time, slot: u32) {
        if self.rpcs[slot as usize].state.is_client() {
            self.end_with_error(slot, RpcError::Aborted);
        } else {
            self.end_server(now, slot, DoneReason::Aborted);
        }
    }
}
