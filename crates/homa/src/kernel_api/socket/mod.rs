//! Sockets: their handle, and what they receive. Their state in an endpoint is in `homa/runtime/sockets`.

pub(crate) mod arrival;
pub(crate) mod handle;
mod take;
