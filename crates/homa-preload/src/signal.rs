//! Creates the program's descriptor of a socket, which is readable while a message can be received.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use homa::kernel_api::ReadinessFd;

use crate::own_descriptors;
use crate::real;

/// Opens a socket pair, one end of which is the program's. Returns the socket's readiness descriptor and the
/// program's end. The readiness descriptor holds a duplicate of the program's end, since the program may
/// close its own at any time.
pub(crate) fn open(nonblocking: bool, close_on_exec: bool) -> io::Result<(Arc<ReadinessFd>, RawFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let [program, other] = ends;
    // SAFETY: the descriptor is new and has no other owner.
    let other = unsafe { OwnedFd::from_raw_fd(other) };
    let made = (|| {
        // SAFETY: the descriptor is open, and the commands take numbers.
        let (flags, set, own) = unsafe {
            let status = if nonblocking { libc::O_NONBLOCK } else { 0 };
            let descriptor = if close_on_exec { libc::FD_CLOEXEC } else { 0 };
            (
                real::fcntl(program, libc::F_SETFL, ptr::without_provenance_mut(status as usize)),
                real::fcntl(program, libc::F_SETFD, ptr::without_provenance_mut(descriptor as usize)),
                real::fcntl(program, libc::F_DUPFD_CLOEXEC, ptr::null_mut()),
            )
        };
        if own < 0 || flags < 0 || set < 0 {
            return Err(io::Error::last_os_error());
        }
        own_descriptors::keep(own);
        own_descriptors::keep(other.as_raw_fd());
        // SAFETY: the descriptor is new and has no other owner.
        ReadinessFd::from_socket_pair(unsafe { OwnedFd::from_raw_fd(own) }, other)
    })();
    match made {
        Ok(signal) => {
            own_descriptors::opened(program);
            Ok((signal, program))
        }
        Err(error) => {
            // SAFETY: the descriptor has not been returned to the program yet.
            unsafe { real::close(program) };
            Err(error)
        }
    }
}

/// Returns a number that distinguishes the file of `fd` from any other open file; 0 if `fd` is not open.
pub(crate) fn identity(fd: RawFd) -> u64 {
    // SAFETY: the structure consists of numbers, for which zero bytes are valid.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `about` has room for the result.
    if unsafe { libc::fstat(fd, &mut about) } < 0 { 0 } else { about.st_ino }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn only_the_programs_descriptor_is_the_programs() {
        let (signal, program) = open(true, true).unwrap();
        let is_own = |fd: RawFd| own_descriptors::marked(fd as u32, fd as u32).next().is_some();
        // SAFETY: the descriptor belongs to this test.
        let copy = unsafe { libc::dup(program) };
        own_descriptors::opened(copy);
        assert!(!is_own(program) && !is_own(copy), "nor is what the thread opens from now on");
        assert!(is_own(signal.as_fd().as_raw_fd()), "what shows the socket");
        // SAFETY: both descriptors belong to this test.
        unsafe { (real::close(program), real::close(copy)) };
    }
}
