//! The lock-free data that the endpoints and the processes of a host share, and its models.

pub mod endpoint_group;
pub mod process_group;
pub(crate) mod sync;
