//! How the time of a comparison is spent.

use std::time::Duration;

use homa_bench::workloads::DEFAULT_MAX_MESSAGE;

/// For Homa's round trips without load.
const UNLOADED: Duration = Duration::from_millis(1_500);

/// With less time in all.
const UNLOADED_QUICK: Duration = Duration::from_millis(700);

/// To begin in all hosts at one moment, and to wait for answers after the end.
const AROUND_A_LOAD: Duration = Duration::from_millis(600);

/// To end the processes and the rack, and to write the results.
const AT_THE_END: Duration = Duration::from_millis(700);

/// Repetitions where there is time: the fewest that have a spread with a middle.
const REPETITIONS: u32 = 3;

/// A repetition with less measured time than this would measure how a load begins.
const LEAST_LOAD: Duration = Duration::from_millis(2_500);

/// Share of a load that is warm-up.
const WARMUP: f64 = 0.2;

/// The longest warm-up: TCP's queues are level after a second (docs/perf).
const MAX_WARMUP: Duration = Duration::from_secs(2);

/// Share of the bytes of a link in the measured time that the longest message may be. With more, the few messages under
/// way at the end decide whether a run looks level: 1,000,000 bytes at 40 Mbit/s, 3 % of a link in 6.8 s, made Homa
/// complete 0.91 to 0.96 of what was due in three runs, and 330,000 bytes 0.99 to 1.00 in two.
const LONGEST_SHARE: f64 = 0.01;

/// The shortest truncation.
const LEAST_LONGEST_BYTES: f64 = 10_000.0;

/// How the time that is left is spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// For round trips without load.
    pub unloaded: Duration,
    /// Repetitions with all contenders in turn.
    pub repetitions: u32,
    /// Load before the measured time.
    pub warmup: Duration,
    /// Measured time of each contender in a repetition.
    pub measured: Duration,
}

impl Schedule {
    /// Divides the time that is left between so many contenders. At least one short repetition takes place, however late it is.
    pub fn of(left: Duration, contenders: usize) -> Schedule {
        let unloaded = if left > Duration::from_secs(15) { UNLOADED } else { UNLOADED_QUICK };
        Schedule { unloaded, ..Schedule::of_loads(left.saturating_sub(unloaded), contenders) }
    }

    /// The same after the round trips without load.
    pub fn of_loads(left: Duration, contenders: usize) -> Schedule {
        let left = left.saturating_sub(AT_THE_END);
        let contenders = u32::try_from(contenders).unwrap_or(u32::MAX).max(1);
        let load = |repetitions: u32| (left / (repetitions * contenders)).saturating_sub(AROUND_A_LOAD);
        let repetitions = (1..=REPETITIONS).rev().find(|&count| load(count) >= LEAST_LOAD).unwrap_or(1);
        let load = load(repetitions).max(LEAST_LOAD / 2);
        let warmup = load.mul_f64(WARMUP).min(MAX_WARMUP);
        Schedule { unloaded: Duration::ZERO, repetitions, warmup, measured: load - warmup }
    }

    /// At how many bytes messages are cut for links of this rate, rounded down to two digits.
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
    fn a_late_comparison_is_short_but_takes_place() {
        let schedule = Schedule::of(Duration::ZERO, 3);
        assert_eq!((schedule.repetitions, schedule.warmup + schedule.measured), (1, LEAST_LOAD / 2));
    }
}
