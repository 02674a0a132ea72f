//! The C boundary. Results are numbers, and reasons for failures are texts. No panic crosses the boundary,
//! and pointers are checked before use.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::result::homa_result;

/// Why a function failed.
pub(crate) struct Failure {
    pub(crate) result: homa_result,
    /// Names the culprit and the remedy.
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(result: homa_result, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { result, text: text.into() }
    }

    /// Returns the failure for a wrong argument.
    pub(crate) fn argument(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(homa_result::HOMA_ARGUMENT, text)
    }

    /// Returns the failure for the missing argument `name`.
    pub(crate) fn null(name: &str) -> Failure {
        Failure::argument(format!("`{name}` is NULL"))
    }
}

thread_local! {
    /// The reason why this thread's last failed function failed.
    static LAST: RefCell<Cow<'static, str>> = const { RefCell::new(Cow::Borrowed("")) };
    /// The copy of `LAST` that the program has received.
    static SHOWN: RefCell<CString> = RefCell::default();
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// If the program has cancelled the thread, ends it by unwinding its stack by force. Rust frames with
/// destructors do not survive that: no such frame may be on the stack, and a waiting call's state must be
/// stored elsewhere.
pub(crate) fn cancellation_point() {
    // SAFETY: no frame of this library with a destructor is on the stack, as documented above. The function
    // has no other requirement.
    unsafe { pthread_testcancel() }
}

/// `PTHREAD_CANCEL_DISABLE`, which has the same value in glibc and musl.
const CANCEL_DISABLE: c_int = 1;

/// Defers cancellation of this thread while the guard exists. To end a thread, the C library would unwind it
/// from within a system call, through our frames. That would end the process, and would leave locks held.
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

/// Converts the result of a function that can fail. A panic is a bug of this library; the program keeps
/// running.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Failure>) -> homa_result {
    let _cancellation_guard = CancellationGuard::new();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return homa_result::HOMA_OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            homa_result::HOMA_INTERNAL,
            "this is a bug of libhoma, please report it: standard error has the details",
        ),
    };
    // Storing the reason fails only in a thread that is ending and will not read it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure.text);
    failure.result
}

/// Converts the result of a function that cannot fail.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// The reason why this thread's last function that did not return HOMA_OK failed: one line with the error and
/// its remedy. Empty if none has failed yet. The text belongs to the library. It remains valid until this
/// thread calls this function again or ends.
#[unsafe(no_mangle)]
pub extern "C" fn homa_last_error() -> *const c_char {
    value(c"".as_ptr(), || {
        let text = LAST.try_with(|last| last.borrow().replace('\0', " ")).unwrap_or_default();
        let text = CString::new(text).unwrap_or_default();
        SHOWN.try_with(|shown| shown.replace(text)).ok();
        SHOWN.try_with(|shown| shown.borrow().as_ptr()).unwrap_or(c"".as_ptr())
    })
}

/// The version of this library, such as "0.1.0". The text remains valid until the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn homa_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}

/// Returns the object to which the argument `name` points.
///
/// # Safety
/// The pointer is NULL, or valid for reads while the result exists.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &'static str) -> Result<&'a T, Failure> {
    // SAFETY: by this function's safety contract, the pointer is NULL or valid for reads.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// Checks that the argument `name` is not NULL. Called before any work that would have to be undone.
pub(crate) fn room<T>(to: *mut T, name: &'static str) -> Result<(), Failure> {
    if to.is_null() { Err(Failure::null(name)) } else { Ok(()) }
}

/// Writes to the target of the argument `name`.
///
/// # Safety
/// The pointer is NULL, or valid for a write.
pub(crate) unsafe fn write_out<T>(to: *mut T, name: &'static str, value: T) -> Result<(), Failure> {
    room(to, name)?;
    // SAFETY: `to` is not NULL, so by this function's safety contract it is valid for a write. `write` does
    // not read or drop the old value, which may be uninitialised.
    unsafe { to.write(value) };
    Ok(())
}

/// Returns the bytes of a message to send. Callers check that `length` does not exceed the maximum message
/// length.
///
/// # Safety
/// The pointer is NULL, or `length` bytes from it are valid for reads while the result exists.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::null("data"));
    }
    // SAFETY: the pointer is not NULL, so by this function's safety contract `length` bytes are valid for
    // reads.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

/// Returns a string of the C program.
///
/// # Safety
/// The pointer is NULL, or points to a zero-terminated string that is valid for reads while the result
/// exists.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the pointer is not NULL, so by this function's safety contract it points to a zero-terminated
    // string.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map_err(|_| Failure::argument(format!("`{name}` is not text in UTF-8")))
}

/// Writes a text and a terminating zero byte to `room` bytes.
///
/// # Safety
/// `to` is NULL or valid for writes of `room` bytes, and does not overlap the text.
pub(crate) unsafe fn write_text(to: *mut c_char, room: usize, text: &str) -> Result<(), Failure> {
    self::room(to, "text")?;
    if room <= text.len() {
        return Err(Failure::argument(format!(
            "`room` is {room} bytes, and the text takes {}",
            text.len() + 1
        )));
    }
    // SAFETY: `to` is valid for writes of `room` bytes by this function's safety contract, and the text with
    // its zero byte fits.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Runs code that may start threads of the library, with all signals blocked. The threads inherit the blocked
/// signals. Signal handlers of the program thus never interrupt a thread that holds our locks.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    struct SignalMaskGuard(libc::sigset_t);
    impl Drop for SignalMaskGuard {
        fn drop(&mut self) {
            // SAFETY: the set is the thread's previous one.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets have room. `sigfillset` initialises the first before it is read; `pthread_sigmask`
    // initialises the second, since it cannot fail with these arguments.
    let _restore = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        SignalMaskGuard(before.assume_init())
    };
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text remains valid until this thread next calls the function.
        unsafe { CStr::from_ptr(homa_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_result_and_the_thread_lives_on() {
        let result = answer(|| panic!("on purpose"));
        assert_eq!(result, homa_result::HOMA_INTERNAL);
        assert!(last().contains("bug of libhoma"), "{}", last());
        assert_eq!(value(7, || panic!("on purpose")), 7);
        assert_eq!(answer(|| Ok(())), homa_result::HOMA_OK);
    }

    #[test]
    fn the_last_error_is_each_threads_own_and_survives_success() {
        let failed = answer(|| Err(Failure::argument("a zero\0in it")));
        assert_eq!(failed, homa_result::HOMA_ARGUMENT);
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!(answer(|| Ok(())), homa_result::HOMA_OK);
        assert_eq!(last(), "a zero in it");
    }
}
