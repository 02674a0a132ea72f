//! Bytes granted and not yet received, and the shares of them that peers and prefixes may hold (PROTOCOL.md
//! SHARE-6, LIMIT-10).

use std::collections::BTreeMap;

use crate::message_in::MessageIn;
use crate::prefix::PrefixId;

/// Number of message classes: messages of proven peers, and messages of unproven peers.
const CLASSES: usize = 2;
const PROVEN: usize = 0;
const UNPROVEN: usize = 1;

fn class_of(prefix: Option<PrefixId>) -> usize {
    if prefix.is_some() { UNPROVEN } else { PROVEN }
}

/// Bytes granted and not yet received: over all messages, and for each peer and prefix.
#[derive(Debug)]
pub(crate) struct GrantedBytes {
    total: u64,
    /// The part of `total` that belongs to requests of unproven peers.
    unproven: u64,
    /// Each peer's part of `total`, by class. Messages that began before the peer was proven stay in the
    /// unproven class.
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
}

impl GrantedBytes {
    /// The share of one peer is half of `budget`, or `window` if that is more, up to three quarters of
    /// `budget`.
    pub(super) fn new(budget: u64, window: u64) -> GrantedBytes {
        GrantedBytes {
            total: 0,
            unproven: 0,
            by_peer: Vec::new(),
            peer_share: (budget / 2).max(window.min(budget - budget / 4)),
            beyond_share: [0; CLASSES],
            by_prefix: Vec::new(),
            beyond_prefix: 0,
        }
    }

    /// Makes `peer` a valid index.
    pub(super) fn ensure(&mut self, peer: u32) {
        if self.by_peer.len() <= peer as usize {
            self.by_peer.resize(peer as usize + 1, [0; CLASSES]);
        }
    }

    /// Bytes granted and not yet received, over all messages.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Sets the counted bytes of one message of `peer`.
    pub(crate) fn recount(&mut self, incoming: &mut MessageIn, peer: u32, now: u32) {
        let before = std::mem::replace(&mut incoming.counted, now);
        if before == now {
            return;
        }
        self.total = self.total + u64::from(now) - u64::from(before);
        let class = class_of(incoming.prefix);
        let own = &mut self.by_peer[peer as usize][class];
        let (had, has) = (*own, *own + u64::from(now) - u64::from(before));
        *own = has;
        if let Some(prefix) = incoming.prefix {
            self.unproven = self.unproven + u64::from(now) - u64::from(before);
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
        self.total - beyond + own + self.beyond_share_of_prefix(prefix)
    }

    /// Returns the bytes granted and not yet received, as counted for grants to other peers out of `budget`.
    /// Bytes of unproven peers count as at most half of `budget`, and bytes of each proven peer up to its
    /// share. First packets that claim more bytes in flight therefore do not stop all grants (LIMIT-10,
    /// SHARE-6).
    pub(crate) fn counted(&self, budget: u64) -> u64 {
        self.total - self.beyond_share[PROVEN] - self.unproven + self.unproven.min(budget / 2)
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

    /// Panics unless the counts agree with `held`: the bytes that each peer holds, with the prefix that they
    /// count for, or `None` for the proven class.
    pub(crate) fn check(&self, held: &BTreeMap<(u32, Option<PrefixId>), u64>) {
        assert_eq!(held.values().sum::<u64>(), self.total, "bytes granted and not received");
        let of_unproven = held.iter().filter(|((_, prefix), _)| prefix.is_some());
        assert_eq!(
            of_unproven.map(|(_, bytes)| bytes).sum::<u64>(),
            self.unproven,
            "those of unproven peers"
        );
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
}
