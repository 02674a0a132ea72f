//! Waiting calls run in turns. Between two turns the thread sleeps at the border to C, with no frame of this
//! library that has destructors on its stack. There the program may end the thread, by `pthread_cancel` or by
//! `pthread_exit` in a signal handler. Both unwind the stack by force, which Rust frames with destructors do
//! not survive. Hence an unfinished call is stored in a thread-local variable meanwhile, which the end of the
//! thread drops.

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
    /// The sleep ends when this descriptor is readable; -1: none.
    fd: c_int,
    /// `None` is unlimited.
    timeout: Option<Duration>,
}

/// The outcome of a turn.
pub(crate) enum TurnOutcome {
    /// The call is over, and returns this.
    Over(isize),
    /// The call waits.
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

    /// Sleeps, with the thread's own mask if the call blocks its signals; returns whether a handler ran that
    /// ends the call. The thread may end here.
    fn sleep(&self, mask: Option<&sigset_t>) -> bool {
        if mask.is_none() && self.timeout == Some(Duration::ZERO) {
            // SAFETY: no frame on the stack has a destructor, up to the program's frames.
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
        // SAFETY: all pointers are NULL or to values that live through the call.
        let result = unsafe { real::ppoll(&mut entry, 1, timeout, place) };
        let interrupted = result < 0 && errno() == libc::EINTR && mask.is_some();
        set_errno(before);
        interrupted
    }
}

/// A sleeping call of this thread.
pub(crate) enum SleepingCall {
    RecvCall(RecvCall),
    Sending(Sending),
}

impl SleepingCall {
    /// The thread's own mask, if the call blocks its signals.
    fn mask(&self) -> Option<sigset_t> {
        match self {
            SleepingCall::RecvCall(receiving) => receiving.signals.as_ref(),
            SleepingCall::Sending(sending) => sending.signals.as_ref(),
        }
        .map(BlockedSignals::before)
    }
}

/// Sleeping calls of a thread, the latest last: a signal handler may call while another call sleeps.
struct SleepingCalls(Vec<SleepingCall>);

impl Drop for SleepingCalls {
    fn drop(&mut self) {
        // Dropping the last handle of a socket closes descriptors of the library.
        let _working = LibraryCall::begin();
        self.0.clear();
    }
}

thread_local! {
    static STORE: RefCell<SleepingCalls> = const { RefCell::new(SleepingCalls(Vec::new())) };
}

/// The place of a sleeping call.
#[derive(Clone, Copy)]
pub(crate) struct SleepSlot(usize);

/// Takes a sleeping call. Later ones belong to handlers that never returned.
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

/// The outcome of a turn in plain numbers, without destructors.
#[derive(Clone, Copy)]
enum TurnCode {
    Over(isize),
    Sleeps(SleepSlot, SleepBetweenTurns, Option<sigset_t>),
}

/// Runs a call in turns until it is over. `turn` gets the sleeping call, `None` at first, and whether a
/// handler ended its sleep. It returns the call and the outcome of the turn.
///
/// This is a cancellation point: when `turn` returns, no frame may have a destructor.
pub(crate) fn call(
    turn: impl Fn(Option<SleepingCall>, bool) -> Result<(SleepingCall, TurnOutcome), Refusal>,
) -> isize {
    // SAFETY: no frame on the stack has a destructor, up to the program's frames.
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
