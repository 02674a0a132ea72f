//! State shared between the endpoints of a host, and between the processes at its address.

pub(crate) mod end_barrier;
pub(crate) mod endpoint_group;
pub(crate) mod host_lease;
pub(crate) mod placement;
pub(crate) mod process_group;
pub(crate) mod processes;
pub(crate) mod shared_socket;
pub(crate) mod sync;

use endpoint_group::GroupMember;
use host_lease::HostLease;
use processes::ProcessMember;

/// State that an endpoint shares with other processes and with the other endpoints of its host.
#[derive(Default)]
pub(crate) struct Tenancy {
    /// This endpoint's membership in the address that processes share; `None` if this host has its address to
    /// itself.
    pub(crate) processes: Option<ProcessMember>,
    /// This endpoint's membership in the group of the host's endpoints; `None` if it is the only endpoint.
    pub(crate) group: Option<GroupMember>,
    /// This endpoint's lease on host-wide resources; `None` if no other endpoint shares them.
    pub(crate) lease: Option<HostLease>,
}
