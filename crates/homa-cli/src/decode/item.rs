//! Selects and classifies the frames in a capture.

use std::net::IpAddr;

use homa::ServerAddr;
use homa::driver::LINUX_UDP_PORT;
use homa_pcap::frame::{Content, Datagram};
use homa_proto::wire::{self, Body, DecodeError, OURS_MAGIC, Packet, PacketType};

use super::DecodeArgs;
use super::bundle::{Part, Place, parts};

/// An item to print, with its capture time.
pub struct CaptureItem<'a> {
    /// Number of the record in the capture, starting at 1.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The earliest time in the capture, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Whether the capture's times are in nanoseconds.
    pub nanoseconds: bool,
    pub what: ItemContent<'a>,
}

pub enum ItemContent<'a> {
    Packet(CapturedPacket<'a>),
    /// An ICMP error that quotes a packet.
    Icmp {
        from: IpAddr,
        to: IpAddr,
        kind: u8,
        code: u8,
        about: CapturedPacket<'a>,
    },
    /// A fragment of an IP packet.
    Fragment {
        from: IpAddr,
        to: IpAddr,
    },
}

/// A Homa packet, or the part of it that was captured.
pub struct CapturedPacket<'a> {
    /// The datagram, with only this packet as its payload.
    pub datagram: Datagram<'a>,
    /// The position in the bundle; `None` if the datagram is not a bundle.
    pub place: Option<Place>,
    pub decoded: DecodeResult,
}

pub enum DecodeResult {
    Valid(Packet),
    /// The capture, or the ICMP error that quotes the packet, does not contain the packet's whole header.
    Cut,
    Bad(DecodeError),
    /// WIRE-22: the length in the packet's header does not match the rest of the datagram.
    BadLength(usize),
}

/// The categories of items, for the counters and for `--type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemCategory {
    Type(PacketType),
    Icmp,
    /// Truncated before the field with the packet type.
    Cut,
    Bad,
}

impl ItemCategory {
    pub fn name(self) -> &'static str {
        match self {
            ItemCategory::Type(kind) => kind.name(),
            ItemCategory::Icmp => "ICMP",
            ItemCategory::Cut => "CUT",
            ItemCategory::Bad => "BAD",
        }
    }

    /// Parses a name in upper or lower case, written with `-` or `_`.
    pub fn from_name(text: &str) -> Option<ItemCategory> {
        let wanted = text.to_ascii_uppercase().replace('-', "_");
        let types = PacketType::ALL.into_iter().map(ItemCategory::Type);
        types
            .chain([ItemCategory::Icmp, ItemCategory::Cut, ItemCategory::Bad])
            .find(|kind| kind.name() == wanted)
    }
}

impl ItemContent<'_> {
    pub fn kind(&self) -> ItemCategory {
        match self {
            ItemContent::Packet(captured) => captured.kind(),
            ItemContent::Icmp { .. } => ItemCategory::Icmp,
            ItemContent::Fragment { .. } => ItemCategory::Bad,
        }
    }
}

impl<'a> CapturedPacket<'a> {
    fn new(datagram: &Datagram<'a>, part: Part<'a>) -> CapturedPacket<'a> {
        let (bytes, wire_len) = (part.packet.bytes, part.packet.wire_len);
        let decoded = match (part.bad_length, wire::decode(bytes, wire_len)) {
            (Some(length), _) => DecodeResult::BadLength(length),
            (None, Ok(packet)) => DecodeResult::Valid(packet),
            (None, Err(DecodeError::TooShort { needed, .. }))
                if bytes.len() < needed && needed <= wire_len =>
            {
                DecodeResult::Cut
            }
            (None, Err(error)) => DecodeResult::Bad(error),
        };
        CapturedPacket {
            datagram: Datagram { payload: part.packet, ..*datagram },
            place: part.place,
            decoded,
        }
    }

    fn kind(&self) -> ItemCategory {
        match &self.decoded {
            DecodeResult::Valid(packet) => ItemCategory::Type(packet.body.packet_type()),
            DecodeResult::Cut => self.packet_type().map_or(ItemCategory::Cut, ItemCategory::Type),
            DecodeResult::Bad(_) | DecodeResult::BadLength(_) => ItemCategory::Bad,
        }
    }

    /// Returns the error in a captured packet, and a stable identifier of the error.
    pub fn error(&self) -> Option<(String, &'static str)> {
        match &self.decoded {
            DecodeResult::Valid(_) | DecodeResult::Cut => None,
            DecodeResult::Bad(error) => Some((error.to_string(), error.reason())),
            DecodeResult::BadLength(length) => {
                Some((format!("packet_length {length} does not fit the datagram"), "packet_length"))
            }
        }
    }

    /// Returns the packet type in the header, even if the packet has other errors.
    pub fn packet_type(&self) -> Option<PacketType> {
        PacketType::try_from(*self.datagram.payload.bytes.get(11)?).ok()
    }

    /// Returns the value of one of the fields common to all packets.
    pub fn common(&self, name: &str) -> Option<u64> {
        let field = wire::COMMON_FIELDS.iter().find(|field| field.name == name)?;
        field.value(self.datagram.payload.bytes)
    }

    /// Returns whether the packet belongs to the RPC with this ID (as seen by the client), or acknowledges
    /// it.
    fn belongs_to_rpc(&self, id: u64) -> bool {
        if self.common("sender_id").is_some_and(|sender_id| sender_id & !1 == id) {
            return true;
        }
        match &self.decoded {
            DecodeResult::Valid(Packet { body: Body::Data(data), .. }) => {
                data.ack.is_some_and(|ack| ack.client_id == id)
            }
            DecodeResult::Valid(Packet { body: Body::Ack(acks), .. }) => {
                acks.iter().any(|ack| ack.client_id == id)
            }
            _ => false,
        }
    }
}

/// The user's selection.
pub struct Selection<'a> {
    args: &'a DecodeArgs,
}

impl<'a> Selection<'a> {
    pub fn new(args: &'a DecodeArgs) -> Selection<'a> {
        Selection { args }
    }

    /// Returns the selected packets of a frame. The packets of a datagram are returned separately.
    pub fn select<'b>(&self, content: &Content<'b>) -> Vec<ItemContent<'b>> {
        let all: Vec<ItemContent<'b>> = match *content {
            Content::Datagram(datagram) => {
                self.captured_packets(&datagram).map(ItemContent::Packet).collect()
            }
            Content::Error { from, to, kind, code, about } => {
                let packets = self.captured_packets(&about);
                packets.map(|about| ItemContent::Icmp { from, to, kind, code, about }).collect()
            }
            Content::Fragment { from, to } => vec![ItemContent::Fragment { from, to }],
            Content::Other => Vec::new(),
        };
        all.into_iter().filter(|what| self.wants(what)).collect()
    }

    fn wants(&self, what: &ItemContent<'_>) -> bool {
        let kind_matches = self.args.types.is_empty() || self.args.types.contains(&what.kind());
        let rpc_matches = self.args.rpc.is_none_or(|id| match what {
            ItemContent::Packet(captured) | ItemContent::Icmp { about: captured, .. } => {
                captured.belongs_to_rpc(id & !1)
            }
            ItemContent::Fragment { .. } => false,
        });
        kind_matches && rpc_matches
    }

    /// Returns the Homa packets in a datagram, or none if it is not a Homa datagram. Over raw IP, the
    /// protocol number decides. Over UDP, the ports given by the user decide; if there are none, the decision
    /// depends on header bytes that only our packets have.
    /// only our packets have.
    fn captured_packets<'b>(
        &self,
        datagram: &Datagram<'b>,
    ) -> impl Iterator<Item = CapturedPacket<'b>> + use<'b> {
        let datagram = *datagram;
        let mut captured_packets =
            parts(&datagram).map(move |part| CapturedPacket::new(&datagram, part)).peekable();
        let is_homa = !datagram.udp
            || self.is_homa_port(datagram.from.port())
            || self.is_homa_port(datagram.to.port())
            || self.args.udp_ports.is_empty() && captured_packets.peek().is_some_and(looks_like_ours);
        captured_packets.take_while(move |_| is_homa)
    }

    fn is_homa_port(&self, port: u16) -> bool {
        if self.args.udp_ports.is_empty() {
            port == ServerAddr::DEFAULT_UDP_PORT || port == LINUX_UDP_PORT
        } else {
            self.args.udp_ports.contains(&port)
        }
    }
}

/// Returns whether a datagram's first packet looks like one of ours over UDP: each byte that receivers ignore
/// must have the value that we send, and the length must match exactly.
fn looks_like_ours(captured: &CapturedPacket<'_>) -> bool {
    let DecodeResult::Valid(packet) = &captured.decoded else { return false };
    let kind = packet.body.packet_type();
    let doff = if kind == PacketType::Data { 0xe0 } else { 0x50 };
    let wire_len = kind.header_len() + packet.payload_len as usize;
    // CUTOFFS packets between our hosts are four bytes longer.
    let longer = if kind == PacketType::Cutoffs { 4 } else { 0 };
    let marked = match captured.common("urgent") {
        // Packets from us without the mark have the same format as packets for Linux Homa.
        Some(0) => ["flags", "window", "checksum", "packet_length", "bundle_endpoints"]
            .iter()
            .all(|name| captured.common(name) == Some(0)),
        // WIRE-23: only DATA can announce that the sender accepts bundles.
        urgent => {
            urgent == Some(u64::from(OURS_MAGIC))
                && (kind == PacketType::Data || captured.common("bundle_endpoints") == Some(0))
        }
    };
    marked
        && captured.common("doff") == Some(doff)
        && (wire_len..=wire_len + longer).contains(&captured.datagram.payload.wire_len)
}
