//! A kernel socket that reserves the port of a kernel-bypassing driver.
//!
//! The kernel sees the same frames as the driver. Without a socket for the port or the protocol, it would
//! reply that the port or protocol is unreachable (ICMP), and another program could bind the port. A silent
//! socket, whose filter drops everything, prevents both. The kernel also delivers ICMP errors about packets
//! from this port to the silent socket, no matter which socket sent the packets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::clock::coarse_ms;
use crate::carrier::Carrier;
use crate::driver::{TxPacket, UnreachableReport};
use crate::socket::{BindError, PacketSocket, SocketConfig};

/// Buffer size of a socket that neither sends nor receives; the kernel rounds it up to its minimum.
const BUFFER_BYTES: usize = 1;

/// A reserved port or protocol: its socket is bound and silent.
pub(crate) struct Reservation {
    socket: PacketSocket,
    /// Time at which reports were last read.
    asked_ms: u64,
}

impl Reservation {
    /// Binds the port (any free port if it is 0). Directly over IP, opens another socket for the protocol.
    pub(crate) fn open(carrier: Carrier, bind: SocketAddr) -> Result<Reservation, BindError> {
        Reservation::with(carrier, bind, false)
    }

    /// Creates a second reservation of the same port. Over UDP, the kernel then passes a network report to
    /// one of the two sockets; directly over IP, to all sockets.
    pub(crate) fn duplicate(&self, carrier: Carrier) -> Result<Reservation, BindError> {
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
            // Without this, the kernel would segment merged datagrams for this socket before its filter drops
            // them.
            segmentation: carrier == Carrier::Udp,
            max_segmented_bytes: crate::socket::MAX_SEGMENTED_BYTES,
            joins,
            silent: true,
            v6_only: false,
            shared: false,
        };
        let socket = PacketSocket::open(&config)?;
        Ok(Reservation { socket, asked_ms: 0 })
    }

    /// Returns the bound address, with its port.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Implements [`Driver::max_packet`](crate::Driver::max_packet), using the kernel's route to the peer.
    /// Routers' reports of a smaller path MTU arrive through this socket.
    pub(crate) fn max_packet(&self, to: SocketAddr) -> usize {
        self.socket.max_packet(to)
    }

    /// Records packets sent from the port.
    pub(crate) fn note_sent(&mut self, packets: &[TxPacket<'_>]) {
        self.socket.note_sent(packets);
    }

    /// Forgets the known path MTUs, because the device's MTU has changed.
    pub(crate) fn forget_paths(&mut self) {
        self.socket.forget_paths();
    }

    /// Returns the speed of the link in Mbit/s, if the device reports it.
    pub(crate) fn link_mbps(&self) -> Option<u32> {
        self.socket.link_mbps()
    }

    /// Implements [`Driver::poll_unreachable`](crate::Driver::poll_unreachable). Queries the kernel at most
    /// once per tick of the kernel's clock, so frequent calls cost almost nothing.
    pub(crate) fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
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

    /// Returns the counter [`DriverStats::network_errors`](crate::DriverStats::network_errors).
    pub(crate) fn network_errors(&self) -> u64 {
        self.socket.stats().network_errors
    }
}

/// poll(2) reports the descriptor in error while reports are pending.
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
        let second = first.duplicate(Carrier::Udp).unwrap();
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
            // If no socket had the port, the next call would return ECONNREFUSED.
            peer.send(b"?").unwrap();
        }
        let taken_fd = taken.as_fd();
        let mut entries = [PollFd::new(&taken_fd, PollFlags::IN)];
        assert_eq!(poll(&mut entries, Some(&Timespec::default())), Ok(0), "nothing queues");
        assert_eq!((taken.poll_unreachable(), taken.network_errors()), (None, 0));
    }
}
