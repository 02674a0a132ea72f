//! Sockets with the semantics of Linux Homa, for homa-preload and libhoma: each has one port that both makes
//! and serves calls, with IDs for calls and one queue for all messages. Applications use
//! [`Client`](crate::Client) and [`Server`](crate::Server) instead.
//!
//! [`Host::socket`](crate::Host::socket) opens a [`Socket`]. A [`ReadinessFd`] is a descriptor that shows
//! whether there is something to receive. [`MessageMemory`] lends the memory into which messages are
//! received.

mod readiness;
pub(crate) mod socket;
mod socket_pair;

pub use crate::payload::memory::{Lender, Lent, MessageMemory};
pub use crate::runtime::socket_outcome::{CallInfo, Outcome, ReturnedReply};
pub use readiness::{Deferral, ReadinessFd};
pub use socket::arrival::Arrival;
pub use socket::handle::Socket;
