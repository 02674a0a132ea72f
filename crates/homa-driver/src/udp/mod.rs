//! Homa packets as UDP payload: any Linux, IPv4 and IPv6, no privileges.
//!
//! The priority of a packet travels in its DSCP field as a class selector. Packets are never fragmented: what does not fit the
//! path is dropped, counted, and lowers [`Driver::max_packet`] for that peer. Packets of equal length to one peer go to the
//! kernel as one datagram to be cut late (UDP_SEGMENT), and may come from it merged (UDP_GRO), where it can do that: on the
//! wire they are packets as any.

mod address;
mod control;
mod error_queue;
mod link;
mod path_mtu;
mod rx;
mod socket_option;
mod tx;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::burst::RxBurst;
use crate::driver::{BufferSizes, Driver, DriverStats, Refusal, TxPacket, Unreachable};
use address::Family;
use error_queue::Cause;
use path_mtu::{PathMtus, overhead_bytes};
use rx::RxRing;
use tx::TxRing;

/// Largest UDP payload over IPv4 in bytes: 65,535 less an IPv4 header of 20 and a UDP header of 8.
pub const MAX_PACKET_BYTES: usize = 65_507;

/// Reports of unreachable peers that wait for [`Driver::poll_unreachable`]; the oldest go when there are more.
const UNREACHABLE_MAX: usize = 64;

/// Errors that one call to send or receive meets before it leaves the rest to the next: reports of the network about earlier
/// packets come as errors of any call, and a storm of them must not hold the caller.
const ERRORS_PER_CALL: usize = 64;

/// Tries of a packet whose every refusal came together with reports of the network about others.
const TRIES_WITH_REPORTS: u32 = 4;

/// How to set up a [`UdpDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address to receive at and send from. Port 0 takes any free one. `[::]` serves IPv4 peers too.
    pub bind: SocketAddr,
    /// Cap on [`Driver::max_packet`] in bytes, whatever the path takes; at most [`MAX_PACKET_BYTES`], and that by default. It
    /// decides only where the MTU is larger, as it is on loopback (65,536): there, larger packets mean fewer, and lower ones a
    /// finer grain for priorities.
    pub max_packet_bytes: usize,
    /// Send buffer to ask for in bytes. 2 MiB by default: a burst of 32 of the largest packets; what waits beyond that is better
    /// ordered by the protocol, which knows which message is the shortest.
    pub send_buffer_bytes: usize,
    /// Receive buffer to ask for in bytes. 8 MiB by default: unscheduled bytes come without a grant, and this takes some 60 KB
    /// from each of 64 peers at once at twice their length, which is how the kernel books small packets.
    pub receive_buffer_bytes: usize,
    /// Whether to let the kernel cut and merge runs of equal packets. True by default; kernels that cannot are found out.
    pub segmentation: bool,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            bind: SocketAddr::from(([0, 0, 0, 0], 0)),
            max_packet_bytes: MAX_PACKET_BYTES,
            send_buffer_bytes: 2 << 20,
            receive_buffer_bytes: 8 << 20,
            segmentation: true,
        }
    }
}

/// Why a [`UdpDriver`] could not be made.
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
    /// The host has no such protocol.
    #[error("this host has no {}: bind to an address of the other IP version", if .0.is_ipv6() { "IPv6" } else { "IPv4" })]
    NoSuchFamily(SocketAddr),
    /// Anything else.
    #[error("cannot open a UDP socket at {address}: {step} failed: {source}")]
    Socket {
        /// The address to bind to.
        address: SocketAddr,
        /// The step that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

fn unspecified(address: &SocketAddr) -> &'static str {
    if address.is_ipv6() { "[::]" } else { "0.0.0.0" }
}

impl BindError {
    fn new(address: SocketAddr, step: &'static str, source: io::Error) -> BindError {
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => BindError::InUse(address),
            Some(libc::EADDRNOTAVAIL) => BindError::NotLocal(address),
            Some(libc::EACCES) if step == "bind" => BindError::Privileged(address),
            Some(libc::EAFNOSUPPORT) => BindError::NoSuchFamily(address),
            _ => BindError::Socket { address, step, source },
        }
    }
}

/// Homa over a UDP socket. See the [module](self).
pub struct UdpDriver {
    socket: Socket,
    local: SocketAddr,
    max_packet_bytes: usize,
    segmentation: bool,
    tx: TxRing,
    rx: RxRing,
    paths: RefCell<PathMtus>,
    unreachable: VecDeque<Unreachable>,
    /// The socket's count of drops as it was last told, modulo 2^32.
    queue_drops: u32,
    link_mbps: Option<u32>,
    buffers: BufferSizes,
    stats: DriverStats,
}

impl std::fmt::Debug for UdpDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpDriver")
            .field("local", &self.local)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl UdpDriver {
    /// Opens and binds a socket.
    ///
    /// # Errors
    /// See [`BindError`]. Buffers smaller than asked for are no error: see [`Driver::buffer_sizes`].
    pub fn bind(config: &UdpConfig) -> Result<UdpDriver, BindError> {
        let address = config.bind;
        let fail = |step| move |source| BindError::new(address, step, source);
        let kind = Type::DGRAM.nonblocking().cloexec();
        let socket =
            Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP)).map_err(fail("socket"))?;
        let family = match address {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => Family::Dual,
            SocketAddr::V6(_) => Family::V6,
        };
        set_options(&socket, family).map_err(fail("setting its options"))?;
        let buffers = size_buffers(&socket, config).map_err(fail("sizing its buffers"))?;
        // Kernels without it (before 5.0) hand over every packet by itself: nothing is lost.
        let _ = config.segmentation
            && socket_option::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        socket.bind(&SockAddr::from(address)).map_err(fail("bind"))?;
        let local = socket.local_addr().map_err(fail("reading its address"))?.as_socket().unwrap_or(address);
        Ok(UdpDriver {
            socket,
            local,
            max_packet_bytes: config.max_packet_bytes.min(MAX_PACKET_BYTES),
            segmentation: config.segmentation,
            tx: TxRing::new(family),
            rx: RxRing::new(),
            paths: RefCell::new(PathMtus::new(local.ip())),
            unreachable: VecDeque::new(),
            queue_drops: 0,
            link_mbps: link::link_mbps(local.ip()),
            buffers,
            stats: DriverStats::default(),
        })
    }

    /// Reads what the network reported. Must follow every error of the socket: the kernel gives an error of one packet to
    /// whatever call comes next, and shows the descriptor readable for as long as reports wait. Returns the number of reports
    /// from the network.
    fn read_error_queue(&mut self) -> u64 {
        let before = self.stats.network_errors;
        for _ in 0..ERRORS_PER_CALL {
            let Some(error) = error_queue::take(self.socket.as_fd()) else { break };
            match error.cause {
                Cause::PortUnreachable => {
                    if self.unreachable.len() == UNREACHABLE_MAX {
                        self.unreachable.pop_front();
                    }
                    let report = Unreachable { peer: error.to, what: Refusal::Peer };
                    if !self.unreachable.contains(&report) {
                        self.unreachable.push_back(report);
                    }
                }
                Cause::TooBig => self.paths.get_mut().refused(error.to, None),
                Cause::Other => (),
            }
            self.stats.network_errors += u64::from(!error.local);
        }
        self.stats.network_errors - before
    }

    /// Counts a packet that the kernel refused for a reason of its own.
    fn count_refused(&mut self, packet: &TxPacket<'_>, errno: libc::c_int) {
        let errors = &mut self.stats.send_errors;
        match errno {
            libc::EMSGSIZE => {
                errors.too_big += 1;
                self.paths.get_mut().refused(packet.to, Some(packet.len()));
            }
            libc::ECONNREFUSED => errors.refused += 1,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN => {
                errors.unreachable += 1
            }
            libc::EPERM | libc::EACCES => errors.denied += 1,
            _ => errors.other += 1,
        }
    }
}

/// A failed call for packets, and what to do about it.
enum Verdict {
    Again,
    Full,
    Broken,
    /// It concerns one packet, of this call or of an earlier one.
    Packet(libc::c_int),
}

fn verdict(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        Some(libc::EINTR) => Verdict::Again,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Verdict::Full,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => Verdict::Broken,
        Some(errno) => Verdict::Packet(errno),
    }
}

/// Progress of one [`Driver::send`].
struct SendState {
    taken: usize,
    /// Packets before this index go one to a datagram, so that an error is theirs alone.
    single_before: usize,
    /// Times that the kernel has refused the next packet.
    refusals: u32,
}

impl Driver for UdpDriver {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        let mtu = self.paths.borrow_mut().get(to);
        (mtu - overhead_bytes(to.ip())).min(self.max_packet_bytes)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let mut state = SendState { taken: 0, single_before: 0, refusals: 0 };
        while state.taken < packets.len() {
            let left = &packets[state.taken..];
            let singles = state.single_before.saturating_sub(state.taken);
            let offered = if singles > 0 { &left[..singles] } else { left };
            self.stats.send_calls += 1;
            match self.tx.send(self.socket.as_fd(), offered, self.segmentation && singles == 0) {
                Ok(None) => {
                    self.stats.send_calls -= 1;
                    self.stats.send_errors.other += 1;
                    state.taken += 1;
                    state.refusals = 0;
                }
                Ok(Some(sent)) => {
                    self.stats.packets_out += sent.packets as u64;
                    self.stats.bytes_out +=
                        left[..sent.packets].iter().map(|packet| packet.len() as u64).sum::<u64>();
                    state.taken += sent.packets;
                    state.refusals = 0;
                    // The kernel has swallowed the error that ended the call early, but not the report behind it.
                    if !sent.all {
                        self.read_error_queue();
                    }
                }
                Err(error) => match verdict(&error) {
                    Verdict::Again => (),
                    Verdict::Full => {
                        self.stats.would_block += 1;
                        break;
                    }
                    Verdict::Broken if state.taken == 0 => return Err(error),
                    Verdict::Broken => break,
                    Verdict::Packet(errno) => self.refused(errno, packets, &mut state),
                },
            }
        }
        Ok(state.taken)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        for _ in 0..ERRORS_PER_CALL {
            self.stats.receive_calls += 1;
            match self.rx.receive(self.socket.as_fd(), burst) {
                Ok(received) => {
                    self.stats.packets_in += burst.len() as u64;
                    self.stats.bytes_in += received.bytes;
                    self.stats.truncated += received.truncated;
                    if let Some(drops) = received.queue_drops {
                        self.stats.queue_drops += u64::from(drops.wrapping_sub(self.queue_drops));
                        self.queue_drops = drops;
                    }
                    return Ok(burst.len());
                }
                Err(error) => match verdict(&error) {
                    Verdict::Again => (),
                    Verdict::Full => return Ok(0),
                    Verdict::Broken => return Err(error),
                    Verdict::Packet(_) => {
                        self.read_error_queue();
                    }
                },
            }
        }
        Ok(0)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn poll_unreachable(&mut self) -> Option<Unreachable> {
        self.unreachable.pop_front()
    }

    fn link_mbps(&self) -> Option<u32> {
        self.link_mbps
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        Some(self.buffers)
    }

    fn stats(&self) -> DriverStats {
        self.stats
    }
}

impl UdpDriver {
    /// The kernel refused the first message offered. Finds the packet to blame, if any of them is.
    fn refused(&mut self, errno: libc::c_int, packets: &[TxPacket<'_>], state: &mut SendState) {
        let reports = self.read_error_queue();
        let run = self.tx.first_message_packets();
        if run > 1 {
            // A path narrower than a segment and a device that cannot cut datagrams fail a run that might do in single
            // packets. Such a device does not learn it.
            if matches!(errno, libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) {
                self.segmentation = false;
            }
            state.single_before = state.taken + run;
            return;
        }
        // The refusal may have been the report of an earlier packet, to whatever peer. Where there are reports, it probably
        // was; where there are none, the report may have been lost, so that a second try tells.
        state.refusals += 1;
        let tries = if reports > 0 { TRIES_WITH_REPORTS } else { 2 };
        if state.refusals >= tries {
            self.count_refused(&packets[state.taken], errno);
            state.taken += 1;
            state.refusals = 0;
        }
    }
}

fn set_options(socket: &Socket, family: Family) -> io::Result<()> {
    let fd = socket.as_fd();
    if family == Family::Dual {
        socket.set_only_v6(false)?;
    }
    if family != Family::V6 {
        socket_option::set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        socket_option::set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    }
    if family != Family::V4 {
        socket_option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
        socket_option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
        socket_option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    socket_option::set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Asks for the buffers' sizes, beyond the system's limits where this process may, and reports what it got.
fn size_buffers(socket: &Socket, config: &UdpConfig) -> io::Result<BufferSizes> {
    let size = |wanted: usize, forced: libc::c_int, plain: libc::c_int| {
        let wanted = libc::c_int::try_from(wanted).unwrap_or(libc::c_int::MAX / 2);
        let fd = socket.as_fd();
        if socket_option::set(fd, libc::SOL_SOCKET, forced, wanted).is_err() {
            socket_option::set(fd, libc::SOL_SOCKET, plain, wanted)?;
        }
        // The kernel doubles the size to allow for its own bookkeeping, and tells the double.
        Ok::<usize, io::Error>(socket_option::get(fd, libc::SOL_SOCKET, plain)? as usize / 2)
    };
    Ok(BufferSizes {
        send_bytes: size(config.send_buffer_bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?,
        send_wanted_bytes: config.send_buffer_bytes,
        receive_bytes: size(config.receive_buffer_bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?,
        receive_wanted_bytes: config.receive_buffer_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_packet_a_full_path_and_a_broken_one_are_told_apart() {
        let of = |errno| verdict(&io::Error::from_raw_os_error(errno));
        assert!([libc::EAGAIN, libc::ENOBUFS].map(of).iter().all(|verdict| matches!(verdict, Verdict::Full)));
        let packet = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EPERM, libc::EMSGSIZE];
        assert!(packet.map(of).iter().all(|verdict| matches!(verdict, Verdict::Packet(_))));
        assert!(matches!(of(libc::EBADF), Verdict::Broken));
        assert!(matches!(of(libc::EINTR), Verdict::Again));
    }

    #[test]
    fn each_bind_error_names_the_address_and_the_remedy() {
        let text = |errno, step| {
            let address = "10.0.0.1:80".parse().unwrap();
            BindError::new(address, step, io::Error::from_raw_os_error(errno)).to_string()
        };
        assert!(text(libc::EADDRINUSE, "bind").starts_with("port 80 on 10.0.0.1 is in use: choose"));
        assert!(text(libc::EADDRNOTAVAIL, "bind").contains("0.0.0.0 for all"));
        assert!(text(libc::EACCES, "bind").contains("1024"));
        assert!(text(libc::EAFNOSUPPORT, "socket").contains("no IPv4"));
        assert!(text(libc::EMFILE, "socket").contains("at 10.0.0.1:80: socket failed"));
    }

    #[test]
    fn packets_beyond_any_path_are_counted_one_by_one() {
        let mut driver = UdpDriver::bind(&UdpConfig::default()).unwrap();
        let big = vec![0x5a; 70_000];
        let to = "127.0.0.1:9".parse().unwrap();
        let packet = TxPacket { to, priority: 0, header: &big[..40], payload: &big[40..] };
        assert_eq!(driver.send(&[packet; 3]).unwrap(), 3);
        assert_eq!(driver.stats().send_errors.too_big, 3);
    }
}
