//! Types of the interface that the layers below it also use. Nothing in this folder uses another folder.

pub(crate) mod address;
pub(crate) mod early;
pub(crate) mod endpoint_policies;
pub mod error;
pub(crate) mod limits;
pub(crate) mod segment_error;
