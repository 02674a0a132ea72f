//! Ids of new requests, and the range of them that this endpoint may use (PROTOCOL.md ID, HOST).

use std::collections::hash_map::Entry;

use super::state::Endpoint;
use crate::ids::own_count_from;

impl Endpoint {
    /// Takes the next id for a request to `peer` that will be in `slot`, and enters it in the table of ids.
    /// No open RPC has it. `None` if the endpoint has used up its ids (HOST-3).
    pub(super) fn take_id(&mut self, peer: u32, slot: u32) -> Option<u64> {
        while self.ids_left > 0 {
            let id = self.peers[peer].ids.id(self.next_id, self.config.endpoints);
            self.next_id = own_count_from(self.next_id.wrapping_add(2), &self.config);
            self.ids_left -= 1;
            // 0 is no valid id. Counter values shifted by different offsets could collide.
            if id != 0
                && let Entry::Vacant(entry) = self.client_ids.entry(id)
            {
                entry.insert(slot);
                return Some(id);
            }
        }
        None
    }

    /// Assigns the `count` counter values from the even `first` on, two apart, to the next requests; those of
    /// other endpoints are skipped (ID-4). When they are used up, no request is sent before the next call
    /// (HOST-3). Without any call, ids are unlimited.
    ///
    /// Ids are unique between endpoints with disjoint ranges that use the same
    /// [`Config::id_seed`](crate::Config::id_seed), which must not be 0.
    ///
    /// # Panics
    /// `first` is odd.
    pub fn set_ids(&mut self, first: u64, count: u64) {
        assert!(first.is_multiple_of(2), "a client's ids are even (ID-1)");
        let own = own_count_from(first, &self.config);
        let (endpoints, skipped) = (u64::from(self.config.endpoints), own.wrapping_sub(first) / 2);
        // If the lower half wraps, the owners' sequence restarts there: the values after it are left out.
        let before_wrap = (1 << 31) - u64::from(first as u32 >> 1);
        let count = if endpoints > 1 { count.min(before_wrap) } else { count };
        self.next_id = own;
        self.ids_left = count.saturating_sub(skipped).div_ceil(endpoints);
    }

    /// Number of requests for which ids are left.
    pub fn ids_left(&self) -> u64 {
        self.ids_left
    }
}
