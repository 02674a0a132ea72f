//! A software top-of-rack switch and bridge.
//!
//! Frames arrive at a port and are forwarded to the port behind which their destination was last seen, or to
//! all other ports. There they wait in one of eight queues, by the priority in their IP header, up to the
//! size of the buffer. They leave at a configured link rate, strictly the highest priority first. The switch
//! thus treats frames of virtual devices as a hardware switch treats packets under load, so that transports
//! can be compared on one machine.
//!
//! A time trace records when each frame was queued and when it had left the link; for a dropped frame it
//! records the reason. A frame is queued whole; if it holds a bundle (PROTOCOL.md WIRE-21), each of its
//! packets has these records.
//!
//! [`Switch`] is all of that without devices, clock or thread: the caller chooses the type of frames, and
//! time is an argument. [`Bridge`] runs it with the frames of network devices ([`homa_driver::frames`]).
//!
//! # Design
//!
//! `homa-switch` treats frames of network devices like the switch of a rack. `Switch` decides and has neither
//! devices nor a clock, so that its tests run on virtual time. It decides where a frame goes (`table`),
//! whether it may wait (`buffer`), in which queue (`queues`), and when it leaves (`port`). `Bridge` runs it
//! in one thread: it takes a burst from every port, then sends to every port the frames that are due.
//!
//! - **A link is the time at which it becomes idle**, in picoseconds. A frame starts when the previous one
//!   has left, not when the loop polls, so a late poll delays frames but does not lower the rate. There is no
//!   timer; the loop polls, or naps between polls (`BridgeConfig::nap`).
//! - **Frames are not moved.** The devices share one memory (`homa_driver::frames`). With AF_XDP a frame that
//!   is received by one device and sent by another is not copied in user space. With packet sockets it is
//!   copied once, since the frames of their ring must be returned in order.
//! - **A frame leaves when its last bit has left**, as on a real link; with `--cut-through` it leaves when
//!   its first bit does.
//! - **A full queue leaves room for the other queues of its port** (`buffer`), as in hardware switches. When
//!   one priority could fill a whole port, the lowest one caused drops of control packets of the highest. An
//!   RPC was then given up although its peer was alive.
//! - **Mean and maximum of queue lengths are exact**, and the distribution is sampled: a record for each
//!   frame would cost a tenth of the frame's processing.
//! - **Each nanosecond of an RPC has one cause** (`homa-analysis/critical_path`). The analysis walks back
//!   from the RPC's end to its start, along what each moment waited for: the packet that completed the
//!   message, then that packet's stages. Next comes the packet, pacer or grant before which it could not be
//!   sent. While a sender waits for a grant, the walk follows the grant's own path and the receiver's reason.
//!   Time only goes back, so the causes add up to the duration for any traces. The network's own time is the
//!   minimum that such packets took on that path (`least`); the rest of a hop is queueing. The avoidable time
//!   of an RPC (`tail`) is all time of the avoidable causes, and for the others the time beyond the least
//!   disturbed tenth of its size. Stages missing from all traces count for the cause around them, and every
//!   answer says so.
//! - **A late thread of a host is one cause** (`Cause::is_late_thread`), however it shows: as an unread
//!   packet, as an unsent grant or packet, or as a wake-up. Counted one by one, a hogged processor would rank
//!   below any other cause, since it is divided. Counted over all hosts, the lateness of a busy machine would
//!   rank above a planted cause.
//! - **Time traces have the times of the links** (`Switch::set_trace`): a frame that the loop finds late is
//!   stamped with its departure time. The clock is the unadjusted one, as in the traces of hosts. Records
//!   name the RPC and offset of Homa packets (`packet`), so that a packet can be found in the traces of its
//!   sender, the switch and its receiver.
//! - **A separate thread answers requests for counters** (`homa-cli/switch/control`). The loop only adds up
//!   counters; writing them takes longer than the shortest buffer lasts.

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
pub use switch::{Admission, DropReason, Route, Switch};
