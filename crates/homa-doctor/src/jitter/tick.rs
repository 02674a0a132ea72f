//! Timer ticks among the gaps of a processor.

use serde::Serialize;

use super::gaps::Gap;

/// Tick rates of Linux, fastest first. A slow tick has too few gaps to be mistaken for a faster one, while a
/// fast tick has a gap wherever a slower tick would have one.
const RATES_HZ: [u64; 4] = [1_000, 300, 250, 100];

/// Number of periods that are analysed together. A tick follows the clock that NTP adjusts, but the counter
/// does not. Over this many periods, an adjustment of 100 parts per million moves the tick by less than a
/// hundredth of a period.
const PIECE_PERIODS: u64 = 64;

/// The gaps of a tick begin in a window of this fraction of a period: the value is the divisor. Ticks are
/// delayed by a hypervisor or by disabled interrupts.
const WINDOW_PART: u64 = 20;

/// Minimum share of a tick's periods that must contain a gap.
const LEAST_PRESENT: f64 = 0.6;

/// The window must contain at least this multiple of the gaps expected by chance.
const ABOVE_CHANCE: f64 = 3.0;

/// A timer tick of a processor, found among its gaps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tick {
    /// Ticks per second.
    pub hz: u64,
    /// Share of the tick's periods that contain a gap, 0 to 1.
    pub present: f64,
    /// Median length of these gaps, in nanoseconds.
    pub median_ns: u64,
    /// Indexes of these gaps.
    #[serde(skip)]
    pub gaps: Vec<usize>,
}

/// Maximum number of ticks: one from the kernel, one from a hypervisor, and one from another hypervisor below
/// it.
const MAX_TRAINS: usize = 3;

/// Finds timer ticks among the gaps of a processor, which must be sorted by time. `spans` are the measured
/// spans, `[begin,end)` in nanoseconds. There may be several ticks: that of a virtual machine and that of its
/// hypervisor. The fastest tick is returned first.
pub fn find(gaps: &[Gap], spans: &[(u64, u64)]) -> Vec<Tick> {
    let mut found: Vec<Tick> = Vec::new();
    let mut left: Vec<usize> = (0..gaps.len()).collect();
    while found.len() < MAX_TRAINS {
        let rest: Vec<Gap> = left.iter().map(|&index| gaps[index]).collect();
        let Some(mut tick) = RATES_HZ.into_iter().find_map(|hz| at_rate(&rest, spans, hz)) else { break };
        let mut places = std::mem::take(&mut tick.gaps).into_iter().peekable();
        let mut others = Vec::new();
        for (place, &index) in left.iter().enumerate() {
            let of = if places.next_if_eq(&place).is_some() { &mut tick.gaps } else { &mut others };
            of.push(index);
        }
        left = others;
        found.push(tick);
    }
    found
}

fn at_rate(gaps: &[Gap], spans: &[(u64, u64)], hz: u64) -> Option<Tick> {
    let period = 1_000_000_000 / hz;
    let (mut moments, mut present, mut hits) = (0, 0, Vec::new());
    for &(begin, end) in spans {
        let mut from = begin;
        while from + period <= end {
            // A short last piece is merged with the previous one, because a few periods prove nothing.
            let left = (end - from) / period;
            let periods = if left < 2 * PIECE_PERIODS { left } else { PIECE_PERIODS };
            let to = from + periods * period;
            let first = gaps.partition_point(|gap| gap.start_ns < from);
            let last = gaps.partition_point(|gap| gap.start_ns < to);
            let (phase, dense) = densest_window(&gaps[first..last], period);
            // Several gaps in the same period are one tick and other interruptions.
            let mut hit: Vec<u64> =
                dense.iter().map(|&index| (gaps[first + index].start_ns + period - phase) / period).collect();
            hit.dedup();
            present += hit.len();
            hits.extend(dense.into_iter().map(|index| first + index));
            moments += periods;
            from = to;
        }
    }
    let by_chance = gaps.len() as f64 / WINDOW_PART as f64;
    let present = present as f64 / moments.max(1) as f64;
    if moments < MIN_MOMENTS || present < LEAST_PRESENT || (hits.len() as f64) < ABOVE_CHANCE * by_chance {
        return None;
    }
    let mut lengths: Vec<u64> = hits.iter().map(|&index| gaps[index].length_ns).collect();
    lengths.sort_unstable();
    Some(Tick { hz, present: present.min(1.0), median_ns: lengths[lengths.len() / 2], gaps: hits })
}

/// Minimum number of periods. Fewer prove nothing.
const MIN_MOMENTS: u64 = 10;

/// Finds the window of the period in which the most gaps begin. Returns the phase of the window, and the
/// indexes of these gaps in the order of time.
fn densest_window(gaps: &[Gap], period: u64) -> (u64, Vec<usize>) {
    let window = period / WINDOW_PART;
    let mut phases: Vec<(u64, usize)> =
        gaps.iter().enumerate().map(|(index, gap)| (gap.start_ns % period, index)).collect();
    phases.sort_unstable();
    let count = phases.len();
    // Repeat all phases one period later, so that a window may span the end of the period.
    let again: Vec<(u64, usize)> = phases.iter().map(|&(phase, index)| (phase + period, index)).collect();
    phases.extend(again);
    let (mut best, mut end) = (0..0, 0);
    for begin in 0..count {
        while end < phases.len() && end - begin < count && phases[end].0 - phases[begin].0 < window {
            end += 1;
        }
        if end - begin > best.len() {
            best = begin..end;
        }
    }
    let phase = phases.get(best.start).map_or(0, |&(phase, _)| phase);
    let mut indices: Vec<usize> = phases[best].iter().map(|&(_, index)| index).collect();
    indices.sort_unstable();
    (phase, indices)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const SPAN: (u64, u64) = (7_000, 7_000 + 2 * SECOND);

    fn train(hz: u64, late_ns: u64, seed: u64) -> Vec<Gap> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let first = SPAN.0 + random.random_range(0..SECOND / hz);
        let starts = (0..2 * hz).map(|tick| first + tick * (SECOND / hz)).filter(|start| *start < SPAN.1);
        starts
            .map(|start| Gap { start_ns: start + random.random_range(0..=late_ns), length_ns: 3_000 })
            .collect()
    }

    fn random(count: u64, seed: u64) -> Vec<Gap> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let gaps =
            (0..count).map(|_| Gap { start_ns: random.random_range(SPAN.0..SPAN.1), length_ns: 20_000 });
        sorted(gaps.collect())
    }

    fn sorted(mut gaps: Vec<Gap>) -> Vec<Gap> {
        gaps.sort_by_key(|gap| gap.start_ns);
        gaps
    }

    #[test]
    fn each_rate_is_found_for_what_it_is() {
        for hz in RATES_HZ {
            for seed in 0..20 {
                let gaps = train(hz, 10_000, seed);
                let [tick] = &find(&gaps, &[SPAN])[..] else {
                    panic!("not one tick of {hz} Hz, seed {seed}")
                };
                assert_eq!((tick.hz, tick.median_ns), (hz, 3_000), "seed {seed}");
                assert!(tick.present > 0.97 && tick.gaps.len() >= gaps.len() * 97 / 100, "{tick:?}");
            }
        }
    }

    #[test]
    fn a_tick_is_found_among_other_gaps_and_they_are_not_its() {
        for seed in 0..20 {
            let mut gaps = train(250, 20_000, seed);
            gaps.extend(random(300, seed));
            let gaps = sorted(gaps);
            let [tick] = &find(&gaps, &[SPAN])[..] else { panic!("not one tick, seed {seed}") };
            assert_eq!(tick.hz, 250, "seed {seed}");
            let others = tick.gaps.iter().filter(|&&index| gaps[index].length_ns == 20_000).count();
            assert!(others < 60 && tick.gaps.len() - others > 470, "{others} of {}", tick.gaps.len());
        }
    }

    fn rates(ticks: &[Tick]) -> Vec<u64> {
        ticks.iter().map(|tick| tick.hz).collect()
    }

    #[test]
    fn a_hypervisors_tick_and_the_kernels_own_are_told_apart() {
        let mut told_apart = 0;
        for seed in 0..20 {
            let mut gaps = train(1_000, 30_000, seed);
            gaps.extend(train(250, 5_000, seed + 100).into_iter().map(|gap| Gap { length_ns: 9_000, ..gap }));
            let gaps = sorted(gaps);
            let ticks = find(&gaps, &[SPAN]);
            // If both ticks always occur at the same times, they are found as one.
            if rates(&ticks) != [1_000] {
                assert_eq!(rates(&ticks), [1_000, 250], "seed {seed}");
                let own = ticks[1].gaps.iter().filter(|&&index| gaps[index].length_ns == 9_000).count();
                assert!(own > 400, "{own} gaps, seed {seed}");
                told_apart += 1;
            }
        }
        assert!(told_apart > 15, "{told_apart} of 20");
    }

    #[test]
    fn random_gaps_are_no_tick_however_many() {
        for seed in 0..20 {
            for count in [0, 5, 50, 500, 5_000, 100_000] {
                assert_eq!(find(&random(count, seed), &[SPAN]), [], "{count} gaps, seed {seed}");
            }
        }
    }

    #[test]
    fn a_clock_that_drifts_and_a_measure_with_pauses_keep_the_tick() {
        let gaps = train(250, 5_000, 3);
        let drifted: Vec<Gap> =
            gaps.iter().map(|gap| Gap { start_ns: gap.start_ns + gap.start_ns / 10_000, ..*gap }).collect();
        assert_eq!(rates(&find(&drifted, &[SPAN])), [250]);
        let spans = [(SPAN.0, SECOND / 2), (SECOND, SPAN.1)];
        let kept =
            gaps.into_iter().filter(|gap| spans.iter().any(|span| (span.0..span.1).contains(&gap.start_ns)));
        let ticks = find(&kept.collect::<Vec<_>>(), &spans);
        assert!(rates(&ticks) == [250] && ticks[0].present > 0.95, "{ticks:?}");
    }

    #[test]
    fn ticks_that_mostly_do_not_come_are_not_said_to() {
        let gaps: Vec<Gap> = train(250, 5_000, 1)
            .into_iter()
            .enumerate()
            .filter(|(index, _)| index % 3 == 0)
            .map(|(_, gap)| gap)
            .collect();
        assert_eq!(find(&gaps, &[SPAN]), []);
    }
}
