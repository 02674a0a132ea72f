//! Synthetic IP headers for captures and for ICMP, and the Internet checksum (RFC 1071).

use std::net::{Ipv4Addr, Ipv6Addr};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// The hop limit that Linux uses by default.
const HOP_LIMIT: u8 = 64;

/// Returns a length, limited to the maximum of its field.
#[inline]
fn field(length: usize) -> u16 {
    length.min(usize::from(u16::MAX)) as u16
}

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpAddresses {
    /// IPv4 addresses.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6 addresses.
    V6(Ipv6Addr, Ipv6Addr),
}

impl IpAddresses {
    /// Returns the length of the header.
    #[inline]
    #[must_use]
    pub fn header_bytes(self) -> usize {
        match self {
            IpAddresses::V4(..) => IPV4_BYTES,
            IpAddresses::V6(..) => IPV6_BYTES,
        }
    }

    /// Appends the header of a packet with `length` bytes after the header. If `length` exceeds the maximum
    /// of the length field, the field contains the maximum.
    #[inline]
    pub fn append_header(self, out: &mut Vec<u8>, dscp_byte: u8, protocol: u8, length: usize) {
        match self {
            IpAddresses::V4(from, to) => {
                let mut header = [0; IPV4_BYTES];
                header[0] = 0x45;
                header[1] = dscp_byte;
                header[2..4].copy_from_slice(&field(IPV4_BYTES + length).to_be_bytes());
                // Set don't-fragment: this transport never fragments.
                header[6] = 0x40;
                header[8] = HOP_LIMIT;
                header[9] = protocol;
                header[12..16].copy_from_slice(&from.octets());
                header[16..].copy_from_slice(&to.octets());
                let checksum = fold(sum(0, &header));
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                out.extend_from_slice(&header);
            }
            IpAddresses::V6(from, to) => {
                let mut header = [0; IPV6_BYTES];
                header[0] = 0x60 | dscp_byte >> 4;
                header[1] = dscp_byte << 4;
                header[4..6].copy_from_slice(&field(length).to_be_bytes());
                header[6] = protocol;
                header[7] = HOP_LIMIT;
                header[8..24].copy_from_slice(&from.octets());
                header[24..].copy_from_slice(&to.octets());
                out.extend_from_slice(&header);
            }
        }
    }
}

/// Adds bytes to a ones' complement sum of 16-bit words. If the number of bytes is odd, the last byte is the
/// high half of a word.
#[inline]
#[must_use]
pub fn sum(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let total: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    start + total + rest.first().map_or(0, |&byte| u64::from(byte) << 8)
}

/// Returns the checksum for a sum.
#[inline]
#[must_use]
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}
