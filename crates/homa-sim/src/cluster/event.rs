//! The events of hosts.

use crate::cores::Timer;

/// An event at hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostEvent {
    /// A message of the load starts.
    Arrival { host: u32 },
    /// The transport's timeout is due.
    Timeout { host: u32 },
    /// A request has arrived, and this answer starts.
    Answer { answer: u32 },
    /// All messages of a round of an incast start.
    Round,
    /// Queues and links are sampled.
    Sample,
    /// A timer of the host's cores expires.
    Cores { host: u32, timer: Timer },
}
