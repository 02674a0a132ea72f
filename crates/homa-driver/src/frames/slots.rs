//! The memory of the frames, divided into slots of equal length. Each slot is held by one frame or by the
//! kernel, or is free.

use crate::frames::FramesError;
use crate::xdp::umem::Umem;

/// Possible lengths of a slot: first those that AF_XDP supports with pages of 4 KiB, then those that packet
/// sockets may need.
const SLOT_BYTES: [usize; 4] = [2_048, 4_096, 16_384, 131_072];

/// Bytes of an Ethernet header with a VLAN tag.
pub(crate) const HEADER_BYTES: usize = 18;

/// A frame in a slot. This is the only handle to its bytes.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped loses its slot: send it or give it up"]
pub struct Frame {
    slot: u32,
    start: u32,
    length: u32,
}

impl Frame {
    /// Returns the length of the frame in bytes, from its Ethernet header on, without the frame check
    /// sequence.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length as usize
    }
}

/// Returns the length of slots for frames of a device with this MTU, with `headroom` bytes free at the front.
pub(crate) fn slot_bytes(mtu: usize, headroom: usize) -> usize {
    let longest = mtu + HEADER_BYTES + headroom;
    SLOT_BYTES.into_iter().find(|&bytes| longest <= bytes).unwrap_or(SLOT_BYTES[SLOT_BYTES.len() - 1])
}

#[derive(Debug)]
pub(crate) struct Slots {
    umem: Umem,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(slot_bytes: usize, count: u32) -> Result<Slots, FramesError> {
        let bytes = slot_bytes.saturating_mul(count as usize);
        if u32::try_from(bytes).is_err() {
            return Err(FramesError::NoMemory { bytes });
        }
        let umem = Umem::plain(slot_bytes, count).map_err(|_| FramesError::NoMemory { bytes })?;
        Ok(Slots { umem, free: (0..count).rev().collect() })
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Returns the memory and the free slots, for code that reclaims slots from the kernel.
    pub(crate) fn parts(&mut self) -> (&Umem, &mut Vec<u32>) {
        (&self.umem, &mut self.free)
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.umem.frame_bytes()
    }

    /// Returns the number of free slots.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot, to be passed to the kernel.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Frees a slot that the kernel returned, empty or after sending its frame.
    pub(crate) fn put(&mut self, slot: u32) {
        debug_assert!(self.free.len() < self.umem.frames());
        self.free.push(slot);
    }

    /// Returns the frame that the kernel has received at this address.
    pub(crate) fn received(&self, address: u64, length: u32) -> Frame {
        let slot = self.umem.frame_at(address);
        let start = (address - self.umem.address(slot)) as u32;
        assert!(start as usize + length as usize <= self.slot_bytes(), "the kernel names bytes of one slot");
        Frame { slot, start, length }
    }

    /// Passes a frame's slot to the kernel. Returns the frame's address and length, as they appear in a ring.
    pub(crate) fn give(&self, frame: Frame) -> (u64, u32) {
        (self.umem.address(frame.slot) + u64::from(frame.start), frame.length)
    }

    pub(crate) fn give_back(&mut self, frame: Frame) {
        self.put(frame.slot);
    }

    pub(crate) fn bytes(&self, frame: &Frame) -> &[u8] {
        let address = self.umem.address(frame.slot) + u64::from(frame.start);
        // SAFETY: the frame is the only handle to its slot, which the kernel does not use while the frame
        // exists.
        unsafe { self.umem.received(address, frame.length) }
    }

    #[inline]
    pub(crate) fn prefetch(&self, frame: &Frame) {
        let first = self.bytes(frame).as_ptr();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction. It is a hint without visible effects, and it
        // accepts any address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(first.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = first;
    }

    pub(crate) fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        // SAFETY: the frame is the only handle to its slot, which the kernel does not use, and the frame is
        // borrowed exclusively.
        let slot = unsafe { self.umem.for_sending(frame.slot) };
        &mut slot[frame.start as usize..][..frame.length as usize]
    }

    /// Copies bytes into a free slot; `None` if no slot is free. The bytes must fit.
    #[inline]
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Option<Frame> {
        let slot = self.free.pop()?;
        let mut frame = Frame { slot, start: 0, length: bytes.len() as u32 };
        self.bytes_mut(&mut frame).copy_from_slice(bytes);
        Some(frame)
    }

    pub(crate) fn copy(&mut self, frame: &Frame) -> Option<Frame> {
        let slot = self.free.pop()?;
        let mut copy = Frame { slot, start: frame.start, length: frame.length };
        // SAFETY: two frames have two slots, and the new slot was free.
        let to = unsafe { self.umem.for_sending(copy.slot) };
        let to = &mut to[copy.start as usize..][..copy.length as usize];
        to.copy_from_slice(self.bytes(frame));
        copy.length = frame.length;
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_a_whole_frame_and_what_is_in_front() {
        for (mtu, headroom, bytes) in [
            (1_500, 0, 2_048),
            (1_500, 256, 2_048),
            (1_774, 256, 2_048),
            (1_775, 256, 4_096),
            (9_000, 0, 16_384),
        ] {
            assert_eq!(slot_bytes(mtu, headroom), bytes, "MTU {mtu}");
        }
    }

    #[test]
    fn frames_have_slots_of_their_own_which_come_back() {
        let mut slots = Slots::new(2_048, 3).unwrap();
        let one = slots.fill(b"one").unwrap();
        let mut two = slots.copy(&one).unwrap();
        slots.bytes_mut(&mut two)[0] = b'O';
        assert_eq!((slots.bytes(&one), slots.bytes(&two)), (&b"one"[..], &b"One"[..]));
        let three = slots.fill(&[7; 2_048]).unwrap();
        assert!(slots.fill(b"four").is_none() && slots.copy(&one).is_none());
        slots.give_back(two);
        let four = slots.fill(b"four").unwrap();
        assert_eq!(
            (slots.bytes(&one), slots.bytes(&four), three.length()),
            (&b"one"[..], &b"four"[..], 2_048)
        );
        for frame in [one, three, four] {
            slots.give_back(frame);
        }
        assert_eq!(slots.free(), 3);
    }
}
