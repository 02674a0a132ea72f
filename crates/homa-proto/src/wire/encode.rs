//! Converts the fields of a packet into header bytes.

use std::fmt;
use std::ops::Deref;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::packet::{
    Ack, AckList, Body, Common, Cutoffs, Data, Grant, MAX_ACKS, MAX_HEADER_LEN, MAX_MESSAGE_LENGTH,
    MAX_RESPONSE_LIMIT, OURS_MAGIC, PRIORITIES, PacketType, Resend,
};
use super::raw::{
    AckHeader, AckSlot, CommonHeader, CutoffsHeader, CutoffsLimitHeader, DOFF_CONTROL, DOFF_DATA, DataHeader,
    EVERYTHING_SENT, GrantHeader, ResendHeader, ShortResendHeader, StartHeader,
};

/// The header bytes of one packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeaderBuf {
    bytes: [u8; MAX_HEADER_LEN],
    len: u8,
}

impl HeaderBuf {
    fn new(header: &(impl IntoBytes + Immutable)) -> Self {
        let mut bytes = [0; MAX_HEADER_LEN];
        match header.write_to_prefix(&mut bytes) {
            Ok(()) => Self { bytes, len: size_of_val(header) as u8 },
            // Compile-time assertions next to the structures show that every header fits.
            Err(_) => Self { bytes, len: 0 },
        }
    }

    /// Returns the header of another DATA packet of the same message, which differs only in its offset.
    pub(crate) fn at_offset(&self, offset: u32) -> HeaderBuf {
        let mut header = *self;
        if let Ok((data, _)) = DataHeader::mut_from_prefix(&mut header.bytes) {
            debug_assert_eq!(data.common.kind, PacketType::Data as u8);
            (data.common.sequence, data.segment_offset) = (offset.into(), offset.into()); // WIRE-5
        }
        header
    }

    /// Returns the header bytes. For DATA, the payload follows them on the wire.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }
}

impl Default for HeaderBuf {
    /// Returns no bytes, as a placeholder for a header.
    fn default() -> Self {
        Self { bytes: [0; MAX_HEADER_LEN], len: 0 }
    }
}

impl Deref for HeaderBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for HeaderBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for HeaderBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderBuf(")?;
        for byte in self.as_slice() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Encodes the header of a packet with the fields `common` and `body`.
///
/// If all values are in the documented ranges of their fields, [`decode`](super::decode()) returns the same
/// values (WIRE-14). A priority out of range is sent as the highest priority, and a cutoff or RESEND length
/// out of range as [`MAX_MESSAGE_LENGTH`]. Other values are sent unchanged, for the receiver to reject.
/// Without an incarnation, the fields that Linux Homa ignores are 0. Fields that only our peers read are then
/// left out: the reason of an RPC_UNKNOWN, the limits on unscheduled bytes, and whether bundles are accepted.
/// A limit of 0 means no limit.
pub fn encode(common: &Common, body: &Body) -> HeaderBuf {
    let kind = body.packet_type();
    match body {
        Body::Data(data) => HeaderBuf::new(&data_header(common, data)),
        Body::Grant(grant) => HeaderBuf::new(&grant_header(common, grant)),
        Body::Resend(resend) => HeaderBuf::new(&resend_header(common, resend)),
        Body::RpcUnknown(reason) => {
            let code = if common.incarnation.is_none() { 0 } else { *reason as u32 };
            HeaderBuf::new(&common_header(common, kind, code))
        }
        Body::Cutoffs(cutoffs) => match cutoffs.unsched_limit.filter(|_| !common.incarnation.is_none()) {
            Some(limit) => HeaderBuf::new(&CutoffsLimitHeader {
                cutoffs: cutoffs_header(common, cutoffs),
                unsched_limit: limit.into(),
            }),
            None => HeaderBuf::new(&cutoffs_header(common, cutoffs)),
        },
        Body::Ack(acks) => HeaderBuf::new(&ack_header(common, acks)),
        Body::Start(start) => HeaderBuf::new(&StartHeader {
            common: common_header(common, kind, 0),
            message_length: start.message_length.into(),
        }),
        Body::Busy | Body::Freeze | Body::NeedAck => HeaderBuf::new(&common_header(common, kind, 0)),
    }
}

fn common_header(common: &Common, kind: PacketType, sequence: u32) -> CommonHeader {
    let (flags, window, checksum) = common.incarnation.to_wire();
    let urgent = if common.incarnation.is_none() { 0 } else { OURS_MAGIC };
    CommonHeader {
        source_port: common.source_port.into(),
        dest_port: common.dest_port.into(),
        sequence: sequence.into(),
        packet_length: U16::ZERO,
        bundle_endpoints: if common.incarnation.is_none() { 0 } else { common.bundle_endpoints },
        kind: kind as u8,
        doff: if kind == PacketType::Data { DOFF_DATA } else { DOFF_CONTROL },
        flags,
        window: window.into(),
        checksum: checksum.into(),
        urgent: urgent.into(),
        sender_id: common.sender_id.into(),
    }
}

fn data_header(common: &Common, data: &Data) -> DataHeader {
    DataHeader {
        // WIRE-5: both positions of the offset are filled in, so that a receiver may read either.
        common: common_header(common, PacketType::Data, data.offset),
        message_length: data.message_length.into(),
        incoming: data.incoming.into(),
        ack: ack_slot(data.ack),
        cutoff_version: data.cutoff_version.into(),
        retransmit: data.retransmit.into(),
        response_limit: response_limit(common, data),
        segment_offset: data.offset.into(),
    }
}

/// Encodes the limit on the response. Only peers that recognize our mark read this field.
fn response_limit(common: &Common, data: &Data) -> [u8; 3] {
    let limit = data.response_limit.filter(|_| !common.incarnation.is_none());
    let [_, high, middle, low] = limit.unwrap_or(0).min(MAX_RESPONSE_LIMIT).to_be_bytes();
    [high, middle, low]
}

fn grant_header(common: &Common, grant: &Grant) -> GrantHeader {
    GrantHeader {
        common: common_header(common, PacketType::Grant, 0),
        offset: grant.offset.into(),
        priority: existing_priority(grant.priority),
    }
}

fn resend_header(common: &Common, resend: &Resend) -> ResendHeader {
    ResendHeader {
        short: ShortResendHeader {
            common: common_header(common, PacketType::Resend, 0),
            offset: resend.offset.into(),
            length: resend.length.map_or(EVERYTHING_SENT, |length| length.min(MAX_MESSAGE_LENGTH)).into(),
        },
        priority: existing_priority(resend.priority),
    }
}

fn cutoffs_header(common: &Common, cutoffs: &Cutoffs) -> CutoffsHeader {
    CutoffsHeader {
        common: common_header(common, PacketType::Cutoffs, 0),
        cutoffs: cutoffs.cutoffs.map(|cutoff| U32::new(cutoff.min(MAX_MESSAGE_LENGTH))),
        version: cutoffs.version.into(),
    }
}

fn ack_header(common: &Common, acks: &AckList) -> AckHeader {
    let mut slots = [ack_slot(None); MAX_ACKS]; // WIRE-6
    for (slot, ack) in slots.iter_mut().zip(acks.iter()) {
        *slot = ack_slot(Some(ack));
    }
    AckHeader { common: common_header(common, PacketType::Ack, 0), count: U16::new(acks.len() as u16), slots }
}

fn ack_slot(ack: Option<Ack>) -> AckSlot {
    match ack {
        Some(ack) => AckSlot { client_id: ack.client_id.into(), server_port: ack.server_port.into() },
        None => AckSlot { client_id: U64::ZERO, server_port: U16::ZERO },
    }
}

fn existing_priority(priority: u8) -> u8 {
    priority.min(PRIORITIES as u8 - 1)
}
