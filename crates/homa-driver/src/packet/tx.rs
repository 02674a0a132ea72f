//! Sends several frames per system call. A run of packets may share one frame, which the kernel segments
//! late.
//!
//! A header that describes the work left to the kernel (PACKET_VNET_HDR) precedes each frame. A frame that
//! contains several UDP datagrams is segmented by the device or just above it. If the other end of a veth
//! accepts the frame whole, it is never segmented. All packets in a frame share most of its cost. In the same
//! way, the UDP checksum is left to the kernel, which computes it or has the device compute it.
//!
//! A transmit ring in mapped memory (PACKET_TX_RING) was measured and rejected: a round trip took a sixth
//! longer, and throughput in bursts of 32 packets was a third lower. It needs the same system call, and its
//! packets become kernel buffers of several pages instead of one piece.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::Socket;

use super::offload::{Offload, VNET_BYTES};
use crate::carrier::Carrier;
use crate::driver::{DriverStats, SentPacket, TxPacket};
use crate::l2::device::{Device, FramingError};
use crate::l2::frame::HEADERS_MAX;
use crate::socket::{MAX_SEGMENTED_BYTES, SentTimes, run_length};

/// Maximum number of packets considered for one system call.
const TX_PACKETS: usize = 64;
/// Maximum number of bytes that we put before a packet.
const FRONT_BYTES: usize = VNET_BYTES + HEADERS_MAX;
/// Packets up to this length are copied to just after their headers. The kernel takes longer to handle
/// another part than the copy takes.
const JOINED_BYTES: usize = 512;
/// A lone packet is copied up to this length, since a contiguous frame needs no structure that lists its
/// parts.
const JOINED_ALONE_BYTES: usize = 2_048;
const AREA_BYTES: usize = TX_PACKETS * (FRONT_BYTES + JOINED_BYTES) + JOINED_ALONE_BYTES;
/// One header part per frame, plus header and payload of each packet.
const PARTS: usize = 3 * TX_PACKETS;

/// The sending socket, and the kernel's structures for one system call. Their pointers are valid only within
/// [`Tx::send`].
pub(super) struct Tx {
    socket: Socket,
    /// Whether runs of packets may share a frame.
    segment: bool,
    /// The leading bytes of all frames, one after another.
    area: Box<[u8; AREA_BYTES]>,
    parts: Box<[libc::iovec; PARTS]>,
    messages: Box<[libc::mmsghdr; TX_PACKETS]>,
    /// Number of packets in each frame.
    packets: [u8; TX_PACKETS],
    times: SentTimes,
}

// SAFETY: the raw pointers inside point into the boxes of this structure or are stale. They are used only by
// methods that have exclusive access and set them first.
unsafe impl Send for Tx {}

/// The result of [`Tx::fill`].
struct FilledRun {
    frames: usize,
    /// Why no frame was created for the packet after these frames.
    ended: Option<FramingError>,
}

/// Meaning of an error returned by the kernel.
enum SendRefusal {
    Again,
    /// There is currently no room.
    Full,
    /// The kernel does not support the requested processing of the frame.
    Foreign,
    /// This packet cannot be sent.
    Packet(FramingError),
    /// The device is down or gone; the driver must check which.
    Device,
    Denied,
    Other,
    Broken,
}

fn verdict(error: &io::Error) -> SendRefusal {
    match error.raw_os_error() {
        Some(libc::EINTR) => SendRefusal::Again,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => SendRefusal::Full,
        Some(libc::EINVAL) => SendRefusal::Foreign,
        Some(libc::EMSGSIZE) => SendRefusal::Packet(FramingError::TooBig),
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => SendRefusal::Device,
        Some(libc::EPERM | libc::EACCES) => SendRefusal::Denied,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => SendRefusal::Broken,
        Some(_) => SendRefusal::Other,
    }
}

impl Tx {
    /// Prepares for sending through `socket`, a packet socket with PACKET_VNET_HDR that is bound to its
    /// device and receives nothing. `segment` is whether several packets may share a frame.
    pub(super) fn new(socket: Socket, segment: bool) -> Tx {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero bytes are a valid value of the structure: null pointers and zero lengths.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        Tx {
            socket,
            segment,
            area: Box::new([0; AREA_BYTES]),
            parts: Box::new([part; PARTS]),
            messages: Box::new([message; TX_PACKETS]),
            packets: [0; TX_PACKETS],
            times: SentTimes::default(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Implements [`Driver::stamp_sent`](crate::Driver::stamp_sent).
    pub(super) fn stamp_sent(&mut self) -> bool {
        self.times.enable(self.socket.as_fd(), 0).is_ok()
    }

    /// Implements [`Driver::poll_sent`](crate::Driver::poll_sent).
    pub(super) fn poll_sent(&mut self) -> Option<SentPacket> {
        self.times.read_reports_if_due(self.socket.as_fd());
        self.times.next()
    }

    /// Implements [`Driver::send`](crate::Driver::send).
    pub(super) fn send(
        &mut self,
        device: &mut Device,
        packets: &[TxPacket<'_>],
        stats: &mut DriverStats,
        now_ms: u64,
    ) -> io::Result<usize> {
        let mut taken = 0;
        while taken < packets.len() {
            let filled = self.fill(device, &packets[taken..], now_ms);
            if filled.frames > 0 {
                self.times.before_send(self.socket.as_fd());
                let result = self.send_filled(filled.frames, stats);
                if !result.as_ref().is_ok_and(|&sent| sent == filled.frames) {
                    self.times.failed();
                }
                match result {
                    Ok(sent) => {
                        self.times.sent(&packets[taken..], &self.packets[..sent]);
                        let count: usize = self.packets[..sent].iter().map(|&count| usize::from(count)).sum();
                        let gone = &packets[taken..taken + count];
                        stats.packets_out += count as u64;
                        stats.bytes_out += gone.iter().map(|packet| packet.len() as u64).sum::<u64>();
                        taken += count;
                        if sent < filled.frames {
                            continue;
                        }
                    }
                    Err(error) => match verdict(&error) {
                        SendRefusal::Again => continue,
                        SendRefusal::Full => {
                            stats.would_block += 1;
                            break;
                        }
                        SendRefusal::Broken if taken == 0 => return Err(error),
                        SendRefusal::Broken => break,
                        // Linux before 6.2 does not support frames that contain several datagrams.
                        SendRefusal::Foreign if self.packets[0] > 1 => {
                            self.segment = false;
                            continue;
                        }
                        refusal => {
                            // The device has changed. Return the number of accepted packets now; the next
                            // call reports whether the device is gone.
                            if let (Err(gone), 0) = (device.refresh(now_ms, true), taken) {
                                return Err(gone);
                            }
                            for _ in 0..self.packets[0] {
                                match refusal {
                                    SendRefusal::Packet(why) => why.count(&mut stats.send_errors),
                                    SendRefusal::Device => stats.send_errors.unreachable += 1,
                                    SendRefusal::Denied => stats.send_errors.denied += 1,
                                    _ => stats.send_errors.other += 1,
                                }
                            }
                            taken += usize::from(self.packets[0]);
                            continue;
                        }
                    },
                }
            }
            if let Some(why) = filled.ended {
                why.count(&mut stats.send_errors);
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Fills the structures for the frames of a prefix of `packets`.
    fn fill(&mut self, device: &mut Device, packets: &[TxPacket<'_>], now_ms: u64) -> FilledRun {
        let packets = &packets[..packets.len().min(TX_PACKETS)];
        let joined_bytes = if packets.len() == 1 { JOINED_ALONE_BYTES } else { JOINED_BYTES };
        let segment = self.segment && device.carrier() == Carrier::Udp;
        let (mut next, mut frames, mut part) = (0, 0, 0);
        let mut free = &mut self.area[..];
        while let Some(first) = packets.get(next) {
            let run = if segment { run_length(&packets[next..], MAX_SEGMENTED_BYTES) } else { 1 };
            if run > 1 && first.len() > JOINED_BYTES {
                // The kernel checks a lone packet against the device's MTU, but not the packets of a run. If
                // the device is gone, the lookup below reports that.
                let _ = device.refresh(now_ms, true);
            }
            let headers = match device.headers(first, now_ms) {
                Ok(headers) => headers,
                Err(why) => return FilledRun { frames, ended: Some(why) },
            };
            let run = &packets[next..next + run];
            let bytes = run.iter().map(TxPacket::len).sum();
            let area = mem::take(&mut free);
            let room = area[VNET_BYTES..].first_chunk_mut().expect("room for all fronts");
            let length = headers.write_unsummed(first.priority, bytes, room);
            let offload = Offload {
                segment: (run.len() > 1).then_some(first.len()),
                partial: (device.carrier() == Carrier::Udp).then_some(length),
            };
            area[..VNET_BYTES].copy_from_slice(&offload.bytes());
            let mut end = VNET_BYTES + length;
            let first_part = part;
            part += 1;
            if first.len() <= joined_bytes {
                for bytes in run.iter().flat_map(|packet| [packet.header, packet.payload]) {
                    area[end..end + bytes.len()].copy_from_slice(bytes);
                    end += bytes.len();
                }
            } else {
                for bytes in run.iter().flat_map(|packet| [packet.header, packet.payload]) {
                    self.parts[part] = part_of(bytes);
                    part += 1;
                }
            }
            // Split the part off, so that no later borrow of the rest includes its bytes.
            let (piece, rest) = area.split_at_mut(end);
            free = rest;
            self.parts[first_part] = part_of(piece);
            let message = &mut self.messages[frames].msg_hdr;
            message.msg_iov = &raw mut self.parts[first_part];
            message.msg_iovlen = (part - first_part) as _;
            self.packets[frames] = run.len() as u8;
            next += run.len();
            frames += 1;
        }
        FilledRun { frames, ended: None }
    }

    /// Sends the first `frames` frames and returns how many the kernel accepted, at least one.
    fn send_filled(&mut self, frames: usize, stats: &mut DriverStats) -> io::Result<usize> {
        stats.send_calls += 1;
        let fd = self.socket.as_raw_fd();
        if frames == 1 && self.messages[0].msg_hdr.msg_iovlen == 1 {
            let piece = self.parts[0];
            // SAFETY: the descriptor is open, and the kernel reads the part, which `fill` has just pointed
            // into the area.
            let sent = unsafe { libc::send(fd, piece.iov_base, piece.iov_len, libc::MSG_DONTWAIT) };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) };
        }
        // SAFETY: the descriptor is open. The first `frames` headers point to parts that were just filled,
        // and have no names or controls. The parts lie in boxes that are neither moved nor written until the
        // call returns. They point to the area in such a box and to the packets' bytes, which the kernel only
        // reads.
        let sent = unsafe {
            libc::sendmmsg(fd, self.messages.as_mut_ptr(), frames as libc::c_uint, libc::MSG_DONTWAIT)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

fn part_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
