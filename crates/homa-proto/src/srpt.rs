//! Shortest remaining processing time first, in O(1) (SEND-11, GRANT-12): messages in log-linear buckets by
//! remaining bytes.
//!
//! An exact order (heap or tree) costs a cold cache line per level, and its cost grows with the number of
//! messages. Buckets keep the order to a precision of one part in `2^SUB`, and serve equal keys first come,
//! first served (PROTOCOL.md SEND, GRANT).

use crate::lists::{Links, List};

/// Returns the bucket of a key. The order of buckets never contradicts the order of keys. Below `2^sub`, each
/// key has its own bucket; above, each power of two has `2^sub` buckets.
pub(crate) const fn bucket_of(key: u32, sub: u32) -> u32 {
    if key < 1 << sub {
        return key;
    }
    let exponent = 31 - key.leading_zeros();
    let shift = exponent - sub;
    ((shift + 1) << sub) + ((key >> shift) & ((1 << sub) - 1))
}

/// Returns the smallest key of a bucket; saturates beyond the last one.
pub(crate) const fn bucket_start(bucket: u32, sub: u32) -> u32 {
    let exponent = bucket >> sub;
    if exponent == 0 {
        return bucket;
    }
    let start = ((bucket as u64 & ((1 << sub) - 1)) + (1 << sub)) << (exponent - 1);
    if start > u32::MAX as u64 { u32::MAX } else { start as u32 }
}

/// Returns the number of buckets for `sub`.
const fn bucket_count(sub: u32) -> usize {
    bucket_of(u32::MAX, sub) as usize + 1
}

/// A priority queue of nodes whose links the caller owns, so that many queues can share one array.
#[derive(Debug)]
pub(crate) struct SrptQueue<const SUB: u32> {
    lists: Box<[List]>,
    /// One bit per non-empty bucket.
    bits: Box<[u64]>,
    /// One bit per non-zero word of `bits`.
    summary: u64,
    len: u32,
    /// The first node and its bucket; `NONE` if the queue is empty. They are cached, since they are read far
    /// more often than they change, and a search touches two more places in memory.
    first: u32,
    first_bucket: u32,
}

/// Stands for no node or no bucket; greater than all that exist.
const NONE: u32 = u32::MAX;

impl<const SUB: u32> SrptQueue<SUB> {
    pub(crate) fn new() -> Self {
        const { assert!(bucket_count(SUB).div_ceil(64) <= 64, "one summary word must cover all buckets") };
        let buckets = bucket_count(SUB);
        SrptQueue {
            lists: vec![List::EMPTY; buckets].into_boxed_slice(),
            bits: vec![0; buckets.div_ceil(64)].into_boxed_slice(),
            summary: 0,
            len: 0,
            first: NONE,
            first_bucket: NONE,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `node`, which must not be in a list, after all nodes with an equal key.
    pub(crate) fn insert(&mut self, links: &mut Links, node: u32, key: u32) {
        let bucket = bucket_of(key, SUB);
        links.push_back(&mut self.lists[bucket as usize], bucket, node);
        self.bits[bucket as usize / 64] |= 1 << (bucket % 64);
        self.summary |= 1 << (bucket / 64);
        self.len += 1;
        if bucket < self.first_bucket {
            (self.first, self.first_bucket) = (node, bucket);
        }
    }

    /// Removes `node`, which must be in this queue.
    pub(crate) fn remove(&mut self, links: &mut Links, node: u32) {
        let Some(bucket) = links.list_of(node) else { return };
        let list = &mut self.lists[bucket as usize];
        links.remove(list, node);
        self.len -= 1;
        if list.is_empty() {
            let word = bucket as usize / 64;
            self.bits[word] &= !(1 << (bucket % 64));
            if self.bits[word] == 0 {
                self.summary &= !(1 << word);
            }
        }
        if self.len == 0 {
            (self.first, self.first_bucket) = (NONE, NONE);
        } else if node == self.first {
            self.find_first();
        }
    }

    fn find_first(&mut self) {
        let found = self.first_bucket_from(0);
        self.first = found.and_then(|bucket| self.lists[bucket].head()).unwrap_or(NONE);
        self.first_bucket = found.map_or(NONE, |bucket| bucket as u32);
    }

    /// Moves `node`, which must be in this queue, to the place of its new key. If the bucket stays the same,
    /// the node keeps its place in the bucket.
    pub(crate) fn update(&mut self, links: &mut Links, node: u32, key: u32) {
        if links.list_of(node) != Some(bucket_of(key, SUB)) {
            self.remove(links, node);
            self.insert(links, node, key);
        }
    }

    /// Returns the node with the smallest key.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Returns the smallest key, rounded down to the start of its bucket. Also usable as a key for ordering
    /// queues.
    pub(crate) fn first_key(&self) -> Option<u32> {
        (self.first_bucket != NONE).then(|| bucket_start(self.first_bucket, SUB))
    }

    /// Returns the node after `node` in the order of keys.
    pub(crate) fn next(&self, links: &Links, node: u32) -> Option<u32> {
        links.next(node).or_else(|| {
            let bucket = links.list_of(node)? as usize;
            self.first_bucket_from(bucket + 1).and_then(|b| self.lists[b].head())
        })
    }

    fn first_bucket_from(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        if word < self.bits.len() {
            let rest = self.bits[word] & (u64::MAX << (from % 64));
            if rest != 0 {
                return Some(word * 64 + rest.trailing_zeros() as usize);
            }
        }
        let later = if word + 1 < 64 { self.summary & (u64::MAX << (word + 1)) } else { 0 };
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(word * 64 + self.bits[word].trailing_zeros() as usize)
    }

    /// Panics unless lists, bits and count agree; returns the nodes in order.
    pub(crate) fn check(&self, links: &Links) -> Vec<u32> {
        let mut nodes = Vec::new();
        for (bucket, list) in self.lists.iter().enumerate() {
            links.check(list, bucket as u32);
            let bit = self.bits[bucket / 64] >> (bucket % 64) & 1 == 1;
            assert_eq!(bit, !list.is_empty(), "bit of bucket {bucket}");
            nodes.extend(links.iter(list));
        }
        for (word, bits) in self.bits.iter().enumerate() {
            assert_eq!(self.summary >> word & 1 == 1, *bits != 0, "summary bit {word}");
        }
        assert_eq!(nodes.len(), self.len as usize, "length of the queue");
        assert_eq!(self.first(), nodes.first().copied(), "the first node");
        assert_eq!(self.first_bucket, nodes.first().and_then(|&node| links.list_of(node)).unwrap_or(NONE));
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_keep_the_order_of_keys_and_their_precision() {
        let mut last = 0;
        for key in (0..200_000u32).chain((200_000..u32::MAX / 2).step_by(999_983)) {
            let bucket = bucket_of(key, 6);
            assert!(bucket >= last, "key {key}");
            last = bucket;
            assert_ne!(
                bucket,
                bucket_of(key.saturating_add(key / 64 + 1), 6),
                "1/64 more is another bucket: {key}"
            );
            let start = bucket_start(bucket, 6);
            assert!(start <= key && bucket_of(start, 6) == bucket, "the start of key {key}'s bucket");
        }
        assert_eq!(bucket_count(6), 1728);
    }

    proptest! {
        #[test]
        fn nodes_come_out_as_a_sorted_list_would_give_them(
            ops in prop::collection::vec((0u32..32, 1u32..3_000_000, 0u8..3), 1..200),
        ) {
            let mut links = Links::default();
            links.ensure(31);
            let mut queue: SrptQueue<6> = SrptQueue::new();
            // The model: (bucket, order of arrival, node).
            let mut model: Vec<(u32, usize, u32)> = Vec::new();
            for (turn, (node, key, op)) in ops.into_iter().enumerate() {
                let held = model.iter().position(|&(_, _, n)| n == node);
                match (op, held) {
                    (0, None) => {
                        queue.insert(&mut links, node, key);
                        model.push((bucket_of(key, 6), turn, node));
                    }
                    (1, Some(at)) => {
                        queue.remove(&mut links, node);
                        model.remove(at);
                    }
                    (2, Some(at)) => {
                        queue.update(&mut links, node, key);
                        if model[at].0 != bucket_of(key, 6) {
                            model[at] = (bucket_of(key, 6), turn, node);
                        }
                    }
                    _ => {}
                }
                model.sort();
                let want: Vec<u32> = model.iter().map(|&(_, _, n)| n).collect();
                prop_assert_eq!(queue.check(&links), want.clone());
                prop_assert_eq!(queue.first(), want.first().copied());
                let walked: Vec<u32> =
                    std::iter::successors(queue.first(), |&n| queue.next(&links, n)).collect();
                prop_assert_eq!(walked, want);
            }
        }
    }
}
