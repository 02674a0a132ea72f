//! Errors that occur when devices are opened for frames.

use std::io;

/// Why [`Frames`](super::Frames) could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FramesError {
    /// There is no device with this name in this network namespace.
    #[error("there is no network device {name} here: {source}")]
    NoDevice {
        /// The name.
        name: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A device was named twice.
    #[error("device {name} is named twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// The process lacks a privilege.
    #[error("frames of {name} need {what}: run as root, or in a user namespace of its own")]
    NoPrivilege {
        /// The device.
        name: String,
        /// The required capabilities, as a phrase.
        what: &'static str,
    },
    /// The MTU is too large for AF_XDP, or the kernel does not support AF_XDP.
    #[error(
        "device {name} with its MTU of {mtu} has no AF_XDP here ({source}): lower its MTU, or take packet sockets"
    )]
    NoXdp {
        /// The device.
        name: String,
        /// The device's MTU in bytes.
        mtu: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Another process uses the device.
    #[error("device {name} is taken: another process has its XDP program or its queue ({source})")]
    Taken {
        /// The device.
        name: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// There is not enough memory for the frames.
    #[error("no memory for {bytes} bytes of frames: ask for a smaller buffer, or fewer devices")]
    NoMemory {
        /// The requested size in bytes.
        bytes: usize,
    },
    /// Any other error.
    #[error("cannot open {name} for frames: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl FramesError {
    /// Whether packet sockets may work after this AF_XDP error.
    pub(crate) fn is_without_xdp(&self) -> bool {
        matches!(self, FramesError::NoXdp { .. } | FramesError::NoPrivilege { .. })
    }
}
