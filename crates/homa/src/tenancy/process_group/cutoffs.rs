//! The host's cutoffs, which are the same for all its processes, and the traffic from which they are
//! computed.
//!
//! There are two banks. A writer, which holds the registry's lock, fills the bank that is not in use and then
//! publishes the bank with one store. If the writer dies before the store, nothing has changed. A reader that
//! was overtaken by a writer notices that the publication count has changed, and keeps its old set until it
//! reads again.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{BUCKETS, CutoffBank, Pool};
use super::priorities::PRIORITIES;
use super::turns::turn;
use crate::tenancy::sync::{AtomicU64, fence};

/// Cutoffs, their version, and the accompanying limit of unscheduled bytes (INCAST-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) levels: [u32; PRIORITIES],
    pub(crate) version: u16,
    pub(crate) unsched_limit: Option<u32>,
}

impl Set {
    /// Creates the set of a host that has not computed any cutoffs. Its first version is secret (SHARE-3).
    pub(crate) fn initial(levels: [u32; PRIORITIES], version: u16) -> Set {
        Set { levels, version: version.max(1), unsched_limit: None }
    }
}

/// Publishes `set` as the host's set. The caller holds the registry's lock.
pub(super) fn publish(pool: &Pool, set: Set) {
    write(&pool.cutoffs_published.0, &pool.cutoff_banks, set);
}

/// Returns the number of the last publication and its set, or `None` if a writer overtook the read.
pub(super) fn read(pool: &Pool) -> Option<(u64, Set)> {
    read_bank(&pool.cutoffs_published.0, &pool.cutoff_banks)
}

pub(super) fn write(published: &AtomicU64, banks: &[CutoffBank; 2], set: Set) {
    let next = published.load(Relaxed).wrapping_add(1);
    let bank = &banks[(next % 2) as usize];
    // A reader that sees any of the following stores also sees, after its own fence, that its set is no
    // longer the most recent.
    fence(Release);
    for (to, from) in bank.levels.iter().zip(set.levels) {
        turn(|| to.store(from, Relaxed));
    }
    turn(|| bank.version.store(u32::from(set.version), Relaxed));
    turn(|| bank.unsched_limit.store(set.unsched_limit.unwrap_or(0), Relaxed));
    turn(|| published.store(next, Release));
}

pub(super) fn read_bank(published: &AtomicU64, banks: &[CutoffBank; 2]) -> Option<(u64, Set)> {
    let number = turn(|| published.load(Acquire));
    let bank = &banks[(number % 2) as usize];
    let mut levels = [0; PRIORITIES];
    for (to, from) in levels.iter_mut().zip(&bank.levels) {
        *to = turn(|| from.load(Relaxed));
    }
    let version = turn(|| bank.version.load(Relaxed)) as u16;
    let unsched_limit = Some(turn(|| bank.unsched_limit.load(Relaxed))).filter(|limit| *limit > 0);
    fence(Acquire);
    let set = Set { levels, version, unsched_limit };
    (turn(|| published.load(Relaxed)) == number).then_some((number, set))
}

/// Adds the traffic that a process observed to the leader's counts.
pub(super) fn add_observed(pool: &Pool, bucket: usize, bytes: u64) {
    pool.observed[bucket.min(BUCKETS - 1)].fetch_add(bytes, Relaxed);
}

/// Takes the traffic that the processes have observed.
pub(super) fn take_observed(pool: &Pool, mut take: impl FnMut(usize, u64)) {
    for (bucket, bytes) in pool.observed.iter().enumerate() {
        if bytes.load(Relaxed) != 0 {
            take(bucket, bytes.swap(0, Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::tenancy::process_group::turns::schedule;

    fn banks() -> [CutoffBank; 2] {
        [CutoffBank::new(), CutoffBank::new()]
    }

    fn set(n: u32) -> Set {
        Set { levels: [n; 8], version: n as u16, unsched_limit: Some(n) }
    }

    #[test]
    fn a_set_is_read_whole_or_not_at_all() {
        let (mut whole, mut overtaken) = (0, 0);
        for seed in 0..300 {
            let shared = Arc::new((AtomicU64::new(0), banks()));
            write(&shared.0, &shared.1, set(1));
            let (written, read) = (Arc::clone(&shared), Arc::clone(&shared));
            let (sender, received) = mpsc::channel();
            let writer = Box::new(move || {
                for n in 2..5 {
                    write(&written.0, &written.1, set(n));
                }
            });
            let reader = Box::new(move || sender.send(read_bank(&read.0, &read.1)).unwrap());
            schedule::run(vec![writer, reader], schedule::random(seed));
            match received.recv().unwrap() {
                Some((number, read)) => {
                    assert_eq!(read, set(number as u32), "seed {seed}");
                    whole += 1;
                }
                None => overtaken += 1,
            }
        }
        assert!(whole > 0 && overtaken > 0, "both happen: {whole}, {overtaken}");
    }

    #[test]
    fn a_writer_that_dies_before_it_publishes_changes_nothing() {
        let (published, banks) = (AtomicU64::new(0), banks());
        write(&published, &banks, set(5));
        banks[0].levels[4].store(77, Relaxed); // The writer dies after this store.
        assert_eq!(read_bank(&published, &banks), Some((1, set(5))));
        write(&published, &banks, set(6));
        assert_eq!(read_bank(&published, &banks), Some((2, set(6))));
    }
}
