//! Receives large messages directly into their own memory.
//!
//! While a large message arrives, its next packet most likely follows the previous packet. The driver
//! therefore receives into the next position of the message's memory, so that the kernel's copy is the only
//! one. A second copy of a large message would keep the receiver's core busy for half as long again. If the
//! guess is wrong, the payload is copied from that position to the correct one.

use bytes::Bytes;
use homa_proto::{Reassembly, RpcKey, wire};

use crate::payload::buffers::Buffers;
use crate::payload::incoming::{DirectReceive, Incoming};
use crate::payload::memory::Memory;

const _: () = assert!(homa_driver::IN_PLACE_HEADER_BYTES == wire::DATA_HEADER_LEN);

/// Minimum payload of a packet for the next packet to be expected right after it. Smaller packets are
/// received several at a time, and copying them from the cache costs less than receiving them one by one.
const MIN_BYTES: usize = 16 << 10;

impl Buffers {
    /// Records that `bytes` more bytes of a message arrived in order, and whether more are to come.
    pub(crate) fn expect(&mut self, rpc: RpcKey, bytes: usize, more: bool) {
        self.expected = (more && bytes >= MIN_BYTES).then_some(rpc);
    }

    /// Takes the memory of the message whose next packet is expected, if any.
    pub(crate) fn take_expected(&mut self) -> Option<DirectReceive> {
        let rpc = self.expected.take()?;
        let Some(Incoming::Partial { memory, length }) = self.incoming_mut(rpc) else { return None };
        Some(DirectReceive { rpc, length: *length, memory: std::mem::take(memory), packet: None })
    }

    /// Sets a message's memory aside while a packet is processed whose payload was received there: its
    /// `payload` bytes were written after the end of the bytes in that memory. `offset` is the packet's
    /// offset in its own message. The caller must call [`Buffers::release_held`] afterwards.
    pub(crate) fn hold_in_place(&mut self, mut in_place: DirectReceive, offset: u32, payload: usize) {
        in_place.packet = Some((offset, payload));
        self.in_place = Some(in_place);
    }

    /// Returns the number of payload bytes that were received in place and are held; 0 if there are none.
    pub(crate) fn payload_in_place(&self) -> usize {
        self.in_place.as_ref().and_then(|in_place| in_place.packet).map_or(0, |(_, payload)| payload)
    }

    /// Returns the memory to its message in the table.
    pub(crate) fn give_back(&mut self, in_place: DirectReceive) {
        if let Some(Incoming::Partial { memory, .. }) = self.incoming_mut(in_place.rpc) {
            *memory = in_place.memory;
        } else if let Memory::Lent { lent, .. } = in_place.memory {
            self.free_later(Bytes::from_owner(lent));
        }
    }

    /// Like [`Buffers::give_back`], for the memory that was set aside.
    pub(crate) fn release_held(&mut self) {
        if let Some(in_place) = self.in_place.take() {
            self.give_back(in_place);
        }
    }

    /// Adds part of a packet whose payload was received in place. `message_length`, `offset` and `len` are as
    /// in [`Reassembly::write`].
    pub(crate) fn write_received(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32) {
        let Some(mut in_place) = self.in_place.take() else { return };
        let Some((at, payload)) = in_place.packet else { return };
        let end = in_place.memory.len();
        let part = (offset - at) as usize..(offset - at + len) as usize;
        assert!(part.end <= payload, "the endpoint writes a packet's own bytes");
        if rpc == in_place.rpc && offset as usize == end && offset == at {
            // SAFETY: `payload` bytes after the end were written (`hold_in_place`), and `len` is no larger.
            unsafe { in_place.memory.advance(len as usize) };
            self.in_place = Some(in_place);
            self.expect(rpc, len as usize, offset + len < message_length);
            return;
        }
        // SAFETY: these bytes were written (`hold_in_place`) under the lock, which the caller has held ever
        // since.
        let received = unsafe { in_place.memory.written(payload) };
        if rpc != in_place.rpc {
            self.write(rpc, message_length, offset, len, &received[part]);
            self.in_place = Some(in_place);
            return;
        }
        // The source and the destination are the same memory and overlap, so copy the part out first.
        let copy = received[part].to_vec();
        self.give_back(in_place);
        self.write(rpc, message_length, offset, len, &copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RpcKey = RpcKey { slot: 0, generation: 0 };
    const B: RpcKey = RpcKey { slot: 1, generation: 0 };
    const PACKET: usize = 20_000;
    const LENGTH: u32 = 100_000;

    fn bytes(offset: usize, len: usize) -> Vec<u8> {
        (offset..offset + len).map(|i| (i / 7) as u8 ^ i as u8).collect()
    }

    /// Message A after its first packet, with `received` already written where the next packet's payload
    /// belongs.
    fn expecting(received: &[u8]) -> (Buffers, DirectReceive) {
        let mut buffers = Buffers::default();
        buffers.write(A, LENGTH, 0, PACKET as u32, &bytes(0, PACKET));
        let mut in_place = buffers.take_expected().expect("the next packet is expected");
        assert_eq!(in_place.place().len(), LENGTH as usize - PACKET);
        for (place, byte) in in_place.place().iter_mut().zip(received) {
            place.write(*byte);
        }
        (buffers, in_place)
    }

    fn finish(mut buffers: Buffers, from: usize) {
        for offset in (from..LENGTH as usize).step_by(PACKET) {
            buffers.write(A, LENGTH, offset as u32, PACKET as u32, &bytes(offset, PACKET));
        }
        assert!(buffers.take_incoming(A) == bytes(0, LENGTH as usize));
    }

    #[test]
    fn what_was_expected_stays_where_it_is() {
        let (mut buffers, in_place) = expecting(&bytes(PACKET, PACKET));
        buffers.hold_in_place(in_place, PACKET as u32, PACKET);
        buffers.write(A, LENGTH, PACKET as u32, PACKET as u32, &[]);
        buffers.release_held();
        assert!(buffers.take_expected().is_some_and(|in_place| {
            buffers.give_back(in_place);
            true
        }));
        finish(buffers, 2 * PACKET);
    }

    #[test]
    fn another_messages_packet_goes_to_its_own() {
        let (mut buffers, in_place) = expecting(&bytes(0, PACKET));
        buffers.hold_in_place(in_place, 0, PACKET);
        buffers.write(B, PACKET as u32, 0, PACKET as u32, &[]);
        buffers.release_held();
        assert!(buffers.take_incoming(B) == bytes(0, PACKET));
        finish(buffers, PACKET);
    }

    #[test]
    fn a_packet_from_further_on_leaves_its_gap() {
        let (mut buffers, in_place) = expecting(&bytes(3 * PACKET, PACKET));
        buffers.hold_in_place(in_place, 3 * PACKET as u32, PACKET);
        buffers.write(A, LENGTH, 3 * PACKET as u32, PACKET as u32, &[]);
        buffers.release_held();
        for offset in [PACKET, 2 * PACKET, 4 * PACKET] {
            buffers.write(A, LENGTH, offset as u32, PACKET as u32, &bytes(offset, PACKET));
        }
        assert!(buffers.take_incoming(A) == bytes(0, LENGTH as usize));
    }

    #[test]
    fn a_part_of_a_packet_goes_where_it_belongs_and_a_dropped_one_nowhere() {
        // The first half of the packet's bytes has already arrived.
        let (mut buffers, in_place) = expecting(&bytes(PACKET / 2, PACKET));
        buffers.hold_in_place(in_place, (PACKET / 2) as u32, PACKET);
        buffers.write(A, LENGTH, PACKET as u32, (PACKET / 2) as u32, &[]);
        buffers.release_held();
        let rest = bytes(PACKET / 2 * 3, PACKET / 2);
        buffers.write(A, LENGTH, (PACKET / 2 * 3) as u32, rest.len() as u32, &rest);
        finish(buffers, 2 * PACKET);

        let (mut buffers, in_place) = expecting(&[9; PACKET]);
        buffers.hold_in_place(in_place, 0, PACKET);
        buffers.release_held();
        finish(buffers, PACKET);
    }

    #[test]
    fn a_message_that_is_given_up_meanwhile_takes_its_memory_along() {
        let (mut buffers, in_place) = expecting(&[1; PACKET]);
        buffers.hold_in_place(in_place, PACKET as u32, PACKET);
        buffers.release(A);
        buffers.release_held();
        assert_eq!((buffers.incoming_bytes(), buffers.incoming_len(A)), (0, 0));
        buffers.write(B, PACKET as u32, 0, PACKET as u32, &bytes(0, PACKET));
        assert!(buffers.take_expected().is_none());
    }
}
