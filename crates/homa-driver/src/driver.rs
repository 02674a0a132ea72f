//! The contract between a packet path and its user.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::burst::RxBurst;
use crate::exchange::Exchange;
use crate::filter::ReceiveFilter;

/// A packet to send. Header and payload are gathered when the packet is sent, so they need not be contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxPacket<'a> {
    /// The peer.
    pub to: SocketAddr,
    /// Priority of the packet in the network, 0 to 7 inclusive; larger is more urgent. Values above 7 count
    /// as 7.
    pub priority: u8,
    /// The Homa header.
    pub header: &'a [u8],
    /// Bytes that follow the header on the wire; may be empty.
    pub payload: &'a [u8],
}

impl TxPacket<'_> {
    /// Length on the wire in bytes: header and payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Whether there is neither header nor payload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet whose send time the kernel reported ([`Driver::poll_sent`]): the fields that identify it, and its
/// send time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// As in [`TxPacket`].
    pub priority: u8,
    /// The Homa header.
    pub header: Box<[u8]>,
    /// Length on the wire in bytes: header and payload.
    pub len: usize,
    /// When the kernel passed the packet to the device, in nanoseconds of the system's real-time clock.
    /// Packets that the device, or the kernel just above it, segments from one datagram have the same time.
    pub at_ns: u64,
}

impl SentPacket {
    /// Creates an entry for a packet whose send time is not known yet.
    pub(crate) fn of(packet: &TxPacket<'_>) -> SentPacket {
        SentPacket { priority: packet.priority, header: packet.header.into(), len: packet.len(), at_ns: 0 }
    }
}

/// Returns the IPv4 type-of-service or IPv6 traffic-class byte for a priority. Priorities are the class
/// selectors of RFC 2474: the top three bits, which switches map to their queues by default. The low two bits
/// are for ECN and stay zero (WIRE-15).
pub(crate) fn dscp_byte(priority: u8) -> u8 {
    priority.min(7) << 5
}

/// Returns the priority in an IPv4 type-of-service or IPv6 traffic-class byte. If the byte is not a class
/// selector, the priority is its top three bits, as in switches that map these bits to their queues.
pub(crate) fn priority_of(dscp_byte: u8) -> u8 {
    dscp_byte >> 5
}

/// A network report that a peer's host refused a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreachableReport {
    /// Destination of the refused packet.
    pub peer: SocketAddr,
    /// What was missing there.
    pub target: UnreachableTarget,
}

/// What was missing at the destination of a refused packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableTarget {
    /// The socket at the peer's address. Reported as ICMP port unreachable for a UDP port.
    Peer {
        /// `sender_id` of the refused packet, if the report quotes enough of it. Reports from Linux do.
        sender_id: Option<u64>,
    },
    /// IP protocol 146 at the peer's machine. Reported as ICMP protocol unreachable, or for IPv6 as
    /// unrecognized next header.
    Protocol {
        /// `sender_id` of the refused packet, if the report quotes enough of it.
        sender_id: Option<u64>,
    },
    /// The Homa port at the peer's host. Reported as ICMP port unreachable, directly over IP.
    Port {
        /// Destination port of the refused packet.
        port: u16,
        /// `sender_id` of the refused packet, if the report quotes enough of it. Reports from Linux do.
        sender_id: Option<u64>,
    },
}

/// Number of leading bytes that [`Driver::receive_in_place`] keeps separate from the payload: the length of a
/// Homa DATA header.
pub const IN_PLACE_HEADER_BYTES: usize = 56;

/// A path for packets. It has one owner, never blocks, and never fragments. (Exception: drivers of a network
/// device wait for a new peer's Ethernet address, a few milliseconds at most and within a time budget.)
///
/// Send errors that concern a single packet or peer are counted in [`Driver::stats`]; the protocol recovers
/// from them as from losses. An `io::Error` of [`Driver::send`] or [`Driver::receive`] means that the whole
/// path is unusable.
pub trait Driver: Send {
    /// Returns the source address of sent packets. Its IP is unspecified if the driver was bound to the
    /// unspecified address. Its port is 0 if packets are sent directly over IP; a peer is then identified by
    /// its host's address, and the ports of all peers are 0.
    fn local_addr(&self) -> SocketAddr;

    /// Returns the length in bytes, header included, of the largest Homa packet that reaches this peer
    /// unfragmented. It may shrink when the network reports a smaller path MTU. The first call for a peer may
    /// take a few system calls; later calls take none.
    fn max_packet(&self, to: SocketAddr) -> usize;

    /// Sends packets in order and returns how many were accepted. Offer the packets from that index on again
    /// later. A result of 0 means that the path has no room for any packet. A packet that cannot be sent to
    /// its peer is accepted, dropped and counted; the packets after it are still sent.
    ///
    /// # Errors
    /// The path is broken for all peers.
    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize>;

    /// Clears the burst and fills it with received packets, in order and up to its cap
    /// ([`RxBurst::set_cap`]). Returns the number of packets. This is 0 if there are none, or if the burst
    /// records that there [may be more](RxBurst::note_more). A driver with a queue for each IP version reads
    /// the queues in turn, starting after the queue of the last burst.
    ///
    /// # Errors
    /// The path is broken for all peers. The burst is then empty.
    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize>;

    /// Like [`Driver::receive`], for a caller that expects a large packet and knows where its payload
    /// belongs. The bytes of one packet after the first [`IN_PLACE_HEADER_BYTES`] may be received directly
    /// into `place`, without a copy.
    ///
    /// If so, the burst contains only that packet, truncated to those first bytes, and the returned slice is
    /// the rest of the packet, at the start of `place`. Otherwise the slice is empty and the burst contains
    /// all received packets; `place` may have been overwritten even so.
    ///
    /// By default nothing is received in place.
    ///
    /// # Errors
    /// As [`Driver::receive`].
    fn receive_in_place<'a>(
        &mut self,
        burst: &mut RxBurst,
        place: &'a mut [MaybeUninit<u8>],
    ) -> io::Result<&'a [u8]> {
        let _ = place;
        self.receive(burst).map(|_| &[][..])
    }

    /// Enables receive times ([`RxBurst::received_at`]): when the kernel took a packet from the device, or
    /// when the device received it. Returns whether this path supports them; by default it does not. The
    /// kernel starts soon after the call, not immediately, so the first packets may have no time. The cost is
    /// a few hundred nanoseconds per packet.
    fn stamp_received(&mut self) -> bool {
        false
    }

    /// Enables priorities of received packets ([`RxBurst::priority`]). Returns whether this path supports
    /// them; by default it does not. Drivers that see the IP header always provide priorities; others need
    /// ancillary data from the kernel with each packet.
    fn tell_priorities(&mut self) -> bool {
        false
    }

    /// Enables send times: from this call on, the kernel reports when it passes each packet to the device
    /// ([`Driver::poll_sent`]). Returns whether this path supports them; by default it does not. Each report
    /// may wake a thread that sleeps on [`Driver::poll_fd`]. The cost is about a microsecond per packet.
    fn stamp_sent(&mut self) -> bool {
        false
    }

    /// Returns a packet whose send time the kernel has reported, not necessarily in send order; `None` if
    /// there are currently no more reports. Some packets are never reported. Cheap enough to be called after
    /// every [`Driver::receive`].
    fn poll_sent(&mut self) -> Option<SentPacket> {
        None
    }

    /// Returns a descriptor that poll(2) reports as readable (or in error) when [`Driver::receive`] is worth
    /// calling. `None` for a driver that must be polled in a loop. A wrapper that delays packets may have
    /// packets ready while its descriptor is not readable: see [`Driver::poll_timeout`].
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the nanoseconds until [`Driver::send`] (even without packets) and [`Driver::receive`] must be
    /// called again, even if the descriptor is not ready; 0 means immediately. `None`, the usual result for
    /// real paths, means never.
    fn poll_timeout(&self) -> Option<u64> {
        None
    }

    /// Whether poll(2) reports [`Driver::poll_fd`] as writable when refused packets should be offered again.
    /// If false, [`Driver::poll_timeout`] returns the time to offer them, and the descriptor may always be
    /// writable. True by default.
    fn shows_room(&self) -> bool {
        true
    }

    /// Returns a network report (ICMP) about a packet that its destination refused; `None` if there are no
    /// more reports. Each report is returned once. Cheap enough to be called after every [`Driver::receive`].
    fn poll_unreachable(&mut self) -> Option<UnreachableReport>;

    /// Sets which packets this host accepts. [`Driver::receive`] may omit other packets, or return them
    /// truncated after their header; [`ReceiveFilter::accepts`] distinguishes them. A driver returns all
    /// packets until the first call. By default nothing is filtered, which suits paths that are not shared
    /// with other processes.
    ///
    /// # Errors
    /// The filter cannot be set; the previous filter stays in effect.
    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        let _ = filter;
        Ok(())
    }

    /// Sends `peer` an ICMP port unreachable for this packet, whose destination port has no host. Peers that
    /// have no other way to learn of a closed port need this. Reports above a rate limit are not sent. Only
    /// supported directly over IP; by default nothing is reported.
    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        let _ = (peer, packet);
    }

    /// Returns the port that every peer of this path has in its [`SocketAddr`], if all processes of a network
    /// namespace appear to their peers as one host. It is 0 directly over IP, which has no ports. `None` if
    /// the local address belongs to this driver alone.
    fn peers_port(&self) -> Option<u16> {
        (self.local_addr().port() == 0).then_some(0)
    }

    /// Returns the interface for handing packets over to other processes, if one process receives the packets
    /// of all processes. `None` by default.
    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        None
    }

    /// Returns the speed of the link in Mbit/s. `None` if the device has no speed or does not report it, as
    /// for loopback, veth and most virtual devices.
    fn link_mbps(&self) -> Option<u32>;

    /// Returns the sizes of the kernel's buffers, or `None` for a path without any.
    fn buffer_sizes(&self) -> Option<BufferSizes>;

    /// Returns the counters, which start when the driver is created.
    fn stats(&self) -> DriverStats;
}

impl<D: Driver + ?Sized> Driver for Box<D> {
    fn local_addr(&self) -> SocketAddr {
        (**self).local_addr()
    }
    fn max_packet(&self, to: SocketAddr) -> usize {
        (**self).max_packet(to)
    }
    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        (**self).send(packets)
    }
    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        (**self).receive(burst)
    }
    fn receive_in_place<'a>(
        &mut self,
        burst: &mut RxBurst,
        place: &'a mut [MaybeUninit<u8>],
    ) -> io::Result<&'a [u8]> {
        (**self).receive_in_place(burst, place)
    }
    fn stamp_received(&mut self) -> bool {
        (**self).stamp_received()
    }

    fn tell_priorities(&mut self) -> bool {
        (**self).tell_priorities()
    }
    fn stamp_sent(&mut self) -> bool {
        (**self).stamp_sent()
    }
    fn poll_sent(&mut self) -> Option<SentPacket> {
        (**self).poll_sent()
    }
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).poll_fd()
    }
    fn poll_timeout(&self) -> Option<u64> {
        (**self).poll_timeout()
    }
    fn shows_room(&self) -> bool {
        (**self).shows_room()
    }
    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        (**self).poll_unreachable()
    }
    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        (**self).set_receive_filter(filter)
    }
    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        (**self).refuse(peer, packet);
    }
    fn peers_port(&self) -> Option<u16> {
        (**self).peers_port()
    }
    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        (**self).exchange()
    }
    fn link_mbps(&self) -> Option<u32> {
        (**self).link_mbps()
    }
    fn buffer_sizes(&self) -> Option<BufferSizes> {
        (**self).buffer_sizes()
    }
    fn stats(&self) -> DriverStats {
        (**self).stats()
    }
}

/// Sizes of a socket's buffers in bytes, as granted by the kernel. The kernel charges more than a packet's
/// length, so a one-megabyte buffer holds less than a megabyte of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// Actual send buffer.
    pub send_bytes: usize,
    /// Requested send buffer.
    pub send_wanted_bytes: usize,
    /// Actual receive buffer.
    pub receive_bytes: usize,
    /// Requested receive buffer. If it exceeds the actual buffer, raise `net.core.rmem_max`.
    pub receive_wanted_bytes: usize,
}

/// Counters of a driver since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStats {
    /// Packets sent.
    pub packets_out: u64,
    /// Bytes of the packets sent, including Homa headers but no lower headers.
    pub bytes_out: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Bytes of the packets received, including Homa headers but no lower headers.
    pub bytes_in: u64,
    /// System calls that send.
    pub send_calls: u64,
    /// System calls that receive, including those that found nothing.
    pub receive_calls: u64,
    /// Number of times a packet was returned to the caller because there was no room.
    pub would_block: u64,
    /// Packets received that were longer than a buffer and therefore dropped.
    pub truncated: u64,
    /// Merged packets received that could not be split into the original packets and were therefore dropped.
    pub undivided: u64,
    /// Frames received with wrong checksums or lengths, and dropped. Only counted if the checks are done by
    /// this driver, not by the kernel.
    pub damaged: u64,
    /// Packets that the kernel dropped before this driver could receive them, because the receive buffer was
    /// full.
    pub queue_drops: u64,
    /// Packets received and dropped because too many packets of their sender waited to be processed.
    pub backlog_drops: u64,
    /// Packets received for other processes and handed over to them, if processes share a UDP port.
    pub handed_over: u64,
    /// Packets received for other processes and dropped, because the destination process accepted none.
    pub hand_over_drops: u64,
    /// Packets that other processes received and handed over to this one; not part of `packets_in`.
    pub taken_over: u64,
    /// Network reports (ICMP) of packets that were not delivered, for any reason.
    pub network_errors: u64,
    /// Packets that were accepted but could not be sent.
    pub send_errors: SendErrors,
}

impl DriverStats {
    /// Returns the sum of the counters of two paths.
    #[must_use]
    pub fn plus(self, other: DriverStats) -> DriverStats {
        let (errors, others) = (self.send_errors, other.send_errors);
        DriverStats {
            packets_out: self.packets_out + other.packets_out,
            bytes_out: self.bytes_out + other.bytes_out,
            packets_in: self.packets_in + other.packets_in,
            bytes_in: self.bytes_in + other.bytes_in,
            send_calls: self.send_calls + other.send_calls,
            receive_calls: self.receive_calls + other.receive_calls,
            would_block: self.would_block + other.would_block,
            truncated: self.truncated + other.truncated,
            undivided: self.undivided + other.undivided,
            damaged: self.damaged + other.damaged,
            queue_drops: self.queue_drops + other.queue_drops,
            backlog_drops: self.backlog_drops + other.backlog_drops,
            handed_over: self.handed_over + other.handed_over,
            hand_over_drops: self.hand_over_drops + other.hand_over_drops,
            taken_over: self.taken_over + other.taken_over,
            network_errors: self.network_errors + other.network_errors,
            send_errors: SendErrors {
                too_big: errors.too_big + others.too_big,
                refused: errors.refused + others.refused,
                unreachable: errors.unreachable + others.unreachable,
                denied: errors.denied + others.denied,
                link_stuck: errors.link_stuck + others.link_stuck,
                other: errors.other + others.other,
            },
        }
    }
}

/// Packets that were accepted but could not be sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendErrors {
    /// Longer than the path carries unfragmented.
    pub too_big: u64,
    /// The peer's host refuses them (no socket listens).
    pub refused: u64,
    /// No route to the network or the host.
    pub unreachable: u64,
    /// Forbidden, for instance by a packet filter.
    pub denied: u64,
    /// The link to the peer has accepted no packets for 5 ms, and this host also has peers behind other
    /// links.
    pub link_stuck: u64,
    /// Any other reason, for instance an address family that the socket cannot send to.
    pub other: u64,
}

impl SendErrors {
    /// Returns the sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.too_big + self.refused + self.unreachable + self.denied + self.link_stuck + self.other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_class_selectors() {
        assert_eq!([0, 1, 7, 200].map(dscp_byte), [0x00, 0x20, 0xe0, 0xe0]);
        assert!((0..8).all(|priority| priority_of(dscp_byte(priority)) == priority));
    }
}
