//! Socket options that are integers or filter programs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockFilter;

pub(crate) fn set(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads `length` bytes of `value`,
    // which is as long.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn get(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `length` bytes to
    // `value`, which is as long.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's `sock_fprog`. Its padding is a field, because the kernel copies it with the rest: bytes
/// without a value are an error to valgrind.
#[repr(C)]
struct Program {
    len: libc::c_ushort,
    padding: [u8; size_of::<*const SockFilter>() - size_of::<libc::c_ushort>()],
    // SockFilter is the kernel's structure under another name: it is `repr(transparent)`.
    filter: *const SockFilter,
}

const _: () = assert!(size_of::<Program>() == size_of::<libc::sock_fprog>());

/// Sets an option whose value is a program of classic BPF.
pub(crate) fn set_program(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    program: &[SockFilter],
) -> io::Result<()> {
    let value = Program {
        len: program.len() as libc::c_ushort,
        padding: [0; size_of::<*const SockFilter>() - size_of::<libc::c_ushort>()],
        filter: program.as_ptr(),
    };
    let length = size_of::<Program>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads `length` bytes of `value`, which
    // is as long, and through it `len` instructions of `program`, which lives through the call; the kernel
    // keeps a copy and writes to neither.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
