//! The tests of calls, servers, futures, early requests and sockets again, with hosts of two endpoints: `common` sees where it is and sets them up so.

#![allow(clippy::duplicate_mod, reason = "each of them brings what they share along")]

#[path = "accepting.rs"]
mod accepting;
#[path = "asynch.rs"]
mod asynch;
#[path = "calls.rs"]
mod calls;
#[path = "early.rs"]
mod early;
#[path = "servers.rs"]
mod servers;
#[path = "socket.rs"]
mod socket;
