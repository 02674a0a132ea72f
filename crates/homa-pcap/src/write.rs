//! Writes capture files in the classic pcap format, with nanosecond times and packets that begin with their
//! IP header.
//!
//! Numbers in the file's own structures have the byte order of the writing machine; a reader detects it from
//! the magic number.

use std::net::{Ipv6Addr, SocketAddr};

use crate::PROTOCOL_HOMA;
use crate::ip::{IpAddresses, fold, sum};

/// Magic number of files whose times are in nanoseconds (libpcap 1.5 and later, Wireshark).
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// LINKTYPE_RAW: packets begin with an IPv4 or IPv6 header; the version field in it tells which.
const LINKTYPE_RAW: u32 = 101;
/// No packet is longer than 65,535 + 40 bytes; libpcap's own limit is 262,144.
const SNAPLEN: u32 = 262_144;

/// Returns the header of a file.
#[must_use]
pub fn file_header() -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_ne_bytes());
    bytes[4..6].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[6..8].copy_from_slice(&4_u16.to_ne_bytes());
    bytes[16..20].copy_from_slice(&SNAPLEN.to_ne_bytes());
    bytes[20..].copy_from_slice(&LINKTYPE_RAW.to_ne_bytes());
    bytes
}

const UDP_BYTES: usize = 8;
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// A packet to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Sender. The port is only used over UDP.
    pub from: SocketAddr,
    /// Receiver. The port is only used over UDP.
    pub to: SocketAddr,
    /// IPv4 type of service or IPv6 traffic class.
    pub dscp_byte: u8,
    /// Whether the packet is sent over UDP rather than directly over IP.
    pub udp: bool,
    /// The Homa packet, in two parts.
    pub parts: [&'a [u8]; 2],
}

/// Appends the record of a packet: its time, a synthetic IP header (followed by a UDP header over UDP), and
/// its bytes. The IP header is IPv4 if both addresses are, and otherwise IPv6.
pub fn append(out: &mut Vec<u8>, packet: &Packet<'_>) {
    let payload: usize = packet.parts.iter().map(|part| part.len()).sum();
    let ip_payload = if packet.udp { UDP_BYTES + payload } else { payload };
    let ip = match (packet.from, packet.to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => IpAddresses::V4(*from.ip(), *to.ip()),
        (from, to) => IpAddresses::V6(as_v6(from), as_v6(to)),
    };
    let length = (ip.header_bytes() + ip_payload) as u32;
    let seconds = packet.time_ns / 1_000_000_000;
    // The format has 32 bits for seconds, which last until 2106 if read as unsigned.
    for word in [seconds as u32, (packet.time_ns % 1_000_000_000) as u32, length, length] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    ip.append_header(
        out,
        packet.dscp_byte,
        if packet.udp { PROTOCOL_UDP } else { PROTOCOL_HOMA },
        ip_payload,
    );
    if packet.udp {
        out.extend_from_slice(&udp_header(packet, ip, ip_payload));
    }
    packet.parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn udp_header(packet: &Packet<'_>, ip: IpAddresses, udp_length: usize) -> [u8; UDP_BYTES] {
    let mut udp = [0; UDP_BYTES];
    udp[..2].copy_from_slice(&packet.from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&packet.to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_length as u16).to_be_bytes());
    if let IpAddresses::V6(from, to) = ip {
        let checksum = udp_checksum_v6(from, to, udp, packet.parts);
        udp[6..].copy_from_slice(&checksum.to_be_bytes());
    }
    udp
}

fn as_v6(address: SocketAddr) -> Ipv6Addr {
    match address {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
        SocketAddr::V6(v6) => *v6.ip(),
    }
}

/// Computes the UDP checksum, which IPv6 requires (RFC 8200, 8.1). Over IPv4, zero means that there is none.
fn udp_checksum_v6(from: Ipv6Addr, to: Ipv6Addr, udp: [u8; UDP_BYTES], parts: [&[u8]; 2]) -> u16 {
    let [first, second] = parts;
    let mut total = sum(0, &from.octets());
    total = sum(total, &to.octets());
    total += u64::from(u16::from_be_bytes([udp[4], udp[5]])) + u64::from(PROTOCOL_UDP);
    total = sum(total, &udp);
    total = sum(total, first);
    if first.len() % 2 == 0 {
        total = sum(total, second);
    } else if let Some((&head, tail)) = second.split_first() {
        // The boundary between the parts is in the middle of a 16-bit word.
        total = sum(total + u64::from(head), tail);
    }
    // A sum of zero is sent in its other representation, because zero means that there is no checksum.
    match fold(total) {
        0 => 0xffff,
        checksum => checksum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: &str, to: &str, dscp_byte: u8, parts: [&[u8]; 2]) -> Vec<u8> {
        let mut out = Vec::new();
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        append(
            &mut out,
            &Packet { time_ns: 1_700_000_000_123_456_789, from, to, dscp_byte, udp: true, parts },
        );
        out
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn a_record_has_its_time_and_both_lengths() {
        let record = record("10.0.0.1:7", "10.0.0.2:8", 0, [b"head", b"tail!"]);
        assert_eq!((word(&record, 0), word(&record, 4)), (1_700_000_000, 123_456_789));
        assert_eq!((word(&record, 8), word(&record, 12)), (37, 37));
        assert_eq!(record.len(), 16 + 37);
    }

    #[test]
    fn an_ipv4_header_is_right_to_the_checksum() {
        let record = record("10.0.0.1:7", "10.0.0.2:8", 0xa0, [b"head", b"tail!"]);
        let ip = &record[16..36];
        assert_eq!(ip[..10], [0x45, 0xa0, 0, 37, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(ip[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(fold(sum(0, ip)), 0, "a header with its checksum sums to zero");
        assert_eq!(record[36..44], [0, 7, 0, 8, 0, 17, 0, 0]);
        assert_eq!(&record[44..], b"headtail!");
    }

    #[test]
    fn an_ipv6_packet_has_its_class_and_a_checksum_that_verifies() {
        // The lengths of the two parts cover all combinations of odd and even.
        for (head, tail) in [(4, 5), (5, 4), (5, 5), (0, 3), (3, 0), (0, 0)] {
            let (head, tail) = (&[0xab; 5][..head], &[0xcd; 5][..tail]);
            let record = record("[2001:db8::1]:7", "[2001:db8::2]:8", 0xe0, [head, tail]);
            let ip = &record[16..56];
            assert_eq!(ip[..2], [0x6e, 0x00]);
            let udp = &record[56..];
            assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), udp.len());
            let pseudo = sum(sum(0, &ip[8..]), udp) + udp.len() as u64 + 17;
            assert_eq!(fold(pseudo), 0, "{head:?} {tail:?}");
        }
    }

    #[test]
    fn mixed_addresses_are_shown_as_ipv6() {
        let record = record("[::]:7", "10.0.0.2:8", 0, [b"", b""]);
        assert_eq!(record[16] >> 4, 6);
        assert_eq!(record[16 + 24 + 10..16 + 40], [0xff, 0xff, 10, 0, 0, 2]);
    }
}
