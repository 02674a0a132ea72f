//! What a socket of the program's has in hand or on the shelf: requests to be answered, and messages for which the program's buffers had no
//! room. The descriptor shows what of the latter has room by now, whoever has made it: pages come back from the program, and from messages
//! that never became whole, by threads of the transport.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homa::Request;
use homa::kernel_api::ReadinessFd;

use crate::open_requests::OpenRequests;
use crate::receive::PendingMessage;
use crate::region::Region;

/// Messages that are held at most because they have no room, but for outcomes of private calls: what comes beyond stays with the transport.
const MOST_HELD: usize = 64;

/// See the [module](self). It has no handle of the transport's, so that any of the transport's threads may be the last to let it go.
pub(crate) struct DeliveryQueue {
    state: Mutex<QueueState>,
    /// Messages are held. Most programs always have room, and need not take the lock to see that nothing is.
    holds: AtomicBool,
    signal: Arc<ReadinessFd>,
    shut: AtomicBool,
}

/// What the program has in hand, or is about to have.
#[derive(Default)]
pub(crate) struct QueueState {
    /// Requests to be answered.
    pub(crate) in_hand: OpenRequests<Request>,
    /// With which error calls were aborted.
    pub(crate) aborted: HashMap<u64, i32>,
    /// Messages for which the program's buffers had no room, the shortest first.
    pub(crate) held: Vec<PendingMessage>,
    /// Private calls whose outcome a thread may have taken that has found no place for it yet.
    placing: Vec<u64>,
}

impl DeliveryQueue {
    pub(crate) fn new(signal: Arc<ReadinessFd>) -> Arc<DeliveryQueue> {
        Arc::new(DeliveryQueue {
            state: Mutex::default(),
            holds: AtomicBool::new(false),
            signal,
            shut: AtomicBool::new(false),
        })
    }

    /// Nothing of the transport is called with it in hand but what runs none of its lenders' code, which asks for it.
    pub(crate) fn state(&self) -> EngineGuard<'_> {
        EngineGuard { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), holds: &self.holds }
    }

    /// Whether messages are held, or were a moment ago.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(SeqCst)
    }

    /// The socket was shut down.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(SeqCst)
    }

    /// The socket is shut down: the descriptor says so from now on. `false` where it was.
    pub(crate) fn shut(&self) -> bool {
        !self.shut.swap(true, SeqCst)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let state = std::mem::take(&mut *self.state());
        // Requests are given up, which takes the transport's lock, and buffers go back.
        drop(state);
    }

    /// Holds a message that has no room; whether it is the first one that is not private.
    pub(crate) fn hold(&self, message: PendingMessage) -> bool {
        let mut state = self.state();
        let is_first = !message.is_private() && state.held.iter().all(PendingMessage::is_private);
        let at = state.held.partition_point(|held| held.length() <= message.length());
        state.held.insert(at, message);
        let changed = self.note(&state);
        drop(state);
        if changed {
            self.signal.update(false);
        }
        is_first
    }

    /// Whether as many are held as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.holds() && self.state().is_full()
    }

    /// Notes what the descriptor is to show; whether that is something else than before. What lies with the transport cannot be received while
    /// as many are held as may be, and to the kernel's poll only what can be is there. Noted under the lock, lest an older answer comes
    /// after a newer one; to be shown without it, since the socket may end by that, which takes it.
    fn note(&self, state: &QueueState) -> bool {
        let has_room = state.held.iter().any(|held| held.shown && !held.is_private());
        self.signal.stage(has_room || self.is_shut(), state.is_full())
    }

    /// Has the descriptor readable while there is room for a message that is held: a poll must not miss what has room by now, nor find what
    /// has none. Whether there is one that had none.
    pub(crate) fn show(&self, region: &Region) -> bool {
        let mut state = self.state();
        let mut anew = false;
        for held in state.held.iter_mut().filter(|held| !held.is_private()) {
            let has_room = region.pages().has_room(held.length());
            // To the kernel it arrives when it has room.
            anew |= has_room && !held.shown;
            held.shown = has_room;
        }
        let changed = self.note(&state);
        drop(state);
        if changed || anew {
            self.signal.update(anew);
        }
        anew
    }

    /// To be kept by a thread from before it takes the outcome of a private call until that has a place.
    pub(crate) fn placing(&self, id: u64) -> OutcomeClaim<'_> {
        self.state().placing.push(id);
        OutcomeClaim { deliveries: self, id }
    }

    /// Whether the outcome of this private call is held for want of room, or may be in a moment.
    pub(crate) fn may_hold_private(&self, id: u64) -> bool {
        let state = self.state();
        state.placing.contains(&id) || state.holds_private(id)
    }
}

/// The state, locked.
pub(crate) struct EngineGuard<'a> {
    state: MutexGuard<'a, QueueState>,
    holds: &'a AtomicBool,
}

impl Deref for EngineGuard<'_> {
    type Target = QueueState;

    fn deref(&self) -> &QueueState {
        &self.state
    }
}

impl DerefMut for EngineGuard<'_> {
    fn deref_mut(&mut self) -> &mut QueueState {
        &mut self.state
    }
}

impl Drop for EngineGuard<'_> {
    fn drop(&mut self) {
        let holds = !self.state.held.is_empty();
        // Written only where it changed: others read it.
        if self.holds.load(Relaxed) != holds {
            self.holds.store(holds, SeqCst);
        }
    }
}

impl QueueState {
    /// Of private calls there are no more than the program has begun, and they keep nobody from receiving others.
    fn is_full(&self) -> bool {
        self.held.iter().filter(|held| !held.is_private()).count() >= MOST_HELD
    }

    /// Whether the outcome of this private call is held for want of room.
    pub(crate) fn holds_private(&self, id: u64) -> bool {
        self.held.iter().any(|held| held.is_private() && held.id() == id)
    }
}

/// A thread that may have the outcome of a private call.
pub(crate) struct OutcomeClaim<'a> {
    deliveries: &'a DeliveryQueue,
    id: u64,
}

impl Drop for OutcomeClaim<'_> {
    fn drop(&mut self) {
        let mut state = self.deliveries.state();
        if let Some(at) = state.placing.iter().position(|id| *id == self.id) {
            state.placing.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_without_its_lock_whether_it_holds_messages() {
        let deliveries = DeliveryQueue::new(ReadinessFd::from_eventfd().unwrap());
        assert!(!deliveries.holds());
        deliveries.hold(PendingMessage::response(2, 100));
        deliveries.hold(PendingMessage::response(4, 100));
        assert!(deliveries.holds());
        let first = deliveries.state().held.remove(0);
        assert!(deliveries.holds(), "{} is still there", first.id());
        deliveries.clear();
        assert!(!deliveries.holds() && !deliveries.is_full());
    }
}
