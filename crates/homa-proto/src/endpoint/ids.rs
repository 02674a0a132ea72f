//! Ids of new requests, and the range of ids that this endpoint may use (PROTOCOL.md ID, HOST).

use super::state::Endpoint;

impl Endpoint {
    /// Takes the next id that no open RPC has, for a request to `peer` that will be in `slot`, and enters it
    /// in the table of ids. `None` if the endpoint has used up its ids (HOST-3).
    pub(super) fn take_id(&mut self, peer: u32, slot: u32) -> Option<u64> {
        let offset = self.peers[peer].ids;
        while let Some(id) = self.ids.take(offset, &self.config) {
            if id != 0 && self.tables.ids.add_client(id, slot) {
                return Some(id);
            }
        }
        None
    }

    /// Sets the counter values for the next requests: `count` values from `first` (even) on, two apart,
    /// skipping the values of other endpoints (ID-4). When they are used up, no request can be sent until the
    /// next call (HOST-3). If this function is never called, ids are unlimited.
    ///
    /// Ids are unique across endpoints that have disjoint ranges and use the same
    /// [`Config::id_seed`](crate::Config::id_seed), which must not be 0.
    ///
    /// # Panics
    /// `first` is odd.
    pub fn set_ids(&mut self, first: u64, count: u64) {
        assert!(first.is_multiple_of(2), "a client's ids are even (ID-1)");
        self.ids.assign(first, count, &self.config);
    }

    /// Returns the number of requests for which ids are left.
    pub fn ids_left(&self) -> u64 {
        self.ids.left()
    }
}
