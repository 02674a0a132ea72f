//! The events of hosts.

use crate::cores::Timer;

/// What happens to hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostEvent {
    /// A message starts there.
    Arrival { host: u32 },
    /// Its transport wants its timeout handled.
    Timeout { host: u32 },
    /// A request is at its server: this answer starts.
    Answer { answer: u32 },
    /// All messages of a round of an incast start.
    Round,
    /// Queues are looked at.
    Sample,
    /// Something elapses in its cores.
    Cores { host: u32, timer: Timer },
}
