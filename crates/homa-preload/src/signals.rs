//! Signals that arrive while a call waits: the call ends with EINTR, also with SA_RESTART, as with the
//! kernel's Homa.
//!
//! A handler that runs while this library spins would leave no trace. Hence signals are blocked from the
//! moment a call begins to wait, except during its sleeps in the kernel, which use the thread's own mask.
//! That costs two system calls, and only in programs with a handler. The first millisecond of a wait is the
//! same as without a handler, and a signal may be delayed by it. Only a longer wait needs the progress thread
//! to drive the network.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Whether the program has a handler for some signal.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Signals for errors of the thread itself, which cannot be deferred.
const OWN_FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// Records that the program sets the action of a signal. Returns whether the action is a handler for which
/// threads block their signals.
pub(crate) fn note_action(signal: c_int, action: libc::sighandler_t) -> bool {
    let is_handler = action != libc::SIG_DFL && action != libc::SIG_IGN && !OWN_FAULTS.contains(&signal);
    if is_handler {
        HANDLED.store(true, SeqCst);
    }
    is_handler
}

/// Signals are blocked while this exists.
pub(crate) struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks all signals.
    pub(crate) fn all() -> BlockedSignals {
        // SAFETY: a signal set consists of numbers, and sigfillset initialises it.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut before = all;
        // SAFETY: both sets are valid, and the calls cannot fail with these arguments.
        unsafe {
            libc::sigfillset(&mut all);
            OWN_FAULTS.iter().for_each(|signal| {
                libc::sigdelset(&mut all, *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        }
        BlockedSignals { before }
    }

    /// Blocks all signals if the program has a handler.
    pub(crate) fn if_handled() -> Option<BlockedSignals> {
        HANDLED.load(SeqCst).then(BlockedSignals::all)
    }

    /// The thread's previous mask, with which it sleeps.
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.before
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the thread's previous one, and the third argument may be NULL.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
