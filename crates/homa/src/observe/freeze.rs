//! Freezes the time trace of a host: the traces of all its endpoints at the same moment, and those of its
//! peers on request.
//!
//! The freeze state is stored in one place, and each endpoint checks it whenever its lock is taken. Nothing
//! is recorded without the lock, so nothing is recorded after a freeze.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};

use homa_proto::Endpoint;

/// The origin of a freeze: `a` of [`EventKind::Freeze`](homa_trace::EventKind::Freeze).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cause {
    /// This host: by the application, or because of a slow RPC.
    #[default]
    Own = 0,
    /// A FREEZE packet.
    Peer = 1,
}

/// The reason for a freeze.
#[derive(Clone, Copy, Debug, Default)]
struct Reason {
    id: u64,
    cause: Cause,
}

/// Whether a host's trace is frozen. All endpoints of a host share one state.
#[derive(Debug, Default)]
pub(crate) struct FreezeState {
    /// Incremented by each change, so it is odd while the trace is frozen.
    turn: AtomicU32,
    reason: Mutex<Reason>,
}

impl FreezeState {
    pub(crate) fn is_frozen(&self) -> bool {
        self.turn.load(Acquire) % 2 == 1
    }

    /// Freezes the trace for this reason; returns `false` if it was already frozen.
    fn freeze(&self, reason: Reason) -> bool {
        let mut kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.load(Acquire);
        if turn % 2 == 1 {
            return false;
        }
        *kept = reason;
        self.turn.store(turn.wrapping_add(1), Release);
        true
    }

    fn unfreeze(&self) {
        let _kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.load(Acquire);
        if turn % 2 == 1 {
            self.turn.store(turn.wrapping_add(1), Release);
        }
    }

    fn reason(&self) -> Reason {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An endpoint's view of the host's freeze state, and its settings.
#[derive(Debug)]
pub(crate) struct Freezer {
    pub(crate) host: Arc<FreezeState>,
    /// The value of the host's `turn` that was last applied to this endpoint's trace.
    seen: u32,
    /// A call that takes longer than this freezes the trace.
    pub(crate) slower_than_ns: u64,
    /// Whether FREEZE packets freeze the trace.
    pub(crate) obeys: bool,
    /// Whether a freeze that starts at this host is sent to its peers.
    pub(crate) tells_peers: bool,
}

impl Default for Freezer {
    fn default() -> Freezer {
        let host = Arc::default();
        Freezer { host, seen: 0, slower_than_ns: u64::MAX, obeys: false, tells_peers: false }
    }
}

impl Freezer {
    /// Applies the host's freeze state to the trace of this endpoint.
    #[inline]
    pub(crate) fn apply(&mut self, endpoint: &mut Endpoint) {
        let turn = self.host.turn.load(Acquire);
        if turn != self.seen {
            self.follow(turn, endpoint);
        }
    }

    #[cold]
    fn follow(&mut self, turn: u32, endpoint: &mut Endpoint) {
        self.seen = turn;
        if turn.is_multiple_of(2) {
            endpoint.trace().unfreeze();
            return;
        }
        let Reason { id, cause } = self.host.reason();
        if cause == Cause::Own && self.tells_peers {
            endpoint.freeze_peers();
        }
        endpoint.trace().freeze(id, cause as u32);
    }

    /// Freezes the host's trace, unless the trace is disabled or already frozen. Returns whether it did so.
    pub(crate) fn freeze(&mut self, endpoint: &mut Endpoint, id: u64, cause: Cause) -> bool {
        if endpoint.trace().is_off() || !self.host.freeze(Reason { id, cause }) {
            return false;
        }
        self.apply(endpoint);
        true
    }

    pub(crate) fn unfreeze(&mut self, endpoint: &mut Endpoint) {
        self.host.unfreeze();
        self.apply(endpoint);
    }
}
