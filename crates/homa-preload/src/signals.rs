//! Signals that arrive while a call waits: the call fails with EINTR, even with SA_RESTART, as with the
//! kernel's Homa.
//!
//! The library could not detect that a handler ran while the thread was spinning. Signals are therefore
//! blocked from the moment a call begins to wait, except while it sleeps in the kernel with the thread's own
//! mask. This costs two system calls, and only in programs with a handler. The first millisecond of a wait is
//! the same as without a handler, and may delay a signal by that long. Only during a longer wait must the
//! progress thread drive the network.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use libc::sigset_t;

/// The signals that have ever had a handler, including fault signals: one bit for each, starting with signal
/// 1.
static EVER_HANDLED: AtomicU64 = AtomicU64::new(0);

/// The signals that have a handler now.
static NOW_HANDLED: AtomicU64 = AtomicU64::new(0);

/// Whether some handler may run with its own signal unblocked.
static NESTS: AtomicBool = AtomicBool::new(false);

/// Counts the threads that drive in poll without blocking signals.
static UNBLOCKED_TURNS: AtomicUsize = AtomicUsize::new(0);

/// Signals that a thread raises by its own faults, which cannot be deferred.
const OWN_FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

const OWN_FAULT_BITS: u64 = {
    let (mut bits, mut at) = (0, 0);
    while at < OWN_FAULTS.len() {
        bits |= 1 << (OWN_FAULTS[at] - 1);
        at += 1;
    }
    bits
};

/// What the action of a signal means for threads that wait or drive.
#[derive(Clone, Copy, Default)]
pub(crate) struct NotedAction {
    /// Whether this is the program's first handler, so that threads that drive in poll have blocked no
    /// signal.
    pub(crate) is_first: bool,
    /// Whether this is a handler that requires waiting threads to block their signals.
    pub(crate) must_be_deferred: bool,
}

/// Records that the program sets the action of a signal. `nests`: whether the handler runs with its own
/// signal unblocked. A number that is not a signal is ignored: the kernel reports the error.
pub(crate) fn note_action(signal: c_int, action: libc::sighandler_t, nests: bool) -> NotedAction {
    let Some(bit) = bit_of(signal) else { return NotedAction::default() };
    if action == libc::SIG_DFL || action == libc::SIG_IGN {
        NOW_HANDLED.fetch_and(!bit, SeqCst);
        return NotedAction::default();
    }
    if nests {
        NESTS.store(true, SeqCst);
    }
    NOW_HANDLED.fetch_or(bit, SeqCst);
    let is_first = EVER_HANDLED.fetch_or(bit, SeqCst) == 0;
    NotedAction { is_first, must_be_deferred: bit & !OWN_FAULT_BITS != 0 }
}

fn bit_of(signal: c_int) -> Option<u64> {
    (1..=64).contains(&signal).then(|| 1 << (signal - 1))
}

/// Returns the signals that these bits represent.
fn signals_of(bits: u64) -> impl Iterator<Item = c_int> {
    (1..=64).filter(move |signal| bits >> (signal - 1) & 1 == 1)
}

fn contains(set: &sigset_t, signal: c_int) -> bool {
    // SAFETY: the set is initialised, and the function only reads it.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Returns whether any signal has ever had a handler.
pub(crate) fn ever_handled() -> bool {
    EVER_HANDLED.load(SeqCst) != 0
}

/// Returns the number of threads that drive in poll without blocking signals.
pub(crate) fn unblocked_turns() -> usize {
    UNBLOCKED_TURNS.load(SeqCst)
}

/// The signals that a thread in poll blocks while it drives, since they have handlers. The type has no
/// destructor, since the thread may end between two turns.
#[derive(Clone, Copy)]
pub(crate) struct HeldSignals {
    /// The signals that had ever had a handler when this was created.
    known: u64,
    /// The thread's previous mask, if signals were blocked.
    before: Option<sigset_t>,
}

impl HeldSignals {
    /// Blocks the signals that have handlers. Returns `None` if one of them is already blocked: the thread
    /// may then be running a handler, which must not drive.
    pub(crate) fn hold() -> Option<HeldSignals> {
        let known = EVER_HANDLED.load(SeqCst);
        if known == 0 {
            return Some(HeldSignals { known, before: None });
        }
        if NESTS.load(SeqCst) {
            return None;
        }
        // SAFETY: a signal set consists of numbers, and sigemptyset initialises it.
        let mut handled: sigset_t = unsafe { std::mem::zeroed() };
        let mut before = handled;
        // SAFETY: both sets are valid, and the calls cannot fail with these arguments.
        unsafe {
            libc::sigemptyset(&mut handled);
            for signal in signals_of(NOW_HANDLED.load(SeqCst) & !OWN_FAULT_BITS) {
                libc::sigaddset(&mut handled, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &handled, &mut before);
        }
        let held = HeldSignals { known, before: Some(before) };
        if signals_of(known).any(|signal| contains(&before, signal)) {
            held.release();
            return None;
        }
        Some(held)
    }

    /// Restores the thread's mask.
    pub(crate) fn release(&self) {
        if let Some(before) = &self.before {
            // SAFETY: the set is the thread's previous one, and the third argument may be NULL.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }

    /// Returns the mask with which the thread sleeps unless the program's call specifies one; null means the
    /// current mask.
    pub(crate) fn mask(&self) -> *const sigset_t {
        self.before.as_ref().map_or(ptr::null(), ptr::from_ref)
    }

    /// Returns whether a signal is pending that would be delivered during a sleep with this mask.
    pub(crate) fn has_pending(&self, mask: Option<&sigset_t>) -> bool {
        if self.before.is_none() {
            return false;
        }
        // SAFETY: a signal set consists of numbers, and sigpending initialises it.
        let mut pending: sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set has room for the result.
        let known = unsafe { libc::sigpending(&mut pending) } == 0;
        let admits = |signal| !mask.is_some_and(|mask| contains(mask, signal));
        known && signals_of(self.known).any(|signal| contains(&pending, signal) && admits(signal))
    }

    /// Begins a turn of driving.
    pub(crate) fn begin_turn(&self) -> DrivingTurn {
        // Counted before the check: a thread that installs a handler later waits until this turn is over.
        let counted = self.before.is_none();
        UNBLOCKED_TURNS.fetch_add(usize::from(counted), SeqCst);
        DrivingTurn { known: self.known, counted }
    }
}

/// A turn of driving in poll.
pub(crate) struct DrivingTurn {
    known: u64,
    counted: bool,
}

impl DrivingTurn {
    /// Returns whether the program has since installed a handler for another signal, which is not blocked.
    pub(crate) fn is_over(&self) -> bool {
        EVER_HANDLED.load(SeqCst) != self.known
    }
}

impl Drop for DrivingTurn {
    fn drop(&mut self) {
        UNBLOCKED_TURNS.fetch_sub(usize::from(self.counted), SeqCst);
    }
}

/// A guard: while it exists, the thread's signals are blocked.
pub(crate) struct BlockedSignals {
    before: sigset_t,
}

impl BlockedSignals {
    /// Blocks all signals except those that a thread raises by its own faults.
    pub(crate) fn all() -> BlockedSignals {
        // SAFETY: a signal set consists of numbers, and sigfillset initialises it.
        let mut all: sigset_t = unsafe { std::mem::zeroed() };
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

    /// Blocks the same signals as [`all`](BlockedSignals::all) if the program has a handler.
    pub(crate) fn if_handled() -> Option<BlockedSignals> {
        (EVER_HANDLED.load(SeqCst) & !OWN_FAULT_BITS != 0).then(BlockedSignals::all)
    }

    /// Returns the thread's previous mask, with which it sleeps.
    pub(crate) fn before(&self) -> sigset_t {
        self.before
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the thread's previous one, and the third argument may be NULL.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
