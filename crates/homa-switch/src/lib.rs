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
//!
//! # Design
//!
//! `homa-switch` does to frames of network devices what the switch of a rack does. `Switch` decides and has
//! neither devices nor a clock, so that its tests run on virtual time: where a frame goes (`table`), whether
//! it may wait (`buffer`), in which queue (`queues`), and when it leaves (`port`). `Bridge` runs it, in one
//! thread: from every port a burst, then to every port what is due.
//!
//! - **A link is a moment**: when it will be free, in picoseconds. A frame starts when the one before has
//!   gone, not when somebody looks, so that a late look makes frames late and the rate no lower. There is no
//!   timer; the loop polls, or naps between looks (`BridgeConfig::nap`).
//! - **Frames stay where they are.** The devices share one memory (`homa_driver::frames`). By AF_XDP a frame
//!   that comes by one device and leaves by another is not copied in user space; by packet sockets it is
//!   copied once, since their ring must go round.
//! - **A frame leaves when its last bit has gone**, as from a real link; `--cut-through` has it leave as its
//!   first one goes.
//! - **A full queue leaves room for the others of its port** (`buffer`), as switches have it: where one
//!   priority could take all of a port, the lowest had control packets of the highest dropped, and an RPC was
//!   given up whose peer was there.
//! - **Depths are followed exactly for mean and maximum**, and sampled for the distribution: a record for
//!   each frame would cost a tenth of what the frame does.
//! - **Each nanosecond of an RPC has one cause** (`homa-analysis/critical_path`): the way from its end back
//!   to its start is walked along what each moment waited for: the packet that completed the message, that
//!   packet's stages, then the packet, the pacer or the grant before which it could not be sent; while a
//!   sender waits for a grant, the grant's own way and the receiver's reason. Time only goes back, so that
//!   the causes add up to the duration whatever the traces hold. What the network itself takes is the least
//!   that such packets took on that way (`least`); the rest of a hop is a queue's. What an RPC need not have
//!   taken (`tail`): all of the avoidable causes, and of the others what is beyond the least disturbed tenth
//!   of its size. Stages that no trace has fall to the cause around them, and every answer says so.
//! - **A host whose thread runs late is one cause** (`Cause::is_late_thread`), however it shows: as a packet
//!   that is not read, a grant or a packet that is not sent, a wake-up, by what was to be done just then.
//!   Counted one by one, a hogged processor lost to any other cause by being divided; counted over all hosts,
//!   the lateness of a busy machine won against what was planted.
//! - **Time traces have the times of the links** (`Switch::set_trace`): a frame found late by the loop is
//!   stamped with the time at which it left. They are of the clock that nobody adjusts, on which the traces
//!   of hosts are, too, and name RPC and offset of Homa packets (`packet`), so that a packet is found in the
//!   trace of its sender, of the switch and of its receiver.
//! - **Who asks for counters has them from a thread** (`homa-cli/switch/control`). The loop only counts
//!   together; to write them takes longer than the shortest buffer.

#![forbid(unsafe_code)]

mod bridge;
mod buffer;
mod config;
mod control;
mod depth;
mod ethernet;
mod packet;
mod port;
mod queues;
mod stats;
mod switch;
mod table;

pub use bridge::{Bridge, BridgeConfig, BridgeError, LONGEST_NAP, PortOutput};
pub use buffer::QUEUE_ALPHA;
pub use config::{
    Buffer, ConfigError, ETHERNET_OVERHEAD_BYTES, Forwarding, MAX_RATE_BPS, MIN_RATE_BPS, PRIORITIES,
    SwitchConfig,
};
pub use control::{ControlError, ask};
pub use depth::DepthSummary;
pub use ethernet::{FrameHeader, Mac, mark_congestion, parse};
pub use packet::{Packet, Packets};
pub use stats::{PortSnapshot, QueueSnapshot, Snapshot};
pub use switch::{Admitted, Refused, Route, Switch};
