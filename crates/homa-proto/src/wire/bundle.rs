//! Bundles: several packets of one sender in one datagram (PROTOCOL.md WIRE-21 to WIRE-24).

use std::mem::offset_of;

use zerocopy::FromBytes;

use super::packet::{COMMON_LEN, OURS_MAGIC};
use super::raw::CommonHeader;

/// The packets of one datagram, in order. See [`packets`].
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    /// The bytes not yet iterated over; `None`: there are no more.
    rest: Option<&'a [u8]>,
    /// Whether the next packet is the datagram's first.
    is_first: bool,
}

/// Splits a datagram into its packets. A datagram that is not a bundle is one packet, regardless of its
/// contents.
///
/// Zero bytes after a packet are padding. If a packet's length exceeds the remaining bytes, the last item is
/// empty, and [`decode`](super::decode()) rejects it. The packets before it are complete.
#[must_use]
pub fn packets(datagram: &[u8]) -> Packets<'_> {
    Packets { rest: Some(datagram), is_first: true }
}

/// Returns the length of the first packet of a bundle; `None`: the datagram is not a bundle, or was truncated
/// within a header.
#[must_use]
#[inline]
pub fn packet_length(datagram: &[u8]) -> Option<usize> {
    let (header, _) = CommonHeader::ref_from_prefix(datagram).ok()?;
    let length = usize::from(header.packet_length.get());
    // WIRE-3: Linux Homa may send any value in this field.
    (length != 0 && header.urgent.get() == OURS_MAGIC).then_some(length)
}

/// Returns the value of the packet length field, regardless of the sender; 0 if the header is incomplete.
#[must_use]
pub fn stated_length(bytes: &[u8]) -> usize {
    CommonHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.packet_length.get().into())
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let is_first = std::mem::replace(&mut self.is_first, false);
        match packet_length(rest) {
            None if is_first => Some(rest),
            // WIRE-22: only zeros are padding, and every packet of a bundle carries the mark.
            None => (stated_length(rest) != 0).then_some(&[]),
            // WIRE-22
            Some(length) if length < COMMON_LEN => Some(&[]),
            Some(length) => {
                let Some((packet, rest)) = rest.split_at_checked(length) else { return Some(&[]) };
                self.rest = (!rest.is_empty()).then_some(rest);
                Some(packet)
            }
        }
    }
}

/// Appends a packet to a datagram, which thereby becomes a bundle. The header must come from
/// [`encode`](super::encode()), and the datagram must stay shorter than 65,536 bytes.
///
/// # Panics
/// The header is shorter than the common header, or the packet is longer than 65,535 bytes.
pub fn append_packet(datagram: &mut Vec<u8>, header: &[u8], payload: &[u8]) {
    const LENGTH: usize = offset_of!(CommonHeader, packet_length);
    let start = datagram.len();
    datagram.extend_from_slice(header);
    let length = u16::try_from(header.len() + payload.len()).expect("a packet fits a datagram");
    datagram[start + LENGTH..][..2].copy_from_slice(&length.to_be_bytes());
    datagram.extend_from_slice(payload);
}
