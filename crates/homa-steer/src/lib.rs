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
