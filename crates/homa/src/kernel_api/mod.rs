//! Sockets with the semantics of Linux Homa, for homa-preload and libhoma: one port that calls and answers,
//! whose calls have ids, and whose messages wait in one place. Applications use [`Client`](crate::Client) and
//! [`Server`](crate::Server) instead.
//!
//! [`Host::socket`](crate::Host::socket) opens a [`Socket`]. A [`ReadinessFd`] shows by a descriptor whether
//! there is something to receive. [`MessageMemory`] lends the memory in which messages are received.

#[cfg(feature = "kernel-api")]
mod readiness;
pub(crate) mod socket;
#[cfg(feature = "kernel-api")]
mod socket_pair;

#[cfg(feature = "kernel-api")]
pub use crate::payload::memory::{Lender, Lent, MessageMemory};
#[cfg(feature = "kernel-api")]
pub use readiness::ReadinessFd;
#[cfg(feature = "kernel-api")]
pub use socket::arrival::Arrival;
#[cfg(feature = "kernel-api")]
pub use socket::handle::Socket;
#[cfg(feature = "kernel-api")]
pub use socket::outcome::{CallInfo, Outcome, ReturnedReply};
