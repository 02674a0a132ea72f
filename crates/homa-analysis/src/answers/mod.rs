//! Answers: pure functions of a [`Model`](crate::model::Model) and some options.
//!
//! Each result is a struct that serialises under the names of its fields. Times are in nanoseconds unless the
//! name says otherwise. Unless called payload, bytes are those of Homa packets, headers included.

#[cfg(test)]
mod any;
mod best_cases;
mod decompose;
mod delays;
mod grants;
mod hosts;
mod incoming;
mod lost;
mod messages;
mod missing_events;
mod packet;
mod path;
mod percentiles;
mod priorities;
mod rtt_bytes;
mod select;
#[cfg(test)]
pub(crate) mod testing;
mod throughput;

pub use decompose::{Decomposition, DelayedPacket, Parts, SwitchCheck, decompose};
pub use delays::{Bursts, Column, DelayTable, Delays, Stage, delays};
pub use grants::{Grants, PairGrants, grants};
pub use hosts::{Bottleneck, CoreUse, Cores, HostPacer, HostPolls, Polls, SharedCore, cores, pacer, polls};
pub use incoming::{IncomingGrants, OverTime, ReceiverGrants, incoming};
pub use lost::{Loss, LossDetection, LossPlace, LossSite, Losses, lost};
pub use messages::{Copies, CopyStep, FirstGrants, copy, first_grant};
pub use missing_events::MissingEvents;
pub use path::{Line, Minima};
pub use percentiles::{PERCENTILES, Percentiles};
pub use priorities::{
    Inversion, InversionSite, NodePriorities, Priorities, PriorityChange, PriorityUse, RecordingPoint,
    priorities,
};
pub use rtt_bytes::{PathBytes, RttBytes, rtt_bytes};
pub use select::Select;
pub use throughput::{NodeThroughput, Throughput, throughput};
