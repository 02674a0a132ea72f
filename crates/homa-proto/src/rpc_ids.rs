//! The RPCs by id (PROTOCOL.md ID-2, ID-5).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;

/// Slots of RPCs by id. Ids of our requests are even and unique. Ids of peers' requests are odd in our form,
/// and unique per peer.
#[derive(Debug)]
pub(crate) struct RpcIds {
    client: HashMap<u64, u32, FixedState>,
    server: HashMap<(u32, u64), u32, FixedState>,
}

impl RpcIds {
    pub(crate) fn with_capacity(rpcs: usize, seed: u64) -> RpcIds {
        let hasher = || FixedState::with_seed(seed);
        RpcIds {
            client: HashMap::with_capacity_and_hasher(rpcs, hasher()),
            server: HashMap::with_capacity_and_hasher(rpcs, hasher()),
        }
    }

    /// Returns the number of ids.
    pub(crate) fn len(&self) -> usize {
        self.client.len() + self.server.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.client.is_empty() && self.server.is_empty()
    }

    /// Returns the RPC with this id in our form. For an even `id`, `peer` is ignored.
    #[inline]
    pub(crate) fn find(&self, peer: u32, id: u64) -> Option<u32> {
        if id & 1 == 0 { self.client(id) } else { self.server(peer, id) }
    }

    /// Returns our request with this id.
    #[inline]
    pub(crate) fn client(&self, id: u64) -> Option<u32> {
        self.client.get(&id).copied()
    }

    /// Returns the request of `peer` with this id.
    #[inline]
    pub(crate) fn server(&self, peer: u32, id: u64) -> Option<u32> {
        self.server.get(&(peer, id)).copied()
    }

    /// Adds the id of one of our requests. Returns false if another request has the same id.
    #[inline]
    pub(crate) fn add_client(&mut self, id: u64, slot: u32) -> bool {
        match self.client.entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(slot);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Adds the id of a request of `peer`.
    #[inline]
    pub(crate) fn add_server(&mut self, peer: u32, id: u64, slot: u32) {
        self.server.insert((peer, id), slot);
    }

    /// Removes the id of an RPC with `peer`.
    #[inline]
    pub(crate) fn remove(&mut self, peer: u32, id: u64) {
        if id & 1 == 0 {
            self.client.remove(&id);
        } else {
            self.server.remove(&(peer, id));
        }
    }

    /// Frees memory, but keeps room for `rpcs` ids of client RPCs and as many ids of server RPCs.
    pub(crate) fn shrink_to(&mut self, rpcs: usize) {
        self.client.shrink_to(rpcs);
        self.server.shrink_to(rpcs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ID-2, ID-5
    #[test]
    fn our_ids_are_unique_and_peers_ids_are_unique_for_each_peer() {
        let mut ids = RpcIds::with_capacity(0, 7);
        assert!(ids.add_client(4, 1) && !ids.add_client(4, 2));
        ids.add_server(1, 5, 3);
        ids.add_server(2, 5, 4);
        assert_eq!((ids.find(1, 4), ids.find(2, 4)), (Some(1), Some(1)));
        assert_eq!((ids.find(1, 5), ids.find(2, 5), ids.find(3, 5)), (Some(3), Some(4), None));
        ids.remove(1, 5);
        ids.remove(1, 4);
        assert_eq!((ids.len(), ids.find(2, 5), ids.client(4)), (1, Some(4), None));
    }
}
