//! The content of packets: types, fields and their ranges, independent of the layout.

use std::fmt;

use super::incarnation::Incarnation;

/// Bytes of the header that every packet starts with; also the whole length of RPC_UNKNOWN, BUSY, FREEZE and
/// NEED_ACK.
pub const COMMON_LEN: usize = 28;
/// Bytes of a DATA packet before its payload.
pub const DATA_HEADER_LEN: usize = 56;
/// Bytes of a GRANT packet.
pub const GRANT_LEN: usize = 33;
/// Bytes of a RESEND packet.
pub const RESEND_LEN: usize = 37;
/// Bytes of a RESEND packet without a priority, as the build of Linux Homa for net-next sends it.
pub const RESEND_SHORT_LEN: usize = 36;
/// Bytes of a START_MSG packet.
pub const START_LEN: usize = 32;
/// Bytes of a CUTOFFS packet.
pub const CUTOFFS_LEN: usize = 62;
/// Bytes of a CUTOFFS packet between peers of this implementation: a limit of unscheduled bytes follows.
pub const CUTOFFS_LIMIT_LEN: usize = 66;
/// Bytes of an ACK packet: all [`MAX_ACKS`] slots are always present.
pub const ACK_LEN: usize = 80;
/// Bytes of the longest header, that of ACK.
pub const MAX_HEADER_LEN: usize = 80;

/// Acknowledgements that fit in one ACK packet, in addition to the acknowledgement of the id in its header.
pub const MAX_ACKS: usize = 5;
/// Number of priority levels on the wire: 0 to 7, larger is higher. IP precedence has as many values.
pub const PRIORITIES: usize = 8;
/// Longest message that the format supports, in bytes: lengths and offsets are signed 32-bit numbers in Linux
/// Homa.
pub const MAX_MESSAGE_LENGTH: u32 = i32::MAX as u32;
/// Largest [`Data::response_limit`], in bytes: it is sent in the three padding bytes of a DATA header.
pub const MAX_RESPONSE_LIMIT: u32 = (1 << 24) - 1;
/// Value of the `urgent` field that marks a packet as sent by this implementation ("HM").
///
/// Linux Homa sends 0xb97d in this field, and senders that do not set the ignored fields send 0.
pub const OURS_MAGIC: u16 = 0x484d;

/// The type byte of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum PacketType {
    /// Part of a message.
    Data = 0x10,
    /// Permission to send more of a message.
    Grant = 0x11,
    /// A request to retransmit a range of a message.
    Resend = 0x12,
    /// Answer to a packet for an RPC that is unknown to the sender of this packet.
    RpcUnknown = 0x13,
    /// Answer to a RESEND: the RPC is alive but has nothing to send yet.
    Busy = 0x14,
    /// The priorities that other hosts should use for unscheduled bytes sent to the sender of this packet.
    Cutoffs = 0x15,
    /// Requests that the receiver freeze its time trace.
    Freeze = 0x16,
    /// Asks the client whether the server may free an RPC.
    NeedAck = 0x17,
    /// Lists the RPCs that the server may free.
    Ack = 0x18,
    /// Opens a message whose bytes are sent only after a grant.
    Start = 0x19,
}

impl PacketType {
    /// Every type, in the order of their codes, which are contiguous.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Grant,
        Self::Resend,
        Self::RpcUnknown,
        Self::Busy,
        Self::Cutoffs,
        Self::Freeze,
        Self::NeedAck,
        Self::Ack,
        Self::Start,
    ];

    /// Returns the type's name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "DATA",
            Self::Grant => "GRANT",
            Self::Resend => "RESEND",
            Self::RpcUnknown => "RPC_UNKNOWN",
            Self::Busy => "BUSY",
            Self::Cutoffs => "CUTOFFS",
            Self::Freeze => "FREEZE",
            Self::NeedAck => "NEED_ACK",
            Self::Ack => "ACK",
            Self::Start => "START_MSG",
        }
    }

    /// Returns the length of the type's header as this implementation sends it. Except for DATA, this is the
    /// length of the whole packet.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Data => DATA_HEADER_LEN,
            Self::Grant => GRANT_LEN,
            Self::Resend => RESEND_LEN,
            Self::RpcUnknown | Self::Busy | Self::Freeze | Self::NeedAck => COMMON_LEN,
            Self::Cutoffs => CUTOFFS_LEN,
            Self::Ack => ACK_LEN,
            Self::Start => START_LEN,
        }
    }

    /// Returns the minimum length of a packet of this type (WIRE-2): the length of its header or, for RESEND,
    /// [`RESEND_SHORT_LEN`].
    pub const fn min_len(self) -> usize {
        match self {
            Self::Resend => RESEND_SHORT_LEN,
            _ => self.header_len(),
        }
    }
}

const _: () = {
    let mut index = 0;
    while index < PacketType::ALL.len() {
        assert!(PacketType::ALL[index] as usize == PacketType::Data as usize + index);
        index += 1;
    }
};

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The fields of every packet's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    /// Homa port of the sender.
    pub source_port: u16,
    /// Homa port of the receiver.
    pub dest_port: u16,
    /// Id of the RPC in its sender's form: a client sends an even id, a server an odd one.
    pub sender_id: u64,
    /// Incarnation of the sending host; [`Incarnation::NONE`] if the peer is Linux Homa or unknown.
    pub incarnation: Incarnation,
    /// In DATA between peers of this implementation: number of endpoints that share the sending host's
    /// address. All packets of a datagram to that host must be for the same endpoint, which
    /// [`owner_of`](super::owner_of) determines from the RPC id. 0: the host accepts only one packet per
    /// datagram, as Linux Homa does.
    pub bundle_endpoints: u8,
}

/// The fields of each packet type after the common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Part of a message.
    Data(Data),
    /// Permission to send more of a message.
    Grant(Grant),
    /// A request to retransmit a range.
    Resend(Resend),
    /// The sender does not know the RPC.
    RpcUnknown(UnknownReason),
    /// The RPC is alive but has nothing to send yet.
    Busy,
    /// Priorities for unscheduled bytes.
    Cutoffs(Cutoffs),
    /// Request to freeze the time trace.
    Freeze,
    /// Request by a server for the acknowledgement of an RPC, so that the server may free it.
    NeedAck,
    /// RPCs that the server may free, in addition to the RPC whose id is in the header.
    Ack(AckList),
    /// Opens a message whose bytes wait for a grant.
    Start(Start),
}

impl Body {
    /// Returns the packet type of the body.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Data(_) => PacketType::Data,
            Self::Grant(_) => PacketType::Grant,
            Self::Resend(_) => PacketType::Resend,
            Self::RpcUnknown(_) => PacketType::RpcUnknown,
            Self::Busy => PacketType::Busy,
            Self::Cutoffs(_) => PacketType::Cutoffs,
            Self::Freeze => PacketType::Freeze,
            Self::NeedAck => PacketType::NeedAck,
            Self::Ack(_) => PacketType::Ack,
            Self::Start(_) => PacketType::Start,
        }
    }
}

/// The header of a DATA packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Bytes in the whole message, 1..=[`MAX_MESSAGE_LENGTH`].
    pub message_length: u32,
    /// Exclusive end of the bytes that the sender sends without waiting for a grant. Decoding limits it to
    /// `message_length`.
    pub incoming: u32,
    /// A finished RPC that the server may free.
    pub ack: Option<Ack>,
    /// Version of the receiver's cutoffs that the sender applied.
    pub cutoff_version: u16,
    /// Whether this packet is a retransmission.
    pub retransmit: bool,
    /// Offset of the first payload byte in the message, less than `message_length`.
    pub offset: u32,
    /// Maximum unscheduled bytes of the response, 1..=[`MAX_RESPONSE_LIMIT`], in a request between peers of
    /// this implementation. `None`: the client sets no limit.
    pub response_limit: Option<u32>,
}

/// The body of a GRANT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Exclusive end of the bytes of the message that may be sent, 0..=[`MAX_MESSAGE_LENGTH`].
    pub offset: u32,
    /// Priority for the bytes sent under this grant, 0..[`PRIORITIES`].
    pub priority: u8,
}

/// The body of a RESEND.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resend {
    /// First byte to retransmit, 0..=[`MAX_MESSAGE_LENGTH`].
    pub offset: u32,
    /// Bytes to retransmit, 0..=[`MAX_MESSAGE_LENGTH`]; `None` (-1 on the wire) means everything sent so far.
    pub length: Option<u32>,
    /// Priority for the retransmitted bytes, 0..[`PRIORITIES`]. A packet of [`RESEND_SHORT_LEN`] bytes has
    /// none, and decodes as the highest.
    pub priority: u8,
}

/// The body of a START_MSG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// Bytes in the whole message, 1..=[`MAX_MESSAGE_LENGTH`].
    pub message_length: u32,
}

/// The body of a CUTOFFS packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cutoffs {
    /// For each priority, the longest message (in bytes, inclusive) whose unscheduled bytes may use it,
    /// 0..=[`MAX_MESSAGE_LENGTH`]; 0 leaves the priority to scheduled bytes.
    ///
    /// For priority 0, Linux Homa sends 0 or [`MAX_MESSAGE_LENGTH`]. The receiver treats both as
    /// [`MAX_MESSAGE_LENGTH`]: a message that no other priority admits has priority 0.
    pub cutoffs: [u32; PRIORITIES],
    /// The version that senders using these cutoffs put in [`Data::cutoff_version`].
    pub version: u16,
    /// Maximum unscheduled bytes of a message, 1..=[`MAX_MESSAGE_LENGTH`], between peers of this
    /// implementation. `None`: the sender of this packet sets no limit.
    pub unsched_limit: Option<u32>,
}

/// One RPC that its server may free.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ack {
    /// Id of the RPC in its client's form: even, not 0.
    pub client_id: u64,
    /// Homa port of the server that ran the RPC.
    pub server_port: u16,
}

/// Up to [`MAX_ACKS`] acknowledgements, as in an ACK packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AckList {
    // Two arrays instead of an array of `Ack`, which would add six bytes of padding per entry to every
    // `Packet`.
    client_ids: [u64; MAX_ACKS],
    server_ports: [u16; MAX_ACKS],
    len: u8,
}

impl AckList {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { client_ids: [0; MAX_ACKS], server_ports: [0; MAX_ACKS], len: 0 }
    }

    /// Appends `ack`. Returns false if the list is full; `ack` is then not appended.
    ///
    /// An ack with the id 0 has no meaning on the wire. It takes no slot, and counts as appended.
    pub fn push(&mut self, ack: Ack) -> bool {
        if ack.client_id == 0 {
            return true;
        }
        let index = usize::from(self.len);
        match (self.client_ids.get_mut(index), self.server_ports.get_mut(index)) {
            (Some(client_id), Some(server_port)) => {
                *client_id = ack.client_id;
                *server_port = ack.server_port;
                self.len += 1;
                true
            }
            _ => false,
        }
    }

    /// Iterates over the acknowledgements in the order in which they were appended.
    pub fn iter(&self) -> impl Iterator<Item = Ack> + '_ {
        self.client_ids
            .iter()
            .zip(&self.server_ports)
            .take(self.len())
            .map(|(&client_id, &server_port)| Ack { client_id, server_port })
    }

    /// Returns the number of acknowledgements, 0..=[`MAX_ACKS`].
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether [`push`](Self::push) would return false.
    pub const fn is_full(&self) -> bool {
        self.len() == MAX_ACKS
    }
}

/// Why an RPC is unknown to its server or client, as sent between peers of this implementation (RESEND-16).
///
/// Linux Homa sends no reason: its RPC_UNKNOWN decodes as [`Unknown`](Self::Unknown).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum UnknownReason {
    /// There is no state for the id, for an unknown reason.
    #[default]
    Unknown = 0,
    /// The RPC was completed and its state freed.
    Finished = 1,
    /// No server listens on the destination port.
    NoSuchPort = 2,
    /// The message is longer than the receiver accepts.
    TooLarge = 3,
    /// The process that had the port has ended, and the state of its RPCs is lost.
    OwnerGone = 4,
}

impl UnknownReason {
    /// Returns the reason for a code on the wire. Unknown codes, which later versions may send, decode as
    /// [`Unknown`](Self::Unknown).
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Finished,
            2 => Self::NoSuchPort,
            3 => Self::TooLarge,
            4 => Self::OwnerGone,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Finished => "finished",
            Self::NoSuchPort => "no such port",
            Self::TooLarge => "too large",
            Self::OwnerGone => "owner gone",
        })
    }
}

/// A valid packet without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The fields common to all headers.
    pub common: Common,
    /// The fields of this packet type.
    pub body: Body,
    /// Payload bytes of a DATA packet that belong to its message, at least 1; 0 for other packet types.
    ///
    /// The payload starts [`DATA_HEADER_LEN`] bytes into the packet. Bytes beyond the end of the message are
    /// not counted, so that `offset + payload_len <= message_length`.
    pub payload_len: u32,
}

// A burst is an array of packets, so the size of a packet is limited to one and a half cache lines.
const _: () = assert!(size_of::<Packet>() <= 96);
