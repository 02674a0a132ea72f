//! Policies that select the core on which a received packet is processed.
//!
//! A [`Policy`] selects a core, given a [`Packet`] and the recent [`load`] of the cores. [`POLICIES`] lists
//! the policies by their established names. Two further choices affect how much different pieces of work
//! interfere with each other: how many packets a core takes at a time ([`batch`]), and which of several
//! sleeping threads is woken ([`wake`]).
//!
//! A datagram is steered by the header of its first packet. This suffices: by WIRE-23 of PROTOCOL.md, all
//! packets of a bundle are for the endpoint that owns the first packet's RPC.
//!
//! This crate has no clock, thread or device: times, hashes and loads are arguments. The same calls therefore
//! give the same cores in a simulator, in a transport, and in the kernel. Some of the policies also run in
//! the kernel as programs (`homa-steer-xdp`), whose choices are compared with those of the policies here. The
//! size of every structure is bounded when it is created.
//!
//! # Design
//!
//! `homa-steer` contains the policies that select the core for a received packet, one per file (`policies`),
//! and one table of their names (`table`). A policy gets a packet and the loads of the cores as arguments, so
//! that a simulator, a transport and a test use the same code.
//!
//! - **Each packet is steered separately, with its position in a batch.** A caller that merges packets (GRO)
//!   makes one query for all of them. A caller that handles each packet separately makes one query for each.
//!   Policies that use loads keep a batch together (`batch`): if packets of a message are processed on two
//!   cores at once, they get out of order and contend for locks.
//! - **Each choice has a reason** (`Reason`), which names a counter. A policy's behaviour is therefore
//!   visible without knowledge of the policy.
//! - **Unknown loads are not invented.** The caller passes the loads that only the scheduler knows.
//!   `load::ObservedLoads` contains those that can be derived from packets alone, and `gen2` needs no others.
//! - **`sparse` follows the patch's algorithm exactly**, including its odd cases: a slot with a time in the
//!   future is free, and a slot exactly one second old is not. Each use of the hash fallback, by any flow,
//!   delays the next new slot.
//!
//! **In the simulator** (`homa-sim/cores`) packets and threads compete for a host's cores. A `Machine` has no
//! clock, network or protocol. Its caller reports arrivals and elapsed time. In return, the machine requests
//! timers, packet processing and the end of jobs. The cost of each piece of work is in files with sources
//! (`homa-sim/costs`), which were committed before any comparison was made.
//!
//! - **It wraps a cluster's hosts** (`cluster/on_cores`): the fabric, the load and the deployed endpoint are
//!   the same as in every other run. The machine decides when the endpoint gets a packet, and when an
//!   application has sent or received a message. A model with its own protocol would omit what steering
//!   changes: late grants, and acknowledgements that cost core time. A `Network` has no cores, because its
//!   purpose is to find errors: it has no loads, and makes checks that take time.
//! - **A core does one thing at a time**: an interrupt, a batch from the device, a packet of the protocol, or
//!   a thread. Packets preempt threads and never each other. Passes over the device and the backlog alternate
//!   as in the kernel. When a core reaches its limit of time or rounds, it leaves the remaining packets to a
//!   thread, which has to wait for application threads. This causes the tail of 5 to 7 ms.
//! - **Work is cold if another core did it last**, or if this core has done too much other work since. With
//!   the first rule alone, work on a core that does everything would never be cold. With the second rule
//!   alone, spreading work over idle cores would cost nothing.
//! - **The sending thread pays for the data of its message**, all of it in advance, since the kernel copies a
//!   message before it sends. For grants and other packets, the core that processed the packet they answer
//!   pays.
//! - **The router of the sparse experiment** (`router`) is the same machine with different costs, between
//!   simplified TCP connections, which have a window, an acknowledgement for every second segment, and a
//!   halved window after a loss. Its links are never the bottleneck, so it needs no fabric.
//!
//! **At network devices** four of the policies run as programs: see `homa-steer-xdp`.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

pub mod batch;
mod cores;
mod error;
pub mod hash;
pub mod load;
mod packet;
mod policies;
mod policy;
mod settings;
mod table;
pub mod wake;

pub use cores::{CORE_NUMBERS, Core, Cores, MAX_CORES};
pub use error::SteerError;
pub use load::{CoreLoad, Loads};
pub use packet::{HomaPacket, Packet, PacketKind};
pub use policies::bypass::Bypass;
pub use policies::gen2::Gen2;
pub use policies::gen3::Gen3;
pub use policies::homa_hash::HomaHash;
pub use policies::idle::Idle;
pub use policies::least_loaded::LeastLoaded;
pub use policies::no_tasks::NoTasks;
pub use policies::rfs::Rfs;
pub use policies::rss_hash::RssHash;
pub use policies::same_core::SameCore;
pub use policies::sparse::{ACTIVE_NS, MAX_LEVELS, NEVER, Sparse};
pub use policy::{Choice, Policy, Reason};
pub use settings::Settings;
pub use table::{Entry, POLICIES, PolicyName};
