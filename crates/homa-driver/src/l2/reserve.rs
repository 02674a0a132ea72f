//! The place among the kernel's sockets of a driver that bypasses them.
//!
//! The kernel sees the frames that the driver sees. Without a socket at the port, or of the protocol, it would answer that
//! nobody is there (ICMP), and another program could take the port. So there is one, whose filter drops everything. It is also
//! where the kernel tells what ICMP says of packets from this port, whoever sent them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::clock::coarse_ms;
use crate::carrier::Carrier;
use crate::driver::{TxPacket, Unreachable};
use crate::socket::{BindError, PacketSocket, SocketConfig};

/// Buffers of a socket that neither sends nor receives; the kernel rounds it up to its least.
const BUFFER_BYTES: usize = 1;

/// A port, or the protocol, that is taken and silent.
pub(crate) struct Reservation {
    socket: PacketSocket,
    /// When reports were asked for.
    asked_ms: u64,
}

impl Reservation {
    /// Takes the port, any free one where it is 0, or over IP itself a share in the protocol.
    pub(crate) fn open(carrier: Carrier, bind: SocketAddr) -> Result<Reservation, BindError> {
        Reservation::with(carrier, bind, false)
    }

    /// A second one for the same port. Over UDP the kernel then tells one of them what the network reports, and over IP itself all.
    pub(crate) fn again(&self, carrier: Carrier) -> Result<Reservation, BindError> {
        let local = self.local_addr();
        if carrier == Carrier::Udp {
            self.socket.share_address()?;
        }
        Reservation::with(carrier, local, carrier == Carrier::Udp)
    }

    fn with(carrier: Carrier, bind: SocketAddr, joins: bool) -> Result<Reservation, BindError> {
        let config = SocketConfig {
            carrier,
            bind,
            max_packet_bytes: usize::MAX,
            send_buffer_bytes: BUFFER_BYTES,
            receive_buffer_bytes: BUFFER_BYTES,
            // Merged datagrams would else be cut for it before its filter drops them.
            segmentation: carrier == Carrier::Udp,
            max_segmented_bytes: crate::socket::MAX_SEGMENTED_BYTES,
            joins,
            silent: true,
        };
        let socket = PacketSocket::open(&config)?;
        Ok(Reservation { socket, asked_ms: 0 })
    }

    /// The address that was taken, with its port.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// As [`Driver::max_packet`](crate::Driver::max_packet), by the kernel's route to the peer. What routers say of narrower
    /// paths reaches it through this socket.
    pub(crate) fn max_packet(&self, to: SocketAddr) -> usize {
        self.socket.max_packet(to)
    }

    /// These packets were sent from the port.
    pub(crate) fn note_sent(&mut self, packets: &[TxPacket<'_>]) {
        self.socket.note_sent(packets);
    }

    /// Forgets what was known of paths: the device's MTU has changed.
    pub(crate) fn forget_paths(&mut self) {
        self.socket.forget_paths();
    }

    /// Speed of the link in Mbit/s, where it tells one.
    pub(crate) fn link_mbps(&self) -> Option<u32> {
        self.socket.link_mbps()
    }

    /// What the network reported, as [`Driver::poll_unreachable`](crate::Driver::poll_unreachable). It asks the kernel once in a
    /// tick of its clock, so that it costs next to nothing to call it often.
    pub(crate) fn poll_unreachable(&mut self) -> Option<Unreachable> {
        if let Some(report) = self.socket.poll_unreachable() {
            return Some(report);
        }
        let now = coarse_ms();
        if now == self.asked_ms {
            return None;
        }
        self.asked_ms = now;
        self.socket.read_reports();
        self.socket.poll_unreachable()
    }

    /// As [`DriverStats::network_errors`](crate::DriverStats::network_errors).
    pub(crate) fn network_errors(&self) -> u64 {
        self.socket.stats().network_errors
    }
}

/// Shows an error while there are reports.
impl AsFd for Reservation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn a_second_one_joins_it_and_others_do_not() {
        let first = Reservation::open(Carrier::Udp, "127.0.0.1:0".parse().unwrap()).unwrap();
        let second = first.again(Carrier::Udp).unwrap();
        assert_eq!(second.local_addr(), first.local_addr());
        assert!(matches!(Reservation::open(Carrier::Udp, first.local_addr()), Err(BindError::InUse(_))));
    }

    #[test]
    fn the_port_is_taken_and_swallows_what_comes() {
        let here = "127.0.0.1:0".parse().unwrap();
        let mut taken = Reservation::open(Carrier::Udp, here).unwrap();
        let local = taken.local_addr();
        assert!(matches!(Reservation::open(Carrier::Udp, local), Err(BindError::InUse(_))));
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.connect(local).unwrap();
        for _ in 0..3 {
            // Nobody there would be told by the next call (ECONNREFUSED).
            peer.send(b"?").unwrap();
        }
        let taken_fd = taken.as_fd();
        let mut entries = [PollFd::new(&taken_fd, PollFlags::IN)];
        assert_eq!(poll(&mut entries, Some(&Timespec::default())), Ok(0), "nothing queues");
        assert_eq!((taken.poll_unreachable(), taken.network_errors()), (None, 0));
    }
}
