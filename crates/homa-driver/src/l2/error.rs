//! Errors that occur when a device is opened for packets.

use std::io;
use std::net::IpAddr;

use crate::socket::error::BindError;

/// Why a driver of a network device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The process may not read or write frames.
    #[error(
        "{path} on {interface} needs the {capability}, which this process lacks: run it as root, or give it to the program once \
         (sudo setcap {setcap}+ep {program}), or use the UDP driver (--driver udp), which needs none"
    )]
    NoCapability {
        /// The kind of path to be opened.
        path: &'static str,
        /// The device.
        interface: String,
        /// The required capabilities, as a phrase.
        capability: &'static str,
        /// The required capabilities in setcap's format.
        setcap: &'static str,
        /// The running program.
        program: String,
    },
    /// There is no device with this name.
    #[error("there is no interface {name}: choose one of {}", .have.join(", "))]
    NoSuchInterface {
        /// The name.
        name: String,
        /// The existing devices.
        have: Vec<String>,
    },
    /// No device has the address.
    #[error("{ip} is not an address of this host: bind to one of {}", list(.have))]
    NotLocal {
        /// The address.
        ip: IpAddr,
        /// The existing addresses.
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
        /// The addresses of the device.
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
    /// There is not enough memory for the frames to receive into.
    #[error("no memory for {bytes} bytes of frames on {name}: ask for fewer ({setting})")]
    NoMemory {
        /// The device.
        name: String,
        /// The requested size in bytes.
        bytes: usize,
        /// The setting that determines the size.
        setting: &'static str,
    },
    /// The device runs another XDP program.
    #[error(
        "interface {name} runs the XDP program {program} already, and takes one only: end the process that has it, detach it \
         (ip link set {name} xdp off), or use the UDP driver (--driver udp)"
    )]
    ProgramAttached {
        /// The device.
        name: String,
        /// Name and ID of the program, as far as the kernel reports them.
        program: String,
    },
    /// Another AF_XDP socket occupies the queue.
    #[error(
        "queue {queue} of {name} has another AF_XDP socket: end the process that has it, or name other queues"
    )]
    QueueTaken {
        /// The device.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// The device has no queue with this number.
    #[error("interface {name} has no receive queue {queue}: its queues are 0 to {last}")]
    NoSuchQueue {
        /// The device.
        name: String,
        /// The requested queue.
        queue: u32,
        /// The device's last queue.
        last: u32,
    },
    /// The kernel does not support AF_XDP.
    #[error(
        "this kernel has no AF_XDP, by which {name} was to be opened: use the packet or the UDP driver (--driver udp)"
    )]
    NoXdp {
        /// The device.
        name: String,
    },
    /// The process may not lock the memory of the frames.
    #[error(
        "frames for {name} need {kib} KiB of locked memory: allow it (ulimit -l {kib}), give the capability CAP_IPC_LOCK, or ask \
         for fewer frames"
    )]
    Locked {
        /// The device.
        name: String,
        /// The required amount in KiB.
        kib: usize,
    },
    /// Packets of the device's MTU do not fit into a frame, and the kernel does not support packets that span
    /// several frames.
    #[error(
        "interface {name} has an MTU of {mtu}, and AF_XDP of this kernel takes {most} at most: lower it (ip link set {name} mtu \
         {most}), or run Linux 6.6"
    )]
    MtuTooLarge {
        /// The device.
        name: String,
        /// The device's MTU in bytes.
        mtu: usize,
        /// The largest supported MTU in bytes.
        most: usize,
    },
    /// The device cannot read and write frames itself, although this was requested.
    #[error("interface {name} cannot read and write frames itself (zero-copy): let the kernel copy them")]
    NoZeroCopy {
        /// The device.
        name: String,
    },
    /// Several endpoints were requested, and the kernel cannot select among their rings.
    #[error(
        "this kernel cannot steer the frames of {name} among several endpoints: set endpoints to 1, run Linux 4.13 or later, or \
         use the UDP driver (--driver udp)"
    )]
    NoSteering {
        /// The device.
        name: String,
    },
    /// The port cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Any other error.
    #[error("cannot open {name} for packets: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl LinkError {
    /// Returns the error for a process that lacks these capabilities for this path on a device.
    pub(crate) fn no_capability(
        path: &'static str,
        interface: String,
        capability: &'static str,
        setcap: &'static str,
    ) -> LinkError {
        let program = std::env::current_exe().map(|path| path.display().to_string());
        let program = program.unwrap_or_else(|_| "PROGRAM".to_owned());
        LinkError::NoCapability { path, interface, capability, setcap, program }
    }
}

fn list(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}
