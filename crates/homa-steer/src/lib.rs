//! Which core does the work: policies that choose the core on which a received packet is processed.
//!
//! A [`Policy`] sees a [`Packet`] and the recent [`load`] of the cores, and picks a core. [`POLICIES`] lists them by the names that
//! the field knows them by. Beside them stand the two other choices that decide who is in whose way: how many packets a core takes
//! at a time ([`batch`]), and which of several sleeping threads is woken ([`wake`]).
//!
//! A datagram is steered by the header of its first packet, which suffices: by WIRE-23 of PROTOCOL.md all
//! packets of a bundle are for the endpoint that owns the first packet's RPC.
//!
//! Nothing here has a clock, a thread or a device: times, hashes and loads are arguments, so that the same calls give the same cores in a
//! simulator, in a transport, and in the kernel, where some of the policies run as programs (`homa_driver::steer`) that are held
//! against those here. Every structure is bounded when it is made.
//!
//! # Design
//!
//! `homa-steer` has the policies that choose the core for a received packet, a file for each (`policies`),
//! and one table of their names (`table`). A policy sees a packet and the loads of the cores, and both are
//! arguments, so that a simulator, a transport and a test drive the same code.
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
//! `homa-driver/steer` runs four of them at devices, as programs assembled here like those of AF_XDP
//! (`steer/program`, a file for each policy; `homa-bpf` is what both use). A frame for another core goes there
//! by a map of cores, and the kernel makes the rest; one for the core on which it arrived goes on at once.
//! Programs cannot share the library's code, so that a test runs both on the same packets, times and hashes,
//! a million of each policy where it is asked to, and wants no difference (`steer/tests`).
//!
//! - **All state is one value of one array** (`steer/state`), whose address the program has from the start:
//!   no look-up, nothing to grow. Cores write to it without a lock. What that can do is bounded, and measured
//!   by `steer/tests/racing`: a flow that begins on two cores at once gets a slot twice, of which one is
//!   forgotten after a second; one of two new flows that take the same slot loses it until its next packet,
//!   and with a core that is stopped between its look and its taking the other flow may have sent a few
//!   packets there by then; two batches of `gen2` may have the same third core. A locked state would cost
//!   every packet what this costs one in thousands.
//! - **What different cores write lies a cache line apart, and what did not change is not written**: a core
//!   that takes a line from another waits longer than a whole decision takes. `sparse` therefore has the
//!   kernel's coarse clock, as the patch had its ticks, so that a slot is written once a tick. `gen2` has
//!   bounds of microseconds, and the exact clock costs a third of its decision: it is read for the first
//!   three packets of a batch and then for every fourth (`homa_steer::batch::Arrivals`). What comes between,
//!   in the same tick, is taken to be of the batch, so that up to three packets that come alone behind a
//!   longer batch go with it; a lone packet behind a lone one always stays. Reading the clock before anything
//!   is loaded, so that it waits for no load, gained nothing.
//! - **Behind VLAN tags** the program looks for what is steered, as the kernel's own hash does: two of them
//!   at most, since a frame has no more.
//! - **The search of `sparse` is written out slot by slot**, since a loop costs more than the slots of a few
//!   cores.
//! - **Generic mode is the default.** In it a packet is handed over as the kernel's own steering does it,
//!   with its sums and sizes. In the driver's mode it is handed over as bare bytes: what a veth left for a
//!   device to fill in is never filled in.
//! - **Nothing is pinned.** A program that is to stay is the device's own (rtnetlink), else a link's, which
//!   goes with its process. Whoever asks for the status goes from the device to its program and from there to
//!   its maps. A file system of pins would have to be mounted, is not there in a fresh network namespace, and
//!   would keep what belongs to a device that is gone.
//! - **An error leaves nothing attached**: several devices are steered all or none, and `homa steer attach`
//!   takes its program off again where standard output takes no word of it, be it closed or full. Warnings
//!   that nobody can read end nothing.
//! - **Drops are what was sent less what came**: a program for each receiving core counts, since the kernel
//!   tells of a full queue by a trace point alone. It counts for its core wherever it runs: while a core is
//!   switched off, the kernel has another one do its part of the map, and no packet is lost.
//! - **What one cannot know at a device is left out**: a batch is what comes without a pause, so that the
//!   first packet of one seems alone; loads are where packets arrived and where they were sent. The library's
//!   `Arrivals` and `Observed` are the same, for the comparison and for whoever knows no more.
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
