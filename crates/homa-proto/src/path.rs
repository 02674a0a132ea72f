//! The longest packet that goes to a peer: what its caller says of the path, and less where long packets do not arrive (PROTOCOL.md
//! SEND-15, SEND-16).

use std::net::SocketAddr;

use crate::endpoint::Endpoint;
use crate::time::{SEC, Time};
use crate::wire::DATA_HEADER_LEN;

/// Homa packets tried where longer ones do not arrive: of IPv6 and UDP on Ethernet, of the least MTU of IPv6, and of the 576 bytes that
/// every IPv4 host takes, each less 48 bytes for IPv6 and UDP headers.
const SMALLER: [u32; 3] = [1_500 - 48, 1_280 - 48, 576 - 48];

/// Times that the same bytes are lost before the path counts as too narrow for them: MAX_PROBES of RFC 8899, section 5.1.2.
const LOST_BEFORE_SMALLER: u8 = 3;

/// How long the smaller packets last: PMTU_RAISE_TIMER of RFC 8899, section 5.1.1.
const SMALLER_FOR_NS: u64 = 600 * SEC;

/// What is known of the path to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Longest packet by what the caller says.
    told: u32,
    /// Longest packet since longer ones did not arrive, and since when; `u32::MAX`: they do.
    smaller: u32,
    smaller_since: Time,
    /// When a message with a full packet last turned out to have arrived.
    pub full_arrived: Time,
    /// Stands in the queue of paths that the caller is to look at.
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
    /// Sets the largest Homa packet (header included) that the path to `peer` carries, 57 to 65535 bytes; other values are
    /// brought into that range. Takes effect for a peer that is known, for what it has been sent before, too: bytes that are sent again are
    /// cut anew.
    pub fn set_peer_max_packet(&mut self, peer: SocketAddr, bytes: u32) {
        if let Some(peer) = self.peers.find(&peer) {
            let known = &mut self.peers[peer];
            known.path.told = bytes.clamp(DATA_HEADER_LEN as u32 + 1, 65_535);
            known.max_packet = known.path.longest();
        }
    }

    /// A peer whose path may have become narrower, since it has asked for bytes again: the caller looks and says what it finds by
    /// [`set_peer_max_packet`](Endpoint::set_peer_max_packet). `None`: there is no more. To be asked after `handle_packets`.
    pub fn poll_path(&mut self) -> Option<SocketAddr> {
        while let Some(peer) = self.paths_in_question.pop_front() {
            // Its slot may have another user by now.
            if self.peers.contains(peer) && std::mem::take(&mut self.peers[peer].path.in_question) {
                return Some(self.peers[peer].addr);
            }
        }
        None
    }

    /// The peer asks again for bytes of the RPC's outgoing message that were sent.
    pub(crate) fn question_path(&mut self, now: Time, slot: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        let known = &mut self.peers[rpc.peer];
        // SEND-15
        let has_room = self.paths_in_question.len() < self.config.max_peers as usize;
        // A planted fault that the swarm must find: nobody looks how wide the path is by now.
        #[cfg(homa_canary = "path_unquestioned")]
        let has_room = has_room && self.config.max_peers == 0;
        if has_room && !std::mem::replace(&mut known.path.in_question, true) {
            self.paths_in_question.push_back(rpc.peer);
        }
        // A planted fault that the swarm must find: packets stay as long as ever, however often they are lost.
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

    /// A message of `length` bytes to `peer` has arrived.
    pub(crate) fn message_arrived(&mut self, now: Time, peer: u32, length: u32) {
        if length >= self.max_payload(peer) {
            self.peers[peer].path.full_arrived = now;
        }
    }

    /// Tries long packets to `peer` again where it is time for that (SEND-16).
    pub(crate) fn widen_path(&mut self, now: Time, peer: u32) {
        let known = &mut self.peers[peer];
        if known.path.smaller != u32::MAX && now.since(known.path.smaller_since) >= SMALLER_FOR_NS {
            known.path.smaller = u32::MAX;
            known.max_packet = known.path.longest();
        }
    }
}
