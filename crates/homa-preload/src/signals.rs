//! Signals that come while a call waits: the call ends with EINTR, whatever SA_RESTART says, as the kernel's Homa has it.
//!
//! A handler that runs while this library spins leaves no mark, so that signals are held back from the moment at which a call begins to wait,
//! but for its sleeps in the kernel, which take the thread's own mask along. It costs two system calls, and only in programs that have a
//! handler. The first millisecond is waited as in any program, and a signal may come so late; only what takes longer needs somebody else
//! to drive the network.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::descriptor_table::ProcessState;

/// The program has a handler for some signal.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Threads that had begun to wait before were told so.
static RECALLED: AtomicBool = AtomicBool::new(false);

/// How often threads are told that there is a handler now, and how long they have to notice.
const RECALLS: u32 = 100;
const BETWEEN_RECALLS: Duration = Duration::from_micros(100);

/// Signals of a thread's own mistakes, which cannot wait.
const OWN_FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// The program is about to say what is to become of a signal. The first handler is made known to threads that wait already.
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
    // The handlers of a child that shares this memory for a moment (vfork) are its own. The parent's threads hold their signals back from
    // now on for nothing, and are still to be told when it has a handler. A child that has memory of its own (fork) has no world.
    if world.is_some_and(|world| !world.is_mine()) || RECALLED.swap(true, SeqCst) {
        return;
    }
    crate::ffi_border::answer(|| {
        world.inspect(|world| recall(world));
        Ok(0)
    });
}

/// Has all threads that receive hold their signals back. A thread may be about to wait, or never to, so that this is not tried for ever.
fn recall(world: &ProcessState) {
    for _ in 0..RECALLS {
        let unaware = world.all().iter().filter(|socket| socket.recall()).count();
        if unaware == 0 {
            return;
        }
        std::thread::sleep(BETWEEN_RECALLS);
    }
}

/// Signals are held back while this lives.
pub(crate) struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Holds back all signals.
    pub(crate) fn all() -> BlockedSignals {
        // SAFETY: a set of signals is plain numbers, and sigfillset makes it whole.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut before = all;
        // SAFETY: both sets live through the calls, which cannot fail with these arguments.
        unsafe {
            libc::sigfillset(&mut all);
            OWN_FAULTS.iter().for_each(|signal| {
                libc::sigdelset(&mut all, *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        }
        BlockedSignals { before }
    }

    /// The same where the program could notice.
    pub(crate) fn if_handled() -> Option<BlockedSignals> {
        HANDLED.load(SeqCst).then(BlockedSignals::all)
    }

    /// The mask that the thread had before, with which it sleeps.
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.before
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set lives through the call, and no other is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
