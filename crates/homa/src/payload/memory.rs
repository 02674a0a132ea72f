//! Memory in which an incoming message is reassembled: this host's own memory, or memory lent by the
//! application.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use bytes::BytesMut;

use crate::payload::sparse::SparseBuffer;

/// Memory for incoming messages, provided by an application that needs its messages at particular addresses:
/// see [`Socket::set_memory`](crate::kernel_api::Socket::set_memory).
pub trait MessageMemory: Send + Sync {
    /// Lends memory for a message of `length` bytes. This is called when the first packet arrives, no matter
    /// which part of the message the packet carries. If it returns `None`, the host uses its own memory. It
    /// is called under the host's lock, so it must be quick and must not call into the host.
    fn lend(&self, length: usize) -> Option<Lent>;
}

/// The owner of lent memory. Dropping the owner returns the memory. It is dropped with the message, or with
/// an RPC that never received the whole message.
pub trait Lender: Send + Sync {
    /// Returns whether the memory may still be written to. This is called before each write. To revoke the
    /// memory, first make this return false, and then call
    /// [`Socket::await_writers`](crate::kernel_api::Socket::await_writers). Once that returns, no write is in
    /// progress. The message is still delivered, with whatever bytes the memory contains.
    fn is_there(&self) -> bool;
}

/// Memory lent for one message.
pub struct Lent {
    start: NonNull<u8>,
    length: usize,
    lender: Box<dyn Lender>,
}

// SAFETY: the caller of `new` guaranteed that any thread may write to the memory.
unsafe impl Send for Lent {}
// SAFETY: the caller of `new` guaranteed that any thread may use the memory, and a shared reference only
// reads it.
unsafe impl Sync for Lent {}

impl Lent {
    /// Lends `length` bytes beginning at `start`.
    ///
    /// # Safety
    /// Until the lender is dropped or `is_there` returns false, the bytes must be valid memory (with any
    /// content) to which any thread may write. Until then, no other code may write to them or rely on their
    /// content.
    pub unsafe fn new(start: NonNull<u8>, length: usize, lender: impl Lender + 'static) -> Lent {
        Lent { start, length, lender: Box::new(lender) }
    }

    /// Returns the bytes from offset `start` on; empty if the memory was revoked.
    fn from(&mut self, start: usize) -> &mut [MaybeUninit<u8>] {
        let start = if self.lender.is_there() { start.min(self.length) } else { self.length };
        // SAFETY: the bytes lie within the lent memory, which is still valid; if it is not, the slice is
        // empty.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().add(start).cast(), self.length - start) }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes are valid memory, and each was written only once, before the message was handed
        // out. If the lender has revoked them, only the lender can read them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Lent").field("start", &self.start).field("length", &self.length).finish()
    }
}

/// The received part of a message, up to the last byte that has arrived, and room for the whole message.
#[derive(Debug)]
pub(crate) enum Memory {
    /// The host's own memory. A page is touched only by packets that contain bytes for it.
    Own(SparseBuffer),
    /// Lent memory. Its gaps have arbitrary content. `end` is the exclusive end of the last received byte.
    Lent { lent: Lent, end: usize },
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Own(SparseBuffer::default())
    }
}

impl Memory {
    /// Returns memory for a message that fits in the empty `buffer`.
    pub(crate) fn own(buffer: BytesMut) -> Memory {
        Memory::Own(SparseBuffer::new(buffer))
    }

    pub(crate) fn lent(lent: Lent) -> Memory {
        Memory::Lent { lent, end: 0 }
    }

    /// Returns the exclusive end of the received bytes. For the host's own memory, the end of the bytes
    /// before the first gap.
    pub(crate) fn len(&self) -> usize {
        match self {
            Memory::Own(bytes) => bytes.len(),
            Memory::Lent { end, .. } => *end,
        }
    }

    /// Returns the bytes of this range, if they have arrived.
    pub(crate) fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        match self {
            Memory::Own(bytes) => bytes.get(range),
            Memory::Lent { lent, end } if lent.lender.is_there() => lent.as_ref()[..*end].get(range),
            Memory::Lent { .. } => None,
        }
    }

    /// Returns whether the next packet can be received directly after the end.
    pub(crate) fn is_open_ended(&self) -> bool {
        match self {
            Memory::Own(bytes) => !bytes.has_parts(),
            Memory::Lent { .. } => true,
        }
    }

    /// Copies `data` to offset `start`, which may be past the end. The caller ensures that there is room for
    /// it.
    pub(crate) fn place(&mut self, start: usize, data: &[u8]) {
        match self {
            Memory::Own(bytes) => bytes.place(start, data),
            Memory::Lent { lent, end } => {
                if let Some(room) = lent.from(start).get_mut(..data.len()) {
                    // SAFETY: the destination is as long as the data, and `lent` is borrowed exclusively.
                    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), room.as_mut_ptr().cast(), data.len()) };
                }
                *end = (*end).max(start + data.len());
            }
        }
    }

    /// Returns the unwritten memory after the received bytes.
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        match self {
            Memory::Own(bytes) => bytes.spare(),
            Memory::Lent { lent, end } => lent.from(*end),
        }
    }

    /// Returns the first `bytes` bytes of the [spare](Memory::spare) memory, which have since been written.
    ///
    /// # Safety
    /// The bytes must have been written under the lock that is still held: a lender that revokes memory waits
    /// for that lock.
    pub(crate) unsafe fn written(&mut self, bytes: usize) -> &[u8] {
        let end = match self {
            Memory::Own(own) => own.end_ptr(),
            // SAFETY: the spare memory begins at the end of the received bytes.
            Memory::Lent { lent, end } => unsafe { lent.start.as_ptr().add(*end).cast_const() },
        };
        // SAFETY: the caller guarantees that this many bytes of the spare memory were written, and `self` is
        // borrowed exclusively.
        unsafe { slice::from_raw_parts(end, bytes) }
    }

    /// Records that the first `bytes` bytes of the spare memory have been written.
    ///
    /// # Safety
    /// These bytes must have been written.
    pub(crate) unsafe fn advance(&mut self, bytes: usize) {
        match self {
            // SAFETY: the caller has written `bytes` bytes of the spare memory, which `advance` requires.
            Memory::Own(own) => unsafe { own.advance(bytes) },
            Memory::Lent { end, .. } => *end += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use bytes::Bytes;

    use super::*;

    /// Memory lent by a test.
    #[derive(Default)]
    struct Place {
        gone: AtomicBool,
        back: AtomicUsize,
    }

    struct Owner {
        place: Arc<Place>,
        _memory: Vec<u8>,
    }

    impl Lender for Owner {
        fn is_there(&self) -> bool {
            !self.place.gone.load(Relaxed)
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            self.place.back.fetch_add(1, Relaxed);
        }
    }

    fn lend(place: &Arc<Place>, length: usize) -> Memory {
        let mut memory = vec![9; length];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap();
        let owner = Owner { place: Arc::clone(place), _memory: memory };
        // SAFETY: the owner holds the memory for its whole lifetime.
        Memory::lent(unsafe { Lent::new(start, length, owner) })
    }

    #[test]
    fn lent_memory_is_filled_in_any_order_and_given_back_with_the_message() {
        let place = Arc::<Place>::default();
        let mut memory = lend(&place, 6);
        memory.place(4, b"ef");
        assert_eq!((memory.len(), memory.get(4..6), memory.get(5..7)), (6, Some(&b"ef"[..]), None));
        memory.place(0, b"abcd");
        let Memory::Lent { lent, .. } = memory else { panic!("it was lent") };
        let message = Bytes::from_owner(lent);
        let part = message.slice(2..4);
        drop(message);
        assert_eq!((&part[..], place.back.load(Relaxed)), (&b"cd"[..], 0));
        drop(part);
        assert_eq!(place.back.load(Relaxed), 1);
    }

    #[test]
    fn what_is_received_behind_the_end_counts_when_it_is_said_to() {
        let place = Arc::<Place>::default();
        let mut memory = lend(&place, 4);
        memory.place(0, b"a");
        assert_eq!(memory.spare().len(), 3);
        memory.spare()[..2].iter_mut().zip(b"bc").for_each(|(room, byte)| _ = room.write(*byte));
        // SAFETY: the bytes were written just above.
        unsafe {
            assert_eq!(memory.written(2), b"bc");
            memory.advance(2);
        }
        assert_eq!(memory.get(0..3), Some(&b"abc"[..]));
        assert_eq!(memory.spare().len(), 1);
    }

    #[test]
    fn what_is_received_behind_the_end_of_the_hosts_own_memory_is_read_there() {
        let mut memory = Memory::Own(SparseBuffer::new(BytesMut::with_capacity(4)));
        memory.place(0, b"a");
        memory.spare()[..2].iter_mut().zip(b"bc").for_each(|(room, byte)| _ = room.write(*byte));
        // SAFETY: the bytes were written just above.
        unsafe {
            assert_eq!(memory.written(2), b"bc");
            memory.advance(2);
        }
        assert_eq!(memory.get(0..3), Some(&b"abc"[..]));
    }

    #[test]
    fn memory_that_was_taken_away_is_not_touched() {
        let place = Arc::<Place>::default();
        let mut memory = lend(&place, 4);
        memory.place(0, b"ab");
        place.gone.store(true, Relaxed);
        assert!(memory.spare().is_empty() && memory.get(0..2).is_none());
        memory.place(2, b"cd");
        assert_eq!(memory.len(), 4, "the message ends as any");
        place.gone.store(false, Relaxed);
        assert_eq!(memory.get(0..4), Some(&b"ab\x09\x09"[..]));
    }
}
