//! All tests of this crate that do not need a test program of their own. In a single program they are linked
//! only once.

mod accepting;
mod asynch;
mod bundles;
mod calls;
mod common;
mod early;
mod errors;
mod faults;
mod freeze;
mod metrics;
mod servers;
mod several_endpoints;
mod socket;
mod stages;
mod two_endpoints;
