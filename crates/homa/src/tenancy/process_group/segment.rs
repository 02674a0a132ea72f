//! One host's mapping of the segment, and read access to it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::layout::ORPHAN;
use super::lease_share::LeaseShare;
use super::lock;
use super::map::SegmentMap;
use super::ports::Ports;
use crate::types::limits::MAX_PROCESSES;
use crate::types::segment_error::SegmentError;

/// More bytes than any host grants. Larger values, from a damaged file, would make sums overflow.
const MAX_BUDGET: u64 = 1 << 40;

/// The slot number of a host that has no slot yet.
pub(super) const NO_SLOT: usize = usize::MAX;

/// Client ports begin here (ID-6).
pub(crate) const FIRST_CLIENT_PORT: u16 = 0x8000;

/// Number of RPC IDs leased at a time. It is a multiple of the block size of the peers' tables of finished
/// IDs, and large enough that leasing costs next to nothing.
pub(crate) const IDS_PER_LEASE: u64 = 1 << 12;

/// This host's handle to the segment.
#[derive(Debug)]
pub(crate) struct Segment {
    // The mapping is dropped before the file, since closing the file frees the slot for others.
    pub(super) map: SegmentMap,
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) threads: Mutex<()>,
    pub(super) slot: usize,
}

/// The owner of a packet, determined by its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketOwner {
    /// This process has the port.
    Own,
    /// No process has the port, and this process answers for it. `orphan` means that the port's last owner
    /// ended without releasing it.
    Unowned { orphan: bool },
    /// Another process has the port, or answers for it.
    Foreign,
}

impl Segment {
    pub(super) fn system(&self, what: &'static str, source: io::Error) -> SegmentError {
        SegmentError::System { what, path: self.path.clone(), source }
    }

    pub(super) fn is_alive(&self, slot: usize) -> bool {
        slot == self.slot || lock::is_held(&self.file, lock::slot(slot))
    }

    pub(super) fn leader(&self) -> Option<usize> {
        (self.map.registry.leader.load(Acquire) as usize).checked_sub(1).filter(|slot| *slot < MAX_PROCESSES)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.leader() == Some(self.slot)
    }

    pub(super) fn slots_used(&self) -> usize {
        // Count this process's own slot, whatever the file contains.
        let own = if self.slot == NO_SLOT { 0 } else { self.slot + 1 };
        (self.map.registry.slots_used.load(Acquire) as usize).clamp(own, MAX_PROCESSES)
    }

    pub(super) fn table(&self) -> Ports<'_> {
        let map = &*self.map;
        let (servers, clients) = map.ports.split_at(FIRST_CLIENT_PORT.into());
        Ports { servers, clients, orphanings: &map.registry.orphanings, generation: &map.registry.generation }
    }

    pub(super) fn owner(&self, port: u16) -> Option<usize> {
        self.table().owner(port)
    }

    /// Returns the number of ended processes that had server ports. It increases before the orphan marks of
    /// these ports become visible.
    pub(crate) fn orphanings(&self) -> u64 {
        self.table().orphanings()
    }

    /// Returns whether the last owner of a free server port ended without releasing it.
    pub(crate) fn is_orphan(&self, port: u16) -> bool {
        self.table().mark(port) == ORPHAN
    }
}

/// Ports.
impl Segment {
    /// Returns the owner of packets to this port (HOST-7, HOST-8).
    #[cfg(test)]
    pub(crate) fn owner_of(&self, port: u16) -> PacketOwner {
        self.owner_for(port, 1 << self.slot, None)
    }

    /// Like `owner_of`, for the owners of the slots whose bits are set. `receives` tells whether these owners
    /// receive from the shared UDP socket, and therefore answer for ports that no process has. It is `None`
    /// over raw IP.
    pub(super) fn owner_for(&self, port: u16, slots: u64, receives: Option<bool>) -> PacketOwner {
        let answers = || receives.unwrap_or_else(|| self.is_led_by(slots));
        match self.table().mark(port) {
            0 if answers() => PacketOwner::Unowned { orphan: false },
            ORPHAN if answers() => PacketOwner::Unowned { orphan: true },
            0 | ORPHAN => PacketOwner::Foreign,
            owner if has_slot(slots, usize::from(owner) - 1) => PacketOwner::Own,
            _ => PacketOwner::Foreign,
        }
    }

    pub(super) fn is_led_by(&self, slots: u64) -> bool {
        self.leader().is_some_and(|leader| has_slot(slots, leader))
    }

    /// Returns the ports of this process, and those of the others, in ascending order.
    #[cfg(test)]
    pub(crate) fn ports(&self) -> (Vec<u16>, Vec<u16>) {
        self.ports_of(1 << self.slot)
    }

    /// Like `ports`, for the owners of the slots whose bits are set.
    pub(super) fn ports_of(&self, slots: u64) -> (Vec<u16>, Vec<u16>) {
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        for port in 0..=u16::MAX {
            match self.owner(port) {
                Some(slot) if has_slot(slots, slot) => mine.push(port),
                Some(_) => others.push(port),
                None => {}
            }
        }
        (mine, others)
    }
}

/// Host-wide values.
impl Segment {
    pub(crate) fn incarnation(&self) -> u64 {
        self.map.registry.incarnation.load(Relaxed)
    }

    /// Leases [`IDS_PER_LEASE`] even RPC ID counts, two apart, that no other process gets. Returns the first.
    pub(crate) fn lease_ids(&self) -> u64 {
        self.map.next_id.0.fetch_add(2 * IDS_PER_LEASE, Relaxed)
    }

    /// Returns this process's share of the host-wide resources.
    pub(crate) fn lease_share(&self) -> LeaseShare<'_> {
        let slots = &self.map.pool.slots[..self.slots_used()];
        LeaseShare {
            pool: &self.map.pool,
            slots,
            mine: self.slot,
            budget: self.map.registry.budget.load(Relaxed).clamp(1, MAX_BUDGET),
        }
    }

    /// Returns the segment's values for the metrics.
    pub(crate) fn counts(&self) -> SegmentCounts {
        let map = &*self.map;
        let used = &map.pool.slots[..self.slots_used()];
        SegmentCounts {
            processes: used.iter().filter(|slot| slot.pid.load(Relaxed) != 0).count() as u64,
            slot: self.slot as u64,
            is_leader: self.is_leader(),
            found_dead: u64::from(map.registry.found_dead.load(Relaxed)),
            budget_bytes: map.registry.budget.load(Relaxed),
            lease_bytes: map.pool.slots[self.slot].lease.load(Relaxed),
            leased_bytes: self.lease_share().leased_bytes(),
        }
    }
}

/// Returns whether the bit of a slot is set. (In a damaged file, a port's mark may not be a valid slot
/// number.)
fn has_slot(slots: u64, slot: usize) -> bool {
    slot < MAX_PROCESSES && slots & 1 << slot != 0
}

/// See [`Segment::counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentCounts {
    pub(crate) processes: u64,
    pub(crate) slot: u64,
    pub(crate) is_leader: bool,
    pub(crate) found_dead: u64,
    pub(crate) budget_bytes: u64,
    pub(crate) lease_bytes: u64,
    pub(crate) leased_bytes: u64,
}
