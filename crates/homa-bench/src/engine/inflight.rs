//! The open RPCs of a load thread, by cookie. Cookies are never reused, so that duplicate responses, and late
//! responses to an earlier load on the same link, are recognised.

use std::time::Instant;

/// An open RPC.
#[derive(Clone, Copy, Debug)]
pub struct Rpc {
    /// When the RPC was due to be sent.
    pub due: Instant,
    /// Size of the request in bytes.
    pub size: u32,
    /// Index of the RPC's client port among the thread's ports.
    pub port: usize,
    /// Sequence number among the thread's RPCs; it selects the content.
    pub number: u64,
}

/// Bits of a cookie, from the lowest: the slot's index, the slot's generation, the number of the load.
const LOAD_SHIFT: u32 = 56;
const USERS_SHIFT: u32 = 32;
const USERS: u32 = (1 << (LOAD_SHIFT - USERS_SHIFT)) - 1;

/// The open RPCs of one load.
#[derive(Debug)]
pub struct InFlightRpcs {
    load: u8,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    users: u32,
    rpc: Option<Rpc>,
}

impl InFlightRpcs {
    /// Creates an empty table for the load with this number.
    pub fn new(load: u8) -> InFlightRpcs {
        InFlightRpcs { load, slots: Vec::new(), free: Vec::new() }
    }

    /// Returns whether a cookie belongs to this load rather than to an earlier one.
    pub fn is_own(&self, cookie: u64) -> bool {
        cookie >> LOAD_SHIFT == u64::from(self.load)
    }

    /// Adds an RPC and returns its cookie.
    pub fn insert(&mut self, rpc: Rpc) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { users: 0, rpc: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.users = (slot.users + 1) & USERS;
        slot.rpc = Some(rpc);
        u64::from(self.load) << LOAD_SHIFT | u64::from(slot.users) << USERS_SHIFT | u64::from(index)
    }

    /// Removes an RPC. Returns `None` if no open RPC has this cookie.
    pub fn remove(&mut self, cookie: u64) -> Option<Rpc> {
        let index = cookie as u32;
        let slot =
            self.slots.get_mut(index as usize).filter(|_| cookie >> LOAD_SHIFT == u64::from(self.load))?;
        if u64::from(slot.users) != cookie >> USERS_SHIFT & u64::from(USERS) {
            return None;
        }
        let rpc = slot.rpc.take()?;
        self.free.push(index);
        Some(rpc)
    }

    /// Returns the number of open RPCs.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether no RPC is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rpc(number: u64) -> Rpc {
        Rpc { due: Instant::now(), size: 1, port: 0, number }
    }

    #[test]
    fn a_cookie_works_once() {
        let mut open = InFlightRpcs::new(0);
        let first = open.insert(rpc(1));
        assert_eq!(open.remove(first).map(|rpc| rpc.number), Some(1));
        assert!(open.remove(first).is_none());
        let second = open.insert(rpc(2));
        assert!(open.remove(first).is_none(), "the slot has another user");
        assert_eq!(open.len(), 1);
        assert_eq!(open.remove(second).map(|rpc| rpc.number), Some(2));
        assert!(open.is_empty());
    }

    #[test]
    fn nonsense_is_nobody() {
        assert!(InFlightRpcs::new(0).remove(u64::MAX).is_none());
    }

    #[test]
    fn what_an_earlier_load_gave_up_is_not_taken_for_a_later_ones() {
        let (mut before, mut after) = (InFlightRpcs::new(255), InFlightRpcs::new(0));
        let (given_up, own) = (before.insert(rpc(1)), after.insert(rpc(1)));
        assert!(!after.is_own(given_up) && after.is_own(own));
        assert!(after.remove(given_up).is_none());
        assert!(after.remove(own).is_some());
    }
}
