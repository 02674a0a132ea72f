//! Policies that choose the core on which a received packet is processed.
//!
//! A [`Policy`] sees a [`Packet`] and the recent [`load`] of the cores, and chooses a core. [`POLICIES`]
//! lists them by their established names. Two further choices decide how much work interferes with other
//! work: how many packets a core takes at a time ([`batch`]), and which of several sleeping threads is woken
//! ([`wake`]).
//!
//! A datagram is steered by the header of its first packet, which suffices: by WIRE-23 of PROTOCOL.md all
//! packets of a bundle are for the endpoint that owns the first packet's RPC.
//!
//! This crate has no clock, thread or device: times, hashes and loads are arguments. The same calls therefore
//! give the same cores in a simulator, in a transport, and in the kernel. Some of the policies run there as
//! programs (`homa-steer-xdp`), which are compared with those here. Every structure is bounded when it is
//! made.
//!
//! # Design
//!
//! `homa-steer` has the policies that choose the core for a received packet, a file for each (`policies`),
//! and one table of their names (`table`). A policy gets a packet and the loads of the cores as arguments, so
//! that a simulator, a transport and a test use the same code.
//!
//! - **A packet is asked for alone, and tells of its batch.** Whoever merges packets (GRO) asks once for all
//!   of them, whoever sees each packet asks for each; policies that look at loads keep a batch together
//!   (`batch`), since packets of a message that are processed on two cores at once come out of order and lock
//!   each other out.
//! - **A choice has its reason** (`Reason`), which is a counter's name: what a policy did is known without
//!   knowing the policy.
//! - **What is not known is not pretended**: loads that only the scheduler knows are the caller's to give,
//!   and `load::Observed` has those that packets alone tell. `gen2` needs no others.
//! - **`sparse` is the patch's algorithm to the letter**, its odd cases included: a slot in the future is
//!   free, one of exactly a second is not, and a use of the hash fallback puts off the next new slot whoever
//!   asks.
//!
//! **In the simulator** (`homa-sim/cores`) a host has cores that packets and threads compete for. A `Machine`
//! has no clock, network or protocol: it is told what arrives and what has elapsed, and asks for timers, for
//! packets to be processed and for jobs to be ended. What each piece of work costs stands in files with
//! sources (`homa-sim/costs`), committed before anything was compared with them.
//!
//! - **It wraps a cluster's hosts** (`cluster/on_cores`): the fabric, the load and the deployed endpoint are
//!   those of every other run, and the machine decides when the endpoint gets a packet and when an
//!   application has sent or taken a message. A model with a protocol of its own would leave out what
//!   steering changes, grants that come late and acknowledgements that cost a core its time. A `Network` is
//!   for finding mistakes, has no loads, and checks what costs time: it has no cores.
//! - **A core is at one thing at a time**: interrupt, batch from the device, packet of the protocol, thread.
//!   Packets break off threads and never each other. Passes over device and backlog take turns as in the
//!   kernel, and after its limits of time or rounds a core leaves packets to a thread, which waits for those
//!   of applications: the tail of 5 to 7 ms.
//! - **Cold is what another core did last**, or what this core did too much since: with the first alone a
//!   core that does everything would never be cold, with the second alone spreading work over idle cores
//!   would cost nothing.
//! - **Data is paid for by the thread that sends its message**, all of it beforehand, since the kernel copies
//!   a message before it sends; grants and other packets by the core whose packet they answer.
//! - **The router of the sparse experiment** (`router`) is the same machine with other costs, between TCP
//!   connections that are no more than a window, an acknowledgement for every second segment, and half the
//!   window after a loss. Its links are never what limits, and so it needs no fabric.
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
pub use packet::{HomaPacket, Kind, Packet};
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
