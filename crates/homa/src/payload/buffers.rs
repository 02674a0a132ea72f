//! Payload of messages, stored next to the endpoint's table of RPCs: the endpoint itself stores no payload.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use foldhash::fast::FixedState;
use homa_proto::{PayloadRange, Reassembly, RpcKey, Time};

use crate::payload::deferred_copy::{DeferredCopy, Outgoing};
use crate::payload::incoming::{DirectReceive, Incoming};
use crate::payload::memory::{Memory, MessageMemory};
use crate::payload::pool::{self, Pool};

/// The role of an RPC for this host's application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// There is no RPC, or its request has not arrived completely.
    #[default]
    None,
    /// A call of this host's application.
    Call,
    /// A request that waits in the queue of this server.
    QueuedRequest { server: usize },
    /// A request in the queue of this server that has not arrived completely.
    QueuedEarly { server: usize },
    /// A request that this server's application is reading while it is still arriving.
    Reading { server: usize },
    /// A request that this server's application has taken but not answered.
    Delivered { server: usize },
    /// A request that this server's application has answered.
    Responding { server: usize },
}

impl Role {
    /// Returns whether the request waits in the queue of this server.
    pub(crate) fn is_queued_at(self, server: usize) -> bool {
        self == Role::QueuedRequest { server } || self == Role::QueuedEarly { server }
    }
}

/// The payload and state of one RPC.
#[derive(Debug, Default)]
struct RpcPayload {
    role: Role,
    /// Index of the call or of the request that is being read; meaningful only in the roles `Call` and
    /// `Reading`.
    call: usize,
    outgoing: Bytes,
    incoming: Incoming,
    /// When the last missing part of the request arrived, and the length of the request in bytes. Used for
    /// [`Metrics::answer_times`](crate::metrics::Metrics::answer_times).
    whole: (Time, u32),
}

impl RpcPayload {
    fn is_empty(&self) -> bool {
        self.role == Role::None && self.incoming.len() == 0
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    payload: RpcPayload,
}

/// A buffer that waits to be freed, and the cost of freeing it.
#[derive(Debug)]
struct DeferredFree {
    bytes: Bytes,
    cost: usize,
}

/// The payloads of all open RPCs.
#[derive(Default)]
pub(crate) struct Buffers {
    slots: Vec<Slot>,
    /// Ended RPCs whose slot was reused by a later packet of the same burst before the event for their end
    /// was polled. Empty between drive calls.
    displaced: VecDeque<(RpcKey, RpcPayload)>,
    /// Buffers of ended RPCs, freed outside the lock, a bounded number at a time: the kernel takes tens of
    /// microseconds to free a megabyte, and the owner of a `Bytes` may run the application's own code.
    deferred_frees: VecDeque<DeferredFree>,
    pool: Pool,
    /// The message to which the next packet most likely belongs, see
    /// [`direct_receive`](crate::payload::direct_receive).
    pub(crate) expected: Option<RpcKey>,
    /// The memory of the expected message, while a packet that was received into it is processed.
    pub(crate) in_place: Option<DirectReceive>,
    /// The outgoing message that is only partly copied. `None` whenever the lock is free.
    pub(crate) copying: Option<DeferredCopy>,
    /// Lenders of memory for the messages that arrive at a port, by port.
    memories: HashMap<u16, Arc<dyn MessageMemory>, FixedState>,
    outgoing_bytes: u64,
    incoming_bytes: u64,
}

/// Minimum length of a message for which memory is borrowed. Borrowing and returning memory takes as long as
/// copying a few kilobytes.
const MIN_LENT_BYTES: usize = 8 << 10;

/// Minimum size of a buffer whose freeing costs a system call.
const LARGE_BYTES: usize = 64 << 10;
/// Cost of freeing a large buffer, relative to 1 for a small one. Measured: 19 to 52 us for a megabyte, 0.1
/// us for a small buffer.
const LARGE_COST: usize = 256;
/// Maximum total cost of the buffers freed at a time: one large buffer or 256 small ones. It is small because
/// the next packet may have to wait until they are freed.
const FREE_BUDGET: usize = LARGE_COST;
/// The budget is increased by `FREE_BUDGET` for every this many buffers that wait to be freed.
const MANY_FREES: usize = 64;

impl Buffers {
    fn payload_mut(&mut self, rpc: RpcKey) -> Option<&mut RpcPayload> {
        let index = rpc.slot as usize;
        if self.slots.get(index).is_some_and(|slot| slot.generation == rpc.generation) {
            return Some(&mut self.slots[index].payload);
        }
        self.displaced.iter_mut().find(|(key, _)| *key == rpc).map(|(_, payload)| payload)
    }

    fn payload(&self, rpc: RpcKey) -> Option<&RpcPayload> {
        match self.slots.get(rpc.slot as usize) {
            Some(slot) if slot.generation == rpc.generation => Some(&slot.payload),
            _ => self.displaced.iter().find(|(key, _)| *key == rpc).map(|(_, payload)| payload),
        }
    }

    /// Releases the memory of unused slots beyond the first `room`, which were used only during a peak.
    pub(crate) fn resize(&mut self, room: usize) {
        if self.slots.len() <= room {
            return;
        }
        while self.slots.len() > room && self.slots.last().is_some_and(|slot| slot.payload.is_empty()) {
            self.slots.pop();
        }
        self.slots.shrink_to(room);
        self.displaced.shrink_to(room);
        self.deferred_frees.shrink_to(room);
    }

    /// Queues the buffers kept for later messages to be freed.
    pub(crate) fn drain_pool(&mut self) {
        let kept = self.pool.drain().map(|buffer| DeferredFree { bytes: buffer.freeze(), cost: LARGE_COST });
        self.deferred_frees.extend(kept);
    }

    /// Returns the slot of `rpc`, taking it over from an earlier RPC if necessary.
    fn claim(&mut self, rpc: RpcKey) -> &mut RpcPayload {
        let index = rpc.slot as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        if slot.generation != rpc.generation {
            let key = RpcKey { slot: rpc.slot, generation: slot.generation };
            let payload = mem::take(&mut slot.payload);
            slot.generation = rpc.generation;
            if !payload.is_empty() {
                self.displaced.push_back((key, payload));
            }
        }
        &mut self.slots[index].payload
    }

    /// Returns the received part of an RPC's message, if the RPC exists.
    pub(crate) fn incoming_mut(&mut self, rpc: RpcKey) -> Option<&mut Incoming> {
        self.payload_mut(rpc).map(|payload| &mut payload.incoming)
    }

    /// Makes messages that arrive at this port from now on use memory lent by `memory`; returns the previous
    /// lender.
    pub(crate) fn set_memory(
        &mut self,
        port: u16,
        memory: Option<Arc<dyn MessageMemory>>,
    ) -> Option<Arc<dyn MessageMemory>> {
        match memory {
            Some(memory) => self.memories.insert(port, memory),
            None => self.memories.remove(&port),
        }
    }

    /// Stores the request of a new call.
    pub(crate) fn open_call(&mut self, rpc: RpcKey, call: usize, request: Outgoing) {
        self.outgoing_bytes += request.len() as u64;
        let request = self.begin_outgoing(rpc, request);
        let payload = self.claim(rpc);
        payload.role = Role::Call;
        payload.call = call;
        payload.outgoing = request;
    }

    /// Returns the message if it is contiguous. If it must be copied, returns no bytes, and stores it as the
    /// message being copied.
    fn begin_outgoing(&mut self, rpc: RpcKey, message: Outgoing) -> Bytes {
        match message {
            Outgoing::Whole(bytes) => bytes,
            Outgoing::GatherList(pieces) => {
                let buffer = self.pool.take(pieces.len());
                self.copying = Some(DeferredCopy::new(rpc, pieces, buffer));
                Bytes::new()
            }
        }
    }

    /// Copies one more chunk of the message that is being copied; returns whether there is more to copy.
    pub(crate) fn copy_more(&mut self) -> bool {
        self.copying.as_mut().is_some_and(DeferredCopy::copy_more)
    }

    /// Copies the rest of the message that is being copied.
    pub(crate) fn finish_copying(&mut self) {
        let Some(copying) = self.copying.take() else { return };
        let rpc = copying.rpc;
        let whole = copying.into_whole();
        let message = self.finish(whole);
        if let Some(payload) = self.payload_mut(rpc) {
            payload.outgoing = message;
        }
    }

    /// Stops copying a message of which nothing more will be sent.
    pub(crate) fn drop_copying(&mut self) {
        let Some(copying) = self.copying.take() else { return };
        self.outgoing_bytes -= copying.len() as u64;
        let evicted = self.pool.give_back(copying.into_buffer());
        self.free_evicted_later(evicted);
    }

    /// Ensures that the bytes of an outgoing message that a packet carries are contiguous.
    pub(crate) fn provide(&mut self, range: &PayloadRange) {
        if let Some(copying) = self.copying.as_mut().filter(|copying| copying.rpc == range.rpc) {
            copying.provide(range.offset as usize, (range.offset + range.len) as usize);
        }
    }

    /// Returns the role of `rpc`; [`Role::None`] if the RPC is over.
    pub(crate) fn role(&self, rpc: RpcKey) -> Role {
        self.payload(rpc).map_or(Role::None, |payload| payload.role)
    }

    /// Returns the index of the call, if `rpc` is a call.
    pub(crate) fn call_of(&self, rpc: RpcKey) -> Option<usize> {
        self.payload(rpc).filter(|payload| payload.role == Role::Call).map(|payload| payload.call)
    }

    /// Returns the index of the request `rpc`, if its role is `Reading`; otherwise the result is meaningless.
    pub(crate) fn index_of(&self, rpc: RpcKey) -> usize {
        self.payload(rpc).map_or(usize::MAX, |payload| payload.call)
    }

    /// Sets the index of the request `rpc`.
    pub(crate) fn set_index(&mut self, rpc: RpcKey, index: usize) {
        if let Some(payload) = self.payload_mut(rpc) {
            payload.call = index;
        }
    }

    /// Sets the role of a server RPC.
    pub(crate) fn set_role(&mut self, rpc: RpcKey, role: Role) {
        if let Some(payload) = self.payload_mut(rpc) {
            payload.role = role;
        }
    }

    /// Records that a request of `length` bytes has arrived completely.
    pub(crate) fn note_whole(&mut self, rpc: RpcKey, now: Time, length: u32) {
        if let Some(payload) = self.payload_mut(rpc) {
            payload.whole = (now, length);
        }
    }

    /// Returns the time when a request had arrived completely, and the length of the request in bytes.
    pub(crate) fn whole(&self, rpc: RpcKey) -> (Time, u32) {
        self.payload(rpc).map_or((Time::ZERO, 0), |payload| payload.whole)
    }

    /// Stores the response to a request.
    pub(crate) fn set_outgoing(&mut self, rpc: RpcKey, response: Outgoing) {
        let length = response.len() as u64;
        let response = if self.payload(rpc).is_some() { self.begin_outgoing(rpc, response) } else { return };
        let Some(payload) = self.payload_mut(rpc) else { return };
        let before = mem::replace(&mut payload.outgoing, response);
        self.outgoing_bytes += length;
        self.outgoing_bytes -= before.len() as u64;
        self.free_later(before);
    }

    /// Copies an outgoing message. From now on it is sent from the copy.
    pub(crate) fn copy_outgoing(&mut self, rpc: RpcKey) {
        if let Some(payload) = self.payload_mut(rpc) {
            let lent = mem::take(&mut payload.outgoing);
            payload.outgoing = Bytes::copy_from_slice(&lent);
            self.free_later(lent);
        }
    }

    /// Copies every outgoing message whose bytes are in this memory. From now on each is sent from its copy.
    pub(crate) fn copy_outgoing_of(&mut self, memory: &Range<usize>) {
        let all = self.slots.iter_mut().map(|slot| &mut slot.payload);
        let mut taken_back = Vec::new();
        for payload in all.chain(self.displaced.iter_mut().map(|(_, payload)| payload)) {
            if !payload.outgoing.is_empty() && memory.contains(&(payload.outgoing.as_ptr() as usize)) {
                let copy = Bytes::copy_from_slice(&payload.outgoing);
                taken_back.push(mem::replace(&mut payload.outgoing, copy));
            }
        }
        taken_back.into_iter().for_each(|bytes| self.free_later(bytes));
    }

    /// Returns the bytes of an outgoing message that a packet carries; `None` if the RPC is over.
    pub(crate) fn outgoing(&self, range: &PayloadRange) -> Option<&[u8]> {
        let start = range.offset as usize;
        let end = start + range.len as usize;
        match &self.copying {
            Some(copying) if copying.rpc == range.rpc => copying.get(start, end),
            _ => self.payload(range.rpc)?.outgoing.get(start..end),
        }
    }

    /// Returns the length of the whole incoming message in bytes, however much of it has arrived.
    pub(crate) fn incoming_len(&self, rpc: RpcKey) -> usize {
        self.payload(rpc).map_or(0, |payload| payload.incoming.len())
    }

    /// Takes the whole incoming message.
    pub(crate) fn take_incoming(&mut self, rpc: RpcKey) -> Bytes {
        let Some(payload) = self.payload_mut(rpc) else {
            return Bytes::new();
        };
        let incoming = mem::take(&mut payload.incoming);
        self.incoming_bytes -= incoming.len() as u64;
        match incoming {
            Incoming::None => Bytes::new(),
            Incoming::Single(bytes) => bytes,
            Incoming::Partial { memory: Memory::Own(bytes), length } => self.finish(bytes.into_whole(length)),
            Incoming::Partial { memory: Memory::Lent { lent, .. }, .. } => Bytes::from_owner(lent),
        }
    }

    /// Copies a message that consists of one packet.
    fn copy(&mut self, data: &[u8]) -> Bytes {
        if data.len() <= pool::SMALL_BYTES {
            return self.pool.copy(data);
        }
        let mut buffer = self.pool.take(data.len());
        buffer.extend_from_slice(data);
        self.finish(buffer)
    }

    /// Returns the number of buffers that had to be allocated for incoming messages because none was free.
    pub(crate) fn allocations(&self) -> u64 {
        self.pool.allocations()
    }

    /// Turns a complete buffer into a message for the application.
    fn finish(&mut self, buffer: BytesMut) -> Bytes {
        let (bytes, evicted) = self.pool.finish(buffer);
        self.free_evicted_later(evicted);
        bytes
    }

    /// Returns a copy of bytes `[start, end)` of a message that is still arriving.
    pub(crate) fn copy_incoming(&self, rpc: RpcKey, start: u32, end: u32) -> Bytes {
        let range = start as usize..end as usize;
        let bytes: Option<&[u8]> = match self.payload(rpc).map(|payload| &payload.incoming) {
            Some(Incoming::Single(bytes)) => bytes.get(range),
            Some(Incoming::Partial { memory, .. }) => memory.get(range),
            _ => None,
        };
        bytes.map_or_else(Bytes::new, Bytes::copy_from_slice)
    }

    /// Ends the RPC, and queues its payload to be freed.
    pub(crate) fn release(&mut self, rpc: RpcKey) {
        // Check the slot first. In a burst that ends and begins many RPCs, there are many displaced RPCs, and
        // the RPC that ended first is at the front.
        let payload = match self.slots.get_mut(rpc.slot as usize) {
            Some(slot) if slot.generation == rpc.generation => mem::take(&mut slot.payload),
            _ => {
                let at = self.displaced.iter().position(|(key, _)| *key == rpc);
                let Some((_, payload)) = at.and_then(|at| self.displaced.remove(at)) else { return };
                payload
            }
        };
        if self.copying.as_ref().is_some_and(|copying| copying.rpc == rpc) {
            self.drop_copying();
        }
        self.outgoing_bytes -= payload.outgoing.len() as u64;
        self.incoming_bytes -= payload.incoming.len() as u64;
        self.free_later(payload.outgoing);
        match payload.incoming {
            Incoming::None => (),
            Incoming::Single(bytes) => self.free_later(bytes),
            Incoming::Partial { memory: Memory::Own(bytes), .. } => {
                let evicted = self.pool.give_back(bytes.into_buffer());
                self.free_evicted_later(evicted);
            }
            // Dropping the lender runs the application's own code.
            Incoming::Partial { memory: Memory::Lent { lent, .. }, .. } => {
                self.free_later(Bytes::from_owner(lent))
            }
        }
    }

    /// Ends all RPCs.
    pub(crate) fn release_all(&mut self) {
        for slot in 0..self.slots.len() {
            self.release(RpcKey { slot: slot as u32, generation: self.slots[slot].generation });
        }
        while let Some(&(rpc, _)) = self.displaced.front() {
            self.release(rpc);
        }
    }

    /// Queues a buffer to be freed later.
    pub(crate) fn free_later(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            let cost = if bytes.len() >= LARGE_BYTES { LARGE_COST } else { 1 };
            self.deferred_frees.push_back(DeferredFree { bytes, cost });
        }
    }

    /// Queues a handle that the pool evicted. The handle is empty, but freeing it may free a large block of
    /// memory.
    fn free_evicted_later(&mut self, evicted: Option<BytesMut>) {
        self.deferred_frees
            .extend(evicted.map(|buffer| DeferredFree { bytes: buffer.freeze(), cost: LARGE_COST }));
    }

    /// Takes the only buffer that waits to be freed, if any, for the caller to drop outside the lock. Returns
    /// an error if there are more.
    pub(crate) fn take_only_free(&mut self) -> Result<Option<Bytes>, ()> {
        if self.deferred_frees.len() > 1 {
            return Err(());
        }
        Ok(self.deferred_frees.pop_front().map(|free| free.bytes))
    }

    #[cfg(test)]
    pub(crate) fn has_deferred_frees(&self) -> bool {
        !self.deferred_frees.is_empty()
    }

    /// Moves some of the buffers that wait to be freed into `free`, for the caller to drop outside the lock.
    /// The more buffers wait, the more are moved at a time, so that they cannot pile up.
    pub(crate) fn take_frees(&mut self, free: &mut Vec<Bytes>) {
        let mut budget = FREE_BUDGET * (1 + self.deferred_frees.len() / MANY_FREES);
        while budget > 0 {
            let Some(DeferredFree { bytes, cost }) = self.deferred_frees.pop_front() else {
                return;
            };
            budget = budget.saturating_sub(cost);
            free.push(bytes);
        }
    }

    /// Returns the number of bytes of outgoing messages held for open RPCs.
    pub(crate) fn outgoing_bytes(&self) -> u64 {
        self.outgoing_bytes
    }

    /// Returns the number of bytes of incoming messages. The whole length of a message counts from its first
    /// packet until the application or a queue takes the message.
    pub(crate) fn incoming_bytes(&self) -> u64 {
        self.incoming_bytes
    }
}

impl Reassembly for Buffers {
    fn begin(&mut self, rpc: RpcKey, port: u16, message_length: u32) {
        let length = message_length as usize;
        if self.memories.is_empty() || length < MIN_LENT_BYTES {
            return;
        }
        let lent = self.memories.get(&port).and_then(|memory| memory.lend(length));
        if let Some(lent) = lent.filter(|lent| lent.as_ref().len() == length) {
            self.incoming_bytes += u64::from(message_length);
            self.claim(rpc).incoming = Incoming::Partial { memory: Memory::lent(lent), length };
        }
    }

    fn write(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32, data: &[u8]) {
        if data.is_empty() && self.in_place.is_some() {
            return self.write_received(rpc, message_length, offset, len);
        }
        let single = len == message_length && data.len() == len as usize;
        let payload = self.claim(rpc);
        if matches!(payload.incoming, Incoming::None) {
            self.incoming_bytes += u64::from(message_length);
            if single {
                let bytes = self.copy(data);
                self.claim(rpc).incoming = Incoming::Single(bytes);
                return;
            }
            let length = message_length as usize;
            let memory = Memory::own(self.pool.take(length));
            self.claim(rpc).incoming = Incoming::Partial { memory, length };
        }
        let start = offset as usize;
        let Some(RpcPayload { incoming: Incoming::Partial { memory, length }, .. }) = self.payload_mut(rpc)
        else {
            return;
        };
        // The endpoint stays within the message. A packet without payload, which exists only in simulations,
        // leaves zeros.
        if start + data.len() <= *length {
            let in_order = start == memory.len();
            memory.place(start, data);
            let more = memory.is_open_ended() && memory.len() < *length;
            self.expect(rpc, data.len(), in_order && more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RpcKey = RpcKey { slot: 3, generation: 0 };
    const B: RpcKey = RpcKey { slot: 3, generation: 1 };

    fn drained(buffers: &mut Buffers) -> usize {
        let mut free = Vec::new();
        while buffers.has_deferred_frees() {
            buffers.take_frees(&mut free);
        }
        free.len()
    }

    #[test]
    fn the_memory_of_an_abandoned_message_is_used_again() {
        let mut buffers = Buffers::default();
        let rpc = RpcKey { slot: 0, generation: 0 };
        buffers.write(rpc, 1_000_000, 0, 100, &[7; 100]);
        assert_eq!(buffers.incoming_bytes(), 1_000_000);
        buffers.release(rpc);
        assert_eq!((buffers.incoming_bytes(), buffers.has_deferred_frees()), (0, false));
        let again = buffers.pool.take(1_000_000);
        assert_eq!((again.len(), buffers.allocations()), (0, 1));
    }

    #[test]
    fn a_message_that_begins_far_within_is_whole_in_the_end() {
        let mut buffers = Buffers::default();
        let rpc = RpcKey { slot: 0, generation: 0 };
        buffers.write(rpc, 1_000, 900, 100, &[9; 100]);
        buffers.write(rpc, 1_000, 0, 900, &[1; 900]);
        let whole = buffers.take_incoming(rpc);
        assert_eq!((whole.len(), &whole[..900], &whole[900..]), (1_000, &[1; 900][..], &[9; 100][..]));
    }

    /// SHARE-1: if the first packet to arrive was from far within a message, the host used to zero all bytes
    /// before it, in memory outside the pool.
    #[test]
    fn a_packet_from_far_within_a_message_touches_no_memory_but_its_own() {
        let mut buffers = Buffers::default();
        for slot in 0..40 {
            let rpc = RpcKey { slot, generation: 0 };
            buffers.write(rpc, 1_000_000, 900_000, 1, &[9]);
            let Some(Incoming::Partial { memory, .. }) = buffers.incoming_mut(rpc) else {
                panic!("a part of the message is there");
            };
            assert_eq!(memory.len(), 0, "nothing before it is written");
            buffers.release(rpc);
        }
        assert_eq!(buffers.allocations(), 1, "the pool's memory is used, and used again");
    }

    /// SHARE-1: an incomplete message of two bytes used to occupy 4 KiB.
    #[test]
    fn a_short_message_in_parts_takes_little_memory() {
        let mut buffers = Buffers::default();
        buffers.write(A, 2, 0, 1, &[9]);
        let Some(Incoming::Partial { memory: Memory::Own(memory), .. }) = buffers.incoming_mut(A) else {
            panic!("a part of the message is there");
        };
        assert!(memory.capacity() <= 256, "{}", memory.capacity());
    }

    #[test]
    fn a_message_of_one_packet_is_that_packet() {
        let mut buffers = Buffers::default();
        buffers.write(A, 5, 0, 5, b"hello");
        assert_eq!(buffers.incoming_bytes(), 5);
        assert_eq!(buffers.take_incoming(A), "hello");
        assert_eq!(buffers.incoming_bytes(), 0);
    }

    #[test]
    fn packets_in_any_order_make_the_message() {
        let mut buffers = Buffers::default();
        buffers.write(A, 7, 5, 2, b"fg");
        buffers.write(A, 7, 0, 3, b"abc");
        assert_eq!(buffers.copy_incoming(A, 0, 3), "abc");
        assert_eq!(buffers.copy_incoming(A, 2, 9), "");
        buffers.write(A, 7, 3, 2, b"de");
        assert_eq!(buffers.take_incoming(A), "abcdefg");
    }

    #[test]
    fn outgoing_ranges_last_until_release() {
        let mut buffers = Buffers::default();
        buffers.open_call(A, 9, Outgoing::Whole(Bytes::from_static(b"abcdef")));
        let range = |rpc| PayloadRange { rpc, offset: 2, len: 3 };
        assert_eq!(buffers.outgoing(&range(A)), Some(&b"cde"[..]));
        assert_eq!(buffers.outgoing(&range(B)), None);
        assert_eq!((buffers.call_of(A), buffers.call_of(B)), (Some(9), None));
        buffers.release(A);
        assert_eq!(buffers.outgoing(&range(A)), None);
        assert_eq!((buffers.outgoing_bytes(), drained(&mut buffers)), (0, 1));
    }

    #[test]
    fn a_slot_used_again_within_a_burst_keeps_both_messages() {
        let mut buffers = Buffers::default();
        buffers.open_call(A, 1, Outgoing::Whole(Bytes::from_static(b"request")));
        buffers.write(A, 3, 0, 3, b"old");
        buffers.write(B, 3, 0, 3, b"new");
        assert_eq!(buffers.call_of(A), Some(1));
        buffers.set_role(B, Role::QueuedRequest { server: 5 });
        buffers.set_role(A, Role::Delivered { server: 4 });
        assert_eq!(buffers.role(A), Role::Delivered { server: 4 });
        assert_eq!(buffers.role(B), Role::QueuedRequest { server: 5 });
        assert_eq!((buffers.take_incoming(A), buffers.take_incoming(B)), ("old".into(), "new".into()));
        buffers.release(A);
        buffers.release(B);
        assert!(buffers.displaced.is_empty());
        assert_eq!((buffers.outgoing_bytes(), buffers.incoming_bytes()), (0, 0));
    }

    #[test]
    fn few_large_buffers_are_freed_at_a_time() {
        let mut buffers = Buffers::default();
        for _ in 0..20 {
            buffers.free_evicted_later(Some(BytesMut::with_capacity(LARGE_BYTES)));
        }
        let mut free = Vec::new();
        buffers.take_frees(&mut free);
        assert_eq!(free.len(), FREE_BUDGET / LARGE_COST, "also where an empty handle is the last one");
        assert_eq!(drained(&mut buffers), 20 - free.len());
        for _ in 0..20 {
            buffers.free_later(Bytes::from(vec![0; LARGE_BYTES]));
        }
        let mut free = Vec::new();
        buffers.take_frees(&mut free);
        assert_eq!(free.len(), FREE_BUDGET / LARGE_COST);
        assert_eq!(drained(&mut buffers), 20 - free.len());
    }
}
