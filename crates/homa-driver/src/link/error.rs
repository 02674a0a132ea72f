//! Why a device could not be had for packets.

use std::io;
use std::net::IpAddr;

use crate::socket::BindError;

/// Why a driver of a network device could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The process may not read or write frames.
    #[error(
        "{path} on {interface} needs the {capability}, which this process lacks: run it as root, or give it to the program once \
         (sudo setcap {setcap}+ep {program}), or use the UDP driver (--driver udp), which needs none"
    )]
    NoCapability {
        /// What was to be opened.
        path: &'static str,
        /// The device.
        interface: String,
        /// The capabilities, as a sentence has them.
        capability: &'static str,
        /// The same as setcap takes them.
        setcap: &'static str,
        /// The program that runs.
        program: String,
    },
    /// There is no device of this name.
    #[error("there is no interface {name}: choose one of {}", .have.join(", "))]
    NoSuchInterface {
        /// The name.
        name: String,
        /// Those that there are.
        have: Vec<String>,
    },
    /// No device has the address.
    #[error("{ip} is not an address of this host: bind to one of {}", list(.have))]
    NotLocal {
        /// The address.
        ip: IpAddr,
        /// Those that there are.
        have: Vec<IpAddr>,
    },
    /// The device does not have the address.
    #[error(
        "interface {name} does not have the address {ip}: bind to one of {}, or name another interface", list(.have)
    )]
    NotOnInterface {
        /// The device.
        name: String,
        /// The address.
        ip: IpAddr,
        /// Those that it has.
        have: Vec<IpAddr>,
    },
    /// Neither an address nor a device was named.
    #[error(
        "a driver of a network device needs to know which: bind to an address of one, or name an interface"
    )]
    NoneNamed,
    /// The device has no address to send from.
    #[error("interface {name} has no {version} address: give it one (ip addr add ADDRESS dev {name})")]
    NoAddress {
        /// The device.
        name: String,
        /// IPv4 or IPv6.
        version: &'static str,
    },
    /// The device does not carry Ethernet frames.
    #[error(
        "interface {name} carries no Ethernet frames, as tunnels do not: use the UDP driver (--driver udp)"
    )]
    NotEthernet {
        /// The device.
        name: String,
    },
    /// The memory that frames are to be received in cannot be had.
    #[error("no memory for {bytes} bytes of frames on {name}: ask for fewer ({setting})")]
    NoMemory {
        /// The device.
        name: String,
        /// What was asked for.
        bytes: usize,
        /// The setting that says how many.
        setting: &'static str,
    },
    /// The port cannot be had from the kernel.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Anything else.
    #[error("cannot open {name} for packets: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn list(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}
