//! The places among the active messages, and the peers that get them (PROTOCOL.md GRANT-2, GRANT-3,
//! LIMIT-10).

use super::peer_queues::GrantQueue;
use crate::lists::Links;
use crate::prefix::PrefixId;
use crate::turns::Turns;

/// The peers that compete for places: those with ungranted messages. Each is ranked by its shortest message.
#[derive(Debug)]
pub(super) struct Places {
    /// Links of peers in `proven` or `unproven`.
    links: Links,
    proven: GrantQueue,
    /// Unproven peers get the places that proven peers leave free (LIMIT-10).
    unproven: GrantQueue,
    /// For each peer, the prefix that it counts for; `None`: the peer is ranked among the proven peers.
    prefix_of: Vec<Option<PrefixId>>,
    /// The unproven peers in the order of their turns: prefixes take turns, and so do the peers of each
    /// prefix. The first peer of the first prefix has the current turn.
    turns: Turns,
    /// Bytes granted in the current turn.
    turn_bytes: u64,
}

impl Places {
    pub(super) fn new() -> Places {
        Places {
            links: Links::default(),
            proven: GrantQueue::new(),
            unproven: GrantQueue::new(),
            prefix_of: Vec::new(),
            turns: Turns::default(),
            turn_bytes: 0,
        }
    }

    /// Makes `peer` a valid index.
    pub(super) fn ensure(&mut self, peer: u32) {
        self.links.ensure(peer);
    }

    /// Ranks `peer`, whose shortest message has about `ungranted` bytes to be granted.
    pub(super) fn rank(&mut self, peer: u32, ungranted: u32) {
        let prefix = self.prefix_of[peer as usize];
        let ranked = if prefix.is_none() { &mut self.proven } else { &mut self.unproven };
        if self.links.list_of(peer).is_some() {
            ranked.update(&mut self.links, peer, ungranted);
        } else {
            ranked.insert(&mut self.links, peer, ungranted);
            if let Some(prefix) = prefix {
                self.turns.add(peer, prefix);
            }
        }
    }

    /// Removes `peer`, if it is ranked.
    pub(super) fn remove(&mut self, peer: u32) {
        let ranked =
            if self.prefix_of[peer as usize].is_none() { &mut self.proven } else { &mut self.unproven };
        ranked.remove(&mut self.links, peer);
        self.end_turns(peer);
    }

    /// Sets the prefix that a peer counts for; `None`: the peer is proven. Returns whether the peer was
    /// removed and must be ranked again.
    pub(super) fn set_prefix(&mut self, peer: u32, prefix: Option<PrefixId>) -> bool {
        if self.prefix_of.len() <= peer as usize {
            self.prefix_of.resize(peer as usize + 1, None);
        }
        let moves = self.prefix_of[peer as usize] != prefix && self.links.list_of(peer).is_some();
        if moves {
            self.remove(peer);
        }
        self.prefix_of[peer as usize] = prefix;
        moves
    }

    /// Removes `peer` from the turns of unproven peers, if it is among them.
    fn end_turns(&mut self, peer: u32) {
        self.turn_bytes = if self.turns.present() == Some(peer) { 0 } else { self.turn_bytes };
        self.turns.remove(peer);
    }

    /// Ends the turn of `peer`, if it has the current turn. The next unproven peer's turn begins.
    pub(super) fn pass_turn(&mut self, peer: u32) {
        if self.turns.present() == Some(peer) {
            self.turn_bytes = 0;
            self.turns.pass();
        }
    }

    /// Counts `bytes` granted to `peer` in its turn, which ends after `max` bytes.
    pub(super) fn spend_turn(&mut self, peer: u32, bytes: u32, max: u64) {
        if self.turns.present() == Some(peer) {
            self.turn_bytes += u64::from(bytes);
            if self.turn_bytes >= max {
                self.pass_turn(peer);
            }
        }
    }

    /// Returns the peers that get the `max` places, in rank order, unproven peers last (LIMIT-10). If `max`
    /// is more than 1, one place is reserved for unproven peers. The last of the unproven peers' places
    /// rotates among them, so that each gets a turn however short the messages of another are.
    pub(super) fn active(&self, max: usize) -> impl Iterator<Item = u32> + '_ {
        let left = usize::from(max > 1 && !self.unproven.is_empty());
        let served = (self.proven.len() as usize).min(max - left);
        self.by_rank(&self.proven).take(served).chain(self.active_unproven(max - served))
    }

    /// Returns the unproven peers that get the `places` places: the first ones by rank, and the peer whose
    /// turn it is.
    fn active_unproven(&self, places: usize) -> impl Iterator<Item = u32> + '_ {
        let first = || self.by_rank(&self.unproven).take(places);
        let turn = self.turns.present().filter(|&peer| places > 0 && first().all(|ranked| ranked != peer));
        first().take(places - usize::from(turn.is_some())).chain(turn)
    }

    fn by_rank<'a>(&'a self, queue: &'a GrantQueue) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(queue.first(), |&peer| queue.next(&self.links, peer))
    }

    /// Returns approximately the ungranted bytes of the shortest message of any peer.
    pub(super) fn shortest(&self) -> Option<u32> {
        [self.proven.first_key(), self.unproven.first_key()].into_iter().flatten().min()
    }

    /// Panics unless the ranks and the turns are consistent; returns the ranked peers, sorted by number.
    pub(super) fn check(&self) -> Vec<u32> {
        let mut ranked = self.proven.check(&self.links);
        let mut unproven = self.unproven.check(&self.links);
        ranked.extend_from_slice(&unproven);
        let mut turns = self.turns.check();
        unproven.sort_unstable();
        turns.sort_unstable();
        assert_eq!(turns, unproven, "unproven peers that have turns");
        ranked.sort_unstable();
        ranked
    }
}
