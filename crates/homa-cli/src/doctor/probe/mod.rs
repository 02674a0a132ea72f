//! `homa doctor listen` and `homa doctor probe`: whether what lies between hosts keeps priorities.
//!
//! Probes of all priorities cross the network, first alone and then beside a load of the lowest one. Where a queue with priorities is
//! on the way, the load delays the probes of its own priority and not those above. Clocks need not agree: delays count from the shortest
//! that was seen while nothing else was sent.

mod control;
mod listen;
mod send;
mod verdict;

pub use listen::listen;
pub use send::probe;

use std::path::PathBuf;

use clap::Args;
use homa_report::units::{duration_ns, rate_bps};

/// Port of the listener, where none is named.
pub const PORT: u16 = 14_700;

/// `homa doctor listen`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa doctor listen                                one `homa doctor probe` from another host
  homa doctor listen --senders 3 --seconds 5s       three hosts: the first to come probes, the others send the load

With one sender the load and the probes come from the same host, and the queue that they meet first is mostly that host's own. With three
or more the load of all but the first meets behind the last switch: its queues are measured then. The load takes all of the link that it
can, or --load-rate: choose a time at which nobody minds.")]
pub struct ListenArgs {
    /// Address and port to listen on, by TCP for the probing hosts' orders and by UDP for probes
    #[arg(long, value_name = "IP[:PORT]", default_value = "0.0.0.0")]
    pub bind: String,
    /// Probing hosts to wait for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub senders: u16,
    /// How long probes are sent beside the load
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration_ns)]
    pub seconds: u64,
    /// Rate of each host's load, in bits per second of UDP payload [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub load_rate: Option<u64>,
    /// Priority of the load, 0 to 6: what is above it should pass it
    #[arg(long, value_name = "P", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub load_priority: u8,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// `homa doctor probe`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example:
  homa doctor probe 10.0.0.2                        beside a `homa doctor listen` at that host

Start it on as many hosts as the listener waits for. The listener says when to begin, and everybody prints the result.")]
pub struct ProbeArgs {
    /// The listener
    #[arg(value_name = "HOST[:PORT]")]
    pub to: String,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
