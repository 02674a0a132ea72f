//! The memory layout of the segment.
//!
//! The segment consists of atomics only, so that any process may read it at any time. The fields of
//! [`Header`] and [`RegistryFields`] change while their writer holds the registry's lock. Each such change is
//! one store: a writer that dies leaves the state either before or after the store. The other fields change
//! freely. Nothing is stored twice, so nothing can become inconsistent: a port's owner is stored at the port,
//! a lease at its slot, and sums are computed when they are needed.

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
    /// Slot of the owner plus 1; 0 if there is no owner; or [`ORPHAN`].
    pub ports: [AtomicU8; 1 << 16],
}

/// The fields by which a process determines whether it can use the file.
#[repr(C)]
pub(super) struct Header {
    // These four fields keep their places in every version.
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub size: AtomicU32,
    /// ID of the process that holds or last held the registry's lock, for error messages.
    pub holder: AtomicU32,

    /// 1 once the segment is initialised; until then the next process initialises it again.
    pub made: AtomicU32,
}

/// The state that all processes at the address share.
#[repr(C)]
pub(super) struct RegistryFields {
    /// The host's incarnation: 40 bits.
    pub incarnation: AtomicU64,
    /// Incremented after each change of ports, slots or leader.
    pub generation: AtomicU64,
    /// Incremented only before the server ports of an ended process are marked as [`ORPHAN`]. In contrast,
    /// `generation` changes all the time, as processes open and close ports.
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
    /// Seed that, together with the leased counts, determines the IDs used with each peer.
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
    /// Unscheduled bytes, by message length, that endpoints other than the leader have observed and the
    /// leader has not yet taken.
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

/// Mark of a server port whose owner ended without releasing the port, if the port has not been bound since.
pub(super) const ORPHAN: u8 = 0xff;
const _: () = assert!(MAX_PROCESSES < ORPHAN as usize);

/// One set of cutoffs.
#[repr(C, align(64))]
pub(super) struct CutoffBank {
    pub levels: [AtomicU32; PRIORITIES],
    pub version: AtomicU32,
    /// Maximum unscheduled bytes of a message, as announced to peers; 0 means that no limit is announced.
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
/// writes to the slot during that time.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Process ID in the process's own PID namespace; 0 if the slot is free.
    pub pid: AtomicU32,
    /// Incremented with each tick, so that lack of progress is noticed.
    pub beat: AtomicU32,
    /// Bytes that the process has leased from the budget.
    pub lease: AtomicU64,
    /// Bytes that the process could use.
    pub wants: AtomicU64,
    /// The process's shortest message that waits for the uplink (see [`uplink`](super::uplink)); 0 if no
    /// message waits.
    pub waiting: AtomicU64,
    /// Number of the UDP socket that the process shares with all processes that have the same number here; 0
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
