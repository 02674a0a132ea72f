//! Runs waiting calls in turns. Between two turns the thread sleeps at the C boundary, and no frame of this
//! library on its stack has destructors. At that point the program may end the thread, by `pthread_cancel` or
//! by `pthread_exit` in a signal handler. Both unwind the stack by force, which Rust frames with destructors
//! do not survive. During the sleep, the unfinished call is therefore stored in a thread-local variable,
//! which is dropped when the thread ends.

use std::cell::RefCell;

use libc::sigset_t;

use crate::ffi_border::{Refusal, answer, pthread_testcancel};
use crate::own_descriptors::LibraryCall;
use crate::receive::RecvCall;
use crate::send::Sending;
use crate::signals::BlockedSignals;
use crate::turn_outcome::{SleepBetweenTurns, TurnOutcome};

/// A sleeping call of this thread.
pub(crate) enum SleepingCall {
    RecvCall(RecvCall),
    Sending(Sending),
}

impl SleepingCall {
    /// Returns the thread's own mask, if the call has blocked signals.
    fn mask(&self) -> Option<sigset_t> {
        match self {
            SleepingCall::RecvCall(receiving) => receiving.signals.as_ref(),
            SleepingCall::Sending(sending) => sending.signals.as_ref(),
        }
        .map(BlockedSignals::before)
    }
}

/// Sleeping calls of a thread, the latest last: while a call sleeps, a signal handler may make another one.
struct SleepingCalls(Vec<SleepingCall>);

impl Drop for SleepingCalls {
    fn drop(&mut self) {
        // Dropping the last reference to a socket closes descriptors of the library.
        let _working = LibraryCall::begin();
        self.0.clear();
    }
}

thread_local! {
    static STORE: RefCell<SleepingCalls> = const { RefCell::new(SleepingCalls(Vec::new())) };
}

/// The index of a sleeping call in the thread's store.
#[derive(Clone, Copy)]
pub(crate) struct SleepSlot(usize);

/// Takes a sleeping call out of the store. Drops later ones, which belong to handlers that never returned.
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

/// The outcome of a turn as plain values without destructors.
#[derive(Clone, Copy)]
enum TurnCode {
    Over(isize),
    Sleeps(SleepSlot, SleepBetweenTurns, Option<sigset_t>),
}

/// Runs a call in turns until it is over. `turn` gets the sleeping call (`None` in the first turn) and
/// whether a handler ended its sleep. It returns the call and the outcome of the turn.
///
/// Each sleep is a cancellation point and, if `may_end`, so is the beginning of the call. No frame may have a
/// destructor while `turn` is not running.
pub(crate) fn call(
    may_end: bool,
    turn: impl Fn(Option<SleepingCall>, bool) -> Result<(SleepingCall, TurnOutcome), Refusal>,
) -> isize {
    if may_end {
        // SAFETY: no frame on the stack has a destructor, up to the program's frames.
        unsafe { pthread_testcancel() };
    }
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
