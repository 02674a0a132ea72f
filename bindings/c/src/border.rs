//! The border to C: results as numbers, the reason as text, no panic that crosses it, and pointers that are looked at before they are used.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::result::homa_result;

/// Why a call failed.
pub(crate) struct Failure {
    pub(crate) result: homa_result,
    /// Names the culprit and the remedy.
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(result: homa_result, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { result, text: text.into() }
    }

    /// An argument is wrong.
    pub(crate) fn argument(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(homa_result::HOMA_ARGUMENT, text)
    }

    /// The argument of this name is missing.
    pub(crate) fn null(name: &str) -> Failure {
        Failure::argument(format!("`{name}` is NULL"))
    }
}

thread_local! {
    /// Of this thread's last failed call.
    static LAST: RefCell<Cow<'static, str>> = const { RefCell::new(Cow::Borrowed("")) };
    /// What C was shown of it.
    static SHOWN: RefCell<CString> = RefCell::default();
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Ends the thread where the program has cancelled it, by unwinding its stack by force. Frames of Rust with something to drop do not
/// survive that: what a call has in hand must lie elsewhere.
pub(crate) fn cancellation_point() {
    // SAFETY: as said above; the C library's function has no other requirement.
    unsafe { pthread_testcancel() }
}

/// `PTHREAD_CANCEL_DISABLE`, which glibc and musl have alike.
const CANCEL_DISABLE: c_int = 1;

/// While it lives, a program that cancels this thread waits: to end a thread the C library unwinds it from within a call of the system's,
/// through our frames, which ends the process; and with it would go a lock that is held.
struct NotCancelled(c_int);

impl NotCancelled {
    fn new() -> NotCancelled {
        let mut before = 0;
        // SAFETY: the state is one that there is, and there is room for the one before.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        NotCancelled(before)
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the one that the thread had.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// What C gets of something that may fail. A panic is a mistake of this library, and the program lives on.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Failure>) -> homa_result {
    let _not_cancelled = NotCancelled::new();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return homa_result::HOMA_OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            homa_result::HOMA_INTERNAL,
            "this is a mistake of libhoma, please report it: standard error has the details",
        ),
    };
    // A thread that ends has no use for it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure.text);
    failure.result
}

/// What C gets of something that cannot fail.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Why the last call of this thread that did not return HOMA_OK failed: one line that says what is wrong and what to do about it. Empty
/// where none has failed yet. The text belongs to the library, and is good until this thread calls this function again or ends.
#[unsafe(no_mangle)]
pub extern "C" fn homa_last_error() -> *const c_char {
    value(c"".as_ptr(), || {
        let text = LAST.try_with(|last| last.borrow().replace('\0', " ")).unwrap_or_default();
        let text = CString::new(text).unwrap_or_default();
        SHOWN.try_with(|shown| shown.replace(text)).ok();
        SHOWN.try_with(|shown| shown.borrow().as_ptr()).unwrap_or(c"".as_ptr())
    })
}

/// The version of this library, such as "0.1.0". The text lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn homa_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}

/// What an argument of this name points at.
///
/// # Safety
/// The pointer is NULL, or good for reads for as long as the result lives.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &'static str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// Whether an argument of this name points anywhere: asked before anything is done that would have to be undone.
pub(crate) fn room<T>(to: *mut T, name: &'static str) -> Result<(), Failure> {
    if to.is_null() { Err(Failure::null(name)) } else { Ok(()) }
}

/// Writes to where an argument of this name points.
///
/// # Safety
/// The pointer is NULL, or good for a write.
pub(crate) unsafe fn give<T>(to: *mut T, name: &'static str, value: T) -> Result<(), Failure> {
    room(to, name)?;
    // SAFETY: the caller's; it may point at memory that was never written.
    unsafe { to.write(value) };
    Ok(())
}

/// The bytes of a message to be sent, no more than a message may have.
///
/// # Safety
/// The pointer is NULL, or `length` bytes behind it are good for reads for as long as the result lives.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::null("data"));
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

/// A text of C's.
///
/// # Safety
/// The pointer is NULL, or a string that ends with a zero byte, and is good for reads for as long as the result lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &'static str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map_err(|_| Failure::argument(format!("`{name}` is not text in UTF-8")))
}

/// Writes a text and a zero byte behind it to where there are `room` bytes.
///
/// # Safety
/// `to` is NULL, or so many bytes of it are good for writes, and the text is not among them.
pub(crate) unsafe fn give_text(to: *mut c_char, room: usize, text: &str) -> Result<(), Failure> {
    self::room(to, "text")?;
    if room <= text.len() {
        return Err(Failure::argument(format!(
            "`room` is {room} bytes, and the text takes {}",
            text.len() + 1
        )));
    }
    // SAFETY: the caller's: there is room for the text and a zero byte.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Does something that may start threads of the library, which take no signals: those are the program's, whose handlers need not expect a
/// thread that holds our locks.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set is the one that the thread had.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: there is room for both sets; the first is whole when it is read, and so is the second afterwards, since nothing about the
    // arguments can be wrong.
    let _restore = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Restore(before.assume_init())
    };
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text is good until the next call.
        unsafe { CStr::from_ptr(homa_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_result_and_the_thread_lives_on() {
        let result = answer(|| panic!("on purpose"));
        assert_eq!(result, homa_result::HOMA_INTERNAL);
        assert!(last().contains("mistake of libhoma"), "{}", last());
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
