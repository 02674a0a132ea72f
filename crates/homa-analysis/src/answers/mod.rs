//! Answers: each a pure function of a [`Model`] and what it is asked for, and a struct of what it found, which serialises
//! under the names of its fields. Times are nanoseconds unless a name says otherwise; bytes are those of Homa's packets, headers
//! included, unless they are called payload.

#[cfg(test)]
mod any;
mod best;
mod decompose;
mod delays;
mod grants;
mod hosts;
mod incoming;
mod lacks;
mod lost;
mod messages;
mod path;
mod percentiles;
mod priorities;
mod rtt_bytes;
mod select;
#[cfg(test)]
pub(crate) mod testing;
mod throughput;

pub use decompose::{Decomposition, Delayed, Parts, SwitchCheck, decompose};
pub use delays::{Bursts, Column, DelayTable, Delays, Stage, delays};
pub use grants::{GrantedTo, Grants, grants};
pub use hosts::{Bottleneck, CoreUse, Cores, PacerOf, Polls, PollsOf, SharedCore, cores, pacer, polls};
pub use incoming::{Incoming, IncomingOf, OverTime, incoming};
pub use lacks::Lack;
pub use lost::{Found, Loss, LossPlace, Losses, Where, lost};
pub use messages::{Copies, CopyStep, FirstGrants, copy, first_grant};
pub use path::{Line, Minima};
pub use percentiles::{PERCENTILES, Percentiles};
pub use priorities::{
    Inversion, InversionAt, NodePriorities, Priorities, PriorityChange, PriorityUse, SeenAs, priorities,
};
pub use rtt_bytes::{PathBytes, RttBytes, rtt_bytes};
pub use select::Select;
pub use throughput::{NodeThroughput, Throughput, throughput};

use crate::model::{At, Model, Packet};
pub(crate) use crate::model::{DATA, GRANT};

/// Bytes of a DATA packet before its payload.
pub(crate) const DATA_HEADER_BYTES: u32 = 56;

/// Payload of a DATA packet in bytes.
pub(crate) fn payload(packet: &Packet) -> u64 {
    u64::from(packet.length.saturating_sub(DATA_HEADER_BYTES))
}

/// The way of a packet that two hosts saw: when its sender made it and when its receiver had processed it.
pub(crate) fn way_ns(packet: &Packet) -> Option<i64> {
    packet.received.since(packet.sent)
}

/// The names of a packet's sender and receiver.
pub(crate) fn ends(model: &Model, packet: &Packet) -> (u16, u16) {
    let rpc = &model.rpcs[packet.rpc as usize];
    (rpc.sender(packet.direction), rpc.receiver(packet.direction))
}

/// The earlier of two moments, of which either may be missing.
pub(crate) fn earlier(a: At, b: At) -> At {
    a.min(b)
}
