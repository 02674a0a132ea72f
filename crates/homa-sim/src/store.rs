//! The state that a host stores for each RPC, in place of an application's buffers.

use std::cell::Cell;
use std::collections::BTreeMap;

use homa_proto::wire::{self, Body};
use homa_proto::{Reassembly, RpcKey, RxPacket};

use crate::fabric::address_index;
use crate::oracle::Promises;
use crate::payload::{Pattern, PayloadMode};

/// The received bytes of a message. Ranges are disjoint, sorted and not adjacent, and their ends are
/// exclusive.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    ranges: Vec<(u32, u32)>,
}

impl Coverage {
    /// Adds `[start, end)`. Returns false if part of it was already received.
    fn add(&mut self, start: u32, end: u32) -> bool {
        // The range nearly always extends the last one.
        if let Some(last) = self.ranges.last_mut()
            && last.1 == start
        {
            last.1 = end;
            return true;
        }
        let at = self.ranges.partition_point(|range| range.0 < start);
        let overlaps_before = at > 0 && self.ranges[at - 1].1 > start;
        let overlaps_after = self.ranges.get(at).is_some_and(|range| range.0 < end);
        if overlaps_before || overlaps_after {
            return false;
        }
        let joins_before = at > 0 && self.ranges[at - 1].1 == start;
        let joins_after = self.ranges.get(at).is_some_and(|range| range.0 == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = end,
            (false, true) => self.ranges[at].0 = start,
            (false, false) => self.ranges.insert(at, (start, end)),
        }
        true
    }

    /// Returns the exclusive end of the bytes received without a gap.
    fn contiguous(&self) -> u32 {
        self.ranges.first().filter(|range| range.0 == 0).map_or(0, |range| range.1)
    }
}

/// An RPC from its application's point of view.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: RpcKey,
    pub(crate) is_client: bool,
    /// The peer.
    pub(crate) peer: u32,
    /// The client's ID; 0: no packet has shown it yet.
    pub(crate) id: u64,
    /// The cookie that the caller of a client RPC passed.
    pub(crate) cookie: u64,
    /// Length of the outgoing message; 0: there is none.
    pub(crate) outgoing: u32,
    outgoing_pattern: Option<Pattern>,
    /// Length of the incoming message; 0: none of it has arrived.
    pub(crate) incoming: u32,
    incoming_pattern: Option<Pattern>,
    coverage: Coverage,
    /// Received bytes of the incoming message.
    received: u32,
    /// Whether [`homa_proto::Event::Request`] has delivered the request.
    pub(crate) delivered: bool,
    /// State of the oracle.
    pub(crate) promises: Promises,
}

/// Counters of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreCounts {
    pub(crate) bytes_wrong: u64,
    pub(crate) bytes_received: u64,
}

/// A host's open RPCs by slot.
#[derive(Debug)]
pub(crate) struct Store {
    seed: u64,
    host: u32,
    mode: PayloadMode,
    slots: Vec<Option<Entry>>,
    /// RPCs whose slot has been reused although their final event has not been polled yet.
    displaced: BTreeMap<RpcKey, Entry>,
    open: usize,
    /// Bytes of incoming messages of open RPCs.
    buffered_bytes: u64,
    pub(crate) counts: StoreCounts,
    /// Descriptions of the first violations of the contract.
    pub(crate) violations: Vec<String>,
}

/// Maximum number of violations that are described.
const MAX_VIOLATIONS: usize = 20;

impl Store {
    pub(crate) fn new(seed: u64, host: u32, mode: PayloadMode) -> Store {
        Store {
            seed,
            host,
            mode,
            slots: Vec::new(),
            displaced: BTreeMap::new(),
            open: 0,
            buffered_bytes: 0,
            counts: StoreCounts::default(),
            violations: Vec::new(),
        }
    }

    pub(crate) fn violation(&mut self, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(format!("host {}: {what}", self.host));
        }
    }

    /// Returns the number of stored RPCs.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Returns the bytes of stored incoming messages.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes
    }

    /// Returns the stored RPCs by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten().chain(self.displaced.values())
    }

    fn insert(&mut self, entry: Entry) {
        let slot = entry.key.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        if let Some(previous) = self.slots[slot].replace(entry) {
            self.displaced.insert(previous.key, previous);
        }
        self.open += 1;
    }

    /// Drops all data, as a crash does.
    pub(crate) fn forget_all(&mut self) {
        self.slots.clear();
        self.displaced.clear();
        self.open = 0;
        self.buffered_bytes = 0;
    }

    /// Adds a client's new RPC.
    pub(crate) fn start_client(&mut self, key: RpcKey, peer: u32, cookie: u64, length: u32) {
        if self.get(key).is_some() {
            self.violation(format!("{key:?} was given to a second RPC"));
        }
        self.insert(Entry { cookie, outgoing: length, ..Entry::new(key, true, peer, 0) });
    }

    /// Returns the RPC, if it is open.
    pub(crate) fn get(&mut self, key: RpcKey) -> Option<&mut Entry> {
        match self.slots.get_mut(key.slot as usize) {
            Some(Some(entry)) if entry.key == key => Some(entry),
            _ => self.displaced.get_mut(&key),
        }
    }

    /// Removes an RPC.
    pub(crate) fn end(&mut self, key: RpcKey) -> Option<Entry> {
        let entry = match self.slots.get_mut(key.slot as usize) {
            Some(slot) if slot.as_ref().is_some_and(|entry| entry.key == key) => slot.take(),
            _ => self.displaced.remove(&key),
        }?;
        self.open -= 1;
        self.buffered_bytes -= u64::from(entry.incoming);
        Some(entry)
    }

    /// Appends bytes `[offset, offset + len)` of the outgoing message of an RPC. `sender_id` is the ID in the
    /// packet's header. For the first packet of a client's RPC, returns the client's ID and the message's
    /// length.
    pub(crate) fn outgoing(
        &mut self,
        key: RpcKey,
        offset: u32,
        len: u32,
        sender_id: impl FnOnce() -> u64,
        out: &mut Vec<u8>,
    ) -> Option<(u64, u32)> {
        let (seed, host, mode) = (self.seed, self.host, self.mode);
        let Some(entry) = self.get(key) else {
            self.violation(format!("transmits payload of {key:?}, which is not open"));
            return None;
        };
        let mut first = None;
        if entry.id == 0 {
            entry.id = sender_id() & !1;
            first = Some((entry.id, entry.outgoing));
        }
        let client = if entry.is_client { host } else { entry.peer };
        let response = !entry.is_client;
        let id = entry.id;
        let pattern = *entry.outgoing_pattern.get_or_insert_with(|| Pattern::new(seed, client, id, response));
        if offset.checked_add(len).is_none_or(|end| end > entry.outgoing) || len == 0 {
            let length = entry.outgoing;
            self.violation(format!("transmits bytes {offset}+{len} of a message of {length}"));
        } else if mode == PayloadMode::Real {
            pattern.extend(offset, len, out);
        }
        first
    }

    /// Checks that the incoming message of an RPC, reported as complete with `length` bytes, really is
    /// complete.
    pub(crate) fn complete(&mut self, key: RpcKey, length: u32) {
        let Some(entry) = self.get(key) else {
            return self.violation(format!("{key:?} is said to be complete and is not open"));
        };
        let (incoming, there) = (entry.incoming, entry.coverage.contiguous());
        if incoming != length || there != length {
            self.violation(format!(
                "{key:?} is said to be complete with {length} bytes; {there} of {incoming} were written"
            ));
        }
    }

    fn write(&mut self, packet: RxPacket<'_>, key: RpcKey, length: u32, offset: u32, data: &[u8], len: u32) {
        let (seed, host, mode) = (self.seed, self.host, self.mode);
        if self.get(key).is_none() {
            let id = data_sender_id(packet) & !1;
            self.insert(Entry::new(key, false, address_index(packet.from), id));
        }
        let entry = self.get(key).expect("it was there or was inserted");
        let mut wrong = None;
        let mut new_bytes = 0;
        if entry.incoming == 0 {
            entry.incoming = length;
            new_bytes = u64::from(length);
            let client = if entry.is_client { host } else { entry.peer };
            entry.incoming_pattern = Some(Pattern::new(seed, client, entry.id, entry.is_client));
        }
        if entry.incoming != length {
            wrong = Some("with another message length than before");
        } else if offset.checked_add(len).is_none_or(|end| end > length) || len == 0 {
            wrong = Some("outside of its message");
        } else if !entry.coverage.add(offset, offset + len) {
            wrong = Some("for the second time");
        } else {
            entry.received += len;
        }
        let mut bytes_wrong = 0;
        if mode == PayloadMode::Real && wrong.is_none() {
            if data.len() == len as usize {
                bytes_wrong = entry.incoming_pattern.map_or(0, |pattern| pattern.wrong_bytes(offset, data));
            } else {
                wrong = Some("without its data");
            }
        }
        self.buffered_bytes += new_bytes;
        self.counts.bytes_wrong += bytes_wrong;
        self.counts.bytes_received += u64::from(len);
        if let Some(wrong) = wrong {
            self.violation(format!("bytes {offset}+{len} of {length} of {key:?} are written {wrong}"));
        }
    }
}

impl Entry {
    /// Returns the exclusive end of the incoming bytes received without a gap.
    pub(crate) fn contiguous(&self) -> u32 {
        self.coverage.contiguous()
    }

    /// Returns the number of received bytes.
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    fn new(key: RpcKey, is_client: bool, peer: u32, id: u64) -> Entry {
        Entry {
            key,
            is_client,
            peer,
            id,
            cookie: 0,
            outgoing: 0,
            outgoing_pattern: None,
            incoming: 0,
            incoming_pattern: None,
            coverage: Coverage::default(),
            received: 0,
            delivered: false,
            promises: Promises::default(),
        }
    }
}

fn data_sender_id(packet: RxPacket<'_>) -> u64 {
    match wire::decode(packet.bytes, packet.wire_len) {
        Ok(packet) if matches!(packet.body, Body::Data(_)) => packet.common.sender_id,
        _ => 0,
    }
}

/// The store, used as the sink for a burst's payload. If a key is new, the current packet identifies its RPC.
pub(crate) struct PacketSink<'a> {
    pub(crate) store: &'a mut Store,
    /// The packet that the endpoint is processing: the last one that it has taken from its burst.
    pub(crate) current: &'a Cell<Option<RxPacket<'a>>>,
}

impl Reassembly for PacketSink<'_> {
    fn write(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32, data: &[u8]) {
        match self.current.get() {
            Some(packet) => self.store.write(packet, rpc, message_length, offset, data, len),
            None => self.store.violation(format!("bytes of {rpc:?} are written without a packet")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_overlaps_are_found() {
        let mut coverage = Coverage::default();
        assert!(coverage.add(10, 20) && coverage.add(30, 40) && coverage.add(0, 5));
        assert_eq!(coverage.contiguous(), 5);
        for (start, end) in [(0, 1), (4, 6), (9, 11), (19, 31), (0, 50), (39, 41)] {
            assert!(!coverage.add(start, end), "{start}..{end}");
        }
        assert!(coverage.add(5, 10) && coverage.add(20, 30) && coverage.add(40, 41));
        assert_eq!((coverage.contiguous(), coverage.ranges.len()), (41, 1));
    }

    #[test]
    fn a_slot_with_a_new_user_keeps_the_old_one_until_its_end() {
        let mut store = Store::new(1, 0, PayloadMode::LengthOnly);
        let old = RpcKey { slot: 3, generation: 1 };
        let new = RpcKey { slot: 3, generation: 2 };
        store.start_client(old, 1, 10, 100);
        store.start_client(new, 1, 11, 100);
        assert_eq!(store.get(old).map(|entry| entry.cookie), Some(10));
        assert_eq!(store.end(old).map(|entry| entry.cookie), Some(10));
        assert_eq!(store.end(new).map(|entry| entry.cookie), Some(11));
        assert_eq!((store.open(), store.end(new).is_none()), (0, true));
    }
}
