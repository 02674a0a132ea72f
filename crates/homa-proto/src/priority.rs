//! Priorities of packets: cutoffs for unscheduled bytes, ranks for scheduled ones.

use crate::config::Config;
use crate::srpt::{bucket_of, bucket_start};
use crate::time::Time;
use crate::wire::{MAX_MESSAGE_LENGTH, PRIORITIES};

/// Priority of unscheduled packets to a peer whose CUTOFFS have not arrived (PRIO-3).
const BEFORE_CUTOFFS: u8 = 6;

/// Logarithm of the number of sub-buckets per power of two in the histogram of observed lengths: a cutoff is
/// within 1/16 of its ideal value.
const SUB: u32 = 4;
/// Number of buckets of message lengths in which unscheduled bytes are counted to compute cutoffs.
pub const CUTOFF_BUCKETS: usize = bucket_of(MAX_MESSAGE_LENGTH, SUB) as usize + 1;
use CUTOFF_BUCKETS as BUCKETS;

/// Number of recent versions of our cutoffs, including the current one, that prove a peer (SHARE-3). A peer
/// that rarely calls has not received the latest versions. A guess succeeds with a probability of one in
/// 16,000.
const PROVING_VERSIONS: u16 = 4;

/// Returns the priority of a message's unscheduled packets under the peer's `cutoffs`. Version 0: the peer
/// has sent no cutoffs.
pub(crate) fn unscheduled(cutoffs: &[u32; PRIORITIES], version: u16, length: u32, num_priorities: u8) -> u8 {
    if version == 0 {
        return BEFORE_CUTOFFS.min(num_priorities - 1);
    }
    // PRIO-4: priority 0 takes messages that no other level admits, regardless of its own cutoff.
    (1..num_priorities).rev().find(|&level| cutoffs[usize::from(level)] >= length).unwrap_or(0)
}

/// Returns the priority for grants to the message with rank `rank` (0: fewest remaining bytes) among `active`
/// messages (PRIO-6).
pub(crate) fn scheduled(rank: usize, active: usize, max_sched_prio: u8) -> u8 {
    let levels = usize::from(max_sched_prio) + 1; // PRIO-7
    let highest = active.min(levels) - 1;
    highest.saturating_sub(rank) as u8
}

/// Our own cutoffs, and the traffic from which the next ones are computed.
#[derive(Debug)]
pub(crate) struct Cutoffs {
    levels: [u32; PRIORITIES],
    version: u16,
    /// Number of consecutive versions, up to and including the current one, that our packets have carried; at
    /// most [`PROVING_VERSIONS`].
    proving: u16,
    /// Unscheduled bytes by length of their message; halved at each computation, so that old traffic loses
    /// weight.
    histogram: Box<[u64]>,
    observed: u64,
    next_at: Time,
    /// Whether another endpoint of this host computes the cutoffs.
    pub followed: bool,
}

impl Cutoffs {
    pub(crate) fn new(config: &Config) -> Cutoffs {
        Cutoffs {
            levels: config.unsched_cutoffs,
            version: config.first_cutoff_version.max(1),
            proving: 1,
            histogram: vec![0; BUCKETS].into_boxed_slice(),
            observed: 0,
            next_at: Time::ZERO,
            followed: false,
        }
    }

    pub(crate) fn levels(&self) -> &[u32; PRIORITIES] {
        &self.levels
    }

    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    /// Adopts cutoffs that another endpoint computed.
    pub(crate) fn set(&mut self, levels: [u32; PRIORITIES], version: u16) {
        let version = version.max(1);
        let changes = changes(self.version, version);
        // If the version does not follow the last one, it is the version of a host that this endpoint has
        // just joined.
        self.proving =
            if changes < PROVING_VERSIONS { self.proving + changes } else { 1 }.min(PROVING_VERSIONS);
        (self.levels, self.version) = (levels, version);
    }

    /// Returns whether a peer that knows this version must have received a recent packet of ours (SHARE-3).
    pub(crate) fn proves(&self, version: u16) -> bool {
        version != 0 && changes(version, self.version) < self.proving
    }

    /// Passes the observed bytes to `take`, and resets them.
    pub(crate) fn take_observed(&mut self, mut take: impl FnMut(usize, u64)) {
        if std::mem::take(&mut self.observed) == 0 {
            return;
        }
        for (bucket, bytes) in self.histogram.iter_mut().enumerate().filter(|(_, bytes)| **bytes > 0) {
            take(bucket, std::mem::take(bytes));
        }
    }

    /// Counts bytes that other endpoints observed.
    pub(crate) fn add_observed(&mut self, bucket: usize, bytes: u64) {
        let count = &mut self.histogram[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(bytes);
        self.observed = self.observed.saturating_add(bytes);
    }

    /// Assigns a new version, so that CUTOFFS are sent to every peer again. PRIO-9: 0 means "none yet" and is
    /// skipped.
    pub(crate) fn renew_version(&mut self) {
        self.version = self.version.checked_add(1).unwrap_or(1);
        self.proving = (self.proving + 1).min(PROVING_VERSIONS);
    }

    /// Records that a message of `length` bytes began to arrive, with `unscheduled` unscheduled bytes.
    pub(crate) fn observe(&mut self, length: u32, unscheduled: u32) {
        self.histogram[bucket_of(length.min(MAX_MESSAGE_LENGTH), SUB) as usize] += u64::from(unscheduled);
        self.observed += u64::from(unscheduled);
    }

    /// Computes new cutoffs when due (PRIO-10). Returns whether they changed.
    pub(crate) fn update(&mut self, now: Time, config: &Config) -> bool {
        if self.followed
            || config.cutoff_interval_ns == 0
            || now < self.next_at
            || self.observed < config.cutoff_min_bytes
        {
            return false;
        }
        self.next_at = now + config.cutoff_interval_ns;
        let levels = balanced(&self.histogram, config.max_sched_prio, config.num_priorities);
        for bytes in &mut self.histogram {
            *bytes /= 2;
        }
        self.observed = self.histogram.iter().sum();
        if !differ(&self.levels, &levels) {
            return false;
        }
        self.levels = levels;
        self.renew_version();
        true
    }
}

/// Returns the number of changes from version `from` to version `to`. Versions skip 0, and neither may be 0.
fn changes(from: u16, to: u16) -> u16 {
    if to >= from { to - from } else { to.wrapping_sub(from) - 1 }
}

/// Computes cutoffs for the levels above `max_sched_prio` (or only the highest level), such that all of them
/// carry about the same number of unscheduled bytes.
fn balanced(histogram: &[u64], max_sched_prio: u8, num_priorities: u8) -> [u32; PRIORITIES] {
    let lowest = (max_sched_prio + 1).min(num_priorities - 1);
    let count = u64::from(num_priorities - lowest);
    let total: u64 = histogram.iter().sum();
    let mut levels = [0; PRIORITIES];
    // PRIO-11: the lowest unscheduled level takes messages of any length.
    levels[usize::from(lowest)] = MAX_MESSAGE_LENGTH;
    let mut below = 0;
    let mut level = num_priorities - 1;
    for (bucket, bytes) in histogram.iter().enumerate() {
        below += bytes;
        while level > lowest && below * count >= total * u64::from(num_priorities - level) {
            levels[usize::from(level)] = bucket_end(bucket);
            level -= 1;
        }
    }
    levels
}

/// Returns the largest length in a bucket.
fn bucket_end(bucket: usize) -> u32 {
    (bucket_start(bucket as u32 + 1, SUB) - 1).min(MAX_MESSAGE_LENGTH)
}

/// Returns whether the cutoffs differ enough for a new version: a level must change by more than an eighth.
/// Each version is sent to every peer, so small variations must not cause one.
fn differ(old: &[u32; PRIORITIES], new: &[u32; PRIORITIES]) -> bool {
    old.iter().zip(new).any(|(&old, &new)| old.abs_diff(new) > old / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    // SHARE-3: after a change of cutoffs, an earlier version still proves a peer.
    #[test]
    fn the_last_four_versions_prove_a_peer_and_none_from_before_the_first() {
        let config = Config { first_cutoff_version: 65_534, ..Config::default() };
        let mut cutoffs = Cutoffs::new(&config);
        let proving =
            |cutoffs: &Cutoffs| (0..=u16::MAX).filter(|&version| cutoffs.proves(version)).collect::<Vec<_>>();
        assert_eq!(proving(&cutoffs), [65_534]);
        (0..2).for_each(|_| cutoffs.renew_version());
        assert_eq!(proving(&cutoffs), [1, 65_534, 65_535]);
        cutoffs.set([0; PRIORITIES], 4);
        assert_eq!(proving(&cutoffs), [1, 2, 3, 4]);
        cutoffs.set([0; PRIORITIES], 400);
        assert_eq!(proving(&cutoffs), [400], "the first one of a host that is joined");
    }

    #[test]
    fn a_message_takes_the_highest_level_that_admits_it() {
        let cutoffs = Config::default().unsched_cutoffs;
        let of = |length| unscheduled(&cutoffs, 1, length, 8);
        assert_eq!([of(1), of(200), of(201), of(2_800), of(2_801)], [7, 7, 6, 6, 5]);
        assert_eq!([of(15_000), of(15_001), of(1_000_000), of(1_000_001)], [5, 4, 4, 0]);
        assert_eq!(unscheduled(&cutoffs, 0, 1, 8), 6, "PRIO-3");
        assert_eq!(unscheduled(&cutoffs, 0, 1, 2), 1, "PRIO-3 with fewer levels");
    }

    #[test]
    fn ranks_use_the_lowest_levels_that_are_enough() {
        assert_eq!(scheduled(0, 1, 3), 0);
        assert_eq!([scheduled(0, 3, 3), scheduled(1, 3, 3), scheduled(2, 3, 3)], [2, 1, 0]);
        assert_eq!([scheduled(0, 8, 3), scheduled(3, 8, 3), scheduled(7, 8, 3)], [3, 0, 0]);
    }

    #[test]
    fn bucket_ends_are_the_last_lengths_of_their_buckets() {
        for bucket in 0..BUCKETS - 1 {
            let end = bucket_end(bucket);
            assert_eq!(bucket_of(end, SUB) as usize, bucket);
            assert_eq!(bucket_of(end + 1, SUB) as usize, bucket + 1);
        }
    }

    #[test]
    fn levels_carry_equal_bytes() {
        let config = Config { cutoff_min_bytes: 1, ..Config::default() };
        let mut cutoffs = Cutoffs::new(&config);
        for length in [100, 1_000, 10_000, 40_000] {
            for _ in 0..4_000_000 / length {
                cutoffs.observe(length, length);
            }
        }
        assert!(cutoffs.update(Time::from_ns(1), &config));
        assert_eq!(cutoffs.version(), 2);
        let prio = |length| unscheduled(cutoffs.levels(), 2, length, 8);
        assert_eq!([prio(100), prio(1_000), prio(10_000), prio(40_000), prio(9_000_000)], [7, 6, 5, 4, 4]);
        assert!(!cutoffs.update(Time::from_ns(2), &config), "not before the interval has passed");
    }

    #[test]
    fn the_same_traffic_does_not_change_the_version_again() {
        let config = Config { cutoff_min_bytes: 1, ..Config::default() };
        let mut cutoffs = Cutoffs::new(&config);
        for round in 0..10 {
            for length in 1..2_000 {
                cutoffs.observe(length, length);
            }
            cutoffs.update(Time::from_ns(round * config.cutoff_interval_ns), &config);
        }
        assert_eq!(cutoffs.version(), 2);
    }
}
