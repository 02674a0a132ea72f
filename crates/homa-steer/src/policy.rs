//! What a policy is.

use std::fmt;

use crate::cores::Core;
use crate::load::Loads;
use crate::packet::Packet;

/// Chooses the core on which a received packet is processed.
///
/// What it chooses follows from what it was made with and from the calls alone: there is no clock and no randomness in it.
pub trait Policy: fmt::Debug + Send {
    /// The core for this packet, one of those that the policy was made for or the one on which the packet arrived. Asked once for each
    /// packet, or once for each batch.
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice;

    /// A thread of the application takes what is received with this flow hash, and runs on this core.
    fn consumed(&mut self, _flow_hash: u32, _core: Core) {}
}

/// A core and why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The core.
    pub core: Core,
    /// Why.
    pub reason: Reason,
}

impl Choice {
    pub(crate) fn new(core: Core, reason: Reason) -> Choice {
        Choice { core, reason }
    }
}

/// Why a core was chosen. The numbers are those of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// By the flow's hash.
    FlowHash,
    /// By the hash of ports and RPC id.
    RpcHash,
    /// The flow has this core.
    KnownFlow,
    /// The flow was given this core now.
    NewFlow,
    /// A thread that takes what comes by the flow runs there.
    Consumer,
    /// The packet stays where it arrived.
    Stays,
    /// The core was not used for longest.
    LeastRecent,
    /// The packets before it in the batch went there.
    SameBatch,
    /// The core used last keeps up.
    KeepsUp,
    /// No application's thread runs there, or nothing at all.
    Free,
    /// It has the least to do.
    LeastLoaded,
}

impl Reason {
    /// All of them, in the order of their numbers.
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

    /// Its name in tables and JSON.
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
