//! The ring of received frames: memory in which the kernel writes frames and this process reads them.
//!
//! The kernel owns a frame while the frame's status is zero. This process owns it from the time the kernel
//! sets `TP_STATUS_USER` until this process writes zero. A frame held by a burst is marked, so that the ring
//! does not mistake it for a new one when it wraps around.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::offload::{Offload, VNET_BYTES};
use crate::burst::FrameSource;
use crate::l2::frame::ETHERNET_BYTES;

/// Maximum number of bytes that the kernel puts before the IP header: its own frame header and the device's
/// link header, aligned, and the virtio offload header.
const ROOM_BEFORE_IP: usize = {
    let header = size_of::<libc::tpacket2_hdr>().next_multiple_of(16) + size_of::<libc::sockaddr_ll>();
    (header + 16).next_multiple_of(16) + VNET_BYTES
};

/// Frame lengths are multiples of this: a page contains two frames, and each frame contains whole cache
/// lines.
const FRAME_GRAIN: usize = 2_048;

/// Memory is allocated in blocks that contain whole frames and whole pages. A block has this length unless
/// frames are longer.
const BLOCK_BYTES: usize = 64 << 10;

/// Marks a frame owned by this process and held by a burst, in a status bit that the kernel does not use.
const HELD: u32 = 1 << 24;

/// Sizes of the frames and the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    frame_bytes: usize,
    block_bytes: usize,
    blocks: usize,
}

impl Layout {
    /// Computes the layout for packets of a device with this MTU, in about `ring_bytes` of memory, but at
    /// least one block.
    pub(crate) fn new(mtu: usize, ring_bytes: usize) -> Layout {
        let frame_bytes = (ROOM_BEFORE_IP + mtu).next_multiple_of(FRAME_GRAIN);
        let block_bytes = frame_bytes.max(BLOCK_BYTES).next_multiple_of(4_096);
        Layout { frame_bytes, block_bytes, blocks: (ring_bytes / block_bytes).max(1) }
    }

    fn frames_per_block(self) -> usize {
        self.block_bytes / self.frame_bytes
    }

    pub(crate) fn frames(self) -> usize {
        self.frames_per_block() * self.blocks
    }

    pub(crate) fn bytes(self) -> usize {
        self.block_bytes * self.blocks
    }

    /// Returns the offset of a frame in the ring.
    fn start(self, frame: usize) -> usize {
        let (block, place) = (frame / self.frames_per_block(), frame % self.frames_per_block());
        block * self.block_bytes + place * self.frame_bytes
    }
}

/// The mapped memory. Bursts that hold frames keep it, and therefore the kernel's ring, alive.
#[derive(Debug)]
struct Mapping {
    memory: NonNull<[u8]>,
    layout: Layout,
}

// SAFETY: the memory is shared with the kernel, and any thread may read it. Each frame's atomic status
// determines who may access the frame.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: each frame's atomic status determines who may access the frame.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn status(&self, frame: usize) -> &AtomicU32 {
        debug_assert!(frame < self.layout.frames());
        // SAFETY: each frame begins within the memory, 16-byte aligned, with its status. Both the kernel and
        // the process access the status only atomically.
        unsafe { AtomicU32::from_ptr(self.memory.cast::<u8>().as_ptr().add(self.layout.start(frame)).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.memory.len()) };
    }
}

// SAFETY: the memory is mapped until `drop`. The kernel writes to a frame only while its status is zero,
// which only `release` sets. A frame is lent only after `Ring::take`, which stops at a held frame.
unsafe impl FrameSource for Mapping {
    fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }

    // No frame may be kept: the kernel uses the frames in order, and waits until the next one is free.

    fn release(&self, frames: &[u32]) {
        for &frame in frames {
            self.status(frame as usize).store(0, Ordering::Release);
        }
    }
}

/// A frame that the kernel has filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) number: u32,
    pub(crate) status: u32,
    /// Offset of the Ethernet header in the ring.
    pub(crate) start: usize,
    /// Bytes present in the ring.
    pub(crate) length: usize,
    /// Length of the frame on the wire.
    pub(crate) wire_length: usize,
    /// Whether bytes are missing because the frame is too small, rather than because the filter truncated it.
    pub(crate) full: bool,
    /// When the kernel or the device received the frame, in nanoseconds of the real-time clock.
    pub(crate) time_ns: u64,
}

/// The reading side of the ring.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Arc<Mapping>,
    /// Index of the frame that the kernel fills next.
    next: usize,
}

impl Ring {
    /// Creates a packet socket's ring and maps it.
    ///
    /// # Errors
    /// `ENOMEM`: there is not enough memory.
    pub(crate) fn new(socket: BorrowedFd<'_>, layout: Layout) -> io::Result<Ring> {
        // Bursts store offsets in 32 bits.
        if u32::try_from(layout.bytes()).is_err() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let request = libc::tpacket_req {
            tp_block_size: layout.block_bytes as libc::c_uint,
            tp_block_nr: layout.blocks as libc::c_uint,
            tp_frame_size: layout.frame_bytes as libc::c_uint,
            tp_frame_nr: layout.frames() as libc::c_uint,
        };
        let length = size_of::<libc::tpacket_req>() as libc::socklen_t;
        // SAFETY: the descriptor is open while it is borrowed, and the kernel reads `length` bytes of the
        // structure, which is its size.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_RX_RING,
                (&raw const request).cast(),
                length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping of the ring that was just created, at an address that the kernel chooses.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory =
            NonNull::new(memory.cast::<u8>()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let memory = NonNull::slice_from_raw_parts(memory, layout.bytes());
        Ok(Ring { mapping: Arc::new(Mapping { memory, layout }), next: 0 })
    }

    pub(super) fn bytes(&self) -> usize {
        self.mapping.layout.bytes()
    }

    /// Takes the next frame that the kernel has filled. This process owns the frame until it is lent or
    /// returned.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        let number = self.next;
        let status = self.mapping.status(number).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 || status & HELD != 0 {
            return None;
        }
        self.next = if number + 1 == self.mapping.layout.frames() { 0 } else { number + 1 };
        let base = self.mapping.layout.start(number);
        // SAFETY: the structure is at the start of the frame. The kernel has written it and passed the frame
        // to this process by its status.
        let header = unsafe {
            self.mapping.memory.cast::<u8>().as_ptr().add(base).cast::<libc::tpacket2_hdr>().read_volatile()
        };
        let (offset, room) = (usize::from(header.tp_mac), self.mapping.layout.frame_bytes);
        let length = (header.tp_snaplen as usize).min(room.saturating_sub(offset));
        Some(Frame {
            number: number as u32,
            status,
            start: base + offset.min(room),
            length,
            wire_length: header.tp_len as usize,
            full: offset + length == room,
            time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
        })
    }

    /// Returns the bytes of a taken frame, from its Ethernet header on.
    pub(crate) fn bytes_of(&self, frame: &Frame) -> &[u8] {
        // SAFETY: `take` checked that the range is within the frame, which this process owns until it is
        // returned. `give_back` and `lend` consume the `Frame`, and are only called after the last use of
        // these bytes.
        unsafe { std::slice::from_raw_parts(self.at(frame.start), frame.length) }
    }

    /// Returns the kernel's offload header, which precedes the Ethernet header.
    pub(super) fn offload_of(&self, frame: &Frame) -> Offload {
        let mut bytes = [0; VNET_BYTES];
        let first = frame.start.saturating_sub(VNET_BYTES);
        // SAFETY: the offload header is within the frame, before the Ethernet header, because the kernel's
        // own header is longer.
        bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(self.at(first), VNET_BYTES) });
        Offload::read(&bytes)
    }

    fn at(&self, start: usize) -> *const u8 {
        debug_assert!(start <= self.mapping.memory.len());
        // SAFETY: all callers ensure that the offset is within the memory or at its end.
        unsafe { self.mapping.memory.cast::<u8>().as_ptr().add(start) }
    }

    /// Returns a taken frame to the kernel.
    pub(crate) fn give_back(&self, frame: Frame) {
        self.mapping.release(&[frame.number]);
    }

    /// Lends a taken frame to a burst, as the packets in this part of the frame.
    pub(super) fn lend(
        &self,
        frame: Frame,
        burst: &mut crate::burst::RxBurst,
        from: std::net::SocketAddr,
        (offset, length): (usize, usize),
        segment: usize,
    ) {
        assert!(offset + length <= frame.length);
        self.mapping.status(frame.number as usize).store(frame.status | HELD, Ordering::Relaxed);
        // SAFETY: this process owns the frame, and this `Frame` transfers ownership to the burst; the range
        // is within the frame.
        unsafe { burst.lend(&self.mapping, frame.number, from, (frame.start + offset, length), segment) };
    }
}

const _: () = assert!(ROOM_BEFORE_IP >= ETHERNET_BYTES + VNET_BYTES + size_of::<libc::tpacket2_hdr>());

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::burst::RxBurst;

    #[test]
    fn frames_hold_the_mtu_and_blocks_hold_whole_frames() {
        for mtu in [576, 1_280, 1_500, 3_506, 9_000, 65_536] {
            for ring_bytes in [0, 1 << 20, 8 << 20, 100_000_000] {
                let layout = Layout::new(mtu, ring_bytes);
                assert!(layout.frame_bytes >= ROOM_BEFORE_IP + mtu && layout.frame_bytes.is_multiple_of(16));
                assert!(layout.block_bytes.is_multiple_of(4_096) && layout.block_bytes >= layout.frame_bytes);
                assert_eq!(layout.frames() % layout.blocks, 0, "as the kernel wants it");
                assert!(layout.bytes() <= ring_bytes.max(layout.block_bytes));
                let last = layout.start(layout.frames() - 1);
                assert!(last + layout.frame_bytes <= layout.bytes());
            }
        }
        assert_eq!(Layout::new(1_500, 8 << 20).frames(), 4_096);
    }

    const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

    /// A ring of one block in private memory.
    fn ring() -> Ring {
        let layout = Layout::new(1_500, 0);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), layout.bytes(), protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let memory = NonNull::slice_from_raw_parts(NonNull::new(start.cast()).unwrap(), layout.bytes());
        Ring { mapping: Arc::new(Mapping { memory, layout }), next: 0 }
    }

    /// Acts as the kernel does when a frame arrives: writes the frame to its slot, and then sets the status.
    fn kernel_gives(ring: &Ring, number: usize, bytes: &[u8], length: usize) {
        let mapping = &ring.mapping;
        assert_eq!(mapping.status(number).load(Ordering::Acquire), 0, "the frame is the kernel's");
        let offset = ROOM_BEFORE_IP - ETHERNET_BYTES;
        // SAFETY: all-zero bytes are a valid value of the structure, which holds only integers.
        let mut header: libc::tpacket2_hdr = unsafe { std::mem::zeroed() };
        (header.tp_mac, header.tp_sec, header.tp_nsec) = (offset as u16, 3, 5);
        (header.tp_len, header.tp_snaplen) = (length as u32, length as u32);
        let offload = Offload { segment: Some(9), partial: Some(42) }.bytes();
        let at = mapping.layout.start(number);
        // SAFETY: header, offloads and bytes lie within the frame, which belongs to the writer alone while
        // its status is zero. The status, at the start of the header, is not written.
        unsafe {
            let frame = mapping.memory.cast::<u8>().as_ptr().add(at);
            let (status, rest) = (size_of::<u32>(), size_of::<libc::tpacket2_hdr>() - size_of::<u32>());
            frame.add(status).copy_from((&raw const header).cast::<u8>().add(status), rest);
            frame.add(offset - VNET_BYTES).copy_from(offload.as_ptr(), VNET_BYTES);
            frame.add(offset).copy_from(bytes.as_ptr(), bytes.len());
        }
        mapping.status(number).store(libc::TP_STATUS_USER, Ordering::Release);
    }

    #[test]
    fn frames_are_read_where_the_kernel_wrote_them_and_go_back_in_turn() {
        let mut ring = ring();
        let frames = ring.mapping.layout.frames();
        for turn in 0..2 * frames {
            assert!(ring.take().is_none(), "the kernel has given nothing");
            let bytes = [turn as u8; 60];
            kernel_gives(&ring, turn % frames, &bytes, bytes.len());
            let frame = ring.take().expect("a frame has come");
            assert_eq!((frame.number as usize, frame.time_ns), (turn % frames, 3_000_000_005));
            assert_eq!(ring.bytes_of(&frame), bytes);
            assert_eq!(ring.offload_of(&frame), Offload { segment: Some(9), partial: Some(42) });
            ring.give_back(frame);
        }
    }

    #[test]
    fn a_frame_that_claims_more_than_its_room_ends_with_it() {
        let mut ring = ring();
        let room = ring.mapping.layout.frame_bytes;
        kernel_gives(&ring, 0, b"x", room + 1);
        let frame = ring.take().expect("a frame has come");
        assert!(frame.full && frame.start + frame.length == room && frame.wire_length == room + 1);
        assert_eq!(ring.bytes_of(&frame).len(), frame.length);
    }

    #[test]
    fn a_lent_frame_stays_ours_until_its_burst_is_cleared_by_whatever_thread() {
        let mut ring = ring();
        let frames = ring.mapping.layout.frames();
        (0..frames).for_each(|number| kernel_gives(&ring, number, &[number as u8; 8], 8));
        let mut burst = RxBurst::new();
        for _ in 0..frames {
            let frame = ring.take().expect("all were given");
            ring.lend(frame, &mut burst, FROM, (2, 6), 6);
        }
        assert!(ring.take().is_none(), "the first is held, and no new one");
        // The burst keeps the memory alive after its ring is dropped, and another thread returns the frames.
        let mapping = Arc::clone(&ring.mapping);
        let (cleared, frames_of) = (
            std::thread::spawn(move || {
                assert!(burst.iter().enumerate().all(|(number, (_, bytes))| bytes == [number as u8; 6]));
                drop(burst);
            }),
            ring,
        );
        drop(frames_of);
        cleared.join().unwrap();
        assert!((0..frames).all(|number| mapping.status(number).load(Ordering::Acquire) == 0));
    }

    #[test]
    fn a_thread_and_the_kernel_pass_frames_through_the_whole_ring() {
        let mut ring = ring();
        let count = if cfg!(miri) { 100 } else { 10_000_usize };
        let frames = ring.mapping.layout.frames();
        let kernels = Ring { mapping: Arc::clone(&ring.mapping), next: 0 };
        let kernel = std::thread::spawn(move || {
            for number in 0..count {
                while kernels.mapping.status(number % frames).load(Ordering::Acquire) != 0 {
                    std::thread::yield_now();
                }
                kernel_gives(&kernels, number % frames, &number.to_ne_bytes(), 8);
            }
        });
        let mut burst = RxBurst::new();
        let mut number = 0;
        while number < count {
            let Some(frame) = ring.take() else {
                std::thread::yield_now();
                continue;
            };
            ring.lend(frame, &mut burst, FROM, (0, 8), 8);
            assert_eq!(burst.get(0), Some((FROM, &number.to_ne_bytes()[..])));
            burst.clear();
            number += 1;
        }
        kernel.join().unwrap();
    }
}
