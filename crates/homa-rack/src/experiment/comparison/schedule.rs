//! The schedule of a comparison.

use std::time::Duration;

use homa_bench::workloads::DEFAULT_MAX_MESSAGE;

/// Time to measure Homa's unloaded round trips.
const UNLOADED: Duration = Duration::from_millis(1_500);

/// Time to measure Homa's unloaded round trips in a short comparison.
const UNLOADED_QUICK: Duration = Duration::from_millis(700);

/// Overhead of a load: starting all hosts at the same time, and waiting for responses at the end.
const AROUND_A_LOAD: Duration = Duration::from_millis(600);

/// Time to end the processes and the rack, and to write the results.
const AT_THE_END: Duration = Duration::from_millis(700);

/// Number of repetitions if there is enough time: the minimum for a median with a range.
const REPETITIONS: u32 = 3;

/// Minimum duration of the load in a repetition, including the warm-up. A shorter load would measure only how
/// a load begins.
const LEAST_LOAD: Duration = Duration::from_millis(2_500);

/// Share of the load's duration that is warm-up.
const WARMUP: f64 = 0.2;

/// Maximum warm-up: TCP's queues are steady after a second (docs/perf).
const MAX_WARMUP: Duration = Duration::from_secs(2);

/// Maximum message length as a share of the bytes that a link carries in the measurement window. With larger
/// messages, the few that are in flight at the end decide whether a run looks steady. With messages of
/// 1,000,000 bytes at 40 Mbit/s (3 % of what a link carries in 6.8 s), Homa completed 0.91 to 0.96 of the due
/// bytes in three runs. With 330,000 bytes, it completed 0.99 to 1.00 in two runs.
const LONGEST_SHARE: f64 = 0.01;

/// Lower limit for the maximum message length, in bytes.
const LEAST_LONGEST_BYTES: f64 = 10_000.0;

/// The schedule for the remaining time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Time to measure unloaded round trips.
    pub unloaded: Duration,
    /// Number of repetitions. In each of them, all contenders take turns.
    pub repetitions: u32,
    /// Duration of the load before the measurement window.
    pub warmup: Duration,
    /// Measurement time of each contender per repetition.
    pub measured: Duration,
}

impl Schedule {
    /// Divides the remaining time between the contenders. There is always at least one short repetition.
    pub fn of(left: Duration, contenders: usize) -> Schedule {
        let unloaded = if left > Duration::from_secs(15) { UNLOADED } else { UNLOADED_QUICK };
        Schedule { unloaded, ..Schedule::of_loads(left.saturating_sub(unloaded), contenders) }
    }

    /// Divides the time that remains after measuring unloaded round trips.
    pub fn of_loads(left: Duration, contenders: usize) -> Schedule {
        let left = left.saturating_sub(AT_THE_END);
        let contenders = u32::try_from(contenders).unwrap_or(u32::MAX).max(1);
        let load = |repetitions: u32| (left / (repetitions * contenders)).saturating_sub(AROUND_A_LOAD);
        let repetitions = (1..=REPETITIONS).rev().find(|&count| load(count) >= LEAST_LOAD).unwrap_or(1);
        let load = load(repetitions).max(LEAST_LOAD / 2);
        let warmup = load.mul_f64(WARMUP).min(MAX_WARMUP);
        Schedule { unloaded: Duration::ZERO, repetitions, warmup, measured: load - warmup }
    }

    /// Returns the time that one repetition takes at least, for [`Schedule::of_loads`] to give it a load of
    /// useful duration.
    pub fn least(contenders: usize) -> Duration {
        let contenders = u32::try_from(contenders).unwrap_or(u32::MAX);
        (LEAST_LOAD + AROUND_A_LOAD) * contenders + AT_THE_END
    }

    /// Returns the maximum message length for links of this rate, rounded down to two digits. Longer messages
    /// are truncated to it.
    pub fn longest_message(&self, rate_bps: u64) -> u32 {
        let share = rate_bps as f64 / 8.0 * self.measured.as_secs_f64() * LONGEST_SHARE;
        let bytes = share.clamp(LEAST_LONGEST_BYTES, f64::from(DEFAULT_MAX_MESSAGE));
        let step = 10_f64.powf(bytes.log10().floor() - 1.0);
        ((bytes / step).floor() * step) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(schedule: Schedule, contenders: u32) -> Duration {
        let load = schedule.warmup + schedule.measured + AROUND_A_LOAD;
        schedule.unloaded + load * schedule.repetitions * contenders + AT_THE_END
    }

    #[test]
    fn the_time_is_used_and_not_exceeded() {
        for (seconds, contenders, repetitions) in
            [(56, 2, 3), (56, 3, 3), (22, 2, 3), (14, 2, 2), (8, 2, 1), (600, 2, 3)]
        {
            let left = Duration::from_secs(seconds);
            let schedule = Schedule::of(left, contenders as usize);
            assert_eq!(schedule.repetitions, repetitions, "{seconds} s");
            let total = total(schedule, contenders);
            assert!(total <= left && total > left.mul_f64(0.95), "{seconds} s: {schedule:?}");
            assert!(
                schedule.warmup <= MAX_WARMUP && schedule.warmup >= Duration::from_millis(400),
                "{schedule:?}"
            );
        }
    }

    #[test]
    fn slow_links_and_short_times_get_shorter_messages() {
        let schedule =
            |seconds| Schedule { measured: Duration::from_secs(seconds), ..Schedule::of(Duration::ZERO, 2) };
        let longest = |rate_bps, seconds| schedule(seconds).longest_message(rate_bps);
        assert_eq!(longest(40_000_000, 7), 350_000);
        assert_eq!(longest(75_000_000, 7), 650_000);
        assert_eq!(longest(1_000_000_000, 7), 1_000_000);
        assert_eq!(longest(10_000_000, 2), 25_000);
        assert_eq!(longest(1_000_000, 1), 10_000);
    }

    #[test]
    fn the_least_time_is_one_repetition_of_the_least_load() {
        for contenders in [2, 3] {
            let schedule = Schedule::of_loads(Schedule::least(contenders), contenders);
            assert_eq!((schedule.repetitions, schedule.warmup + schedule.measured), (1, LEAST_LOAD));
        }
    }

    #[test]
    fn a_late_comparison_is_short_but_takes_place() {
        let schedule = Schedule::of(Duration::ZERO, 3);
        assert_eq!((schedule.repetitions, schedule.warmup + schedule.measured), (1, LEAST_LOAD / 2));
    }
}
