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

/// Attaches a program to a device for as long as the descriptor that this returns is open. Waits a bounded time for a program that is about
/// to go.
///
/// # Errors
/// The kernel's; [`is_taken`] tells whether it is another program.
pub(crate) fn attach(program: &OwnedFd, device: u32, place: Place) -> io::Result<OwnedFd> {
    let mut tries = 0;
    loop {
        tries += 1;
        match link::attach(program.as_fd(), device, place) {
            Err(error) if is_taken(&error) && tries < TRIES => {
                thread::sleep(Duration::from_millis(PAUSE_MS));
            }
            result => return result,
        }
    }
}

/// Whether another program has the device: in the same place, or in the other one.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
