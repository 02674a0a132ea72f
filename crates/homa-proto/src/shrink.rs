//! The memory of a peak of RPCs goes back when it is over (LIMIT-11).

use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::time::{SEC, Time};

/// Tables that have room for so many times the RPCs that are open are made smaller: a peak that comes again soon finds its room.
const ROOM_TIMES: usize = 8;

/// RPCs for which tables always have room; with room for none they would grow in steps of their own.
pub(crate) fn least_room(config: &Config) -> usize {
    config.reserve_rpcs.min(config.max_rpcs).max(64) as usize
}

/// For how long they have been so large then. A table of a million RPCs takes milliseconds to be made smaller.
const LARGE_FOR_NS: u64 = 5 * SEC;

impl Endpoint {
    /// Whether the tables are larger than they need to be.
    fn is_roomy(&self) -> bool {
        let room = self.rpcs.capacity();
        // A planted fault that the swarm must find: tables keep the memory of a peak.
        #[cfg(homa_canary = "tables_stay_large")]
        let room = room.min(self.least_room);
        room > 2 * self.least_room && room > ROOM_TIMES * self.rpcs.len()
    }

    /// When `handle_timeout` wants to look.
    pub(crate) fn next_shrink(&self) -> Option<Time> {
        self.is_roomy().then(|| self.shrink_at.unwrap_or(self.now))
    }

    /// Makes the tables smaller that have been too large for a while.
    pub(crate) fn shrink_if_due(&mut self, now: Time) {
        if !self.is_roomy() {
            self.shrink_at = None;
            return;
        }
        match self.shrink_at {
            Some(at) if at > now => return,
            Some(_) => self.shrink_tables(),
            None => {}
        }
        // Where an RPC in the last slot keeps a table large, another look follows.
        self.shrink_at = self.is_roomy().then_some(now + LARGE_FOR_NS);
    }

    fn shrink_tables(&mut self) {
        let least = self.least_room;
        // Until others are reserved, its capacity is what is in use, up to the last.
        self.rpcs.shrink_to_fit();
        let slots = self.rpcs.capacity();
        self.fit_tables(slots);
        self.unproven.cut(slots);
        self.rpcs.reserve(least.saturating_sub(self.rpcs.len()));
        self.client_ids.shrink_to(least);
        self.server_ids.shrink_to(least);
        self.events.shrink_to(least);
        self.control.shrink_to(least);
    }

    /// Makes slots below `slots` valid indices of everything that is indexed by slot, and no others.
    #[cold]
    pub(crate) fn fit_tables(&mut self, slots: usize) {
        // Keys of RPCs that have ended must name nothing for ever (ABORT-3): these stay.
        self.generations.resize(slots.max(self.generations.len()), 0);
        self.timers.fit(slots);
        self.grants.fit(slots);
        self.unscheduled_loss.fit(slots);
        self.ready.fit(slots);
        self.peer_rpcs.fit(slots);
        self.port_rpcs.fit(slots);
        self.resend_links.fit(slots);
    }

    /// RPCs for which the tables of this endpoint have room; the caller's own need no more.
    pub fn room(&self) -> usize {
        self.rpcs.capacity()
    }
}
