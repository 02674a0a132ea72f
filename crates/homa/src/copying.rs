//! Outgoing messages that are copied while they are sent.
//!
//! Who must have the application's bytes back when a call returns copies them. Done before anything is sent, that is time in which nobody
//! works but one processor; a megabyte takes it longer than to send. So a part is copied when its packets are due, and the rest
//! between drive rounds, while the peer receives what went before. All of it happens under the host's lock, which the caller holds until
//! the last byte is copied: nobody else sees a message that is not whole. Where others wait for the lock it is copied before.

use bytes::{Bytes, BytesMut};
use homa_proto::RpcKey;

use crate::buffers::Buffers;
use crate::core::Core;
use crate::shared::Shared;

/// Least message that is copied while it is sent: what is shorter is sent at once, or nearly so.
const LEAST_BYTES: usize = 128 << 10;

/// Largest such message: the lock of the host is held for all of it.
const MOST_BYTES: usize = 4 << 20;

/// Bytes copied between two drive rounds: about what goes in a burst.
const CHUNK_BYTES: usize = 64 << 10;

/// A message as its sender hands it over.
pub(crate) enum Outgoing {
    /// The host's from now on.
    Whole(Bytes),
    /// To be copied.
    Pieces(Pieces),
}

/// The pieces of a message in memory of the caller's, one behind the other.
pub(crate) struct Pieces {
    left: Vec<(*const u8, usize)>,
    length: usize,
}

// SAFETY: the memory is read by whoever has the host's lock, while the caller who has lent it holds that lock.
unsafe impl Send for Pieces {}

impl Pieces {
    /// # Safety
    /// The pieces outlive what is made here, and what that becomes in [`Buffers`], which [`copy_and_send`] ends.
    unsafe fn new(pieces: &[&[u8]]) -> Pieces {
        let left = pieces.iter().rev().filter(|piece| !piece.is_empty());
        Pieces {
            left: left.map(|piece| (piece.as_ptr(), piece.len())).collect(),
            length: pieces.iter().map(|piece| piece.len()).sum(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Appends up to `bytes` more of the message.
    fn copy_to(&mut self, buffer: &mut BytesMut, mut bytes: usize) {
        while bytes > 0
            && let Some((start, length)) = self.left.pop()
        {
            let part = length.min(bytes);
            // SAFETY: the caller of `new` has promised that the piece is there, and this is its beginning.
            buffer.extend_from_slice(unsafe { std::slice::from_raw_parts(start, part) });
            if part < length {
                // SAFETY: within the piece.
                self.left.push((unsafe { start.add(part) }, length - part));
            }
            bytes -= part;
        }
    }
}

impl Outgoing {
    pub(crate) fn len(&self) -> usize {
        match self {
            Outgoing::Whole(bytes) => bytes.len(),
            Outgoing::Pieces(pieces) => pieces.length,
        }
    }
}

/// A message of which a part is copied.
pub(crate) struct Copying {
    pub(crate) rpc: RpcKey,
    pieces: Pieces,
    buffer: BytesMut,
}

impl Copying {
    pub(crate) fn new(rpc: RpcKey, pieces: Pieces, buffer: BytesMut) -> Copying {
        Copying { rpc, pieces, buffer }
    }

    /// Bytes of the whole message.
    pub(crate) fn len(&self) -> usize {
        self.pieces.length
    }

    /// Sees that everything before `end` is there.
    pub(crate) fn provide(&mut self, end: usize) {
        let missing = end.saturating_sub(self.buffer.len());
        self.pieces.copy_to(&mut self.buffer, missing);
    }

    /// Copies a part more; whether there is another.
    fn copy_more(&mut self) -> bool {
        self.pieces.copy_to(&mut self.buffer, CHUNK_BYTES);
        self.buffer.len() < self.pieces.length
    }

    pub(crate) fn get(&self, start: usize, end: usize) -> Option<&[u8]> {
        self.buffer.get(start..end)
    }

    /// Copies what is left.
    pub(crate) fn into_whole(mut self) -> BytesMut {
        self.provide(self.pieces.length);
        self.buffer
    }
}

/// Ends the copying, also where a panic ends this.
struct Finish<'a>(&'a mut Core);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.buffers.finish_copying();
    }
}

/// Whether these pieces are better copied while they are sent than before.
pub(crate) fn is_worth_it(shared: &Shared, pieces: &[&[u8]]) -> bool {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    (LEAST_BYTES..=MOST_BYTES).contains(&length) && shared.lock().waiting.is_idle()
}

/// Hands pieces to `begin`, which begins to send them, and copies them while the network is driven. Nothing of them is used any more when this
/// returns.
pub(crate) fn copy_and_send<T>(
    shared: &Shared,
    core: &mut Core,
    pieces: &[&[u8]],
    begin: impl FnOnce(&mut Core, Outgoing) -> T,
) -> T {
    let finish = Finish(core);
    // SAFETY: `finish` ends the use of the pieces before they can end.
    let begun = begin(finish.0, Outgoing::Pieces(unsafe { Pieces::new(pieces) }));
    while finish.0.buffers.copy_more() {
        finish.0.drive(shared.now());
    }
    begun
}

impl Buffers {
    fn copy_more(&mut self) -> bool {
        self.copying.as_mut().is_some_and(Copying::copy_more)
    }
}
