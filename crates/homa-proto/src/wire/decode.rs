//! Converts bytes into a valid packet. No input makes these functions panic or read beyond the bytes
//! (WIRE-13).

use std::mem::offset_of;
use std::ops::Range;

use thiserror::Error;
use zerocopy::FromBytes;

use super::incarnation::Incarnation;
use super::packet::{
    Ack, AckList, Body, COMMON_LEN, Common, Cutoffs, DATA_HEADER_LEN, Data, Grant, MAX_ACKS,
    MAX_MESSAGE_LENGTH, OURS_MAGIC, PRIORITIES, Packet, PacketType, Resend, Start, UnknownReason,
};
use super::raw::{
    AckHeader, AckSlot, CommonHeader, CutoffsHeader, CutoffsLimitHeader, DataHeader, EVERYTHING_SENT,
    GrantHeader, OFFSET_IN_SEQUENCE, ResendHeader, ShortResendHeader, StartHeader,
};

/// Why bytes are not a valid packet. The packet must be dropped and counted under [`reason`](Self::reason).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The packet is shorter than its header.
    #[error("packet of {got} bytes is too short: its header takes {needed}")]
    TooShort {
        /// Bytes of the header.
        needed: usize,
        /// Available bytes of the packet.
        got: usize,
    },
    /// The type byte is not that of a Homa packet.
    #[error("{0:#04x} is not the type of a Homa packet")]
    UnknownType(u8),
    /// DATA of an empty message, which does not exist in Homa.
    #[error("the message has length 0")]
    ZeroLength,
    /// The length of a message or range is negative if read as a signed number, as Linux Homa reads it.
    #[error("length {0} is larger than {MAX_MESSAGE_LENGTH}")]
    BadLength(u32),
    /// DATA without payload.
    #[error("DATA without payload")]
    EmptyPayload,
    /// DATA starts at or after the end of its message, or the offset of a GRANT or RESEND is too large for
    /// any message.
    #[error("offset {offset} is out of a message of length {message_length}")]
    BadOffset {
        /// The offset in the packet.
        offset: u32,
        /// Length of the message; [`MAX_MESSAGE_LENGTH`] for packet types without that field.
        message_length: u32,
    },
    /// There is no such priority.
    #[error("priority {0} is not less than {PRIORITIES}")]
    BadPriority(u8),
    /// The count of acknowledgements in an ACK exceeds its slots.
    #[error("{0} acknowledgements in an ACK with room for {MAX_ACKS}")]
    TooManyAcks(u16),
    /// An acknowledgement has an odd id, which no client uses.
    #[error("acknowledged id {0} is odd")]
    OddAckId(u64),
    /// DATA or START_MSG with the id 0, or its server form 1. Id 0 stands for "none" and could never be
    /// acknowledged.
    #[error("{0} without an RPC id")]
    NoRpcId(PacketType),
    /// START_MSG of an empty message.
    #[error("START_MSG of length 0")]
    EmptyStart,
    /// The packet has this implementation's mark, but a form that only other implementations send.
    #[error("the mark of this implementation in a form that it never sends")]
    MixedForms,
}

impl DecodeError {
    /// Returns a short constant name for counters and traces.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "too_short",
            Self::UnknownType(_) => "unknown_type",
            Self::ZeroLength => "zero_length",
            Self::BadLength(_) => "bad_length",
            Self::EmptyPayload => "empty_payload",
            Self::BadOffset { .. } => "bad_offset",
            Self::BadPriority(_) => "bad_priority",
            Self::TooManyAcks(_) => "too_many_acks",
            Self::OddAckId(_) => "odd_ack_id",
            Self::NoRpcId(_) => "no_rpc_id",
            Self::EmptyStart => "empty_start",
            Self::MixedForms => "mixed_forms",
        }
    }
}

impl TryFrom<u8> for PacketType {
    type Error = DecodeError;

    /// Fails with [`DecodeError::UnknownType`] for a code outside 0x10..=0x19.
    fn try_from(code: u8) -> Result<Self, DecodeError> {
        let index = usize::from(code.wrapping_sub(Self::Data as u8));
        Self::ALL.get(index).copied().ok_or(DecodeError::UnknownType(code))
    }
}

/// Reads the header of a packet.
///
/// `bytes` starts with the complete header. Payload may be missing, as in simulated packets. `wire_len` is
/// the length of the complete packet (header and payload, without IP or UDP headers), at least `bytes.len()`.
/// Bytes beyond `wire_len` are ignored. The payload of DATA starts at `bytes[DATA_HEADER_LEN..]` and has
/// [`Packet::payload_len`] bytes. They are all in `bytes` if `wire_len` is `bytes.len()`.
///
/// Packets of other types may be longer than their header. The rest is ignored, as in Linux Homa.
///
/// # Errors
/// See [`DecodeError`]. The content of fields that Linux Homa ignores is never an error (WIRE-3).
pub fn decode(bytes: &[u8], wire_len: usize) -> Result<Packet, DecodeError> {
    let bytes = bytes.get(..wire_len).unwrap_or(bytes);
    let header: &CommonHeader = view(bytes)?;
    let body = match PacketType::try_from(header.kind)? {
        PacketType::Data => {
            let (data, payload_len) = data(view(bytes)?, wire_len)?;
            return Ok(Packet { common: common(header), body: Body::Data(data), payload_len });
        }
        PacketType::Grant => Body::Grant(grant(view(bytes)?)?),
        PacketType::Resend => Body::Resend(resend(view(bytes)?, view(bytes).ok())?),
        PacketType::RpcUnknown => Body::RpcUnknown(unknown_reason(header)),
        PacketType::Busy => Body::Busy,
        PacketType::Cutoffs => Body::Cutoffs(cutoffs(view(bytes)?, view(bytes).ok())),
        PacketType::Freeze => Body::Freeze,
        PacketType::NeedAck => Body::NeedAck,
        PacketType::Ack => Body::Ack(ack_list(view(bytes)?)?),
        PacketType::Start => Body::Start(start(view(bytes)?)?),
    };
    Ok(Packet { common: common(header), body, payload_len: 0 })
}

fn view<T>(bytes: &[u8]) -> Result<&T, DecodeError>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    match T::ref_from_prefix(bytes) {
        Ok((header, _)) => Ok(header),
        // WIRE-2
        Err(_) => Err(DecodeError::TooShort { needed: size_of::<T>(), got: bytes.len() }),
    }
}

fn common(header: &CommonHeader) -> Common {
    let incarnation = incarnation(header);
    Common {
        source_port: header.source_port.get(),
        dest_port: header.dest_port.get(),
        sender_id: header.sender_id.get(),
        incarnation,
        bundle_endpoints: if incarnation.is_none() { 0 } else { header.bundle_endpoints },
    }
}

/// ID-11: decodes the incarnation. Without our mark, the packet came from another implementation, and these
/// fields may hold any value.
fn incarnation(header: &CommonHeader) -> Incarnation {
    if header.urgent.get() == OURS_MAGIC {
        Incarnation::from_wire(header.flags, header.window.get(), header.checksum.get())
    } else {
        Incarnation::NONE
    }
}

/// Decodes the DATA header, and computes the number of payload bytes that belong to the message.
fn data(header: &DataHeader, wire_len: usize) -> Result<(Data, u32), DecodeError> {
    if header.common.sender_id.get() <= 1 {
        return Err(DecodeError::NoRpcId(PacketType::Data)); // WIRE-18
    }
    let message_length = match header.message_length.get() {
        0 => return Err(DecodeError::ZeroLength), // WIRE-7
        length => in_range(length, DecodeError::BadLength(length))?,
    };
    if header.segment_offset.get() == OFFSET_IN_SEQUENCE && !incarnation(&header.common).is_none() {
        return Err(DecodeError::MixedForms); // WIRE-5, WIRE-26
    }
    let offset = offset(header);
    let left = message_length.saturating_sub(offset);
    if left == 0 {
        return Err(DecodeError::BadOffset { offset, message_length });
    }
    let payload_len = match wire_len.saturating_sub(DATA_HEADER_LEN) {
        0 => return Err(DecodeError::EmptyPayload), // WIRE-9
        // RECV-3: bytes beyond the message do not belong to it.
        payload => u32::try_from(payload).unwrap_or(u32::MAX).min(left),
    };
    let data = Data {
        message_length,
        incoming: header.incoming.get().min(message_length),
        ack: ack(&header.ack)?,
        cutoff_version: header.cutoff_version.get(),
        retransmit: header.retransmit != 0,
        offset,
        response_limit: response_limit(header),
    };
    Ok((data, payload_len))
}

/// Returns the offset of a DATA packet if its header differs from the header of `earlier` only in the offset,
/// and neither packet carries an acknowledgement. `earlier` must be a DATA packet that [`decode()`] accepted.
/// [`decode()`] would then give the same result for both packets except for offset and payload, which are not
/// checked here.
pub(crate) fn offset_behind(earlier: &[u8], bytes: &[u8]) -> Option<u32> {
    /// The two positions of the offset.
    const SEQUENCE: Range<usize> = 4..8;
    const SEGMENT: usize = DATA_HEADER_LEN - 4;
    const _: () =
        assert!(SEQUENCE.start == offset_of!(DataHeader, common) + offset_of!(CommonHeader, sequence));
    const _: () = assert!(SEGMENT == offset_of!(DataHeader, segment_offset));
    let (earlier, bytes): (&[u8; DATA_HEADER_LEN], &[u8; DATA_HEADER_LEN]) =
        (earlier.first_chunk()?, bytes.first_chunk()?);
    if bytes[..SEQUENCE.start] != earlier[..SEQUENCE.start]
        || bytes[SEQUENCE.end..SEGMENT] != earlier[SEQUENCE.end..SEGMENT]
    {
        return None;
    }
    let header = DataHeader::ref_from_bytes(bytes).ok()?;
    let is_data = header.common.kind == PacketType::Data as u8;
    (is_data && header.ack.client_id.get() == 0).then(|| offset(header))
}

/// WIRE-4, WIRE-12: returns the offset of the first byte. Segmentation offload copies the same `sequence`
/// into all segments, and each segment has its own `segment_offset`. Without offload, Linux Homa fills in
/// only `sequence`.
fn offset(header: &DataHeader) -> u32 {
    match header.segment_offset.get() {
        OFFSET_IN_SEQUENCE => header.common.sequence.get(),
        offset => offset,
    }
}

/// Returns the limit on the response, if there is one. In packets of other implementations these bytes are
/// padding, and may hold any value.
fn response_limit(header: &DataHeader) -> Option<u32> {
    let [high, middle, low] = header.response_limit;
    let limit = u32::from_be_bytes([0, high, middle, low]);
    (limit != 0 && !incarnation(&header.common).is_none()).then_some(limit)
}

fn grant(header: &GrantHeader) -> Result<Grant, DecodeError> {
    Ok(Grant { offset: control_offset(header.offset.get())?, priority: priority(header.priority)? })
}

fn resend(header: &ShortResendHeader, long: Option<&ResendHeader>) -> Result<Resend, DecodeError> {
    // For a range of any other negative length, Linux Homa sends nothing.
    let length = match header.length.get() {
        EVERYTHING_SENT => None,
        length => Some(in_range(length, DecodeError::BadLength(length))?),
    };
    let priority = match long {
        Some(long) => priority(long.priority)?,
        None if !incarnation(&header.common).is_none() => return Err(DecodeError::MixedForms), // WIRE-26
        None => PRIORITIES as u8 - 1,                                                          // WIRE-25
    };
    Ok(Resend { offset: control_offset(header.offset.get())?, length, priority })
}

fn start(header: &StartHeader) -> Result<Start, DecodeError> {
    if header.common.sender_id.get() <= 1 {
        return Err(DecodeError::NoRpcId(PacketType::Start)); // WIRE-18
    }
    match header.message_length.get() {
        0 => Err(DecodeError::EmptyStart), // WIRE-7
        length => Ok(Start { message_length: in_range(length, DecodeError::BadLength(length))? }),
    }
}

/// Decodes the reason that a peer of this implementation puts in `sequence`. The field has no meaning in
/// Linux Homa's RPC_UNKNOWN.
fn unknown_reason(header: &CommonHeader) -> UnknownReason {
    if incarnation(header).is_none() {
        UnknownReason::Unknown
    } else {
        UnknownReason::from_code(header.sequence.get())
    }
}

/// Decodes cutoffs, which are signed on the wire. A negative cutoff admits no message, like 0.
fn cutoffs(header: &CutoffsHeader, limited: Option<&CutoffsLimitHeader>) -> Cutoffs {
    let non_negative = |cutoff: u32| if cutoff > MAX_MESSAGE_LENGTH { 0 } else { cutoff };
    Cutoffs {
        cutoffs: header.cutoffs.map(|cutoff| non_negative(cutoff.get())),
        version: header.version.get(),
        unsched_limit: limited
            .filter(|_| !incarnation(&header.common).is_none())
            .map(|limited| limited.unsched_limit.get())
            .filter(|limit| (1..=MAX_MESSAGE_LENGTH).contains(limit)),
    }
}

fn ack_list(header: &AckHeader) -> Result<AckList, DecodeError> {
    let count = header.count.get();
    let slots = header.slots.get(..usize::from(count)).ok_or(DecodeError::TooManyAcks(count))?; // WIRE-6
    let mut acks = AckList::new();
    for slot in slots {
        if let Some(ack) = ack(slot)? {
            acks.push(ack);
        }
    }
    Ok(acks)
}

fn ack(slot: &AckSlot) -> Result<Option<Ack>, DecodeError> {
    match slot.client_id.get() {
        0 => Ok(None),
        odd if odd % 2 == 1 => Err(DecodeError::OddAckId(odd)),
        client_id => Ok(Some(Ack { client_id, server_port: slot.server_port.get() })),
    }
}

/// WIRE-18: fails with `error` if `value` exceeds the maximum message length.
fn in_range(value: u32, error: DecodeError) -> Result<u32, DecodeError> {
    if value > MAX_MESSAGE_LENGTH { Err(error) } else { Ok(value) }
}

fn control_offset(offset: u32) -> Result<u32, DecodeError> {
    in_range(offset, DecodeError::BadOffset { offset, message_length: MAX_MESSAGE_LENGTH })
}

fn priority(priority: u8) -> Result<u8, DecodeError> {
    if usize::from(priority) < PRIORITIES { Ok(priority) } else { Err(DecodeError::BadPriority(priority)) }
}

// The shortest packet of a type without fields of its own is the common header.
const _: () = assert!(COMMON_LEN == PacketType::Busy.header_len());
