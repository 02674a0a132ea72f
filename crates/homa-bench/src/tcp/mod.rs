//! The TCP side of the comparison, written as a careful user would write it: one connection per client port
//! and server port, Nagle's algorithm off, messages framed by their length, epoll, and no blocking writes.

pub mod client;
pub mod frame;
pub mod server;
pub mod spin;

use std::time::Duration;

use serde::{Deserialize, Serialize};
pub use spin::IdlePolling;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// Congestion control of a sender: the kernel's algorithms, by the kernel's names.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Congestion {
    /// Linux's default
    Cubic,
    /// From the measured rate and round-trip time
    Bbr,
    /// The oldest algorithm
    Reno,
    /// From the switch's ECN marks (needs a kernel with DCTCP, and --switch-option=--ecn=TIME)
    Dctcp,
}

impl Congestion {
    /// Returns the kernel's name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the kernel's default, followed by DCTCP if the kernel has it. If the default cannot be read or
    /// is not in this list, Cubic takes its place.
    pub fn of_the_kernel() -> Vec<Congestion> {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap_or_default()
        };
        let (default, available) = (read("congestion_control"), read("available_congestion_control"));
        Congestion::available_of(default.trim(), available.split_whitespace())
    }

    fn available_of<'a>(default: &str, mut available: impl Iterator<Item = &'a str>) -> Vec<Congestion> {
        let default = default.parse().unwrap_or(Congestion::Cubic);
        let has_dctcp =
            default != Congestion::Dctcp && available.any(|name| name == Congestion::Dctcp.name());
        [default].into_iter().chain(has_dctcp.then_some(Congestion::Dctcp)).collect()
    }
}

/// Sets the congestion control of a socket, and of the connections that a listener accepts. `None` keeps the
/// kernel's default.
///
/// # Errors
/// The kernel does not have the algorithm, or permits only root to use it.
fn choose(socket: impl std::os::fd::AsFd, congestion: Option<Congestion>) -> std::io::Result<()> {
    let Some(congestion) = congestion else { return Ok(()) };
    rustix::net::sockopt::set_tcp_congestion(socket, congestion.name()).map_err(|error| {
        std::io::Error::other(format!("this kernel offers no TCP {}: {error}", congestion.name()))
    })
}

/// Maximum time to connect, after which the server counts as unreachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes read from one connection before it is the next connection's turn: a few of the kernel's large
/// segments.
const READ_BUDGET: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_default_and_dctcp_where_it_is_available() {
        let available_of =
            |default, available: &'static str| Congestion::available_of(default, available.split(' '));
        assert_eq!(available_of("cubic", "reno cubic"), [Congestion::Cubic]);
        assert_eq!(available_of("bbr", "reno cubic dctcp"), [Congestion::Bbr, Congestion::Dctcp]);
        assert_eq!(available_of("dctcp", "dctcp"), [Congestion::Dctcp]);
        assert_eq!(available_of("vegas", ""), [Congestion::Cubic]);
    }
}
