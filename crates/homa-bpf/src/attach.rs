//! Attaching a loaded program to a device, in the driver or in generic mode.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::link::{self, Place};

/// Attempts while the device has another program, and the pause between them: the kernel detaches a program
/// some time after its last descriptor is closed, which takes longer on a busy machine.
const TRIES: u32 = 100;
const PAUSE_MS: u64 = 4;

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the device's driver if it supports programs, otherwise generic.
    #[default]
    Auto,
    /// In the device's driver, or not at all.
    Native,
    /// In the kernel's receive path: any device and any MTU. The kernel has already made a packet of each
    /// frame.
    Generic,
}

/// The places where the mode permits a program to run, the preferred place first.
#[must_use]
pub fn places(mode: XdpMode) -> &'static [Place] {
    match mode {
        XdpMode::Auto => &[Place::Native, Place::Generic],
        XdpMode::Native => &[Place::Native],
        XdpMode::Generic => &[Place::Generic],
    }
}

/// A program attached to a device, detached when this is dropped even if another process has a copy of the
/// descriptor, as a child does between fork and exec.
#[derive(Debug)]
pub struct Attachment(OwnedFd);

impl Drop for Attachment {
    fn drop(&mut self) {
        // Fails if the program was detached before, or the device is gone.
        let _ = link::detach(self.0.as_fd());
    }
}

/// Attaches a program to a device. Waits a bounded time for another program that is being detached.
///
/// # Errors
/// The error of the kernel; [`is_taken`] returns whether the cause is another program.
pub fn attach(program: &OwnedFd, device: u32, place: Place) -> io::Result<Attachment> {
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

/// Whether the device has another program, in either place.
#[must_use]
pub fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
