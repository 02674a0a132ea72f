//! Changes to the registry, which are rare and made under the segment's lock: slots, ports, the leader,
//! published cutoffs.
//!
//! The kernel releases the lock when its holder dies. Each method makes its changes as single stores, ordered
//! so that the next holder can continue from the state between any two of them.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cutoffs::{self, Set};
use super::layout::Slot;
use super::lock;
use super::segment::{FIRST_CLIENT_PORT, Segment};
use crate::types::limits::MAX_PROCESSES;
use crate::types::segment_error::SegmentError;

/// Exclusive access to the registry, until dropped.
pub(super) struct Registry<'a> {
    pub(super) segment: &'a Segment,
    /// Excludes the other threads of this host, which share its open file.
    pub(super) _threads: MutexGuard<'a, ()>,
}

impl Drop for Registry<'_> {
    fn drop(&mut self) {
        lock::unlock(&self.segment.file, lock::REGISTRY);
    }
}

impl Registry<'_> {
    fn slot(&self, slot: usize) -> &Slot {
        &self.segment.map.pool.slots[slot]
    }

    fn changed(&self) {
        self.segment.table().changed();
    }

    /// Returns the slot that owns a port, if any.
    fn owner(&self, port: u16) -> Option<usize> {
        self.segment.owner(port)
    }

    fn set_owner(&self, port: u16, mark: u8) {
        self.segment.table().set_mark(port, mark);
    }

    /// Acquires a server port for this process, if no living process has it (HOST-1).
    pub(super) fn bind(&self, port: u16) -> Result<PortClaim, SegmentError> {
        let orphan = self.segment.is_orphan(port);
        match self.owner(port) {
            Some(slot) if slot != self.segment.slot && self.segment.is_alive(slot) => {
                let pid = self.slot(slot).pid.load(Relaxed);
                return Err(SegmentError::PortTaken { port, pid });
            }
            Some(slot) if slot != self.segment.slot => {
                self.free_slot(slot);
                self.take(port);
                return Ok(PortClaim { inherited: true });
            }
            _ => self.take(port),
        }
        Ok(PortClaim { inherited: orphan })
    }

    /// Acquires a client port for this process. Ports are assigned in turn, so that a closed port rests
    /// before it is reused.
    pub(super) fn open_client(&self) -> Result<u16, SegmentError> {
        let cursor = &self.segment.map.registry.next_client_port;
        for _ in FIRST_CLIENT_PORT..=u16::MAX {
            let port = (cursor.load(Relaxed) as u16).max(FIRST_CLIENT_PORT);
            cursor.store(u32::from(port.checked_add(1).unwrap_or(FIRST_CLIENT_PORT)), Relaxed);
            if self.owner(port).is_none() {
                self.take(port);
                return Ok(port);
            }
        }
        Err(SegmentError::NoClientPort)
    }

    /// Records that this process owns the port. A process that has a port drives its host and can lead. A
    /// lone process must not wait for its first tick: otherwise its peers' first packets for ports that no
    /// process has would be lost.
    fn take(&self, port: u16) {
        self.set_owner(port, self.segment.slot as u8 + 1);
        self.changed();
        self.lead(None);
    }

    /// Releases a port of this process.
    pub(super) fn release(&self, port: u16) {
        if self.owner(port) == Some(self.segment.slot) {
            self.set_owner(port, 0);
            self.changed();
        }
    }

    /// Finds the slots of dead processes, and frees the resources of these processes.
    pub(super) fn free_dead(&self) {
        for slot in 0..self.segment.slots_used() {
            let used = self.slot(slot).pid.load(Relaxed) != 0;
            if used && slot != self.segment.slot && !self.segment.is_alive(slot) {
                self.free_slot(slot);
            }
        }
    }

    /// Frees the resources of a dead process (HOST-9). Its process ID is cleared last: until then the slot
    /// still counts as a slot to be freed.
    pub(super) fn free_slot(&self, slot: usize) {
        let map = &self.segment.map;
        tracing::warn!(pid = self.slot(slot).pid.load(Relaxed), slot, "a process of this host died");
        self.segment.table().orphan(slot);
        map.registry.found_dead.fetch_add(1, Relaxed);
        self.clear_slot(slot);
    }

    /// Clears a slot that no longer owns ports.
    fn clear_slot(&self, slot: usize) {
        let entry = self.slot(slot);
        entry.wants.store(0, Relaxed);
        entry.waiting.store(0, Relaxed);
        entry.lease.store(0, Release);
        if self.segment.leader() == Some(slot) {
            self.segment.map.registry.leader.store(0, Release);
        }
        entry.pid.store(0, Release);
        self.changed();
    }

    /// Frees the resources of this process.
    pub(super) fn leave(&self) {
        let mine = self.segment.slot;
        self.segment.table().orphan(mine);
        self.clear_slot(mine);
    }

    /// Makes this process the leader if there is none, or if the leader is dead or makes no progress. A
    /// process over raw IP also replaces a leader over UDP, which does not receive the packets that the
    /// leader answers.
    pub(super) fn lead(&self, stands_still: Option<usize>) {
        let leads = self.segment.leader();
        let keeps = |slot| {
            Some(slot) != stands_still && self.segment.is_alive(slot) && !self.segment.should_replace(slot)
        };
        if leads.is_some_and(keeps) {
            return;
        }
        self.segment.map.registry.leader.store(self.segment.slot as u32 + 1, Release);
        self.changed();
    }

    /// Publishes `set` as the host's cutoffs, if this process still leads.
    pub(super) fn publish_cutoffs(&self, set: Set) -> bool {
        let leads = self.segment.is_leader();
        if leads {
            cutoffs::publish(&self.segment.map.pool, set);
        }
        leads
    }

    /// Claims the first slot that no living process has, for the process `pid`.
    pub(super) fn claim_slot(&self, pid: u32) -> Result<usize, SegmentError> {
        let segment = self.segment;
        for slot in 0..MAX_PROCESSES {
            let system = |source| segment.system("lock a part of", source);
            if !lock::try_lock(&segment.file, lock::slot(slot)).map_err(system)? {
                continue;
            }
            if self.slot(slot).pid.load(Acquire) != 0 {
                self.free_slot(slot);
            }
            let used = segment.map.registry.slots_used.load(Relaxed).max(slot as u32 + 1);
            segment.map.registry.slots_used.store(used, Release);
            self.slot(slot).beat.store(0, Relaxed);
            self.slot(slot).path.store(0, Relaxed);
            self.slot(slot).pid.store(pid, Release);
            self.changed();
            return Ok(slot);
        }
        Err(SegmentError::Full { path: segment.path.clone() })
    }
}

/// How a server port was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortClaim {
    /// Whether the port's last owner ended without releasing it, so that the state of its RPCs is lost.
    pub(crate) inherited: bool,
}
