//! Sockets: their handle and arrivals. Their state in an endpoint is in `homa/runtime/sockets`.

pub(crate) mod arrival;
pub(crate) mod handle;
mod take;
