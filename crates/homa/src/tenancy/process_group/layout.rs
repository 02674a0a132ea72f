//! What lies where in the segment.
//!
//! Only atomics, so that any process may look at any time. The fields under "registry" change while their writer has the
//! registry's lock, and each change is one store: a writer that dies leaves the state before or after it. The others change
//! freely. Nothing is kept twice, so nothing can be left wrong: who owns a port stands at the port, what is leased at its
//! slot, and sums are made when they are needed.

use std::array;

use super::PRIORITIES;
use crate::tenancy::sync::{AtomicU8, AtomicU32, AtomicU64};

/// Hosts that can share an address, each of which has a slot. More than there are cores to drive them; a slot is one cache
/// line.
pub const MAX_PROCESSES: usize = 64;

/// "homa-seg" as a number.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"homa-seg");

/// Raised whenever anything below changes its place or meaning.
pub(super) const VERSION: u32 = 5;

/// The bytes of the file.
pub(super) const SIZE: usize = size_of::<Layout>();

/// Buckets of the histogram of unscheduled bytes.
pub(super) const BUCKETS: usize = 512;

/// A value in a cache line of its own, since many write it often.
#[repr(C, align(64))]
pub(super) struct CacheLine<T>(pub T);

/// See the [module](self).
#[repr(C)]
pub(super) struct Layout {
    // These four keep their places in every version.
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub size: AtomicU32,
    /// Who has the registry's lock, or had it last: for error messages.
    pub holder: AtomicU32,

    // Registry.
    /// 1 once the segment is made; before, it is made anew by the next process.
    pub made: AtomicU32,
    /// Of the host: 40 bits.
    pub incarnation: AtomicU64,
    /// Raised after each change of ports, slots or leader.
    pub generation: AtomicU64,
    /// Raised before server ports of a process that has ended are marked as [`ORPHAN`], and by nothing else: others open and close ports
    /// all the time.
    pub orphanings: AtomicU64,
    /// Slot of the leader plus 1; 0: none.
    pub leader: AtomicU32,
    /// Where the search for a client port goes on.
    pub next_client_port: AtomicU32,
    /// Slots from this one on were never used.
    pub slots_used: AtomicU32,
    /// Processes found dead since the segment was made.
    pub found_dead: AtomicU32,
    /// Bytes that may be granted and not received, over all processes.
    pub budget: AtomicU64,
    /// From which the ids towards each peer are made, of the counts that are leased.
    pub id_seed: AtomicU64,

    // Free.
    /// Next count of RPC ids to be leased.
    pub next_id: CacheLine<AtomicU64>,
    pub pool: Pool,
    /// Slot of the owner plus 1; 0: none; [`ORPHAN`].
    pub ports: [AtomicU8; 1 << 16],
}

/// What the endpoints of a host have once, whether they are in several processes or in one.
#[repr(C)]
pub(super) struct Pool {
    /// When the uplink will have sent what it was given, in nanoseconds of the monotonic clock.
    pub uplink_idle_at: CacheLine<AtomicU64>,
    /// Sets of cutoffs published so far; the last one lies in bank `published % 2`.
    pub cutoffs_published: CacheLine<AtomicU64>,
    pub cutoff_banks: [CutoffBank; 2],
    /// Unscheduled bytes seen by endpoints other than the leader, and not taken by it, by length of their message.
    pub observed: [AtomicU64; BUCKETS],
    pub slots: [Slot; MAX_PROCESSES],
}

impl Pool {
    /// For endpoints of one process, which need no file.
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

/// The mark of a server port whose owner ended with it, and that nobody has bound since.
pub(super) const ORPHAN: u8 = 0xff;
const _: () = assert!(MAX_PROCESSES < ORPHAN as usize);

/// One set of cutoffs.
#[repr(C, align(64))]
pub(super) struct CutoffBank {
    pub levels: [AtomicU32; PRIORITIES],
    pub version: AtomicU32,
    /// Most bytes of a message that peers are told to send unasked; 0: they are told nothing.
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

/// What a process says of itself. The slot is its own while it has the slot's lock; nobody else writes here meanwhile.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Process id, as the process sees it; 0: nobody.
    pub pid: AtomicU32,
    /// Raised with each tick, so that a process that stands still is seen.
    pub beat: AtomicU32,
    /// Bytes that it counts against the budget.
    pub lease: AtomicU64,
    /// Bytes that it could use.
    pub wants: AtomicU64,
    /// Its shortest message that waits for the uplink, see [`uplink`](super::uplink); 0: none does.
    pub waiting: AtomicU64,
}

impl Slot {
    /// Of nobody.
    pub(super) fn new() -> Slot {
        Slot {
            pid: AtomicU32::new(0),
            beat: AtomicU32::new(0),
            lease: AtomicU64::new(0),
            wants: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }
}
