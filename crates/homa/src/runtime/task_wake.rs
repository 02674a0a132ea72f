//! Wakes the async driver task of an endpoint.

#[cfg(feature = "tokio")]
pub(crate) use tokio::sync::Notify as TaskWake;

/// Stands in for the real `TaskWake`, since without an async runtime there is no such task.
#[cfg(not(feature = "tokio"))]
#[derive(Debug, Default)]
pub(crate) struct TaskWake;

#[cfg(not(feature = "tokio"))]
impl TaskWake {
    pub(crate) fn notify_one(&self) {}
}
