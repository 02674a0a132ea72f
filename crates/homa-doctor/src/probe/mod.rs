//! Checks whether the network between hosts keeps priorities.
//!
//! Probes of all priorities cross the network, first alone and then together with a load of the lowest
//! priority. If the path contains a queue with priorities, the load delays probes of its own priority but not
//! those of higher priorities. Clocks need not agree, because delays are relative to the shortest delay
//! without load.
//!
//! One host calls [`listen`], and one or more other hosts call [`send`]. The listener sends instructions to
//! the other hosts, and all hosts get the same [`Results`]. Both functions report their progress to `notify`,
//! one line at a time.

mod control;
mod listen;
mod send;
mod verdict;

use std::net::SocketAddr;
use std::time::Duration;

pub use listen::listen;
pub use send::send;
pub use verdict::{PriorityDelays, Results, Verdict};

/// Default port of the listener.
pub const PORT: u16 = 14_700;

/// Options of a listener.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// TCP address for the probing hosts. Probes arrive at free UDP ports of the same IP address.
    pub bind: SocketAddr,
    /// Number of probing hosts to wait for, 1 to 64. The first one sends the probes, and any others send the
    /// load.
    pub senders: u16,
    /// Time for which probes are sent during the load.
    pub loaded: Duration,
    /// Rate of each host's load in bits of UDP payload per second; `None`: as fast as possible.
    pub load_rate_bps: Option<u64>,
    /// Priority of the load, 0 to 6.
    pub load_priority: u8,
}
