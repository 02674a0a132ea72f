//! The tests of calls, servers and futures again, with hosts of two endpoints: `common` sees where it is and sets them up so.

#[path = "asynch.rs"]
mod asynch;
#[path = "calls.rs"]
mod calls;
#[path = "servers.rs"]
mod servers;
