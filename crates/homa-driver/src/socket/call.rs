//! System calls that packets wait for, past the C library.
//!
//! There they are points where a thread may be cancelled, which costs each of them two atomic operations in a process of several
//! threads: 5 to 7 % of the time of two hosts that poll. Nobody cancels a thread that runs Rust.

use std::os::fd::RawFd;

/// As `libc::recvmsg`.
///
/// # Safety
/// As that.
pub(super) unsafe fn recvmsg(fd: RawFd, message: *mut libc::msghdr, flags: libc::c_int) -> libc::ssize_t {
    // SAFETY: the call takes what `recvmsg` takes, and the caller promises what that asks for.
    unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) as libc::ssize_t }
}

/// As `libc::sendto`.
///
/// # Safety
/// As that.
pub(super) unsafe fn sendto(
    fd: RawFd,
    bytes: *const libc::c_void,
    length: usize,
    flags: libc::c_int,
    to: *const libc::sockaddr,
    to_length: libc::socklen_t,
) -> libc::ssize_t {
    // SAFETY: the call takes what `sendto` takes, and the caller promises what that asks for.
    unsafe { libc::syscall(libc::SYS_sendto, fd, bytes, length, flags, to, to_length) as libc::ssize_t }
}
