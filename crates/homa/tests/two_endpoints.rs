//! The tests of bundles, calls, servers, futures, early requests and sockets again, with hosts of two endpoints. The
//! module `common` of this file knows where it is and configures them so.

#![allow(clippy::duplicate_mod, reason = "the same tests with another configuration")]

#[path = "accepting.rs"]
mod accepting;
#[path = "asynch.rs"]
mod asynch;
#[path = "bundles.rs"]
mod bundles;
#[path = "calls.rs"]
mod calls;
#[path = "common/mod.rs"]
mod common;
#[path = "early.rs"]
mod early;
#[path = "servers.rs"]
mod servers;
#[path = "socket.rs"]
mod socket;
