//! A classic BPF program that selects the frames for the ring.
//!
//! The program sees a frame from its Ethernet header on, without a VLAN tag: the kernel removes the tag and
//! keeps it as metadata. The program passes frames addressed to this host, but not frames for other hosts or
//! frames sent by this host. Frames of a VLAN are dropped, since a VLAN is a separate device. The frames must
//! be unfragmented, of our protocol, to our address, and over UDP to our port. All other frames are dropped
//! here; the kernel's own stack sees every frame anyway.

use std::net::{IpAddr, SocketAddr};

use homa_bpf::classic::{
    A_FROM_X, ADD_NUMBER, IF_ANY_BIT, IF_EQUAL, Instruction, LOAD_BYTE, LOAD_HALF, LOAD_HALF_X, LOAD_WORD,
    RETURN_NUMBER, X_FROM_A, X_HEADER, X_NUMBER, plain,
};

use crate::carrier::Carrier;
use crate::filter::ReceiveFilter;
use crate::l2::frame::ETHERNET_BYTES;
use crate::raw::program;

const IP_AT: u32 = ETHERNET_BYTES as u32;
/// The packet type of frames addressed to this host (PACKET_HOST).
const FOR_US: u32 = 0;
const FRAGMENT_BITS: u32 = 0x3fff;
/// Bits of a VLAN tag that identify the VLAN; 0 means that there is none.
const VLAN_BITS: u32 = 0xfff;
/// Longer than any frame.
const WHOLE: u32 = 0x4_0000;

/// Returns code that continues if the loaded number is `k`, and drops the frame otherwise.
fn require_equal(k: u32) -> [Instruction; 2] {
    [Instruction { code: IF_EQUAL, if_true: 1, if_false: 0, k }, plain(RETURN_NUMBER, 0)]
}

/// Builds the program for frames to this address and port. Directly over IP, `filter` selects them by Homa
/// port.
pub(super) fn build(carrier: Carrier, local: SocketAddr, filter: Option<&ReceiveFilter>) -> Vec<Instruction> {
    let kind_at = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let vlan_at = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32;
    let ether_type = if local.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
    // The socket receives all frames of the device, so first check what differs in most foreign frames.
    let mut program = vec![plain(LOAD_HALF, IP_AT - 2)];
    program.extend(require_equal(ether_type as u32));
    program.push(plain(LOAD_BYTE, kind_at));
    program.extend(require_equal(FOR_US));
    program.push(plain(LOAD_HALF, vlan_at));
    program.push(Instruction { code: IF_ANY_BIT, if_true: 0, if_false: 1, k: VLAN_BITS });
    program.push(plain(RETURN_NUMBER, 0));
    let protocol_at = IP_AT + if local.is_ipv4() { 9 } else { 6 };
    program.push(plain(LOAD_BYTE, protocol_at));
    program.extend(require_equal(carrier.protocol().into()));
    match local.ip() {
        IpAddr::V4(ip) => {
            program.push(plain(LOAD_HALF, IP_AT + 6));
            program.push(Instruction { code: IF_ANY_BIT, if_true: 0, if_false: 1, k: FRAGMENT_BITS });
            program.push(plain(RETURN_NUMBER, 0));
            program.push(plain(LOAD_WORD, IP_AT + 16));
            program.extend(require_equal(ip.to_bits()));
            program.push(plain(X_HEADER, IP_AT));
        }
        IpAddr::V6(ip) => {
            for (word, at) in ip.octets().as_chunks::<4>().0.iter().zip((24_u32..).step_by(4)) {
                program.push(plain(LOAD_WORD, IP_AT + at));
                program.extend(require_equal(u32::from_be_bytes(*word)));
            }
            program.push(plain(X_NUMBER, 40));
        }
    }
    match (carrier, filter) {
        (Carrier::Udp, _) => {
            program.push(plain(LOAD_HALF_X, IP_AT + 2));
            program.extend(require_equal(local.port().into()));
        }
        (Carrier::Ip, Some(filter)) => {
            // The program that selects by Homa port expects the offset of the Homa packet in X.
            program.push(plain(A_FROM_X, 0));
            program.push(plain(ADD_NUMBER, IP_AT));
            program.push(plain(X_FROM_A, 0));
            if let Some(program) = program::choose_by_port(program.clone(), filter) {
                return program;
            }
            // The program is too long: pass every packet, and let the receiver check the ports itself.
        }
        (Carrier::Ip, None) => (),
    }
    program.push(plain(RETURN_NUMBER, WHOLE));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_too_long_for_the_kernel_lets_every_port_through() {
        let ports = |count| ReceiveFilter::new((0..count).map(|port| 3 * port), None);
        for local in ["10.0.0.1:0", "[fd00::1]:0"] {
            let of = |count| build(Carrier::Ip, local.parse().unwrap(), Some(&ports(count)));
            assert!(of(100).len() > 300);
            let long = of(5_000);
            assert!(long.len() < 50 && long.last() == Some(&plain(RETURN_NUMBER, WHOLE)));
        }
    }
}
