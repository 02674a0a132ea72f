//! Answers: pure functions of a [`Model`](crate::model::Model) and some options.
//!
//! Each result is a struct that serialises under the names of its fields. Times are in nanoseconds unless the
//! name says otherwise. Bytes are those of Homa's packets, headers included, unless they are called payload.

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
mod packet;
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
