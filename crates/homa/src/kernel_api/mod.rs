//! Sockets with the semantics of Linux Homa, for homa-preload and libhoma: one port that calls and answers,
//! whose calls have ids, and whose messages wait in one place. Applications use [`Client`](crate::Client) and
//! [`Server`](crate::Server) instead.
//!
//! [`Host::socket`](crate::Host::socket) opens a [`Socket`]. A [`ReadinessFd`] shows by a descriptor whether
//! there is something to receive. [`MessageMemory`] lends the memory in which messages are received.

mod readiness;
pub(crate) mod socket;
mod socket_pair;

pub use crate::payload::memory::{Lender, Lent, MessageMemory};
pub use crate::runtime::socket_outcome::{CallInfo, Outcome, ReturnedReply};
pub use readiness::ReadinessFd;
pub use socket::arrival::Arrival;
pub use socket::handle::Socket;
