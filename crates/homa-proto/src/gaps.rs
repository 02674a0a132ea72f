//! Which bytes of an incoming message have arrived.

use std::ops::Range;

/// The received bytes of a message: everything before `end` except the gaps.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Exclusive end of the highest byte received.
    end: u32,
    /// Missing ranges below `end`, in ascending order, neither empty nor adjacent. In the common case there
    /// are none, and no memory is allocated.
    gaps: Vec<Range<u32>>,
}

/// Error: accepting the packet would cause more gaps than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyGaps;

impl Gaps {
    /// Returns the exclusive end of the highest byte received.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Returns the exclusive end of the bytes received without a gap from the start.
    pub(crate) fn contiguous(&self) -> u32 {
        self.gaps.first().map_or(self.end, |gap| gap.start)
    }

    /// Forgets all bytes, and frees the memory.
    pub(crate) fn clear(&mut self) {
        *self = Gaps::default();
    }

    /// Returns the missing ranges below `end`, ascending.
    pub(crate) fn missing(&self) -> &[Range<u32>] {
        &self.gaps
    }

    /// Marks `[start, end)` as received, and calls `fresh` for each part that was missing before. Returns the
    /// number of bytes that were missing before.
    ///
    /// # Errors
    /// [`TooManyGaps`] if more than `max_gaps` would remain; then nothing is changed.
    pub(crate) fn insert(
        &mut self,
        start: u32,
        end: u32,
        max_gaps: usize,
        mut fresh: impl FnMut(u32, u32),
    ) -> Result<u32, TooManyGaps> {
        debug_assert!(start < end);
        if start >= self.end {
            if start > self.end {
                if self.gaps.len() >= max_gaps {
                    return Err(TooManyGaps);
                }
                self.gaps.push(self.end..start);
            }
            self.end = end;
            fresh(start, end);
            return Ok(end - start);
        }
        let mut filled = self.fill_gaps(start, end, max_gaps, &mut fresh)?;
        if end > self.end {
            fresh(self.end, end);
            filled += end - self.end;
            self.end = end;
        }
        Ok(filled)
    }

    /// Marks the `len` bytes after the highest received byte as received.
    pub(crate) fn append(&mut self, len: u32) {
        self.end += len;
    }

    fn fill_gaps(
        &mut self,
        start: u32,
        end: u32,
        max_gaps: usize,
        fresh: &mut impl FnMut(u32, u32),
    ) -> Result<u32, TooManyGaps> {
        let first = self.gaps.partition_point(|gap| gap.end <= start);
        let last = self.gaps.partition_point(|gap| gap.start < end);
        if first >= last {
            return Ok(0);
        }
        let left = self.gaps[first].start..start;
        let right = end..self.gaps[last - 1].end;
        let rest = [left, right].into_iter().filter(|gap| !gap.is_empty());
        if self.gaps.len() - (last - first) + rest.clone().count() > max_gaps {
            return Err(TooManyGaps);
        }
        let mut filled = 0;
        for gap in &self.gaps[first..last] {
            let (from, to) = (gap.start.max(start), gap.end.min(end));
            fresh(from, to);
            filled += to - from;
        }
        self.gaps.splice(first..last, rest);
        Ok(filled)
    }

    /// Panics unless the gaps are ascending, disjoint and below the end; returns the number of missing bytes.
    pub(crate) fn check(&self) -> u32 {
        let mut last_end = None;
        for gap in &self.gaps {
            assert!(gap.start < gap.end && gap.end < self.end, "gap {gap:?} below {}", self.end);
            assert!(last_end.is_none_or(|end| end < gap.start), "gaps apart at {gap:?}");
            last_end = Some(gap.end);
        }
        self.gaps.iter().map(|gap| gap.end - gap.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_without_gaps_takes_no_memory() {
        let mut gaps = Gaps::default();
        for i in 0..100 {
            assert_eq!(gaps.insert(i * 10, i * 10 + 10, 0, |_, _| {}), Ok(10));
        }
        assert_eq!(gaps.gaps.capacity(), 0);
        assert_eq!(gaps.contiguous(), 1000);
    }

    #[test]
    fn the_limit_leaves_the_state_as_it_was() {
        let mut gaps = Gaps::default();
        gaps.insert(10, 20, 1, |_, _| {}).unwrap();
        assert_eq!(gaps.insert(30, 40, 1, |_, _| {}), Err(TooManyGaps));
        assert_eq!(gaps.insert(3, 5, 1, |_, _| {}), Err(TooManyGaps));
        assert_eq!((gaps.end(), gaps.missing().len(), gaps.contiguous()), (20, 1, 0));
    }

    proptest! {
        #[test]
        fn every_byte_is_fresh_exactly_once(
            packets in prop::collection::vec((0u32..300, 1u32..60), 1..80),
            max_gaps in 1usize..8,
        ) {
            let mut gaps = Gaps::default();
            let mut bytes = [false; 400];
            for (start, len) in packets {
                let before = bytes;
                let result = gaps.insert(start, start + len, max_gaps, |from, to| {
                    for at in from..to {
                        assert!(!bytes[at as usize], "byte {at} was fresh twice");
                        bytes[at as usize] = true;
                    }
                });
                match result {
                    Ok(fresh) => {
                        let all = (start..start + len).all(|at| bytes[at as usize]);
                        prop_assert!(all);
                        let count = |b: &[bool]| b.iter().filter(|there| **there).count();
                        prop_assert_eq!(count(&bytes) - count(&before), fresh as usize);
                    }
                    Err(TooManyGaps) => prop_assert_eq!(bytes, before),
                }
                prop_assert!(gaps.missing().len() <= max_gaps);
                let there = bytes.iter().filter(|there| **there).count() as u32;
                prop_assert_eq!(gaps.end() - gaps.check(), there);
                let prefix = bytes.iter().take_while(|there| **there).count() as u32;
                prop_assert_eq!(gaps.contiguous(), prefix);
            }
        }
    }
}
