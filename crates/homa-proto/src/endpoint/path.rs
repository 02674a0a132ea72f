//! The longest packet to each peer (PROTOCOL.md SEND-15, SEND-16).

use std::net::SocketAddr;

use super::state::Endpoint;
use crate::time::Time;
use crate::wire::DATA_HEADER_LEN;

impl Endpoint {
    /// Sets the largest Homa packet (including the header) that the path to `peer` carries, 57 to 65535
    /// bytes; other values are clamped. Does nothing for an unknown peer. The size also applies to bytes sent
    /// before: retransmissions are cut to the new size.
    pub fn set_peer_max_packet(&mut self, peer: SocketAddr, bytes: u32) {
        if let Some(peer) = self.peers.find(&peer) {
            self.peers[peer].path.set_configured(bytes);
        }
    }

    /// Returns a peer whose path may have become narrower, since the peer has requested bytes again. The
    /// caller must check the path and report its maximum packet size with
    /// [`set_peer_max_packet`](Endpoint::set_peer_max_packet). `None`: no further peer. Call it after
    /// `handle_packets`.
    pub fn poll_path(&mut self) -> Option<SocketAddr> {
        while let Some(peer) = self.sending.paths_to_check.pop_front() {
            // The slot may hold another peer by now.
            if self.peers.contains(peer) && self.peers[peer].path.take_check() {
                return Some(self.peers[peer].addr);
            }
        }
        None
    }

    /// Requests a check of the path, since the peer has requested bytes of the RPC's outgoing message that
    /// were already sent.
    pub(super) fn request_path_check(&mut self, now: Time, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        let known = &mut self.peers[rpc.peer];
        // SEND-15
        let has_room = self.sending.paths_to_check.len() < self.config.max_peers as usize;
        // A planted fault that the swarm must find: the path's current maximum packet size is never checked.
        #[cfg(homa_canary)]
        let has_room = has_room && !crate::planted_faults::has("path_unquestioned");
        if has_room && known.path.request_check() {
            self.sending.paths_to_check.push_back(rpc.peer);
        }
        // A planted fault that the swarm must find: packets never become smaller, no matter how many times
        // they are lost.
        #[cfg(homa_canary)]
        if crate::planted_faults::has("path_stays_wide") {
            rpc.requested.repeats = 0;
        }
        // SEND-16
        if known.path.full_packet_arrived_at > rpc.wait.progress_at {
            return;
        }
        let longest = known.path.longest().min(rpc.outgoing.length.saturating_add(DATA_HEADER_LEN as u32));
        if !known.path.narrow(now, rpc.requested.repeats, longest) {
            return;
        }
        rpc.requested.repeats = 0;
        self.stats.paths_narrowed += 1;
    }

    /// Records that a message of `length` bytes to `peer` has arrived.
    pub(super) fn message_arrived(&mut self, now: Time, peer: u32, length: u32) {
        if length >= self.max_payload(peer) {
            self.peers[peer].path.full_packet_arrived_at = now;
        }
    }

    /// Tries long packets to `peer` again when the retry is due (SEND-16).
    pub(super) fn widen_path(&mut self, now: Time, peer: u32) {
        self.peers[peer].path.widen(now);
    }
}
