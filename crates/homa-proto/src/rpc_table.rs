//! The table of RPCs: slots are reused, but each key refers to the same RPC forever.

use std::ops::{Index, IndexMut};

use crate::contract::RpcKey;
use crate::rpc::Rpc;

/// RPCs by slot. An ended RPC stays in its slot until the slot is reused, so that adding and removing an RPC
/// copies no more than necessary.
#[derive(Debug, Default)]
pub(crate) struct RpcTable {
    rpcs: Vec<Rpc>,
    /// Incremented when a slot is filled and when it is emptied, so odd while the slot holds an RPC. Keys of
    /// ended RPCs must stay stale forever (ABORT-3), so this vector never shrinks.
    generations: Vec<u32>,
    /// Empty slots below the length of `rpcs`. The slot emptied last is filled first.
    free: Vec<u32>,
}

impl RpcTable {
    pub(crate) fn with_capacity(rpcs: usize) -> RpcTable {
        RpcTable {
            rpcs: Vec::with_capacity(rpcs),
            generations: Vec::with_capacity(rpcs),
            free: Vec::with_capacity(rpcs),
        }
    }

    /// Returns the number of RPCs.
    pub(crate) fn len(&self) -> usize {
        self.rpcs.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of RPCs for which there is room.
    pub(crate) fn capacity(&self) -> usize {
        self.rpcs.capacity()
    }

    /// Returns the slot that [`insert`](RpcTable::insert) fills next.
    pub(crate) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.rpcs.len() as u32)
    }

    /// Adds an RPC; returns its slot.
    pub(crate) fn insert(&mut self, rpc: Rpc) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.rpcs[slot as usize] = rpc;
                slot
            }
            None => {
                self.rpcs.push(rpc);
                self.rpcs.len() as u32 - 1
            }
        };
        if self.generations.len() <= slot as usize {
            self.generations.resize(slot as usize + 1, 0);
        }
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        slot
    }

    /// Empties a slot. Its key is stale from here on.
    ///
    /// # Panics
    /// The slot holds no RPC.
    pub(crate) fn remove(&mut self, slot: u32) {
        let generation = &mut self.generations[slot as usize];
        assert!(*generation & 1 == 1, "slot {slot} holds no RPC");
        *generation = generation.wrapping_add(1);
        self.rpcs[slot as usize].incoming.gaps.clear();
        self.free.push(slot);
    }

    /// Returns whether the slot holds an RPC.
    pub(crate) fn contains(&self, slot: usize) -> bool {
        slot < self.rpcs.len() && self.generations[slot] & 1 == 1
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Rpc> {
        self.contains(slot).then(|| &self.rpcs[slot])
    }

    pub(crate) fn key(&self, slot: u32) -> RpcKey {
        RpcKey { slot, generation: self.generations[slot as usize] }
    }

    /// Returns the slot of a live RPC.
    pub(crate) fn slot(&self, key: RpcKey) -> Option<u32> {
        let is_live =
            self.generations.get(key.slot as usize) == Some(&key.generation) && key.generation & 1 == 1;
        is_live.then_some(key.slot)
    }

    /// Returns the RPCs with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Rpc)> {
        self.rpcs.iter().enumerate().filter(|(slot, _)| self.generations[*slot] & 1 == 1)
    }

    /// Frees the memory after the last RPC, but keeps room for a total of `least` RPCs. Returns the number of
    /// remaining slots, used and empty.
    pub(crate) fn shrink(&mut self, least: usize) -> usize {
        let used = self.iter().last().map_or(0, |(slot, _)| slot + 1);
        self.rpcs.truncate(used);
        self.rpcs.shrink_to(least);
        self.free.retain(|&slot| (slot as usize) < used);
        self.free.shrink_to(least);
        used
    }
}

impl Index<usize> for RpcTable {
    type Output = Rpc;

    fn index(&self, slot: usize) -> &Rpc {
        debug_assert!(self.contains(slot), "slot {slot} holds no RPC");
        &self.rpcs[slot]
    }
}

impl IndexMut<usize> for RpcTable {
    fn index_mut(&mut self, slot: usize) -> &mut Rpc {
        debug_assert!(self.contains(slot), "slot {slot} holds no RPC");
        &mut self.rpcs[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::RpcState;
    use crate::time::Time;

    fn rpc(id: u64) -> Rpc {
        Rpc::new(Time::ZERO, id, (0, 0), RpcState::Requesting, (1, 2))
    }

    #[test]
    fn a_key_names_no_later_rpc_of_its_slot() {
        let mut table = RpcTable::default();
        let slot = table.insert(rpc(2));
        let key = table.key(slot);
        assert_eq!((table.slot(key), table.len()), (Some(slot), 1));
        table.remove(slot);
        assert_eq!((table.slot(key), table.len()), (None, 0));
        assert_eq!((table.next_slot(), table.insert(rpc(4))), (slot, slot));
        assert_eq!(table.slot(key), None);
        assert_eq!(table.get(slot as usize).map(|rpc| rpc.id), Some(4));
    }

    #[test]
    fn a_shrunk_table_keeps_its_rpcs_and_stale_keys() {
        let mut table = RpcTable::default();
        let slots: Vec<u32> = (0..100).map(|n| table.insert(rpc(2 * n))).collect();
        let last = table.key(99);
        slots.iter().filter(|&&slot| slot != 5).for_each(|&slot| table.remove(slot));
        assert_eq!(table.shrink(10), 6);
        assert!(table.capacity() < 100);
        assert_eq!(table.iter().map(|(slot, rpc)| (slot, rpc.id)).collect::<Vec<_>>(), [(5, 10)]);
        let again: Vec<u32> = (0..99).map(|n| table.insert(rpc(n))).collect();
        assert_eq!(table.len(), 100);
        assert!(again.contains(&99) && table.slot(last).is_none());
    }

    #[test]
    #[should_panic(expected = "slot 0 holds no RPC")]
    fn a_slot_is_not_emptied_twice() {
        let mut table = RpcTable::default();
        let slot = table.insert(rpc(2));
        table.remove(slot);
        table.remove(slot);
    }
}
