//! One endpoint's share of the host-wide resources.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::cutoffs::{self, Set};
use super::layout::{Pool, Slot};
use super::lease::Leases;
use super::uplink;

/// How long a leader may make no progress before another process takes over leadership: well below the time
/// after which a peer's RPC gives up.
pub(super) const LEADER_PATIENCE_NS: u64 = 250_000_000;

/// The share of one endpoint: see the [module](self).
#[derive(Clone, Copy)]
pub(crate) struct LeaseShare<'a> {
    pub(super) pool: &'a Pool,
    /// The slots in use.
    pub(super) slots: &'a [Slot],
    pub(super) mine: usize,
    pub(super) budget: u64,
}

impl LeaseShare<'_> {
    fn leases(&self) -> Leases<'_> {
        Leases { slots: self.slots, mine: self.mine, budget: self.budget }
    }

    /// See [`Leases::adjust`].
    pub(crate) fn lease_grants(&self, demand: u64, outstanding: u64) -> u64 {
        self.leases().adjust(demand, outstanding)
    }

    /// Returns the number of bytes leased by all endpoints.
    pub(crate) fn leased_bytes(&self) -> u64 {
        self.leases().total()
    }

    /// Returns the number of bytes that all endpoints may lease in total.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget
    }

    /// Returns the number of nanoseconds that the uplink needs to send everything that all endpoints have
    /// given it.
    pub(crate) fn uplink_backlog_ns(&self, now_ns: u64) -> u64 {
        uplink::backlog_ns(&self.pool.uplink_idle_at.0, now_ns)
    }

    /// Adds packets of `ns` nanoseconds to the uplink's backlog.
    pub(crate) fn uplink_sent(&self, now_ns: u64, ns: u64) {
        uplink::sent(&self.pool.uplink_idle_at.0, now_ns, ns);
    }

    /// Publishes the remaining bytes of this endpoint's shortest message that waits for the uplink; `None` if
    /// no message waits.
    pub(crate) fn wait_for_uplink(&self, now_ns: u64, bytes: Option<u32>) {
        uplink::wait(&self.slots[self.mine].waiting, now_ns, bytes);
    }

    /// Returns the remaining bytes of the shortest message that waits for the uplink in another endpoint.
    /// Only recent entries count.
    pub(crate) fn shortest_elsewhere(&self, now_ns: u64) -> Option<u32> {
        let others = self.slots.iter().enumerate().filter(|(slot, _)| *slot != self.mine);
        others.filter_map(|(_, slot)| uplink::waiting(&slot.waiting, now_ns)).min()
    }

    /// Returns the number of the most recent set of cutoffs, and the set. `None` means that the caller should
    /// try again later.
    pub(crate) fn cutoffs(&self) -> Option<(u64, Set)> {
        cutoffs::read(self.pool)
    }

    /// Returns the number of the most recent set of cutoffs.
    pub(crate) fn cutoffs_published(&self) -> u64 {
        self.pool.cutoffs_published.0.load(Acquire)
    }

    /// Adds to the leader's counts the unscheduled bytes that this endpoint observed.
    pub(crate) fn add_observed(&self, bucket: usize, bytes: u64) {
        cutoffs::add_observed(self.pool, bucket, bytes);
    }

    /// Takes the counts that the other endpoints observed.
    pub(crate) fn take_observed(&self, take: impl FnMut(usize, u64)) {
        cutoffs::take_observed(self.pool, take);
    }
}

/// What an endpoint remembers about the other endpoints between two ticks.
#[derive(Debug, Default)]
pub(crate) struct LeaseWatch {
    pub(super) generation: Option<u64>,
    /// The leader, its beat, and when that beat was first seen.
    leader: Option<(usize, u32, u64)>,
}

impl LeaseWatch {
    /// Returns the leader, if it has shown no progress for too long.
    pub(super) fn stalled_leader(
        &mut self,
        pool: &Pool,
        leader: Option<usize>,
        now_ns: u64,
    ) -> Option<usize> {
        let leader = leader?;
        let beat = pool.slots[leader].beat.load(Relaxed);
        match self.leader {
            Some((slot, seen, since)) if (slot, seen) == (leader, beat) => {
                (now_ns.saturating_sub(since) > LEADER_PATIENCE_NS).then_some(leader)
            }
            _ => {
                self.leader = Some((leader, beat, now_ns));
                None
            }
        }
    }
}
