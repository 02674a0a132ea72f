//! Decides whether the protocols carry the offered load, and which load is tried next if one does not.

use std::time::Duration;

/// Maximum difference between completed and due bytes, as a share of the due bytes. A protocol that exceeds
/// it was not in steady state.
const MAX_DIFFERENCE: f64 = 0.03;

/// Step by which the load is lowered if a protocol was not in steady state.
const LOAD_STEP: f64 = 0.15;

/// Minimum load.
const MIN_LOAD: f64 = 0.2;

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
    /// keeps its load: all protocols were in steady state, the load is the lowest, or a comparison was
    /// already started too late. `completed_fractions` are the completed shares of the due bytes of each
    /// protocol, over all repetitions with this load so far.
    ///
    /// Once, a lower load is used even if there is no time left: a valid comparison that is a few seconds
    /// late is better than an invalid one. A machine on which nothing is steady does not delay the result
    /// further.
    pub fn start_again(
        &mut self,
        load: f64,
        completed_fractions: &[f64],
        left: Duration,
    ) -> Option<(f64, Duration)> {
        let lower = load - LOAD_STEP;
        let is_too_late = left < self.least;
        let is_steady = completed_fractions.iter().all(|&fraction| is_steady(fraction));
        if is_steady || lower < MIN_LOAD || (is_too_late && self.is_late) {
            return None;
        }
        self.is_late |= is_too_late;
        Some((lower, left.max(self.least)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(7);

    #[test]
    fn whatever_is_marked_invalid_lowers_the_load() {
        let left = Duration::from_secs(40);
        for fraction in [0.5, 0.92, 0.959, 0.9699, 1.0301, 1.2] {
            assert!(!is_steady(fraction), "{fraction}");
            let (load, time) = LoadControl::new(LEAST).start_again(0.7, &[1.0, fraction], left).unwrap();
            assert!((load - 0.55).abs() < 1e-9 && time == left, "{fraction}: {load}, {time:?}");
        }
        for fraction in [0.9701, 1.0, 1.0299] {
            assert!(is_steady(fraction), "{fraction}");
            assert_eq!(LoadControl::new(LEAST).start_again(0.7, &[fraction, 1.0], left), None, "{fraction}");
        }
    }

    #[test]
    fn the_load_has_a_minimum() {
        let mut control = LoadControl::new(LEAST);
        let (mut load, mut loads) = (0.7, Vec::new());
        while let Some((lower, _)) = control.start_again(load, &[0.5], LEAST) {
            loads.push((lower * 100.0_f64).round());
            load = lower;
        }
        assert_eq!(loads, [55.0, 40.0, 25.0]);
    }

    #[test]
    fn the_end_is_exceeded_at_most_once() {
        let mut control = LoadControl::new(LEAST);
        let mut times = [40, 3, 0].map(|seconds| {
            let next = control.start_again(0.7, &[0.9], Duration::from_secs(seconds));
            next.map(|(_, time)| time.as_secs())
        });
        assert_eq!(times, [Some(40), Some(7), None]);
        times = [10, 6, 20].map(|seconds| {
            let next = control.start_again(0.7, &[0.9], Duration::from_secs(seconds));
            next.map(|(_, time)| time.as_secs())
        });
        assert_eq!(times, [Some(10), None, Some(20)]);
    }
}
