//! Receives several datagrams per system call into a burst's memory.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::RawAddress;
use super::call;
use super::control::{Control, software_time_ns};
use super::gro::{self, GroLayout};
use super::option;
use crate::burst::{BURST_PACKETS, PACKET_BUFFER_BYTES, RxBurst};
use crate::driver::IN_PLACE_HEADER_BYTES;
use crate::l2::interface;

/// The kernel's structures for one `recvmmsg`. Their pointers are valid only within [`RxRing::receive`].
pub(crate) struct RxRing {
    names: Box<[RawAddress]>,
    parts: Box<[libc::iovec]>,
    controls: Box<[Control<CONTROL_BYTES>]>,
    messages: Box<[libc::mmsghdr]>,
    /// Number of datagrams to request next, at most [`BURST_PACKETS`].
    count: usize,
    /// Predicts from recent calls whether to request several datagrams.
    streak: BatchPredictor,
    /// Whether each datagram begins with its IPv4 header, as on IPv4 raw sockets.
    ip_header: bool,
    /// Whether the kernel reports receive times.
    timed: bool,
    /// The socket's last reported drop count, modulo 2^32.
    queue_drops: u32,
}

/// The SO_TIMESTAMPING flags for receive times.
const TIMESTAMPING: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;

// SAFETY: the raw pointers inside point into the boxes of this structure or to a burst, or are stale. They
// are used only by the receiving methods, which have exclusive access and set them first.
unsafe impl Send for RxRing {}

/// The result of a receive call, besides the packets in the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiveResult {
    pub(crate) bytes: u64,
    /// Number of datagrams that did not fit into their buffer.
    pub(crate) truncated: u64,
    /// Number of merged packets that could not be split.
    pub(crate) undivided: u64,
    /// Packets that the socket has dropped for lack of room, since the kernel last reported them.
    pub(crate) queue_drops: u64,
}

/// The kernel's metadata for a datagram.
#[derive(Clone, Copy, Debug)]
struct AncillaryData {
    /// Bytes of each packet in the datagram except the last, which may be shorter.
    segment: usize,
    /// Receive time; 0 if not reported.
    time_ns: u64,
    /// The byte of the IP header that contains the priority; `None` if not reported.
    dscp_byte: Option<u8>,
    /// Index of the receiving device; `None` if not reported.
    device: Option<u32>,
}

/// Buffer size for the kernel's metadata of a datagram. If it is too small, the kernel omits the last item,
/// the priority.
const CONTROL_BYTES: usize = 200;

const _: () = {
    // SAFETY: this only computes lengths.
    let (integer, times, device) = unsafe {
        (
            libc::CMSG_SPACE(size_of::<libc::c_int>() as u32),
            libc::CMSG_SPACE(3 * size_of::<libc::timespec>() as u32),
            libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32),
        )
    };
    // Four integers: SO_RXQ_OVFL, UDP_GRO, IP_TOS and IPV6_TCLASS (a socket of one IP version receives only
    // one of the last two). Three times for SO_TIMESTAMPING. The receiving device, whose IPv6 form is the
    // longer one.
    assert!(4 * integer + times + device <= CONTROL_BYTES as u32, "the kernel's messages have room");
};

/// Approximate limit on the payload of one burst. Packets that follow a burst, perhaps of a short message,
/// wait until all of it is copied and processed. 32 datagrams of 64 KB would be 2 MB, or about a millisecond.
const BURST_BYTES: usize = 256 << 10;

/// Number of consecutive successful calls before a call requests several datagrams. Compared with requesting
/// one, requesting several costs 200 ns more if one datagram is queued, and 70 ns more if none is; with 16
/// queued, it saves 130 ns per datagram (Linux 6.18). A single outstanding RPC between polling hosts never
/// reaches this number, since an empty call precedes each of its packets.
const STREAK: u32 = 2;

/// Upper limit to which [`STREAK`] is raised by calls that requested several datagrams and received one. A
/// caller that sleeps until a packet arrives never makes an empty call, so a single outstanding RPC looks
/// like a streak. In addition, the headers of a burst are not in the cache after a sleep.
const STREAK_MAX: u32 = 64;

/// Minimum length of payload that is left where it was received. Copying a shorter payload behind its header
/// takes less time than handling two pieces. Control packets are never this long.
const LEAST_IN_PLACE: usize = 4_096;

/// Minimum number of datagrams to request per call, once several are requested.
const LEAST_COUNT: usize = 4;

/// Returns the number of datagrams to request after a call returned `datagrams` with `bytes` in total: as
/// many datagrams of that average size as [`BURST_BYTES`] allows.
fn next_count(datagrams: usize, bytes: usize) -> usize {
    (BURST_BYTES * datagrams.max(1) / bytes.max(1)).clamp(LEAST_COUNT, BURST_PACKETS)
}

/// Predicts whether several datagrams are likely to be queued at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchPredictor {
    /// Consecutive calls that received something.
    calls: u32,
    /// Number of consecutive successful calls after which several datagrams are requested.
    long: u32,
}

impl Default for BatchPredictor {
    fn default() -> BatchPredictor {
        BatchPredictor { calls: 0, long: STREAK }
    }
}

impl BatchPredictor {
    fn is_long(self) -> bool {
        self.calls >= self.long
    }

    /// Records that a call returned this many datagrams, or 0 if it failed. `several` is whether the call
    /// requested more than one.
    fn note(&mut self, several: bool, datagrams: usize) {
        self.calls = match (several, datagrams) {
            (_, 0) => 0,
            (true, 1) => {
                self.long = (2 * self.long).min(STREAK_MAX);
                0
            }
            (true, _) => {
                self.long = STREAK;
                self.calls
            }
            (false, _) => self.calls + 1,
        };
    }
}

impl RxRing {
    pub(crate) fn new(ip_header: bool) -> RxRing {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero bytes are a valid value of the structure: null pointers and zero lengths.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        RxRing {
            names: vec![RawAddress::empty(); BURST_PACKETS].into_boxed_slice(),
            parts: vec![part; BURST_PACKETS].into_boxed_slice(),
            controls: vec![Control::empty(); BURST_PACKETS].into_boxed_slice(),
            messages: vec![message; BURST_PACKETS].into_boxed_slice(),
            count: BURST_PACKETS,
            streak: BatchPredictor::default(),
            ip_header,
            timed: false,
            queue_drops: 0,
        }
    }

    /// Adds received packets to an empty burst.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, burst: &mut RxBurst) -> io::Result<ReceiveResult> {
        let several = burst.max_packets() > 1 && self.streak.is_long();
        let result = if several { self.receive_burst(fd, burst) } else { self.receive_one(fd, burst) };
        self.streak.note(several, *result.as_ref().unwrap_or(&0));
        Ok(self.take(fd, result?, burst))
    }

    /// Points header `i` to the buffer for datagram `i`.
    fn prepare(&mut self, i: usize, buffer: &mut [u8]) {
        self.parts[i] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let message = &mut self.messages[i].msg_hdr;
        message.msg_name = (&raw mut self.names[i]).cast();
        message.msg_namelen = RawAddress::BYTES;
        message.msg_iov = &raw mut self.parts[i];
        message.msg_iovlen = 1;
        message.msg_control = self.controls[i].bytes.as_mut_ptr().cast();
        message.msg_controllen = self.controls[i].bytes.len() as _;
    }

    fn receive_one(&mut self, fd: BorrowedFd<'_>, burst: &mut RxBurst) -> io::Result<usize> {
        self.prepare(0, &mut burst.memory_mut()[..PACKET_BUFFER_BYTES]);
        let message = &raw mut self.messages[0].msg_hdr;
        // SAFETY: the descriptor is open while it is borrowed. The header was just filled with pointers to
        // name, part and control, each with its correct length. These lie in boxes that are neither moved nor
        // accessed until the call returns. The part points into the burst, which is borrowed exclusively.
        let length = unsafe { call::recvmsg(fd.as_raw_fd(), message, libc::MSG_DONTWAIT) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        self.messages[0].msg_len = length as libc::c_uint;
        Ok(1)
    }

    fn receive_burst(&mut self, fd: BorrowedFd<'_>, burst: &mut RxBurst) -> io::Result<usize> {
        let count = self.count.min(burst.max_packets());
        for (i, buffer) in burst.memory_mut().chunks_exact_mut(PACKET_BUFFER_BYTES).take(count).enumerate() {
            self.prepare(i, buffer);
        }
        // SAFETY: the descriptor is open while it is borrowed. The burst's memory has BURST_PACKETS buffers,
        // and `count` is at most that. `count` headers were just filled with pointers to names, parts and
        // controls, each with its correct length. These lie in boxes that are neither moved nor accessed
        // until the call returns. The parts point into the burst, which is borrowed exclusively.
        let result = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let datagrams = result as usize;
        let bytes = self.messages[..datagrams].iter().map(|message| message.msg_len as usize).sum();
        self.count = next_count(datagrams, bytes);
        Ok(datagrams)
    }

    /// Implements [`Driver::receive_in_place`](crate::Driver::receive_in_place). Returns how many bytes of
    /// `place` are the payload of the only packet in the burst; 0 if the burst contains everything received.
    pub(crate) fn receive_in_place(
        &mut self,
        fd: BorrowedFd<'_>,
        burst: &mut RxBurst,
        place: &mut [MaybeUninit<u8>],
    ) -> io::Result<(ReceiveResult, usize)> {
        let room = place.len().min(PACKET_BUFFER_BYTES - IN_PLACE_HEADER_BYTES);
        let place = &mut place[..room];
        let memory = &mut burst.memory_mut()[..PACKET_BUFFER_BYTES];
        self.prepare(0, memory);
        let (header, rest) = memory.split_at_mut(IN_PLACE_HEADER_BYTES);
        let beyond = &mut rest[room..];
        let part = |start: *mut u8, length| libc::iovec { iov_base: start.cast(), iov_len: length };
        self.parts[0] = part(header.as_mut_ptr(), header.len());
        self.parts[1] = part(place.as_mut_ptr().cast(), room);
        self.parts[2] = part(beyond.as_mut_ptr(), beyond.len());
        let message = &mut self.messages[0].msg_hdr;
        message.msg_iovlen = 3;
        // SAFETY: as in `receive_one`. The second part is `place`, with its correct length; it is borrowed
        // exclusively, and the kernel only writes to it.
        let length = unsafe { libc::recvmsg(fd.as_raw_fd(), message, libc::MSG_DONTWAIT) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = length as usize;
        self.messages[0].msg_len = length as libc::c_uint;
        let payload = length.saturating_sub(IN_PLACE_HEADER_BYTES);
        let mut received = ReceiveResult::default();
        let said = self.read_controls(0, &mut received);
        let from = self.names[0].get(self.messages[0].msg_hdr.msg_namelen);
        let whole = self.messages[0].msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let (Some(from), true) = (from, whole) else {
            received.truncated += u64::from(!whole);
            return Ok((received, 0));
        };
        received.bytes += length as u64;
        if said.segment >= length && (LEAST_IN_PLACE..=room).contains(&payload) {
            burst.note_datagram(from, 0, IN_PLACE_HEADER_BYTES, IN_PLACE_HEADER_BYTES);
            self.note_said(burst, 0, &said);
            return Ok((received, payload));
        }
        let strayed = payload.min(room);
        // SAFETY: the kernel has filled the parts in order: the header, then `strayed` bytes of `place`.
        let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr().cast::<u8>(), strayed) };
        burst.memory_mut()[IN_PLACE_HEADER_BYTES..IN_PLACE_HEADER_BYTES + strayed].copy_from_slice(bytes);
        burst.note_datagram(from, 0, length, said.segment);
        self.note_said(burst, 0, &said);
        Ok((received, 0))
    }

    /// Enables receive times on the socket. From then on, packets have them.
    pub(crate) fn enable_times(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        option::set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, TIMESTAMPING as libc::c_int)?;
        self.timed = true;
        Ok(())
    }

    /// The SO_TIMESTAMPING flags that this ring has set on the socket.
    pub(crate) fn timestamping(&self) -> libc::c_uint {
        if self.timed { TIMESTAMPING } else { 0 }
    }

    /// Records the metadata of the packets from this index on.
    fn note_said(&self, burst: &mut RxBurst, first: usize, said: &AncillaryData) {
        if self.timed {
            burst.note_time(said.time_ns);
        }
        if let Some(byte) = said.dscp_byte {
            burst.note_dscp_byte(first, byte);
        }
    }

    /// Reads the kernel's metadata for datagram `i`.
    fn read_controls(&mut self, i: usize, received: &mut ReceiveResult) -> AncillaryData {
        let message = &self.messages[i];
        let mut said =
            AncillaryData { segment: message.msg_len as usize, time_ns: 0, dscp_byte: None, device: None };
        #[allow(clippy::unnecessary_cast, reason = "the field's type differs between C libraries")]
        let control_length = message.msg_hdr.msg_controllen as usize;
        for (level, kind, data) in self.controls[i].messages(control_length) {
            if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
                said.time_ns = software_time_ns(data);
                continue;
            }
            if let Some(index) = device_index(level, kind, data) {
                said.device = Some(index);
                continue;
            }
            if (level, kind) == (libc::IPPROTO_IP, libc::IP_TOS) {
                said.dscp_byte = data.first().copied();
                continue;
            }
            let Some(Ok(number)) = data.get(..4).map(<[u8; 4]>::try_from) else { continue };
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    let drops = u32::from_ne_bytes(number);
                    received.queue_drops += u64::from(drops.wrapping_sub(self.queue_drops));
                    self.queue_drops = drops;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => said.segment = i32::from_ne_bytes(number).max(1) as usize,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    said.dscp_byte = Some(i32::from_ne_bytes(number) as u8)
                }
                _ => (),
            }
        }
        said
    }

    fn take(&mut self, fd: BorrowedFd<'_>, datagrams: usize, burst: &mut RxBurst) -> ReceiveResult {
        let mut received = ReceiveResult::default();
        for i in 0..datagrams {
            let mut said = self.read_controls(i, &mut received);
            let message = &self.messages[i];
            let length = message.msg_len as usize;
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                received.truncated += 1;
                continue;
            }
            let Some(from) = self.names[i].get(message.msg_hdr.msg_namelen) else { continue };
            let start = i * PACKET_BUFFER_BYTES;
            let mut skip = 0;
            if self.ip_header {
                let datagram = &burst.memory_mut()[start..start + length];
                (skip, said.dscp_byte) = (ipv4_header_bytes(datagram), datagram.get(1).copied());
            }
            let (start, length, room) = (start + skip, length - skip, PACKET_BUFFER_BYTES - skip);
            let memory = &mut burst.memory_mut()[start..start + room];
            let Some((segment, end)) = divided(fd, memory, (length, skip), &said) else {
                received.undivided += 1;
                continue;
            };
            let first = burst.len();
            burst.note_datagram(from, start, end, segment);
            self.note_said(burst, first, &said);
            received.bytes += length as u64;
        }
        received
    }
}

/// Returns the device in an IP_PKTINFO or IPV6_RECVPKTINFO control message.
fn device_index(level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Option<u32> {
    // The device index comes first for IPv4, and after an address for IPv6.
    let at = match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => size_of::<libc::in6_addr>(),
        _ => return None,
    };
    let bytes = data.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Determines how to split a datagram if it is a merged packet. The datagram is the first `length` bytes of
/// `memory`, and `ip_header` is the length of the IP header before it. Returns the length of each packet
/// except the last, and the total length. `None` if the datagram is merged and cannot be split.
fn divided(
    fd: BorrowedFd<'_>,
    memory: &mut [u8],
    (length, ip_header): (usize, usize),
    said: &AncillaryData,
) -> Option<(usize, usize)> {
    let Some(device) = said.device else { return Some((said.segment, length)) };
    // IPv6 raw sockets do not receive the IP header.
    let ip_header = if ip_header == 0 { 40 } else { ip_header };
    let longest = || interface::state(fd, device).ok()?.mtu.checked_sub(ip_header);
    match gro::layout_of(&memory[..length], longest) {
        GroLayout::No => Some((said.segment, length)),
        GroLayout::Every(segment) => gro::divide(memory, length, segment),
        GroLayout::Unknown => None,
    }
}

/// Returns the length of the IPv4 header at the start of a datagram, including options, but at most the
/// length of the datagram (WIRE-19).
fn ipv4_header_bytes(datagram: &[u8]) -> usize {
    let words = datagram.first().map_or(0, |byte| usize::from(byte & 15));
    (4 * words).min(datagram.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_header_is_as_long_as_it_says_and_no_longer_than_the_datagram() {
        // WIRE-19
        let datagram = |first: u8, length: usize| [&[first][..], &[0; 99]].concat()[..length].to_vec();
        assert_eq!(ipv4_header_bytes(&datagram(0x45, 60)), 20);
        assert_eq!(ipv4_header_bytes(&datagram(0x4f, 99)), 60);
        assert_eq!(ipv4_header_bytes(&datagram(0x4f, 30)), 30);
        assert_eq!(ipv4_header_bytes(&[]), 0);
    }

    #[test]
    fn a_lone_packet_is_seldom_asked_for_as_several_however_many_follow_one_another() {
        let mut streak = BatchPredictor::default();
        let several = (0..1_000).filter(|_| {
            let several = streak.is_long();
            streak.note(several, 1);
            several
        });
        assert!(several.count() < 30);
        streak.note(true, 2);
        (0..STREAK).for_each(|_| streak.note(false, 1));
        assert!(streak.is_long(), "where two came together, more are looked for soon");
        streak.note(true, 32);
        assert!(streak.is_long());
        streak.note(true, 0);
        assert!(!streak.is_long());
    }

    #[test]
    fn a_burst_has_as_many_datagrams_as_its_bytes_allow() {
        assert_eq!(next_count(32, 3_200), BURST_PACKETS);
        assert_eq!(next_count(1, 100), BURST_PACKETS);
        assert_eq!(next_count(16, 16 * 16_000), 16);
        assert_eq!(next_count(32, 32 * 65_000), LEAST_COUNT);
        assert_eq!(next_count(0, 0), BURST_PACKETS);
    }
}
