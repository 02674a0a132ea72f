//! Requests that the program has received but not answered, and messages that found no room in the program's
//! buffers. The descriptor becomes readable when there is room for such a message. Pages are given back by
//! the program, and by threads of the transport for messages that never became complete.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homa::Request;
use homa::kernel_api::ReadinessFd;

use crate::open_requests::OpenRequests;
use crate::pending_message::PendingMessage;

/// Maximum number of messages that are held because they have no room, not counting outcomes of private
/// calls. Further messages stay in the transport.
const MAX_HELD: usize = 64;

/// The [module](self)'s queue. It holds no reference to the transport, so that any thread of the transport
/// may drop the last reference to the queue.
pub(crate) struct DeliveryQueue {
    state: Mutex<QueueState>,
    /// Whether messages are held. Programs that always have room, as most do, read this instead of taking the
    /// lock.
    holds: AtomicBool,
    signal: Arc<ReadinessFd>,
    shut: AtomicBool,
}

/// The messages that the program has received or is to receive.
#[derive(Default)]
pub(crate) struct QueueState {
    /// Unanswered requests.
    pub(crate) in_hand: OpenRequests<Request>,
    /// The error with which each call was aborted.
    pub(crate) aborted: HashMap<u64, i32>,
    /// Messages that found no room in the program's buffers, the shortest first.
    pub(crate) held: Vec<PendingMessage>,
    /// Private calls whose outcome a thread may have taken but not yet stored.
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

    /// Locks the state. While it is locked, only functions of the transport that never call the message
    /// memory may be called, since the message memory takes this lock.
    pub(crate) fn state(&self) -> QueueGuard<'_> {
        QueueGuard { state: self.state.lock().unwrap_or_else(PoisonError::into_inner), holds: &self.holds }
    }

    /// Returns whether messages are held. The result may already be out of date.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(SeqCst)
    }

    /// Returns whether the socket was shut down.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(SeqCst)
    }

    /// Marks the socket as shut down. Returns `false` if it already was.
    pub(crate) fn shut(&self) -> bool {
        !self.shut.swap(true, SeqCst)
    }

    /// Drops all requests and messages.
    pub(crate) fn clear(&self) {
        let state = std::mem::take(&mut *self.state());
        // Dropping requests takes the transport's lock, and dropping messages gives buffers back.
        drop(state);
    }

    /// Holds a message that has no room. Returns whether it is the only held message that is not private.
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

    /// Returns whether the maximum number of messages is held.
    pub(crate) fn is_full(&self) -> bool {
        self.holds() && self.state().is_full()
    }

    /// Updates the state that the descriptor is to show, and returns whether it has changed. While the
    /// maximum number of messages is held, messages in the transport cannot be received, and poll must report
    /// only receivable messages. The state is updated under the lock, so that updates are in order. The
    /// descriptor is written without the lock, since the write may tear down the socket, which takes the
    /// lock.
    fn note(&self, state: &QueueState) -> bool {
        let has_room = state.held.iter().any(|held| held.shown && !held.is_private());
        self.signal.stage(has_room || self.is_shut(), state.is_full())
    }

    /// Makes the descriptor readable while there is room for a held message: poll must neither miss such a
    /// message nor report one without room. `has_room` tells whether there is room for a number of bytes.
    /// Returns whether a message that had no room before has room now.
    pub(crate) fn show(&self, has_room: impl Fn(usize) -> bool) -> bool {
        let mut state = self.state();
        let mut has_news = false;
        for held in state.held.iter_mut().filter(|held| !held.is_private()) {
            let has_room = has_room(held.length());
            // For the kernel's poll, a message arrives when there is first room for it.
            has_news |= has_room && !held.shown;
            held.shown = has_room;
        }
        let changed = self.note(&state);
        drop(state);
        if changed || has_news {
            self.signal.update(has_news);
        }
        has_news
    }

    /// Claims the outcome of a private call. A thread holds the returned guard from before it takes the
    /// outcome until the outcome has been stored.
    pub(crate) fn placing(&self, id: u64) -> OutcomeClaim<'_> {
        self.state().placing.push(id);
        OutcomeClaim { deliveries: self, id }
    }

    /// Returns whether the outcome of this private call is held because it has no room, or may be held soon.
    pub(crate) fn may_hold_private(&self, id: u64) -> bool {
        let state = self.state();
        state.placing.contains(&id) || state.holds_private(id)
    }
}

/// The locked state.
pub(crate) struct QueueGuard<'a> {
    state: MutexGuard<'a, QueueState>,
    holds: &'a AtomicBool,
}

impl Deref for QueueGuard<'_> {
    type Target = QueueState;

    fn deref(&self) -> &QueueState {
        &self.state
    }
}

impl DerefMut for QueueGuard<'_> {
    fn deref_mut(&mut self) -> &mut QueueState {
        &mut self.state
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let holds = !self.state.held.is_empty();
        // Written only on a change: other threads read this cache line.
        if self.holds.load(Relaxed) != holds {
            self.holds.store(holds, SeqCst);
        }
    }
}

impl QueueState {
    /// Returns whether the maximum number of messages is held. Outcomes of private calls do not count: their
    /// number is limited by the number of calls that the program has started, and they do not keep other
    /// messages from being received.
    fn is_full(&self) -> bool {
        self.held.iter().filter(|held| !held.is_private()).count() >= MAX_HELD
    }

    /// Returns whether the outcome of this private call is held because it has no room.
    pub(crate) fn holds_private(&self, id: u64) -> bool {
        self.held.iter().any(|held| held.is_private() && held.id() == id)
    }
}

/// The claim of a thread that may have the outcome of a private call.
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
