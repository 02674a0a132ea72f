//! Quantities of one packet that several answers need.

use crate::model::{Model, ModelTime, Packet};

/// Header bytes of a DATA packet.
pub(crate) const DATA_HEADER_BYTES: u32 = 56;

/// Returns the payload of a DATA packet in bytes.
pub(crate) fn payload(packet: &Packet) -> u64 {
    u64::from(packet.length.saturating_sub(DATA_HEADER_BYTES))
}

/// Returns the one-way delay of a packet from the sender's endpoint to the receiver's endpoint, or `None`
/// unless both hosts recorded the packet.
pub(crate) fn way_ns(packet: &Packet) -> Option<i64> {
    packet.received.since(packet.sent)
}

/// Returns the sender and the receiver of a packet.
pub(crate) fn ends(model: &Model, packet: &Packet) -> (u16, u16) {
    let rpc = &model.rpcs[packet.rpc as usize];
    (rpc.sender(packet.direction), rpc.receiver(packet.direction))
}

/// Returns the earlier of two times. An unknown time counts as later than any other.
pub(crate) fn earlier(a: ModelTime, b: ModelTime) -> ModelTime {
    a.min(b)
}
