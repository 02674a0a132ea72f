//! The parts of the runtime that the models use; eventfds are replaced.

#[path = "../../../crates/homa/src/runtime/task_wake.rs"]
pub(crate) mod task_wake;
pub(crate) mod wake_fd;
