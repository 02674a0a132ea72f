//! Attaches a loaded program to a device, in native or generic mode.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use crate::link::{self, Place};

/// Number of attempts while the device has another program, and the pause between them. The kernel detaches a
/// program some time after the program's last descriptor is closed; this takes longer on a busy machine.
const TRIES: u32 = 100;
const PAUSE_MS: u64 = 4;

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the device's driver (native) if the driver supports programs, or else generic.
    #[default]
    Auto,
    /// In the device's driver; an error if the driver does not support programs.
    Native,
    /// In the kernel's receive path, which supports any device and any MTU. The kernel has already turned
    /// each frame into a packet.
    Generic,
}

/// Returns the places where the mode permits a program to run, in order of preference.
#[must_use]
pub fn places(mode: XdpMode) -> &'static [Place] {
    match mode {
        XdpMode::Auto => &[Place::Native, Place::Generic],
        XdpMode::Native => &[Place::Native],
        XdpMode::Generic => &[Place::Generic],
    }
}

/// A program attached to a device. It is detached when this value is dropped, even if another process has a
/// copy of the descriptor, as a child does between fork and exec.
#[derive(Debug)]
pub struct Attachment(OwnedFd);

impl Drop for Attachment {
    fn drop(&mut self) {
        // This fails if the program was already detached, or if the device is gone.
        let _ = link::detach(self.0.as_fd());
    }
}

/// Attaches a program to a device. If another program is being detached, waits for it for a bounded time.
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

/// Whether the error means that the device already has a program, in either place.
#[must_use]
pub fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
