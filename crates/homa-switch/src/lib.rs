//! A software top-of-rack switch and bridge.
//!
//! Frames come in by ports, go to the port behind which their destination was last seen (or to all others), wait there in one
//! of eight queues by the priority in their IP header, and leave as a link of a set rate would let them: strictly the highest priority
//! first, and no more than a buffer holds. What a hardware switch does to packets under load is done here to those of virtual devices, so
//! that transports can be compared on one machine.
//!
//! With a time trace it says of each frame when it came into a queue, when it had left the link, and what became of it where it did not.
//! A frame is queued whole; if it holds a bundle (PROTOCOL.md WIRE-21), each of its packets has these records.
//!
//! [`Switch`] is all of that without devices, clock or thread: frames are whatever the caller keeps for them, and time is an argument.
//! [`Bridge`] runs it with the frames of network devices ([`homa_driver::frames`]).

#![forbid(unsafe_code)]

mod bridge;
mod buffer;
mod config;
mod depth;
mod ethernet;
mod packet;
mod port;
mod queues;
mod stats;
mod switch;
mod table;

pub use bridge::{Bridge, BridgeConfig, BridgeError, LONGEST_NAP, Left};
pub use buffer::QUEUE_ALPHA;
pub use config::{
    Buffer, ConfigError, ETHERNET_OVERHEAD_BYTES, Forwarding, MAX_RATE_BPS, MIN_RATE_BPS, SwitchConfig,
};
pub use depth::DepthSummary;
pub use ethernet::{Head, Mac, mark_congestion, parse};
pub use packet::{Packet, Packets};
pub use stats::{PortSnapshot, QueueSnapshot, Snapshot};
pub use switch::{Admitted, Refused, Route, Switch};

/// Priorities, and so queues of a port.
pub const PRIORITIES: usize = 8;
