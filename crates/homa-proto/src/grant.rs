//! The receiver's choice of the messages that receive grants, and of the granted bytes (PROTOCOL.md GRANT).

use std::collections::BTreeMap;

use crate::config::Config;
use crate::lists::{Links, List};
use crate::message_in::MessageIn;
use crate::message_out::whole_packets;
use crate::prefix::PrefixId;
use crate::srpt::{SrptQueue, bucket_start};
use crate::turns::Turns;

/// Precision of the receiver's order: one part in 16 (GRANT-6).
const SUB: u32 = 4;
type Queue = SrptQueue<SUB>;

/// Number of message classes: messages of proven peers, and messages of unproven peers.
const CLASSES: usize = 2;
const PROVEN: usize = 0;
const UNPROVEN: usize = 1;

fn class_of(prefix: Option<PrefixId>) -> usize {
    if prefix.is_some() { UNPROVEN } else { PROVEN }
}

/// Number of emptied queues kept for peers that need one later.
const SPARE_QUEUES: usize = 16;

/// The messages that wait for grants.
#[derive(Debug)]
pub(crate) struct Grants {
    /// Links of RPC slots in their peer's queue.
    links: Links,
    /// For each peer, its messages with ungranted bytes.
    queues: Vec<Option<Queue>>,
    spare: Vec<Queue>,
    /// Peers with ungranted messages, ordered by the shortest message of each.
    peer_links: Links,
    peers: Queue,
    /// Unproven peers with ungranted messages, in the same order. They get the places that proven peers leave
    /// free (LIMIT-10).
    unproven: Queue,
    /// The unproven peers in the order of their turns: prefixes take turns, and so do the peers of each
    /// prefix. The first peer of the first prefix has the current turn.
    turns: Turns,
    /// Bytes granted in the current turn.
    turn_bytes: u64,
    /// For each peer, the prefix that it counts for; `None`: the peer is ranked among the proven peers.
    prefix_of: Vec<Option<PrefixId>>,
    /// All waiting messages, oldest first.
    fifo_links: Links,
    fifo: List,
    /// Bytes granted and not yet received, over all messages.
    pub total_incoming: u64,
    /// The part of `total_incoming` that belongs to requests of unproven peers.
    pub unproven_incoming: u64,
    /// Each peer's part of `total_incoming`, by class. Messages that began before the peer was proven stay in
    /// the unproven class.
    by_peer: Vec<[u64; CLASSES]>,
    /// Bytes of a class that one peer may hold. Bytes beyond this share do not count against other peers
    /// (SHARE-6, LIMIT-10).
    peer_share: u64,
    /// Bytes that peers hold beyond their shares, summed over all peers, by class.
    beyond_share: [u64; CLASSES],
    /// For each prefix, the bytes of the unproven class that its peers hold within their shares.
    by_prefix: Vec<u64>,
    /// Bytes that prefixes hold beyond `peer_share`, summed over all prefixes.
    beyond_prefix: u64,
    /// Maximum to which grants may raise the bytes granted and not yet received.
    budget: u64,
    /// Credit of the oldest message, in thousandths of a byte.
    fifo_credit: u64,
    /// Whether anything changed since grants were last chosen.
    pub dirty: bool,
}

impl Grants {
    /// Creates the state for `rpcs` RPCs. The share of one peer is half of `budget`, or `window` if that is
    /// more, up to three quarters of `budget`.
    pub(crate) fn with_capacity(rpcs: usize, budget: u64, window: u64) -> Grants {
        let peer_share = (budget / 2).max(window.min(budget - budget / 4));
        Grants {
            links: Links::with_capacity(rpcs),
            queues: Vec::new(),
            spare: Vec::new(),
            peer_links: Links::default(),
            peers: Queue::new(),
            unproven: Queue::new(),
            turns: Turns::default(),
            turn_bytes: 0,
            prefix_of: Vec::new(),
            fifo_links: Links::with_capacity(rpcs),
            fifo: List::EMPTY,
            total_incoming: 0,
            unproven_incoming: 0,
            by_peer: Vec::new(),
            peer_share,
            beyond_share: [0; CLASSES],
            by_prefix: Vec::new(),
            beyond_prefix: 0,
            budget,
            fifo_credit: 0,
            dirty: false,
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.links.resize(slots);
        self.fifo_links.resize(slots);
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    /// Adds a message of `peer` that has `ungranted` bytes, at least 1, to be granted.
    pub(crate) fn add(&mut self, slot: u32, peer: u32, ungranted: u32) {
        self.peer_links.ensure(peer);
        if self.queues.len() <= peer as usize {
            self.queues.resize_with(peer as usize + 1, || None);
        }
        let spare = &mut self.spare;
        let queue = self.queues[peer as usize].get_or_insert_with(|| spare.pop().unwrap_or_else(Queue::new));
        queue.insert(&mut self.links, slot, ungranted);
        self.fifo_links.push_back(&mut self.fifo, 0, slot);
        self.rank_peer(peer);
        self.dirty = true;
    }

    /// Sets the ungranted bytes of a message.
    pub(crate) fn update(&mut self, slot: u32, peer: u32, ungranted: u32) {
        if ungranted == 0 {
            self.remove(slot, peer);
        } else if let Some(queue) = &mut self.queues[peer as usize] {
            queue.update(&mut self.links, slot, ungranted);
            self.rank_peer(peer);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32, peer: u32) {
        if self.contains(slot) {
            self.remove_waiting(slot, peer);
        }
    }

    fn remove_waiting(&mut self, slot: u32, peer: u32) {
        if let Some(queue) = &mut self.queues[peer as usize] {
            queue.remove(&mut self.links, slot);
        }
        self.fifo_links.remove(&mut self.fifo, slot);
        self.rank_peer(peer);
        self.pass_turn(peer);
        self.dirty = true;
    }

    /// Ranks `peer` by its shortest message.
    fn rank_peer(&mut self, peer: u32) {
        let Some(queue) = &self.queues[peer as usize] else { return };
        let prefix = self.prefix_of[peer as usize];
        let ranked = if prefix.is_none() { &mut self.peers } else { &mut self.unproven };
        match queue.first_bucket().map(|bucket| bucket_start(bucket, SUB)) {
            Some(key) if self.peer_links.list_of(peer).is_some() => {
                ranked.update(&mut self.peer_links, peer, key);
            }
            Some(key) => {
                ranked.insert(&mut self.peer_links, peer, key);
                if let Some(prefix) = prefix {
                    self.turns.add(peer, prefix);
                }
            }
            None => {
                ranked.remove(&mut self.peer_links, peer);
                self.end_turns(peer);
                let queue = self.queues[peer as usize].take();
                if self.spare.len() < SPARE_QUEUES {
                    self.spare.extend(queue);
                }
            }
        }
    }

    /// Sets the prefix that a peer counts for; `None`: the peer is proven.
    pub(crate) fn set_prefix(&mut self, peer: u32, prefix: Option<PrefixId>) {
        if self.prefix_of.len() <= peer as usize {
            self.prefix_of.resize(peer as usize + 1, None);
            self.by_peer.resize(peer as usize + 1, [0; CLASSES]);
        }
        let before = std::mem::replace(&mut self.prefix_of[peer as usize], prefix);
        if before != prefix && self.peer_links.list_of(peer).is_some() {
            let ranked = if before.is_none() { &mut self.peers } else { &mut self.unproven };
            ranked.remove(&mut self.peer_links, peer);
            self.end_turns(peer);
            self.rank_peer(peer);
        }
    }

    /// Removes `peer` from the turns of unproven peers, if it is among them.
    fn end_turns(&mut self, peer: u32) {
        self.turn_bytes = if self.turns.present() == Some(peer) { 0 } else { self.turn_bytes };
        self.turns.remove(peer);
    }

    /// Ends the turn of `peer`, if it has the current turn. The next unproven peer's turn begins.
    fn pass_turn(&mut self, peer: u32) {
        if self.turns.present() == Some(peer) {
            self.turn_bytes = 0;
            self.turns.pass();
        }
    }

    /// Counts `bytes` granted to `peer` in its turn. A turn ends after `max_incoming` bytes, or when a
    /// message of the peer no longer waits.
    pub(crate) fn spend_turn(&mut self, peer: u32, bytes: u32) {
        if self.turns.present() == Some(peer) {
            self.turn_bytes += u64::from(bytes);
            if self.turn_bytes >= self.budget {
                self.pass_turn(peer);
            }
        }
    }

    /// Returns the active messages in rank order: the shortest message of each of the first `max` peers
    /// (GRANT-2, GRANT-3), unproven peers last (LIMIT-10). If `max` is more than 1, one place is reserved for
    /// unproven peers. The last of the unproven peers' places rotates among them, so that each gets a turn
    /// however short the messages of another are.
    pub(crate) fn active(&self, max: usize) -> impl Iterator<Item = u32> + '_ {
        let left = usize::from(max > 1 && !self.unproven.is_empty());
        let served = (self.peers.len() as usize).min(max - left);
        self.by_rank(&self.peers)
            .take(served)
            .chain(self.active_unproven(max - served))
            .filter_map(|peer| self.queues[peer as usize].as_ref()?.first())
    }

    /// Returns the unproven peers that get the `places` places: the first ones by rank, and the peer whose
    /// turn it is.
    fn active_unproven(&self, places: usize) -> impl Iterator<Item = u32> + '_ {
        let first = || self.by_rank(&self.unproven).take(places);
        let turn = self.turns.present().filter(|&peer| places > 0 && first().all(|ranked| ranked != peer));
        first().take(places - usize::from(turn.is_some())).chain(turn)
    }

    fn by_rank<'a>(&'a self, queue: &'a Queue) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(queue.first(), |&peer| queue.next(&self.peer_links, peer))
    }

    /// Sets the maximum to which grants may raise the bytes granted and not yet received. Returns whether the
    /// maximum rose.
    pub(crate) fn set_budget(&mut self, bytes: u64) -> bool {
        let more = bytes > self.budget;
        self.budget = bytes;
        self.dirty |= more;
        more
    }

    /// Returns approximately the ungranted bytes of the message that has the fewest.
    pub(crate) fn shortest(&self) -> Option<u32> {
        let first = [self.peers.first_bucket(), self.unproven.first_bucket()].into_iter().flatten().min();
        first.map(|bucket| bucket_start(bucket, SUB))
    }

    /// Sets the counted bytes of one message of `peer`.
    pub(crate) fn recount(&mut self, incoming: &mut MessageIn, peer: u32, now: u32) {
        let before = std::mem::replace(&mut incoming.counted, now);
        if before == now {
            return;
        }
        self.total_incoming = self.total_incoming + u64::from(now) - u64::from(before);
        let class = class_of(incoming.prefix);
        let own = &mut self.by_peer[peer as usize][class];
        let (had, has) = (*own, *own + u64::from(now) - u64::from(before));
        *own = has;
        if let Some(prefix) = incoming.prefix {
            self.unproven_incoming = self.unproven_incoming + u64::from(now) - u64::from(before);
            self.recount_prefix(prefix, had.min(self.peer_share), has.min(self.peer_share));
        }
        if had.max(has) > self.peer_share {
            let beyond = |bytes: u64| bytes.saturating_sub(self.peer_share);
            self.beyond_share[class] = self.beyond_share[class] + beyond(has) - beyond(had);
        }
    }

    /// Updates the counts of a prefix after the bytes that one of its peers holds within its share changed
    /// from `had` to `has`.
    #[cold]
    fn recount_prefix(&mut self, prefix: PrefixId, had: u64, has: u64) {
        if self.by_prefix.len() <= prefix.slot() {
            self.by_prefix.resize(prefix.slot() + 1, 0);
        }
        let before = self.beyond_share_of_prefix(prefix);
        self.by_prefix[prefix.slot()] = self.by_prefix[prefix.slot()] + has - had;
        self.beyond_prefix = self.beyond_prefix + self.beyond_share_of_prefix(prefix) - before;
    }

    /// Bytes that the peers of a prefix together hold beyond the share of one peer.
    fn beyond_share_of_prefix(&self, prefix: PrefixId) -> u64 {
        self.by_prefix.get(prefix.slot()).map_or(0, |bytes| bytes.saturating_sub(self.peer_share))
    }

    /// Bytes of a class that the peer holds beyond its share. They delay the peer's own grants, but not those
    /// of other peers.
    fn beyond_share_of(&self, peer: u32, class: usize) -> u64 {
        self.by_peer[peer as usize][class].saturating_sub(self.peer_share)
    }

    /// Returns the bytes granted and not yet received, as counted for a message of the unproven peer `peer`
    /// of `prefix`. The bytes of each other peer, and of each other prefix, count only up to a share, so that
    /// the claims of one peer or prefix do not delay the others (LIMIT-10).
    fn counted_for_unproven(&self, peer: u32, prefix: PrefixId) -> u64 {
        let own: u64 = (0..CLASSES).map(|class| self.beyond_share_of(peer, class)).sum();
        let beyond = self.beyond_share.iter().sum::<u64>() + self.beyond_prefix;
        self.total_incoming - beyond + own + self.beyond_share_of_prefix(prefix)
    }

    /// Returns the bytes granted and not yet received, as counted for grants to other peers out of `budget`.
    /// Bytes of unproven peers count as at most half of `budget`, and bytes of each proven peer up to its
    /// share. First packets that claim more bytes in flight therefore do not stop all grants (LIMIT-10,
    /// SHARE-6).
    pub(crate) fn counted(&self, budget: u64) -> u64 {
        let unproven = self.unproven_incoming;
        self.total_incoming - self.beyond_share[PROVEN] - unproven + unproven.min(budget / 2)
    }

    /// Returns the bytes granted and not yet received, as counted for a message of `peer`, whose grants are
    /// limited to `budget`.
    pub(crate) fn counted_for(&self, incoming: &MessageIn, peer: u32, budget: u64) -> u64 {
        let by_others = match incoming.prefix {
            Some(prefix) => self.counted_for_unproven(peer, prefix),
            None => self.counted(budget) + self.beyond_share_of(peer, PROVEN),
        };
        // Outstanding bytes of a silent sender are not counted; they count again with the next grant to it
        // (GRANT-5).
        by_others + u64::from(incoming.uncounted())
    }

    /// Maximum to which grants may raise the bytes granted and not yet received.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Credits the oldest message with `share` thousandths of `bytes`, which were granted (GRANT-9).
    pub(crate) fn earn_fifo(&mut self, bytes: u32, share: u32) {
        self.fifo_credit += u64::from(bytes) * u64::from(share);
    }

    /// Returns the oldest message, if its credit covers a grant of `increment` bytes (GRANT-9).
    pub(crate) fn fifo_due(&mut self, increment: u32) -> Option<u32> {
        let cost = u64::from(increment) * 1000;
        // If the oldest message could not use its share because its last grant was still in flight, the share
        // must not accumulate.
        self.fifo_credit = self.fifo_credit.min(2 * cost);
        if increment == 0 || self.fifo_credit < cost {
            return None;
        }
        self.fifo.head()
    }

    /// Deducts a grant of `bytes` to the oldest message from its credit. The grant itself also counts among
    /// the granted bytes, `share` thousandths of which are credited to the oldest message.
    pub(crate) fn spend_fifo(&mut self, bytes: u32, share: u32) {
        self.fifo_credit -= u64::from(bytes) * (1000 - u64::from(share));
    }

    /// Panics unless the counts agree with `held`: the bytes that each peer holds, with the prefix that they
    /// count for, or `None` for the proven class.
    pub(crate) fn check_shares(&self, held: &BTreeMap<(u32, Option<PrefixId>), u64>) {
        let mut by_peer = vec![[0; CLASSES]; self.by_peer.len()];
        let (mut by_prefix, mut beyond) = (vec![0; self.by_prefix.len()], [0; CLASSES]);
        for (&(peer, prefix), &bytes) in held {
            by_peer[peer as usize][class_of(prefix)] += bytes;
            beyond[class_of(prefix)] += bytes.saturating_sub(self.peer_share);
            if let Some(prefix) = prefix {
                by_prefix[prefix.slot()] += bytes.min(self.peer_share);
            }
        }
        assert_eq!(by_peer, self.by_peer, "bytes granted and not received of each peer");
        assert_eq!(beyond, self.beyond_share, "bytes beyond the shares of peers");
        assert_eq!(by_prefix, self.by_prefix, "bytes granted and not received of each prefix");
        let beyond: u64 = by_prefix.iter().map(|bytes| bytes.saturating_sub(self.peer_share)).sum();
        assert_eq!(beyond, self.beyond_prefix, "bytes beyond the shares of prefixes");
    }

    /// Panics unless the queues agree; returns the waiting slots.
    pub(crate) fn check(&self) -> Vec<u32> {
        let mut waiting = Vec::new();
        let mut ranked = self.peers.check(&self.peer_links);
        let mut unproven = self.unproven.check(&self.peer_links);
        ranked.extend_from_slice(&unproven);
        let mut turns = self.turns.check();
        unproven.sort_unstable();
        turns.sort_unstable();
        assert_eq!(turns, unproven, "unproven peers that have turns");
        ranked.sort_unstable();
        let mut with_queue = Vec::new();
        for (peer, queue) in self.queues.iter().enumerate() {
            let Some(queue) = queue else { continue };
            assert!(!queue.is_empty(), "peer {peer} keeps an empty queue");
            waiting.extend(queue.check(&self.links));
            with_queue.push(peer as u32);
        }
        assert_eq!(ranked, with_queue, "peers with waiting messages");
        assert_eq!(self.fifo_links.check(&self.fifo, 0), waiting.len(), "messages by age");
        waiting
    }
}

/// The inputs to the choice of one grant.
#[derive(Clone, Copy)]
pub(crate) struct GrantRoom {
    /// Bytes that the message may have outstanding.
    pub window: u32,
    /// Bytes that may still be granted within the limit on all messages.
    pub budget: u64,
    /// Minimum number of bytes by which a grant extends the last one, if possible.
    pub min_increment: u32,
    /// Payload of a full packet.
    pub payload: u32,
}

/// Returns the new granted end of an active message, if a grant is worth a packet (GRANT-4, GRANT-5, GRANT-8,
/// GRANT-15).
pub(crate) fn next_grant(received: u32, granted: u32, length: u32, room: GrantRoom) -> Option<u32> {
    let GrantRoom { window, budget, min_increment, payload } = room;
    let wanted = received.saturating_add(window).min(length);
    let increment = wanted.checked_sub(granted)?.min(budget.min(u64::from(u32::MAX)) as u32);
    let increment = if granted + increment == length { increment } else { whole_packets(increment, payload) };
    let end = granted + increment;
    // A planted fault that the swarm must find: the grant extends one byte too far.
    #[cfg(homa_canary = "grant_off_by_one")]
    let end = end.saturating_add(1).min(length);
    // If the window is smaller than two minimum increments, half the window is enough: a small window must
    // still move.
    let enough = increment >= min_increment.min(window / 2).max(1);
    (increment > 0 && (end == length || enough)).then_some(end)
}

/// Returns the new granted end of the oldest message after a grant of `increment` bytes, in packets of
/// `payload` bytes. `None`: its last grant is still in flight, or its sender is silent.
pub(crate) fn next_fifo_grant(incoming: &MessageIn, increment: u32, payload: u32) -> Option<u32> {
    if incoming.outstanding() >= increment || incoming.uncounted() > 0 {
        return None;
    }
    // At the end of the message, the grant may be less than the increment.
    Some(incoming.granted.saturating_add(whole_packets(increment, payload)).min(incoming.length))
}

/// Bytes that one active message may have outstanding (GRANT-4).
pub(crate) fn window(config: &Config, active: usize) -> u32 {
    if config.window != 0 { config.window } else { (config.windows() / (active as u32 + 1)).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(window: u32, budget: u64, min_increment: u32) -> GrantRoom {
        GrantRoom { window, budget, min_increment, payload: 1_000 }
    }

    #[test]
    fn a_grant_reaches_a_window_beyond_what_was_received() {
        let room = room(200_000, 400_000, 10_000);
        assert_eq!(next_grant(10_000, 40_000, 1_000_000, room), Some(210_000));
        assert_eq!(next_grant(0, 40_000, 60_000, room), Some(60_000), "not beyond the end");
    }

    #[test]
    fn a_grant_stays_within_the_budget_and_is_worth_a_packet() {
        let long = |window, budget, min| next_grant(0, 40_000, 1_000_000, room(window, budget, min));
        assert_eq!(long(200_000, 15_000, 10_000), Some(55_000));
        assert_eq!(long(200_000, 9_999, 10_000), None);
        assert_eq!(long(45_000, 400_000, 10_000), None);
        assert_eq!(long(40_000, 400_000, 0), None, "nothing to add");
        let end = next_grant(0, 40_000, 45_000, room(45_000, 400_000, 10_000));
        assert_eq!(end, Some(45_000), "the end is worth it");
        let small = next_grant(0, 0, 1_000_000, room(1_500, 400_000, 10_000));
        assert_eq!(small, Some(1_000), "a small window moves");
    }

    // GRANT-8
    #[test]
    fn a_grant_of_whole_packets_is_still_worth_a_packet() {
        let after = |received| {
            next_grant(
                received,
                40_000,
                1_000_000,
                GrantRoom { payload: 1_424, ..room(40_000, 400_000, 10_000) },
            )
        };
        assert_eq!(after(10_000), None, "7 packets are less");
        assert_eq!(after(11_391), None);
        assert_eq!(after(11_392), Some(40_000 + 8 * 1_424));
    }

    // GRANT-15
    #[test]
    fn a_grant_is_of_whole_packets_or_less_than_one_or_to_the_end() {
        let granted = |length, window, budget| next_grant(0, 500, length, room(window, budget, 1));
        assert_eq!(granted(90_000, 3_499, 9_000), Some(2_500));
        assert_eq!(granted(90_000, 9_000, 2_999), Some(2_500));
        assert_eq!(granted(90_000, 9_000, 999), Some(1_499), "there is no room for more");
        assert_eq!(granted(3_200, 9_000, 9_000), Some(3_200));
    }

    #[test]
    fn the_shortest_message_of_each_peer_is_active() {
        let mut grants = Grants::with_capacity(0, 400_000, 0);
        (0..3).for_each(|peer| grants.set_prefix(peer, None));
        for (slot, peer, ungranted) in [(0, 1, 9_000), (1, 0, 50_000), (2, 0, 500), (3, 2, 100), (4, 0, 20)] {
            grants.resize(slot as usize + 1);
            grants.add(slot, peer, ungranted);
        }
        assert_eq!(grants.active(8).collect::<Vec<_>>(), [4, 3, 0]);
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [4, 3]);
        grants.remove(4, 0);
        grants.update(0, 1, 90);
        assert_eq!(grants.active(8).collect::<Vec<_>>(), [0, 3, 2]);
        assert_eq!(grants.check().len(), 4);
    }

    // LIMIT-10
    #[test]
    fn the_last_place_of_unproven_peers_goes_from_peer_to_peer() {
        let mut grants = Grants::with_capacity(0, 400_000, 0);
        grants.resize(6);
        (0..3).for_each(|peer| grants.set_prefix(peer, Some(PrefixId::new(0))));
        for (slot, peer, ungranted) in [(0, 1, 9_000), (1, 0, 90_000), (2, 2, 500), (3, 2, 600)] {
            grants.add(slot, peer, ungranted);
        }
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [0], "it was the first to wait");
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [2, 0]);
        grants.spend_turn(2, 400_000);
        grants.spend_turn(1, 399_999);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [0]);
        grants.spend_turn(1, 1);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [1]);
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [2, 1]);
        grants.remove(1, 0);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [2]);
        grants.remove(2, 2);
        assert_eq!(grants.active(1).collect::<Vec<_>>(), [0], "another message of the same peer has to wait");
        assert_eq!(grants.check().len(), 2);
    }

    // LIMIT-10
    #[test]
    fn the_last_place_goes_from_prefix_to_prefix() {
        let mut grants = Grants::with_capacity(0, 400_000, 0);
        grants.resize(20);
        for peer in 0..11 {
            grants.set_prefix(peer, Some(PrefixId::new(usize::from(peer == 10))));
            grants.add(peer, peer, 90_000);
        }
        let mut turns = Vec::new();
        for _ in 0..6 {
            let peer = grants.active(1).next().unwrap();
            grants.spend_turn(peer, 400_000);
            turns.push(peer);
        }
        assert_eq!(turns, [0, 10, 1, 10, 2, 10]);
        grants.set_prefix(10, None);
        grants.remove(3, 3);
        assert_eq!(grants.active(2).collect::<Vec<_>>(), [10, 4], "a proven peer and the next unproven one");
        assert_eq!(grants.check().len(), 10);
    }
}
