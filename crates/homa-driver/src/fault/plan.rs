//! Random decisions about the faults of each packet, derived from a seed.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Fault rates in one direction. Each rate is a probability per packet, from 0 to 1 inclusive; rates are
/// independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// The packet is lost.
    pub loss: f64,
    /// A second copy follows.
    pub duplication: f64,
    /// The packet is held until later packets have passed it: at most [`REORDER_DISTANCE_MAX`] packets, and
    /// for at most [`REORDER_HOLD_NS`].
    pub reordering: f64,
    /// One bit is flipped.
    pub corruption: f64,
    /// The packet is held for a random time from `delay_min_ns` to `delay_max_ns`.
    pub delay: f64,
    /// Shortest delay in nanoseconds, inclusive.
    pub delay_min_ns: u64,
    /// Longest delay in nanoseconds, inclusive.
    pub delay_max_ns: u64,
}

/// Maximum number of packets that pass a packet held for reordering.
///
/// This exceeds TCP's rule of thumb of three packets, so a receiver that assumes a loss after three packets
/// is sometimes wrong. It is less than the length of a burst, so reordering also occurs within a burst.
pub const REORDER_DISTANCE_MAX: u32 = 8;

/// Maximum time in nanoseconds that a packet is held for reordering if no other packets arrive: a
/// millisecond, which no protocol should mistake for a loss.
pub const REORDER_HOLD_NS: u64 = 1_000_000;

/// Why fault rates are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// A rate is not a valid probability.
    #[error("the {what} rate is {rate}: give a chance from 0 to 1")]
    Rate {
        /// Name of the rate.
        what: &'static str,
        /// Value of the rate.
        rate: f64,
    },
    /// The range of delays is empty.
    #[error("delays from {min_ns} ns to {max_ns} ns: the shortest is longer than the longest")]
    Delay {
        /// Shortest delay.
        min_ns: u64,
        /// Longest delay.
        max_ns: u64,
    },
}

impl FaultRates {
    /// Whether all rates are zero.
    #[must_use]
    pub fn are_zero(&self) -> bool {
        [self.loss, self.duplication, self.reordering, self.corruption, self.delay]
            .iter()
            .all(|&rate| rate == 0.0)
    }

    fn check(&self) -> Result<(), FaultError> {
        let named = [
            ("loss", self.loss),
            ("duplication", self.duplication),
            ("reordering", self.reordering),
            ("corruption", self.corruption),
            ("delay", self.delay),
        ];
        if let Some((what, rate)) = named.into_iter().find(|(_, rate)| !(0.0..=1.0).contains(rate)) {
            return Err(FaultError::Rate { what, rate });
        }
        if self.delay_min_ns > self.delay_max_ns {
            return Err(FaultError::Delay { min_ns: self.delay_min_ns, max_ns: self.delay_max_ns });
        }
        Ok(())
    }
}

/// The faults of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAction {
    /// Number of copies that arrive: 0 (the packet is lost), 1 or 2.
    pub copies: u8,
    /// Index of the bit to flip, counted from the lowest bit of the first byte; less than eight times the
    /// packet's length.
    pub flip_bit: Option<u32>,
    /// Time to hold the packet, in nanoseconds.
    pub delay_ns: u64,
    /// Number of later packets that pass this packet; 0 if it keeps its place.
    pub passed_by: u32,
}

impl FaultAction {
    /// No fault.
    pub const NONE: FaultAction = FaultAction { copies: 1, flip_bit: None, delay_ns: 0, passed_by: 0 };
}

/// Decides the faults of each packet. The same seed and rates give the same decisions. Each decision takes
/// the same number of draws, so a fault of one packet does not affect the decision for the next.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    rates: FaultRates,
    random: Pcg64Mcg,
}

impl FaultPlan {
    /// Creates a plan with these rates.
    ///
    /// # Errors
    /// The rates are invalid; see [`FaultError`].
    pub fn new(seed: u64, rates: FaultRates) -> Result<FaultPlan, FaultError> {
        rates.check()?;
        Ok(FaultPlan { rates, random: Pcg64Mcg::seed_from_u64(seed) })
    }

    /// Decides the faults of the next packet, which has this length in bytes. An empty packet has no bit to
    /// flip.
    pub fn decide(&mut self, length: usize) -> FaultAction {
        let random = &mut self.random;
        let mut chance = |rate: f64| random.random::<f64>() < rate;
        let rates = self.rates;
        let lost = chance(rates.loss);
        let twice = chance(rates.duplication);
        let reordered = chance(rates.reordering);
        let corrupt = chance(rates.corruption);
        let delayed = chance(rates.delay);
        let bits = u32::try_from(length.saturating_mul(8)).unwrap_or(u32::MAX);
        let bit = below(random.random(), u64::from(bits)) as u32;
        let delay_ns = rates.delay_min_ns
            + below(random.random(), (rates.delay_max_ns - rates.delay_min_ns).saturating_add(1));
        let passed_by = 1 + below(random.random(), u64::from(REORDER_DISTANCE_MAX)) as u32;
        if lost {
            return FaultAction { copies: 0, ..FaultAction::NONE };
        }
        FaultAction {
            copies: if twice { 2 } else { 1 },
            flip_bit: (corrupt && bits > 0).then_some(bit),
            delay_ns: if delayed { delay_ns } else { 0 },
            passed_by: if reordered { passed_by } else { 0 },
        }
    }
}

/// Maps a draw of 64 random bits to a number below `end`, or to 0 if `end` is 0. Uses exactly one draw; the
/// bias is below `end` in 2^64.
fn below(draw: u64, end: u64) -> u64 {
    ((u128::from(draw) * u128::from(end)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 100_000;

    fn actions(seed: u64, rates: FaultRates) -> Vec<FaultAction> {
        let mut plan = FaultPlan::new(seed, rates).unwrap();
        (0..PACKETS).map(|_| plan.decide(100)).collect()
    }

    /// Asserts that a fault occurred about as often as its rate implies: within five standard deviations,
    /// which a correct plan exceeds for one seed in two million. The seeds of the tests are fixed.
    fn assert_rate(seed: u64, actions: &[FaultAction], rate: f64, struck: impl Fn(&FaultAction) -> bool) {
        let count = actions.iter().filter(|action| struck(action)).count() as f64;
        let (mean, deviation) =
            (actions.len() as f64 * rate, (actions.len() as f64 * rate * (1.0 - rate)).sqrt());
        assert!((count - mean).abs() <= 5.0 * deviation, "seed {seed}: {count} times, not about {mean}");
    }

    #[test]
    fn each_fault_strikes_at_its_rate() {
        for seed in 0..10 {
            let rates = FaultRates {
                loss: 0.0,
                duplication: 0.02,
                reordering: 0.3,
                corruption: 0.001,
                delay: 0.5,
                delay_min_ns: 1,
                delay_max_ns: 9,
            };
            let all = actions(seed, rates);
            assert_rate(seed, &all, 0.02, |action| action.copies == 2);
            assert_rate(seed, &all, 0.3, |action| action.passed_by > 0);
            assert_rate(seed, &all, 0.001, |action| action.flip_bit.is_some());
            assert_rate(seed, &all, 0.5, |action| action.delay_ns > 0);
            let lossy = actions(seed, FaultRates { loss: 0.05, ..rates });
            assert_rate(seed, &lossy, 0.05, |action| action.copies == 0);
            assert_rate(seed, &lossy, 0.95 * 0.02, |action| action.copies == 2);
        }
    }

    #[test]
    fn faults_stay_within_their_bounds_and_reach_them() {
        let rates = FaultRates {
            reordering: 1.0,
            corruption: 1.0,
            delay: 1.0,
            delay_min_ns: 5,
            delay_max_ns: 8,
            ..FaultRates::default()
        };
        let all = actions(1, rates);
        let range =
            |value: fn(&FaultAction) -> u64| (all.iter().map(value).min(), all.iter().map(value).max());
        assert_eq!(range(|action| action.delay_ns), (Some(5), Some(8)));
        assert_eq!(range(|action| action.passed_by.into()), (Some(1), Some(u64::from(REORDER_DISTANCE_MAX))));
        assert_eq!(range(|action| action.flip_bit.unwrap().into()), (Some(0), Some(799)));
    }

    #[test]
    fn the_same_seed_plans_the_same_and_another_does_not() {
        let rates = FaultRates { loss: 0.1, delay: 0.5, delay_max_ns: 1_000, ..FaultRates::default() };
        assert_eq!(actions(7, rates), actions(7, rates));
        assert_ne!(actions(7, rates), actions(8, rates));
    }

    #[test]
    fn one_rate_does_not_change_the_others_luck() {
        let with = actions(3, FaultRates { loss: 0.2, corruption: 0.5, ..FaultRates::default() });
        let without = actions(3, FaultRates { loss: 0.2, ..FaultRates::default() });
        let losses = |all: &[FaultAction]| all.iter().map(|action| action.copies).collect::<Vec<_>>();
        assert_eq!(losses(&with), losses(&without));
    }

    #[test]
    fn zero_rates_do_nothing_and_one_does_always() {
        assert!(actions(1, FaultRates::default()).iter().all(|&action| action == FaultAction::NONE));
        let all = actions(1, FaultRates { loss: 1.0, ..FaultRates::default() });
        assert!(all.iter().all(|action| action.copies == 0));
        let mut plan = FaultPlan::new(1, FaultRates { corruption: 1.0, ..FaultRates::default() }).unwrap();
        assert_eq!(plan.decide(0).flip_bit, None);
    }

    #[test]
    fn senseless_rates_are_named() {
        for rate in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error =
                FaultPlan::new(1, FaultRates { duplication: rate, ..FaultRates::default() }).unwrap_err();
            assert!(error.to_string().contains("duplication"), "{error}");
        }
        let rates = FaultRates { delay_min_ns: 2, delay_max_ns: 1, ..FaultRates::default() };
        assert_eq!(FaultPlan::new(1, rates).unwrap_err(), FaultError::Delay { min_ns: 2, max_ns: 1 });
        let whole = FaultRates { delay_max_ns: u64::MAX, delay: 1.0, ..FaultRates::default() };
        FaultPlan::new(1, whole).unwrap().decide(1);
    }
}
