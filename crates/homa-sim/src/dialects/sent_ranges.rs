//! The parts of a message that its sender has put on the link.

/// Sorted ranges of bytes that neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct SentRanges(Vec<(u32, u32)>);

impl SentRanges {
    /// Adds a range. Returns how many of its bytes were already present.
    pub(super) fn add(&mut self, from: u32, to: u32) -> u32 {
        let first = self.0.partition_point(|&(_, end)| end < from);
        let touching = self.0[first..].iter().take_while(|&&(start, _)| start <= to);
        let (mut count, mut merged, mut again) = (0, (from, to), 0);
        for &(start, end) in touching {
            again += end.min(to).saturating_sub(start.max(from));
            merged = (merged.0.min(start), merged.1.max(end));
            count += 1;
        }
        self.0.splice(first..first + count, [merged]);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_were_sent_before_are_counted() {
        let mut ranges = SentRanges::default();
        assert_eq!(ranges.add(0, 100), 0);
        assert_eq!(ranges.add(100, 200), 0);
        assert_eq!(ranges.add(300, 400), 0);
        assert_eq!(ranges.0, [(0, 200), (300, 400)]);
        assert_eq!(ranges.add(150, 350), 100);
        assert_eq!(ranges.0, [(0, 400)]);
        assert_eq!(ranges.add(0, 400), 400);
        assert_eq!(ranges.add(390, 410), 10);
    }
}
