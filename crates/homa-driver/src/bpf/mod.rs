//! bpf(2): maps, programs, and what attaches them to devices.

pub(crate) mod assembler;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod map;
pub(crate) mod program;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

// Commands of linux/bpf.h; libc has none of them.
const OBJECT_INFO: libc::c_int = 15;

/// Bytes of an object's name, the zero at its end included.
const NAME_BYTES: usize = 16;

/// The name of a map or program, shown by tools that list them: 15 letters, digits or underscores at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Name([u8; NAME_BYTES]);

impl Name {
    /// This name.
    pub(crate) const fn new(name: &str) -> Name {
        assert!(name.len() < NAME_BYTES, "a name leaves room for a zero");
        let (bytes, mut all, mut i) = (name.as_bytes(), [0; NAME_BYTES], 0);
        while i < bytes.len() {
            all[i] = bytes[i];
            i += 1;
        }
        Name(all)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        f.write_str(&String::from_utf8_lossy(&self.0[..end]))
    }
}

/// What programs that pass a frame on to the kernel end with, and what a redirection to a place without anything falls back to.
pub(crate) const XDP_PASS: u32 = 2;

/// The helper that gives a frame to what a map has at a key: a socket, or a core.
pub(crate) const REDIRECT_MAP: u32 = 51;

/// Offsets in `struct xdp_md`, what an XDP program is called with.
pub(crate) mod context {
    pub(crate) const DATA: i16 = 0;
    pub(crate) const DATA_END: i16 = 4;
    pub(crate) const DEVICE: i16 = 12;
    pub(crate) const QUEUE: i16 = 16;
}

#[repr(C)]
struct ObjectById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct ObjectInfo {
    object: u32,
    info_bytes: u32,
    info: u64,
}

/// Address of what an attribute points to.
fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>() as usize as u64
}

/// Calls bpf(2) and returns its result where that is not an error.
///
/// # Safety
/// `T` is the attribute structure of the command, without padding, and its pointers lead to memory of the lengths beside them
/// that the kernel may read, and may write where the command does.
unsafe fn call<T>(command: libc::c_int, attribute: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of the attribute, and the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// As [`call`], for commands whose result is a new descriptor.
///
/// # Safety
/// As for [`call`], and the command gives a descriptor.
unsafe fn open<T>(command: libc::c_int, attribute: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { call(command, attribute) }?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The object with this id, by the command for its kind.
///
/// # Safety
/// The command is one that gives a descriptor for an id.
unsafe fn by_id(command: libc::c_int, id: u32) -> io::Result<OwnedFd> {
    let mut attribute = ObjectById { id, next_id: 0, open_flags: 0 };
    // SAFETY: the attribute has no pointers, and the rest is the caller's promise.
    unsafe { open(command, &mut attribute) }
}

/// Fills in what the kernel tells of an object.
///
/// # Safety
/// `T` begins as the structure for this kind of object does, any bytes are a value of it, and lengths in it are those of the
/// memory that its pointers lead to.
unsafe fn info<T>(object: std::os::fd::BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let object = std::os::fd::AsRawFd::as_raw_fd(&object) as u32;
    let mut attribute =
        ObjectInfo { object, info_bytes: size_of::<T>() as u32, info: address(&raw mut *info) };
    // SAFETY: the kernel writes at most `info_bytes` to `info`, which is as long and outlives the call; the rest is the caller's promise.
    unsafe { call(OBJECT_INFO, &mut attribute) }.map(|_| ())
}

/// Whether the process lacks the right to do something. A kernel before 5.11 says the same where RLIMIT_MEMLOCK does not suffice for a map.
pub(crate) fn is_no_permission(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_their_zeroes() {
        assert_eq!(Name::new("homa_steer").to_string(), "homa_steer");
        assert_eq!(Name::new("").to_string(), "");
    }
}
