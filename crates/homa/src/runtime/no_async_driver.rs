//! Replaces `async_driver` without the feature `tokio`: the progress thread drives for futures.

use std::sync::Arc;

use crate::runtime::shared_engine::SharedEngine;

/// Does nothing: the progress thread drives while futures wait.
pub(crate) fn ensure_driver(_: &Arc<SharedEngine>) {}
