//! Network faults, determined by a seed.

use homa_proto::US;
use rand::Rng;
use rand_pcg::Pcg64;

use crate::payload::random_numbers;

/// Probabilities and parameters of faults. The default is a network without faults.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultProfile {
    /// Probability that a packet is lost, 0 to 1.
    pub loss: f64,
    /// Probability that a packet arrives twice.
    pub duplication: f64,
    /// Probability that a packet, or each copy of it, is delayed, so that later packets overtake it.
    pub reordering: f64,
    /// Minimum and maximum extra delay of a reordered packet in nanoseconds, inclusive.
    pub reordering_delay_ns: (u64, u64),
    /// Probability that bits of a packet change without a checksum error.
    pub corruption: f64,
}

impl Default for FaultProfile {
    fn default() -> FaultProfile {
        FaultProfile {
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            // From about one packet time to many round trips, and always below the first RESEND interval.
            reordering_delay_ns: (US, 1_000 * US),
            corruption: 0.0,
        }
    }
}

impl FaultProfile {
    /// Returns a profile with loss, duplication and reordering, each with this probability.
    pub fn uniform(probability: f64) -> FaultProfile {
        FaultProfile {
            loss: probability,
            duplication: probability,
            reordering: probability,
            ..FaultProfile::default()
        }
    }
}

/// Maximum packet size on a path between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimit {
    /// Maximum length of a Homa packet in bytes, including its header.
    pub bytes: u32,
    /// Whether the path MTU is visible to the sender's host. If not, longer packets vanish without a report.
    pub told: bool,
}

/// Counts of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets lost.
    pub lost: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets delayed.
    pub delayed: u64,
    /// Packets with changed bits.
    pub corrupted: u64,
    /// Packets lost because the path between the two hosts is blocked.
    pub blocked: u64,
    /// Packets lost because they were too long for the path.
    pub too_long: u64,
}

/// The fate of one packet: the extra delay of each copy that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) first_delay_ns: Option<u64>,
    pub(crate) second_delay_ns: Option<u64>,
    pub(crate) corrupted: bool,
}

#[derive(Debug)]
pub(crate) struct Faults {
    profile: FaultProfile,
    rng: Pcg64,
    pub(crate) counts: FaultCounts,
    active: bool,
}

/// Random stream of the faults. It is separate, so that the faults do not change if the load draws one number
/// more.
const STREAM: u64 = 0xfa;

impl Faults {
    pub(crate) fn new(profile: FaultProfile, seed: u64) -> Faults {
        let active = profile.loss + profile.duplication + profile.reordering + profile.corruption > 0.0;
        Faults { profile, rng: random_numbers(seed, STREAM), counts: FaultCounts::default(), active }
    }

    pub(crate) fn set_profile(&mut self, profile: FaultProfile) {
        self.active = profile.loss + profile.duplication + profile.reordering + profile.corruption > 0.0;
        self.profile = profile;
    }

    fn draw(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random::<f64>() < probability
    }

    fn delay_ns(&mut self) -> u64 {
        if !self.draw(self.profile.reordering) {
            return 0;
        }
        self.counts.delayed += 1;
        let (least, greatest) = self.profile.reordering_delay_ns;
        self.rng.random_range(least..=greatest.max(least))
    }

    /// Decides the fate of one packet.
    pub(crate) fn judge(&mut self) -> Verdict {
        if !self.active {
            return Verdict { first_delay_ns: Some(0), second_delay_ns: None, corrupted: false };
        }
        let mut verdict = Verdict { first_delay_ns: None, second_delay_ns: None, corrupted: false };
        if self.draw(self.profile.loss) {
            self.counts.lost += 1;
            return verdict;
        }
        verdict.first_delay_ns = Some(self.delay_ns());
        if self.draw(self.profile.duplication) {
            self.counts.duplicated += 1;
            verdict.second_delay_ns = Some(self.delay_ns());
        }
        verdict.corrupted = self.draw(self.profile.corruption);
        self.counts.corrupted += u64::from(verdict.corrupted);
        verdict
    }

    /// Changes one to four bits.
    pub(crate) fn corrupt(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        for _ in 0..self.rng.random_range(1..=4) {
            let at = self.rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << self.rng.random_range(0..8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_comes_about_as_often_as_asked_and_by_the_seed() {
        let profile = FaultProfile { corruption: 0.05, ..FaultProfile::uniform(0.05) };
        let mut faults = Faults::new(profile.clone(), 3);
        let mut again = Faults::new(profile, 3);
        for _ in 0..100_000 {
            assert_eq!(faults.judge(), again.judge());
        }
        let counts = faults.counts;
        for count in [counts.lost, counts.duplicated, counts.delayed, counts.corrupted] {
            assert!((4_500..5_600).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_faultless_network_passes_everything_on() {
        let mut faults = Faults::new(FaultProfile::default(), 3);
        let verdict = faults.judge();
        assert_eq!(
            (verdict.first_delay_ns, verdict.second_delay_ns, verdict.corrupted),
            (Some(0), None, false)
        );
    }
}
