//! Homa packets directly in IP, as Linux Homa sends them: IP protocol 146, IPv4 and IPv6 (WIRE-19). Opening a
//! driver requires the capability CAP_NET_RAW.
//!
//! A peer is identified by a host's address, whose port is always 0: the Homa ports are in the packets. All
//! processes that share an address receive its packets; a filter in the kernel passes each process its own
//! packets ([`Driver::set_receive_filter`]). While any process has such a socket open, the kernel does not
//! report the protocol as unreachable; otherwise it does.
//!
//! A host bound to an address uses that address's IP version. A host bound to `[::]` uses both versions, with
//! a socket for each, because `[::]` means both versions over UDP as well. A host bound to `0.0.0.0` uses
//! IPv4.
//!
//! Packets are never fragmented, and each is sent separately: raw sockets have no segmentation offload, so a
//! burst is sent by `sendmmsg`. Packets that the kernel's receive offload has merged, and that nothing has
//! split since, are split here (WIRE-20). Homa packets that Linux disguises as TCP (`hijack_tcp`) arrive as
//! IP protocol 6 and never at these sockets.

pub(crate) mod icmp_report;
pub(crate) mod program;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::burst::RxBurst;
use crate::carrier::Carrier;
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, UnreachableReport};
use crate::filter::ReceiveFilter;
pub use crate::socket::BindError;
use crate::socket::by_version::ReceiveTurn;
use crate::socket::{LinkedSocket, SocketConfig, by_version, watch_all};
use icmp_report::IcmpReporter;
use program::SocketIndex;

/// Largest Homa packet in bytes: 65,535 minus an IPv4 header of 20. The same limit applies to IPv6.
pub const MAX_PACKET_BYTES: usize = 65_515;

/// How to set up a [`RawDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawConfig {
    /// Address to receive at and send from; its port is ignored. `0.0.0.0`, the default, means all IPv4
    /// addresses of the machine; `[::]` means those of both versions. A link-local address needs its scope,
    /// as in `[fe80::1%2]`.
    pub bind: SocketAddr,
    /// Cap on [`Driver::max_packet`] in bytes for any path; at most [`MAX_PACKET_BYTES`], which is the
    /// default. It matters only if the MTU is larger, as on loopback (65,536).
    pub max_packet_bytes: usize,
    /// Send buffer to request in bytes. For the default and its reason, see
    /// [`UdpConfig`](crate::udp::UdpConfig::send_buffer_bytes).
    pub send_buffer_bytes: usize,
    /// Receive buffer to request in bytes. For the default and its reason, see
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

/// Homa over raw IP sockets, as the [module](self) describes.
pub struct RawDriver {
    /// A socket for the IP version of the bound address; if the address is `[::]`, followed by one for IPv4.
    sockets: Vec<LinkedSocket>,
    /// An epoll descriptor for both sockets, if there are two.
    poll: Option<OwnedFd>,
    turn: ReceiveTurn,
    /// This driver's index in its group.
    index: SocketIndex,
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
    /// See [`BindError`]. Buffers smaller than requested are not an error: see [`Driver::buffer_sizes`].
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
                v6_only: false,
                shared: false,
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
        Ok(RawDriver {
            sockets,
            poll,
            turn: ReceiveTurn::default(),
            index: SocketIndex { number: 0, of: 1 },
            filter: ReceiveFilter::accept_all(),
            refuser: IcmpReporter::new(Carrier::Ip, bind.ip()),
        })
    }

    /// Like [`RawDriver::bind`], for `count` drivers of one address, at least 1. A packet is received by the
    /// driver numbered (lower 32 bits of the RPC ID / 2) modulo `count`. The kernel offers each packet to all
    /// sockets, whose filters select, so its cost for a packet grows with their number. Each driver receives
    /// all network reports (ICMP).
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_group(config: &RawConfig, count: u32) -> Result<Vec<RawDriver>, BindError> {
        let of = count.max(1);
        let driver = |number| {
            let mut driver = RawDriver::bind(config)?;
            driver.index = SocketIndex { number, of };
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

    fn attach(&self, filter: &ReceiveFilter) -> io::Result<()> {
        for socket in &self.sockets {
            let ipv4 = socket.main.local_addr().is_ipv4();
            let program = program::build(filter, ipv4, self.index);
            match socket.main.attach_filter(&program) {
                // The filter is longer than net.core.optmem_max allows. Pass every packet instead; the
                // receiver checks the ports itself.
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    socket.main.attach_filter(&program::pass_own(ipv4, self.index))?;
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
        self.sockets[by_version::socket_for(&self.sockets, to.ip())].max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        by_version::send(&mut self.sockets, packets)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        self.turn.receive(&mut self.sockets, burst)?;
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

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.sockets.iter_mut().find_map(LinkedSocket::poll_unreachable)
    }

    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        if let Err(error) = self.attach(filter) {
            // The first of two sockets may have the new filter. The old filter was accepted once and should
            // be accepted again; if it is not, packets that the filter would have dropped do no harm.
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
