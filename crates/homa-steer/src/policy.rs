//! The interface of a policy.

use std::fmt;

use crate::cores::Core;
use crate::load::Loads;
use crate::packet::Packet;

/// Selects the core on which a received packet is processed.
///
/// The choices depend only on the policy's configuration and on the calls: a policy has no clock and no
/// randomness.
pub trait Policy: fmt::Debug + Send {
    /// Returns the core for this packet: one of the policy's cores, or the core on which the packet arrived.
    /// Called once per packet, or once per batch.
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice;

    /// Records that an application thread on this core reads packets with this flow hash.
    fn consumed(&mut self, _flow_hash: u32, _core: Core) {}
}

/// A core, and the reason for selecting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The core.
    pub core: Core,
    /// The reason.
    pub reason: Reason,
}

impl Choice {
    pub(crate) fn new(core: Core, reason: Reason) -> Choice {
        Choice { core, reason }
    }
}

/// The reason for selecting a core. The values index counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The hash of the flow selects the core.
    FlowHash,
    /// The hash of the ports and the RPC ID selects the core.
    RpcHash,
    /// The flow already has this core.
    KnownFlow,
    /// The flow was just assigned this core.
    NewFlow,
    /// A thread that reads the flow runs on the core.
    Consumer,
    /// The packet stays on the core where it arrived.
    Stays,
    /// The core is the least recently used one.
    LeastRecent,
    /// Earlier packets of the batch went to the core.
    SameBatch,
    /// The core used last keeps up.
    KeepsUp,
    /// No application thread, or nothing at all, runs on the core.
    Free,
    /// The core has the least work.
    LeastLoaded,
}

impl Reason {
    /// All reasons in numerical order.
    pub const ALL: [Reason; 11] = [
        Reason::FlowHash,
        Reason::RpcHash,
        Reason::KnownFlow,
        Reason::NewFlow,
        Reason::Consumer,
        Reason::Stays,
        Reason::LeastRecent,
        Reason::SameBatch,
        Reason::KeepsUp,
        Reason::Free,
        Reason::LeastLoaded,
    ];

    /// Returns the name used in tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::FlowHash => "flow-hash",
            Reason::RpcHash => "rpc-hash",
            Reason::KnownFlow => "known-flow",
            Reason::NewFlow => "new-flow",
            Reason::Consumer => "consumer",
            Reason::Stays => "stays",
            Reason::LeastRecent => "least-recent",
            Reason::SameBatch => "same-batch",
            Reason::KeepsUp => "keeps-up",
            Reason::Free => "free",
            Reason::LeastLoaded => "least-loaded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_by_their_numbers_and_have_names_of_their_own() {
        for (i, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
            assert!(Reason::ALL.iter().filter(|other| other.name() == reason.name()).count() == 1);
        }
    }
}
