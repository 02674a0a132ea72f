//! Read access to the endpoint's state, for callers and tools.

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
    /// Returns the RPC's id in packets: even on the client, odd on the server. `None` if the key is stale.
    pub fn rpc_id(&self, rpc: RpcKey) -> Option<u64> {
        self.slot(rpc).map(|slot| self.rpcs[slot as usize].id)
    }

    /// Returns the identification of a live RPC in a time trace: its id, and the number of its peer
    /// ([`peer_numbers`](Endpoint::peer_numbers)).
    pub fn traced(&self, rpc: RpcKey) -> Option<(u64, u16)> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        Some((rpc.id, peer_number(rpc.peer)))
    }

    /// Returns the number of open RPCs, as client and as server.
    pub fn open_rpcs(&self) -> usize {
        self.rpcs.len()
    }

    /// Returns the information about each peer, in no particular order. Takes time proportional to the number
    /// of peers.
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

    /// Returns the limit on the unscheduled bytes of a message that is announced to peers, because too many
    /// unscheduled bytes arrived at the same time. `None`: no limit is announced.
    pub fn unsched_limit(&self) -> Option<u32> {
        self.receiving.incast_estimator.limit()
    }

    /// Returns the number of known peers.
    pub fn known_peers(&self) -> usize {
        self.peers.len()
    }

    /// Returns the cutoffs that this host announces to its peers, and their version.
    pub fn cutoffs(&self) -> ([u32; PRIORITIES], u16) {
        (*self.receiving.cutoffs.levels(), self.receiving.cutoffs.version())
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the time trace recorder.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Returns the number of each peer in the trace ([`Place::peer`](homa_trace::Place::peer)), with the
    /// peer's address. The number of a forgotten peer is reused. Peers whose numbers do not fit a trace
    /// record share the last number and are not listed.
    pub fn peer_numbers(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let numbered = self.peers.iter().map(|(slot, peer)| (peer_number(slot), peer.addr));
        numbered.filter(|(number, _)| *number != u16::MAX)
    }

    /// Returns the progress of a live RPC.
    pub fn rpc_info(&self, rpc: RpcKey) -> Option<RpcInfo> {
        self.slot(rpc).map(|slot| self.info_of(&self.rpcs[slot as usize]))
    }

    /// Returns the progress of each RPC of one of this host's ports, oldest first. Takes time proportional to
    /// the number of these RPCs.
    pub fn rpcs_at(&self, port: u16) -> impl Iterator<Item = RpcInfo> + '_ {
        self.tables.port_rpcs.iter(port).map(|slot| self.info_of(&self.rpcs[slot as usize]))
    }

    fn info_of(&self, rpc: &Rpc) -> RpcInfo {
        RpcInfo::of(rpc, self.peers[rpc.peer].addr)
    }
}
