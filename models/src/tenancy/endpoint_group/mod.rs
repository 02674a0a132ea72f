//! The mailbox, and its models.

#[path = "../../../../crates/homa/src/tenancy/endpoint_group/mailbox.rs"]
mod mailbox;
pub mod models;
