//! Steers received packets across cores with a program that a device runs on each frame (XDP), without a
//! kernel patch.
//!
//! The policies are those of `homa-steer` that need only the information available to a program on a device
//! ([`IN_KERNEL`]). A frame for another core is handed over through a map of cores (CPUMAP), and the kernel
//! processes it there. A frame for the core on which it arrived is processed immediately.
//!
//! [`attach()`] makes devices steer by a [`SteerConfig`], until [`detach`] or, if the process holds the
//! program, until its [`Steering`] is dropped. [`status()`] shows the decisions and the packets of each core,
//! and [`cost`] shows how long a decision takes.
//!
//! Requires Linux 5.15 and the capabilities CAP_BPF and CAP_NET_ADMIN. The kernel's own packet steering (RPS)
//! must be off for the device ([`kernel_steers`]); otherwise both steer.
//!
//! # Design
//!
//! Programs are assembled at run time by `homa-bpf` (`program`, one file per policy) and cannot share the
//! library's code. A test therefore runs a program and the library on the same packets, times and hashes, on
//! request a million packets per policy, and requires identical choices (`tests`).
//!
//! - **All state is one value of one array** (`state`), whose address the program knows from the start: it
//!   needs no lookup and nothing grows. Cores write to it without a lock. The effect is bounded, and is
//!   measured by `tests/racing`:
//!   - A flow that starts on two cores at once gets two slots, one of which expires after a second.
//!   - If two new flows take the same slot, one loses it until its next packet. If a core is stopped between
//!     checking the slot and taking it, the other flow may have sent a few packets there in the meantime.
//!   - Two batches of `gen2` may be sent to the same third core.
//!
//!   A lock would cost every packet as much as this costs one packet in thousands.
//! - **Data that different cores write is a cache line apart, and unchanged data is not written.** A core
//!   that takes a cache line from another waits longer than a whole decision takes. `sparse` therefore uses
//!   the kernel's coarse clock, as the kernel patch used ticks, so that a slot is written at most once per
//!   tick. `gen2` has limits of microseconds, and the exact clock costs a third of its decision. The exact
//!   clock is read for the first three packets of a batch and then for every fourth
//!   (`homa_steer::batch::Arrivals`). Packets between these reads, in the same tick, count as part of the
//!   batch: up to three packets that arrive alone after a longer batch go with it, while a lone packet after
//!   another lone packet always stays. Reading the clock before anything is loaded gained nothing.
//! - **Up to two VLAN tags are skipped**, as in the kernel's own hash; frames have no more.
//! - **The search of `sparse` is unrolled**, since a loop costs more than the slots of a few cores.
//! - **Generic mode is the default.** It hands packets over as the kernel's own steering does, with checksum
//!   state and segment sizes. Native mode hands over bare bytes: a checksum that a veth left for a device is
//!   never filled in.
//! - **Nothing is pinned.** A program that must outlive its process belongs to the device (rtnetlink); any
//!   other belongs to a link, which ends with the process. Status is read by following the device to its
//!   program and the program to its maps. A file system of pins would have to be mounted, is missing in a
//!   fresh network namespace, and would keep state of a device that is gone.
//! - **An error leaves nothing attached.** Of several devices, either all are steered or none. `homa steer
//!   attach` detaches its program if it cannot write to standard output. A warning that cannot be written
//!   ends nothing.
//! - **Drops are packets handed over minus packets that arrived.** A program for each receiving core counts
//!   arrivals, since the kernel reports a full queue only through a trace point. The program counts for its
//!   core wherever it runs: while a core is offline, another core serves its map entry, and no packet is
//!   lost.
//! - **What a device cannot know is left out.** A batch consists of packets without a pause, so that the
//!   first one appears to be alone. Loads are the times at which packets arrived at cores and were sent to
//!   them. The library's `Arrivals` and `ObservedLoads` do the same, for the comparison and for users who
//!   know no more.

#![cfg_attr(not(test), forbid(unsafe_code))]

mod attach;
mod config;
mod device;
mod error;
mod program;
mod state;
mod status;

#[cfg(test)]
mod tests;

pub use attach::{AttachLifetime, Steering, attach, detach};
pub use config::{Filter, IN_KERNEL, SteerConfig};
pub use device::kernel_steers;
pub use error::SteeringError;
pub use status::{CoreStatus, Cost, Status, cost, status, steered};
