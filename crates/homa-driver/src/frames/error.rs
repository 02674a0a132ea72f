//! Why devices could not be had for frames.

use std::io;

/// Why [`Frames`](super::Frames) could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FramesError {
    /// There is no device of this name in this network namespace.
    #[error("there is no network device {name} here: {source}")]
    NoDevice {
        /// The name.
        name: String,
        /// What the kernel said.
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
        /// The capabilities, as a sentence has them.
        what: &'static str,
    },
    /// The MTU is too large for AF_XDP, or the kernel has none.
    #[error(
        "device {name} with its MTU of {mtu} has no AF_XDP here ({source}): lower its MTU, or take packet sockets"
    )]
    NoXdp {
        /// The device.
        name: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process has the device.
    #[error("device {name} is taken: another process has its XDP program or its queue ({source})")]
    Taken {
        /// The device.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no memory for so many frames.
    #[error("no memory for {bytes} bytes of frames: ask for a smaller buffer, or fewer devices")]
    NoMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// Anything else.
    #[error("cannot open {name} for frames: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl FramesError {
    /// Whether packet sockets may do where this was said of AF_XDP.
    pub(crate) fn is_without_xdp(&self) -> bool {
        matches!(self, FramesError::NoXdp { .. } | FramesError::NoPrivilege { .. })
    }
}
