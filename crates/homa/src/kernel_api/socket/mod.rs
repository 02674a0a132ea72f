//! Sockets: their handle, what they receive, and the engine's state of them.

#[cfg(feature = "kernel-api")]
pub(crate) mod arrival;
#[cfg(feature = "kernel-api")]
pub(crate) mod handle;
pub(crate) mod outcome;
pub(crate) mod state;
#[cfg(feature = "kernel-api")]
mod take;
