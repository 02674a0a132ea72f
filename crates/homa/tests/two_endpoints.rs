//! The tests of calls, servers and futures again, with hosts of two endpoints: `common` sees where it is and sets them up so.

#![allow(clippy::duplicate_mod, reason = "each of the three brings what they share along")]

#[path = "asynch.rs"]
mod asynch;
#[path = "calls.rs"]
mod calls;
#[path = "servers.rs"]
mod servers;
