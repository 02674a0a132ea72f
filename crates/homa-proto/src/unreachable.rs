//! What the network reports (ICMP) of packets that nobody took, and the RPCs that end with it (PEER-4).

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::contract::{DoneReason, RpcError, Unreachable};
use crate::endpoint::Endpoint;
use crate::peer::LifeEnd;
use crate::time::Time;

/// Reports of ports whose RPCs are being ended; more are dropped and counted. What a dropped one would have ended asks again
/// by RESEND, and is reported again.
const MAX_REFUSED_PORTS: usize = 256;

/// A Homa port at which nobody is, and how far its client RPCs have been ended.
#[derive(Debug)]
struct RefusedPort {
    /// By address: the peer may be forgotten meanwhile, and its slot be another's.
    peer: SocketAddr,
    port: u16,
    /// The count of the first request after the report: a server may have been started since.
    until_id: u64,
    /// The RPC from which the peer's list is looked at next.
    cursor: Option<u32>,
}

/// Reports that are being worked off.
#[derive(Debug, Default)]
pub(crate) struct RefusedPorts {
    queue: VecDeque<RefusedPort>,
}

impl RefusedPorts {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Endpoint {
    /// The network says that packets to `peer` are not taken there. The RPCs that this concerns end, a few per drive call
    /// (PEER-4).
    pub fn peer_unreachable(&mut self, now: Time, peer: SocketAddr, report: Unreachable) {
        let now = self.advance(now);
        let Some(known) = self.peers.find(&peer) else { return };
        match report {
            Unreachable::Peer => self.end_peer_life(known, LifeEnd::Unreachable),
            Unreachable::Protocol => self.end_peer_life(known, LifeEnd::NoHoma),
            Unreachable::Port { port, rpc_id } => {
                self.end_refused_server(now, known, port, rpc_id);
                self.note_refused_port(known, peer, port);
            }
        }
    }

    /// A client's port is gone: the RPC whose packet was refused has nobody to answer to. Others of that port are found out by
    /// packets of their own.
    fn end_refused_server(&mut self, now: Time, peer: u32, port: u16, rpc_id: Option<u64>) {
        let Some(id) = rpc_id else { return };
        if let Some(&slot) = self.server_ids.get(&(peer, id))
            && self.rpcs[slot as usize].peer_port == port
        {
            self.end_server(now, slot, DoneReason::ClientSilent);
        }
    }

    fn note_refused_port(&mut self, known: u32, peer: SocketAddr, port: u16) {
        let (until_id, cursor) = (self.next_id, self.peers[known].rpcs.head());
        let queue = &mut self.refused_ports.queue;
        // A second report of the same port begins anew, since it concerns younger RPCs as well.
        if let Some(same) = queue.iter_mut().find(|refused| (refused.peer, refused.port) == (peer, port)) {
            (same.until_id, same.cursor) = (until_id, cursor);
        } else if queue.len() < MAX_REFUSED_PORTS {
            queue.push_back(RefusedPort { peer, port, until_id, cursor });
        } else {
            self.stats.reports_dropped += 1;
        }
    }

    /// Ends the client RPCs to ports at which nobody is. Each RPC looked at costs budget, ended or not.
    pub(crate) fn end_refused_clients(&mut self, budget: &mut u32) {
        while let Some(refused) = self.refused_ports.queue.front_mut() {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            let Some(peer) = self.peers.find(&refused.peer) else {
                self.refused_ports.queue.pop_front();
                continue;
            };
            let Some(slot) = refused.cursor else {
                self.refused_ports.queue.pop_front();
                continue;
            };
            if self.peer_rpcs.list_of(slot) != Some(peer) {
                // It ended meanwhile and has left the list: begin again.
                refused.cursor = self.peers[peer].rpcs.head();
                continue;
            }
            refused.cursor = self.peer_rpcs.next(slot);
            let rpc = &self.rpcs[slot as usize];
            let count = self.peers[peer].ids.count(rpc.id, self.config.endpoints);
            // Requests are counted up, and around: the older one is behind by less than half of all numbers.
            let began_before = refused.until_id.wrapping_sub(count) as i64 > 0;
            if rpc.state.is_client() && rpc.peer_port == refused.port && began_before {
                self.end_with_error(slot, RpcError::NoSuchPort);
            }
        }
    }
}
