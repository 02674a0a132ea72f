//! The table of known peers, and the choice of peers to forget to make room (PROTOCOL.md PEER-11, SHARE-11).

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use slab::Slab;

use crate::config::Config;
use crate::peer::Peer;
use crate::prefix::{self, Prefixes};
use crate::share::{Refusal, Share};
use crate::time::Time;

/// Number of peers examined when one must be forgotten to make room. It limits the work, and is enough to
/// find a peer unless nearly all are in use.
const EVICT_STEPS: usize = 16;

#[derive(Debug)]
pub(crate) struct Peers {
    by_addr: HashMap<SocketAddr, u32, FixedState>,
    slots: Slab<Peer>,
    /// Number of peers that are unproven.
    unproven: usize,
    /// Address prefixes of the unproven peers.
    pub prefixes: Prefixes,
    hand: usize,
    /// The peer found last: packets arrive in runs from one peer.
    last: Cell<Option<(SocketAddr, u32)>>,
}

/// Returns the number of places in the table that unproven peers may occupy. The rest is reserved for proven
/// peers and for peers that we call (SHARE-11).
fn unproven_places(config: &Config) -> u64 {
    (config.max_peers - config.max_peers / 4).into()
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Peers {
        let by_addr = HashMap::with_hasher(FixedState::with_seed(seed));
        let prefixes = Prefixes::new(seed);
        Peers { by_addr, slots: Slab::new(), unproven: 0, prefixes, hand: 0, last: Cell::new(None) }
    }

    pub(crate) fn find(&self, addr: &SocketAddr) -> Option<u32> {
        if let Some((last, peer)) = self.last.get()
            && last == *addr
        {
            return Some(peer);
        }
        let &peer = self.by_addr.get(addr)?;
        self.last.set(Some((*addr, peer)));
        Some(peer)
    }

    /// Adds the peer at `addr`, which must not be known. `None` if the limit is reached and no peer can be
    /// forgotten. The flag tells whether another peer was forgotten.
    pub(crate) fn add(&mut self, addr: SocketAddr, now: Time, config: &Config) -> Option<(u32, bool)> {
        debug_assert_eq!(self.find(&addr), None);
        let evicted = self.slots.len() >= config.max_peers as usize;
        if evicted && !self.evict(now, config, |_| true) {
            return None;
        }
        self.unproven += 1;
        let prefix = Some(self.prefixes.add_peer(addr.ip()));
        let slot = self.slots.insert(Peer::new(addr, now, config.max_packet, prefix)) as u32;
        self.by_addr.insert(addr, slot);
        Some((slot, evicted))
    }

    /// Forgets one peer for which `whom` returns true, if a few examined slots hold one that can be
    /// forgotten. Slots are dense: with `max_peers` peers, no slot below that number is vacant.
    fn evict(&mut self, now: Time, config: &Config, whom: impl Fn(&Peer) -> bool) -> bool {
        for _ in 0..EVICT_STEPS {
            self.hand = (self.hand + 1) % config.max_peers as usize;
            let forgets = |peer: &Peer| whom(peer) && peer.is_forgettable(now, config);
            if self.slots.get(self.hand).is_some_and(forgets) {
                self.remove(self.hand);
                return true;
            }
        }
        false
    }

    /// Returns whether the table has a place for any unproven peer without a check of its prefix: unproven
    /// peers occupy less than half of their places.
    pub(crate) fn has_plenty_of_places(&self, config: &Config) -> bool {
        Share::of(unproven_places(config)).leaves_half_free(self.unproven as u64, 1)
    }

    /// Checks whether a new unproven peer at `addr` may occupy a place in the table. Unproven peers may
    /// occupy three quarters of the table (SHARE-11), and the peers of one prefix may occupy the prefix's
    /// share of these places (SHARE-12).
    pub(crate) fn admit(&self, addr: SocketAddr, config: &Config) -> Result<(), Refusal> {
        let own = self.prefixes.held_by(addr.ip()).peers;
        prefix::admit(unproven_places(config), own.into(), self.unproven as u64, 1)
    }

    /// Forgets one unproven peer, either of the prefix of `of` or, if that is `None`, of any prefix. Returns
    /// false if the few examined slots hold no such peer that can be forgotten without loss.
    pub(crate) fn evict_unproven(&mut self, of: Option<SocketAddr>, now: Time, config: &Config) -> bool {
        let prefix = of.map(|addr| self.prefixes.find(addr.ip()));
        self.evict(now, config, |peer| {
            !peer.allowance.proven && prefix.is_none_or(|prefix| prefix == peer.allowance.prefix)
        })
    }

    /// Marks the peer as proven. Returns whether it was unproven before.
    #[inline]
    pub(crate) fn prove(&mut self, peer: u32) -> bool {
        let is_first = !self.slots[peer as usize].allowance.proven;
        if is_first {
            self.prove_first(peer);
        }
        is_first
    }

    #[cold]
    fn prove_first(&mut self, peer: u32) {
        let known = &mut self.slots[peer as usize];
        known.allowance.proven = true;
        self.unproven -= 1;
        if let Some(prefix) = known.allowance.prefix.take() {
            self.prefixes.remove_peer(prefix, known.rpcs.finished_blocks);
        }
    }

    /// Counts a new block of finished ids of the peer.
    pub(crate) fn add_block(&mut self, peer: u32) {
        let known = &mut self.slots[peer as usize];
        known.rpcs.finished_blocks += 1;
        if let Some(prefix) = known.allowance.prefix {
            self.prefixes.add_block(prefix);
        }
    }

    /// Counts the removal of a block of finished ids of the peer.
    pub(crate) fn remove_block(&mut self, peer: u32) {
        let known = &mut self.slots[peer as usize];
        known.rpcs.finished_blocks -= 1;
        if let Some(prefix) = known.allowance.prefix {
            self.prefixes.remove_block(prefix);
        }
    }

    /// Forgets `peer` if no information is lost.
    pub(crate) fn forget(&mut self, peer: u32, now: Time, config: &Config) {
        if self.slots.get(peer as usize).is_some_and(|peer| peer.is_forgettable(now, config)) {
            self.remove(peer as usize);
        }
    }

    fn remove(&mut self, slot: usize) {
        let peer = self.slots.remove(slot);
        self.unproven -= usize::from(!peer.allowance.proven);
        if let Some(prefix) = peer.allowance.prefix {
            self.prefixes.remove_peer(prefix, peer.rpcs.finished_blocks);
        }
        self.by_addr.remove(&peer.addr);
        self.last.set(None);
    }

    pub(crate) fn contains(&self, peer: u32) -> bool {
        self.slots.contains(peer as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Peer)> {
        self.slots.iter().map(|(slot, peer)| (slot as u32, peer))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Panics unless the count of unproven peers is right.
    pub(crate) fn check(&self) {
        let unproven = self.slots.iter().filter(|(_, peer)| !peer.allowance.proven).count();
        assert_eq!(unproven, self.unproven, "peers that are not proven");
        for (_, peer) in &self.slots {
            let own = self.prefixes.find(peer.addr.ip()).filter(|_| !peer.allowance.proven);
            assert_eq!(peer.allowance.prefix, own, "the prefix of {}", peer.addr);
        }
    }
}

impl std::ops::Index<u32> for Peers {
    type Output = Peer;

    fn index(&self, peer: u32) -> &Peer {
        &self.slots[peer as usize]
    }
}

impl std::ops::IndexMut<u32> for Peers {
    fn index_mut(&mut self, peer: u32) -> &mut Peer {
        &mut self.slots[peer as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], n))
    }

    #[test]
    fn a_full_table_forgets_only_who_has_nothing() {
        let config = Config { max_peers: 2, ..Config::default() };
        let mut peers = Peers::new(1);
        let (one, _) = peers.add(addr(1), Time::ZERO, &config).unwrap();
        let (two, _) = peers.add(addr(2), Time::ZERO, &config).unwrap();
        peers[one].rpcs.add(true);
        peers[two].rpcs.finished_blocks = 1;
        assert_eq!(peers.add(addr(3), Time::ZERO, &config), None);
        peers[two].rpcs.finished_blocks = 0;
        assert!(peers.add(addr(3), Time::ZERO, &config).is_some_and(|(_, evicted)| evicted));
        assert_eq!((peers.find(&addr(1)), peers.find(&addr(2))), (Some(one), None));
    }
}
