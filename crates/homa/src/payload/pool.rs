//! Memory for incoming messages, reused once the application has dropped them.
//!
//! To the application a message is a [`Bytes`], which it may keep, split and send to other threads. The pool
//! keeps a second, empty handle to the same memory. When that handle is the only one left, the memory is free
//! again. Reusing the memory saves an allocation, and the pages of a large message are already mapped. It
//! takes the kernel longer to create and reclaim a megabyte of pages than to receive a megabyte.
//!
//! Short messages share chunks, so an application that keeps a short message keeps its whole chunk alive. To
//! keep a short message for longer than a moment, copy it.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::payload::pages;

/// Maximum length of a message that shares a chunk with others.
pub(crate) const SMALL_BYTES: usize = 2 << 10;

/// Size of the memory chunk from which short messages are carved. It is small, since a single message keeps
/// all of it alive. It is large enough for about ten messages of maximum length, or more than a hundred of
/// typical length, before another chunk is needed.
const CHUNK_BYTES: usize = 16 << 10;

/// Maximum number of chunks. As long as the messages that the application holds fit in these chunks, no chunk
/// is allocated.
const CHUNKS: usize = 64;

/// Buffer size of the smallest class of longer buffers. Each further class has twice the size. A short
/// message that arrives in parts also uses such a buffer.
const LEAST_CLASS_BYTES: usize = 256;
/// Number of classes. The last class has buffers of 1 MiB. Longer messages (Linux Homa's limit is 1,000,000
/// bytes) are rare, and their memory is not kept.
const CLASSES: usize = 13;

/// Maximum number of bytes kept in each class, free or not: a megabyte.
const KEPT_BYTES: usize = 1 << 20;
/// Maximum number of buffers kept in each class of larger buffers. It is enough for the messages that are in
/// flight on a link at a time. All classes together keep at most 39 MiB.
const KEPT_BUFFERS: usize = 16;

/// Maximum number of buffers of a class that are checked for a free one. The buffer that was handed out first
/// is the most likely to be free.
const LOOKS: usize = 4;

/// A pool of memory for incoming messages: see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// The chunk from which short messages are currently carved.
    chunk: Option<BytesMut>,
    /// The chunks used before the current one, the oldest first.
    chunks: VecDeque<BytesMut>,
    /// Empty handles of the longer buffers by class. In each class, the buffer that was handed out first
    /// comes first.
    classes: [VecDeque<BytesMut>; CLASSES],
    /// Number of buffers that had to be allocated.
    allocations: u64,
}

/// Returns the class of a buffer for `length` bytes; `None` if the length exceeds the largest class.
fn class_of(length: usize) -> Option<usize> {
    let units = length.max(1).div_ceil(LEAST_CLASS_BYTES).next_power_of_two();
    Some(units.trailing_zeros() as usize).filter(|class| *class < CLASSES)
}

fn class_bytes(class: usize) -> usize {
    LEAST_CLASS_BYTES << class
}

impl Pool {
    /// Copies a whole short message. `data` has at most [`SMALL_BYTES`].
    pub(crate) fn copy(&mut self, data: &[u8]) -> Bytes {
        debug_assert!(data.len() <= SMALL_BYTES);
        let mut chunk = match self.chunk.take() {
            Some(chunk) if chunk.capacity() >= data.len() => chunk,
            full => self.next_chunk(full),
        };
        chunk.extend_from_slice(data);
        let message = chunk.split().freeze();
        self.chunk = Some(chunk);
        message
    }

    /// Returns the next chunk: the oldest chunk if the application has dropped all messages in it, otherwise
    /// a new chunk.
    fn next_chunk(&mut self, full: Option<BytesMut>) -> BytesMut {
        self.chunks.extend(full);
        let oldest = self.chunks.pop_front();
        if let Some(mut oldest) = oldest {
            if oldest.try_reclaim(CHUNK_BYTES) {
                return oldest;
            }
            // If the chunk is not kept, it is freed with the last of its messages.
            if self.chunks.len() < CHUNKS - 1 {
                self.chunks.push_back(oldest);
            }
        }
        self.allocations += 1;
        BytesMut::with_capacity(CHUNK_BYTES)
    }

    /// Returns an empty buffer with room for `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> BytesMut {
        let Some(class) = class_of(length) else {
            self.allocations += 1;
            return BytesMut::with_capacity(length);
        };
        let bytes = class_bytes(class);
        for _ in 0..LOOKS.min(self.classes[class].len()) {
            let Some(mut buffer) = self.classes[class].pop_front() else { break };
            if buffer.try_reclaim(bytes) {
                return buffer;
            }
            self.classes[class].push_back(buffer);
        }
        self.allocations += 1;
        BytesMut::with_capacity(bytes)
    }

    /// Returns a buffer's content, and keeps a handle to the buffer's memory. The second result is a handle
    /// that was evicted. The caller should drop it in a place where a slow drop is acceptable.
    pub(crate) fn finish(&mut self, mut buffer: BytesMut) -> (Bytes, Option<BytesMut>) {
        let message = buffer.split();
        let evicted = self.keep(buffer, message.len());
        (message.freeze(), evicted)
    }

    /// Takes back a buffer whose content is not needed. For the result, see [`Pool::finish`].
    ///
    /// The buffer's pages are returned to the system. Otherwise a peer that begins large messages and
    /// abandons them would leave pages in every buffer. Allocators that cache freed buffers do not return
    /// their pages.
    pub(crate) fn give_back(&mut self, mut buffer: BytesMut) -> Option<BytesMut> {
        buffer.clear();
        pages::release(buffer.spare_capacity_mut());
        self.keep(buffer, 0)
    }

    /// Keeps an empty handle to a buffer from which `used` bytes were handed out.
    fn keep(&mut self, buffer: BytesMut, used: usize) -> Option<BytesMut> {
        let bytes = used + buffer.capacity();
        let Some(class) = class_of(bytes).filter(|class| class_bytes(*class) == bytes) else {
            return Some(buffer);
        };
        let kept = &mut self.classes[class];
        kept.push_back(buffer);
        if kept.len() > KEPT_BUFFERS.max(KEPT_BYTES / bytes) { kept.pop_front() } else { None }
    }

    /// Forgets all buffers except the chunk from which short messages are carved. The caller should drop the
    /// returned handles in a place where a slow drop is acceptable. Messages in the buffers remain valid.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = BytesMut> {
        self.chunks.drain(..).chain(self.classes.iter_mut().flat_map(|class| class.drain(..)))
    }

    /// Returns the number of buffers allocated so far because none was free.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_its_message_is_dropped() {
        for length in [100, SMALL_BYTES, 5_000, 65_536, 1_000_000] {
            let mut pool = Pool::default();
            for _ in 0..1_000 {
                if length <= SMALL_BYTES {
                    assert_eq!(pool.copy(&vec![7; length]).len(), length);
                    continue;
                }
                let mut buffer = pool.take(length);
                assert!(buffer.is_empty() && buffer.capacity() >= length);
                buffer.resize(length, 7);
                let (message, evicted) = pool.finish(buffer);
                assert_eq!((message.len(), evicted), (length, None));
            }
            assert!(pool.allocations() <= 2, "{length}: {}", pool.allocations());
        }
    }

    #[test]
    fn a_message_that_is_kept_is_never_written_again() {
        let mut pool = Pool::default();
        let mut kept = Vec::new();
        for tag in 0..2_000_u32 {
            let bytes = tag.to_le_bytes().repeat(50);
            let long = bytes.repeat(30);
            let mut buffer = pool.take(long.len());
            buffer.extend_from_slice(&long);
            let messages = (pool.copy(&bytes), pool.finish(buffer).0);
            if tag % 3 == 0 {
                kept.push((bytes, long, messages));
            }
        }
        assert!(kept.iter().all(|(bytes, long, (short, longer))| bytes == short && long == longer));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut pool = Pool::default();
        let mut held = Vec::new();
        let mut evictions = 0;
        for round in 0..3 {
            for class in 0..CLASSES {
                for _ in 0..4_200 >> class.min(4) {
                    let mut buffer = pool.take(class_bytes(class));
                    buffer.extend_from_slice(&[round]);
                    let (message, evicted) = pool.finish(buffer);
                    evictions += usize::from(evicted.is_some());
                    held.push(message);
                }
            }
            for _ in 0..100_000 {
                held.push(pool.copy(&[1; 32]));
            }
        }
        let kept: usize =
            pool.classes.iter().enumerate().map(|(class, kept)| kept.len() * class_bytes(class)).sum();
        assert_eq!(kept, 39 << 20);
        assert!(evictions > 0 && pool.chunks.len() < CHUNKS, "{evictions} {}", pool.chunks.len());
    }

    #[test]
    fn an_abandoned_buffer_keeps_no_pages() {
        let mut pool = Pool::default();
        let mut buffer = pool.take(1_000_000);
        buffer.resize(1_000_000, 7);
        assert!(pages::resident(buffer.spare_capacity_mut()) < 20);
        assert_eq!(pool.give_back(buffer), None);
        let mut buffer = pool.take(1_000_000);
        assert_eq!((pool.allocations(), pages::resident(buffer.spare_capacity_mut())), (1, 0));
    }

    #[test]
    fn an_abandoned_buffer_comes_back_empty_and_an_odd_one_not_at_all() {
        let mut pool = Pool::default();
        let mut buffer = pool.take(9_000);
        buffer.extend_from_slice(&[1; 9_000]);
        assert_eq!(pool.give_back(buffer), None);
        assert!(pool.take(16_000).is_empty());
        assert_eq!(pool.allocations(), 1);
        assert!(pool.give_back(BytesMut::with_capacity(10_000)).is_some());
        let beyond = pool.take(3 << 20);
        assert!(beyond.capacity() >= 3 << 20);
        assert!(pool.give_back(beyond).is_some());
    }
}
