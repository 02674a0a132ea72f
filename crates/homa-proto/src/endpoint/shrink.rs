//! Frees memory that the tables allocated for a peak number of RPCs, when the peak is over (LIMIT-11).

use super::state::Endpoint;
use crate::time::{SEC, Time};

/// Tables shrink if they have room for more than this many times the number of open RPCs. If a peak recurs
/// soon, its room is still allocated.
const ROOM_TIMES: usize = 8;

/// How long tables must have been too large before they shrink. Shrinking a table of a million RPCs takes
/// milliseconds.
const LARGE_FOR_NS: u64 = 5 * SEC;

impl Endpoint {
    /// Returns whether the tables are larger than necessary.
    fn is_oversized(&self) -> bool {
        let room = self.rpcs.capacity();
        // A planted fault that the swarm must find: tables never free the memory of a peak.
        #[cfg(homa_canary)]
        let room =
            if crate::planted_faults::has("tables_stay_large") { self.tables.least_room } else { room };
        room > 2 * self.tables.least_room && room > ROOM_TIMES * self.rpcs.len()
    }

    /// Returns the time at which `handle_timeout` must be called; [`Time::NEVER`] if the tables need not
    /// shrink.
    pub(super) fn next_shrink(&self) -> Time {
        if self.is_oversized() { self.tables.shrink_at.unwrap_or(self.now) } else { Time::NEVER }
    }

    /// Shrinks the tables if they have been too large for a while.
    pub(super) fn shrink_if_due(&mut self, now: Time) {
        if !self.is_oversized() {
            self.tables.shrink_at = None;
            return;
        }
        match self.tables.shrink_at {
            Some(at) if at > now => return,
            Some(_) => self.shrink_tables(),
            None => {}
        }
        // An RPC in the last slot keeps a table large: check again later.
        self.tables.shrink_at = self.is_oversized().then_some(now + LARGE_FOR_NS);
    }

    fn shrink_tables(&mut self) {
        let least = self.tables.least_room;
        let slots = self.rpcs.shrink(least);
        self.fit_tables(slots);
        self.receiving.unproven.cut(slots);
        self.peers.prefixes.cut(slots);
        self.tables.ids.shrink_to(least);
        self.events.shrink_to(least);
        self.sending.control.shrink_to(least);
    }

    /// Sets the number of valid indices of every structure indexed by slot to `slots`.
    #[cold]
    pub(super) fn fit_tables(&mut self, slots: usize) {
        self.waits.timers.resize(slots);
        self.receiving.grants.resize(slots);
        self.receiving.unscheduled_loss.resize(slots);
        self.sending.ready.resize(slots);
        self.tables.peer_rpcs.resize(slots);
        self.tables.port_rpcs.resize(slots);
        self.waits.resend_links.resize(slots);
    }

    /// Returns the number of RPCs for which this endpoint's tables have room. The caller's own tables need no
    /// more room.
    pub fn room(&self) -> usize {
        self.rpcs.capacity()
    }
}
