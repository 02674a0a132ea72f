//! The process that owns the library's state. This module imports no other module of the library, since both
//! the table of sockets and the marks of the library's own descriptors depend on the owner.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// Number of descriptors that the library can track: the kernel's default limit for a process.
pub(crate) const MAX_DESCRIPTORS: usize = 1 << 20;

/// ID of the process that created the state; 0 if there is no state, as in a child after fork.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The owner of the state, as seen by the calling process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateOwner {
    /// There is no state.
    Nobody,
    ThisProcess,
    /// The parent owns the state. A vfork child finds this while it shares the parent's memory.
    Parent,
}

/// Returns the owner of the state.
pub(crate) fn state_owner() -> StateOwner {
    match OWNER.load(Acquire) {
        0 => StateOwner::Nobody,
        id if id == std::process::id() => StateOwner::ThisProcess,
        _ => StateOwner::Parent,
    }
}

/// Makes the calling process the owner of the state.
pub(crate) fn own_state() {
    OWNER.store(std::process::id(), Release);
}

/// Clears the owner in a new child, which starts without a state.
pub(crate) fn disown_state() {
    OWNER.store(0, Release);
}
