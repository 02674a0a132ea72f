//! Outgoing messages that are sent from the application's memory, and copied only in idle time.
//!
//! A call that must not read the application's bytes after it returns has to copy them: packets may be lost,
//! and are resent later. If the copy is made before anything is sent, only one processor works in that time;
//! copying a megabyte takes that processor longer than sending it.
//!
//! So packets are sent from the application's memory while the call lasts, and the copy is made when nothing
//! can be sent. If the peer turns out to have the whole message meanwhile, as the first byte of a response
//! shows, the rest of the copy is skipped. All of this happens under the host's lock, which the caller holds
//! until the end: no other thread sees a message that is not whole. If other threads wait for the lock, the
//! message is copied before it is sent, or at once when such a thread arrives.

use bytes::{Bytes, BytesMut};
use homa_proto::RpcKey;

use crate::payload::buffers::Buffers;
use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::SharedEngine;

/// Minimum length of a message that is copied while it is sent: copying a shorter one takes as long as one
/// poll for packets.
const LEAST_BYTES: usize = 16 << 10;

/// Maximum length of such a message: the lock of the host is held for all of it.
const MOST_BYTES: usize = 4 << 20;

/// Bytes copied between two drive rounds: a packet that comes meanwhile waits for as long as a few rounds
/// take.
const CHUNK_BYTES: usize = 16 << 10;

/// A message as the sender passes it to the engine.
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

// SAFETY: the memory is only read by the holder of the host's lock, while the caller that lent it holds that
// lock.
unsafe impl Send for GatherList {}

impl GatherList {
    /// # Safety
    /// The pieces must outlive this value, and the [`DeferredCopy`] in [`Buffers`] that it becomes, which
    /// [`copy_and_send`] ends.
    unsafe fn new(pieces: &[&[u8]]) -> GatherList {
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

    /// The bytes of one piece from offset `start` of the message on; empty after the message's end.
    fn from(&self, start: usize) -> &[u8] {
        let at = self.all.partition_point(|piece| piece.offset <= start).wrapping_sub(1);
        let Some(piece) = self.all.get(at).filter(|_| start < self.length) else { return &[] };
        let within = start - piece.offset;
        // SAFETY: the caller of `new` has promised that the piece outlives `self`, and this is a part of the
        // piece.
        unsafe { std::slice::from_raw_parts(piece.start.add(within), piece.length - within) }
    }

    /// Appends the next bytes of the message to `buffer`, which holds its beginning, up to offset `end`.
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

/// A message in its sender's memory, of which a part has been copied.
pub(crate) struct DeferredCopy {
    pub(crate) rpc: RpcKey,
    pieces: GatherList,
    buffer: BytesMut,
}

impl DeferredCopy {
    pub(crate) fn new(rpc: RpcKey, pieces: GatherList, buffer: BytesMut) -> DeferredCopy {
        DeferredCopy { rpc, pieces, buffer }
    }

    /// Bytes of the whole message.
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
    fn copy_more(&mut self) -> bool {
        let end = self.buffer.len() + CHUNK_BYTES;
        self.pieces.copy_to(&mut self.buffer, end);
        self.buffer.len() < self.pieces.length
    }

    /// Bytes that are contiguous, in the sender's memory or in the copy.
    pub(crate) fn get(&self, start: usize, end: usize) -> Option<&[u8]> {
        self.pieces.from(start).get(..end - start).or_else(|| self.buffer.get(start..end))
    }

    /// Copies the rest.
    pub(crate) fn into_whole(mut self) -> BytesMut {
        self.pieces.copy_to(&mut self.buffer, self.pieces.length);
        self.buffer
    }

    /// The buffer of a copy that is not needed.
    pub(crate) fn into_buffer(self) -> BytesMut {
        self.buffer
    }
}

/// Ends the copying on drop, even after a panic.
struct CopyGuard<'a>(&'a mut Engine);

impl Drop for CopyGuard<'_> {
    fn drop(&mut self) {
        self.0.buffers.finish_copying();
    }
}

/// Whether to copy these pieces while they are sent, rather than before.
pub(crate) fn is_worth_it(shared: &SharedEngine, pieces: &[&[u8]]) -> bool {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    (LEAST_BYTES..=MOST_BYTES).contains(&length) && !shared.is_wanted() && shared.lock().waiting.is_idle()
}

/// Hands pieces to `begin`, which begins to send them, and drives the network while packets may be taken out
/// of them. The pieces are no longer used when this returns.
pub(crate) fn copy_and_send<T>(
    shared: &SharedEngine,
    engine: &mut Engine,
    pieces: &[&[u8]],
    begin: impl FnOnce(&mut Engine, Outgoing) -> T,
) -> T {
    let finish = CopyGuard(engine);
    // SAFETY: `finish` ends the use of the pieces before they can end.
    let begun = begin(finish.0, Outgoing::GatherList(unsafe { GatherList::new(pieces) }));
    let mut sent = 0;
    while let Some(before) = finish.0.sent_of_copying() {
        // A round that has sent packets may be followed by more packets; the copy continues only if it is
        // not.
        let goes_on = std::mem::replace(&mut sent, before) < before;
        if shared.is_wanted() || !goes_on && !finish.0.buffers.copy_more() {
            break;
        }
        finish.0.drive(shared.now());
    }
    begun
}

impl Engine {
    /// Bytes that have been sent of the message that is being copied. `None` if there is none any more, since
    /// the peer has all of it or the RPC is over.
    fn sent_of_copying(&mut self) -> Option<u32> {
        let rpc = self.buffers.copying.as_ref()?.rpc;
        let info = self.endpoint.rpc_info(rpc)?;
        let answered = info.in_missing < info.in_length && self.buffers.call_of(rpc).is_some();
        if answered {
            // RECV-8: no part of the request will be requested again.
            self.buffers.drop_copying();
            return None;
        }
        Some(info.out_sent)
    }
}

impl Buffers {
    fn copy_more(&mut self) -> bool {
        self.copying.as_mut().is_some_and(DeferredCopy::copy_more)
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::{PayloadRange, Time};

    use super::*;
    use crate::api::address::ServerAddr;
    use crate::runtime::drive::tests::engine;
    use crate::runtime::engine::{CallOwner, CallTicket};

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

    /// Starts a call of half a megabyte to a host that has not received yet, and copies a part of it.
    fn begun(client: &mut Engine, server: &Engine, bytes: &'static [u8]) -> RpcKey {
        let to = ServerAddr::new(server.driver.local_addr(), 9);
        let port = client.open_client(Time::ZERO, None).unwrap();
        let port = (client.clients[port].port, true);
        // SAFETY: the bytes are static.
        let request = Outgoing::GatherList(unsafe { GatherList::new(&[bytes]) });
        let owner = CallOwner::CallTicket(CallTicket::default());
        let call = client.start_call_from(Time::ZERO, port, to, request, owner, 0).unwrap();
        client.flush(Time::ZERO);
        assert!(client.buffers.copy_more());
        client.calls[call].rpc
    }

    #[test]
    fn what_the_peer_has_is_not_copied_to_the_end() {
        static BYTES: [u8; 500_000] = [3; 500_000];
        let (mut client, mut server) = (engine(), engine());
        server.endpoint.open_port(9).unwrap();
        let rpc = begun(&mut client, &server, &BYTES);
        assert!(client.sent_of_copying().is_some_and(|sent| 0 < sent && sent < 500_000));
        let answer = Bytes::from_static(&BYTES);
        // Time advances, so that RESENDs are sent for packets that a full queue dropped.
        let mut rounds = (1..100_000).map(|round| Time::from_ns(round * 20_000));
        let request = rounds.find_map(|now| {
            client.drive(now);
            server.receive(now);
            server.endpoint.handle_timeout(now);
            server.transmit_round(now);
            match server.endpoint.poll_event() {
                Some(homa_proto::Event::Request { rpc, .. }) => Some(rpc),
                _ => None,
            }
        });
        let (request, now) = (request.expect("it comes whole"), rounds.next().unwrap());
        assert_eq!(client.sent_of_copying(), Some(500_000), "it may have to be sent again");
        server.endpoint.send_response(now, request, answer.len() as u32).unwrap();
        server.buffers.set_outgoing(request, Outgoing::Whole(answer));
        server.flush(now);
        let begins = rounds.any(|now| {
            client.drive(now);
            client.endpoint.rpc_info(rpc).is_some_and(|info| info.in_length > 0)
        });
        assert!(begins, "its first packet comes");
        assert_eq!(client.sent_of_copying(), None);
        assert!(client.buffers.copying.is_none());
        let range = PayloadRange { rpc, offset: 0, len: 1 };
        assert_eq!((client.buffers.outgoing(&range), client.buffers.outgoing_bytes()), (None, 0));
        client.buffers.finish_copying();
        client.buffers.release(rpc);
        assert_eq!(client.buffers.outgoing_bytes(), 0);
    }

    #[test]
    fn a_call_that_ends_takes_its_copy_along() {
        static BYTES: [u8; 500_000] = [4; 500_000];
        let (mut client, server) = (engine(), engine());
        let rpc = begun(&mut client, &server, &BYTES);
        client.endpoint.abort(Time::ZERO, rpc);
        assert_eq!(client.sent_of_copying(), None);
        client.flush(Time::ZERO);
        assert!(client.buffers.copying.is_none());
        assert_eq!(client.buffers.outgoing_bytes(), 0);
    }
}
