//! Selects and classifies the frames of a capture.

use std::net::IpAddr;

use homa::ServerAddr;
use homa_pcap::frame::{Content, Datagram};
use homa_proto::wire::{self, Body, DecodeError, OURS_MAGIC, Packet, PacketType};

use super::DecodeArgs;
use super::bundle::{Part, Place, parts};

/// An item to print, with its capture time.
pub struct Seen<'a> {
    /// Number of the record in the capture, from 1.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The first time in the capture, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Whether the capture has nanoseconds.
    pub nanoseconds: bool,
    pub what: What<'a>,
}

pub enum What<'a> {
    Packet(Sighting<'a>),
    /// An ICMP error about a packet.
    Icmp {
        from: IpAddr,
        to: IpAddr,
        kind: u8,
        code: u8,
        about: Sighting<'a>,
    },
    /// A fragment of a packet that IP has divided.
    Fragment {
        from: IpAddr,
        to: IpAddr,
    },
}

/// A Homa packet as far as it was captured.
pub struct Sighting<'a> {
    /// The datagram, with this packet alone as its payload.
    pub datagram: Datagram<'a>,
    /// `None` if the datagram is not a bundle.
    pub place: Option<Place>,
    pub decoded: Decoded,
}

pub enum Decoded {
    Valid(Packet),
    /// The capture, or the quoting ICMP error, contains less than its header.
    Cut,
    Bad(DecodeError),
    /// WIRE-22: the packet is as long as the rest of its datagram, but its header has another length.
    BadLength(usize),
}

/// The categories of items, for the counters and for `--type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Type(PacketType),
    Icmp,
    /// Truncated before its type.
    Cut,
    Bad,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Type(kind) => kind.name(),
            Kind::Icmp => "ICMP",
            Kind::Cut => "CUT",
            Kind::Bad => "BAD",
        }
    }

    /// Parses a name, in any case, and with `-` or `_`.
    pub fn from_name(text: &str) -> Option<Kind> {
        let wanted = text.to_ascii_uppercase().replace('-', "_");
        let types = PacketType::ALL.into_iter().map(Kind::Type);
        types.chain([Kind::Icmp, Kind::Cut, Kind::Bad]).find(|kind| kind.name() == wanted)
    }
}

impl What<'_> {
    pub fn kind(&self) -> Kind {
        match self {
            What::Packet(sighting) => sighting.kind(),
            What::Icmp { .. } => Kind::Icmp,
            What::Fragment { .. } => Kind::Bad,
        }
    }
}

impl<'a> Sighting<'a> {
    fn new(datagram: &Datagram<'a>, part: Part<'a>) -> Sighting<'a> {
        let (bytes, wire_len) = (part.packet.bytes, part.packet.wire_len);
        let decoded = match (part.bad_length, wire::decode(bytes, wire_len)) {
            (Some(length), _) => Decoded::BadLength(length),
            (None, Ok(packet)) => Decoded::Valid(packet),
            (None, Err(DecodeError::TooShort { needed, .. }))
                if bytes.len() < needed && needed <= wire_len =>
            {
                Decoded::Cut
            }
            (None, Err(error)) => Decoded::Bad(error),
        };
        Sighting { datagram: Datagram { payload: part.packet, ..*datagram }, place: part.place, decoded }
    }

    fn kind(&self) -> Kind {
        match &self.decoded {
            Decoded::Valid(packet) => Kind::Type(packet.body.packet_type()),
            Decoded::Cut => self.packet_type().map_or(Kind::Cut, Kind::Type),
            Decoded::Bad(_) | Decoded::BadLength(_) => Kind::Bad,
        }
    }

    /// The error in a captured packet, and a constant name for it.
    pub fn error(&self) -> Option<(String, &'static str)> {
        match &self.decoded {
            Decoded::Valid(_) | Decoded::Cut => None,
            Decoded::Bad(error) => Some((error.to_string(), error.reason())),
            Decoded::BadLength(length) => {
                Some((format!("packet_length {length} does not fit the datagram"), "packet_length"))
            }
        }
    }

    /// The type in the header, whatever other errors the packet has.
    pub fn packet_type(&self) -> Option<PacketType> {
        PacketType::try_from(*self.datagram.payload.bytes.get(11)?).ok()
    }

    /// The value of one of the fields that all packets have in common.
    pub fn common(&self, name: &str) -> Option<u64> {
        let field = wire::COMMON_FIELDS.iter().find(|field| field.name == name)?;
        field.value(self.datagram.payload.bytes)
    }

    /// Whether it belongs to the RPC with this id at the client, or acknowledges it.
    fn concerns(&self, id: u64) -> bool {
        if self.common("sender_id").is_some_and(|sender_id| sender_id & !1 == id) {
            return true;
        }
        match &self.decoded {
            Decoded::Valid(Packet { body: Body::Data(data), .. }) => {
                data.ack.is_some_and(|ack| ack.client_id == id)
            }
            Decoded::Valid(Packet { body: Body::Ack(acks), .. }) => {
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

    /// The requested packets of a frame: each packet of its datagram by itself.
    pub fn select<'b>(&self, content: &Content<'b>) -> Vec<What<'b>> {
        let all: Vec<What<'b>> = match *content {
            Content::Datagram(datagram) => self.sight(&datagram).map(What::Packet).collect(),
            Content::Error { from, to, kind, code, about } => {
                let packets = self.sight(&about);
                packets.map(|about| What::Icmp { from, to, kind, code, about }).collect()
            }
            Content::Fragment { from, to } => vec![What::Fragment { from, to }],
            Content::Other => Vec::new(),
        };
        all.into_iter().filter(|what| self.wants(what)).collect()
    }

    fn wants(&self, what: &What<'_>) -> bool {
        let kind_matches = self.args.types.is_empty() || self.args.types.contains(&what.kind());
        let rpc_matches = self.args.rpc.is_none_or(|id| match what {
            What::Packet(sighting) | What::Icmp { about: sighting, .. } => sighting.concerns(id & !1),
            What::Fragment { .. } => false,
        });
        kind_matches && rpc_matches
    }

    /// The Homa packets in a datagram; none if it is not Homa's. Over raw IP the protocol number decides.
    /// Over UDP the given ports decide, or without them, header bytes that only our packets have.
    fn sight<'b>(&self, datagram: &Datagram<'b>) -> impl Iterator<Item = Sighting<'b>> + use<'b> {
        let datagram = *datagram;
        let mut sightings = parts(&datagram).map(move |part| Sighting::new(&datagram, part)).peekable();
        let is_homa = !datagram.udp
            || self.is_homa_port(datagram.from.port())
            || self.is_homa_port(datagram.to.port())
            || self.args.udp_ports.is_empty() && sightings.peek().is_some_and(looks_like_ours);
        sightings.take_while(move |_| is_homa)
    }

    fn is_homa_port(&self, port: u16) -> bool {
        if self.args.udp_ports.is_empty() {
            port == ServerAddr::DEFAULT_UDP_PORT
        } else {
            self.args.udp_ports.contains(&port)
        }
    }
}

/// Whether a datagram's first packet looks like ours over UDP: each byte that receivers ignore has the value
/// that we send, and the length is exact.
fn looks_like_ours(sighting: &Sighting<'_>) -> bool {
    let Decoded::Valid(packet) = &sighting.decoded else { return false };
    let kind = packet.body.packet_type();
    let doff = if kind == PacketType::Data { 0xe0 } else { 0x50 };
    let wire_len = kind.header_len() + packet.payload_len as usize;
    // CUTOFFS between our hosts have four more bytes.
    let longer = if kind == PacketType::Cutoffs { 4 } else { 0 };
    let marked = match sighting.common("urgent") {
        // Without the mark, our packets have the format of those to Linux Homa.
        Some(0) => ["flags", "window", "checksum", "packet_length", "bundle_endpoints"]
            .iter()
            .all(|name| sighting.common(name) == Some(0)),
        // WIRE-23: only DATA says whether the sender accepts bundles.
        urgent => {
            urgent == Some(u64::from(OURS_MAGIC))
                && (kind == PacketType::Data || sighting.common("bundle_endpoints") == Some(0))
        }
    };
    marked
        && sighting.common("doff") == Some(doff)
        && (wire_len..=wire_len + longer).contains(&sighting.datagram.payload.wire_len)
}
