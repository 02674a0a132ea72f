//! The files of the segment that are protocols without a lock, and their models.

#[path = "../../../crates/homa/src/segment/cutoffs.rs"]
mod cutoffs;
#[path = "../../../crates/homa/src/segment/layout.rs"]
mod layout;
#[path = "../../../crates/homa/src/segment/lease.rs"]
mod lease;
pub mod models;
#[path = "../../../crates/homa/src/segment/ports.rs"]
mod ports;
#[path = "../../../crates/homa/src/segment/turns.rs"]
mod turns;
#[path = "../../../crates/homa/src/segment/uplink.rs"]
mod uplink;

/// Fewer than there are: each level is read and written in the same way, and each more multiplies the orders.
const PRIORITIES: usize = 2;
