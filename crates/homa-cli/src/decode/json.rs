//! Packets as JSON objects.
//!
//! `header` contains each field of the header as it is on the wire, under its name in PROTOCOL.md. Names with
//! dots and indices are paths (`.header.ack.client_id`, `.header.acks[0].server_port`). RPC IDs are strings,
//! because they have 64 bits and many JSON parsers preserve only 53.

use std::net::IpAddr;

use homa_proto::wire::{Body, COMMON_FIELDS, Packet, PacketType};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::bundle::Place;
use super::item::{CaptureItem, CapturedPacket, DecodeResult, ItemContent};
use super::line::{icmp, time_of_day};

/// One line of the output.
#[derive(serde::Serialize)]
pub struct Object {
    /// Number of the record in the capture, starting at 1.
    number: u64,
    /// The time of day in UTC.
    time: String,
    /// Time since the start of the capture.
    time_ns: i64,
    #[serde(flatten)]
    content: Content,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Content {
    Packet(Box<PacketObject>),
    Icmp(Box<IcmpObject>),
    Fragment { source: IpAddr, destination: IpAddr, error: &'static str },
}

#[derive(serde::Serialize)]
struct IcmpObject {
    source: IpAddr,
    destination: IpAddr,
    icmp: IcmpFields,
    /// The packet that caused the error, as far as it is quoted.
    about: PacketObject,
}

#[derive(serde::Serialize)]
struct IcmpFields {
    r#type: u8,
    code: u8,
    text: String,
}

#[derive(serde::Serialize)]
struct PacketObject {
    source: IpAddr,
    destination: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp_source_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp_dest_port: Option<u16>,
    /// IPv4 type of service or IPv6 traffic class, which contains the priority.
    tos: u8,
    tos_priority: u8,
    /// Length in bytes of the Homa packet on the wire.
    length: usize,
    /// Position in the bundle; absent if the packet has its own datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<BundleFields>,
    r#type: Option<&'static str>,
    /// RPC ID as seen by the client, an even number.
    #[serde(skip_serializing_if = "Option::is_none")]
    rpc: Option<String>,
    /// Offset of the payload in its message, regardless of where the header stores it; only for DATA.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_length: Option<u32>,
    /// Incarnation of the sending host as ten hexadecimal digits, if the host is one of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    /// Why an RPC is unknown; only for RPC_UNKNOWN from our hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_reason: Option<String>,
    /// Description of the error in the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// A stable identifier of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_reason: Option<&'static str>,
    header: Tree,
}

/// The position of a packet in its bundle.
#[derive(serde::Serialize)]
struct BundleFields {
    /// Number of the packet, starting at 1.
    packet: u32,
    /// Offset of the packet in the datagram.
    offset: usize,
    /// Number of bytes after the last packet, and whether all of them are zero, as they must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    padding: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    padding_is_zero: Option<bool>,
}

impl From<Place> for BundleFields {
    fn from(Place { number, offset, padding }: Place) -> BundleFields {
        BundleFields {
            packet: number,
            offset,
            padding: padding.map(|padding| padding.length),
            padding_is_zero: padding.map(|padding| padding.is_zero),
        }
    }
}

/// Returns the JSON object for an item.
pub fn object(item: &CaptureItem<'_>) -> Object {
    let content = match &item.what {
        ItemContent::Packet(captured) => Content::Packet(Box::new(packet(captured))),
        ItemContent::Icmp { from, to, kind, code, about } => Content::Icmp(Box::new(IcmpObject {
            source: *from,
            destination: *to,
            icmp: IcmpFields { r#type: *kind, code: *code, text: icmp(from, *kind, *code) },
            about: packet(about),
        })),
        ItemContent::Fragment { from, to } => {
            Content::Fragment { source: *from, destination: *to, error: "an IP fragment" }
        }
    };
    Object {
        number: item.number,
        time: time_of_day(item.time_ns, item.nanoseconds),
        time_ns: item.time_ns.wrapping_sub(item.start_ns) as i64,
        content,
    }
}

fn packet(captured: &CapturedPacket<'_>) -> PacketObject {
    let datagram = &captured.datagram;
    let mut object = PacketObject {
        source: datagram.from.ip(),
        destination: datagram.to.ip(),
        udp_source_port: datagram.udp.then_some(datagram.from.port()),
        udp_dest_port: datagram.udp.then_some(datagram.to.port()),
        tos: datagram.dscp_byte,
        tos_priority: datagram.dscp_byte >> 5,
        length: datagram.payload.wire_len,
        bundle: captured.place.map(BundleFields::from),
        r#type: captured.packet_type().map(PacketType::name),
        rpc: captured.common("sender_id").map(|id| (id & !1).to_string()),
        payload_offset: None,
        payload_length: None,
        incarnation: None,
        unknown_reason: None,
        error: None,
        error_reason: None,
        header: header(captured),
    };
    match &captured.decoded {
        DecodeResult::Valid(packet) => explain(&mut object, packet),
        DecodeResult::Cut => {
            let there = datagram.payload.bytes.len();
            object.error = Some(format!("cut: {there} of {} bytes are there", datagram.payload.wire_len));
            object.error_reason = Some("cut");
        }
        DecodeResult::Bad(_) | DecodeResult::BadLength(_) => {
            (object.error, object.error_reason) = captured.error().unzip();
        }
    }
    object
}

/// Adds explanations of fields that are not self-explanatory.
fn explain(object: &mut PacketObject, packet: &Packet) {
    let incarnation = packet.common.incarnation;
    object.incarnation = (!incarnation.is_none()).then(|| incarnation.to_string());
    match &packet.body {
        Body::Data(data) => {
            object.payload_offset = Some(data.offset);
            object.payload_length = Some(packet.payload_len);
        }
        Body::RpcUnknown(reason) if !incarnation.is_none() => {
            object.unknown_reason = Some(reason.to_string());
        }
        _ => {}
    }
}

fn header(captured: &CapturedPacket<'_>) -> Tree {
    let bytes = captured.datagram.payload.bytes;
    let own = captured.packet_type().map_or(&[][..], PacketType::fields);
    let mut tree = Tree::Object(Vec::new());
    for field in COMMON_FIELDS.iter().chain(own) {
        let Some(value) = field.value(bytes) else { break };
        let value = if field.len == 8 { Tree::Text(value.to_string()) } else { Tree::Number(value) };
        tree.insert(field.name, value);
    }
    tree
}

/// Fields in the order of the header.
#[derive(Debug, PartialEq)]
enum Tree {
    Number(u64),
    Text(String),
    Object(Vec<(&'static str, Tree)>),
    Array(Vec<Tree>),
}

impl Tree {
    /// Sets the value at a path such as `acks[1].client_id`. Indices must be set in order.
    fn insert(&mut self, path: &'static str, value: Tree) {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let (name, index) = match first.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (first, None),
        };
        let mut place = self.child(name);
        if let Some(index) = index {
            place = place.element(index);
        }
        match rest {
            Some(rest) => place.insert(rest, value),
            None => *place = value,
        }
    }

    fn child(&mut self, name: &'static str) -> &mut Tree {
        if !matches!(self, Tree::Object(_)) {
            *self = Tree::Object(Vec::new());
        }
        let Tree::Object(children) = self else { unreachable!("made one just now") };
        let at = children.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            children.push((name, Tree::Number(0)));
            children.len() - 1
        });
        &mut children[at].1
    }

    fn element(&mut self, index: usize) -> &mut Tree {
        if !matches!(self, Tree::Array(_)) {
            *self = Tree::Array(Vec::new());
        }
        let Tree::Array(elements) = self else { unreachable!("made one just now") };
        while elements.len() <= index {
            elements.push(Tree::Number(0));
        }
        &mut elements[index]
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Number(number) => serializer.serialize_u64(*number),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::Array(elements) => serializer.collect_seq(elements),
            Tree::Object(children) => {
                let mut map = serializer.serialize_map(Some(children.len()))?;
                for (name, child) in children {
                    map.serialize_entry(name, child)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_indices_are_paths() {
        let mut tree = Tree::Object(Vec::new());
        for (value, path) in
            ["a", "ack.id", "ack.port", "acks[0].id", "acks[1].id", "cutoffs[0]", "cutoffs[1]"]
                .into_iter()
                .enumerate()
        {
            tree.insert(path, Tree::Number(value as u64));
        }
        let text = serde_json::to_string(&tree).expect("serializable");
        assert_eq!(text, r#"{"a":0,"ack":{"id":1,"port":2},"acks":[{"id":3},{"id":4}],"cutoffs":[5,6]}"#);
    }
}
