//! The gaps of one processor, and their number and total length by class.

use serde::Serialize;

/// An interval in which a processor did not run the measuring thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Start of the gap, in nanoseconds since the measurement began.
    pub start_ns: u64,
    /// Length of the gap, in nanoseconds.
    pub length_ns: u64,
}

impl Gap {
    /// Returns the end of the gap, exclusive.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.length_ns
    }
}

/// Names of the length classes in the JSON, each with its minimum length in nanoseconds. A class ends where
/// the next begins.
pub const CLASSES: [(&str, u64); 6] = [
    ("below_1us", 0),
    ("1us_to_10us", 1_000),
    ("10us_to_100us", 10_000),
    ("100us_to_1ms", 100_000),
    ("1ms_to_10ms", 1_000_000),
    ("10ms_and_more", 10_000_000),
];

/// Titles of the length classes in tables.
pub const CLASS_TITLES: [&str; CLASSES.len()] =
    ["below 1 us", "1-10 us", "10-100 us", "0.1-1 ms", "1-10 ms", "10 ms and more"];

/// Returns the class of a length as an index into [`CLASSES`].
pub fn class_of(length_ns: u64) -> usize {
    CLASSES.iter().rposition(|(_, least)| length_ns >= *least).unwrap_or(0)
}

/// A number of gaps and their total length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The number of gaps.
    pub gaps: u64,
    /// Total length of the gaps, in nanoseconds.
    pub total_ns: u64,
}

/// The gaps of one processor, counted by length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number and total length of the gaps in each of [`CLASSES`].
    pub classes: [Count; CLASSES.len()],
    /// The longest gap. If several are equally long, the first of them.
    pub largest: Option<Gap>,
}

impl Tally {
    /// Counts a gap.
    pub(crate) fn add(&mut self, gap: Gap) {
        let class = &mut self.classes[class_of(gap.length_ns)];
        class.gaps += 1;
        class.total_ns += gap.length_ns;
        if self.largest.is_none_or(|largest| gap.length_ns > largest.length_ns) {
            self.largest = Some(gap);
        }
    }

    /// Returns the sum over all classes.
    #[must_use]
    pub fn sum(&self) -> Count {
        self.classes.iter().fold(Count::default(), |sum, class| Count {
            gaps: sum.gaps + class.gaps,
            total_ns: sum.total_ns + class.total_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gap_is_in_the_class_of_its_length() {
        assert_eq!([999, 1_000, 9_999, 10_000, 99_999].map(class_of), [0, 1, 1, 2, 2]);
        assert_eq!([100_000, 1_000_000, 9_999_999, 10_000_000, u64::MAX].map(class_of), [3, 4, 4, 5, 5]);
        let mut tally = Tally::default();
        let gaps = [(5, 2_000), (50_000, 30_000), (90_000, 30_000), (200_000, 8_000)];
        gaps.into_iter().for_each(|(start_ns, length_ns)| tally.add(Gap { start_ns, length_ns }));
        assert_eq!(tally.classes[1], Count { gaps: 2, total_ns: 10_000 });
        assert_eq!(tally.classes[2], Count { gaps: 2, total_ns: 60_000 });
        assert_eq!(tally.sum(), Count { gaps: 4, total_ns: 70_000 });
        assert_eq!(tally.largest.map(|gap| gap.end_ns()), Some(80_000));
    }
}
