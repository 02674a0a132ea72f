//! Frames of a device through packet sockets (AF_PACKET). Frames are received in a ring, copied from it to
//! slots, and sent in batches.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use homa_bpf::classic::{self, DROP_ALL, Purpose};
use socket2::{Domain, Socket, Type};

use super::slots::HEADER_BYTES;
use super::{Frame, FrameStats, FramesError, Slots};
use crate::l2::interface::NamedInterface;
use crate::packet::ring::{Layout, Ring};
use crate::packet::{bind, new_drops};
use crate::socket::option;

/// Maximum number of frames queued for sending.
pub(super) const SEND_FRAMES: usize = 512;

/// Maximum number of frames passed to the kernel in one call.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct RingPort {
    receiving: Socket,
    ring: Ring,
    sending: Socket,
    waiting: VecDeque<Frame>,
    longest: usize,
    stats: FrameStats,
    /// Frames dropped for lack of room. Accumulated here because reading the kernel's count resets it.
    drops: std::cell::Cell<u64>,
}

impl RingPort {
    pub(super) fn open(device: &NamedInterface, receive_frames: u32) -> Result<RingPort, FramesError> {
        let fail = |step| {
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    FramesError::NoPrivilege { name: device.name.clone(), what: "the capability CAP_NET_RAW" }
                }
                _ => FramesError::System { name: device.name.clone(), step, source },
            }
        };
        let open = || Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None);
        let receiving = open().map_err(fail("opening a packet socket"))?;
        set_up(&receiving).map_err(fail("setting its options"))?;
        let frame_bytes = (device.state.mtu + HEADER_BYTES + 128).next_multiple_of(2_048);
        let layout = Layout::new(device.state.mtu, frame_bytes * receive_frames as usize);
        let ring = Ring::new(receiving.as_fd(), layout).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM) => FramesError::NoMemory { bytes: layout.bytes() },
            _ => fail("making its ring")(source),
        })?;
        bind(&receiving, device.index, libc::ETH_P_ALL).map_err(fail("bind"))?;
        let sending = open().map_err(fail("opening a packet socket"))?;
        classic::attach(&sending, Purpose::Filter, &DROP_ALL).map_err(fail("setting its filter"))?;
        option::set(sending.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .map_err(fail("setting its options"))?;
        bind(&sending, device.index, 0).map_err(fail("bind"))?;
        let longest = device.state.mtu + HEADER_BYTES;
        Ok(RingPort {
            receiving,
            ring,
            sending,
            waiting: VecDeque::with_capacity(SEND_FRAMES),
            longest,
            stats: FrameStats::default(),
            drops: std::cell::Cell::new(0),
        })
    }

    /// Appends up to `most` received frames.
    pub(super) fn receive(&mut self, slots: &mut Slots, most: usize, into: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        while count < most && slots.free() > 0 {
            let Some(found) = self.ring.take() else { break };
            if found.wire_length > self.longest.min(found.length) {
                self.stats.too_long += 1;
            } else {
                into.extend(slots.fill(self.ring.bytes_of(&found)));
                count += 1;
            }
            self.ring.give_back(found);
        }
        self.stats.received += count as u64;
        count
    }

    pub(super) fn send(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.waiting.len() == SEND_FRAMES {
            return Err(frame);
        }
        self.waiting.push_back(frame);
        Ok(())
    }

    /// Makes the kernel send as many queued frames as it has room for.
    pub(super) fn flush(&mut self, slots: &mut Slots) {
        while !self.waiting.is_empty() {
            let (tried, result) = self.send_batch(slots);
            self.stats.send_calls += 1;
            let gone = match result {
                Ok(sent) => {
                    self.stats.sent += sent as u64;
                    sent
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return,
                    _ => {
                        self.stats.refused += 1;
                        1
                    }
                },
            };
            for frame in self.waiting.drain(..gone) {
                slots.give_back(frame);
            }
            if gone < tried && gone == 0 {
                return;
            }
        }
    }

    /// Passes the first queued frames to the kernel. Returns how many were passed, and how many of these the
    /// kernel accepted.
    fn send_batch(&self, slots: &Slots) -> (usize, io::Result<usize>) {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut parts = [empty; BATCH];
        // SAFETY: all-zero bytes are a valid value of the structure: null pointers and zero lengths.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        for ((frame, part), message) in self.waiting.iter().zip(&mut parts).zip(&mut messages) {
            let bytes = slots.bytes(frame);
            *part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the descriptor is open. Each of the first `count` messages has one part, which points to
        // bytes of slots that are borrowed here; the kernel only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                self.sending.as_raw_fd(),
                messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        (count, usize::try_from(sent).map_err(|_| io::Error::last_os_error()))
    }

    pub(super) fn stats(&self) -> FrameStats {
        self.drops.set(self.drops.get() + new_drops(&self.receiving));
        FrameStats { receive_drops: self.drops.get(), ..self.stats }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.receiving.as_fd()
    }
}

fn set_up(socket: &Socket) -> io::Result<()> {
    let set = |name, value| option::set(socket.as_fd(), libc::SOL_PACKET, name, value);
    set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    // Without this option, the socket would also receive the frames that this device sends.
    set(libc::PACKET_IGNORE_OUTGOING, 1)
}
