//! Decides whether the protocols carry the offered load, and which load is tried next if one does not.

use std::time::Duration;

/// Maximum difference between completed and due bytes, as a share of the due bytes. A protocol that exceeds
/// it was not in steady state.
const MAX_DIFFERENCE: f64 = 0.03;

/// Step by which the load is lowered if a protocol was not in steady state.
const LOAD_STEP: f64 = 0.15;

/// Minimum load. With less, nothing congests, and the comparison says little about a busy network.
const MIN_LOAD: f64 = 0.35;

/// Returns whether a protocol that completed this share of the due bytes was in steady state.
pub fn is_steady(completed_fraction: f64) -> bool {
    (completed_fraction - 1.0).abs() <= MAX_DIFFERENCE
}

/// Chooses the load after each repetition.
#[derive(Clone, Copy, Debug)]
pub struct LoadControl {
    /// Minimum time of a comparison with a lower load.
    least: Duration,
    /// Whether a comparison was started for which there was too little time.
    is_late: bool,
}

impl LoadControl {
    /// Creates the control. `least` is the minimum time of a comparison with a lower load.
    pub fn new(least: Duration) -> LoadControl {
        LoadControl { least, is_late: false }
    }

    /// Returns the load with which to start again, and the time to use for it, or `None` if the comparison
    /// keeps its load. The load is lowered if a protocol was not in steady state over all repetitions, or
    /// cannot be any more: not even if it completes exactly what is due in all remaining repetitions. So one
    /// short stall does not lower the load. `left` is the time that is left.
    ///
    /// Once, a lower load is used even if there is no time left: a valid comparison that is a few seconds
    /// late is better than an invalid one. A machine on which nothing is steady does not delay the result
    /// further.
    pub fn start_again(&mut self, load: f64, progress: &Progress, left: Duration) -> Option<(f64, Duration)> {
        let lower = load - LOAD_STEP;
        let is_too_late = left < self.least;
        if progress.can_be_steady() || lower < MIN_LOAD || (is_too_late && self.is_late) {
            return None;
        }
        self.is_late |= is_too_late;
        Some((lower, left.max(self.least)))
    }
}

/// The repetitions with one load so far.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of finished repetitions.
    pub done: u32,
    /// Number of planned repetitions.
    pub repetitions: u32,
    /// Completed share of the due bytes over the finished repetitions, of each protocol.
    pub completed_fractions: Vec<f64>,
}

impl Progress {
    /// Returns whether all protocols will have been in steady state if they complete exactly what is due in the
    /// remaining repetitions.
    fn can_be_steady(&self) -> bool {
        let share_done = f64::from(self.done) / f64::from(self.repetitions.max(1));
        self.completed_fractions.iter().all(|fraction| is_steady(1.0 + (fraction - 1.0) * share_done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(7);

    /// Returns the lower load and the seconds for it, after some of three repetitions.
    fn start_again(
        control: &mut LoadControl,
        load: f64,
        done: u32,
        fraction: f64,
        left_s: u64,
    ) -> Option<(f64, u64)> {
        let progress = Progress { done, repetitions: 3, completed_fractions: vec![1.0, fraction] };
        let next = control.start_again(load, &progress, Duration::from_secs(left_s));
        next.map(|(load, time)| ((load * 100.0).round(), time.as_secs()))
    }

    #[test]
    fn whatever_is_marked_invalid_lowers_the_load() {
        for fraction in [0.5, 0.92, 0.959, 0.9699, 1.0301, 1.2] {
            assert!(!is_steady(fraction), "{fraction}");
            let next = start_again(&mut LoadControl::new(LEAST), 0.7, 3, fraction, 1);
            assert_eq!(next, Some((55.0, 7)), "{fraction}");
        }
        for fraction in [0.9701, 1.0, 1.0299] {
            assert!(is_steady(fraction), "{fraction}");
            assert_eq!(start_again(&mut LoadControl::new(LEAST), 0.7, 3, fraction, 1), None, "{fraction}");
        }
    }

    #[test]
    fn the_load_is_lowered_as_soon_as_the_result_can_only_be_invalid() {
        for (done, too_low, low) in [(1, 0.9, 0.92), (2, 0.954, 0.956), (3, 0.969, 0.971)] {
            let next = start_again(&mut LoadControl::new(LEAST), 0.7, done, too_low, 30);
            assert_eq!(next, Some((55.0, 30)), "{done}");
            assert_eq!(start_again(&mut LoadControl::new(LEAST), 0.7, done, low, 30), None, "{done}");
        }
    }

    #[test]
    fn the_load_has_a_minimum() {
        let mut control = LoadControl::new(LEAST);
        let (mut load, mut loads) = (0.7, Vec::new());
        while let Some((percent, _)) = start_again(&mut control, load, 1, 0.5, 7) {
            loads.push(percent);
            load = percent / 100.0;
        }
        assert_eq!(loads, [55.0, 40.0]);
    }

    #[test]
    fn the_end_is_exceeded_at_most_once() {
        let mut control = LoadControl::new(LEAST);
        let times = [40, 3, 0].map(|left_s| {
            let next = start_again(&mut control, 0.7, 3, 0.9, left_s);
            next.map(|(_, seconds)| seconds)
        });
        assert_eq!(times, [Some(40), Some(7), None]);
    }
}
