//! Turns of unproven peers: they take turns in the last place among the active messages (PROTOCOL.md
//! LIMIT-10).
//!
//! Prefixes take turns, and so do the peers of each prefix. Regardless of how many addresses of one prefix
//! are waiting, the peers of another prefix wait for only one turn of each prefix.

use crate::lists::{Links, List};
use crate::prefix::PrefixId;

/// The peers that wait for their turns.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Links of peers in their prefix's list.
    peer_links: Links,
    /// For each prefix, its waiting peers in the order of their turns.
    peers: Vec<List>,
    /// Links of prefixes with waiting peers.
    prefix_links: Links,
    prefixes: List,
}

impl Default for Turns {
    fn default() -> Turns {
        let (peer_links, prefix_links) = (Links::default(), Links::default());
        Turns { peer_links, peers: Vec::new(), prefix_links, prefixes: List::EMPTY }
    }
}

impl Turns {
    /// Returns the peer that has the current turn.
    pub(crate) fn present(&self) -> Option<u32> {
        self.peers[self.prefixes.head()? as usize].head()
    }

    /// Adds a peer that waits for no turn yet.
    pub(crate) fn add(&mut self, peer: u32, prefix: PrefixId) {
        let slot = prefix.slot();
        if slot >= self.peers.len() {
            self.peers.resize(slot + 1, List::EMPTY);
        }
        self.peer_links.ensure(peer);
        self.prefix_links.ensure(slot as u32);
        if self.peers[slot].is_empty() {
            self.prefix_links.push_back(&mut self.prefixes, 0, slot as u32);
        }
        self.peer_links.push_back(&mut self.peers[slot], slot as u32, peer);
    }

    /// Removes a peer, if it waits for a turn.
    pub(crate) fn remove(&mut self, peer: u32) {
        let Some(slot) = self.peer_links.list_of(peer) else { return };
        let peers = &mut self.peers[slot as usize];
        self.peer_links.remove(peers, peer);
        if peers.is_empty() {
            self.prefix_links.remove(&mut self.prefixes, slot);
        }
    }

    /// Ends the current turn. The next prefix has the next turn; in this prefix's next turn, its next peer is
    /// first.
    pub(crate) fn pass(&mut self) {
        let Some(slot) = self.prefixes.head() else { return };
        self.prefix_links.remove(&mut self.prefixes, slot);
        self.prefix_links.push_back(&mut self.prefixes, 0, slot);
        let peers = &mut self.peers[slot as usize];
        if let Some(peer) = peers.head() {
            self.peer_links.remove(peers, peer);
            self.peer_links.push_back(peers, slot, peer);
        }
    }

    /// Panics unless the lists are consistent; returns the waiting peers.
    pub(crate) fn check(&self) -> Vec<u32> {
        let waiting = self.peers.iter().filter(|peers| !peers.is_empty()).count();
        assert_eq!(self.prefix_links.check(&self.prefixes, 0), waiting, "prefixes that have turns");
        let mut all = Vec::new();
        for (slot, peers) in self.peers.iter().enumerate() {
            self.peer_links.check(peers, slot as u32);
            all.extend(self.peer_links.iter(peers));
        }
        all
    }
}
