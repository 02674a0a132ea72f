//! The outcome of one turn of a waiting call, and the sleep until the next turn.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use libc::sigset_t;

use crate::ffi_border::{Refusal, errno, pthread_testcancel, set_errno};
use crate::real;

/// How a thread sleeps between two turns.
#[derive(Clone, Copy)]
pub(crate) struct SleepBetweenTurns {
    /// The sleep ends when this descriptor is readable; -1 if there is none.
    fd: c_int,
    /// `None` is unlimited.
    timeout: Option<Duration>,
}

/// The outcome of a turn.
pub(crate) enum TurnOutcome {
    /// The call is over and returns this value.
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

    /// Sleeps, with `mask` if the call blocks signals. Returns whether a handler ran, which ends the call
    /// with EINTR. The thread may be cancelled here.
    pub(crate) fn sleep(&self, mask: Option<&sigset_t>) -> bool {
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
        // SAFETY: all pointers are NULL or to values that outlive the call.
        let result = unsafe { real::ppoll(&mut entry, 1, timeout, place) };
        let interrupted = result < 0 && errno() == libc::EINTR && mask.is_some();
        set_errno(before);
        interrupted
    }
}
