//! Unloaded round-trip times by message size: the baseline for all slowdowns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use homa_workload::Workload;

use crate::engine::link::Link;
use crate::engine::pattern::Pattern;

/// Ratio between consecutive measured sizes. The sizes at the edges of the bins are measured in addition.
const GRID_STEP: u32 = 2;

/// Number of rounds over all sizes.
pub const ROUNDS: u32 = 3;

/// Minimum number of round trips per size and round for a useful median, if the size's share of the time
/// permits.
const MIN_SAMPLES: usize = 5;

/// Maximum time for the minimum number of round trips, as a multiple of the size's share. On a slow link,
/// five round trips of a long message would take seconds.
const MOST_SHARES: u32 = 2;

/// Maximum number of round trips per size and round; more would not change the median.
const MAX_SAMPLES: usize = 1_000;

/// A delay caused by a processor or the scheduler is negligible in a round trip longer than this.
const DISTURBANCE: Duration = Duration::from_millis(20);

/// Time after which a single unloaded RPC counts as failed. Homa reports its own errors earlier.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of failed RPCs in a measurement. Where processors are so busy that a switch or a server
/// stands still for seconds, a few RPCs fail although their servers work.
const MAX_FAILURES: u32 = 5;

/// Maximum time by which failed RPCs lengthen a measurement.
pub const MAX_FAILURE_TIME: Duration = Duration::from_secs(PATIENCE.as_secs() * MAX_FAILURES as u64);

/// Unloaded round-trip times by message size.
#[derive(Clone, Debug)]
pub struct RttTable {
    /// Pairs of size in bytes and round trip in nanoseconds, in order of increasing size.
    points: Vec<(u32, u64)>,
}

impl RttTable {
    /// Creates a table from measured points.
    pub fn new(mut points: Vec<(u32, u64)>) -> RttTable {
        points.sort_unstable();
        RttTable { points }
    }

    /// Returns the measured points, in order of increasing size.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.points
    }

    /// Returns the unloaded round trip in nanoseconds of a message of `size` bytes, at least 1. It is
    /// interpolated linearly on a log-log scale. Outside the measured range, it is that of the nearest size.
    pub fn rtt_ns(&self, size: u32) -> u64 {
        let above = self.points.partition_point(|&(bytes, _)| bytes < size);
        let ns = match (above.checked_sub(1).map(|below| self.points[below]), self.points.get(above)) {
            (_, Some(&(bytes, ns))) if bytes == size => ns,
            (Some((low, low_ns)), Some(&(high, high_ns))) => {
                let position =
                    (f64::from(size) / f64::from(low)).ln() / (f64::from(high) / f64::from(low)).ln();
                (low_ns as f64 * (high_ns as f64 / low_ns as f64).powf(position)) as u64
            }
            (Some((_, ns)), None) | (None, Some(&(_, ns))) => ns,
            (None, None) => 1,
        };
        ns.max(1)
    }
}

/// Returns the sizes to measure: the workload's minimum and maximum, powers of two times the minimum, and the
/// quantiles at the edges of the bins.
pub fn sizes(workload: &Workload) -> Vec<u32> {
    let (min, max) = (workload.min_bytes(), workload.max_bytes());
    let grid =
        std::iter::successors(Some(min), |&size| size.checked_mul(GRID_STEP)).take_while(|&size| size < max);
    let edges = (1..=10).map(|bin| workload.quantile(f64::from(bin) / 10.0));
    let mut sizes: Vec<u32> = grid.chain(edges).chain([max]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Measures the median round trip of each size, one RPC at a time, within about `budget` in total. The sizes
/// take turns in [`ROUNDS`] rounds, so that a disturbance of a few milliseconds does not affect all samples
/// of a size. `step` is called after each size in each round.
///
/// # Errors
/// The link is broken, a response is wrong, the first RPC failed, or more than five others did.
pub fn measure(
    link: &mut dyn Link,
    pattern: &Pattern,
    sizes: &[u32],
    budget: Duration,
    mut step: impl FnMut(),
) -> Result<RttTable> {
    let share = budget / (ROUNDS * sizes.len().max(1) as u32);
    let mut prober = Prober::new(link, pattern);
    let mut samples = vec![Vec::new(); sizes.len()];
    for _ in 0..ROUNDS {
        for (&size, samples) in sizes.iter().zip(&mut samples) {
            let begin = Instant::now();
            if samples.iter().any(|&ns| is_long(Duration::from_nanos(ns), share)) {
                step();
                continue;
            }
            // The first round trip of a size runs with cold caches, which is negligible only for a long
            // message.
            let first = prober.round_trip(size)?;
            if is_long(first, share) {
                samples.push(first.as_nanos() as u64);
            }
            let mut count = 0;
            while !is_long(first, share) && wants_more(count, begin.elapsed(), share) {
                samples.push(prober.round_trip(size)?.as_nanos() as u64);
                count += 1;
            }
            step();
        }
    }
    let medians = samples.iter_mut().map(|samples| {
        let middle = samples.len() / 2;
        *samples.select_nth_unstable(middle).1
    });
    Ok(RttTable::new(undisturbed(sizes.iter().copied().zip(medians).collect())))
}

/// Returns whether a single round trip suffices because it is so long that a disturbance of a few
/// milliseconds is negligible.
fn is_long(rtt: Duration, share: Duration) -> bool {
    rtt >= share.max(DISTURBANCE)
}

/// Returns whether a size needs another round trip in this round, after `count` round trips in `elapsed`.
/// Each size gets at least one.
fn wants_more(count: usize, elapsed: Duration, share: Duration) -> bool {
    match count {
        0 => true,
        1..MIN_SAMPLES => elapsed < MOST_SHARES * share,
        _ => elapsed < share && count < MAX_SAMPLES,
    }
}

/// Removes disturbances: without load, no message takes longer than a longer one. `points` must be sorted by
/// increasing size.
fn undisturbed(mut points: Vec<(u32, u64)>) -> Vec<(u32, u64)> {
    let mut least = u64::MAX;
    for (_, ns) in points.iter_mut().rev() {
        least = least.min(*ns);
        *ns = least;
    }
    points
}

/// Measures the round trips of single RPCs.
struct Prober<'a> {
    link: &'a mut dyn Link,
    pattern: &'a Pattern,
    /// Cookie of the newest RPC.
    number: u64,
    /// Cookies of RPCs that had no response in time, and may still get one.
    unanswered: Vec<u64>,
    failures: u32,
    patience: Duration,
}

impl Prober<'_> {
    fn new<'a>(link: &'a mut dyn Link, pattern: &'a Pattern) -> Prober<'a> {
        Prober { link, pattern, number: 0, unanswered: Vec::new(), failures: 0, patience: PATIENCE }
    }

    /// Measures the round trip of one RPC. If it fails, measures that of another.
    fn round_trip(&mut self, size: u32) -> Result<Duration> {
        loop {
            let failure = match self.attempt(size)? {
                Ok(rtt) => return Ok(rtt),
                Err(failure) => failure,
            };
            // If the first RPC of all fails, the others are likely to fail as well.
            ensure!(self.number > 1, "{failure}");
            self.failures += 1;
            ensure!(
                self.failures <= MAX_FAILURES,
                "{} of {} RPCs without load failed, at last: {failure}",
                self.failures,
                self.number
            );
        }
    }

    /// Sends an RPC. Returns its round trip, or the reason why it failed.
    fn attempt(&mut self, size: u32) -> Result<Result<Duration, String>> {
        self.number += 1;
        let number = self.number;
        let mut answers = Vec::new();
        let begin = Instant::now();
        let submitted = self.link.submit(0, 0, number, self.pattern.request(number, size));
        submitted.map_err(|error| anyhow!(error))?;
        self.link.flush()?;
        loop {
            self.link.receive(Duration::from_millis(100), &mut answers)?;
            let mut outcome = None;
            for answer in answers.drain(..) {
                if answer.cookie == number && outcome.is_none() {
                    outcome = Some(answer.result.map(|payload| (answer.at - begin, payload)));
                    continue;
                }
                let late = self.unanswered.iter().position(|&cookie| cookie == answer.cookie);
                self.unanswered.swap_remove(late.context("an RPC was answered twice")?);
            }
            match outcome {
                Some(Ok((rtt, payload))) => {
                    self.pattern.check(number, size, &payload).map_err(|error| anyhow!(error))?;
                    return Ok(Ok(rtt));
                }
                Some(Err(failure)) => return Ok(Err(failure)),
                None => {}
            }
            if begin.elapsed() > self.patience {
                self.unanswered.push(number);
                let seconds = self.patience.as_secs();
                return Ok(Err(format!("no answer within {seconds} s to a request of {size} bytes")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::engine::link::Answer;

    #[test]
    fn between_points_lies_a_straight_line_in_double_logarithmic_scale() {
        let table = RttTable::new(vec![(10_000, 400), (100, 100), (1_000_000, 4_000)]);
        assert_eq!(table.rtt_ns(100), 100);
        assert_eq!(table.rtt_ns(1_000), 200);
        assert_eq!(table.rtt_ns(10_000), 400);
        assert!((1_260..1_270).contains(&table.rtt_ns(100_000)), "{}", table.rtt_ns(100_000));
    }

    #[test]
    fn a_shorter_message_takes_no_longer_than_a_longer_one() {
        assert_eq!(
            undisturbed(vec![(1, 20), (2, 50), (3, 18), (4, 30), (5, 60)]),
            [(1, 18), (2, 18), (3, 18), (4, 30), (5, 60)]
        );
    }

    #[test]
    fn long_messages_get_few_round_trips_and_short_ones_what_their_share_has_room_for() {
        let ms = Duration::from_millis;
        // At 50 Mbit/s a message of 1 MB takes 350 ms; each size has 27 ms per round.
        assert!(is_long(ms(350), ms(27)) && !is_long(ms(19), ms(27)) && !is_long(ms(19), ms(1)));
        assert!(wants_more(0, ms(500), ms(27)) && wants_more(1, ms(50), ms(27)));
        assert!(!wants_more(1, ms(54), ms(27)) && !wants_more(MIN_SAMPLES, ms(27), ms(27)));
        assert!(wants_more(MIN_SAMPLES, ms(26), ms(27)) && !wants_more(MAX_SAMPLES, ms(26), ms(27)));
    }

    /// A link whose server fails some RPCs, and answers others late.
    #[derive(Default)]
    struct FaultyLink {
        fails: Vec<u64>,
        /// Responses to these RPCs come with the response to the next RPC.
        late: Vec<u64>,
        open: Vec<(u64, Bytes)>,
    }

    impl Link for FaultyLink {
        fn submit(&mut self, _: usize, _: usize, cookie: u64, request: Bytes) -> Result<(), String> {
            self.open.push((cookie, request));
            Ok(())
        }

        fn receive(&mut self, _: Duration, answers: &mut Vec<Answer>) -> Result<()> {
            let is_late = |cookie: &u64| self.late.contains(cookie);
            if self.open.iter().all(|(cookie, _)| is_late(cookie)) {
                return Ok(());
            }
            answers.extend(self.open.drain(..).map(|(cookie, payload)| {
                let fails = self.fails.contains(&cookie);
                let result = if fails { Err(format!("{cookie} failed")) } else { Ok(payload) };
                Answer { cookie, at: Instant::now(), result }
            }));
            Ok(())
        }
    }

    /// Returns the number of the RPC that succeeded after the first one, or the error.
    fn second_round_trip(mut link: FaultyLink) -> Result<u64, String> {
        let pattern = Pattern::new(100, 1, false);
        let mut prober = Prober { patience: Duration::ZERO, ..Prober::new(&mut link, &pattern) };
        prober.round_trip(100).and_then(|_| prober.round_trip(100)).map_err(|error| error.to_string())?;
        Ok(prober.number)
    }

    #[test]
    fn a_round_trip_is_measured_again_after_a_failed_rpc() {
        assert_eq!(second_round_trip(FaultyLink { fails: vec![2, 3], ..Default::default() }), Ok(4));
        assert_eq!(second_round_trip(FaultyLink { late: vec![2, 4], ..Default::default() }), Ok(3));
    }

    #[test]
    fn many_failed_rpcs_and_a_failed_first_one_are_errors() {
        let fails = (2..=7).collect();
        let error = second_round_trip(FaultyLink { fails, ..Default::default() });
        assert_eq!(error, Err("6 of 7 RPCs without load failed, at last: 7 failed".to_owned()));
        let error = second_round_trip(FaultyLink { fails: vec![1], ..Default::default() });
        assert_eq!(error, Err("1 failed".to_owned()));
    }

    #[test]
    fn beyond_the_ends_it_is_flat() {
        let table = RttTable::new(vec![(100, 50), (200, 60)]);
        assert_eq!((table.rtt_ns(1), table.rtt_ns(u32::MAX)), (50, 60));
    }

    #[test]
    fn sizes_cover_the_workload_with_its_bins() {
        let workload = Workload::named("w4").expect("known").truncated(1_000_000).expect("positive");
        let sizes = sizes(&workload);
        assert_eq!(sizes.first(), Some(&workload.min_bytes()));
        assert_eq!(sizes.last(), Some(&1_000_000));
        assert!(sizes.is_sorted() && sizes.len() < 40, "{sizes:?}");
        assert!(sizes.contains(&workload.quantile(0.5)));
        assert_eq!(super::sizes(&Workload::fixed(100).expect("positive")), [100]);
    }
}
