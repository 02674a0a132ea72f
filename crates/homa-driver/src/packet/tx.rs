//! Sending: several frames in a system call, each gathered from its headers, the Homa header and the payload.
//!
//! A transmit ring in mapped memory (PACKET_TX_RING) was measured and rejected: a round trip took a sixth longer, and of bursts
//! of 32 packets a third fewer went through. It takes the same system call, and a buffer of pages in place of one piece.
//!
//! A transmit ring in mapped memory was measured and rejected: it takes the same system call, and a copy by us in place of the
//! kernel's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::Socket;

use crate::driver::{DriverStats, TxPacket};
use crate::link::device::{Device, NoFrame};
use crate::link::frame::HEADERS_MAX;

/// Frames for one system call.
const TX_FRAMES: usize = 64;
/// Parts of a frame.
const PARTS: usize = 3;
/// Headers and packets no longer than this together are joined: the kernel takes longer over two parts than we to copy so few
/// bytes, a fiftieth of a round trip.
const JOINED_BYTES: usize = 256;
const FRONT_BYTES: usize = HEADERS_MAX + JOINED_BYTES;

/// The sending socket, and the kernel's structures for one `sendmmsg`. The pointers in them mean something only within
/// [`Tx::send`].
pub(super) struct Tx {
    socket: Socket,
    /// What each frame begins with.
    fronts: Box<[[u8; FRONT_BYTES]]>,
    parts: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers inside point into the boxes beside them or are stale, and are used only by methods that hold the
// structure exclusively and have set them before.
unsafe impl Send for Tx {}

/// What a refusal of the kernel means.
enum Verdict {
    Again,
    /// There is no room now.
    Full,
    /// This packet cannot be sent.
    Packet(NoFrame),
    /// The device is down or gone: which of the two is to be asked.
    Device,
    Denied,
    Other,
    Broken,
}

fn verdict(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        Some(libc::EINTR) => Verdict::Again,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Verdict::Full,
        Some(libc::EMSGSIZE) => Verdict::Packet(NoFrame::TooBig),
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Verdict::Device,
        Some(libc::EPERM | libc::EACCES) => Verdict::Denied,
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => Verdict::Broken,
        Some(_) => Verdict::Other,
    }
}

impl Tx {
    /// For a packet socket that is bound to its device and receives nothing.
    pub(super) fn new(socket: Socket) -> Tx {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero bytes are a value of the structure: null pointers and zero lengths.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Tx {
            socket,
            fronts: vec![[0; FRONT_BYTES]; TX_FRAMES].into_boxed_slice(),
            parts: vec![part; PARTS * TX_FRAMES].into_boxed_slice(),
            messages: vec![message; TX_FRAMES].into_boxed_slice(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// As [`Driver::send`](crate::Driver::send).
    pub(super) fn send(
        &mut self,
        device: &mut Device,
        packets: &[TxPacket<'_>],
        stats: &mut DriverStats,
        now_ms: u64,
    ) -> io::Result<usize> {
        let mut taken = 0;
        while taken < packets.len() {
            let (frames, ended) = self.fill(device, &packets[taken..], now_ms);
            if frames > 0 {
                match self.send_filled(frames, stats) {
                    Ok(sent) => {
                        stats.packets_out += sent as u64;
                        stats.bytes_out += packets[taken..taken + sent]
                            .iter()
                            .map(|packet| packet.len() as u64)
                            .sum::<u64>();
                        taken += sent;
                        if sent < frames {
                            continue;
                        }
                    }
                    Err(error) => match verdict(&error) {
                        Verdict::Again => continue,
                        Verdict::Full => {
                            stats.would_block += 1;
                            break;
                        }
                        Verdict::Broken if taken == 0 => return Err(error),
                        Verdict::Broken => break,
                        refusal => {
                            // The device has changed. What was taken must be told now, and whether it is gone, later.
                            if let (Err(gone), 0) = (device.look(now_ms, true), taken) {
                                return Err(gone);
                            }
                            match refusal {
                                Verdict::Packet(why) => why.count(&mut stats.send_errors),
                                Verdict::Device => stats.send_errors.unreachable += 1,
                                Verdict::Denied => stats.send_errors.denied += 1,
                                _ => stats.send_errors.other += 1,
                            }
                            taken += 1;
                            continue;
                        }
                    },
                }
            }
            if let Some(why) = ended {
                why.count(&mut stats.send_errors);
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Fills the structures for a prefix of `packets` and returns how many, and why not the one behind them where that has no
    /// frame.
    fn fill(
        &mut self,
        device: &mut Device,
        packets: &[TxPacket<'_>],
        now_ms: u64,
    ) -> (usize, Option<NoFrame>) {
        let packets = &packets[..packets.len().min(TX_FRAMES)];
        for (i, packet) in packets.iter().enumerate() {
            let headers = match device.headers(packet, now_ms) {
                Ok(headers) => headers,
                Err(why) => return (i, Some(why)),
            };
            let (mut header, mut payload) = (packet.header, packet.payload);
            let front = &mut self.fronts[i];
            let mut length = headers.write(packet, front.first_chunk_mut().expect("longer than the headers"));
            if packet.len() <= JOINED_BYTES {
                for bytes in [&mut header, &mut payload] {
                    front[length..length + bytes.len()].copy_from_slice(bytes);
                    length += bytes.len();
                    *bytes = &[];
                }
            }
            let parts = &mut self.parts[PARTS * i..PARTS * (i + 1)];
            for (to, bytes) in parts.iter_mut().zip([&front[..length], header, payload]) {
                *to = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            }
            let message = &mut self.messages[i].msg_hdr;
            message.msg_iov = parts.as_mut_ptr();
            message.msg_iovlen = if header.is_empty() && payload.is_empty() { 1 } else { PARTS as _ };
        }
        (packets.len(), None)
    }

    /// Sends the first `frames` and returns how many the kernel took, at least one.
    fn send_filled(&mut self, frames: usize, stats: &mut DriverStats) -> io::Result<usize> {
        stats.send_calls += 1;
        // SAFETY: the descriptor is open. The first `frames` headers have pointers to parts that were just filled, in boxes
        // that are neither moved nor written until the call returns, without names and controls; the parts point to fronts in
        // such a box and to the packets' bytes, which the kernel only reads.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                frames as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
