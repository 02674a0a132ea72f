//! Homa packets as UDP payload (WIRE-16): any Linux, IPv4 and IPv6, no privileges.
//!
//! The priority of a packet travels in its DSCP field as a class selector. Packets are never fragmented: what does not fit the
//! path is dropped, counted, and lowers [`Driver::max_packet`] for that peer. Packets of equal length to one peer go to the
//! kernel as one datagram to be cut late (UDP_SEGMENT), and may come from it merged (UDP_GRO), where it can do that: on the
//! wire they are packets as any.
//!
//! A link that takes no packets for 5 ms loses those that find no room
//! ([`SendErrors::link_stuck`](crate::SendErrors::link_stuck)), where the host has peers behind other links as well: theirs go on. A
//! host with peers behind one link waits for it.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::burst::RxBurst;
use crate::carrier::Carrier;
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, Unreachable};
pub use crate::socket::{BindError, MAX_SEGMENTED_BYTES};
use crate::socket::{LinkedSocket, SocketConfig};

/// Largest UDP payload over IPv4 in bytes: 65,535 less an IPv4 header of 20 and a UDP header of 8.
pub const MAX_PACKET_BYTES: usize = 65_507;

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
    /// Most bytes of a run that the kernel cuts, packets and their headers together; at most [`MAX_SEGMENTED_BYTES`], and that by
    /// default. Longer runs cost less for each packet; shorter ones let another message's packet in between sooner. A packet that is
    /// longer travels alone.
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

/// Homa over a UDP socket. See the [module](self).
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
    /// See [`BindError`]. Buffers smaller than asked for are no error: see [`Driver::buffer_sizes`].
    pub fn bind(config: &UdpConfig) -> Result<UdpDriver, BindError> {
        let socket = LinkedSocket::open(&socket_config(config))?;
        Ok(UdpDriver { socket })
    }

    /// Opens and binds `count` sockets at one address (SO_REUSEPORT), 1 to 64: the kernel gives a packet to the one whose number
    /// in the result is `(sender_id as u32 >> 1) % count`, so that all packets of an RPC come to the same, and what is too short to
    /// have an id to the first. A run of packets that a sender or a card merged goes where the first of them belongs. While
    /// the sockets are opened, any of them may get any packet.
    ///
    /// Another process of the same user that sets SO_REUSEPORT, too, can bind the address as well. It gets no packets, unless it sets a
    /// program of its own. With a `count` of 1 the option is set only while a link of this host takes no packets, and nobody can at
    /// other times.
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

    fn poll_unreachable(&mut self) -> Option<Unreachable> {
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
