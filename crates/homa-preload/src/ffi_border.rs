//! The C boundary: errors become numbers, and no panic crosses it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::own_descriptors::LibraryCall;

/// Why a call failed: the errno for the program, and a text for HOMAIOCINFO, which is empty if the errno
/// suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: i32,
    pub(crate) text: &'static str,
}

impl Refusal {
    pub(crate) const fn new(errno: i32, text: &'static str) -> Refusal {
        Refusal { errno, text }
    }

    /// Returns a failure that leaves the previous error text unchanged.
    pub(crate) const fn plain(errno: i32) -> Refusal {
        Refusal { errno, text: "" }
    }
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: libc's pointer to errno is valid as long as the thread exists.
    unsafe { *libc::__errno_location() = errno }
}

/// Returns the calling thread's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: libc's pointer to errno is valid as long as the thread exists.
    unsafe { *libc::__errno_location() }
}

unsafe extern "C-unwind" {
    pub(crate) fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`, which has the same value in glibc and musl.
const CANCEL_DISABLE: c_int = 1;

/// A guard: while it exists, cancellation of this thread is deferred. To end a thread, the C library would
/// unwind its stack through frames of this library that hold locks.
struct CancellationGuard(c_int);

impl CancellationGuard {
    fn new() -> CancellationGuard {
        let mut before = 0;
        // SAFETY: the state is a valid one, and `before` has room for the previous state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        CancellationGuard(before)
    }
}

impl Drop for CancellationGuard {
    fn drop(&mut self) {
        // SAFETY: the state is the thread's previous one.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// Runs `body` and converts its result for C. A panic is a bug of this library: the program gets EIO and
/// keeps running.
pub(crate) fn answer(body: impl FnOnce() -> Result<isize, Refusal>) -> isize {
    let before = errno();
    let _not_cancelled = CancellationGuard::new();
    let _working = LibraryCall::begin();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Refusal::plain(libc::EIO)));
    match result {
        Ok(value) => {
            // A successful call does not change errno.
            set_errno(before);
            value
        }
        Err(refusal) => {
            set_errno(refusal.errno);
            -1
        }
    }
}

/// Like [`answer`], for functions that return an int.
pub(crate) fn answer_int(body: impl FnOnce() -> Result<i32, Refusal>) -> i32 {
    answer(|| body().map(|value| value as isize)) as i32
}
