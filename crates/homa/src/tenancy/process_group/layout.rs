//! The memory layout of the segment.
//!
//! It consists of atomics only, so that any process may read at any time. The fields of [`Header`] and
//! [`RegistryFields`] change while their writer holds the registry's lock. Each such change is one store: a
//! writer that dies leaves the state before or after it. The other fields change freely. Nothing is stored
//! twice, so nothing can become inconsistent: a port's owner is stored at the port, a lease at its slot, and
//! sums are computed when they are needed.

use std::array;

use super::priorities::PRIORITIES;
use crate::tenancy::sync::{AtomicU8, AtomicU32, AtomicU64};
use crate::types::limits::MAX_PROCESSES;

/// "homa-seg" as a number.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"homa-seg");

/// Incremented whenever anything below changes its position or meaning.
pub(super) const VERSION: u32 = 6;

/// The size of the file in bytes.
pub(super) const SIZE: usize = size_of::<Layout>();

/// Number of buckets in the histogram of unscheduled bytes.
pub(super) const BUCKETS: usize = 512;

/// A value in its own cache line, since many processes write it often.
#[repr(C, align(64))]
pub(super) struct CacheLine<T>(pub T);

/// The contents of the file: see the [module](self).
#[repr(C)]
pub(super) struct Layout {
    pub header: Header,
    pub registry: RegistryFields,

    // Changed without the lock.
    /// Next count of RPC ids to be leased.
    pub next_id: CacheLine<AtomicU64>,
    pub pool: Pool,
    /// Slot of the owner plus 1; 0 for none; or [`ORPHAN`].
    pub ports: [AtomicU8; 1 << 16],
}

/// What shows a process whether it can use the file.
#[repr(C)]
pub(super) struct Header {
    // These four fields keep their places in every version.
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub size: AtomicU32,
    /// The process that holds the registry's lock, or last held it; for error messages.
    pub holder: AtomicU32,

    /// 1 once the segment is initialised; until then the next process initialises it again.
    pub made: AtomicU32,
}

/// What the processes at the address have in common.
#[repr(C)]
pub(super) struct RegistryFields {
    /// The host's incarnation: 40 bits.
    pub incarnation: AtomicU64,
    /// Incremented after each change of ports, slots or leader.
    pub generation: AtomicU64,
    /// Incremented only before the server ports of an ended process are marked as [`ORPHAN`], unlike
    /// `generation`: other processes open and close ports all the time.
    pub orphanings: AtomicU64,
    /// Slot of the leader plus 1; 0 if there is none.
    pub leader: AtomicU32,
    /// Port at which the search for a free client port continues.
    pub next_client_port: AtomicU32,
    /// First slot that was never used.
    pub slots_used: AtomicU32,
    /// Number of processes found dead since the segment was created.
    pub found_dead: AtomicU32,
    /// Maximum bytes granted but not yet received, over all processes.
    pub budget: AtomicU64,
    /// Seed that, with the leased counts, determines the IDs towards each peer.
    pub id_seed: AtomicU64,
}

/// The host-wide resources, shared by endpoints in several processes or in one.
#[repr(C)]
pub(super) struct Pool {
    /// Time when the uplink will have sent everything that it was given, in nanoseconds of the monotonic
    /// clock.
    pub uplink_idle_at: CacheLine<AtomicU64>,
    /// Number of cutoff sets published so far; the last one is in bank `published % 2`.
    pub cutoffs_published: CacheLine<AtomicU64>,
    pub cutoff_banks: [CutoffBank; 2],
    /// Unscheduled bytes observed by endpoints other than the leader and not yet taken by the leader, by
    /// message length.
    pub observed: [AtomicU64; BUCKETS],
    pub slots: [Slot; MAX_PROCESSES],
}

impl Pool {
    /// Creates the pool for the endpoints of one process, which need no file.
    pub(super) fn new() -> Pool {
        Pool {
            uplink_idle_at: CacheLine(AtomicU64::new(0)),
            cutoffs_published: CacheLine(AtomicU64::new(0)),
            cutoff_banks: [CutoffBank::new(), CutoffBank::new()],
            observed: array::from_fn(|_| AtomicU64::new(0)),
            slots: array::from_fn(|_| Slot::new()),
        }
    }
}

/// Mark of a server port whose owner ended without releasing it, and that has not been bound since.
pub(super) const ORPHAN: u8 = 0xff;
const _: () = assert!(MAX_PROCESSES < ORPHAN as usize);

/// One set of cutoffs.
#[repr(C, align(64))]
pub(super) struct CutoffBank {
    pub levels: [AtomicU32; PRIORITIES],
    pub version: AtomicU32,
    /// Maximum unscheduled bytes of a message, as announced to peers; 0: no limit is announced.
    pub unsched_limit: AtomicU32,
}

impl CutoffBank {
    /// All zero.
    pub(super) fn new() -> CutoffBank {
        CutoffBank {
            levels: array::from_fn(|_| AtomicU32::new(0)),
            version: AtomicU32::new(0),
            unsched_limit: AtomicU32::new(0),
        }
    }
}

/// The public state of a process. The process owns the slot while it holds the slot's lock; no other process
/// writes to the slot in that time.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Process ID in the process's own pid namespace; 0: the slot is free.
    pub pid: AtomicU32,
    /// Incremented with each tick, so that lack of progress is noticed.
    pub beat: AtomicU32,
    /// Bytes that the process has leased from the budget.
    pub lease: AtomicU64,
    /// Bytes that the process could use.
    pub wants: AtomicU64,
    /// The process's shortest message that waits for the uplink, see [`uplink`](super::uplink); 0 if none
    /// waits.
    pub waiting: AtomicU64,
    /// Identifies the UDP socket that the process shares with other processes that have the same number; 0
    /// over raw IP.
    pub path: AtomicU64,
}

impl Slot {
    /// Creates a free slot.
    pub(super) fn new() -> Slot {
        Slot {
            pid: AtomicU32::new(0),
            beat: AtomicU32::new(0),
            lease: AtomicU64::new(0),
            wants: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            path: AtomicU64::new(0),
        }
    }
}
