//! Offsets and lengths of headers in a frame, and the bounds check before a load.

use crate::assembler::Register::{R2, R7, R8};
use crate::assembler::{Assembler, Label};

/// Offset of the EtherType.
pub const ETHER_TYPE: i16 = 12;
/// EtherTypes that announce a VLAN tag (IEEE 802.1Q, 802.1ad), which is inserted before the EtherType.
pub const VLAN_TYPES: [u16; 2] = [libc::ETH_P_8021Q as u16, libc::ETH_P_8021AD as u16];
/// Length of a VLAN tag.
pub const VLAN_BYTES: i16 = 4;
/// Length of an Ethernet header without VLAN tags.
pub const ETHER_BYTES: i16 = 14;
/// Length of an IPv4 header without options.
pub const IPV4_BYTES: i16 = 20;
/// Length of an IPv6 header.
pub const IPV6_BYTES: i16 = 40;
/// Length of a UDP header.
pub const UDP_BYTES: i16 = 8;

/// First byte of an IPv4 header without options: version 4 and a length of five 32-bit words.
pub const IPV4_PLAIN: u32 = 0x45;
/// Mask for IPv4's fragment field (more-fragments flag and offset): nonzero in every fragment.
pub const IPV4_FRAGMENT: u16 = 0x3fff;

/// Returns the value that a load returns if a 16-bit field of a packet contains this number.
#[must_use]
pub fn loaded_u16(number: u16) -> u32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

/// Jumps to the label unless the frame, which extends from R7 to R8, has at least this many bytes. The
/// verifier permits no load beyond the checked length. Overwrites R2.
pub fn need(program: &mut Assembler, bytes: i16, otherwise: Label) {
    program.copy(R2, R7);
    program.add(R2, bytes as u32);
    program.jump_if_greater(R2, R8, otherwise);
}
