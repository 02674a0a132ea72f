//! Sharing: between the endpoints of a host, and between the processes at its address.

pub(crate) mod end_barrier;
pub(crate) mod endpoint_group;
pub(crate) mod endpoints;
pub(crate) mod host_lease;
pub(crate) mod placement;
pub(crate) mod process_group;
pub(crate) mod processes;
pub(crate) mod sync;
