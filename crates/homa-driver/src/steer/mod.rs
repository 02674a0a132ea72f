//! Steering of received packets over cores by a program that a device runs on each frame (XDP), with no patch of the kernel.
//!
//! The policies are those of `homa-steer` that need no more than a program at a device knows ([`IN_KERNEL`]). A frame for another core is
//! handed over by a map of cores (CPUMAP), and the kernel goes on with it there; one for the core on which it arrived goes on at once.
//! Tests hold the programs against the library, packet by packet.
//!
//! It takes Linux 5.15 and the capabilities CAP_BPF and CAP_NET_ADMIN. The kernel's own packet steering (RPS) is to be off for the device,
//! or both steer.

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
