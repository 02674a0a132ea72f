//! What programs that look at frames have in common: where things are in a frame, and how to come by them.

use super::assembler::Register::{R2, R7, R8};
use super::assembler::{Assembler, Label};

pub(crate) const ETHER_TYPE: i16 = 12;
/// A tag of IEEE 802.1Q, which stands before the EtherType: the EtherTypes that announce one, and its bytes.
pub(crate) const VLAN_TYPES: [u16; 2] = [libc::ETH_P_8021Q as u16, libc::ETH_P_8021AD as u16];
pub(crate) const VLAN_BYTES: i16 = 4;
pub(crate) const ETHER_BYTES: i16 = 14;
pub(crate) const IPV4_BYTES: i16 = 20;
pub(crate) const IPV6_BYTES: i16 = 40;
pub(crate) const UDP_BYTES: i16 = 8;

/// Version 4 and a header of five words: without options.
pub(crate) const IPV4_PLAIN: u32 = 0x45;
/// The bits of the fragment field that every fragment has some of: more to come, and the offset.
pub(crate) const IPV4_FRAGMENT: u16 = 0x3fff;

/// Two bytes of a packet as a load gives them.
pub(crate) fn loaded_u16(number: u16) -> u32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

/// Goes on at the label unless the frame, which is from R7 to R8, has so many bytes; the verifier lets nothing be loaded that was not
/// asked for. Spoils R2.
pub(crate) fn need(program: &mut Assembler, bytes: i16, otherwise: Label) {
    program.copy(R2, R7);
    program.add(R2, bytes as u32);
    program.jump_if_greater(R2, R8, otherwise);
}
