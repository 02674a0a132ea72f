//! A descriptor through which one thread wakes another.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// An eventfd: one thread writes to it to wake another.
#[derive(Debug)]
pub(crate) struct WakeFd(pub(super) File);

impl WakeFd {
    pub(crate) fn new() -> io::Result<WakeFd> {
        // SAFETY: eventfd takes two numbers and touches none of this program's memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
    }

    /// Wakes the thread that sleeps on this `WakeFd`. If the thread is awake, its next sleep ends at once.
    pub(crate) fn notify(&self) {
        // The only possible error is a full counter, in which case the descriptor is already readable.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Clears the notification.
    pub(crate) fn clear(&self) {
        // The only possible error is that there was no notification.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl From<OwnedFd> for WakeFd {
    fn from(eventfd: OwnedFd) -> WakeFd {
        WakeFd(File::from(eventfd))
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
