//! What the drivers that send and receive frames of a device themselves have in common: the frames, the device, the way to a
//! peer, and the port that the kernel keeps free for them.
//!
//! The kernel remains the machine's network stack: it resolves addresses, knows the routes and gets the reports of ICMP. What
//! is here asks it.

pub(crate) mod clock;
pub(crate) mod device;
mod error;
pub(crate) mod frame;
pub(crate) mod interface;
pub(crate) mod neighbour;
pub(crate) mod netlink;
pub(crate) mod reserve;

pub use error::LinkError;
