//! The threads in a receive call of a socket, and the end of the last one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The receiving threads of a socket.
#[derive(Default)]
pub(crate) struct Receivers {
    threads: AtomicUsize,
    /// Number of receiving threads that block their signals.
    blocking_signals: AtomicUsize,
    /// Number of times that the threads were woken to check again.
    recalls: AtomicUsize,
    /// Whether the program has closed its last descriptor of the socket.
    closed: AtomicBool,
}

impl Receivers {
    /// Adds the calling thread.
    pub(crate) fn enter(&self) {
        self.threads.fetch_add(1, SeqCst);
    }

    /// Removes the calling thread. Returns whether it was the last one of a closed socket.
    pub(crate) fn leave(&self) -> bool {
        self.threads.fetch_sub(1, SeqCst) == 1 && self.closed.load(SeqCst)
    }

    /// Records that the program has closed its last descriptor. Returns whether no thread is receiving.
    pub(crate) fn close(&self) -> bool {
        self.closed.store(true, SeqCst);
        self.threads.load(SeqCst) == 0
    }

    /// Records that the calling thread blocks its signals.
    pub(crate) fn block_signals(&self) {
        self.blocking_signals.fetch_add(1, SeqCst);
    }

    /// Records that the calling thread, which blocked its signals, leaves.
    pub(crate) fn unblock_signals(&self) {
        self.blocking_signals.fetch_sub(1, SeqCst);
    }

    /// Whether a thread is receiving without blocking its signals.
    pub(crate) fn any_takes_signals(&self) -> bool {
        self.threads.load(SeqCst) > self.blocking_signals.load(SeqCst)
    }

    /// Number of recalls so far. A thread that waits must check again when the number changes.
    pub(crate) fn recalls(&self) -> usize {
        self.recalls.load(SeqCst)
    }

    /// Makes the waiting threads check again. They must be woken afterwards.
    pub(crate) fn recall(&self) {
        self.recalls.fetch_add(1, SeqCst);
    }
}
