//! The files of the segment that are protocols without a lock, and their models.

#[path = "../../../../crates/homa/src/tenancy/process_group/cutoffs.rs"]
mod cutoffs;
#[path = "../../../../crates/homa/src/tenancy/process_group/layout.rs"]
mod layout;
#[path = "../../../../crates/homa/src/tenancy/process_group/lease.rs"]
mod lease;
pub mod models;
#[path = "../../../../crates/homa/src/tenancy/process_group/ports.rs"]
mod ports;
#[path = "../../../../crates/homa/src/tenancy/process_group/turns.rs"]
mod turns;
#[path = "../../../../crates/homa/src/tenancy/process_group/uplink.rs"]
mod uplink;

/// Fewer than there are: each level is read and written in the same way, and each more multiplies the orders.
const PRIORITIES: usize = 2;
