//! Limits that the files of `homa` name.

#[path = "../../../crates/homa/src/types/limits.rs"]
pub mod limits;
