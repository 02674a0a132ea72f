//! The hosts of the sockets, and the mapping from Homa ports to UDP ports.
//!
//! A program specifies only an IP address and a Homa port. Over UDP, the UDP port must be derived from these,
//! so it is a function of the Homa port, and every socket has its own host. A server's UDP port is
//! [`FIRST_SERVER_UDP_PORT`] plus the Homa port (port 99 gives 14600, as for `homa serve`). A client's UDP
//! port equals its Homa port. The owner of the UDP port owns the Homa port. The kernel allocates UDP ports
//! among all processes of the machine, and frees the ports of a process that dies.
//!
//! Over raw IP and Linux Homa's UDP encapsulation, all sockets of a process are ports of one host. The
//! processes allocate ports through the shared memory of the process group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use homa::driver::LINUX_UDP_PORT;
use homa::driver::udp::BindError;
use homa::error::{HostError, SegmentError};
use homa::kernel_api::Socket;
use homa::proto::PortError;
use homa::{DriverChoice, Host, HostConfig, ServerAddr};

use crate::abi::FIRST_CLIENT_PORT;
use crate::ffi_border::Refusal;
use crate::own_descriptors::OwnDescriptors;
use crate::settings::Settings;
use crate::signals;

/// The UDP port that Homa port 0, which no server can have, would map to.
const FIRST_SERVER_UDP_PORT: u16 = ServerAddr::DEFAULT_UDP_PORT - ServerAddr::DEFAULT_PORT;

/// First client port over UDP. It is above all UDP ports of servers.
const FIRST_UDP_CLIENT_PORT: u16 = FIRST_SERVER_UDP_PORT + FIRST_CLIENT_PORT;

/// Number of attempts to open a port that is still being cleaned up, and the time between two attempts.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// A socket of the transport, with its host.
pub(crate) struct TransportSocket {
    pub(crate) socket: Arc<Socket>,
    /// Dropped after the socket.
    pub(crate) host: Arc<Host>,
}

/// Creates the hosts of this process.
pub(crate) struct Hosts {
    config: HostConfig,
    /// A message may start while the messages in flight total fewer bytes than this.
    send_memory: u64,
    /// The single host of the process, if its driver lets processes share an address.
    shared: Mutex<Option<Arc<Host>>>,
    /// The next client port to try.
    next_client: AtomicU16,
}

impl Hosts {
    pub(crate) fn new(settings: Settings) -> Hosts {
        // Makes processes that start at the same time begin with different ports.
        let clients = u16::MAX - FIRST_UDP_CLIENT_PORT;
        let start = (std::process::id().wrapping_mul(0x9e37_79b1) >> 16) as u16 % clients;
        Hosts {
            config: settings.config,
            send_memory: settings.send_memory,
            shared: Mutex::default(),
            next_client: AtomicU16::new(start),
        }
    }

    /// Returns the send memory in bytes: a socket may start a message while its messages in flight total
    /// fewer bytes.
    pub(crate) fn send_memory(&self) -> u64 {
        self.send_memory
    }

    /// Returns the transport address of an IP address and a Homa port.
    pub(crate) fn address(&self, ip: IpAddr, scope: u32, port: u16) -> ServerAddr {
        let udp = match self.config.driver {
            DriverChoice::Raw => 0,
            DriverChoice::LinuxUdp => LINUX_UDP_PORT,
            _ => udp_port(port),
        };
        let host = match ip.to_canonical() {
            IpAddr::V6(ip) => std::net::SocketAddrV6::new(ip, udp, 0, scope).into(),
            ip => SocketAddr::new(ip, udp),
        };
        ServerAddr::new(host, port)
    }

    /// Opens a socket on a server port, or on a client port if `port` is `None`. With `v6`, peers may use
    /// IPv4 or IPv6; otherwise only IPv4.
    pub(crate) fn open(&self, port: Option<u16>, v6: bool) -> Result<TransportSocket, Refusal> {
        // Threads that are started here inherit this mask, and must not run the program's signal handlers.
        let _signals = signals::BlockedSignals::all();
        let _making = OwnDescriptors::begin();
        if matches!(self.config.driver, DriverChoice::Raw | DriverChoice::LinuxUdp) {
            let host = self.shared_host()?;
            let socket = Arc::new(open_at(&host, port).map_err(|error| refusal(&error))?);
            return Ok(TransportSocket { socket, host });
        }
        if let Some(port) = port {
            return self.open_over_udp(port, v6).map_err(|error| refusal(&error));
        }
        let clients = u16::MAX - FIRST_UDP_CLIENT_PORT;
        for _ in 0..clients {
            let port = FIRST_UDP_CLIENT_PORT + self.next_client.fetch_add(1, Relaxed) % clients;
            match self.open_over_udp(port, v6) {
                Err(HostError::Bind(BindError::InUse(_))) => {}
                result => return result.map_err(|error| refusal(&error)),
            }
        }
        Err(Refusal::new(libc::EADDRNOTAVAIL, "all client ports are open"))
    }

    fn open_over_udp(&self, port: u16, v6: bool) -> Result<TransportSocket, HostError> {
        // A dual-stack socket conflicts with an IPv4 socket on the same port, so a taken port is taken for
        // both families. IPv4 alone is a little faster.
        let ip: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let host = Host::builder()
            .config(self.config.clone())
            .address(SocketAddr::new(ip, udp_port(port)))
            .bind()?;
        let socket = Arc::new(host.socket(Some(port))?);
        Ok(TransportSocket { socket, host: Arc::new(host) })
    }

    fn shared_host(&self) -> Result<Arc<Host>, Refusal> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = &*shared {
            return Ok(Arc::clone(host));
        }
        let bind = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let host = Host::builder()
            .config(self.config.clone())
            .address(bind)
            .bind()
            .map_err(|error| refusal(&error))?;
        Ok(Arc::clone(shared.insert(Arc::new(host))))
    }
}

/// Opens a socket of the process's single host. If the port was only just closed, waits briefly until the
/// host's thread has cleaned it up.
fn open_at(host: &Host, port: Option<u16>) -> Result<Socket, HostError> {
    for _ in 0..TRIES {
        match host.socket(port) {
            Err(HostError::Port(PortError::InUse(_))) => thread::sleep(BETWEEN_TRIES),
            result => return result,
        }
    }
    host.socket(port)
}

fn udp_port(port: u16) -> u16 {
    if port < FIRST_CLIENT_PORT { FIRST_SERVER_UDP_PORT + port } else { port }
}

/// Returns the errno for an error of the transport. Unless the error is an expected one, its full text goes
/// to standard error.
pub(crate) fn refusal(error: &HostError) -> Refusal {
    let errno = match error {
        HostError::Bind(BindError::InUse(_))
        | HostError::Port(PortError::InUse(_))
        | HostError::Segment(SegmentError::PortTaken { .. }) => {
            return Refusal::new(libc::EADDRINUSE, "another socket has the port");
        }
        HostError::Port(PortError::NoneFree) | HostError::Segment(SegmentError::NoClientPort) => {
            return Refusal::new(libc::EADDRNOTAVAIL, "all client ports are open");
        }
        // The errno that the kernel returns if Homa's UDP port is taken.
        HostError::Bind(BindError::LinuxUdpTaken(_)) => libc::EADDRINUSE,
        HostError::Bind(BindError::NoCapability { .. }) => libc::EPERM,
        HostError::Bind(BindError::NoSuchFamily(_)) => libc::EAFNOSUPPORT,
        HostError::System { source, .. } | HostError::Bind(BindError::Socket { source, .. }) => {
            source.raw_os_error().unwrap_or(libc::ENOBUFS)
        }
        HostError::Config(_) => libc::EINVAL,
        _ => libc::ENOBUFS,
    };
    eprintln!("libhoma_preload: {error}");
    Refusal::new(errno, "the transport could not be set up: standard error has the reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_homa_port_has_a_udp_port_of_its_own() {
        assert_eq!(udp_port(ServerAddr::DEFAULT_PORT), ServerAddr::DEFAULT_UDP_PORT);
        assert_eq!(udp_port(FIRST_CLIENT_PORT - 1) + 1, FIRST_UDP_CLIENT_PORT);
        assert_eq!(udp_port(FIRST_UDP_CLIENT_PORT), FIRST_UDP_CLIENT_PORT);
    }
}
