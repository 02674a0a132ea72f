//! Descriptors: ioctl and fcntl, duplication, and closing.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::on_socket_int;
use crate::descriptor_table::{ProcessState, any, is_homa, marked};
use crate::ffi_border::{Refusal, answer_int, errno, pthread_testcancel, set_errno};
use crate::own_descriptors::{self, LibraryCall};
use crate::real;
use crate::signal;
use crate::socket::Socket;

/// Flag of close_range: sets close-on-exec instead of closing.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int {
    if is_homa(fd) && request != libc::FIOCLEX && request != libc::FIONCLEX {
        let result = on_socket_int(fd, |socket| socket.control(request, argument));
        if request != libc::FIONBIO || result != 0 {
            return result;
        }
    }
    // SAFETY: the caller meets the requirements of libc's ioctl. A Homa socket's own descriptor has the flag
    // that F_GETFL shows.
    unsafe { real::ioctl(fd, request, argument) }
}

/// Called with a new descriptor. Forgets a Homa socket that had this number and was closed without this
/// library's knowledge, for example by fclose.
pub(super) fn opened(fd: c_int) -> c_int {
    if fd >= 0 {
        own_descriptors::opened(fd);
        if is_homa(fd) {
            end(closing(fd));
        }
    }
    fd
}

/// Returns whether the number of a Homa socket now belongs to another file, because both the close and the
/// new open bypassed this library. If so, forgets the socket. Called only before a call fails, since the
/// check is a system call.
pub(super) fn is_stale(fd: c_int) -> bool {
    let before = errno();
    let is = signal::identity(fd);
    set_errno(before);
    let is_stale = Cell::new(false);
    if let Some(state) = ProcessState::existing() {
        state.glance_at(fd, |socket| is_stale.set(is != 0 && is != socket.identity));
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
            /// Same as for the libc function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the caller meets the requirements of the libc function.
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

/// Updates the table after a successful fcntl.
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
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    let result = unsafe { real::fcntl(fd, command, argument) };
    note_fcntl(fd, command, argument, result);
    result
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    note_fcntl(fd, command, argument, result);
    result
}

/// Registers `to` as a copy of `fd`, which is a Homa socket.
fn copied(fd: c_int, to: c_int) {
    // This may become the last reference to the socket; dropping it closes descriptors of the library.
    let _working = LibraryCall::begin();
    let state = ProcessState::get();
    if to >= 0
        && state.is_mine()
        && let Ok(socket) = state.socket(fd)
    {
        // A descriptor beyond the end of the table stays a plain descriptor.
        let _ = state.insert(to, socket);
    }
}

/// Removes from the table a descriptor that is about to be closed. A vfork child, which shares its parent's
/// memory, must not close the parent's sockets.
fn closing(fd: c_int) -> Option<Arc<Socket>> {
    if !is_homa(fd) {
        return None;
    }
    let state = ProcessState::get();
    if state.is_mine() { state.remove(fd) } else { None }
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if !own_descriptors::may_close(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    if !is_homa(fd) || !ProcessState::get().is_mine() {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::close(fd) };
    }
    // libc's `close` is a cancellation point. The `close` below must not be one, since a lock is held there.
    // SAFETY: the function has no arguments. A cancelled thread unwinds from here, which this function's ABI
    // permits: no lock is held, and no value needs to be dropped.
    unsafe { pthread_testcancel() };
    answer_int(|| {
        let mut result = 0;
        // SAFETY: the caller meets the requirements of the libc function.
        let socket = ProcessState::get().remove_and(fd, || result = unsafe { real::close(fd) });
        let closed = if result < 0 { Err(Refusal::plain(errno())) } else { Ok(0) };
        drop(socket);
        closed
    })
}

/// Drops a descriptor's reference to its socket, which may tear down the socket. Preserves the program's
/// errno.
fn end(socket: Option<Arc<Socket>>) {
    if socket.is_some() {
        crate::ffi_border::answer(|| {
            drop(socket);
            Ok(0)
        });
    }
}

/// # Safety
/// Same as for the libc function of this name.
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
            // SAFETY: the caller meets the requirements of the libc function.
            result = unsafe { real::close_range(from, kept - 1, flags) };
        }
        from = kept.checked_add(1);
    }
    if let Some(from) = from.filter(|from| *from <= last || *from == first) {
        // SAFETY: the caller meets the requirements of the libc function.
        result = unsafe { real::close_range(from, last, flags) };
    }
    sockets.into_iter().for_each(|socket| end(Some(socket)));
    result
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    let result = opened(unsafe { real::dup(fd) });
    if is_homa(fd) {
        copied(fd, result);
    }
    result
}

/// Duplicates `fd` to the number `to`, which may be a Homa socket.
fn copy_over(fd: c_int, to: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    if fd != to && !own_descriptors::may_close(to) {
        // The error that the kernel returns while another thread is opening a file with this number.
        set_errno(libc::EBUSY);
        return -1;
    }
    let before = if fd == to { None } else { closing(to) };
    let result = copy();
    match before {
        Some(socket) if result < 0 => {
            // The descriptor was not closed.
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
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    copy_over(fd, to, || unsafe { real::dup2(fd, to) })
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    copy_over(fd, to, || unsafe { real::dup3(fd, to, flags) })
}
