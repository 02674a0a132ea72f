//! Gaps in which all processors stopped at once.
//!
//! A management interrupt takes every processor of a machine and gives them back together, wherever each of them is; so does a
//! hypervisor that stops the whole virtual machine. Programs and interrupts stop one processor, and two of them at once by chance only.

use serde::Serialize;

use super::gaps::Gap;

/// A moment at which every processor had a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CommonStop {
    /// The time at which the last processor stopped, nanoseconds since the measurement began.
    pub start_ns: u64,
    /// The time for which all of them stood still, nanoseconds.
    pub length_ns: u64,
}

/// How much of the time from the first stop to the last resumption all must have stood still, as a divisor: half. What stops all of
/// them leaves little more than its own time on any; a long gap of one that happens to meet a short one of another has less in common.
const COMMON_SHARE: u64 = 2;

/// The moments at which all processors stopped at once. `cores` has each processor's gaps in the order of time, none overlapping; with
/// fewer than two processors nothing can be told.
pub fn together(cores: &[Vec<Gap>]) -> Vec<CommonStop> {
    let mut found = Vec::new();
    if cores.len() < 2 {
        return found;
    }
    let mut next = vec![0; cores.len()];
    loop {
        let Some(gaps) =
            cores.iter().zip(&next).map(|(gaps, &next)| gaps.get(next)).collect::<Option<Vec<_>>>()
        else {
            return found;
        };
        let starts = || gaps.iter().map(|gap| gap.start_ns);
        let ends = || gaps.iter().map(|gap| gap.end_ns());
        let (Some(first), Some(last)) = (starts().min(), starts().max()) else { return found };
        let (Some(soonest), Some(latest)) = (ends().min(), ends().max()) else { return found };
        if last < soonest && (soonest - last) * COMMON_SHARE >= latest - first {
            found.push(CommonStop { start_ns: last, length_ns: soonest - last });
        }
        // Whoever goes on first cannot be in a later moment with this gap.
        for (next, gap) in next.iter_mut().zip(&gaps) {
            *next += usize::from(gap.end_ns() == soonest);
        }
    }
}

/// How often the processors are moved against each other to see what chance does.
const SHIFTS: u32 = 8;

/// How many stops of all at once [`together`] would find by chance: what it finds, on average, when the gaps of each processor are
/// moved by another part of `span_ns`, so that no common cause is left. What lies beyond the end comes back at the beginning.
pub fn by_chance(cores: &[Vec<Gap>], span_ns: u64) -> f64 {
    let found = (1..=SHIFTS).map(|shift| {
        let moved: Vec<Vec<Gap>> = (0..)
            .zip(cores)
            .map(|(core, gaps)| {
                // Multiples of the golden ratio keep away from each other and from round parts, where periods would meet again.
                let share = (f64::from(core) * f64::from(shift) * GOLDEN).fract();
                moved(gaps, (share * span_ns as f64) as u64, span_ns)
            })
            .collect();
        together(&moved).len()
    });
    found.sum::<usize>() as f64 / f64::from(SHIFTS)
}

const GOLDEN: f64 = 0.618_033_988_749_894_9;

fn moved(gaps: &[Gap], by_ns: u64, span_ns: u64) -> Vec<Gap> {
    let later = |gap: &Gap| Gap { start_ns: gap.start_ns + by_ns, ..*gap };
    let back = |gap: &Gap| Gap { start_ns: gap.start_ns + by_ns - span_ns, ..*gap };
    let end = gaps.partition_point(|gap| gap.start_ns + by_ns < span_ns);
    gaps[end..].iter().map(back).chain(gaps[..end].iter().map(later)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(list: &[(u64, u64)]) -> Vec<Gap> {
        list.iter().map(|&(start_ns, length_ns)| Gap { start_ns, length_ns }).collect()
    }

    #[test]
    fn gaps_of_all_at_once_are_found_among_others() {
        let cores = [
            gaps(&[(1_000, 50), (200_000, 250_000), (900_000, 300_000)]),
            gaps(&[(5_000, 50), (200_300, 249_000), (500_000, 2_000), (900_100, 300_000)]),
            gaps(&[(199_900, 250_500), (899_000, 302_000), (2_000_000, 5)]),
        ];
        let found = together(&cores);
        assert_eq!(
            found,
            [
                CommonStop { start_ns: 200_300, length_ns: 249_000 },
                CommonStop { start_ns: 900_100, length_ns: 299_900 }
            ]
        );
    }

    #[test]
    fn a_long_gap_that_meets_short_ones_is_no_common_stop() {
        let cores = [gaps(&[(0, 4_000_000)]), gaps(&[(1_000, 2_000), (10_000, 2_000), (3_000_000, 2_000)])];
        assert!(together(&cores).is_empty());
        assert!(together(&cores[..1]).is_empty() && together(&[]).is_empty());
    }

    #[test]
    fn gaps_that_only_touch_are_not_together() {
        assert!(together(&[gaps(&[(0, 100)]), gaps(&[(100, 100)])]).is_empty());
    }

    #[test]
    fn chance_finds_what_gaps_without_a_common_cause_have_in_common() {
        // A thousandth of the time each: a gap of one meets one of the other a few times in a thousand.
        let every = |period: u64, count: u64| {
            gaps(&(0..count).map(|index| (index * period, 1_000)).collect::<Vec<_>>())
        };
        let chance = by_chance(&[every(1_000_000, 1_000), every(999_983, 1_000)], 1_000_000_000);
        assert!(chance < 5.0, "{chance}");
        // Half of the time each: nearly every one does.
        let chance = by_chance(&[every(2_000, 1_000), every(1_999, 1_000)], 2_000_000);
        assert!(chance > 300.0, "{chance}");
        assert_eq!(by_chance(&[gaps(&[(0, 5)]), Vec::new()], 1_000), 0.0);
    }

    #[test]
    fn a_common_cause_is_gone_when_processors_are_moved() {
        let stops = gaps(&[(100_000, 50_000), (400_000, 80_000), (700_000, 20_000)]);
        let cores = [stops.clone(), stops];
        assert_eq!(together(&cores).len(), 3);
        assert!(by_chance(&cores, 1_000_000_000) < 1.0);
        assert_eq!(
            moved(&cores[0], 500_000, 1_000_000),
            gaps(&[(200_000, 20_000), (600_000, 50_000), (900_000, 80_000)])
        );
    }
}
