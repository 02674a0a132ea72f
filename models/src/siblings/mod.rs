//! The mailbox, and its models.

#[path = "../../../crates/homa/src/siblings/mailbox.rs"]
mod mailbox;
pub mod models;
