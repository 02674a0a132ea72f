//! The lock-free protocols of the shared-memory segment, and their models.

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

/// Fewer levels than in the real code: each is read and written in the same way, and each further level
/// multiplies the interleavings.
mod priorities {
    pub(super) const PRIORITIES: usize = 2;
}
