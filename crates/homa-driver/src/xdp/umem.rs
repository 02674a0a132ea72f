//! The frames that a device's sockets share with the kernel (a UMEM), and the owner of each frame.
//!
//! A frame for sending belongs to one driver or to the kernel; each driver of a group has its own frames and
//! tracks them. A frame for receiving is in use by the kernel, waits in the receive ring, is free, or is
//! held, either by a burst or by a user that keeps it beyond its burst.
//!
//! At most `held_max` frames are held at a time, and there are that many more frames than entries in the fill
//! ring. The kernel therefore always has frames to receive into, however many messages wait to be read.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ring::Mapping;
use crate::burst::{BURST_PACKETS, FrameSource};

/// Marks the end of a list of frames.
const NONE: u32 = u32::MAX;

/// Number of frames that may be held but not kept. Bursts need this many when the maximum number of frames is
/// kept.
pub(super) const HELD_BY_BURSTS: u32 = 2 * BURST_PACKETS as u32;

/// The frames shared with the kernel.
#[derive(Debug)]
pub(crate) struct Umem {
    memory: Mapping,
    frame_bytes: usize,
    /// Frames below this index are for receiving, the rest for sending.
    receive_frames: u32,
    /// Number of holders of each frame for receiving.
    uses: Box<[AtomicU32]>,
    /// First frame in a list of frames that were returned by any thread; `next` contains the frame after
    /// each. Frames are pushed one by one but removed all at once, so no compare-exchange can mistake an old
    /// head for a new one (ABA).
    returned: AtomicU32,
    next: Box<[AtomicU32]>,
    held: AtomicU32,
    held_max: u32,
    /// The part of `held_max` that is reserved for bursts.
    for_bursts: u32,
    /// Number of frames each driver has for sending.
    frames_of_each: u32,
}

impl Umem {
    /// Allocates memory for frames of this length, a power of two. Initially the driver owns all receive
    /// frames.
    pub(super) fn new(frame_bytes: usize, receive: u32, send: u32, held_max: u32) -> io::Result<Umem> {
        assert!(frame_bytes.is_power_of_two());
        assert!(receive > held_max && held_max >= HELD_BY_BURSTS);
        let bytes = frame_bytes * (receive as usize + send as usize);
        // Bursts store offsets in 32 bits.
        assert!(bytes <= u32::MAX as usize);
        let numbers = |number| (0..receive).map(|_| AtomicU32::new(number)).collect();
        Ok(Umem {
            memory: Mapping::anonymous(bytes)?,
            frame_bytes,
            receive_frames: receive,
            uses: numbers(0),
            returned: AtomicU32::new(NONE),
            next: numbers(NONE),
            held: AtomicU32::new(0),
            held_max,
            for_bursts: HELD_BY_BURSTS,
            frames_of_each: send,
        })
    }

    /// Divides the frames for sending among `drivers` drivers, each of which has its own bursts.
    pub(super) fn shared_by(mut self, drivers: u32) -> Umem {
        self.for_bursts = HELD_BY_BURSTS * drivers;
        self.frames_of_each /= drivers;
        assert!(self.held_max >= self.for_bursts && self.frames_of_each > 0);
        self
    }

    /// Allocates memory for frames that are never lent. The caller tracks the owner of each frame; all count
    /// as frames for sending.
    pub(crate) fn plain(frame_bytes: usize, count: u32) -> io::Result<Umem> {
        assert!(frame_bytes.is_power_of_two());
        Ok(Umem {
            memory: Mapping::anonymous(frame_bytes * count as usize)?,
            frame_bytes,
            receive_frames: 0,
            uses: Box::default(),
            returned: AtomicU32::new(NONE),
            next: Box::default(),
            held: AtomicU32::new(0),
            held_max: 0,
            for_bursts: 0,
            frames_of_each: count,
        })
    }

    /// Returns the whole memory, for registration with the kernel.
    pub(super) fn area(&self) -> &Mapping {
        &self.memory
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn frames_for_receiving(&self) -> std::ops::Range<u32> {
        0..self.receive_frames
    }

    pub(super) fn frames_for_sending(&self) -> std::ops::Range<u32> {
        self.receive_frames..(self.memory.len() / self.frame_bytes) as u32
    }

    /// Returns the range of one driver's frames for sending.
    pub(super) fn frames_of_sender(&self, driver: u32) -> std::ops::Range<u32> {
        let first = self.receive_frames + driver * self.frames_of_each;
        first..first + self.frames_of_each
    }

    /// Returns the driver that owns a frame for sending.
    pub(super) fn sender_of(&self, frame: u32) -> u32 {
        assert!(frame >= self.receive_frames, "the kernel has sent what was for sending");
        (frame - self.receive_frames) / self.frames_of_each
    }

    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.memory.len() / self.frame_bytes
    }

    /// Returns the address by which the rings refer to a frame.
    pub(crate) fn address(&self, frame: u32) -> u64 {
        u64::from(frame) * self.frame_bytes as u64
    }

    /// Returns the frame that contains an address from a ring.
    pub(crate) fn frame_at(&self, address: u64) -> u32 {
        let frame = address / self.frame_bytes as u64;
        assert!(
            frame < (self.memory.len() / self.frame_bytes) as u64,
            "the kernel names frames of this memory"
        );
        frame as u32
    }

    /// Returns the bytes of a received frame.
    ///
    /// # Safety
    /// The receive ring has returned these bytes, and no fill ring contains their frame while the reference
    /// is used.
    pub(crate) unsafe fn received(&self, address: u64, length: u32) -> &[u8] {
        let (start, length) = (address as usize, length as usize);
        assert!(start + length <= self.memory.len(), "the kernel names bytes of this memory");
        // SAFETY: the assertion has checked that the range is within the mapping; the caller guarantees that
        // the kernel does not write to the bytes.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().add(start), length) }
    }

    /// Returns all bytes of a frame for sending.
    ///
    /// # Safety
    /// While the reference is used, neither a transmit ring nor any other reference uses the frame.
    #[allow(clippy::mut_from_ref, reason = "each frame has one owner, which the caller is")]
    pub(crate) unsafe fn for_sending(&self, frame: u32) -> &mut [u8] {
        assert!(self.frames_for_sending().contains(&frame));
        let start = self.address(frame) as usize;
        // SAFETY: the assertion has checked that the range is within the mapping; the caller guarantees
        // exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().add(start), self.frame_bytes) }
    }

    /// Returns the number of held frames. It exceeds the maximum only while a thread is about to undo its
    /// increment.
    pub(super) fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// Lends a frame to a burst if one more frame may be held; returns whether it was lent.
    pub(super) fn lend(&self, frame: u32) -> bool {
        // Another driver may take the last permitted frame at the same moment.
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.held_max {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let before = self.uses[frame as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a frame that is received was free");
        true
    }

    /// Appends to `free` the frames that were returned since the last call.
    pub(super) fn take_returned(&self, free: &mut Vec<u32>) {
        if self.returned.load(Ordering::Relaxed) == NONE {
            return;
        }
        // Acquire: each holder of a frame has finished reading before the frame is written again.
        let mut frame = self.returned.swap(NONE, Ordering::Acquire);
        while frame != NONE {
            free.push(frame);
            frame = self.next[frame as usize].load(Ordering::Relaxed);
        }
    }

    fn give_back(&self, frame: u32) {
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            self.next[frame as usize].store(head, Ordering::Relaxed);
            // Release: the link above, and the last reads of the frame, happen before the list is taken.
            match self.returned.compare_exchange_weak(head, frame, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

// SAFETY: the mapping does not move until the value is dropped. The kernel writes only to frames in a fill
// ring. The driver fills with frames that were returned or never lent, and a frame is returned only with its
// last use.
unsafe impl FrameSource for Umem {
    fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.memory.start(), self.memory.len())
    }

    fn keep(&self, frame: u32) -> bool {
        if self.held() > self.held_max - self.for_bursts {
            return false;
        }
        let before = self.uses[frame as usize].fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "only what is lent can be kept");
        true
    }

    fn release(&self, frames: &[u32]) {
        for &frame in frames {
            // Release and acquire: all uses of the frame happen before it is returned.
            let before = self.uses[frame as usize].fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "a frame comes back once for each use");
            if before == 1 {
                self.held.fetch_sub(1, Ordering::Relaxed);
                self.give_back(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn returned(umem: &Umem) -> Vec<u32> {
        let mut free = Vec::new();
        umem.take_returned(&mut free);
        free.sort_unstable();
        free
    }

    #[test]
    fn a_frame_comes_back_with_its_last_use() {
        let umem = Umem::new(2048, 100, 4, HELD_BY_BURSTS + 2).unwrap();
        assert!(umem.lend(7) && umem.lend(8) && umem.keep(7));
        umem.release(&[7, 8]);
        assert_eq!((returned(&umem), umem.held()), (vec![8], 1));
        assert_eq!(returned(&umem), []);
        umem.release(&[7]);
        assert_eq!((returned(&umem), umem.held()), (vec![7], 0));
    }

    #[test]
    fn what_is_held_is_bounded_and_bursts_go_on_when_nothing_more_is_kept() {
        let umem = Umem::new(2048, 1_000, 4, HELD_BY_BURSTS + 10).unwrap();
        let mut kept = 0;
        for frame in 0..200 {
            assert!(umem.lend(frame));
            kept += u32::from(umem.keep(frame));
            umem.release(&[frame]);
        }
        assert_eq!((kept, umem.held()), (10, 10));
        let lent = (200..1_000).take_while(|&frame| umem.lend(frame)).count() as u32;
        assert_eq!(lent, HELD_BY_BURSTS, "then packets are copied");
        umem.release(&[0]);
        assert!(!umem.keep(1) && umem.lend(999));
    }

    #[test]
    fn addresses_and_frames_correspond() {
        let umem = Umem::new(4096, 100, 28, HELD_BY_BURSTS).unwrap();
        assert_eq!((umem.address(3), umem.frame_at(3 * 4096 + 256)), (3 * 4096, 3));
        assert_eq!((umem.frames_for_receiving(), umem.frames_for_sending()), (0..100, 100..128));
        assert_eq!(umem.area().len(), 128 * 4096);
    }

    #[test]
    fn each_driver_has_its_part_of_the_frames_for_sending() {
        let umem = Umem::new(2_048, 300, 30, 3 * HELD_BY_BURSTS).unwrap().shared_by(3);
        assert_eq!([0, 1, 2].map(|driver| umem.frames_of_sender(driver)), [300..310, 310..320, 320..330]);
        assert_eq!([300, 309, 310, 329].map(|frame| umem.sender_of(frame)), [0, 0, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "once for each use")]
    fn a_frame_that_comes_back_twice_is_a_mistake() {
        let umem = Umem::new(2048, 100, 4, HELD_BY_BURSTS).unwrap();
        assert!(umem.lend(1));
        umem.release(&[1, 1]);
    }

    #[test]
    fn threads_give_back_what_they_kept() {
        let umem = Arc::new(Umem::new(2048, 400, 4, 300).unwrap());
        let mut free: Vec<u32> = umem.frames_for_receiving().collect();
        let mut holders = Vec::new();
        let mut lent = 0_u32;
        let (to_threads, frames) = std::sync::mpsc::channel::<u32>();
        let frames = Arc::new(std::sync::Mutex::new(frames));
        for _ in 0..3 {
            let (umem, frames) = (Arc::clone(&umem), Arc::clone(&frames));
            holders.push(thread::spawn(move || {
                loop {
                    let Ok(frame) = frames.lock().unwrap().recv() else { return };
                    umem.release(&[frame]);
                }
            }));
        }
        // Miri takes a millisecond per loan.
        let loans = if cfg!(miri) { 300 } else { 50_000 };
        while lent < loans {
            umem.take_returned(&mut free);
            let Some(frame) = free.pop() else {
                thread::yield_now();
                continue;
            };
            if !umem.lend(frame) {
                free.push(frame);
                thread::yield_now();
                continue;
            }
            lent += 1;
            if umem.keep(frame) {
                to_threads.send(frame).unwrap();
            }
            umem.release(&[frame]);
        }
        drop(to_threads);
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        umem.take_returned(&mut free);
        free.sort_unstable();
        assert!(free.into_iter().eq(0..400), "every frame is there, once");
        assert_eq!(umem.held(), 0);
    }
}
