//! Types of the interface that the layers below it use, too. Nothing here uses another folder.

pub(crate) mod address;
pub(crate) mod early;
pub(crate) mod endpoint_policies;
pub mod error;
pub(crate) mod limits;
pub(crate) mod segment_error;
