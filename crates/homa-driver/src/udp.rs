//! Homa packets as UDP payload (WIRE-16): on any Linux system, over IPv4 and IPv6, without privileges.
//!
//! The priority of a packet is a class selector in its DSCP field. Packets are never fragmented: a packet
//! that is too long for the path is dropped and counted, and lowers [`Driver::max_packet`] for that peer. If
//! the kernel supports it, packets of equal length to one peer are passed to it as one datagram and segmented
//! late (UDP_SEGMENT). Packets may also be received merged (UDP_GRO). On the wire they are ordinary packets.
//!
//! If a link accepts no packets for 5 ms and the host also has peers behind other links, packets that the
//! link has no room for are lost ([`SendErrors::link_stuck`](crate::SendErrors::link_stuck)). Packets on the
//! other links are still sent. A host whose peers are all behind one link waits for that link.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::burst::RxBurst;
use crate::carrier::Carrier;
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, UnreachableReport};
pub use crate::socket::{BindError, MAX_SEGMENTED_BYTES};
use crate::socket::{LinkedSocket, SocketConfig};

/// Largest UDP payload over IPv4 in bytes: 65,535 minus the IPv4 header (20) and the UDP header (8).
pub const MAX_PACKET_BYTES: usize = 65_507;

/// How to set up a [`UdpDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address to receive at and send from. Port 0 means any free port. `[::]` serves IPv4 peers too.
    pub bind: SocketAddr,
    /// Cap on [`Driver::max_packet`] in bytes for any path; at most [`MAX_PACKET_BYTES`], which is the
    /// default. It matters only if the MTU is larger, as on loopback (65,536). There, larger packets mean
    /// fewer packets, and smaller packets make priorities finer-grained.
    pub max_packet_bytes: usize,
    /// Send buffer to request in bytes. The default, 2 MiB, holds a burst of 32 packets of maximum length. A
    /// larger buffer would not help: the protocol knows which message is shortest, so it orders queued
    /// packets better than a buffer does.
    pub send_buffer_bytes: usize,
    /// Receive buffer to request in bytes. 8 MiB by default, since unscheduled bytes arrive without a grant.
    /// This holds about 60 KB from each of 64 peers at once, given that the kernel charges small packets at
    /// twice their length.
    pub receive_buffer_bytes: usize,
    /// Whether the kernel segments and merges runs of equal-length packets. True by default; the driver
    /// detects kernels that do not support this.
    pub segmentation: bool,
    /// Maximum bytes of a run that the kernel segments, including packet headers; at most
    /// [`MAX_SEGMENTED_BYTES`], which is the default. Longer runs cost less per packet; with shorter runs, a
    /// packet of another message waits less. A packet longer than this is sent alone.
    pub max_segmented_bytes: usize,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            bind: SocketAddr::from(([0, 0, 0, 0], 0)),
            max_packet_bytes: MAX_PACKET_BYTES,
            send_buffer_bytes: 2 << 20,
            receive_buffer_bytes: 8 << 20,
            segmentation: true,
            max_segmented_bytes: MAX_SEGMENTED_BYTES,
        }
    }
}

/// Homa over a UDP socket, as described in the [module](self).
pub struct UdpDriver {
    socket: LinkedSocket,
}

impl std::fmt::Debug for UdpDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpDriver")
            .field("local", &self.socket.main.local_addr())
            .field("stats", &self.socket.stats())
            .finish_non_exhaustive()
    }
}

impl UdpDriver {
    /// Opens and binds a socket.
    ///
    /// # Errors
    /// See [`BindError`]. Buffers smaller than requested are not an error: see [`Driver::buffer_sizes`].
    pub fn bind(config: &UdpConfig) -> Result<UdpDriver, BindError> {
        let socket = LinkedSocket::open(&socket_config(config))?;
        Ok(UdpDriver { socket })
    }

    /// Opens and binds `count` sockets at one address (SO_REUSEPORT), 1 to 64. The kernel passes a packet to
    /// the socket at index `(sender_id as u32 >> 1) % count` of the result, so all packets of an RPC reach
    /// the same socket. Packets too short to have an ID go to the first socket. A run of packets merged by a
    /// sender or a network card goes to the socket of its first packet. While the sockets are being opened,
    /// any of them may receive any packet.
    ///
    /// Another process of the same user that also sets SO_REUSEPORT can bind the address too. It receives no
    /// packets unless it attaches its own program. With a `count` of 1 the option is set only while a link of
    /// this host accepts no packets; at other times no other process can bind the address.
    ///
    /// # Errors
    /// See [`BindError`].
    ///
    /// # Panics
    /// `count` is 0 or above 64.
    pub fn bind_group(config: &UdpConfig, count: u32) -> Result<Vec<UdpDriver>, BindError> {
        assert!((1..=64).contains(&count), "{count} sockets at one address");
        let group = LinkedSocket::open_group(&socket_config(config), count)?;
        Ok(group.into_iter().map(|socket| UdpDriver { socket }).collect())
    }
}

fn socket_config(config: &UdpConfig) -> SocketConfig {
    SocketConfig {
        carrier: Carrier::Udp,
        bind: config.bind,
        max_packet_bytes: config.max_packet_bytes.min(MAX_PACKET_BYTES),
        send_buffer_bytes: config.send_buffer_bytes,
        receive_buffer_bytes: config.receive_buffer_bytes,
        segmentation: config.segmentation,
        max_segmented_bytes: config.max_segmented_bytes,
        joins: false,
        silent: false,
        v6_only: false,
        shared: false,
    }
}

impl Driver for UdpDriver {
    fn local_addr(&self) -> SocketAddr {
        self.socket.main.local_addr()
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.socket.max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        self.socket.send(packets)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        self.socket.main.receive(burst)
    }

    fn receive_in_place<'a>(
        &mut self,
        burst: &mut RxBurst,
        place: &'a mut [MaybeUninit<u8>],
    ) -> io::Result<&'a [u8]> {
        self.socket.main.receive_in_place(burst, place)
    }

    fn stamp_received(&mut self) -> bool {
        self.socket.main.stamp_received()
    }

    fn tell_priorities(&mut self) -> bool {
        self.socket.main.tell_priorities()
    }

    fn stamp_sent(&mut self) -> bool {
        self.socket.stamp_sent()
    }

    fn poll_sent(&mut self) -> Option<SentPacket> {
        self.socket.poll_sent()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.main.fd())
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.socket.poll_timeout()
    }

    fn shows_room(&self) -> bool {
        self.socket.shows_room()
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.socket.poll_unreachable()
    }

    fn link_mbps(&self) -> Option<u32> {
        self.socket.main.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        Some(self.socket.main.buffer_sizes())
    }

    fn stats(&self) -> DriverStats {
        self.socket.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
