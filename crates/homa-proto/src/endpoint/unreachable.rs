//! Ending RPCs after ICMP reports (PROTOCOL.md PEER-4).

use std::net::SocketAddr;

use super::state::Endpoint;
use crate::contract::{DoneReason, RpcError, Unreachable};
use crate::incarnation_end::IncarnationEnd;
use crate::time::Time;
use crate::unreachable::MissingTarget;

impl Endpoint {
    /// Handles an ICMP report that packets to `peer` cannot be delivered. If the report quotes a request of
    /// ours, the RPCs concerned end, a few per drive call. Otherwise it may be forged and is only counted
    /// (PEER-4).
    pub fn peer_unreachable(&mut self, now: Time, peer: SocketAddr, report: Unreachable) {
        let now = self.advance(now);
        let Some(known) = self.peers.find(&peer) else { return };
        let (rpc_id, reported) = match report {
            Unreachable::Peer { rpc_id } => (rpc_id, MissingTarget::Peer(IncarnationEnd::Unreachable)),
            Unreachable::Protocol { rpc_id } => (rpc_id, MissingTarget::Peer(IncarnationEnd::NoHoma)),
            Unreachable::Port { port, rpc_id } => {
                if self.end_refused_server(now, known, port, rpc_id) {
                    return;
                }
                (rpc_id, MissingTarget::Port(port))
            }
        };
        if self.is_request_to(known, rpc_id, reported) {
            match reported {
                MissingTarget::Peer(end) => self.end_peer_epoch(known, end),
                MissingTarget::Port(port) => self.note_refused_port(known, peer, port),
            }
        } else {
            self.stats.reports_doubted += u64::from(self.peers[known].rpcs.count() > 0);
        }
    }

    /// Returns whether `rpc_id` is the id of an open request of ours to the reported peer and port.
    fn is_request_to(&self, peer: u32, rpc_id: Option<u64>, reported: MissingTarget) -> bool {
        let Some(slot) = rpc_id.and_then(|id| self.tables.ids.client(id)) else { return false };
        let rpc = &self.rpcs[slot as usize];
        rpc.peer == peer
            && rpc.epoch == self.peers[peer].incarnation.epoch()
            && !matches!(reported, MissingTarget::Port(port) if port != rpc.peer_port)
    }

    /// Handles a report that a client's port is closed: ends the server RPC whose packet was refused, since
    /// no client waits for its response. Other RPCs of that port end when their own packets are refused.
    /// Returns whether there was such an RPC.
    fn end_refused_server(&mut self, now: Time, peer: u32, port: u16, rpc_id: Option<u64>) -> bool {
        let Some(slot) = rpc_id.and_then(|id| self.tables.ids.server(peer, id)) else { return false };
        let refused = self.rpcs[slot as usize].peer_port == port;
        if refused {
            self.end_server(now, slot, DoneReason::ClientSilent);
        }
        refused
    }

    fn note_refused_port(&mut self, known: u32, peer: SocketAddr, port: u16) {
        let (until_id, cursor) = (self.ids.next(), self.peers[known].rpcs.list.head());
        let has_room = self.lifetimes.refused_ports.add(peer, port, until_id, cursor);
        self.stats.reports_dropped += u64::from(!has_room);
    }

    /// Ends the client RPCs to refused ports. Each examined RPC uses one unit of `budget`, whether or not the
    /// RPC is ended.
    pub(super) fn end_refused_clients(&mut self, budget: &mut u32) {
        while let Some(refused) = self.lifetimes.refused_ports.first_mut() {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            let Some(peer) = self.peers.find(&refused.peer) else {
                self.lifetimes.refused_ports.remove_first();
                continue;
            };
            let Some(slot) = refused.cursor else {
                self.lifetimes.refused_ports.remove_first();
                continue;
            };
            if self.tables.peer_rpcs.list_of(slot) != Some(peer) {
                // The RPC at the cursor ended meanwhile and left the list, so restart from the beginning.
                refused.cursor = self.peers[peer].rpcs.list.head();
                continue;
            }
            refused.cursor = self.tables.peer_rpcs.next(slot);
            let rpc = &self.rpcs[slot as usize];
            let count = self.peers[peer].ids.count(rpc.id, self.config.endpoints);
            if rpc.state.is_client() && rpc.peer_port == refused.port && refused.concerns(count) {
                // If the server has answered, the port was open and has been closed since, and the request is
                // lost.
                let error = if rpc.wait.answered { RpcError::PeerRestarted } else { RpcError::NoSuchPort };
                self.end_with_error(slot, error);
            }
        }
    }
}
