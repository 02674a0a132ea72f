//! The contract between a packet path and its user.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::burst::RxBurst;
use crate::filter::ReceiveFilter;

/// A packet to send. Header and payload are gathered on their way out and need never be joined in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxPacket<'a> {
    /// The peer.
    pub to: SocketAddr,
    /// Priority of the packet in the network, 0 to 7 inclusive; larger is more urgent. Larger values count as 7.
    pub priority: u8,
    /// The Homa header.
    pub header: &'a [u8],
    /// What follows the header on the wire; may be empty.
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

/// A packet that was sent, as far as it says which one it was, and when ([`Driver::poll_sent`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// As in [`TxPacket`].
    pub priority: u8,
    /// The Homa header.
    pub header: Box<[u8]>,
    /// Length on the wire in bytes: header and payload.
    pub len: usize,
    /// When the kernel gave it to the device: nanoseconds of the system's real-time clock. Packets that the device, or the kernel in
    /// front of it, cuts from one datagram have the same time.
    pub at_ns: u64,
}

impl SentPacket {
    /// This packet, whose time is not known yet.
    pub(crate) fn of(packet: &TxPacket<'_>) -> SentPacket {
        SentPacket { priority: packet.priority, header: packet.header.into(), len: packet.len(), at_ns: 0 }
    }
}

/// The byte that carries a priority: in IPv4 type of service, in IPv6 traffic class. Priorities are the class selectors of
/// RFC 2474, the top three bits, that switches map to their queues by default; the low two bits are ECN's and stay zero (WIRE-15).
pub(crate) fn dscp_byte(priority: u8) -> u8 {
    priority.min(7) << 5
}

/// The priority that such a byte carries; of a byte that is no class selector, that of the switches that map it by its top three bits.
pub(crate) fn priority_of(dscp_byte: u8) -> u8 {
    dscp_byte >> 5
}

/// A report of the network that a peer's host refuses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Where the refused packet was bound for.
    pub peer: SocketAddr,
    /// What is not there.
    pub what: Refusal,
}

/// What a refused packet did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Anybody at the peer's address: ICMP port unreachable for a UDP port.
    Peer {
        /// `sender_id` of the refused packet, where the report quotes so much of it. Linux does.
        sender_id: Option<u64>,
    },
    /// The IP protocol, 146, at the peer's machine: ICMP protocol unreachable, or for IPv6 the unrecognized next header.
    Protocol {
        /// As for the peer.
        sender_id: Option<u64>,
    },
    /// Anybody at this Homa port: ICMP port unreachable over raw IP.
    Port {
        /// Destination port of the refused packet.
        port: u16,
        /// Its `sender_id`, where the report quotes so much of it. Linux does.
        sender_id: Option<u64>,
    },
}

/// Bytes of a packet that [`Driver::receive_in_place`] keeps apart from its payload: a Homa DATA header.
pub const IN_PLACE_HEADER_BYTES: usize = 56;

/// A path for packets. It has one owner, never waits, and never fragments. (Drivers of a network device wait for a new peer's
/// Ethernet address, a few milliseconds at most and within a budget of time.)
///
/// What befalls one packet or one peer on the way out is counted in [`Driver::stats`], as on any network a loss that the
/// protocol repairs; the `io::Error`s of [`Driver::send`] and [`Driver::receive`] mean that the path itself is of no more use.
pub trait Driver: Send {
    /// The address that packets leave from. Its IP is unspecified when the driver was bound so. Its port is 0 where packets
    /// travel in IP itself and a peer is a host's address: the ports of all peers are 0 then.
    fn local_addr(&self) -> SocketAddr;

    /// Length in bytes, header included, of the largest Homa packet that travels to this peer unfragmented. It may shrink
    /// when the network tells of a narrower path. The first call for a peer may take a few system calls, later ones none.
    fn max_packet(&self, to: SocketAddr) -> usize;

    /// Sends packets in their order and returns how many were taken. The rest, from that index on, is to be offered again
    /// later: the path has no room for them now. 0 means that there was room for none. A packet that cannot be sent to its
    /// peer is taken, dropped and counted, and those behind it go on.
    ///
    /// # Errors
    /// The path is broken for all peers.
    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize>;

    /// Clears the burst, fills it with packets that have come, in their order and no more than its cap says
    /// ([`RxBurst::set_cap`]), and returns how many; 0 when there are none, or where it says that there
    /// [may be more](RxBurst::note_more). A driver that has a queue for each IP version asks them in turn, beginning behind the one that gave
    /// the last burst.
    ///
    /// # Errors
    /// The path is broken for all peers. The burst is then empty.
    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize>;

    /// As [`Driver::receive`], for a caller that expects a large packet, of whose payload it knows the place: one packet's bytes behind
    /// the first [`IN_PLACE_HEADER_BYTES`] may be received into `place`, without a copy on the way. Where that happened, the
    /// burst has one packet, cut behind those, and what is returned is the rest of it, which begins where `place` does. Else it
    /// is empty, and the burst has all that came; `place` may have been written to all the same.
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

    /// Has packets received from here on carry the time at which the kernel took them from the device, or the device received them
    /// ([`RxBurst::received_at`]); whether this path can. The kernel begins soon after, not at once: the first packets may come without.
    /// It costs some hundred nanoseconds a packet. By default it cannot.
    fn stamp_received(&mut self) -> bool {
        false
    }

    /// Has packets received from here on carry their priority ([`RxBurst::priority`]); whether this path can. Those that get to see the IP
    /// header tell it unasked; others have the kernel say it beside each packet. By default it cannot.
    fn tell_priorities(&mut self) -> bool {
        false
    }

    /// Has the kernel tell when it gives each packet that is sent from here on to the device ([`Driver::poll_sent`]); whether this
    /// path can. Who sleeps on [`Driver::poll_fd`] may be woken by each, and a packet costs a microsecond or so. By default it cannot.
    fn stamp_sent(&mut self) -> bool {
        false
    }

    /// A packet of which the kernel has told when it was sent, not always in the order of sending; `None` when there is no more now.
    /// Of some it never tells. Cheap enough to be called after every [`Driver::receive`].
    fn poll_sent(&mut self) -> Option<SentPacket> {
        None
    }

    /// A descriptor that poll(2) shows readable (or in error) when [`Driver::receive`] is worth a call, or `None` for a driver
    /// that must be asked in a loop. A wrapper that holds packets back has more to give than its descriptor shows: see
    /// [`Driver::poll_timeout`].
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Nanoseconds after which the driver wants another call of [`Driver::send`] (with no packets will do) and
    /// [`Driver::receive`] although its descriptor may show nothing, 0 for at once. `None`, as it mostly is for real paths: never.
    fn poll_timeout(&self) -> Option<u64> {
        None
    }

    /// Whether poll(2) shows [`Driver::poll_fd`] writable when packets that found no room are to be offered again. Else
    /// [`Driver::poll_timeout`] says when that is, and the descriptor may be writable all the while. By default it does.
    fn shows_room(&self) -> bool {
        true
    }

    /// What the network told this driver (ICMP) of packets that their hosts refused; `None` when there is no more. Each report
    /// comes once. Cheap enough to be called after every [`Driver::receive`].
    fn poll_unreachable(&mut self) -> Option<Unreachable>;

    /// Says which packets this host is for. What it is not for need not be given by [`Driver::receive`], and what is given of
    /// it may be cut behind its header: [`ReceiveFilter::takes`] tells the packets apart. Until the first call a driver gives
    /// all. By default nothing is filtered: for paths that no other process shares.
    ///
    /// # Errors
    /// The filter cannot be set; the one before it stays.
    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        let _ = filter;
        Ok(())
    }

    /// Reports to `peer`, by ICMP port unreachable, that this packet of it found nobody at its Homa port. For peers that know
    /// no other way to be told, and at a bounded rate: what exceeds it is not sent. Only over raw IP; by default nothing is
    /// reported.
    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        let _ = (peer, packet);
    }

    /// Speed of the link in Mbit/s, or `None` where it has none or does not tell: loopback, veth and most virtual devices.
    fn link_mbps(&self) -> Option<u32>;

    /// Sizes of the kernel's buffers, or `None` for a path that has none.
    fn buffer_sizes(&self) -> Option<BufferSizes>;

    /// Counts since the driver was made.
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
    fn poll_unreachable(&mut self) -> Option<Unreachable> {
        (**self).poll_unreachable()
    }
    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        (**self).set_receive_filter(filter)
    }
    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        (**self).refuse(peer, packet);
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

/// Sizes of a socket's buffers in bytes, as the kernel gave them. The kernel books packets at more than their length, so a
/// buffer of a megabyte holds less than a megabyte of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// Send buffer obtained.
    pub send_bytes: usize,
    /// Send buffer asked for.
    pub send_wanted_bytes: usize,
    /// Receive buffer obtained.
    pub receive_bytes: usize,
    /// Receive buffer asked for. When more than what was obtained, raise `net.core.rmem_max`.
    pub receive_wanted_bytes: usize,
}

/// Counts of a driver since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStats {
    /// Packets sent.
    pub packets_out: u64,
    /// Their bytes, Homa headers included, lower headers not.
    pub bytes_out: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Their bytes, Homa headers included, lower headers not.
    pub bytes_in: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received, those that found nothing included.
    pub receive_calls: u64,
    /// Times that there was no room for a packet to send, so that it was left to the caller.
    pub would_block: u64,
    /// Packets received that were longer than a buffer, and dropped.
    pub truncated: u64,
    /// Merged packets received that could not be divided into the packets that were sent, and dropped.
    pub undivided: u64,
    /// Frames received with wrong checksums or lengths, and dropped, where this driver and not the kernel looks at them.
    pub damaged: u64,
    /// Packets that the kernel dropped before this driver could receive them, because the receive buffer was full.
    pub queue_drops: u64,
    /// Reports from the network (ICMP) that packets did not arrive, for whatever reason.
    pub network_errors: u64,
    /// Packets that were taken and could not be sent.
    pub send_errors: SendErrors,
}

impl DriverStats {
    /// The counts of two paths together.
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

/// Packets that were taken and could not be sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendErrors {
    /// Longer than the path takes unfragmented.
    pub too_big: u64,
    /// The peer's host refuses them (nobody listens).
    pub refused: u64,
    /// No route to the network or the host.
    pub unreachable: u64,
    /// Forbidden, by a packet filter for instance.
    pub denied: u64,
    /// The link to the peer takes nothing for longer than a moment, and this host has peers behind other links as well.
    pub link_stuck: u64,
    /// Anything else; an address family that the socket cannot send to, for instance.
    pub other: u64,
}

impl SendErrors {
    /// The sum over all reasons.
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
