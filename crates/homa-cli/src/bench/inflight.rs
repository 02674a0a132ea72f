//! The open RPCs of a load thread, by cookie. A cookie is never used twice, so that a second answer is recognised.

use std::time::Instant;

/// What the generator knows of an open RPC.
#[derive(Clone, Copy, Debug)]
pub struct Rpc {
    /// When it should have been sent.
    pub due: Instant,
    /// Bytes of the request.
    pub size: u32,
    /// Index of the client port among those of the thread.
    pub port: usize,
    /// Counts the thread's RPCs; decides the content.
    pub number: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    rpc: Option<Rpc>,
}

impl InFlight {
    /// Adds an RPC and gives it a cookie: the slot's index below, the number of its users above.
    pub fn insert(&mut self, rpc: Rpc) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, rpc: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation += 1;
        slot.rpc = Some(rpc);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Takes an RPC out; `None` if there is none with this cookie (any more).
    pub fn remove(&mut self, cookie: u64) -> Option<Rpc> {
        let index = cookie as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.generation) != cookie >> 32 {
            return None;
        }
        let rpc = slot.rpc.take()?;
        self.free.push(index);
        Some(rpc)
    }

    /// RPCs open.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no RPC is open.
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
        let mut open = InFlight::default();
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
        assert!(InFlight::default().remove(u64::MAX).is_none());
    }
}
