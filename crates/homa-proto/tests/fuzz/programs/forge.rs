//! Packets that no endpoint has sent, mostly for existing RPCs but with arbitrary wrong fields.

use std::net::SocketAddr;

use homa_proto::wire::{
    Ack, AckList, Body, Common, Cutoffs, DATA_HEADER_LEN, Data, Grant, Incarnation, PacketType, Resend,
    Start, UnknownReason, encode,
};

use super::host::{Host, Wire};
use super::input::Input;

/// Forges a packet for `host` that claims to be from `from`.
pub fn packet(input: &mut Input<'_>, host: &Host, from: SocketAddr) -> Wire {
    let kind = kind(input);
    let common = Common {
        source_port: port(input, host),
        dest_port: port(input, host),
        sender_id: id(input, host),
        incarnation: incarnation(input),
        bundle_endpoints: 0,
    };
    let body = body(input, host, kind);
    let mut bytes = encode(&common, &body).to_vec();
    let payload = if kind == PacketType::Data { input.size().min(65_535) as usize } else { 0 };
    let wire_len = bytes.len() + payload;
    if payload <= 2_000 && input.flag() {
        bytes.resize(wire_len, 0x5a);
    }
    // The encoder keeps fields in range, so wrong values are written afterwards.
    if input.below(8) == 0 {
        let at = input.below(bytes.len());
        bytes[at] = input.byte();
    }
    Wire { from, bytes, wire_len }
}

/// Selects the type by one byte. Inputs from before START_MSG existed keep their meaning.
fn kind(input: &mut Input<'_>) -> PacketType {
    const OLD_TYPES: usize = 9;
    match input.byte() {
        START.. => PacketType::Start,
        byte => PacketType::ALL[usize::from(byte) % OLD_TYPES],
    }
}

/// Bytes from here on select START_MSG.
const START: u8 = 228;

/// Makes a packet of arbitrary bytes.
pub fn raw(input: &mut Input<'_>, from: SocketAddr) -> Wire {
    let len = input.below(DATA_HEADER_LEN * 2);
    let bytes = input.bytes(len).to_vec();
    let wire_len = bytes.len();
    Wire { from, bytes, wire_len }
}

fn port(input: &mut Input<'_>, host: &Host) -> u16 {
    match input.byte() {
        at @ 0..=239 => host.ports[usize::from(at) % host.ports.len()],
        _ => input.number::<2>() as u16,
    }
}

fn id(input: &mut Input<'_>, host: &Host) -> u64 {
    match input.byte() {
        // The latest ids most likely belong to open RPCs.
        back @ 0..=199 => host.ids[host.ids.len() - 1 - usize::from(back) % host.ids.len()],
        200..=219 => host.ids[input.below(host.ids.len())] ^ 1,
        220..=249 => input.number::<1>(),
        _ => input.number::<8>(),
    }
}

fn incarnation(input: &mut Input<'_>) -> Incarnation {
    match input.byte() {
        0..=159 => Incarnation::NONE,
        near @ 160..=249 => Incarnation::new(1_000 + u64::from(near % 4)),
        _ => Incarnation::new(input.number::<5>()),
    }
}

fn body(input: &mut Input<'_>, host: &Host, kind: PacketType) -> Body {
    match kind {
        PacketType::Data => {
            let message_length = input.size();
            Body::Data(Data {
                message_length,
                incoming: input.size(),
                ack: input.flag().then(|| ack(input, host)),
                cutoff_version: input.number::<1>() as u16,
                retransmit: input.flag(),
                offset: if input.flag() { 0 } else { input.size() },
                response_limit: (input.below(4) == 0).then(|| input.size()),
            })
        }
        PacketType::Grant => Body::Grant(Grant { offset: input.size(), priority: input.byte() }),
        PacketType::Resend => Body::Resend(Resend {
            offset: if input.flag() { 0 } else { input.size() },
            length: input.flag().then(|| input.size()),
            priority: input.byte(),
        }),
        PacketType::RpcUnknown => Body::RpcUnknown(UnknownReason::from_code(input.below(5) as u32)),
        PacketType::Busy => Body::Busy,
        PacketType::Cutoffs => {
            let cutoffs = std::array::from_fn(|_| input.size());
            let version = input.number::<1>() as u16;
            let unsched_limit = (input.below(4) == 0).then(|| input.size());
            Body::Cutoffs(Cutoffs { cutoffs, version, unsched_limit })
        }
        PacketType::Freeze => Body::Freeze,
        PacketType::NeedAck => Body::NeedAck,
        PacketType::Ack => {
            let mut acks = AckList::new();
            for _ in 0..input.below(6) {
                acks.push(ack(input, host));
            }
            Body::Ack(acks)
        }
        PacketType::Start => Body::Start(Start { message_length: input.size() }),
    }
}

fn ack(input: &mut Input<'_>, host: &Host) -> Ack {
    Ack { client_id: id(input, host), server_port: port(input, host) }
}
