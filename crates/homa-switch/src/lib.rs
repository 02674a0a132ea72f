//! A software top-of-rack switch and bridge.
//!
//! Frames arrive at a port and are forwarded to the port behind which their destination was last seen, or to
//! all other ports. At the output port they are queued in one of eight queues, by the priority in their IP
//! header, up to the size of the buffer. They leave at a configured link rate, in strict priority order. The
//! switch thus treats frames of virtual devices as a hardware switch treats packets under load, so that
//! transports can be compared on one machine.
//!
//! A time trace records when each frame was queued and when it left the link; for a dropped frame it records
//! the reason. A frame is always queued as a whole. If it holds a bundle (PROTOCOL.md WIRE-21), each packet
//! of the bundle has these records.
//!
//! [`Switch`] does all of this without devices, clock or thread: the caller chooses the type of frames, and
//! time is an argument. [`Bridge`] runs it with the frames of network devices ([`homa_driver::frames`]).
//!
//! # Design
//!
//! `homa-switch` treats frames of network devices like a top-of-rack switch. `Switch` makes the decisions and
//! has neither devices nor a clock, so its tests run on virtual time. It decides where a frame goes
//! (`table`), whether it may be queued (`buffer`), in which queue (`queues`), and when it leaves (`port`).
//! `Bridge` runs the switch in one thread: it receives a burst from every port, and then sends to every port
//! the frames that are due.
//!
//! - **A link is represented by the time at which it becomes idle**, in picoseconds. A frame starts when the
//!   previous one has left, not when the loop polls, so a late poll delays frames but does not lower the
//!   rate. There is no timer; the loop polls, or naps between polls (`BridgeConfig::nap`).
//! - **Frames are not moved.** The devices share one memory (`homa_driver::frames`). With AF_XDP, a frame
//!   received by one device and sent by another is not copied in user space. With packet sockets it is copied
//!   once, since the frames of their ring must be returned in order.
//! - **A frame leaves when its last bit has left**, as on a real link; with `--cut-through` it leaves when
//!   its first bit does.
//! - **A full queue leaves room for the other queues of its port** (`homa-egress`, which has the rule, and is
//!   shared with the simulator), as in hardware switches. When
//!   one priority could fill a whole port, the lowest priority caused drops of control packets of the
//!   highest. An RPC was then given up although its peer was alive.
//! - **Mean and maximum of queue lengths are exact**, and the distribution is sampled: recording a value for
//!   each frame would cost a tenth of the frame's processing.
//! - **Each nanosecond of an RPC has one cause** (`homa-analysis/critical_path`). The analysis walks back
//!   from the RPC's end to its start, along what each moment waited for: first the packet that completed the
//!   message, then that packet's stages. Next comes what the packet had to wait for before it could be sent:
//!   another packet, the pacer or a grant. While a sender waits for a grant, the walk follows the grant's own
//!   path and the receiver's reason. The walk only goes back in time, so the causes add up to the duration
//!   for any traces. The network's own time is the minimum that such packets took on that path (`least`); the
//!   rest of a hop is queueing. The avoidable time of an RPC (`tail`) is all time of the avoidable causes.
//!   For the other causes, it is the time beyond that of the least disturbed tenth of RPCs of that size.
//!   Stages missing from all traces count for the cause around them, and every answer says so.
//! - **A host's late thread is one cause** (`Cause::is_late_thread`), however it appears: as an unread
//!   packet, as an unsent grant or packet, or as a wake-up. If these were counted separately, a hogged
//!   processor would be split up and rank below any other cause. If they were summed over all hosts, the
//!   lateness of a busy machine would rank above a planted cause.
//! - **Time traces contain the times of the links** (`Switch::set_trace`): a frame that the loop finds late
//!   is recorded with its departure time. The clock is the unadjusted one, as in the traces of hosts. Records
//!   contain the RPC and offset of Homa packets (`packet`), so that a packet can be found in the traces of
//!   its sender, the switch and its receiver.
//! - **A separate thread answers requests for counters** (`homa-cli/switch/control`). The loop only
//!   increments counters; writing them out takes longer than the smallest buffer lasts.

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
pub use config::{ConfigError, ETHERNET_OVERHEAD_BYTES, MAX_RATE_BPS, MIN_RATE_BPS, SwitchConfig};
pub use control::{ControlError, ask};
pub use depth::DepthSummary;
pub use ethernet::{FrameHeader, Mac, mark_congestion, parse};
pub use homa_egress::{Alpha, Buffer, Forwarding, PRIORITIES, QUEUE_ALPHA};
pub use packet::{Packet, Packets};
pub use stats::{PortSnapshot, QueueSnapshot, Snapshot};
pub use switch::{Admission, DropReason, Route, Switch};
