//! The longest packet to a peer: as set by the caller for the path, and less if long packets do not arrive
//! (PROTOCOL.md SEND-15, SEND-16).

use std::net::SocketAddr;

use crate::endpoint::Endpoint;
use crate::time::{SEC, Time};
use crate::wire::DATA_HEADER_LEN;

/// Homa packets tried if longer ones do not arrive. They fit IPv6 and UDP on Ethernet, the minimum MTU of
/// IPv6, and the 576 bytes that every IPv4 host accepts. Each is less 48 bytes for IPv6 and UDP headers.
const SMALLER: [u32; 3] = [1_500 - 48, 1_280 - 48, 576 - 48];

/// Number of losses of the same bytes before the path counts as too narrow for them: MAX_PROBES of RFC 8899,
/// section 5.1.2.
const LOST_BEFORE_SMALLER: u8 = 3;

/// How long the smaller packets are used: PMTU_RAISE_TIMER of RFC 8899, section 5.1.1.
const SMALLER_FOR_NS: u64 = 600 * SEC;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Longest packet as set by the caller.
    told: u32,
    /// Longest packet since longer ones did not arrive, and the time of that; `u32::MAX`: they arrive.
    smaller: u32,
    smaller_since: Time,
    /// When a message with a full packet was last known to have arrived.
    pub full_arrived: Time,
    /// Whether the path is in the queue of paths that the caller must check.
    in_question: bool,
}

impl Path {
    pub(crate) fn new(told: u32) -> Path {
        Path {
            told,
            smaller: u32::MAX,
            smaller_since: Time::ZERO,
            full_arrived: Time::ZERO,
            in_question: false,
        }
    }

    fn longest(&self) -> u32 {
        self.told.min(self.smaller)
    }
}

impl Endpoint {
    /// Sets the largest Homa packet (including the header) that the path to `peer` carries, 57 to 65535
    /// bytes; other values are clamped. Does nothing for an unknown peer. It also applies to bytes sent
    /// before: retransmissions are cut to the new size.
    pub fn set_peer_max_packet(&mut self, peer: SocketAddr, bytes: u32) {
        if let Some(peer) = self.peers.find(&peer) {
            let known = &mut self.peers[peer];
            known.path.told = bytes.clamp(DATA_HEADER_LEN as u32 + 1, 65_535);
            known.max_packet = known.path.longest();
        }
    }

    /// A peer whose path may have become narrower, since the peer has requested bytes again. The caller
    /// checks the path and reports its size by [`set_peer_max_packet`](Endpoint::set_peer_max_packet).
    /// `None`: there is no more. Call it after `handle_packets`.
    pub fn poll_path(&mut self) -> Option<SocketAddr> {
        while let Some(peer) = self.paths_in_question.pop_front() {
            // The slot may hold another peer by now.
            if self.peers.contains(peer) && std::mem::take(&mut self.peers[peer].path.in_question) {
                return Some(self.peers[peer].addr);
            }
        }
        None
    }

    /// The peer requests bytes again that were already sent of the RPC's outgoing message.
    pub(crate) fn question_path(&mut self, now: Time, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        let known = &mut self.peers[rpc.peer];
        // SEND-15
        let has_room = self.paths_in_question.len() < self.config.max_peers as usize;
        // A planted fault that the swarm must find: the present width of the path is never checked.
        #[cfg(homa_canary = "path_unquestioned")]
        let has_room = has_room && self.config.max_peers == 0;
        if has_room && !std::mem::replace(&mut known.path.in_question, true) {
            self.paths_in_question.push_back(rpc.peer);
        }
        // A planted fault that the swarm must find: packets never become smaller, however often they are
        // lost.
        #[cfg(homa_canary = "path_stays_wide")]
        let _ = std::mem::take(&mut rpc.requested.repeats);
        // SEND-16
        if rpc.requested.repeats < LOST_BEFORE_SMALLER || known.path.full_arrived > rpc.progress_at {
            return;
        }
        let longest = known.max_packet.min(rpc.outgoing.length.saturating_add(DATA_HEADER_LEN as u32));
        let Some(&smaller) = SMALLER.iter().find(|&&smaller| smaller < longest) else { return };
        (known.path.smaller, known.path.smaller_since) = (smaller, now);
        known.max_packet = known.path.longest();
        rpc.requested.repeats = 0;
        self.stats.paths_narrowed += 1;
    }

    /// Records that a message of `length` bytes to `peer` has arrived.
    pub(crate) fn message_arrived(&mut self, now: Time, peer: u32, length: u32) {
        if length >= self.max_payload(peer) {
            self.peers[peer].path.full_arrived = now;
        }
    }

    /// Tries long packets to `peer` again if it is time for that (SEND-16).
    pub(crate) fn widen_path(&mut self, now: Time, peer: u32) {
        let known = &mut self.peers[peer];
        if known.path.smaller != u32::MAX && now.since(known.path.smaller_since) >= SMALLER_FOR_NS {
            known.path.smaller = u32::MAX;
            known.max_packet = known.path.longest();
        }
    }
}
