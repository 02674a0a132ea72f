//! Tests whether a sequence of intervals of equal length is level.
//! [`SteadyState`](super::steady::SteadyState) uses these tests.
//!
//! Successive values of a queue are correlated: a few long messages that happen to be outstanding at the same
//! time raise many intervals in a row. A test that treats values, or means of a few of them, as independent
//! then finds a change in many level sequences. Means of longer batches are less correlated (Law, *Simulation
//! Modeling and Analysis*, 5th edition, section 9.5.3). But if the longest messages last a tenth of the run,
//! too few batches of sufficient length fit. The residuals of a fit are therefore modelled as a first-order
//! autoregressive process, whose correlation widens the standard error and reduces the degrees of freedom.
//! Tests for trends in climatology do the same (Santer et al., *Journal of Geophysical Research* 105, 2000).
//! In effect this estimates the spectrum at frequency zero, which Heidelberger and Welch use to test for a
//! transient (*Operations Research* 31, 1983).

/// Number of values per batch in MSER-5.
const MSER_BATCH: usize = 5;
/// Minimum number of values in which a change can be detected.
pub(super) const MIN_VALUES: usize = 10;
/// Maximum number of batches in a fit. More batches would only follow the noise of single values.
const BATCHES: usize = 40;
/// Maximum correlation of successive batches. A higher estimate comes from a sequence of one or two swings,
/// or from a fit of the wrong shape, such as a line through a step.
const MAX_CORRELATION: f64 = 0.9;
/// Minimum degrees of freedom of a fit. With fewer, no change would ever be significant.
const MIN_FREEDOM: f64 = 6.0;
/// Reciprocal of the minimum fraction of batches on each side of a step.
const STEP_MARGIN: usize = 10;
/// Two-sided 1 % bound of the standard normal distribution.
const ONE_IN_100: f64 = 2.576;
/// Two-sided 1 % bound for the best step over all positions. In simulations of correlated sequences, 1 to 4
/// of 100 have a significant step, and 1 to 7 a significant change of either kind.
const ONE_IN_100_STEPS: f64 = 3.3;

/// Returns the number of values, at most `limit`, before the level part of a sequence, by MSER-5 (White,
/// *Simulation* 69, 1997). This is the truncation that minimises the standard error of the mean of the rest,
/// in batches of five values. A result in the second half means that the sequence is too short to have a
/// level part. `None`: there are fewer than ten batches.
pub(super) fn mser5(values: &[f64], limit: usize) -> Option<usize> {
    let batches: Vec<f64> =
        values.chunks_exact(MSER_BATCH).map(|batch| batch.iter().sum::<f64>() / MSER_BATCH as f64).collect();
    if batches.len() < 2 * MSER_BATCH {
        return None;
    }
    let mut best = (f64::INFINITY, 0);
    // Goes backwards from the last batch, so that the sums can be updated incrementally. The last few batches
    // are left out, as is usual: on their own they have almost no variance.
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    let centre = batches[batches.len() - 1];
    for (index, batch) in batches.iter().enumerate().rev() {
        let value = batch - centre;
        (sum, squares, count) = (sum + value, squares + value * value, count + 1.0);
        if count < MSER_BATCH as f64 || index * MSER_BATCH > limit {
            continue;
        }
        let error = (squares - sum * sum / count).max(0.0) / (count * count);
        if error <= best.0 {
            best = (error, index);
        }
    }
    Some(best.1 * MSER_BATCH)
}

/// A change fitted to a sequence, and its standard error, which takes the correlation of the values into
/// account.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// Rise of a line from the beginning of the sequence to its end, or height of a step.
    pub(super) size: f64,
    /// The change divided by its standard error. For a level sequence this has Student's t distribution.
    pub(super) t: f64,
    /// Value of t that a level sequence exceeds in 1 of 100 cases.
    pub(super) t_bound: f64,
}

impl Change {
    /// No change.
    pub(super) const NONE: Change = Change { size: 0.0, t: 0.0, t_bound: f64::MAX };

    /// Fits a straight line to a sequence. `None`: there are fewer than [`MIN_VALUES`] values.
    pub(super) fn line(values: &[f64]) -> Option<Change> {
        let means = batch_means(values)?;
        let places: Vec<f64> = (0..means.len()).map(|batch| batch as f64 / means.len() as f64).collect();
        Some(fit(&means, &places, ONE_IN_100))
    }

    /// Finds the step that fits a sequence best. `None`: there are fewer than [`MIN_VALUES`] values.
    pub(super) fn step(values: &[f64]) -> Option<Change> {
        let means = batch_means(values)?;
        let margin = means.len() / STEP_MARGIN;
        // Reduction of the sum of squares by a step.
        let gain = |at: &usize| {
            let (before, after) = means.split_at(*at);
            (mean(after) - mean(before)).powi(2) * (before.len() * after.len()) as f64
        };
        let at = (margin..=means.len() - margin).max_by(|one, other| gain(one).total_cmp(&gain(other)))?;
        let sides: Vec<f64> = (0..means.len()).map(|batch| if batch < at { 0.0 } else { 1.0 }).collect();
        Some(fit(&means, &sides, ONE_IN_100_STEPS))
    }

    /// Returns whether the change is significant: a level sequence would rarely have it.
    pub(super) fn is_significant(&self) -> bool {
        self.t.abs() > self.t_bound
    }
}

/// Returns the batch means to which a change is fitted. `None`: there are fewer than [`MIN_VALUES`] values.
fn batch_means(values: &[f64]) -> Option<Vec<f64>> {
    let batches = BATCHES.min(values.len());
    let bound = |batch: usize| batch * values.len() / batches;
    (values.len() >= MIN_VALUES)
        .then(|| (0..batches).map(|batch| mean(&values[bound(batch)..bound(batch + 1)])).collect())
}

/// Returns the mean of some values, or 0 if there are none.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Fits values to a regressor by least squares. The standard error assumes that the residuals are a
/// first-order autoregressive process with their measured correlation. `normal_bound` is the bound of t with
/// infinitely many degrees of freedom.
fn fit(values: &[f64], regressor: &[f64], normal_bound: f64) -> Change {
    let count = values.len() as f64;
    let (middle, centre) = (mean(values), mean(regressor));
    let x: Vec<f64> = regressor.iter().map(|value| value - centre).collect();
    let spread = lagged_product(&x, 0);
    let size = x.iter().zip(values).map(|(x, value)| x * (value - middle)).sum::<f64>() / spread;
    let rest: Vec<f64> = x.iter().zip(values).map(|(x, value)| value - middle - size * x).collect();
    let squares = lagged_product(&rest, 0);
    let correlation = correlation(&rest);
    // Sums of the correlations of all pairs of values, plain and weighted by the regressor.
    let (mut power, mut pairs, mut weighted) = (1.0, count, spread);
    for lag in 1..values.len() {
        power *= correlation;
        pairs += 2.0 * power * (count - lag as f64);
        weighted += 2.0 * power * lagged_product(&x, lag);
    }
    // Number of residuals, less the parts of their variance that the fitted mean and change absorb.
    let left = count - pairs / count - weighted / spread;
    let error = (squares / left * weighted).sqrt() / spread;
    // A fit without noise has an infinite t; JSON and comparisons need a finite one.
    let t = if error > f64::EPSILON * middle.abs() { size / error } else { size.signum() * 1e6 };
    // Effective sample size: the number of independent values whose mean has the same error.
    let independent = count * count / pairs;
    Change {
        size,
        t: if size == 0.0 { 0.0 } else { t },
        t_bound: t_bound(normal_bound, (independent - 2.0).max(MIN_FREEDOM)),
    }
}

/// Returns the sum of the products of values that are `lag` apart.
fn lagged_product(values: &[f64], lag: usize) -> f64 {
    values.iter().zip(&values[lag..]).map(|(one, other)| one * other).sum()
}

/// Returns the correlation of successive residuals, from 0 to [`MAX_CORRELATION`], corrected for the bias of
/// a fit of two parameters. Residuals are less correlated than the values by about (2 + 4 r) / n (after
/// Marriott and Pope, *Biometrika* 41, 1954, who give the bias for a mean).
fn correlation(rest: &[f64]) -> f64 {
    let (count, squares) = (rest.len() as f64, lagged_product(rest, 0));
    let biased = if squares > 0.0 { lagged_product(rest, 1) / squares } else { 0.0 };
    ((biased + 2.0 / count) / (1.0 - 4.0 / count)).clamp(0.0, MAX_CORRELATION)
}

/// Returns the bound of Student's t with this many degrees of freedom that corresponds to a bound of the
/// normal distribution, by the first terms of the expansion in 1 / `freedom` (Abramowitz and Stegun, 26.7.5).
fn t_bound(normal: f64, freedom: f64) -> f64 {
    let square = normal * normal;
    let terms = [
        (square + 1.0) / 4.0,
        ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
        ((((79.0 * square + 776.0) * square + 1_482.0) * square - 1_920.0) * square - 945.0) / 92_160.0,
    ];
    normal * (1.0 + terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom))
}

/// Makes a sequence with mean 0 and variance 1 whose values `lag` apart have the correlation
/// `correlation`^lag.
#[cfg(test)]
pub(super) fn autoregressive(count: usize, correlation: f64, stream: u64) -> Vec<f64> {
    use rand::Rng;

    let mut random = crate::payload::random_numbers(7, stream);
    // The sum of twelve uniform numbers has variance 1, and is close enough to normal here.
    let mut normal = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let mut value = normal();
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(value);
        value = correlation * value + (1.0 - correlation * correlation).sqrt() * normal();
    }
    values
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::payload::random_numbers;

    const SEED: u64 = 5;

    /// Returns `count` independent values around 100, at most 10 away.
    fn noise(count: usize, stream: u64) -> Vec<f64> {
        let mut random = random_numbers(SEED, stream);
        (0..count).map(|_| 90.0 + 20.0 * random.random::<f64>()).collect()
    }

    /// Returns how many of 200 sequences have a significant line, and how many a significant step, after
    /// `added` was added to them.
    fn significant(count: usize, correlation: f64, added: impl Fn(f64) -> f64) -> (usize, usize) {
        let (mut lines, mut steps) = (0, 0);
        for stream in 0..200 {
            let mut values = autoregressive(count, correlation, stream);
            for (x, value) in values.iter_mut().enumerate() {
                *value += added(x as f64 / count as f64);
            }
            lines += usize::from(Change::line(&values).expect("enough values").is_significant());
            steps += usize::from(Change::step(&values).expect("enough values").is_significant());
        }
        (lines, steps)
    }

    #[test]
    fn correlation_alone_is_no_change() {
        for (count, correlation) in [(40, 0.0), (200, 0.0), (200, 0.9), (200, 0.97), (700, 0.97), (700, 0.99)]
        {
            let (lines, steps) = significant(count, correlation, |_| 0.0);
            assert!(lines <= 12 && steps <= 12, "{count} values, {correlation}: {lines}, {steps} of 200");
        }
    }

    /// Sizes are in standard deviations of the sequence. The fewer independent values it has, the larger the
    /// sizes.
    #[test]
    fn a_trend_or_a_step_shows_in_correlated_values() {
        for (count, correlation, size) in
            [(200, 0.0, 1.5), (200, 0.9, 10.0), (700, 0.97, 10.0), (700, 0.99, 12.0)]
        {
            let (rising, _) = significant(count, correlation, |x| size * x);
            let (falling, _) = significant(count, correlation, |x| -size * x);
            assert!(rising >= 185 && falling >= 185, "{count}, {correlation}: {rising}, {falling} of 200");
            for at in [0.5, 0.6, 0.85] {
                let (_, steps) = significant(count, correlation, |x| if x < at { 0.0 } else { size });
                assert!(steps >= 185, "{count}, {correlation}, at {at}: {steps} of 200");
            }
        }
    }

    #[test]
    fn a_level_sequence_has_no_transient_and_no_trend() {
        for stream in 0..20 {
            let values = noise(200, stream);
            // MSER-5 truncates parts of a level sequence by chance; the truncated part then has the same mean
            // as the rest.
            let from = mser5(&values, 200).unwrap();
            let (before, after) = (mean(&values[..from]), mean(&values[from..]));
            assert!(from < 10 || (before - after).abs() < 5.0, "stream {stream}: {from} {before} {after}");
            let line = Change::line(&values).unwrap();
            assert!(line.size.abs() < 10.0 || !line.is_significant(), "stream {stream}: {line:?}");
        }
    }

    #[test]
    fn a_rising_sequence_is_never_level() {
        let rising: Vec<f64> = noise(200, 1).iter().zip(0..).map(|(value, x)| value + f64::from(x)).collect();
        assert!(mser5(&rising, 200).unwrap() > 150, "{:?}", mser5(&rising, 200));
        let line = Change::line(&rising).unwrap();
        assert!(line.is_significant() && (185.0..215.0).contains(&line.size), "{line:?}");
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!(Change::line(&falling).unwrap().is_significant());
    }

    #[test]
    fn a_transient_ends_where_the_level_part_begins() {
        let mut values: Vec<f64> = (0..60).map(f64::from).map(|x| 100.0 * x / 60.0).collect();
        values.extend(noise(140, 2));
        let from = mser5(&values, 200).unwrap();
        assert!((45..=65).contains(&from), "level from {from}");
        assert_eq!(mser5(&values, 30), Some(30));
        assert!(!Change::line(&values[60..]).unwrap().is_significant());
        assert!(Change::line(&values).unwrap().size > 40.0);
    }

    #[test]
    fn a_step_has_its_height() {
        let level = noise(200, 3);
        let values: Vec<f64> =
            level.iter().zip(0..).map(|(value, x)| value + if x < 50 { 0.0 } else { 30.0 }).collect();
        let step = Change::step(&values).unwrap();
        assert!(step.is_significant() && (27.0..33.0).contains(&step.size), "{step:?}");
        assert!(!Change::step(&level).unwrap().is_significant());
    }

    #[test]
    fn too_few_values_tell_nothing() {
        assert_eq!(mser5(&noise(49, 3), 49), None);
        assert_eq!((Change::line(&noise(9, 3)), Change::step(&noise(9, 3))), (None, None));
        assert!(Change::line(&noise(10, 3)).is_some());
    }

    #[test]
    fn a_constant_and_a_line_without_noise_are_told_apart() {
        let constant = Change::line(&[7.0; 40]).unwrap();
        assert_eq!((constant.size, constant.t), (0.0, 0.0));
        let line: Vec<f64> = (0..40).map(f64::from).collect();
        let line = Change::line(&line).unwrap();
        assert!(line.is_significant() && (line.size - 40.0).abs() < 1e-9, "{line:?}");
        assert_eq!(Change::step(&[7.0; 40]).unwrap().t, 0.0);
        assert_eq!(mser5(&[7.0; 60], 60), Some(0));
    }

    #[test]
    fn bounds_of_t_are_those_of_the_tables() {
        for (freedom, bound) in [(3.0, 5.841), (4.0, 4.604), (8.0, 3.355), (20.0, 2.845), (1e9, 2.576)] {
            let ours = t_bound(ONE_IN_100, freedom);
            assert!((ours / bound - 1.0).abs() < 0.01, "{freedom}: {ours}");
        }
    }
}
