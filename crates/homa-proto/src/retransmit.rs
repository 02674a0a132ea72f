//! Bytes that a receiver has requested again, and that have not been retransmitted yet.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

/// Maximum number of ranges kept for one RPC: enough for a few rounds of RESENDs.
const MAX_RANGES_PER_RPC: usize = 16;

#[derive(Debug)]
struct PendingRanges {
    /// Disjoint ranges, in the order in which they were requested.
    ranges: Vec<Range<u32>>,
    priority: u8,
}

impl PendingRanges {
    fn bytes(&self) -> u32 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

/// The bytes to be retransmitted, by RPC slot. `transmit` decides in which order RPCs send them, and when
/// they precede other bytes.
#[derive(Debug)]
pub(crate) struct Retransmits {
    pending: HashMap<u32, PendingRanges, FixedState>,
    max_rpcs: usize,
}

impl Retransmits {
    pub(crate) fn new(max_rpcs: u32, seed: u64) -> Retransmits {
        Retransmits {
            pending: HashMap::with_capacity_and_hasher(max_rpcs as usize, FixedState::with_seed(seed)),
            max_rpcs: max_rpcs as usize,
        }
    }

    /// Returns the number of RPCs with bytes to be retransmitted.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.pending.contains_key(&slot)
    }

    /// Returns the number of bytes of the RPC that wait to be retransmitted.
    pub(crate) fn bytes(&self, slot: u32) -> u32 {
        if self.pending.is_empty() { 0 } else { self.pending.get(&slot).map_or(0, PendingRanges::bytes) }
    }

    /// Queues the non-empty `range`, minus the bytes that are already queued (RESEND-21). Returns the number
    /// of bytes added, or `None` at the limit (RESEND-20).
    pub(crate) fn add(&mut self, slot: u32, range: Range<u32>, priority: u8) -> Option<u32> {
        // A planted fault that the swarm must find: a range requested while other bytes wait is forgotten.
        #[cfg(homa_canary)]
        if crate::planted_faults::has("resend_lost") && self.pending.contains_key(&slot) {
            return Some(0);
        }
        if let Some(pending) = self.pending.get_mut(&slot) {
            pending.priority = priority;
            let before = pending.bytes();
            return add_range(&mut pending.ranges, range).then(|| pending.bytes() - before);
        }
        if self.pending.len() >= self.max_rpcs {
            return None;
        }
        let bytes = range.end - range.start;
        self.pending.insert(slot, PendingRanges { ranges: vec![range], priority });
        Some(bytes)
    }

    /// Returns the next bytes of the RPC to retransmit, and their priority.
    pub(crate) fn first(&self, slot: u32) -> Option<(Range<u32>, u8)> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = self.pending.get(&slot)?;
        Some((pending.ranges[0].clone(), pending.priority))
    }

    /// Returns an RPC with bytes to be retransmitted.
    #[cfg(homa_canary)]
    pub(crate) fn any(&self) -> Option<u32> {
        self.pending.keys().min().copied()
    }

    /// Removes the first `bytes` of the range returned by `first`, which have been sent.
    pub(crate) fn sent(&mut self, slot: u32, bytes: u32) {
        let Some(pending) = self.pending.get_mut(&slot) else { return };
        pending.ranges[0].start += bytes;
        if pending.ranges[0].is_empty() {
            pending.ranges.remove(0);
        }
        if pending.ranges.is_empty() {
            self.pending.remove(&slot);
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        // Fast path: this is called for every RPC that ends, and few of them were ever queued.
        if !self.pending.is_empty() {
            self.pending.remove(&slot);
        }
    }
}

/// Adds the parts of `range` that are not yet in `ranges`. Returns false if that would be too many ranges.
fn add_range(ranges: &mut Vec<Range<u32>>, range: Range<u32>) -> bool {
    let mut rest = vec![range];
    for queued in ranges.iter() {
        rest = rest.into_iter().flat_map(|part| without(part, queued)).collect();
    }
    if ranges.len() + rest.len() > MAX_RANGES_PER_RPC {
        return false;
    }
    ranges.extend(rest);
    true
}

/// Returns the parts of `range` outside `hole`.
fn without(range: Range<u32>, hole: &Range<u32>) -> impl Iterator<Item = Range<u32>> + use<> {
    let left = range.start..range.end.min(hole.start);
    let right = range.start.max(hole.end)..range.end;
    [left, right].into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queued_range_is_not_queued_twice() {
        let mut queue = Retransmits::new(10, 1);
        assert_eq!(queue.add(3, 100..200, 5), Some(100));
        assert_eq!((queue.add(3, 50..250, 6), queue.bytes(3)), (Some(100), 200));
        let mut sent = Vec::new();
        while let Some((range, priority)) = queue.first(3) {
            queue.sent(3, range.end - range.start);
            sent.push((range, priority));
        }
        assert_eq!(sent, [(100..200, 6), (50..100, 6), (200..250, 6)]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn limits_refuse() {
        let mut queue = Retransmits::new(2, 1);
        assert_eq!((queue.add(1, 0..10, 0), queue.add(2, 0..10, 0)), (Some(10), Some(10)));
        assert_eq!(queue.add(3, 0..10, 0), None, "max_retransmits");
        queue.remove(1);
        assert_eq!((queue.bytes(1), queue.bytes(2)), (0, 10));
        for part in 1..MAX_RANGES_PER_RPC as u32 {
            assert_eq!(queue.add(2, part * 20..part * 20 + 10, 0), Some(10));
        }
        assert_eq!(queue.add(2, 9_000..9_001, 0), None, "ranges of one RPC");
    }
}
