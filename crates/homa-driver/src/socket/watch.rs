//! Several descriptors as one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that is readable when one of these is.
pub(crate) fn watch_all(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    // SAFETY: takes a flag only.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if epoll < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the event is one that the kernel only reads.
        let result = unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(epoll)
}
