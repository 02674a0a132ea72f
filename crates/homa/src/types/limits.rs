//! Limits that the interface states and that errors name.

/// Maximum number of hosts that can share an address, each of which has a slot. This is more than there are
/// cores to drive the hosts. A slot is one cache line.
pub const MAX_PROCESSES: usize = 64;
