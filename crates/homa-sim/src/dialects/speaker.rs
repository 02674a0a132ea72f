//! The Homa implementations that take part in pairings, and their counters.

/// A dialect of Linux Homa that a model speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kernel {
    /// Before September 2026: unscheduled bytes, then grants.
    One,
    /// Since September 2026: START_MSG opens a message that needs grants.
    Two,
    /// The net-next version: everything is sent without grants, and RESEND has 36 bytes.
    Three,
}

/// The implementation at one end of a pairing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Speaker {
    /// This project's endpoint.
    Ours,
    /// A model kernel.
    Kernel(Kernel),
}

impl Speaker {
    /// All implementations.
    pub const ALL: [Speaker; 4] = [
        Speaker::Ours,
        Speaker::Kernel(Kernel::One),
        Speaker::Kernel(Kernel::Two),
        Speaker::Kernel(Kernel::Three),
    ];

    /// Returns a short name: `ours`, `1`, `2` or `3`.
    pub const fn name(self) -> &'static str {
        match self {
            Speaker::Ours => "ours",
            Speaker::Kernel(Kernel::One) => "1",
            Speaker::Kernel(Kernel::Two) => "2",
            Speaker::Kernel(Kernel::Three) => "3",
        }
    }
}

/// Counters of one implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Requests that its server executed.
    pub executed: u64,
    /// Requests that its server executed more than once.
    pub executed_again: u64,
    /// RESEND packets sent.
    pub resends: u64,
    /// Payload bytes put on the link.
    pub bytes: u64,
    /// Payload bytes put on the link more than once, even if the packets are not marked as retransmitted.
    pub bytes_twice: u64,
    /// Payload bytes that the link lost.
    pub bytes_lost: u64,
    /// Packets of an unknown type, and invalid packets.
    pub dropped: u64,
    /// Messages whose bytes differ from those that were sent.
    pub wrong: u64,
}
