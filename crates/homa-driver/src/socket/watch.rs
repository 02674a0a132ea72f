//! Polls several descriptors as one.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};

/// Returns a descriptor that is readable if any of the given descriptors is.
pub(crate) fn watch_all(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let epoll = create(CreateFlags::CLOEXEC)?;
    for fd in fds {
        add(&epoll, fd, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(epoll)
}
