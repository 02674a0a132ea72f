//! The descriptor that the program has for a socket, and what keeps it readable while a message can be received.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use homa::Signal;

use crate::own;
use crate::real;

/// Makes the eventfd; returns what shows a socket by it, with a second descriptor, since the program may close its own at any time; and
/// the program's.
pub(crate) fn open(nonblocking: bool, close_on_exec: bool) -> io::Result<(Arc<Signal>, RawFd)> {
    let flags = if nonblocking { libc::EFD_NONBLOCK } else { 0 };
    let close_on_exec = if close_on_exec { libc::EFD_CLOEXEC } else { 0 };
    // SAFETY: eventfd takes two numbers.
    let program = unsafe { real::eventfd(0, flags | close_on_exec) };
    if program < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open; the command takes a number.
    let own = unsafe { real::fcntl(program, libc::F_DUPFD_CLOEXEC, ptr::null_mut()) };
    if own < 0 {
        let error = io::Error::last_os_error();
        // SAFETY: nobody else has it yet.
        unsafe { real::close(program) };
        return Err(error);
    }
    own::opened(program);
    own::keep(own);
    // SAFETY: the descriptor is new and nobody else's.
    Ok((Signal::of(unsafe { OwnedFd::from_raw_fd(own) }), program))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn only_the_programs_descriptor_is_the_programs() {
        let (signal, program) = open(true, true).unwrap();
        let is_own = |fd: RawFd| own::marked(fd as u32, fd as u32).next().is_some();
        // SAFETY: it is this test's.
        let copy = unsafe { libc::dup(program) };
        own::opened(copy);
        assert!(!is_own(program) && !is_own(copy), "nor is what the thread opens from now on");
        assert!(is_own(signal.as_fd().as_raw_fd()), "what shows the socket");
        // SAFETY: as above.
        unsafe { (real::close(program), real::close(copy)) };
    }
}
