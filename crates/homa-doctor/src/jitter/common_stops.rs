//! Stops of all processors at once. A management interrupt stops all processors of a machine and resumes them
//! together. A hypervisor that stops a whole virtual machine has the same effect. Programs and interrupts
//! stop one processor, and stop several at once only by chance.

use serde::Serialize;

use super::gaps::Gap;

/// A stop of all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CommonStop {
    /// Time at which the last processor stopped, in nanoseconds since the measurement began.
    pub start_ns: u64,
    /// Time for which all processors were stopped, in nanoseconds.
    pub length_ns: u64,
}

/// All processors must be stopped for at least this fraction of a stop; the value is the divisor. A stop
/// lasts from the time at which the first processor stops to the time at which the last one resumes. A common
/// cause stops all processors for almost the same time. A long gap that overlaps a short one by chance has a
/// smaller common share.
const COMMON_SHARE: u64 = 2;

/// Returns the stops of all processors. `cores` contains the gaps of each processor, sorted by time and
/// without overlaps. With fewer than two processors, there are no such stops.
pub fn common_stops(cores: &[Vec<Gap>]) -> Vec<CommonStop> {
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
        // The gap that ends first cannot be a part of a later stop.
        for (next, gap) in next.iter_mut().zip(&gaps) {
            *next += usize::from(gap.end_ns() == soonest);
        }
    }
}

/// Number of relative shifts of the processors, used to estimate the number expected by chance.
const SHIFTS: u32 = 8;

/// Returns the number of stops that [`common_stops`] would find by chance. It is the average over several
/// shifts: each shift moves the gaps of each processor by a different part of `span_ns`, which removes any
/// common cause. Gaps moved beyond the end wrap around to the start.
pub fn by_chance(cores: &[Vec<Gap>], span_ns: u64) -> f64 {
    let found = (1..=SHIFTS).map(|shift| {
        let moved: Vec<Vec<Gap>> = (0..)
            .zip(cores)
            .map(|(core, gaps)| {
                // Multiples of the golden ratio are never close to each other or to simple fractions, at
                // which periodic gaps would coincide again.
                let share = (f64::from(core) * f64::from(shift) * GOLDEN).fract();
                shifted(gaps, (share * span_ns as f64) as u64, span_ns)
            })
            .collect();
        common_stops(&moved).len()
    });
    found.sum::<usize>() as f64 / f64::from(SHIFTS)
}

const GOLDEN: f64 = 0.618_033_988_749_894_9;

fn shifted(gaps: &[Gap], by_ns: u64, span_ns: u64) -> Vec<Gap> {
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
        let found = common_stops(&cores);
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
        assert!(common_stops(&cores).is_empty());
        assert!(common_stops(&cores[..1]).is_empty() && common_stops(&[]).is_empty());
    }

    #[test]
    fn gaps_that_only_touch_are_not_together() {
        assert!(common_stops(&[gaps(&[(0, 100)]), gaps(&[(100, 100)])]).is_empty());
    }

    #[test]
    fn chance_finds_what_gaps_without_a_common_cause_have_in_common() {
        // The gaps of each processor take a thousandth of the time, so few of them coincide.
        let every = |period: u64, count: u64| {
            gaps(&(0..count).map(|index| (index * period, 1_000)).collect::<Vec<_>>())
        };
        let chance = by_chance(&[every(1_000_000, 1_000), every(999_983, 1_000)], 1_000_000_000);
        assert!(chance < 5.0, "{chance}");
        // The gaps of each processor take half of the time, so nearly all of them coincide.
        let chance = by_chance(&[every(2_000, 1_000), every(1_999, 1_000)], 2_000_000);
        assert!(chance > 300.0, "{chance}");
        assert_eq!(by_chance(&[gaps(&[(0, 5)]), Vec::new()], 1_000), 0.0);
    }

    #[test]
    fn a_common_cause_is_gone_when_processors_are_moved() {
        let stops = gaps(&[(100_000, 50_000), (400_000, 80_000), (700_000, 20_000)]);
        let cores = [stops.clone(), stops];
        assert_eq!(common_stops(&cores).len(), 3);
        assert!(by_chance(&cores, 1_000_000_000) < 1.0);
        assert_eq!(
            shifted(&cores[0], 500_000, 1_000_000),
            gaps(&[(200_000, 20_000), (600_000, 50_000), (900_000, 80_000)])
        );
    }
}
