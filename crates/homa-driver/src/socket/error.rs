//! Errors that occur when a packet path is opened.

use std::io;
use std::net::SocketAddr;

use crate::carrier::Carrier;

/// Why a driver could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another socket has the port.
    #[error("port {} on {} is in use: choose another, or port 0 for any that is free", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// No device of this host has the address.
    #[error("{} is not an address of this host: bind to one that is, or to {} for all", .0.ip(), unspecified(.0))]
    NotLocal(SocketAddr),
    /// The port is reserved.
    #[error("port {} needs a privilege that this process lacks: choose a port from 1024 up", .0.port())]
    Privileged(SocketAddr),
    /// The process may not open raw IP sockets.
    #[error(
        "raw IP sockets need the capability CAP_NET_RAW, which this process lacks: run it as root, or give it to the program \
         once (sudo setcap cap_net_raw+ep {program}), or use the UDP driver (--driver udp), which needs none"
    )]
    NoCapability {
        /// The running program.
        program: String,
    },
    /// The UDP port of Linux Homa belongs to a socket that is not shared.
    #[error(
        "UDP port {} on {} is taken and not shared: by Linux Homa (switch it off by net.homa.hijack_udp=0), or by a process of \
         another user or at another address. Use a network namespace of its own, or end that process",
        .0.port(), .0.ip()
    )]
    LinuxUdpTaken(SocketAddr),
    /// The host does not support the IP version.
    #[error("this host has no {}: bind to an address of the other IP version", if .0.is_ipv6() { "IPv6" } else { "IPv4" })]
    NoSuchFamily(SocketAddr),
    /// Any other error.
    #[error("cannot open a socket at {}: {step} failed: {source}", shown(.address))]
    Socket {
        /// The address to bind to.
        address: SocketAddr,
        /// The step that failed.
        step: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// Formats an address, without the port if the port is 0.
fn shown(address: &SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

fn unspecified(address: &SocketAddr) -> &'static str {
    if address.is_ipv6() { "[::]" } else { "0.0.0.0" }
}

/// The step that needs the capability.
pub(super) const SOCKET_STEP: &str = "socket";

impl BindError {
    pub(super) fn new(
        carrier: Carrier,
        address: SocketAddr,
        step: &'static str,
        source: io::Error,
    ) -> BindError {
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => BindError::InUse(address),
            Some(libc::EADDRNOTAVAIL) => BindError::NotLocal(address),
            Some(libc::EPERM | libc::EACCES) if carrier == Carrier::Ip && step == SOCKET_STEP => {
                let program = std::env::current_exe().map(|path| path.display().to_string());
                BindError::NoCapability { program: program.unwrap_or_else(|_| "PROGRAM".to_owned()) }
            }
            Some(libc::EACCES) if step == "bind" => BindError::Privileged(address),
            Some(libc::EAFNOSUPPORT) => BindError::NoSuchFamily(address),
            _ => BindError::Socket { address, step, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bind_error_names_the_address_and_the_remedy() {
        let of = |carrier, errno, step| {
            let address = "10.0.0.1:80".parse().unwrap();
            BindError::new(carrier, address, step, io::Error::from_raw_os_error(errno)).to_string()
        };
        let text = |errno, step| of(Carrier::Udp, errno, step);
        assert!(text(libc::EADDRINUSE, "bind").starts_with("port 80 on 10.0.0.1 is in use: choose"));
        assert!(text(libc::EADDRNOTAVAIL, "bind").contains("0.0.0.0 for all"));
        assert!(text(libc::EACCES, "bind").contains("1024"));
        assert!(text(libc::EAFNOSUPPORT, "socket").contains("no IPv4"));
        let raw = of(Carrier::Ip, libc::EPERM, SOCKET_STEP);
        let remedies = ["CAP_NET_RAW", "root", "setcap cap_net_raw+ep /", "--driver udp"];
        assert!(remedies.iter().all(|remedy| raw.contains(remedy)), "{raw}");
        assert!(text(libc::EPERM, SOCKET_STEP).contains("at 10.0.0.1:80: socket failed"));
        assert!(text(libc::EMFILE, "socket").contains("at 10.0.0.1:80: socket failed"));
    }
}
