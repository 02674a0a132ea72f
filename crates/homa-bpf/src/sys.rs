//! The system call bpf(2), and the commands that maps, programs and links share.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// From linux/bpf.h; libc does not define these commands.
const OBJECT_INFO: libc::c_int = 15;

#[repr(C)]
pub(crate) struct ObjectById {
    pub(crate) id: u32,
    pub(crate) next_id: u32,
    pub(crate) open_flags: u32,
}

#[repr(C)]
struct ObjectInfo {
    object: u32,
    info_bytes: u32,
    info: u64,
}

/// Returns the address of a value, for a pointer in an attribute.
pub(crate) fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>() as usize as u64
}

/// Calls bpf(2) and returns its result, or the error.
///
/// # Safety
/// `T` is the attribute structure of the command, without padding. Its pointers point to memory of the
/// lengths given with them. The kernel may read this memory, and may write to it if the command does so.
pub(crate) unsafe fn call<T>(command: libc::c_int, attribute: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of the attribute, which is that long. By
    // this function's contract, its pointers point to memory of the lengths given with them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// Like [`call`], for commands whose result is a new descriptor.
///
/// # Safety
/// The requirements are those of [`call`]. In addition, the command must return a descriptor.
pub(crate) unsafe fn open<T>(command: libc::c_int, attribute: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: this function has the same requirements as `call`.
    let descriptor = unsafe { call(command, attribute) }?;
    // SAFETY: by this function's contract the result is a descriptor. The kernel has just opened it, and it
    // has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Opens the object with this ID, using the command for its kind.
///
/// # Safety
/// The command takes an ID and returns a descriptor.
pub(crate) unsafe fn by_id(command: libc::c_int, id: u32) -> io::Result<OwnedFd> {
    let mut attribute = ObjectById { id, next_id: 0, open_flags: 0 };
    // SAFETY: all commands that return a descriptor for an ID use this attribute, which has no pointers.
    unsafe { open(command, &mut attribute) }
}

/// Fills in the kernel's information about an object.
///
/// # Safety
/// `T` begins like the kernel's structure for this kind of object, and any bytes are valid for it. The
/// lengths in it are those of the memory that its pointers point to.
pub(crate) unsafe fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let object = object.as_raw_fd() as u32;
    let mut attribute =
        ObjectInfo { object, info_bytes: size_of::<T>() as u32, info: address(&raw mut *info) };
    // SAFETY: the kernel writes at most `info_bytes` to `info`, which is that long and outlives the call. By
    // this function's contract, the pointers in `info` point to memory of the lengths given with them.
    unsafe { call(OBJECT_INFO, &mut attribute) }.map(|_| ())
}

/// Whether the process lacks a capability. Kernels before 5.11 report the same error if RLIMIT_MEMLOCK is too
/// small for a map.
#[must_use]
pub fn is_no_permission(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}
