//! Whether the network between hosts keeps priorities.
//!
//! Probes of all priorities cross the network, first alone and then together with a load of the lowest
//! priority. If a queue with priorities is on the path, the load delays the probes of its own priority and
//! not those above. Clocks need not agree: delays are relative to the shortest one without load.
//!
//! One host calls [`listen`], one or more others call [`send`]; the listener sends them instructions, and all
//! of them get the same [`Results`]. Both functions report their progress, a line at a time, to `notify`.

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
    /// TCP address for the probing hosts; probes come to free UDP ports of the same IP address.
    pub bind: SocketAddr,
    /// Probing hosts to wait for, 1 to 64. The first one sends the probes; the load comes from the others, if
    /// any.
    pub senders: u16,
    /// The time for which probes are sent during the load.
    pub loaded: Duration,
    /// The rate of each host's load, bits of UDP payload per second; `None`: as fast as possible.
    pub load_rate_bps: Option<u64>,
    /// Priority of the load, 0 to 6.
    pub load_priority: u8,
}
