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
use std::time::Duration;

use crate::descriptor_table::ProcessState;

/// Whether the program has a handler for some signal.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Whether threads that had begun to wait before were notified.
static RECALLED: AtomicBool = AtomicBool::new(false);

/// How often threads are notified that there is a handler, and how long they have to notice.
const RECALLS: u32 = 100;
const BETWEEN_RECALLS: Duration = Duration::from_micros(100);

/// Signals for errors of the thread itself, which cannot be deferred.
const OWN_FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// Called before the program sets the action of a signal. The first handler is announced to threads that
/// already wait.
pub(crate) fn note(signal: c_int, action: libc::sighandler_t) {
    let handled = action != libc::SIG_DFL && action != libc::SIG_IGN && !OWN_FAULTS.contains(&signal);
    if !handled {
        return;
    }
    HANDLED.store(true, SeqCst);
    if RECALLED.load(SeqCst) {
        return;
    }
    let world = ProcessState::existing();
    // A vfork child shares this memory for a while, and its handlers are its own. The parent's threads then
    // block their signals without need, and must still be notified when the parent has a handler. A fork
    // child has its own memory and no process state.
    if world.is_some_and(|world| !world.is_mine()) || RECALLED.swap(true, SeqCst) {
        return;
    }
    crate::ffi_border::answer(|| {
        world.inspect(|world| recall(world));
        Ok(0)
    });
}

/// Notifies all receiving threads so that they block their signals. It gives up after some attempts, since a
/// thread may be about to wait or may never wait.
fn recall(world: &ProcessState) {
    for _ in 0..RECALLS {
        let unaware = world.all().iter().filter(|socket| socket.recall()).count();
        if unaware == 0 {
            return;
        }
        std::thread::sleep(BETWEEN_RECALLS);
    }
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
