//! Freezes the time traces of a host and of its peers at the same moment, so that every trace shows what
//! preceded the freeze.

use std::cmp::Reverse;
use std::net::SocketAddr;

use homa_trace::EventKind;

use super::state::Endpoint;
use crate::contract::Event;
use crate::peer::peer_number;
use crate::wire::Body;

/// Maximum number of FREEZE events that the application has not polled yet. The application needs to know
/// that some arrived, not how many.
const MAX_FREEZE_EVENTS: usize = 4_096;

/// Maximum number of peers to which FREEZE is sent at a time: more than a rack. The packets are sent before
/// all messages, and take about 10 us on a 25 Gbit/s link.
pub const MAX_FREEZE_PEERS: usize = 512;

impl Endpoint {
    /// FREEZE-1, FREEZE-2: handles a FREEZE, which only causes an event.
    pub(super) fn note_freeze(&mut self, peer: SocketAddr) {
        if self.events.len() < MAX_FREEZE_EVENTS {
            self.events.push_back(Event::Freeze { peer });
        }
    }

    /// Sends a FREEZE packet to each peer from which any packet has been received, and returns the number of
    /// packets. If there are more than [`MAX_FREEZE_PEERS`] such peers, only the peers whose packets arrived
    /// most recently get a FREEZE (FREEZE-3). Like all control packets, these are sent before all messages.
    /// The caller must freeze this host's own trace.
    pub fn freeze_peers(&mut self) -> usize {
        let recent = self.peers.iter().filter(|(_, peer)| peer.silence.has_sent());
        let mut recent: Vec<(Reverse<u64>, u32)> =
            recent.map(|(slot, peer)| (Reverse(peer.silence.last_packet_at().as_ns()), slot)).collect();
        recent.sort_unstable();
        recent.truncate(MAX_FREEZE_PEERS);
        for &(_, peer) in &recent {
            let known = &self.peers[peer];
            // Use the ports of an existing RPC with the peer, so that packet filters let the FREEZE through.
            let rpc =
                self.tables.peer_rpcs.iter(&known.rpcs.list).next().map(|slot| &self.rpcs[slot as usize]);
            let (port, peer_port, id) = rpc.map_or((0, 0, 0), |rpc| (rpc.port, rpc.peer_port, rpc.id));
            let (to, common) = (known.addr, self.common(port, peer_port, id));
            self.queue_control((to, Some(peer)), &common, &Body::Freeze);
            self.stats.freezes_sent += 1;
            self.trace.record_with(EventKind::FreezeSent, id, 0, 0, peer_number(peer), 0);
        }
        recent.len()
    }
}
