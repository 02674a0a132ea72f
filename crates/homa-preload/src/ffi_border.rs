//! The border to C: errors as numbers, and no panic that crosses it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::own_descriptors::LibraryCall;

/// Why a call failed: the number that the program sees, and a text that HOMAIOCINFO shows, empty where the number says it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: i32,
    pub(crate) text: &'static str,
}

impl Refusal {
    pub(crate) const fn new(errno: i32, text: &'static str) -> Refusal {
        Refusal { errno, text }
    }

    /// One that leaves the last text as it is.
    pub(crate) const fn plain(errno: i32) -> Refusal {
        Refusal { errno, text: "" }
    }
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: libc's address of it is good for the whole life of the thread.
    unsafe { *libc::__errno_location() = errno }
}

/// The calling thread's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`, which glibc and musl have alike.
const CANCEL_DISABLE: c_int = 1;

/// While it lives, a program that cancels this thread waits: to end a thread the C library unwinds its stack, through frames of ours that
/// hold locks.
struct CancellationGuard(c_int);

impl CancellationGuard {
    fn new() -> CancellationGuard {
        let mut before = 0;
        // SAFETY: the state is one that there is, and there is room for the one before.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        CancellationGuard(before)
    }
}

impl Drop for CancellationGuard {
    fn drop(&mut self) {
        // SAFETY: the state is the one that the thread had.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// What C gets of a result. A panic is a mistake of this library: it is EIO to the program, which lives on.
pub(crate) fn answer(body: impl FnOnce() -> Result<isize, Refusal>) -> isize {
    let before = errno();
    let _not_cancelled = CancellationGuard::new();
    let _working = LibraryCall::begin();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Refusal::plain(libc::EIO)));
    match result {
        Ok(value) => {
            // What went wrong on the way to success is nobody's business.
            set_errno(before);
            value
        }
        Err(refusal) => {
            set_errno(refusal.errno);
            -1
        }
    }
}

/// The same for functions that return an int.
pub(crate) fn answer_int(body: impl FnOnce() -> Result<i32, Refusal>) -> i32 {
    answer(|| body().map(|value| value as isize)) as i32
}
