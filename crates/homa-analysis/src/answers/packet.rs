//! Quantities of one packet that several answers need.

use crate::model::{At, Model, Packet};

/// Bytes of a DATA packet before its payload.
pub(crate) const DATA_HEADER_BYTES: u32 = 56;

/// Payload of a DATA packet in bytes.
pub(crate) fn payload(packet: &Packet) -> u64 {
    u64::from(packet.length.saturating_sub(DATA_HEADER_BYTES))
}

/// The one-way delay of a packet that two hosts recorded, from the sender's endpoint to the end of the receiver's
/// processing; `None`: one of them did not.
pub(crate) fn way_ns(packet: &Packet) -> Option<i64> {
    packet.received.since(packet.sent)
}

/// The names of a packet's sender and receiver.
pub(crate) fn ends(model: &Model, packet: &Packet) -> (u16, u16) {
    let rpc = &model.rpcs[packet.rpc as usize];
    (rpc.sender(packet.direction), rpc.receiver(packet.direction))
}

/// The earlier of two moments, of which either may be missing.
pub(crate) fn earlier(a: At, b: At) -> At {
    a.min(b)
}
