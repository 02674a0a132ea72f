//! What the endpoints and the processes of a host share without a lock, and the models of it.

pub mod endpoint_group;
pub mod process_group;
pub(crate) mod sync;
