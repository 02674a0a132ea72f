//! Descriptors: ioctl and fcntl, copies, and their ends.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::on_socket_int;
use crate::descriptor_table::{ProcessState, any, is_homa, marked};
use crate::ffi_border::{Refusal, answer_int, errno, set_errno};
use crate::own_descriptors::{self, LibraryCall};
use crate::real;
use crate::signal;
use crate::socket::Socket;
use crate::turns::pthread_testcancel;

/// What close_range does to descriptors instead of closing them.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int {
    if is_homa(fd) && request != libc::FIOCLEX && request != libc::FIONCLEX {
        let result = on_socket_int(fd, |socket| socket.control(request, argument));
        if request != libc::FIONBIO || result != 0 {
            return result;
        }
    }
    // SAFETY: the caller's. The descriptor's own flag is what F_GETFL shows.
    unsafe { real::ioctl(fd, request, argument) }
}

/// A number that the kernel has given away anew is not what it was: a Homa socket may have been closed past this library, as fclose closes.
pub(super) fn opened(fd: c_int) -> c_int {
    if fd >= 0 {
        own_descriptors::opened(fd);
        if is_homa(fd) {
            end(closing(fd));
        }
    }
    fd
}

/// Whether a number that was a Homa socket's is another file's by now, which was opened past this library as well; it is noted then. To be asked
/// before a call fails for good: the question is a system call.
pub(super) fn is_stale(fd: c_int) -> bool {
    let before = errno();
    let is = signal::identity(fd);
    set_errno(before);
    let is_stale = Cell::new(false);
    if let Some(world) = ProcessState::existing() {
        world.glance_at(fd, |socket| is_stale.set(is != 0 && is != socket.identity));
    }
    if is_stale.get() {
        end(closing(fd));
    }
    is_stale.get()
}

/// Defines functions of libc that open descriptors.
macro_rules! opens {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            /// # Safety
            /// As in libc.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's.
                opened(unsafe { real::$name($($arg),*) })
            }
        )*
    };
}

opens! {
    eventfd(count: c_uint, flags: c_int);
    epoll_create1(flags: c_int);
    open64(path: *const c_char, flags: c_int, mode: c_uint);
}

/// What follows from an fcntl that went well.
fn note_fcntl(fd: c_int, command: c_int, argument: *mut c_void, result: c_int) {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        opened(result);
    }
    match command {
        _ if result < 0 || !is_homa(fd) => {}
        libc::F_SETFL => {
            let _working = LibraryCall::begin();
            if let Ok(socket) = ProcessState::get().socket(fd) {
                socket.nonblocking.store(argument as c_int & libc::O_NONBLOCK != 0, Relaxed);
            }
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, result),
        _ => {}
    }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::fcntl(fd, command, argument) };
    note_fcntl(fd, command, argument, result);
    result
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    note_fcntl(fd, command, argument, result);
    result
}

/// `to` is a copy of `fd`, which is a Homa socket.
fn copied(fd: c_int, to: c_int) {
    // The handle may be the last one by now, whose end closes what is the library's own.
    let _working = LibraryCall::begin();
    let world = ProcessState::get();
    if to >= 0
        && world.is_mine()
        && let Ok(socket) = world.socket(fd)
    {
        // A number that no table has room for is left a bare socket.
        let _ = world.insert(to, socket);
    }
}

/// Takes a descriptor that is about to be closed out of the table. A child that shares the parent's memory closes nothing of the parent's.
fn closing(fd: c_int) -> Option<Arc<Socket>> {
    if !is_homa(fd) {
        return None;
    }
    let world = ProcessState::get();
    if world.is_mine() { world.remove(fd) } else { None }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if !own_descriptors::may_close(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    if !is_homa(fd) || !ProcessState::get().is_mine() {
        // SAFETY: the caller's.
        return unsafe { real::close(fd) };
    }
    // `close` is a cancellation point; the call below is none, since it holds a lock.
    // SAFETY: the stack has nothing that is to be dropped, up to the program's frames.
    unsafe { pthread_testcancel() };
    answer_int(|| {
        let mut result = 0;
        // SAFETY: the caller's.
        let socket = ProcessState::get().remove_and(fd, || result = unsafe { real::close(fd) });
        let closed = if result < 0 { Err(Refusal::plain(errno())) } else { Ok(0) };
        drop(socket);
        closed
    })
}

/// Drops what a descriptor was, which may be the end of it. The program's errno is its own.
fn end(socket: Option<Arc<Socket>>) {
    if socket.is_some() {
        crate::ffi_border::answer(|| {
            drop(socket);
            Ok(0)
        });
    }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let closes = any() && flags & CLOSE_RANGE_CLOEXEC == 0;
    let sockets: Vec<Arc<Socket>> = match closes {
        true => marked(first as usize, last as usize).into_iter().filter_map(closing).collect(),
        false => Vec::new(),
    };
    let mut result = 0;
    let mut from = Some(first);
    for kept in own_descriptors::marked(first, last).filter(|fd| !own_descriptors::may_close(*fd as c_int)) {
        if let Some(from) = from.filter(|from| *from < kept) {
            // SAFETY: the caller's.
            result = unsafe { real::close_range(from, kept - 1, flags) };
        }
        from = kept.checked_add(1);
    }
    if let Some(from) = from.filter(|from| *from <= last || *from == first) {
        // SAFETY: the caller's.
        result = unsafe { real::close_range(from, last, flags) };
    }
    sockets.into_iter().for_each(|socket| end(Some(socket)));
    result
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the caller's.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    let result = opened(unsafe { real::dup(fd) });
    if is_homa(fd) {
        copied(fd, result);
    }
    result
}

/// A copy to a number that may have been a Homa socket.
fn copy_over(fd: c_int, to: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    if fd != to && !own_descriptors::may_close(to) {
        // As where somebody else is about to open it.
        set_errno(libc::EBUSY);
        return -1;
    }
    let before = if fd == to { None } else { closing(to) };
    let result = copy();
    match before {
        Some(socket) if result < 0 => {
            // It was not closed.
            let _ = ProcessState::get().insert(to, socket);
        }
        before => end(before),
    }
    if is_homa(fd) && result >= 0 && fd != to {
        copied(fd, result);
    }
    result
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's.
    copy_over(fd, to, || unsafe { real::dup2(fd, to) })
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    copy_over(fd, to, || unsafe { real::dup3(fd, to, flags) })
}
