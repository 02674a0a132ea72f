//! Takes the place of `async_driver` without the feature `tokio`: the progress thread drives for futures.

use std::sync::Arc;

use homa_proto::Time;

use crate::runtime::shared_engine::SharedEngine;

/// There is no async driver task.
#[derive(Debug, Default)]
pub(crate) struct AsyncDriver;

impl AsyncDriver {
    pub(crate) fn is_running(&self) -> bool {
        false
    }

    pub(crate) fn sleeps_until(&self) -> Option<Time> {
        None
    }

    pub(crate) fn notify(&mut self) {}
}

/// Does nothing: the progress thread drives while futures wait.
pub(crate) fn ensure_driver(_: &Arc<SharedEngine>) {}
