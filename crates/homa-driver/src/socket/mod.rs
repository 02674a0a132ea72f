//! Code shared by the socket-based packet paths: sending and receiving bursts, attributing errors to packets,
//! and path MTUs.

mod address;
pub(crate) mod by_version;
mod call;
mod control;
pub(crate) mod error;
mod error_queue;
mod gro;
mod link;
mod link_sockets;
mod linked;
mod links;
pub(crate) mod option;
mod path_mtu;
mod recent;
mod reports;
mod rx;
mod sent_times;
mod stall;
mod steer;
mod tx;
mod watch;

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homa_bpf::classic::{self, DROP_ALL, Purpose};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::burst::RxBurst;
use crate::carrier::{Carrier, PROTOCOL_HOMA};
use crate::driver::{BufferSizes, DriverStats, SentPacket, TxPacket, UnreachableReport};
use address::AddressFamily;
pub use error::BindError;
use error::SOCKET_STEP;
use error_queue::Report;
pub(crate) use error_queue::{Cause, NetworkError, QuotedHeader};
pub(crate) use linked::LinkedSocket;
pub(crate) use option::set as set_option;
use path_mtu::PathMtus;
use reports::NetworkReports;
use rx::{ReceiveResult, RxRing};
pub(crate) use sent_times::SentTimes;
pub use tx::MAX_SEGMENTED_BYTES;
use tx::TxRing;
pub(crate) use tx::run_length;
pub(crate) use watch::watch_all;

/// Maximum number of errors that one call handles; the rest wait for the next call. The kernel returns
/// network reports about earlier packets as errors of any later call, and a flood of reports must not hold up
/// the caller.
const ERRORS_PER_CALL: usize = 64;

/// Maximum number of attempts to send a packet while each refusal comes with network reports about other
/// packets.
const TRIES_WITH_REPORTS: u32 = 4;

/// How to open a [`PacketSocket`].
#[derive(Clone, Debug)]
pub(crate) struct SocketConfig {
    pub(crate) carrier: Carrier,
    /// The local address; the port is 0 for raw IP.
    pub(crate) bind: SocketAddr,
    /// Maximum bytes of a packet for any path.
    pub(crate) max_packet_bytes: usize,
    pub(crate) send_buffer_bytes: usize,
    pub(crate) receive_buffer_bytes: usize,
    /// Whether the kernel segments and merges runs of equal-length packets. UDP only.
    pub(crate) segmentation: bool,
    /// Maximum bytes of a run that the kernel segments.
    pub(crate) max_segmented_bytes: usize,
    /// Whether another socket of this process is already bound to the address and shares it.
    pub(crate) joins: bool,
    /// Whether the socket receives nothing, because its filter drops all packets.
    pub(crate) silent: bool,
    /// Whether a socket bound to `[::]` leaves IPv4 to another socket. Always true for raw IP.
    pub(crate) v6_only: bool,
    /// Whether other drivers send through the same socket, so that its options must not be changed.
    pub(crate) shared: bool,
}

impl SocketConfig {
    /// Returns the IP versions that the socket can send to.
    fn family(&self) -> AddressFamily {
        match self.bind {
            SocketAddr::V4(_) => AddressFamily::V4,
            SocketAddr::V6(v6)
                if self.carrier == Carrier::Udp && !self.v6_only && v6.ip().is_unspecified() =>
            {
                AddressFamily::Dual
            }
            SocketAddr::V6(_) => AddressFamily::V6,
        }
    }
}

/// A socket whose messages are Homa packets.
pub(crate) struct PacketSocket {
    socket: Socket,
    carrier: Carrier,
    family: AddressFamily,
    local: SocketAddr,
    max_packet_bytes: usize,
    segmentation: bool,
    tx: TxRing,
    rx: RxRing,
    paths: RefCell<PathMtus>,
    reports: NetworkReports,
    sent_times: SentTimes,
    link_mbps: Option<u32>,
    buffers: BufferSizes,
    stats: DriverStats,
}

impl PacketSocket {
    /// Opens and binds a socket.
    pub(crate) fn open(config: &SocketConfig) -> Result<PacketSocket, BindError> {
        let (carrier, address) = (config.carrier, config.bind);
        let fail = |step| move |source| BindError::new(carrier, address, step, source);
        let (kind, protocol) = match carrier {
            Carrier::Udp => (Type::DGRAM, Protocol::UDP),
            Carrier::Ip => (Type::RAW, Protocol::from(i32::from(PROTOCOL_HOMA))),
        };
        let socket = Socket::new(Domain::for_address(address), kind.nonblocking().cloexec(), Some(protocol));
        let socket = socket.map_err(fail(SOCKET_STEP))?;
        let family = config.family();
        if config.v6_only && address.is_ipv6() {
            socket.set_only_v6(true).map_err(fail("setting its options"))?;
        }
        set_options(&socket, family).map_err(fail("setting its options"))?;
        if carrier == Carrier::Ip {
            enable_device_info(&socket, family).map_err(fail("setting its options"))?;
        }
        let buffers = size_buffers(&socket, config).map_err(fail("sizing its buffers"))?;
        // Kernels without UDP_GRO (before 5.0) deliver every packet separately, which loses nothing.
        let _ = config.segmentation && option::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        if config.joins {
            socket.set_reuse_port(true).map_err(fail("sharing its address"))?;
        }
        if carrier == Carrier::Ip || config.silent {
            // Until it is bound, a raw socket receives packets for any address.
            classic::attach(&socket, Purpose::Filter, &DROP_ALL).map_err(fail("setting its filter"))?;
        }
        socket.bind(&SockAddr::from(address)).map_err(fail("bind"))?;
        if carrier == Carrier::Ip && !config.silent {
            socket.detach_filter().map_err(fail("setting its filter"))?;
        }
        PacketSocket::new(socket, config, buffers)
    }

    /// Adopts a bound socket that another process opened with the same options and shares with this process.
    pub(crate) fn adopt(config: &SocketConfig, fd: OwnedFd) -> Result<PacketSocket, BindError> {
        let socket = Socket::from(fd);
        let fail = |source| BindError::new(config.carrier, config.bind, "sizing its buffers", source);
        let buffers = size_buffers(&socket, config).map_err(fail)?;
        PacketSocket::new(socket, config, buffers)
    }

    fn new(socket: Socket, config: &SocketConfig, buffers: BufferSizes) -> Result<PacketSocket, BindError> {
        let (carrier, family, address) = (config.carrier, config.family(), config.bind);
        let fail = |source| BindError::new(carrier, address, "reading its address", source);
        let local = socket.local_addr().map_err(fail)?.as_socket().unwrap_or(address);
        Ok(PacketSocket {
            socket,
            carrier,
            family,
            local,
            max_packet_bytes: config.max_packet_bytes,
            segmentation: config.segmentation,
            tx: TxRing::new(carrier, family, config.max_segmented_bytes, config.shared),
            rx: RxRing::new(carrier == Carrier::Ip && family == AddressFamily::V4),
            paths: RefCell::new(PathMtus::new(carrier, local.ip())),
            reports: NetworkReports::new(carrier, local.port()),
            sent_times: SentTimes::default(),
            link_mbps: link::link_mbps(local.ip()),
            buffers,
            stats: DriverStats::default(),
        })
    }

    /// Opens `count` sockets at one address; the kernel selects one of them by RPC ID.
    pub(crate) fn open_group(config: &SocketConfig, count: u32) -> Result<Vec<PacketSocket>, BindError> {
        let first = PacketSocket::open(config)?;
        if count == 1 {
            return Ok(vec![first]);
        }
        let joining = SocketConfig { bind: first.local, joins: true, ..config.clone() };
        let fail = |step| move |source| BindError::new(config.carrier, joining.bind, step, source);
        first.share_address()?;
        let mut group = vec![first];
        for _ in 1..count {
            group.push(PacketSocket::open(&joining)?);
        }
        steer::attach(group[0].fd(), count).map_err(fail("steering packets among its endpoints"))?;
        Ok(group)
    }

    /// Allows further sockets of this user to bind the same address. This socket was bound without the
    /// option, so it cannot have joined another process's sockets.
    pub(crate) fn share_address(&self) -> Result<(), BindError> {
        let fail = |source| BindError::new(self.carrier, self.local, "sharing its address", source);
        self.socket.set_reuse_port(true).map_err(fail)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn max_packet(&self, to: SocketAddr) -> usize {
        self.paths.borrow_mut().max_packet(to).min(self.max_packet_bytes)
    }

    pub(crate) fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.reports.poll_unreachable()
    }

    pub(crate) fn link_mbps(&self) -> Option<u32> {
        self.link_mbps
    }

    pub(crate) fn buffer_sizes(&self) -> BufferSizes {
        self.buffers
    }

    pub(crate) fn stats(&self) -> DriverStats {
        self.stats
    }

    /// Returns the remembered peers: those whose path was queried.
    pub(crate) fn known_peers(&mut self) -> impl ExactSizeIterator<Item = SocketAddr> {
        self.paths.get_mut().peers()
    }

    /// Forgets all known paths; each peer's path is queried again at its next use.
    pub(crate) fn forget_paths(&mut self) {
        self.paths.get_mut().forget();
    }

    /// Reads network reports for [`PacketSocket::poll_unreachable`]; for a socket that sends no packets.
    pub(crate) fn read_reports(&mut self) {
        self.read_error_queue();
    }

    /// Attaches the program that decides which packets this socket receives, and how many bytes of each.
    pub(crate) fn attach_filter(&self, program: &[classic::Instruction]) -> io::Result<()> {
        classic::attach(&self.socket, Purpose::Filter, program)
    }

    /// Implements [`Driver::send`](crate::Driver::send).
    pub(crate) fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let mut state = SendState::default();
        while state.taken < packets.len() {
            let left = &packets[state.taken..];
            let singles = state.single_before.saturating_sub(state.taken);
            let offered = if singles > 0 { &left[..singles] } else { left };
            self.stats.send_calls += 1;
            self.sent_times.before_send(self.socket.as_fd());
            match self.tx.send(self.socket.as_fd(), offered, self.segmentation && singles == 0) {
                Ok(None) => {
                    self.stats.send_calls -= 1;
                    self.stats.send_errors.other += 1;
                    state.take(1);
                }
                Ok(Some(sent)) => {
                    self.sent_times.sent(left, &self.tx.message_packets()[..sent.messages]);
                    self.reports.note_sent(&left[..sent.packets]);
                    self.stats.packets_out += sent.packets as u64;
                    self.stats.bytes_out +=
                        left[..sent.packets].iter().map(|packet| packet.len() as u64).sum::<u64>();
                    state.take(sent.packets);
                    // The kernel has cleared the error that ended the call early, but the report that caused
                    // the error is still queued.
                    if !sent.all {
                        self.sent_times.failed();
                        self.read_error_queue();
                    }
                }
                Err(error) => {
                    self.sent_times.failed();
                    match verdict(&error) {
                        CallFailure::Again => (),
                        CallFailure::Full => {
                            self.stats.would_block += 1;
                            break;
                        }
                        CallFailure::Broken if state.taken == 0 => return Err(error),
                        CallFailure::Broken => break,
                        CallFailure::Packet(errno) => self.refused(errno, packets, &mut state),
                    }
                }
            }
        }
        Ok(state.taken)
    }

    /// Implements [`Driver::stamp_received`](crate::Driver::stamp_received). Must be called before
    /// [`PacketSocket::stamp_sent`].
    pub(crate) fn stamp_received(&mut self) -> bool {
        self.rx.enable_times(self.socket.as_fd()).is_ok()
    }

    /// Implements [`Driver::tell_priorities`](crate::Driver::tell_priorities).
    pub(crate) fn tell_priorities(&mut self) -> bool {
        let fd = self.socket.as_fd();
        // IPv4 raw sockets receive the IP header, which contains the priority.
        let v4 = self.carrier == Carrier::Ip
            || self.family == AddressFamily::V6
            || option::set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1).is_ok();
        let v6 = self.family == AddressFamily::V4
            || option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1).is_ok();
        v4 && v6
    }

    /// Implements [`Driver::stamp_sent`](crate::Driver::stamp_sent).
    pub(crate) fn stamp_sent(&mut self) -> bool {
        self.sent_times.enable(self.socket.as_fd(), self.rx.timestamping()).is_ok()
    }

    /// Implements [`Driver::poll_sent`](crate::Driver::poll_sent).
    pub(crate) fn poll_sent(&mut self) -> Option<SentPacket> {
        if self.sent_times.wants_more() {
            self.read_error_queue();
        }
        self.sent_times.next()
    }

    /// Implements [`Driver::receive`](crate::Driver::receive).
    pub(crate) fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        self.receive_with(burst, |rx, fd, burst| Ok((rx.receive(fd, burst)?, 0))).map(|_| burst.len())
    }

    /// Implements [`Driver::receive_in_place`](crate::Driver::receive_in_place).
    pub(crate) fn receive_in_place<'a>(
        &mut self,
        burst: &mut RxBurst,
        place: &'a mut [MaybeUninit<u8>],
    ) -> io::Result<&'a [u8]> {
        let payload = self.receive_with(burst, |rx, fd, burst| rx.receive_in_place(fd, burst, place))?;
        // SAFETY: `RxRing::receive_in_place` returns the number of bytes it wrote at the start of `place`.
        Ok(unsafe { std::slice::from_raw_parts(place.as_ptr().cast::<u8>(), payload) })
    }

    /// Receives until there is a packet or nothing is left to read. Returns the second result of `receive`.
    fn receive_with(
        &mut self,
        burst: &mut RxBurst,
        mut receive: impl FnMut(&mut RxRing, BorrowedFd<'_>, &mut RxBurst) -> io::Result<(ReceiveResult, usize)>,
    ) -> io::Result<usize> {
        burst.clear();
        for _ in 0..ERRORS_PER_CALL {
            self.stats.receive_calls += 1;
            match receive(&mut self.rx, self.socket.as_fd(), burst) {
                Ok((received, value)) => {
                    self.stats.packets_in += burst.len() as u64;
                    self.stats.bytes_in += received.bytes;
                    self.stats.truncated += received.truncated;
                    self.stats.undivided += received.undivided;
                    self.stats.queue_drops += received.queue_drops;
                    if burst.is_empty() {
                        // The call received only datagrams that are not packets.
                        burst.note_more();
                    }
                    return Ok(value);
                }
                Err(error) => match verdict(&error) {
                    CallFailure::Again => (),
                    CallFailure::Full => return Ok(0),
                    CallFailure::Broken => return Err(error),
                    CallFailure::Packet(_) => {
                        self.read_error_queue();
                    }
                },
            }
        }
        burst.note_more();
        Ok(0)
    }
}

impl PacketSocket {
    /// Reads network reports. Must be called after every socket error: the kernel returns the error of one
    /// packet from any later call, and keeps the descriptor readable while reports are queued.
    fn read_error_queue(&mut self) -> ReadReports {
        let mut read = ReadReports::default();
        for _ in 0..ERRORS_PER_CALL {
            let error = match error_queue::take(self.socket.as_fd()) {
                None => break,
                Some(Report::TxTimestamp(sent)) => {
                    self.sent_times.note_reported(sent);
                    continue;
                }
                Some(Report::Error(error)) => error,
            };
            self.note_report(&error);
            if !error.local {
                read.from_network += 1;
                self.reports.keep_shared(error);
            } else if matches!(error.cause, Cause::TooBig { .. }) {
                read.too_big_to = Some(error.to.ip());
            }
        }
        read
    }

    /// Handles a network report, either of this socket or handed over by another process that shares it.
    pub(crate) fn note_report(&mut self, error: &NetworkError) {
        match error.cause {
            Cause::PortUnreachable | Cause::ProtocolUnreachable => self.reports.note_unreachable(error),
            Cause::TooBig { .. } if error.local => self.paths.get_mut().refused(error.to, None),
            // A router's report that packets are too long for its next link. The kernel believes such a report
            // even if it is forged.
            Cause::TooBig { mtu } if self.reports.quotes_recent(error) => {
                self.paths.get_mut().narrow(error.to, mtu);
            }
            Cause::TooBig { .. } | Cause::Other => (),
        }
        self.stats.network_errors += u64::from(!error.local);
    }

    /// From now on, keeps network reports for [`PacketSocket::take_shared_report`].
    pub(crate) fn share_reports(&mut self) {
        self.reports.share();
    }

    /// Whether network reports are kept for [`PacketSocket::take_shared_report`].
    fn shares_reports(&self) -> bool {
        self.reports.are_shared()
    }

    /// Returns the oldest shared report that has not been returned yet.
    pub(crate) fn take_shared_report(&mut self) -> Option<NetworkError> {
        self.reports.take_shared()
    }

    /// Records packets that were sent other than through this socket.
    pub(crate) fn note_sent(&mut self, packets: &[TxPacket<'_>]) {
        self.reports.note_sent(packets);
    }

    /// Counts a packet that the kernel refused because of the packet itself. `is_too_big`: this host's own
    /// report says that the packet is too big.
    fn count_refused(&mut self, packet: &TxPacket<'_>, errno: libc::c_int, is_too_big: bool) {
        let errors = &mut self.stats.send_errors;
        match errno {
            libc::EMSGSIZE => {
                errors.too_big += 1;
                let paths = self.paths.get_mut();
                // The error alone may come from reports of the network, which can be forged (SEND-17).
                if is_too_big {
                    paths.refused(packet.to, Some(packet.len()));
                } else {
                    paths.recheck(packet.to);
                }
            }
            libc::ECONNREFUSED => errors.refused += 1,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN => {
                errors.unreachable += 1
            }
            libc::EPERM | libc::EACCES => errors.denied += 1,
            _ => errors.other += 1,
        }
    }

    /// Handles a refusal of the first message offered: finds the packet at fault, if any.
    fn refused(&mut self, errno: libc::c_int, packets: &[TxPacket<'_>], state: &mut SendState) {
        let read = self.read_error_queue();
        let run = usize::from(self.tx.message_packets()[0]);
        if run > 1 {
            // A run fails if the path MTU is smaller than a segment, or if the device cannot segment
            // datagrams; its packets may still succeed singly. Such a device is not offered runs again.
            if matches!(errno, libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) {
                self.segmentation = false;
            }
            state.single_before = state.taken + run;
            return;
        }
        // The refusal may have been an error report about an earlier packet, to any peer. If reports are
        // queued, it probably was. If none are, the report may have been lost, and a second attempt decides.
        let packet = &packets[state.taken];
        state.refusals += 1;
        state.is_too_big |= read.too_big_to == Some(packet.to.ip());
        let tries = if read.from_network > 0 { TRIES_WITH_REPORTS } else { 2 };
        if state.refusals >= tries {
            self.count_refused(packet, errno, state.is_too_big);
            state.take(1);
        }
    }
}

/// Returns the local address of the route to this peer. Connecting a UDP socket sends nothing.
pub(crate) fn source_for(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// How to handle a failed call.
enum CallFailure {
    Again,
    Full,
    Broken,
    /// The error concerns a single packet, sent by this call or by an earlier one.
    Packet(libc::c_int),
}

fn verdict(error: &io::Error) -> CallFailure {
    match error.raw_os_error() {
        Some(libc::EINTR) => CallFailure::Again,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => CallFailure::Full,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => CallFailure::Broken,
        Some(errno) => CallFailure::Packet(errno),
    }
}

/// Progress of one [`PacketSocket::send`].
#[derive(Default)]
struct SendState {
    taken: usize,
    /// Packets before this index are sent one per datagram, so that an error concerns a single packet.
    single_before: usize,
    /// Number of times the kernel has refused the next packet.
    refusals: u32,
    /// Whether one of these refusals came with this host's own report that a packet to that peer is too big.
    is_too_big: bool,
}

impl SendState {
    /// Goes on to the packet after the next `packets` ones.
    fn take(&mut self, packets: usize) {
        self.taken += packets;
        (self.refusals, self.is_too_big) = (0, false);
    }
}

/// What [`PacketSocket::read_error_queue`] has read.
#[derive(Default)]
struct ReadReports {
    /// Number of reports from the network.
    from_network: u64,
    /// The peer to which a packet is too big, by a report of this host itself; the last one, if there are
    /// several. Such a report cannot be forged.
    too_big_to: Option<IpAddr>,
}

fn set_options(socket: &Socket, family: AddressFamily) -> io::Result<()> {
    // WIRE-17: a packet too long for the path is refused, by the device or by a router. This driver validates
    // routers' reports itself; for this socket the kernel ignores them.
    let fd = socket.as_fd();
    if family == AddressFamily::Dual {
        socket.set_only_v6(false)?;
    }
    if family != AddressFamily::V6 {
        option::set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        option::set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    }
    if family != AddressFamily::V4 {
        option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
        option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    option::set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// Makes the kernel report the receiving device of each packet. A packet merged by a sender is recognized by
/// exceeding that device's maximum (WIRE-20).
fn enable_device_info(socket: &Socket, family: AddressFamily) -> io::Result<()> {
    let fd = socket.as_fd();
    match family {
        AddressFamily::V4 => option::set(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        AddressFamily::V6 | AddressFamily::Dual => {
            option::set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
        }
    }
}

/// Requests the buffer sizes, beyond the system's limits if this process is permitted, and returns the
/// granted sizes.
fn size_buffers(socket: &Socket, config: &SocketConfig) -> io::Result<BufferSizes> {
    let size = |wanted: usize, forced: libc::c_int, plain: libc::c_int| {
        let wanted = libc::c_int::try_from(wanted).unwrap_or(libc::c_int::MAX / 2);
        let fd = socket.as_fd();
        if option::set(fd, libc::SOL_SOCKET, forced, wanted).is_err() {
            option::set(fd, libc::SOL_SOCKET, plain, wanted)?;
        }
        // The kernel doubles the requested size to allow for its own bookkeeping, and reports the doubled
        // value.
        Ok::<usize, io::Error>(option::get(fd, libc::SOL_SOCKET, plain)? as usize / 2)
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
        assert!(
            [libc::EAGAIN, libc::ENOBUFS].map(of).iter().all(|verdict| matches!(verdict, CallFailure::Full))
        );
        let packet = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EPERM, libc::EMSGSIZE];
        assert!(packet.map(of).iter().all(|verdict| matches!(verdict, CallFailure::Packet(_))));
        assert!(matches!(of(libc::EBADF), CallFailure::Broken));
        assert!(matches!(of(libc::EINTR), CallFailure::Again));
    }
}
