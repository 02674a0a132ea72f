//! The TCP side of the comparison, as a careful user would write it: one connection per client port and server port,
//! Nagle's algorithm off, messages framed by their length, epoll, and no write that blocks.

pub mod client;
pub mod frame;
pub mod server;
pub mod spin;

use std::time::Duration;

pub use spin::Spin;

/// How long a connection may take to come up before the server counts as unreachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes read from one connection before the others get their turn: a few of the kernel's larger segments.
const READ_BUDGET: usize = 256 * 1024;
