//! The threads and tasks that drive the endpoint, and when it was last driven.

use homa_proto::{Config, Time};

use crate::runtime::async_state::AsyncDriver;
use crate::runtime::progress::Progress;

/// The state of the threads and tasks that drive, except those that [wait](crate::runtime::waiters).
pub(crate) struct Driving {
    pub(crate) progress: Progress,
    pub(crate) async_driver: AsyncDriver,
    /// When a thread or task last did a drive round or gave up leadership.
    pub(crate) last_driven: Time,
    /// When packets were last received or sent.
    pub(crate) last_activity: Time,
    /// Whether processors are kept out of deep sleep while RPCs are in flight.
    pub(crate) avoids_deep_sleep: bool,
}

impl Driving {
    pub(crate) fn new(config: &Config) -> Driving {
        Driving {
            progress: Progress::new(config),
            async_driver: AsyncDriver::default(),
            last_driven: Time::ZERO,
            last_activity: Time::ZERO,
            avoids_deep_sleep: false,
        }
    }
}
