//! Runs the tests of bundles, calls, servers, futures, early requests and sockets again, with hosts that have
//! two endpoints. The module `common` detects whether it is included from this file and configures the hosts
//! accordingly.

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
