//! The four rings of an AF_XDP socket: arrays in memory shared with the kernel, which one side writes and the
//! other reads.
//!
//! The writer of entries writes them and then advances the producer index with a release store. The reader
//! reads the producer index with an acquire load and then the entries. The consumer index returns entries in
//! the same way. Indices increase without bound, modulo 2^32. Each index has a single writer, so this process
//! keeps a copy of its own indices and does not have to read them from shared memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Mapped memory, unmapped when this value is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only this value owns the mapping, and any thread may use the memory.
unsafe impl Send for Mapping {}
// SAFETY: the value only returns a pointer; the code that dereferences the pointer must ensure valid access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Allocates private zeroed memory.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Mapping> {
        Mapping::new(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps the memory of a shared descriptor.
    fn shared(bytes: usize, fd: BorrowedFd<'_>, offset: libc::off_t) -> io::Result<Mapping> {
        Mapping::new(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn new(bytes: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns a pointer to `count` values of `T` at this offset.
    fn at<T>(&self, offset: u64, count: usize) -> NonNull<T> {
        let offset = usize::try_from(offset).expect("an offset within the mapping");
        assert!(offset + count * size_of::<T>() <= self.bytes, "a ring lies within its mapping");
        // SAFETY: the assertion has checked that the range is within the mapping.
        let pointer = unsafe { self.start.add(offset) }.cast::<T>();
        assert!(pointer.is_aligned());
        pointer
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once with this length, and no pointer into the memory is still used: each holder of
        // such a pointer owns this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The memory of a ring shared by the kernel and this process.
#[derive(Debug)]
struct RingMemory<T> {
    /// Keeps the memory behind the pointers mapped.
    _memory: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Number of entries, a power of two.
    size: u32,
}

// SAFETY: the pointers point into the mapping, which moves with them. Within this process, only this value
// uses the mapping.
unsafe impl<T: Send> Send for RingMemory<T> {}

impl<T: Copy> RingMemory<T> {
    fn new(memory: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> RingMemory<T> {
        assert!(size.is_power_of_two());
        RingMemory {
            producer: memory.at(offsets.producer, 1),
            consumer: memory.at(offsets.consumer, 1),
            flags: memory.at(offsets.flags, 1),
            entries: memory.at(offsets.desc, size as usize),
            _memory: memory,
            size,
        }
    }

    /// Maps a socket's ring of this size at a page offset.
    fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<RingMemory<T>> {
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        Ok(RingMemory::new(Mapping::shared(bytes, fd, page as libc::off_t)?, offsets, size))
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the index is within the mapping and aligned, and both the kernel and the process access it
        // only atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: the index is within the mapping and aligned, and both the kernel and the process access it
        // only atomically.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: the flags are within the mapping and aligned, and both the kernel and the process access
        // them only atomically.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the address of the entry with this index.
    fn entry(&self, index: u32) -> *mut T {
        let place = (index & (self.size - 1)) as usize;
        // SAFETY: `place` is less than `size`, and the mapping contains `size` entries.
        unsafe { self.entries.as_ptr().add(place) }
    }
}

/// A ring that this process writes and the kernel reads: fill and transmit.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    shared: RingMemory<T>,
    /// Our index, including entries that are not yet published.
    next: u32,
    /// The kernel's index when it was last read.
    seen: u32,
}

impl<T: Copy> ProducerRing<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<ProducerRing<T>> {
        Ok(ProducerRing { shared: RingMemory::map(fd, page, offsets, size)?, next: 0, seen: 0 })
    }

    /// Returns a lower bound on the number of free entries. Reads the kernel's index only if fewer than
    /// `wanted` are known to be free.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &ProducerRing<T>| ring.shared.size - ring.next.wrapping_sub(ring.seen);
        if room(self) < wanted {
            // Acquire: the kernel has finished reading an entry before this process overwrites it.
            self.seen = self.shared.consumer().load(Ordering::Acquire);
            assert!(
                self.next.wrapping_sub(self.seen) <= self.shared.size,
                "the kernel reads what was written"
            );
        }
        room(self)
    }

    /// Appends an entry. The ring must have room for it.
    pub(super) fn push(&mut self, entry: T) {
        assert!(self.next.wrapping_sub(self.seen) < self.shared.size, "room was asked for");
        // SAFETY: the entry is in the mapping, and the kernel has read its old content, so this process may
        // write it.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Makes pushed entries visible to the kernel.
    pub(super) fn publish(&mut self) {
        // Release: if the kernel sees the index, it sees the entries.
        self.shared.producer().store(self.next, Ordering::Release);
    }

    /// Returns the number of entries that the kernel has not taken yet, including those not published.
    pub(super) fn waiting(&mut self) -> u32 {
        self.seen = self.shared.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.seen)
    }

    /// Whether the kernel reads the ring only when it is called.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// A ring that the kernel writes and this process reads: receive and completion.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    shared: RingMemory<T>,
    /// Our index, including entries that were taken but not yet released.
    next: u32,
    /// The kernel's index when it was last read.
    seen: u32,
}

impl<T: Copy> ConsumerRing<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<ConsumerRing<T>> {
        Ok(ConsumerRing { shared: RingMemory::map(fd, page, offsets, size)?, next: 0, seen: 0 })
    }

    /// Takes the next entry, if any.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.next == self.seen {
            // Acquire: the entries before the index become visible together with it.
            self.seen = self.shared.producer().load(Ordering::Acquire);
            assert!(
                self.seen.wrapping_sub(self.next) <= self.shared.size,
                "the kernel writes where there is room"
            );
            if self.next == self.seen {
                return None;
            }
        }
        // SAFETY: the entry is in the mapping, and the kernel does not write to it until it is released.
        let entry = unsafe { self.shared.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns popped entries to the kernel.
    pub(super) fn release(&mut self) {
        // Release: the entries were read before the kernel sees them as free.
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: libc::xdp_ring_offset =
        libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };
    const SIZE: u32 = 4;

    /// Creates both ends of a ring in this process's memory; the indices start at `start`.
    fn ends(start: u32) -> (ProducerRing<u64>, ConsumerRing<u64>) {
        let memory = Mapping::anonymous(4096).unwrap();
        // Two values for the same memory; only one of them is unmapped.
        let duplicate = Mapping { start: memory.start, bytes: memory.bytes };
        let shared = [memory, duplicate].map(|memory| RingMemory::new(memory, &OFFSETS, SIZE));
        shared[0].producer().store(start, Ordering::Relaxed);
        shared[0].consumer().store(start, Ordering::Relaxed);
        let [write, read] = shared;
        (
            ProducerRing { shared: write, next: start, seen: start },
            ConsumerRing { shared: read, next: start, seen: start },
        )
    }

    /// Unmaps the memory once.
    fn end((write, read): (ProducerRing<u64>, ConsumerRing<u64>)) {
        std::mem::forget(write);
        drop(read);
    }

    #[test]
    fn entries_go_through_in_order_and_the_index_wraps() {
        let (mut write, mut read) = ends(u32::MAX - 5);
        for i in 0..40 {
            assert_eq!(write.room(1), SIZE);
            write.push(2 * i);
            assert_eq!(read.pop(), None, "it is not published");
            write.push(2 * i + 1);
            write.publish();
            assert_eq!((read.pop(), read.pop(), read.pop()), (Some(2 * i), Some(2 * i + 1), None));
            read.release();
            assert_eq!(write.room(SIZE), SIZE);
        }
        end((write, read));
    }

    #[test]
    fn a_full_ring_has_room_when_its_reader_has_released() {
        let (mut write, mut read) = ends(0);
        for i in 0..u64::from(SIZE) {
            write.push(i);
        }
        write.publish();
        assert_eq!((write.room(1), write.waiting()), (0, SIZE));
        assert_eq!(read.pop(), Some(0));
        assert_eq!(write.room(1), 0, "popped is not released");
        read.release();
        assert_eq!((write.room(1), write.waiting()), (1, SIZE - 1));
        end((write, read));
    }

    #[test]
    #[should_panic(expected = "room was asked for")]
    fn a_push_beyond_the_room_is_a_mistake() {
        let (mut write, read) = ends(0);
        std::mem::forget(read);
        for i in 0..=u64::from(SIZE) {
            write.push(i);
        }
    }

    #[test]
    fn threads_pass_what_they_write() {
        let (mut write, mut read) = ends(0);
        // Miri takes a millisecond per entry.
        let count = if cfg!(miri) { 200 } else { 100_000_u64 };
        let writer = std::thread::spawn(move || {
            let mut next = 0;
            while next < count {
                if write.room(1) > 0 {
                    write.push(next);
                    write.publish();
                    next += 1;
                }
                std::thread::yield_now();
            }
            write
        });
        let mut expected = 0;
        while expected < count {
            match read.pop() {
                Some(entry) => assert_eq!(entry, expected),
                None => {
                    std::thread::yield_now();
                    continue;
                }
            }
            expected += 1;
            read.release();
        }
        end((writer.join().unwrap(), read));
    }
}
