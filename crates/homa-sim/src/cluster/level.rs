//! Whether a sequence of equally long intervals is level: the two tests behind
//! [`SteadyState`](super::steady::SteadyState).

/// Values of a batch in MSER-5.
const MSER_BATCH: usize = 5;
/// Batches of the trend test. Fewer would leave too few degrees of freedom, more would be too short for their
/// means to be nearly independent.
pub(super) const TREND_BATCHES: usize = 10;
/// Student's t for `TREND_BATCHES` - 2 degrees of freedom: a level sequence of independent batches exceeds it
/// in 1 of 100 runs.
pub(super) const TREND_T: f64 = 3.355;

/// Times the bound of a rise at which chance is no excuse.
const MAX_BOUNDS: f64 = 3.0;

/// Number of values before the level part of a sequence, by MSER-5 (White 1997): the truncation that
/// minimises the standard error of the mean of what is left, in batches of five values. In the second half it
/// means that the sequence is too short to have a level part. `None`: there are fewer than ten batches.
pub(super) fn mser5(values: &[f64]) -> Option<usize> {
    let batches: Vec<f64> =
        values.chunks_exact(MSER_BATCH).map(|batch| batch.iter().sum::<f64>() / MSER_BATCH as f64).collect();
    if batches.len() < 2 * MSER_BATCH {
        return None;
    }
    let mut best = (f64::INFINITY, 0);
    // From the last batch backwards, so that sums are carried along. The last batches alone have no variance
    // to speak of: they are left out, as is usual.
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    let centre = batches[batches.len() - 1];
    for (index, batch) in batches.iter().enumerate().rev() {
        let value = batch - centre;
        (sum, squares, count) = (sum + value, squares + value * value, count + 1.0);
        if count < MSER_BATCH as f64 {
            continue;
        }
        let error = (squares - sum * sum / count).max(0.0) / (count * count);
        if error <= best.0 {
            best = (error, index);
        }
    }
    Some(best.1 * MSER_BATCH)
}

/// A straight line through the batch means of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trend {
    pub(super) mean: f64,
    /// Change of the line from the first batch to the last.
    pub(super) rise: f64,
    /// The slope over its standard error: Student's t of a level sequence.
    pub(super) t: f64,
}

impl Trend {
    /// `None`: there are fewer values than batches.
    pub(super) fn of(values: &[f64]) -> Option<Trend> {
        if values.len() < TREND_BATCHES {
            return None;
        }
        let bound = |batch: usize| batch * values.len() / TREND_BATCHES;
        let means = (0..TREND_BATCHES).map(|batch| {
            let values = &values[bound(batch)..bound(batch + 1)];
            values.iter().sum::<f64>() / values.len() as f64
        });
        let means: Vec<f64> = means.collect();
        let count = TREND_BATCHES as f64;
        let mean = means.iter().sum::<f64>() / count;
        let middle = (count - 1.0) / 2.0;
        let (mut spread, mut together) = (0.0, 0.0);
        for (index, value) in means.iter().enumerate() {
            let x = index as f64 - middle;
            spread += x * x;
            together += x * (value - mean);
        }
        let slope = together / spread;
        let residual = |(index, value): (usize, &f64)| value - mean - slope * (index as f64 - middle);
        let squares: f64 = means.iter().enumerate().map(residual).map(|rest| rest * rest).sum();
        let error = (squares / (count - 2.0) / spread).sqrt();
        // A line without noise has an infinite t; JSON and comparisons need a finite one.
        let t = if error > f64::EPSILON * mean.abs() { slope / error } else { slope.signum() * 1e6 };
        Some(Trend { mean, rise: slope * (count - 1.0), t: if slope == 0.0 { 0.0 } else { t } })
    }

    /// Whether the rise is greater than `bound` and than chance, or so much greater than `bound` that a
    /// sequence in which it may be chance is too short to be called level.
    pub(super) fn exceeds(&self, bound: f64) -> bool {
        let rise = self.rise.abs();
        rise > bound && self.t.abs() > TREND_T || rise > MAX_BOUNDS * bound
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::payload::random_numbers;

    const SEED: u64 = 5;

    /// `count` values around 100, up to 10 away.
    fn noise(count: usize, stream: u64) -> Vec<f64> {
        let mut random = random_numbers(SEED, stream);
        (0..count).map(|_| 90.0 + 20.0 * random.random::<f64>()).collect()
    }

    #[test]
    fn a_level_sequence_has_no_transient_and_no_trend() {
        for stream in 0..20 {
            let values = noise(200, stream);
            // Truncating some of a level sequence is chance: what is truncated is as high as the rest.
            let from = mser5(&values).unwrap();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
            let (before, after) = (mean(&values[..from]), mean(&values[from..]));
            assert!(
                from < 10 || (before - after).abs() < 5.0,
                "seed {SEED} stream {stream}: {from} {before} {after}"
            );
            let trend = Trend::of(&values).unwrap();
            assert!(!trend.exceeds(10.0), "seed {SEED} stream {stream}: {trend:?}");
            assert!((trend.mean - 100.0).abs() < 2.0, "{trend:?}");
        }
    }

    #[test]
    fn a_rising_sequence_is_never_level() {
        let rising: Vec<f64> = noise(200, 1).iter().zip(0..).map(|(value, x)| value + f64::from(x)).collect();
        assert!(mser5(&rising).unwrap() > 150, "{:?}", mser5(&rising));
        let trend = Trend::of(&rising).unwrap();
        assert!(trend.exceeds(10.0) && (170.0..190.0).contains(&trend.rise), "{trend:?}");
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!(Trend::of(&falling).unwrap().exceeds(10.0));
    }

    #[test]
    fn a_transient_ends_where_the_level_part_begins() {
        let mut values: Vec<f64> = (0..60).map(f64::from).map(|x| 100.0 * x / 60.0).collect();
        values.extend(noise(140, 2));
        let from = mser5(&values).unwrap();
        assert!((45..=65).contains(&from), "level from {from}");
        assert!(!Trend::of(&values[60..]).unwrap().exceeds(10.0));
        assert!(Trend::of(&values).unwrap().rise > 50.0);
    }

    /// A few long messages at the end of a short run.
    #[test]
    fn a_great_rise_that_may_be_chance_is_not_level() {
        let values: Vec<f64> = (0..100).map(|x| if x < 90 { 1.0 } else { 20.0 }).collect();
        let trend = Trend::of(&values).unwrap();
        assert!(trend.t.abs() < TREND_T && trend.exceeds(0.1 * trend.mean), "{trend:?}");
    }

    #[test]
    fn too_few_values_tell_nothing() {
        assert_eq!(mser5(&noise(49, 3)), None);
        assert_eq!(Trend::of(&noise(9, 3)), None);
    }

    #[test]
    fn a_constant_and_a_line_without_noise_are_told_apart() {
        let constant = Trend::of(&[7.0; 40]).unwrap();
        assert_eq!((constant.mean, constant.rise, constant.t), (7.0, 0.0, 0.0));
        let line: Vec<f64> = (0..40).map(f64::from).collect();
        assert!(Trend::of(&line).unwrap().exceeds(10.0));
        assert_eq!(mser5(&[7.0; 60]), Some(0));
    }
}
