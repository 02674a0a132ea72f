//! The host-wide resources of a host with several endpoints in one process. They are the same resources that
//! several processes share in a segment, but in the process's own memory. An endpoint cannot die alone here,
//! so there are no file locks and no slots to claim.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

use super::cutoffs::{self, Set};
use super::layout::Pool;
use super::lease_share::{LeaseShare, LeaseWatch};

/// The host-wide resources of one process: see the [module](self).
pub(crate) struct GroupPool {
    pool: Box<Pool>,
    endpoints: usize,
    budget: u64,
    /// The endpoint that computes the cutoffs.
    leader: AtomicU32,
    /// Held by a thread that changes the leader or publishes as the leader.
    changes: Mutex<()>,
}

impl GroupPool {
    /// Creates the pool for `endpoints` endpoints, of which the first leads. `budget` is the number of bytes
    /// that all endpoints together may have granted but not received.
    pub(crate) fn new(endpoints: usize, cutoffs: Set, budget: u64) -> GroupPool {
        let pool = Box::new(Pool::new());
        cutoffs::publish(&pool, cutoffs);
        let (leader, changes) = (AtomicU32::new(0), Mutex::new(()));
        GroupPool { pool, endpoints, budget: budget.max(1), leader, changes }
    }

    /// Returns the share of one endpoint.
    pub(crate) fn lease_share(&self, endpoint: usize) -> LeaseShare<'_> {
        let slots = &self.pool.slots[..self.endpoints];
        LeaseShare { pool: &self.pool, slots, mine: endpoint, budget: self.budget }
    }

    pub(crate) fn is_leader(&self, endpoint: usize) -> bool {
        self.leader.load(Acquire) as usize == endpoint
    }

    /// Publishes the leader's new cutoffs; returns whether it did so.
    pub(crate) fn publish_cutoffs(&self, endpoint: usize, set: Set) -> bool {
        let Ok(_changes) = self.changes.try_lock() else { return false };
        let leads = self.is_leader(endpoint);
        if leads {
            cutoffs::publish(&self.pool, set);
        }
        leads
    }

    /// Must be called every few tens of milliseconds while the endpoint is driven. Shows that the endpoint is
    /// alive, and makes this endpoint the leader if the leader does not show that it is alive. An endpoint
    /// without packets is not driven, and its traffic would not be representative of the host's.
    pub(crate) fn tick(&self, endpoint: usize, now_ns: u64, watch: &mut LeaseWatch) {
        self.pool.slots[endpoint].beat.fetch_add(1, Relaxed);
        let leader = self.leader.load(Acquire) as usize;
        if leader != endpoint && watch.stalled_leader(&self.pool, Some(leader), now_ns).is_some() {
            let _changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = self.leader.compare_exchange(leader as u32, endpoint as u32, Release, Relaxed);
        }
    }

    /// Releases the endpoint's resources when it ends.
    pub(crate) fn leave(&self, endpoint: usize) {
        let slot = &self.pool.slots[endpoint];
        slot.wants.store(0, Relaxed);
        slot.waiting.store(0, Relaxed);
        slot.lease.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::wire::PRIORITIES;

    use super::*;

    #[test]
    fn the_lead_goes_from_one_that_stands_still_to_one_that_does_not() {
        let pool = GroupPool::new(3, Set::initial([0; PRIORITIES], 1), 1_000);
        let (mut one, mut two) = (LeaseWatch::default(), LeaseWatch::default());
        let second = 1_000_000_000;
        pool.tick(1, 0, &mut one);
        pool.tick(0, second / 2, &mut LeaseWatch::default());
        pool.tick(1, second / 2, &mut one);
        assert!(pool.is_leader(0), "it has moved");
        pool.tick(1, second, &mut one);
        assert!(pool.is_leader(1));
        let set = |version| Set { levels: [7; PRIORITIES], version, unsched_limit: Some(9) };
        assert!(!pool.publish_cutoffs(0, set(2)), "it leads no more");
        assert!(pool.publish_cutoffs(1, set(3)));
        assert_eq!(pool.lease_share(2).cutoffs().map(|(_, set)| set), Some(set(3)));
        pool.tick(2, second, &mut two);
        pool.tick(1, second + 1, &mut one);
        pool.tick(2, 2 * second, &mut two);
        assert!(pool.is_leader(1));
    }

    #[test]
    fn all_endpoints_together_lease_no_more_than_there_is_and_give_it_back() {
        let pool = GroupPool::new(2, Set::initial([0; PRIORITIES], 1), 1_600);
        assert_eq!(pool.lease_share(0).lease_grants(1_600, 1_600), 1_600);
        assert_eq!(pool.lease_share(1).lease_grants(800, 0), 0);
        assert_eq!(pool.lease_share(1).leased_bytes(), 1_600);
        pool.leave(0);
        assert_eq!(pool.lease_share(1).lease_grants(800, 0), 800);
    }
}
