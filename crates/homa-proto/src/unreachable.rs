//! ICMP reports of packets that could not be delivered, and the RPCs that end because of them (PEER-4).

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::contract::{DoneReason, RpcError, Unreachable};
use crate::endpoint::Endpoint;
use crate::peer::IncarnationEnd;
use crate::time::Time;

/// Maximum reports of ports whose RPCs are being ended; further ones are dropped and counted. An RPC that a
/// dropped report would have ended sends RESEND, which causes another report.
const MAX_REFUSED_PORTS: usize = 256;

/// A Homa port without a process, and how far its client RPCs have been ended.
#[derive(Debug)]
struct RefusedPort {
    /// An address, since the peer may be forgotten meanwhile and its slot reused.
    peer: SocketAddr,
    port: u16,
    /// The counter value of the first request after the report: a server may have been started since.
    until_id: u64,
    /// The RPC at which the scan of the peer's list continues.
    cursor: Option<u32>,
}

/// Reports that are being processed.
#[derive(Debug, Default)]
pub(crate) struct RefusedPorts {
    queue: VecDeque<RefusedPort>,
}

impl RefusedPorts {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// A report that may be forged: it does not quote a request of ours, which only a receiver of our packets
/// can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuspectReport {
    since: Time,
    report: MissingTarget,
}

/// The target that a report declares missing.
#[derive(Clone, Copy, Debug)]
enum MissingTarget {
    Peer(IncarnationEnd),
    Port(u16),
}

/// Number of RESEND intervals for which a peer is challenged before a report that may be forged is believed.
/// A process that waits for a processor on a full machine is silent for three of them (15 ms by default).
/// With so few, forged reports ended calls to such a process. A true report recurs for the next request or
/// RESEND, quotes it, and is believed at once.
const DOUBTED_INTERVALS: u64 = 20;

impl Endpoint {
    /// Handles a report of the network that packets to `peer` cannot be delivered. If the report quotes a
    /// request of ours, the RPCs concerned end, a few per drive call. Otherwise the peer is challenged, and
    /// they end if it stays silent (PEER-4).
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
            self.believe(known, reported);
        } else {
            self.doubt(now, known, reported);
        }
    }

    /// Whether `rpc_id` is that of an open request of ours to the reported peer and port.
    fn is_request_to(&self, peer: u32, rpc_id: Option<u64>, reported: MissingTarget) -> bool {
        let Some(slot) = rpc_id.and_then(|id| self.client_ids.get(&id)) else { return false };
        let rpc = &self.rpcs[*slot as usize];
        rpc.peer == peer
            && rpc.life == self.peers[peer].life
            && !matches!(reported, MissingTarget::Port(port) if port != rpc.peer_port)
    }

    fn believe(&mut self, peer: u32, reported: MissingTarget) {
        self.peers[peer].doubt = None;
        match reported {
            MissingTarget::Peer(end) => self.end_peer_life(peer, end),
            MissingTarget::Port(port) => self.note_refused_port(peer, self.peers[peer].addr, port),
        }
    }

    fn doubt(&mut self, now: Time, peer: u32, reported: MissingTarget) {
        let known = &mut self.peers[peer];
        if known.rpc_count == 0 {
            return;
        }
        self.stats.reports_doubted += 1;
        if known.doubt.is_none() {
            known.doubt = Some(SuspectReport { since: now, report: reported });
            self.ask_doubted(now, peer);
        }
    }

    /// Challenges a peer after a doubtful report. Every Homa answers a challenge, even if its servers are
    /// computing.
    fn ask_doubted(&mut self, now: Time, peer: u32) {
        let Some(oldest) = self.peers[peer].rpcs.head() else { return };
        let (port, peer_port) = (self.rpcs[oldest as usize].port, self.rpcs[oldest as usize].peer_port);
        self.challenge(now, peer, port, peer_port);
        self.peer_timers.arm_by(peer, now + self.config.resend_interval_ns);
    }

    /// Handles the timer of a peer with a doubtful report: checks whether any packet came from it since.
    pub(crate) fn weigh_doubt(&mut self, now: Time, peer: u32) {
        let Some(doubt) = self.peers[peer].doubt else { return };
        let interval_ns = self.config.resend_interval_ns;
        if self.peers[peer].last_heard > doubt.since {
            self.peers[peer].doubt = None;
        } else if now.since(doubt.since) >= interval_ns.saturating_mul(DOUBTED_INTERVALS) {
            self.believe(peer, doubt.report);
        } else {
            self.ask_doubted(now, peer);
        }
    }

    /// A client's port is gone: ends the RPC whose packet was refused, since no client waits for its
    /// response. Other RPCs of that port are found by packets of their own. Returns whether there was such an
    /// RPC.
    fn end_refused_server(&mut self, now: Time, peer: u32, port: u16, rpc_id: Option<u64>) -> bool {
        let Some(&slot) = rpc_id.and_then(|id| self.server_ids.get(&(peer, id))) else { return false };
        let refused = self.rpcs[slot as usize].peer_port == port;
        if refused {
            self.end_server(now, slot, DoneReason::ClientSilent);
        }
        refused
    }

    fn note_refused_port(&mut self, known: u32, peer: SocketAddr, port: u16) {
        let (until_id, cursor) = (self.next_id, self.peers[known].rpcs.head());
        let queue = &mut self.refused_ports.queue;
        // A second report of the same port restarts the scan, since it concerns younger RPCs as well.
        if let Some(same) = queue.iter_mut().find(|refused| (refused.peer, refused.port) == (peer, port)) {
            (same.until_id, same.cursor) = (until_id, cursor);
        } else if queue.len() < MAX_REFUSED_PORTS {
            queue.push_back(RefusedPort { peer, port, until_id, cursor });
        } else {
            self.stats.reports_dropped += 1;
        }
    }

    /// Ends the client RPCs to refused ports. Each examined RPC costs budget, whether or not it is ended.
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
                // The RPC at the cursor ended meanwhile and left the list: begin again.
                refused.cursor = self.peers[peer].rpcs.head();
                continue;
            }
            refused.cursor = self.peer_rpcs.next(slot);
            let rpc = &self.rpcs[slot as usize];
            let count = self.peers[peer].ids.count(rpc.id, self.config.endpoints);
            // Request counters wrap: the older request is behind by less than half of all numbers.
            let began_before = refused.until_id.wrapping_sub(count) as i64 > 0;
            if rpc.state.is_client() && rpc.peer_port == refused.port && began_before {
                // The port was open and is gone, and the request with it.
                let error = if rpc.answered { RpcError::PeerRestarted } else { RpcError::NoSuchPort };
                self.end_with_error(slot, error);
            }
        }
    }
}
