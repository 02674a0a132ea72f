//! All tests of this crate that need no test program of their own: a single program links only once.

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
