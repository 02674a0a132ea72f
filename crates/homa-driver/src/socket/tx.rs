//! Sends several packets per system call, each gathered from header and payload.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::{AddressFamily, RawAddress};
use super::call;
use super::control::Control;
use super::option;
use crate::carrier::Carrier;
use crate::driver::{TxPacket, dscp_byte};

/// Maximum number of packets considered for one system call.
pub(crate) const TX_PACKETS: usize = 64;
/// Maximum number of segments in one datagram. Every kernel with UDP_SEGMENT (since 4.18) accepts this many.
const SEGMENTS_MAX: usize = 64;
/// Maximum bytes of a segmented datagram. The IPv6 payload length has 16 bits and includes the UDP header.
/// Another 40 bytes are left free so that the same limit works for IPv4, whose length field also includes the
/// IP header.
pub const MAX_SEGMENTED_BYTES: usize = 65_535 - 8 - 40;

/// A lone packet up to this length is copied into contiguous memory and sent without a header structure. The
/// copy costs 10 to 30 ns and the structure 100 to 150 ns, of which the control message accounts for 60 ns
/// (measured on a 3 GHz Xeon with Linux 6.18).
const JOINED_ALONE_BYTES: usize = 2_048;
/// The same limit for packets in a run.
const JOINED_IN_RUN_BYTES: usize = 512;
/// Memory for a full ring of packets that are sent in runs.
const JOINED_BYTES: usize = TX_PACKETS * JOINED_IN_RUN_BYTES;
/// Number of consecutive lone packets with the same priority, different from the socket's, before the socket
/// switches to that priority. Setting the socket's priority costs about as much as two control messages; most
/// traffic of a socket keeps one priority for a long time.
const DIFFERING_MAX: u8 = 8;

/// The kernel's structures for one `sendmmsg`. Their pointers are valid only within [`TxRing::fill`] and the
/// [`TxRing::send`] after it.
pub(crate) struct TxRing {
    carrier: Carrier,
    family: AddressFamily,
    /// Maximum bytes of a segmented datagram.
    max_segmented_bytes: usize,
    names: Box<[RawAddress]>,
    parts: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    messages: Box<[libc::mmsghdr]>,
    /// Packets in each message of the last fill.
    packets: [u8; TX_PACKETS],
    /// Copies of short packets, each contiguous.
    joined: Box<[u8; JOINED_BYTES]>,
    /// The socket's own priority, which applies to packets without a control message.
    priority: u8,
    /// Whether other rings send through the same socket. Its priority then stays as it is: another ring would
    /// send packets without a control message at a priority that it does not know.
    shared: bool,
    /// The last priority that differed from the socket's, and the number of consecutive packets with it.
    differing: (u8, u8),
}

// SAFETY: the raw pointers inside point into the boxes of this structure or are stale. They are used only by
// methods that have exclusive access and set them first.
unsafe impl Send for TxRing {}

impl TxRing {
    /// Creates the structures for a socket with priority 0. If `shared` is set, other rings send through the
    /// same socket.
    pub(crate) fn new(
        carrier: Carrier,
        family: AddressFamily,
        max_segmented_bytes: usize,
        shared: bool,
    ) -> TxRing {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero bytes are a valid value of the structure: null pointers and zero lengths.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        TxRing {
            carrier,
            family,
            max_segmented_bytes: max_segmented_bytes.min(MAX_SEGMENTED_BYTES),
            names: vec![RawAddress::empty(); TX_PACKETS].into_boxed_slice(),
            parts: vec![part; 2 * TX_PACKETS].into_boxed_slice(),
            controls: vec![Control::empty(); TX_PACKETS].into_boxed_slice(),
            messages: vec![message; TX_PACKETS].into_boxed_slice(),
            packets: [0; TX_PACKETS],
            joined: Box::new([0; JOINED_BYTES]),
            priority: 0,
            shared,
            differing: (0, 0),
        }
    }

    /// Sends a prefix of `packets`, at most [`TX_PACKETS`], and returns its length, at least one. If
    /// `segment` is set, packets that may share a datagram do so. Returns `Ok(None)` if this socket cannot
    /// send to the address of the first packet.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        packets: &[TxPacket<'_>],
        segment: bool,
    ) -> io::Result<Option<SendResult>> {
        if let [packet] = packets {
            self.follow_priority(fd, packet.priority);
            if packet.len() <= JOINED_ALONE_BYTES && packet.priority == self.priority {
                return self.send_joined(fd, packet);
            }
        }
        let messages = self.fill(packets, segment);
        if messages == 0 {
            return Ok(None);
        }
        // SAFETY: the descriptor is open while it is borrowed. The first `messages` headers were just filled
        // with pointers to names, parts and controls, each with its correct length. These lie in boxes that
        // are neither moved nor written until the call returns. The parts point to the packets' bytes, which
        // the kernel only reads.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                messages as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let sent = sent as usize;
        let count = self.packets[..sent].iter().map(|&packets| usize::from(packets)).sum();
        Ok(Some(SendResult { packets: count, messages: sent, all: sent == messages }))
    }

    /// Sends a short packet that has the socket's priority.
    fn send_joined(&mut self, fd: BorrowedFd<'_>, packet: &TxPacket<'_>) -> io::Result<Option<SendResult>> {
        self.packets[0] = 1;
        let Some(name_length) = self.names[0].set(destination(self.carrier, packet), self.family) else {
            return Ok(None);
        };
        let (header, payload) = self.joined[..packet.len()].split_at_mut(packet.header.len());
        header.copy_from_slice(packet.header);
        payload.copy_from_slice(packet.payload);
        // SAFETY: the descriptor is open while it is borrowed. The kernel only reads the packet and the name,
        // within the lengths passed.
        let sent = unsafe {
            call::sendto(
                fd.as_raw_fd(),
                self.joined.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const self.names[0]).cast(),
                name_length,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(SendResult { packets: 1, messages: 1, all: true }))
    }

    /// Sets the priority of a socket of our own to that of consecutive single packets, which then need no
    /// control message.
    fn follow_priority(&mut self, fd: BorrowedFd<'_>, priority: u8) {
        if self.shared || priority == self.priority {
            self.differing.1 = 0;
            return;
        }
        let (before, times) = self.differing;
        self.differing = (priority, if before == priority { times + 1 } else { 1 });
        if self.differing.1 < DIFFERING_MAX {
            return;
        }
        self.differing.1 = 0;
        let (level, name) = match self.family {
            AddressFamily::V4 => (libc::IPPROTO_IP, libc::IP_TOS),
            AddressFamily::V6 => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            // The peer decides which of the socket's two settings applies.
            AddressFamily::Dual => return,
        };
        // If the socket refuses, each packet continues to have a control message.
        if option::set(fd, level, name, libc::c_int::from(dscp_byte(priority))).is_ok() {
            self.priority = priority;
        }
    }

    /// Returns the number of packets in each message of the last fill.
    pub(crate) fn message_packets(&self) -> &[u8] {
        &self.packets
    }

    /// Fills the structures for a prefix of `packets` and returns the number of messages. The prefix ends at
    /// the last packet, where the structures are full, or before a packet whose address this socket cannot
    /// send to.
    fn fill(&mut self, packets: &[TxPacket<'_>], segment: bool) -> usize {
        let (mut next, mut messages, mut free) = (0, 0, &mut self.joined[..]);
        let packets = &packets[..packets.len().min(TX_PACKETS)];
        while next < packets.len() {
            let run = if segment { run_length(&packets[next..], self.max_segmented_bytes) } else { 1 };
            let first = &packets[next];
            let to = destination(self.carrier, first);
            let Some(name_length) = self.names[messages].set(to, self.family) else { break };
            let parts = match join_run(&packets[next..next + run], &mut free) {
                Some(whole) => {
                    self.parts[2 * next] = whole;
                    1
                }
                None => {
                    for (packet, parts) in
                        packets[next..next + run].iter().zip(self.parts[2 * next..].chunks_exact_mut(2))
                    {
                        parts[0] = part(packet.header);
                        parts[1] = part(packet.payload);
                    }
                    2 * run
                }
            };
            let control_length = put_controls(&mut self.controls[messages], first, run, self.priority);
            let message = &mut self.messages[messages].msg_hdr;
            message.msg_name = (&raw mut self.names[messages]).cast();
            message.msg_namelen = name_length;
            message.msg_iov = &raw mut self.parts[2 * next];
            message.msg_iovlen = parts as _;
            message.msg_control = self.controls[messages].bytes.as_mut_ptr().cast();
            message.msg_controllen = control_length as _;
            self.packets[messages] = run as u8;
            next += run;
            messages += 1;
        }
        messages
    }
}

/// The result of a sending system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendResult {
    pub(crate) packets: usize,
    /// Number of datagrams that were sent.
    pub(crate) messages: usize,
    /// Whether the call sent all that it was passed.
    pub(crate) all: bool,
}

/// Copies a run of several short packets to the start of `free`, and removes that part from `free`. Returns
/// `None` if the kernel should gather the packets instead. For short packets, gathering takes longer than
/// copying.
fn join_run(run: &[TxPacket<'_>], free: &mut &mut [u8]) -> Option<libc::iovec> {
    let longest = run[0].len();
    if run.len() < 2 || longest > JOINED_IN_RUN_BYTES || run.len() * longest > free.len() {
        return None;
    }
    // Split these bytes off: the part points into them, so no later borrow of `free` may overlap them.
    let (joined, rest) = mem::take(free).split_at_mut(run.iter().map(TxPacket::len).sum());
    *free = rest;
    let mut end = 0;
    for bytes in run.iter().flat_map(|packet| [packet.header, packet.payload]) {
        joined[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    }
    Some(part(joined))
}

/// Returns the destination address of a packet as it is passed to the socket.
fn destination(carrier: Carrier, packet: &TxPacket<'_>) -> SocketAddr {
    let mut to = packet.to;
    if carrier == Carrier::Ip {
        // An IPv6 raw socket would interpret the port as the protocol number.
        to.set_port(0);
    }
    to
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Returns the number of packets, starting with the first, that may be sent as one datagram, which the kernel
/// or the device segments. They have the same peer, priority and length, except that the last may be shorter;
/// their total length is at most `most_bytes`.
pub(crate) fn run_length(packets: &[TxPacket<'_>], most_bytes: usize) -> usize {
    let first = &packets[0];
    let segment = first.len();
    let mut bytes = segment;
    let mut run = 1;
    for packet in &packets[1..packets.len().min(SEGMENTS_MAX)] {
        let length = packet.len();
        bytes += length;
        if packet.to != first.to
            || packet.priority != first.priority
            || length > segment
            || length == 0
            || bytes > most_bytes
        {
            break;
        }
        run += 1;
        if length < segment {
            break;
        }
    }
    run
}

/// Writes the control messages for a run of packets and returns their length. Packets with the socket's
/// priority need no priority message.
fn put_controls(control: &mut Control, first: &TxPacket<'_>, run: usize, own_priority: u8) -> usize {
    let mut end = 0;
    if first.priority != own_priority {
        let (level, kind) = match first.to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        end = control.put(end, level, kind, &libc::c_int::from(dscp_byte(first.priority)).to_ne_bytes());
    }
    if run > 1 {
        let segment = first.len() as u16;
        end = control.put(end, libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(port: u16, priority: u8, length: usize) -> TxPacket<'static> {
        static BYTES: [u8; 65_536] = [0; 65_536];
        let (header, payload) = BYTES[..length].split_at(length.min(40));
        TxPacket { to: ([127, 0, 0, 1], port).into(), priority, header, payload }
    }

    #[test]
    fn a_run_is_of_one_peer_one_priority_and_one_length() {
        let same = packet(1, 3, 1_000);
        assert_eq!(run_length(&[same, same, same], MAX_SEGMENTED_BYTES), 3);
        assert_eq!(run_length(&[same, same, packet(2, 3, 1_000)], MAX_SEGMENTED_BYTES), 2);
        assert_eq!(run_length(&[same, packet(1, 4, 1_000)], MAX_SEGMENTED_BYTES), 1);
        assert_eq!(run_length(&[same, packet(1, 3, 1_001)], MAX_SEGMENTED_BYTES), 1);
        assert_eq!(run_length(&[same, packet(1, 3, 0)], MAX_SEGMENTED_BYTES), 1);
    }

    #[test]
    fn a_shorter_packet_ends_a_run() {
        let (long, short) = (packet(1, 3, 1_000), packet(1, 3, 40));
        assert_eq!(run_length(&[long, short, short], MAX_SEGMENTED_BYTES), 2);
    }

    #[test]
    fn a_run_is_no_longer_than_asked_for_and_at_least_a_packet() {
        let packets = [packet(1, 3, 1_000); 8];
        let lengths = [1, 1_999, 2_000, 5_500, 8_000].map(|most| run_length(&packets, most));
        assert_eq!(lengths, [1, 1, 2, 5, 8]);
    }

    #[test]
    fn a_run_stays_within_a_datagram_and_the_kernels_segments() {
        assert_eq!(run_length(&[packet(1, 0, 30_000); 5], MAX_SEGMENTED_BYTES), 2);
        assert_eq!(run_length(&[packet(1, 0, 65_507); 2], MAX_SEGMENTED_BYTES), 1);
        assert_eq!(run_length(&[packet(1, 0, 100); 200], MAX_SEGMENTED_BYTES), SEGMENTS_MAX);
    }

    #[test]
    fn a_fill_stops_at_an_address_of_another_family() {
        let mut ring = TxRing::new(Carrier::Udp, AddressFamily::V6, MAX_SEGMENTED_BYTES, false);
        assert_eq!(ring.fill(&[packet(1, 0, 50)], true), 0);
        let mut ring = TxRing::new(Carrier::Udp, AddressFamily::V4, MAX_SEGMENTED_BYTES, false);
        let mut v6 = packet(1, 0, 50);
        v6.to = "[::1]:9".parse().unwrap();
        assert_eq!(ring.fill(&[packet(1, 0, 50), packet(1, 0, 50), v6, packet(1, 0, 50)], false), 2);
    }

    /// The kernel's view of a message: its destination, its bytes, and the types and data of its control
    /// messages.
    type KernelView = (SocketAddr, Vec<u8>, Vec<(libc::c_int, Vec<u8>)>);

    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between C libraries")]
    fn as_the_kernel_reads(message: &libc::msghdr) -> KernelView {
        // SAFETY: `fill` has set this number of parts.
        let parts = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen as usize) };
        let bytes = parts.iter().flat_map(|part| {
            // SAFETY: `fill` has set each of these parts with its length.
            unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) }.to_vec()
        });
        // SAFETY: `fill` has set a name and a control of these lengths.
        let (name, control) =
            unsafe { (*message.msg_name.cast::<RawAddress>(), *message.msg_control.cast::<Control>()) };
        let controls = control.messages(message.msg_controllen as usize);
        let controls = controls.map(|(_, kind, data)| (kind, data.to_vec())).collect();
        (name.get(message.msg_namelen).unwrap(), bytes.collect(), controls)
    }

    #[test]
    fn the_kernel_finds_every_packet_of_a_fill_whole() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(10_000).collect();
        let mut start = 0;
        // Runs that are copied together, a run of packets too long to copy, and a lone packet with the
        // socket's priority.
        let packets: Vec<_> =
            [(1, 3, 100, 3), (2, 3, 200, 2), (3, 4, 1_000, 2), (4, 0, 50, 1), (5, 5, 30, 2)]
                .into_iter()
                .flat_map(|(port, priority, length, count)| {
                    std::iter::repeat_n((port, priority, length), count)
                })
                .map(|(port, priority, length)| {
                    start += length;
                    let (header, payload) = bytes[start - length..start].split_at(40.min(length));
                    TxPacket { to: ([127, 0, 0, 1], port).into(), priority, header, payload }
                })
                .collect();
        let mut ring = TxRing::new(Carrier::Udp, AddressFamily::V4, MAX_SEGMENTED_BYTES, false);
        assert_eq!(ring.fill(&packets, true), 5);
        let read: Vec<_> =
            ring.messages[..5].iter().map(|message| as_the_kernel_reads(&message.msg_hdr)).collect();
        let sent: Vec<u8> = read.iter().flat_map(|(_, bytes, _)| bytes.clone()).collect();
        assert!(sent == bytes[..start]);
        assert!(read.iter().map(|(to, ..)| to.port()).eq(1..=5));
        let controls: Vec<usize> = read.iter().map(|(_, _, controls)| controls.len()).collect();
        assert_eq!(controls, [2, 2, 2, 0, 2]);
        assert_eq!(read[2].2[1], (libc::UDP_SEGMENT, 1_000_u16.to_ne_bytes().to_vec()));
    }
}
