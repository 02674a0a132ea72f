//! Packets of Linux Homa as bytes, for the model kernels. This code is written from the layouts alone and
//! shares nothing with `homa_proto::wire`: the two can agree with each other only if both agree with the
//! layouts.

use super::speaker::Kernel;

pub(super) const DATA: u8 = 0x10;
pub(super) const GRANT: u8 = 0x11;
pub(super) const RESEND: u8 = 0x12;
pub(super) const UNKNOWN: u8 = 0x13;
pub(super) const BUSY: u8 = 0x14;
pub(super) const CUTOFFS: u8 = 0x15;
pub(super) const NEED_ACK: u8 = 0x17;
pub(super) const ACK: u8 = 0x18;
pub(super) const START_MSG: u8 = 0x19;

pub(super) const COMMON_BYTES: usize = 28;
pub(super) const DATA_BYTES: usize = 56;
/// The value of `seg.offset` that refers to `sequence`, and the length in a RESEND that means everything
/// sent.
pub(super) const MINUS_ONE: u32 = 0xffff_ffff;

/// The fields of the common header that a model sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) sport: u16,
    pub(super) dport: u16,
    pub(super) kind: u8,
    pub(super) id: u64,
    /// Whether the fields that mark a packet as Linux Homa's are set.
    pub(super) marked: bool,
}

/// Makes a packet of `len` bytes with this header, filled with zeros.
pub(super) fn packet(head: &Head, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(COMMON_BYTES)];
    put(&mut bytes, 0, &head.sport.to_be_bytes());
    put(&mut bytes, 2, &head.dport.to_be_bytes());
    bytes[11] = head.kind;
    bytes[12] = if head.kind == DATA { 0xd0 } else { 0x50 };
    if head.marked {
        bytes[13] = 6;
        put(&mut bytes, 18, &0xb97d_u16.to_be_bytes());
    }
    put(&mut bytes, 20, &head.id.to_be_bytes());
    bytes
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Returns the offset of a DATA packet's first byte in its message.
pub(super) fn data_offset(bytes: &[u8]) -> u32 {
    let segment_offset = u32_at(bytes, 52);
    if segment_offset == MINUS_ONE { u32_at(bytes, 4) } else { segment_offset }
}

/// Returns the minimum length of a packet of this type for this kernel; `None`: the kernel does not know the
/// type.
pub(super) fn least_bytes(kind: u8, kernel: Kernel) -> Option<usize> {
    let is_stripped = kernel == Kernel::Three;
    Some(match kind {
        DATA => DATA_BYTES,
        GRANT | CUTOFFS if is_stripped => COMMON_BYTES,
        GRANT => 33,
        RESEND if is_stripped => 36,
        RESEND => 37,
        UNKNOWN | BUSY | NEED_ACK => COMMON_BYTES,
        CUTOFFS => 62,
        ACK => 80,
        START_MSG if kernel == Kernel::Two => 32,
        _ => return None,
    })
}
