//! Metrics, times and the time trace of a host.

pub(crate) mod freeze;
pub(crate) mod metrics;
pub(crate) mod metrics_text;
pub mod prometheus;
pub(crate) mod recording;
pub(crate) mod stages;
pub(crate) mod times;
