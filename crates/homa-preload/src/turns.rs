//! Calls that wait, in turns. Between two turns the thread sleeps at the border to C, where nothing of this
//! library's is on its stack: there the program may end the thread, by `pthread_cancel` or by `pthread_exit`
//! in a signal handler. Both unwind the stack by force, which frames of Rust with something to drop do not
//! survive. So a call that is not over lies in the thread's own store meanwhile, which the end of the thread
//! drops.

use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use libc::sigset_t;

use crate::ffi_border::{Refusal, answer, errno, set_errno};
use crate::own_descriptors::LibraryCall;
use crate::real;
use crate::receive::RecvCall;
use crate::send::Sending;
use crate::signals::BlockedSignals;

unsafe extern "C-unwind" {
    pub(crate) fn pthread_testcancel();
}

/// How a thread sleeps between two turns.
#[derive(Clone, Copy)]
pub(crate) struct SleepBetweenTurns {
    /// Ends the sleep when it is readable; -1: none.
    fd: c_int,
    /// `None`: as long as nothing ends it.
    timeout: Option<Duration>,
}

/// What a turn comes to.
pub(crate) enum TurnOutcome {
    /// The call is over, and returns this.
    Over(isize),
    /// It waits.
    SleepBetweenTurns(SleepBetweenTurns),
}

/// Why a turn has no result.
pub(crate) enum TurnError {
    Refused(Refusal),
    SleepBetweenTurns(SleepBetweenTurns),
}

impl From<Refusal> for TurnError {
    fn from(refusal: Refusal) -> TurnError {
        TurnError::Refused(refusal)
    }
}

impl SleepBetweenTurns {
    pub(crate) fn new(fd: c_int, timeout: Option<Duration>) -> SleepBetweenTurns {
        SleepBetweenTurns { fd, timeout }
    }

    /// Sleeps with the thread's own mask, where its signals are held back in turns; whether a handler ran that
    /// ends the call then. The thread may end here.
    fn sleep(&self, mask: Option<&sigset_t>) -> bool {
        if mask.is_none() && self.timeout == Some(Duration::ZERO) {
            // SAFETY: the stack has nothing that is to be dropped, up to the program's frames.
            unsafe { pthread_testcancel() };
            return false;
        }
        let mut entry = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        let timeout = self.timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let place = mask.map_or(ptr::null(), ptr::from_ref);
        let before = errno();
        // SAFETY: what is pointed to lives through the call.
        let result = unsafe { real::ppoll(&mut entry, 1, timeout, place) };
        let interrupted = result < 0 && errno() == libc::EINTR && mask.is_some();
        set_errno(before);
        interrupted
    }
}

/// A call of this thread's that sleeps.
pub(crate) enum SleepingCall {
    RecvCall(RecvCall),
    Sending(Sending),
}

impl SleepingCall {
    /// The thread's own mask, where the call holds its signals back.
    fn mask(&self) -> Option<sigset_t> {
        match self {
            SleepingCall::RecvCall(receiving) => receiving.signals.as_ref(),
            SleepingCall::Sending(sending) => sending.signals.as_ref(),
        }
        .map(BlockedSignals::before)
    }
}

/// Calls of a thread that sleep, the latest last: a signal handler may call within the nap of another call.
struct SleepingCalls(Vec<SleepingCall>);

impl Drop for SleepingCalls {
    fn drop(&mut self) {
        // What the last hand on a socket closes is the library's to close.
        let _working = LibraryCall::begin();
        self.0.clear();
    }
}

thread_local! {
    static STORE: RefCell<SleepingCalls> = const { RefCell::new(SleepingCalls(Vec::new())) };
}

/// Where a call lies that sleeps.
#[derive(Clone, Copy)]
pub(crate) struct SleepSlot(usize);

/// Takes a call up again. Those behind it are of handlers that never returned.
fn take(place: SleepSlot) -> Option<SleepingCall> {
    STORE.with(|store| {
        let store = &mut store.borrow_mut().0;
        store.truncate(place.0 + 1);
        store.pop()
    })
}

fn park(call: SleepingCall) -> SleepSlot {
    STORE.with(|store| {
        let store = &mut store.borrow_mut().0;
        store.push(call);
        SleepSlot(store.len() - 1)
    })
}

/// What a turn was, in numbers.
#[derive(Clone, Copy)]
enum TurnCode {
    Over(isize),
    Sleeps(SleepSlot, SleepBetweenTurns, Option<sigset_t>),
}

/// Makes a call in turns until it is over. `turn` gets the call as it was left, `None` at first, and whether
/// a handler has ended its nap; it returns the call with what the turn came to.
///
/// This is a cancellation point: `turn` must hold nothing that is to be dropped.
pub(crate) fn call(
    turn: impl Fn(Option<SleepingCall>, bool) -> Result<(SleepingCall, TurnOutcome), Refusal>,
) -> isize {
    // SAFETY: the stack has nothing that is to be dropped, up to the program's frames.
    unsafe { pthread_testcancel() };
    let (mut place, mut interrupted) = (None, false);
    loop {
        match one_turn(&turn, place, interrupted) {
            TurnCode::Over(value) => return value,
            TurnCode::Sleeps(at, nap, mask) => {
                place = Some(at);
                interrupted = nap.sleep(mask.as_ref());
            }
        }
    }
}

#[inline(never)]
fn one_turn(
    turn: impl Fn(Option<SleepingCall>, bool) -> Result<(SleepingCall, TurnOutcome), Refusal>,
    place: Option<SleepSlot>,
    interrupted: bool,
) -> TurnCode {
    let mut sleeps = None;
    let value = answer(|| {
        let (call, step) = turn(place.and_then(take), interrupted)?;
        match step {
            TurnOutcome::Over(value) => Ok(value),
            TurnOutcome::SleepBetweenTurns(nap) => {
                let mask = call.mask();
                sleeps = Some((park(call), nap, mask));
                Ok(0)
            }
        }
    });
    match sleeps {
        Some((place, nap, mask)) => TurnCode::Sleeps(place, nap, mask),
        None => TurnCode::Over(value),
    }
}
