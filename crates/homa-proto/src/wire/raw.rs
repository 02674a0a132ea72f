//! The layout of the headers: big-endian, unaligned, with every bit pattern allowed.
//!
//! A view does not check the values; [`decode`](super::decode()) does.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::packet::{
    ACK_LEN, COMMON_LEN, CUTOFFS_LEN, CUTOFFS_LIMIT_LEN, DATA_HEADER_LEN, GRANT_LEN, MAX_ACKS,
    MAX_HEADER_LEN, PRIORITIES, RESEND_LEN, RESEND_SHORT_LEN, START_LEN,
};

/// Value of [`DataHeader::segment_offset`] that refers the receiver to [`CommonHeader::sequence`] for the
/// offset.
pub(super) const OFFSET_IN_SEQUENCE: u32 = u32::MAX;
/// Value of [`ResendHeader::length`] that requests everything sent so far: -1.
pub(super) const EVERYTHING_SENT: u32 = u32::MAX;
/// Value of `urgent` in every packet that a full build of Linux Homa sends over raw IP.
pub(super) const KERNEL_URGENT: u16 = 0xb97d;
/// Value of `flags` in the same packets: TCP's SYN and RST.
pub(super) const KERNEL_FLAGS: u8 = 6;
/// `doff` of DATA as Linux Homa sends it: 14 words of four bytes, the length of the DATA header.
pub(super) const DOFF_DATA: u8 = 0xe0;
/// `doff` of all other types as Linux Homa sends it: 5 words, the length of a TCP header.
pub(super) const DOFF_CONTROL: u8 = 0x50;

/// The common header, laid out so that its first 20 bytes resemble a TCP header.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CommonHeader {
    pub source_port: U16,
    pub dest_port: U16,
    pub sequence: U32,
    /// Linux Homa sends 0 here and in the next field.
    pub packet_length: U16,
    pub bundle_endpoints: u8,
    pub kind: u8,
    pub doff: u8,
    pub flags: u8,
    pub window: U16,
    pub checksum: U16,
    pub urgent: U16,
    pub sender_id: U64,
}

/// A slot for one acknowledgement; id 0 marks it empty.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AckSlot {
    pub client_id: U64,
    pub server_port: U16,
}

/// The DATA header, up to the payload.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DataHeader {
    pub common: CommonHeader,
    pub message_length: U32,
    pub incoming: U32,
    pub ack: AckSlot,
    pub cutoff_version: U16,
    pub retransmit: u8,
    /// Padding for Linux Homa, which sends 0 and does not read it. Our peers use it to limit the response's
    /// unscheduled bytes.
    pub response_limit: [u8; 3],
    pub segment_offset: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct GrantHeader {
    pub common: CommonHeader,
    pub offset: U32,
    pub priority: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ResendHeader {
    pub short: ShortResendHeader,
    pub priority: u8,
}

/// The RESEND header as sent by peers without priorities.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ShortResendHeader {
    pub common: CommonHeader,
    pub offset: U32,
    pub length: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct StartHeader {
    pub common: CommonHeader,
    pub message_length: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CutoffsHeader {
    pub common: CommonHeader,
    pub cutoffs: [U32; PRIORITIES],
    pub version: U16,
}

/// The CUTOFFS header sent to a peer of this implementation.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CutoffsLimitHeader {
    pub cutoffs: CutoffsHeader,
    pub unsched_limit: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AckHeader {
    pub common: CommonHeader,
    pub count: U16,
    pub slots: [AckSlot; MAX_ACKS],
}

// WIRE-1: the lengths in PROTOCOL.md's tables; the fields have the same order.
const _: () = {
    assert!(size_of::<CommonHeader>() == COMMON_LEN);
    assert!(size_of::<DataHeader>() == DATA_HEADER_LEN);
    assert!(size_of::<GrantHeader>() == GRANT_LEN);
    assert!(size_of::<ResendHeader>() == RESEND_LEN);
    assert!(size_of::<ShortResendHeader>() == RESEND_SHORT_LEN);
    assert!(size_of::<StartHeader>() == START_LEN);
    assert!(size_of::<CutoffsHeader>() == CUTOFFS_LEN);
    assert!(size_of::<CutoffsLimitHeader>() == CUTOFFS_LIMIT_LEN);
    assert!(size_of::<AckHeader>() == ACK_LEN);
    assert!(
        MAX_HEADER_LEN >= DATA_HEADER_LEN && MAX_HEADER_LEN >= CUTOFFS_LIMIT_LEN && MAX_HEADER_LEN == ACK_LEN
    );
    assert!(DOFF_DATA as usize >> 4 << 2 == DATA_HEADER_LEN);
};
