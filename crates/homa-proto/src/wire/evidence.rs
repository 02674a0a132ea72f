//! Derives evidence of the sender's dialect from the form of a packet. Uses only the packet's bytes: no
//! state, and no other packet.

use zerocopy::FromBytes;

use super::packet::{OURS_MAGIC, PacketType, RESEND_SHORT_LEN};
use super::raw::{CommonHeader, DataHeader, KERNEL_FLAGS, KERNEL_URGENT, OFFSET_IN_SEQUENCE};

/// The evidence of one packet about its sender (DIALECT-2). The dialects are numbered as in PROTOCOL.md.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evidence {
    /// This implementation's mark.
    Ours,
    /// START_MSG, which only dialect 2 has.
    StartMsg,
    /// RESEND without a priority, which only dialect 3 sends.
    ShortResend,
    /// DATA whose offset is only in `sequence`, which only dialect 1 sends.
    OffsetInSequence,
    /// DATA with the kernel's marks and a plausible value in `incoming`, of a message of several packets.
    Announced,
    /// DATA with the kernel's marks, and 0 in `incoming`.
    Unannounced,
    /// DATA without marks, and 0 in `incoming`.
    UnmarkedUnannounced,
    /// The kernel's marks or a packet type that dialect 3 does not have. RESEND with a priority belongs here.
    Full,
    /// Nothing that distinguishes dialects.
    Nothing,
}

impl Evidence {
    /// Every kind of evidence, for tests and tables.
    pub const ALL: [Self; 9] = [
        Self::Ours,
        Self::StartMsg,
        Self::ShortResend,
        Self::OffsetInSequence,
        Self::Announced,
        Self::Unannounced,
        Self::UnmarkedUnannounced,
        Self::Full,
        Self::Nothing,
    ];
}

/// Returns the evidence about the sender of the packet `bytes`, whose length on the wire is `wire_len`. The
/// packet must be one that [`decode`](super::decode()) accepts; for other bytes the result is meaningless.
pub fn evidence(bytes: &[u8], wire_len: usize) -> Evidence {
    let Ok((header, _)) = CommonHeader::ref_from_prefix(bytes) else { return Evidence::Nothing };
    // A control packet is as long as its bytes, whereas `wire_len` includes missing payload.
    let is_short = bytes.len().min(wire_len) == RESEND_SHORT_LEN;
    if header.urgent.get() == OURS_MAGIC {
        return Evidence::Ours;
    }
    let is_marked = header.urgent.get() == KERNEL_URGENT && header.flags == KERNEL_FLAGS;
    let otherwise = if is_marked { Evidence::Full } else { Evidence::Nothing };
    match PacketType::try_from(header.kind) {
        Ok(PacketType::Start) => Evidence::StartMsg,
        Ok(PacketType::Resend) if is_short => Evidence::ShortResend,
        Ok(PacketType::Resend | PacketType::Grant | PacketType::Cutoffs | PacketType::Freeze) => {
            Evidence::Full
        }
        Ok(PacketType::Data) => data(bytes, wire_len, is_marked).unwrap_or(otherwise),
        _ => otherwise,
    }
}

fn data(bytes: &[u8], wire_len: usize, is_marked: bool) -> Option<Evidence> {
    let (data, _) = DataHeader::ref_from_prefix(bytes).ok()?;
    if data.segment_offset.get() == OFFSET_IN_SEQUENCE {
        return Some(Evidence::OffsetInSequence);
    }
    let (length, incoming) = (data.message_length.get(), data.incoming.get());
    let has_more = wire_len.saturating_sub(size_of::<DataHeader>()) < length as usize;
    match (incoming, is_marked) {
        (0, true) => Some(Evidence::Unannounced),
        (0, false) => Some(Evidence::UnmarkedUnannounced),
        (_, true) if has_more && incoming <= length => Some(Evidence::Announced),
        _ => None,
    }
}
