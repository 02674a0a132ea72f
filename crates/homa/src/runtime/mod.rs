//! Driving the endpoint: receiving and sending bursts, waiting, sleeping, waking, and the progress thread.

pub(crate) mod async_driver;
pub(crate) mod bundles;
pub(crate) mod clock;
pub(crate) mod drive;
pub(crate) mod engine;
pub(crate) mod latency;
pub(crate) mod progress;
pub(crate) mod shared_engine;
pub(crate) mod shrink;
pub(crate) mod sleep;
pub(crate) mod wait;
pub(crate) mod wake_chooser;
