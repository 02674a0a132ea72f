//! Homa packets in IP itself, as Linux Homa sends them: IP protocol 146, IPv4 and IPv6 (WIRE-19). Opening it takes the capability
//! CAP_NET_RAW.
//!
//! A peer is a host's address, and its port is 0 wherever an address has one: the Homa ports are in the packets. All
//! processes that share an address receive its packets, and a filter in the kernel leaves each with its own
//! ([`Driver::set_receive_filter`]). While any process has such a socket open the kernel does not answer that the protocol is
//! unreachable; without one it does.
//!
//! A host bound to an address has that address's IP version. One bound to `[::]` has both, with a socket for each, since that
//! is what `[::]` means over UDP as well; one bound to `0.0.0.0` has IPv4.
//!
//! Packets are never fragmented, and each travels by itself: raw sockets have no segmentation offload, so that a burst is a
//! `sendmmsg`. Packets that the kernel's own offload has merged, and nobody has divided, are divided here (WIRE-20). Homa that
//! Linux hides in TCP (`hijack_tcp`) arrives as IP protocol 6 and never at these sockets.

pub(crate) mod icmp_report;
pub(crate) mod program;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::burst::RxBurst;
use crate::carrier::Carrier;
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, Unreachable};
use crate::filter::ReceiveFilter;
pub use crate::socket::BindError;
use crate::socket::{LinkedSocket, SocketConfig, watch_all};
use icmp_report::IcmpReporter;
use program::SocketIndex;

/// Largest Homa packet in bytes: 65,535 less an IPv4 header of 20, and the same for IPv6.
pub const MAX_PACKET_BYTES: usize = 65_515;

/// How to set up a [`RawDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawConfig {
    /// Address to receive at and send from; its port means nothing. `0.0.0.0` is all IPv4 addresses of the machine, and so by
    /// default; `[::]` is all of both versions. A link-local address needs its scope, as in `[fe80::1%2]`.
    pub bind: SocketAddr,
    /// Cap on [`Driver::max_packet`] in bytes, whatever the path takes; at most [`MAX_PACKET_BYTES`], and that by default. It
    /// decides only where the MTU is larger, as it is on loopback (65,536).
    pub max_packet_bytes: usize,
    /// Send buffer to ask for in bytes; the default and its reason are those of
    /// [`UdpConfig`](crate::udp::UdpConfig::send_buffer_bytes).
    pub send_buffer_bytes: usize,
    /// Receive buffer to ask for in bytes; the default and its reason are those of
    /// [`UdpConfig`](crate::udp::UdpConfig::receive_buffer_bytes).
    pub receive_buffer_bytes: usize,
}

impl Default for RawConfig {
    fn default() -> RawConfig {
        let udp = crate::udp::UdpConfig::default();
        RawConfig {
            bind: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            max_packet_bytes: MAX_PACKET_BYTES,
            send_buffer_bytes: udp.send_buffer_bytes,
            receive_buffer_bytes: udp.receive_buffer_bytes,
        }
    }
}

/// Homa over raw IP sockets. See the [module](self).
pub struct RawDriver {
    /// One of the bound address's version; behind it one for IPv4 where the address is `[::]`.
    sockets: Vec<LinkedSocket>,
    /// Shows both sockets of two.
    poll: Option<OwnedFd>,
    /// The socket that is asked first by the next [`Driver::receive`].
    next: usize,
    /// Which driver of a group it is.
    turn: SocketIndex,
    filter: ReceiveFilter,
    refuser: IcmpReporter,
}

impl std::fmt::Debug for RawDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawDriver")
            .field("local", &self.local_addr())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl RawDriver {
    /// Opens and binds the sockets.
    ///
    /// # Errors
    /// See [`BindError`]. Buffers smaller than asked for are no error: see [`Driver::buffer_sizes`].
    pub fn bind(config: &RawConfig) -> Result<RawDriver, BindError> {
        let mut bind = config.bind;
        bind.set_port(0);
        let open = |bind| {
            LinkedSocket::open(&SocketConfig {
                carrier: Carrier::Ip,
                bind,
                max_packet_bytes: config.max_packet_bytes.min(MAX_PACKET_BYTES),
                send_buffer_bytes: config.send_buffer_bytes,
                receive_buffer_bytes: config.receive_buffer_bytes,
                segmentation: false,
                max_segmented_bytes: crate::socket::MAX_SEGMENTED_BYTES,
                joins: false,
                silent: false,
            })
        };
        let mut sockets = vec![open(bind)?];
        let mut poll = None;
        if bind.is_ipv6() && bind.ip().is_unspecified() {
            sockets.push(open(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?);
            let fds: Vec<_> = sockets.iter().map(|socket| socket.main.fd()).collect();
            let watch = watch_all(&fds).map_err(|source| BindError::Socket {
                address: bind,
                step: "watching two sockets as one",
                source,
            })?;
            poll = Some(watch);
        }
        let (refuser, turn) = (IcmpReporter::new(bind.ip()), SocketIndex { number: 0, of: 1 });
        Ok(RawDriver { sockets, poll, next: 0, turn, filter: ReceiveFilter::everything(), refuser })
    }

    /// As [`RawDriver::bind`], `count` drivers of one address, 1 at least: a packet is received by the one whose number is half of the
    /// lower 32 bits of its RPC id, modulo their number. The kernel offers each packet to the sockets of all, and their filters
    /// choose, so that a packet costs it the more, the more there are. What the network reports (ICMP) each of them is told.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_group(config: &RawConfig, count: u32) -> Result<Vec<RawDriver>, BindError> {
        let of = count.max(1);
        let driver = |number| {
            let mut driver = RawDriver::bind(config)?;
            driver.turn = SocketIndex { number, of };
            if of > 1 {
                driver.attach(&driver.filter).map_err(|source| BindError::Socket {
                    address: driver.local_addr(),
                    step: "steering packets among its endpoints",
                    source,
                })?;
            }
            Ok(driver)
        };
        (0..of).map(driver).collect()
    }

    /// Index of the socket that reaches an address of this version; where none does, the one that will count the failure.
    fn socket_for(&self, to: IpAddr) -> usize {
        let reaches = |socket: &LinkedSocket| socket.main.local_addr().is_ipv4() == to.is_ipv4();
        self.sockets.iter().position(reaches).unwrap_or(0)
    }

    fn attach(&self, filter: &ReceiveFilter) -> io::Result<()> {
        for socket in &self.sockets {
            let ipv4 = socket.main.local_addr().is_ipv4();
            let program = program::build(filter, ipv4, self.turn);
            match socket.main.attach_filter(&program) {
                // Longer than net.core.optmem_max allows: everything comes then, and the receiver sorts it out.
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    socket.main.attach_filter(&program::let_through(ipv4, self.turn))?;
                }
                result => result?,
            }
        }
        Ok(())
    }
}

impl Driver for RawDriver {
    fn local_addr(&self) -> SocketAddr {
        let mut local = self.sockets[0].main.local_addr();
        local.set_port(0);
        local
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.sockets[self.socket_for(to.ip())].max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        if let [socket] = &mut self.sockets[..] {
            return socket.send(packets);
        }
        if packets.is_empty() {
            // Each does what is due.
            self.sockets.iter_mut().try_for_each(|socket| socket.send(packets).map(|_| ()))?;
        }
        let mut taken = 0;
        while taken < packets.len() {
            let left = &packets[taken..];
            let socket = self.socket_for(left[0].to.ip());
            let run = left.iter().take_while(|packet| self.socket_for(packet.to.ip()) == socket).count();
            match self.sockets[socket].send(&left[..run]) {
                Ok(sent) => {
                    taken += sent;
                    if sent < run {
                        break;
                    }
                }
                // The error comes again with the next call; what was taken must be told now.
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        let mut more = false;
        for _ in 0..self.sockets.len() {
            let socket = self.next;
            self.next = (socket + 1) % self.sockets.len();
            if self.sockets[socket].main.receive(burst)? > 0 {
                break;
            }
            more |= burst.may_have_more();
        }
        if more {
            burst.note_more();
        }
        Ok(burst.len())
    }

    fn stamp_received(&mut self) -> bool {
        self.sockets.iter_mut().all(|socket| socket.main.stamp_received())
    }

    fn tell_priorities(&mut self) -> bool {
        self.sockets.iter_mut().all(|socket| socket.main.tell_priorities())
    }

    fn stamp_sent(&mut self) -> bool {
        self.sockets.iter_mut().all(LinkedSocket::stamp_sent)
    }

    fn poll_sent(&mut self) -> Option<SentPacket> {
        self.sockets.iter_mut().find_map(LinkedSocket::poll_sent)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_ref().map_or_else(|| self.sockets[0].main.fd(), OwnedFd::as_fd))
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.sockets.iter().filter_map(LinkedSocket::poll_timeout).min()
    }

    fn shows_room(&self) -> bool {
        self.sockets.iter().all(LinkedSocket::shows_room)
    }

    fn poll_unreachable(&mut self) -> Option<Unreachable> {
        self.sockets.iter_mut().find_map(LinkedSocket::poll_unreachable)
    }

    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        if let Err(error) = self.attach(filter) {
            // Of two sockets the first may have taken it. What was accepted once is again, and if not, the packets that
            // come beyond the filter do no harm.
            let _ = self.attach(&self.filter);
            return Err(error);
        }
        self.filter.clone_from(filter);
        Ok(())
    }

    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        self.refuser.refuse(peer, packet);
    }

    fn link_mbps(&self) -> Option<u32> {
        self.sockets[0].main.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        Some(self.sockets[0].main.buffer_sizes())
    }

    fn stats(&self) -> DriverStats {
        self.sockets.iter().map(LinkedSocket::stats).fold(DriverStats::default(), DriverStats::plus)
    }
}
