//! What callers and tools can see of the endpoint.

use std::net::SocketAddr;

use homa_trace::Trace;

use super::state::Endpoint;
use crate::config::Config;
use crate::contract::{PeerInfo, RpcKey};
use crate::inspect::RpcInfo;
use crate::peer::peer_number;
use crate::rpc::Rpc;
use crate::stats::Stats;
use crate::wire::PRIORITIES;

impl Endpoint {
    /// The RPC's id in packets: even for a client's RPC, odd for a server's. `None` if the key is stale.
    pub fn rpc_id(&self, rpc: RpcKey) -> Option<u64> {
        self.slot(rpc).map(|slot| self.rpcs[slot as usize].id)
    }

    /// How a time trace identifies a live RPC: by its id, and by the number of its peer
    /// ([`peer_numbers`](Endpoint::peer_numbers)).
    pub fn traced(&self, rpc: RpcKey) -> Option<(u64, u16)> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        Some((rpc.id, peer_number(rpc.peer)))
    }

    /// Number of open RPCs, as client and as server.
    pub fn open_rpcs(&self) -> usize {
        self.rpcs.len()
    }

    /// What is known of each peer, in no particular order. Takes time in proportion to the number of peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerInfo> + '_ {
        self.peers.iter().map(|(peer, known)| PeerInfo {
            addr: known.addr,
            is_ours: known.is_ours(),
            dialect: known.dialect(self.now, &self.config),
            rpcs: known.rpcs.count(),
            rtt_ns: known.rtt.min_ns(),
            unsched_bytes: self.unscheduled_to(peer, u32::MAX),
            unsched_limit: Some(known.cutoffs.unsched_limit()).filter(|&limit| limit != u32::MAX),
            max_packet: known.path.longest(),
            refused: known.allowance.refused,
        })
    }

    /// Maximum unscheduled bytes of a message announced to peers, because too many once arrived at the same
    /// time. `None`: peers are sent no limit.
    pub fn unsched_limit(&self) -> Option<u32> {
        self.receiving.incast_estimator.limit()
    }

    /// Number of known peers.
    pub fn known_peers(&self) -> usize {
        self.peers.len()
    }

    /// The cutoffs that this host asks its peers to use, and their version.
    pub fn cutoffs(&self) -> ([u32; PRIORITIES], u16) {
        (*self.receiving.cutoffs.levels(), self.receiving.cutoffs.version())
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The recorder of time traces.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// The number of each peer in the trace ([`Place::peer`](homa_trace::Place::peer)), with its address. The
    /// number of a forgotten peer is reused. Peers beyond the range of a trace record share the last number
    /// and are not listed.
    pub fn peer_numbers(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let numbered = self.peers.iter().map(|(slot, peer)| (peer_number(slot), peer.addr));
        numbered.filter(|(number, _)| *number != u16::MAX)
    }

    /// Progress of a live RPC.
    pub fn rpc_info(&self, rpc: RpcKey) -> Option<RpcInfo> {
        self.slot(rpc).map(|slot| self.info_of(&self.rpcs[slot as usize]))
    }

    /// Progress of each RPC of one of this host's ports, oldest first. Takes time in proportion to their
    /// number.
    pub fn rpcs_at(&self, port: u16) -> impl Iterator<Item = RpcInfo> + '_ {
        self.tables.port_rpcs.iter(port).map(|slot| self.info_of(&self.rpcs[slot as usize]))
    }

    fn info_of(&self, rpc: &Rpc) -> RpcInfo {
        RpcInfo::of(rpc, self.peers[rpc.peer].addr)
    }
}
