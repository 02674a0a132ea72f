//! Sockets: their handle, what they receive, and the engine's state of them.

pub(crate) mod arrival;
#[cfg(feature = "kernel-api")]
pub(crate) mod handle;
pub(crate) mod state;
