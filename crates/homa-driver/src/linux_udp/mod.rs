//! Homa as the payload of UDP with port 54321 at both ends. This is Linux Homa's UDP encapsulation
//! (`net.homa.hijack_udp`), for networks that drop IP protocol 146 (WIRE-27). It needs no privileges.
//!
//! The port is a constant, so peers identify a host by its address alone, as over raw IP, and all processes
//! of a network namespace are one host. They share one socket (`port`), which outlives each of them and
//! through which any of them sends. The runtime lets one process receive from the socket
//! ([`Driver::set_receive_filter`]); this process hands each packet to the process that has its Homa port
//! ([`Exchange`]). If the receiving process ends or stops, another one receives; packets that wait in the
//! socket are not lost. If many packets wait in the socket, their senders are served in turn (`backlog`).
//!
//! Rejected: a socket in each process, in an SO_REUSEPORT group that is steered by the Homa port. A BPF
//! program identifies sockets by their position in the group, which changes when a process ends and which no
//! call reports. Network reports reach an arbitrary socket of the group. And acknowledgements for one process
//! that are carried by packets for another have to be handed over in any case.
//!
//! Addresses:
//!
//! - `0.0.0.0` and `[::]` both mean all addresses of both IP versions, as in Linux Homa, with a socket for
//!   each version.
//! - Processes that share the port bind the same address. Another address on the same port is a separate
//!   host, unless processes have the port at all addresses: then their sockets serve that address, too.
//! - Packets are sent to the port in the address given to [`Driver::send`]. Packets from other source ports
//!   are received, and come from hosts of this project over [`udp`](crate::udp).
//!
//! The kernel is not asked for send times ([`Driver::stamp_sent`]): the processes that share the socket would
//! get each other's reports.

mod backlog;
mod exchange;
mod message;
mod names;
mod port;

use std::borrow::{Borrow, BorrowMut};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt::socket_cookie;

use crate::burst::RxBurst;
use crate::carrier::{Carrier, LINUX_UDP_PORT};
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, UnreachableReport};
use crate::exchange::Exchange;
use crate::filter::ReceiveFilter;
use crate::raw::icmp_report::IcmpReporter;
pub use crate::socket::BindError;
use crate::socket::by_version::ReceiveTurn;
use crate::socket::{LinkedSocket, MAX_SEGMENTED_BYTES, PacketSocket, SocketConfig, by_version};
use crate::udp::{MAX_PACKET_BYTES, UdpConfig};
use backlog::FairQueue;
use exchange::SocketExchange;
use port::PortOffer;

/// Number of [`Driver::receive`] calls that find packets in the socket between two checks for handed-over
/// packets.
const MAIL_EVERY: u32 = 8;

/// Number of calls that find nothing before this process reads reports that another process has left in the
/// socket. While reports wait, the kernel shows the socket as readable.
const REPORTS_EVERY: u32 = 64;

/// Time until refused packets are offered again.
const RETRY: Duration = Duration::from_millis(1);

/// How to set up a [`LinuxUdpDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxUdpConfig {
    /// Address to receive at and send from; its port is ignored. `0.0.0.0`, the default, and `[::]` mean all
    /// addresses.
    pub bind: SocketAddr,
    /// See [`UdpConfig::max_packet_bytes`].
    pub max_packet_bytes: usize,
    /// See [`UdpConfig::send_buffer_bytes`].
    pub send_buffer_bytes: usize,
    /// See [`UdpConfig::receive_buffer_bytes`].
    pub receive_buffer_bytes: usize,
    /// See [`UdpConfig::segmentation`].
    pub segmentation: bool,
}

impl Default for LinuxUdpConfig {
    fn default() -> LinuxUdpConfig {
        let udp = UdpConfig::default();
        LinuxUdpConfig {
            bind: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            max_packet_bytes: udp.max_packet_bytes,
            send_buffer_bytes: udp.send_buffer_bytes,
            receive_buffer_bytes: udp.receive_buffer_bytes,
            segmentation: udp.segmentation,
        }
    }
}

/// A socket of one IP version, and its offer to other processes.
struct SharedSocket {
    socket: LinkedSocket,
    /// Present only in the first driver of a group.
    _offer: Option<PortOffer>,
    config: SocketConfig,
}

impl Borrow<LinkedSocket> for SharedSocket {
    fn borrow(&self) -> &LinkedSocket {
        &self.socket
    }
}

impl BorrowMut<LinkedSocket> for SharedSocket {
    fn borrow_mut(&mut self) -> &mut LinkedSocket {
        &mut self.socket
    }
}

/// Linux Homa's UDP encapsulation, as the [module](self) describes.
pub struct LinuxUdpDriver {
    /// One socket, or one for each IP version, IPv4 first.
    sockets: Vec<SharedSocket>,
    local: SocketAddr,
    exchange: SocketExchange,
    /// Polls the exchange, and the sockets while this process receives from them.
    poll: OwnedFd,
    receives: bool,
    turn: ReceiveTurn,
    fair_sockets: FairQueue,
    fair_mail: FairQueue,
    /// Number of consecutive calls that found packets in a socket, and of those that found nothing.
    found: u32,
    idle: u32,
    retry_at: Option<Instant>,
    refuser: IcmpReporter,
}

impl std::fmt::Debug for LinuxUdpDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinuxUdpDriver")
            .field("local", &self.local)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl LinuxUdpDriver {
    /// Opens the port, or shares the socket of a process that has it.
    ///
    /// # Errors
    /// See [`BindError`]. Buffers smaller than requested are not an error: see [`Driver::buffer_sizes`].
    pub fn bind(config: &LinuxUdpConfig) -> Result<LinuxUdpDriver, BindError> {
        if !config.bind.ip().is_unspecified()
            && let Some(socket) = open(config, config.bind.ip())?
        {
            return LinuxUdpDriver::new(config.bind, vec![socket]);
        }
        let mut sockets = Vec::from_iter(open(config, Ipv4Addr::UNSPECIFIED.into())?);
        match open(config, Ipv6Addr::UNSPECIFIED.into()) {
            Ok(v6) => sockets.extend(v6),
            // The machine has no IPv6.
            Err(BindError::NoSuchFamily(_) | BindError::NotLocal(_)) if config.bind.is_ipv4() => {}
            Err(error) => return Err(error),
        }
        LinuxUdpDriver::new(config.bind, sockets)
    }

    /// Like [`LinuxUdpDriver::bind`], for `count` drivers of one address in this process, at least 1. They
    /// share the socket as processes do: any driver that receives may get a packet.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_group(config: &LinuxUdpConfig, count: u32) -> Result<Vec<LinuxUdpDriver>, BindError> {
        let mut group = vec![LinuxUdpDriver::bind(config)?];
        for _ in 1..count {
            let again = |first: &SharedSocket| {
                let copy = first.socket.main.fd().try_clone_to_owned();
                let fd = copy.map_err(|source| system(config.bind, "sharing it", source))?;
                let socket = PacketSocket::adopt(&first.config, fd)?;
                let config = first.config.clone();
                Ok(SharedSocket { socket: LinkedSocket::with(socket, &config), _offer: None, config })
            };
            let sockets = group[0].sockets.iter().map(again).collect::<Result<_, BindError>>()?;
            group.push(LinuxUdpDriver::new(config.bind, sockets)?);
        }
        Ok(group)
    }

    fn new(bind: SocketAddr, mut sockets: Vec<SharedSocket>) -> Result<LinuxUdpDriver, BindError> {
        let failed = |step| move |source| system(bind, step, source);
        let cookie = socket_cookie(sockets[0].socket.main.fd());
        let path = cookie.map_err(|errno| system(bind, "identifying it", errno.into()))?;
        let exchange = SocketExchange::new(path).map_err(failed("watching it"))?;
        let poll =
            epoll::create(CreateFlags::CLOEXEC).map_err(|errno| failed("watching it")(errno.into()))?;
        epoll::add(&poll, exchange.fd(), EventData::new_u64(0), EventFlags::IN)
            .map_err(|errno| failed("watching it")(errno.into()))?;
        for shared in &mut sockets {
            shared.socket.main.share_reports();
        }
        let mut local = bind;
        local.set_port(LINUX_UDP_PORT);
        let mut driver = LinuxUdpDriver {
            sockets,
            local,
            exchange,
            poll,
            receives: false,
            turn: ReceiveTurn::default(),
            fair_sockets: FairQueue::default(),
            fair_mail: FairQueue::default(),
            found: 0,
            idle: 0,
            retry_at: None,
            refuser: IcmpReporter::new(Carrier::Udp, bind.ip()),
        };
        driver.set_receives(true).map_err(failed("watching it"))?;
        Ok(driver)
    }

    /// Starts or stops receiving from the sockets.
    fn set_receives(&mut self, receives: bool) -> io::Result<()> {
        if self.receives != receives {
            for shared in &self.sockets {
                let fd = shared.socket.main.fd();
                if receives {
                    epoll::add(&self.poll, fd, EventData::new_u64(0), EventFlags::IN)?;
                } else {
                    epoll::delete(&self.poll, fd)?;
                }
            }
            self.receives = receives;
        }
        Ok(())
    }

    /// Receives packets from the sockets, of all senders in turn.
    fn receive_from_sockets(&mut self, burst: &mut RxBurst) -> io::Result<()> {
        let (sockets, turn, receives) = (&mut self.sockets, &mut self.turn, self.receives);
        // A process that is no longer the receiver only has the packets that it took before.
        let receive = |burst: &mut RxBurst| if receives { turn.receive(sockets, burst) } else { Ok(()) };
        self.fair_sockets.receive(burst, receive)
    }

    /// Receives packets and reports that other processes handed over.
    fn take_handed_over(&mut self, burst: &mut RxBurst) {
        let exchange = &mut self.exchange;
        let receive = |burst: &mut RxBurst| {
            burst.clear();
            exchange.receive(burst);
            Ok(())
        };
        // Receiving from the exchange does not fail.
        let _ = self.fair_mail.receive(burst, receive);
        if !burst.is_empty() {
            burst.note_handed_over();
        }
        while let Some(report) = self.exchange.take_handed_report() {
            let socket = by_version::socket_for(&self.sockets, report.to.ip());
            self.sockets[socket].socket.main.note_report(&report);
        }
    }
}

/// Opens or shares the socket at this address: see [`port::open`].
fn open(config: &LinuxUdpConfig, ip: IpAddr) -> Result<Option<SharedSocket>, BindError> {
    let config = socket_config(config, ip);
    let Some((socket, offer)) = port::open(&config)? else { return Ok(None) };
    Ok(Some(SharedSocket { socket: LinkedSocket::with(socket, &config), _offer: Some(offer), config }))
}

fn system(address: SocketAddr, step: &'static str, source: io::Error) -> BindError {
    BindError::Socket { address, step, source }
}

fn socket_config(config: &LinuxUdpConfig, ip: IpAddr) -> SocketConfig {
    let mut bind = SocketAddr::new(ip, LINUX_UDP_PORT);
    if let (SocketAddr::V6(bind), SocketAddr::V6(named)) = (&mut bind, config.bind)
        && !ip.is_unspecified()
    {
        bind.set_scope_id(named.scope_id());
    }
    SocketConfig {
        carrier: Carrier::Udp,
        bind,
        max_packet_bytes: config.max_packet_bytes.min(MAX_PACKET_BYTES),
        send_buffer_bytes: config.send_buffer_bytes,
        receive_buffer_bytes: config.receive_buffer_bytes,
        segmentation: config.segmentation,
        max_segmented_bytes: MAX_SEGMENTED_BYTES,
        joins: false,
        silent: false,
        v6_only: true,
        shared: true,
    }
}

impl Driver for LinuxUdpDriver {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.sockets[by_version::socket_for(&self.sockets, to.ip())].socket.max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        // WIRE-29: each packet goes to the port that its peer has used, 54321 or another.
        let taken = by_version::send(&mut self.sockets, packets)?;
        self.retry_at = (taken < packets.len()).then(|| Instant::now() + RETRY);
        Ok(taken)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        let reads = self.receives || self.fair_sockets.has_backlog();
        let mail_first = !reads || self.found >= MAIL_EVERY;
        if mail_first {
            self.found = 0;
            self.take_handed_over(burst);
        }
        if burst.is_empty() && reads {
            self.receive_from_sockets(burst)?;
            self.found = if burst.is_empty() { 0 } else { self.found + 1 };
        }
        if burst.is_empty() && !mail_first {
            let more = burst.may_have_more();
            self.take_handed_over(burst);
            if more {
                burst.note_more();
            }
        }
        if !burst.is_empty() || !self.receives {
            self.idle = 0;
            return Ok(burst.len());
        }
        self.idle += 1;
        if self.idle >= REPORTS_EVERY {
            self.idle = 0;
            self.sockets.iter_mut().for_each(|shared| shared.socket.main.read_reports());
        }
        Ok(0)
    }

    fn stamp_received(&mut self) -> bool {
        self.sockets.iter_mut().all(|shared| shared.socket.main.stamp_received())
    }

    fn tell_priorities(&mut self) -> bool {
        self.sockets.iter_mut().all(|shared| shared.socket.main.tell_priorities())
    }

    fn poll_sent(&mut self) -> Option<SentPacket> {
        None
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_fd())
    }

    fn poll_timeout(&self) -> Option<u64> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now()).as_nanos() as u64;
        let due = self.sockets.iter().filter_map(|shared| shared.socket.poll_timeout());
        // The descriptor does not show packets of the backlog.
        let backlog = (self.fair_sockets.has_backlog() || self.fair_mail.has_backlog()).then_some(0);
        due.chain(self.retry_at.map(left)).chain(backlog).min()
    }

    /// An epoll descriptor does not report room for sending.
    fn shows_room(&self) -> bool {
        false
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.sockets.iter_mut().find_map(|shared| shared.socket.poll_unreachable())
    }

    /// Only the process that answers for ports without a host receives from the socket.
    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        self.set_receives(filter.others().is_some())
    }

    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        self.refuser.refuse(peer, packet);
    }

    fn peers_port(&self) -> Option<u16> {
        Some(LINUX_UDP_PORT)
    }

    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        for shared in &mut self.sockets {
            while let Some(report) = shared.socket.take_shared_report() {
                self.exchange.add_report(report);
            }
        }
        Some(&mut self.exchange)
    }

    fn link_mbps(&self) -> Option<u32> {
        self.sockets[0].socket.main.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        Some(self.sockets[0].socket.main.buffer_sizes())
    }

    fn stats(&self) -> DriverStats {
        let sockets = self.sockets.iter().map(|shared| shared.socket.stats());
        let mut stats = sockets.fold(DriverStats::default(), DriverStats::plus);
        let counts = self.exchange.counts();
        stats.backlog_drops = self.fair_sockets.dropped() + self.fair_mail.dropped();
        stats.handed_over = counts.handed_over;
        stats.hand_over_drops = counts.dropped;
        stats.taken_over = counts.taken;
        stats
    }
}
