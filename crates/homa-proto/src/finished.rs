//! Finished RPCs: the table that prevents a delayed duplicate of a request from running again (PROTOCOL.md
//! AMO).
//!
//! Clients assign increasing ids, so RPCs with adjacent ids finish at about the same time. A block holds 64
//! adjacent ids, one bit each.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::config::FinishedPolicy;
use crate::prefix;
use crate::share::{Refusal, Share};
use crate::time::Time;

/// Number of blocks examined for expiry per new block: more than one, so that expiry outruns growth, but few,
/// so that no packet waits long.
const EXPIRE_STEPS: usize = 4;

/// Number of hash tables that hold the blocks. A single table would move all its blocks at once when it
/// grows: with 100,000 blocks, a packet would wait a millisecond.
const SHARDS: usize = 1024;

/// The key of a block: the peer's slot, the number of the peer's restarts at that time, and the upper bits of
/// the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockKey {
    peer: u32,
    restarts: u32,
    block: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bits: u64,
    last: Time,
}

/// The finished ids of all peers.
#[derive(Debug)]
pub(crate) struct FinishedIds {
    /// Tables, selected by the hash of the key. The tables hash with a different seed, since all keys of a
    /// shard have equal low bits in the selecting hash.
    shards: Box<[HashMap<BlockKey, Block, FixedState>]>,
    hasher: FixedState,
    /// Blocks in all shards.
    len: usize,
    /// The keys of all blocks, each once, with the start of the block's current lifetime period; in ascending
    /// order of that time.
    order: VecDeque<(BlockKey, Time)>,
    lifetime_ns: u64,
    max_blocks: usize,
    policy: FinishedPolicy,
}

/// The blocks that were forgotten when another one was added.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictedBlocks {
    /// Peers of the forgotten blocks, one entry per block.
    pub peers: Vec<u32>,
    /// Number of these blocks that were forgotten before they expired.
    pub early: u64,
}

impl FinishedIds {
    pub(crate) fn new(lifetime_ns: u64, max_blocks: u32, policy: FinishedPolicy, seed: u64) -> FinishedIds {
        // A planted fault that the swarm must find: finished requests are forgotten while duplicates of them
        // may still arrive.
        #[cfg(homa_canary)]
        let lifetime_ns =
            if crate::planted_faults::has("finished_early") { lifetime_ns / 1_000 } else { lifetime_ns };
        FinishedIds {
            shards: (0..SHARDS)
                .map(|_| HashMap::with_hasher(FixedState::with_seed(seed.wrapping_add(1))))
                .collect(),
            hasher: FixedState::with_seed(seed),
            len: 0,
            order: VecDeque::new(),
            lifetime_ns,
            max_blocks: max_blocks as usize,
            policy,
        }
    }

    fn shard(&mut self, key: &BlockKey) -> &mut HashMap<BlockKey, Block, FixedState> {
        let at = self.shard_of(key);
        &mut self.shards[at]
    }

    fn shard_of(&self, key: &BlockKey) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether a request of any peer can be remembered, without a check of the peer's share.
    pub(crate) fn has_plenty(&self) -> bool {
        self.policy != FinishedPolicy::Refuse
            || Share::of(self.max_blocks as u64).leaves_half_free(self.len as u64, 1)
    }

    /// Checks whether another request of a peer that has `own` blocks could be remembered (AMO-6, SHARE-2).
    pub(crate) fn admit(&self, own: u32) -> Result<(), Refusal> {
        match self.policy {
            FinishedPolicy::Refuse => Share::of(self.max_blocks as u64).admit(own.into(), self.len as u64, 1),
            FinishedPolicy::ForgetOldest => Ok(()),
        }
    }

    /// Checks whether another request of an unproven peer whose prefix has `own` blocks could be remembered
    /// (SHARE-12).
    pub(crate) fn admit_prefix(&self, own: u32) -> Result<(), Refusal> {
        match self.policy {
            FinishedPolicy::Refuse => prefix::admit(self.max_blocks as u64, own.into(), self.len as u64, 1),
            FinishedPolicy::ForgetOldest => Ok(()),
        }
    }

    /// Returns whether `id` finished within the lifetime (AMO-7). All ids of a block share one time (AMO-5).
    /// The result does not depend on when `expire` was last called.
    pub(crate) fn contains(&self, now: Time, peer: u32, restarts: u32, id: u64) -> bool {
        let (key, bit) = split(peer, restarts, id);
        let holds = |block: &Block| block.bits & bit != 0 && now.since(block.last) < self.lifetime_ns;
        self.shards[self.shard_of(&key)].get(&key).is_some_and(holds)
    }

    /// Remembers `id`. Returns whether a new block was added for it.
    pub(crate) fn insert(
        &mut self,
        now: Time,
        peer: u32,
        restarts: u32,
        id: u64,
        forgotten: &mut EvictedBlocks,
    ) -> bool {
        let (key, bit) = split(peer, restarts, id);
        let lifetime_ns = self.lifetime_ns;
        if let Some(block) = self.shard(&key).get_mut(&key) {
            let expired = now.since(block.last) >= lifetime_ns;
            *block = Block { bits: if expired { bit } else { block.bits | bit }, last: now };
            return false;
        }
        self.expire(now, forgotten);
        // RPCs that were open when the table filled up still finish, and may exceed the bound. New requests
        // are refused until the table shrinks.
        if self.policy == FinishedPolicy::ForgetOldest && self.len >= self.max_blocks {
            self.forget_oldest(forgotten);
        }
        self.shard(&key).insert(key, Block { bits: bit, last: now });
        self.len += 1;
        self.order.push_back((key, now));
        true
    }

    /// Forgets expired blocks, examining a bounded number of blocks.
    pub(crate) fn expire(&mut self, now: Time, forgotten: &mut EvictedBlocks) {
        for _ in 0..EXPIRE_STEPS {
            let Some(&(key, since)) = self.order.front() else { return };
            if now.since(since) < self.lifetime_ns {
                return;
            }
            self.order.pop_front();
            match self.shards[self.shard_of(&key)].get(&key) {
                // AMO-5: another id of the block finished later, and keeps the block until that id expires.
                Some(block) if now.since(block.last) < self.lifetime_ns => {
                    self.order.push_back((key, block.last))
                }
                _ => {
                    self.shard(&key).remove(&key);
                    self.len -= 1;
                    forgotten.peers.push(key.peer);
                }
            }
        }
    }

    fn forget_oldest(&mut self, forgotten: &mut EvictedBlocks) {
        if let Some((key, _)) = self.order.pop_front() {
            self.shard(&key).remove(&key);
            self.len -= 1;
            forgotten.peers.push(key.peer);
            forgotten.early += 1;
        }
    }

    /// Panics unless table and order agree.
    pub(crate) fn check(&self) {
        assert_eq!(self.len, self.order.len(), "blocks of finished ids");
        assert!(
            self.order.iter().all(|(key, _)| self.shards[self.shard_of(key)].contains_key(key)),
            "every key has its block"
        );
    }
}

fn split(peer: u32, restarts: u32, id: u64) -> (BlockKey, u64) {
    // Bit 0 separates client from server and is the same for all ids here.
    (BlockKey { peer, restarts, block: id >> 7 }, 1 << (id >> 1 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(max_blocks: u32, policy: FinishedPolicy) -> FinishedIds {
        FinishedIds::new(1_000, max_blocks, policy, 7)
    }

    #[test]
    fn ids_are_kept_per_peer_and_incarnation() {
        let mut ids = ids(10, FinishedPolicy::Refuse);
        let mut gone = EvictedBlocks::default();
        assert!(ids.insert(Time::ZERO, 1, 0, 200, &mut gone));
        assert!(!ids.insert(Time::ZERO, 1, 0, 202, &mut gone), "a neighbour takes no memory");
        let at = Time::ZERO;
        assert!(ids.contains(at, 1, 0, 200) && ids.contains(at, 1, 0, 202));
        assert!(!ids.contains(at, 1, 0, 204) && !ids.contains(at, 2, 0, 200) && !ids.contains(at, 1, 1, 200));
        ids.check();
    }

    #[test]
    fn a_block_lives_until_its_last_id_has_expired() {
        let mut ids = ids(10, FinishedPolicy::Refuse);
        let mut gone = EvictedBlocks::default();
        ids.insert(Time::from_ns(0), 1, 0, 2, &mut gone);
        ids.insert(Time::from_ns(900), 1, 0, 4, &mut gone);
        ids.expire(Time::from_ns(1_500), &mut gone);
        assert!(ids.contains(Time::from_ns(1_500), 1, 0, 4));
        assert!(!ids.contains(Time::from_ns(1_900), 1, 0, 4), "also where nothing has expired it yet");
        ids.expire(Time::from_ns(1_900), &mut gone);
        assert_eq!(ids.len(), 0);
        assert_eq!(gone, EvictedBlocks { peers: vec![1], early: 0 });
    }

    #[test]
    fn a_full_table_refuses_or_forgets_as_its_policy_says() {
        let mut refuse = ids(2, FinishedPolicy::Refuse);
        let mut forget = ids(2, FinishedPolicy::ForgetOldest);
        let mut gone = EvictedBlocks::default();
        for block in 0..3u64 {
            refuse.insert(Time::ZERO, 1, 0, block << 7, &mut gone);
        }
        let at = Time::ZERO;
        assert_eq!(refuse.admit(0), Err(Refusal::Bound));
        assert!(refuse.contains(at, 1, 0, 0) && gone == EvictedBlocks::default());
        for block in 0..3u64 {
            forget.insert(Time::ZERO, 1, 0, block << 7, &mut gone);
        }
        assert_eq!(forget.admit(0), Ok(()));
        assert!(!forget.contains(at, 1, 0, 0) && forget.contains(at, 1, 0, 2 << 7));
        assert_eq!(gone.early, 1);
    }
}
