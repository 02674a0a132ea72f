//! Outgoing messages that are sent from the application's memory, and copied only in idle time.
//!
//! A call that must not read the application's bytes after it returns has to copy them, since packets may be
//! lost and then have to be resent. If the copy is made before anything is sent, only the sender's processor
//! is busy during the copy, and copying a megabyte takes longer than sending it.
//!
//! Therefore packets are sent from the application's memory during the call, and the copy is made whenever
//! nothing can be sent. If the peer turns out to have the whole message before the copy is complete, as shown
//! by the first byte of a response, the rest of the copy is skipped. All of this happens under the host's
//! lock, which the caller holds until the end, so no other thread sees a partly copied message. If other
//! threads already wait for the lock, the message is copied before it is sent. If another thread starts
//! waiting later, the rest is copied at once.

use bytes::{Bytes, BytesMut};
use homa_proto::RpcKey;

/// Number of bytes copied between two drive rounds. A packet that arrives in the meantime waits for about as
/// long as a few rounds take.
const CHUNK_BYTES: usize = 16 << 10;

/// A message as passed from the sender to the engine.
pub(crate) enum Outgoing {
    /// Bytes that the host owns from now on.
    Whole(Bytes),
    /// Pieces that must be copied.
    GatherList(GatherList),
}

/// A piece of a message in the caller's memory.
struct BorrowedSlice {
    /// Offset of the piece in the message.
    offset: usize,
    start: *const u8,
    length: usize,
}

/// The pieces of a message, in order.
pub(crate) struct GatherList {
    all: Vec<BorrowedSlice>,
    length: usize,
}

// SAFETY: only the holder of the host's lock reads the memory, and the caller that lent the memory holds that
// lock.
unsafe impl Send for GatherList {}

impl GatherList {
    /// # Safety
    /// The pieces must outlive this value and the [`DeferredCopy`] that is made from it, which ends with
    /// [`copy_and_send`](crate::runtime::copy_and_send).
    pub(crate) unsafe fn new(pieces: &[&[u8]]) -> GatherList {
        let mut length = 0;
        let present = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| {
            let offset = length;
            length += piece.len();
            BorrowedSlice { offset, start: piece.as_ptr(), length: piece.len() }
        });
        GatherList { all: present.collect(), length }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the rest of the piece that contains offset `start` of the message, from that offset on; empty
    /// at the message's end.
    fn from(&self, start: usize) -> &[u8] {
        let at = self.all.partition_point(|piece| piece.offset <= start).wrapping_sub(1);
        let Some(piece) = self.all.get(at).filter(|_| start < self.length) else { return &[] };
        let within = start - piece.offset;
        // SAFETY: the caller of `new` guaranteed that the piece outlives `self`, and this is a part of the
        // piece.
        unsafe { std::slice::from_raw_parts(piece.start.add(within), piece.length - within) }
    }

    /// Extends `buffer`, which holds the beginning of the message, up to offset `end`.
    fn copy_to(&self, buffer: &mut BytesMut, end: usize) {
        while buffer.len() < end {
            let piece = self.from(buffer.len());
            if piece.is_empty() {
                return;
            }
            let part = piece.len().min(end - buffer.len());
            buffer.extend_from_slice(&piece[..part]);
        }
    }
}

impl Outgoing {
    pub(crate) fn len(&self) -> usize {
        match self {
            Outgoing::Whole(bytes) => bytes.len(),
            Outgoing::GatherList(pieces) => pieces.length,
        }
    }
}

/// A partly copied message in its sender's memory.
pub(crate) struct DeferredCopy {
    pub(crate) rpc: RpcKey,
    pieces: GatherList,
    buffer: BytesMut,
}

impl DeferredCopy {
    pub(crate) fn new(rpc: RpcKey, pieces: GatherList, buffer: BytesMut) -> DeferredCopy {
        DeferredCopy { rpc, pieces, buffer }
    }

    /// Returns the length of the whole message in bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces.length
    }

    /// Ensures that these bytes are contiguous.
    pub(crate) fn provide(&mut self, start: usize, end: usize) {
        if self.get(start, end).is_none() {
            self.pieces.copy_to(&mut self.buffer, end);
        }
    }

    /// Copies one more chunk; returns whether there is more to copy.
    pub(crate) fn copy_more(&mut self) -> bool {
        let end = self.buffer.len() + CHUNK_BYTES;
        self.pieces.copy_to(&mut self.buffer, end);
        self.buffer.len() < self.pieces.length
    }

    /// Returns this range of the message if its bytes are contiguous, either in the sender's memory or in the
    /// copy.
    pub(crate) fn get(&self, start: usize, end: usize) -> Option<&[u8]> {
        self.pieces.from(start).get(..end - start).or_else(|| self.buffer.get(start..end))
    }

    /// Copies the rest.
    pub(crate) fn into_whole(mut self) -> BytesMut {
        self.pieces.copy_to(&mut self.buffer, self.pieces.length);
        self.buffer
    }

    /// Returns the buffer of a copy that is not needed.
    pub(crate) fn into_buffer(self) -> BytesMut {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RPC: RpcKey = RpcKey { slot: 0, generation: 0 };

    fn copying(pieces: &[&[u8]]) -> DeferredCopy {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        // SAFETY: the tests' pieces are constants.
        DeferredCopy::new(RPC, unsafe { GatherList::new(pieces) }, BytesMut::with_capacity(length))
    }

    #[test]
    fn bytes_are_read_where_they_lie_and_copied_where_they_lie_apart() {
        let (first, rest): (&[u8], &[u8]) = (b"abcd", b"efgh");
        let mut copying = copying(&[&[], first, &[], rest]);
        assert_eq!(copying.get(1, 4).map(<[u8]>::as_ptr), Some(&raw const first[1]));
        assert_eq!(copying.get(4, 8).map(<[u8]>::as_ptr), Some(rest.as_ptr()));
        assert_eq!(copying.get(3, 5), None);
        assert_eq!(copying.get(7, 9), None);
        copying.provide(0, 4);
        assert!(copying.buffer.is_empty(), "nothing was to be copied for it");
        copying.provide(3, 5);
        assert_eq!((copying.get(3, 5), copying.buffer.len()), (Some(&b"de"[..]), 5));
        assert_eq!(copying.get(8, 8), Some(&[][..]));
        assert!(!copying.copy_more());
        assert_eq!(copying.into_whole(), b"abcdefgh"[..]);
    }

    #[test]
    fn a_copy_is_made_in_parts() {
        let bytes = vec![7; 2 * CHUNK_BYTES];
        let mut copying = copying(&[&bytes[..CHUNK_BYTES + 1], &bytes[CHUNK_BYTES + 1..]]);
        assert!(copying.copy_more());
        assert_eq!(copying.buffer.len(), CHUNK_BYTES);
        assert_eq!(copying.into_whole(), bytes, "what is left is copied in the end");
    }
}
