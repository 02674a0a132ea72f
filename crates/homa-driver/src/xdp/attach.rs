//! From a loaded program to one that runs at a device.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use super::XdpMode;
use crate::bpf::link::{self, Place};

/// How often, and how many milliseconds apart, a device is asked for again that another program is leaving: the kernel takes a program off
/// after the last descriptor of it is closed, not with it, and a busy machine takes a while.
const TRIES: u32 = 100;
const PAUSE_MS: u64 = 4;

/// Where the mode lets a program run, the better place first.
pub(crate) fn places(mode: XdpMode) -> &'static [Place] {
    match mode {
        XdpMode::Auto => &[Place::Native, Place::Generic],
        XdpMode::Native => &[Place::Native],
        XdpMode::Generic => &[Place::Generic],
    }
}

/// A program at its device, which it leaves when this is dropped: also where another process has a copy of the descriptor, as a child does
/// between fork and exec.
#[derive(Debug)]
pub(crate) struct Attachment(OwnedFd);

impl Drop for Attachment {
    fn drop(&mut self) {
        // Fails where somebody has taken the program off, or the device is gone.
        let _ = link::detach(self.0.as_fd());
    }
}

/// Attaches a program to a device. Waits a bounded time for a program that is about to go.
///
/// # Errors
/// The kernel's; [`is_taken`] tells whether it is another program.
pub(crate) fn attach(program: &OwnedFd, device: u32, place: Place) -> io::Result<Attachment> {
    let mut tries = 0;
    loop {
        tries += 1;
        match link::attach(program.as_fd(), device, place) {
            Err(error) if is_taken(&error) && tries < TRIES => {
                thread::sleep(Duration::from_millis(PAUSE_MS));
            }
            result => return result.map(Attachment),
        }
    }
}

/// Whether another program has the device: in the same place, or in the other one.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
