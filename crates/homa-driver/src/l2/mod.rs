//! Code shared by the drivers that send and receive a device's frames themselves. It covers the frames, the
//! device, the route to a peer, and the port that the kernel reserves for these drivers.
//!
//! The kernel remains the machine's network stack: it resolves addresses, selects routes and receives ICMP
//! reports. This module queries it.

pub(crate) mod clock;
pub(crate) mod device;
mod error;
pub(crate) mod frame;
pub(crate) mod interface;
pub(crate) mod neighbour;
pub(crate) mod netlink;
pub(crate) mod reserve;

pub use error::LinkError;
