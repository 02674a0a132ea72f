//! Finds the contents of a captured frame: Homa over IP, Homa over UDP, or an ICMP error about either.
//!
//! No input causes a panic. A frame too short for its own headers counts as [`Content::Other`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::PROTOCOL_HOMA;
use crate::write::PROTOCOL_UDP;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;

/// Maximum number of IPv6 extension headers before the payload. Packets with more are not parsed.
const MAX_EXTENSIONS: usize = 8;
/// Maximum number of VLAN tags on an Ethernet frame.
const MAX_TAGS: usize = 4;

/// The link type, which determines the first header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// BSD loopback: a four-byte protocol family, in either byte order.
    Loopback,
    /// Ethernet, with or without VLAN tags.
    Ethernet,
    /// An IP header.
    RawIp,
    /// Linux "cooked" capture, as on the interface `any`.
    LinuxCooked,
    /// Version 2 of the Linux "cooked" capture.
    LinuxCooked2,
}

impl LinkType {
    /// Returns the link type with this number in capture files; `None` if it is not supported.
    pub fn from_code(code: u32) -> Option<LinkType> {
        match code {
            0 | 108 => Some(LinkType::Loopback),
            1 => Some(LinkType::Ethernet),
            // Some systems write 12 or 14 instead of 101; 228 and 229 are for IPv4 only and IPv6 only.
            12 | 14 | 101 | 228 | 229 => Some(LinkType::RawIp),
            113 => Some(LinkType::LinuxCooked),
            276 => Some(LinkType::LinuxCooked2),
            _ => None,
        }
    }
}

/// Part of a frame, possibly truncated by the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedBytes<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Number of bytes on the wire, at least `bytes.len()`.
    pub wire_len: usize,
}

impl<'a> CapturedBytes<'a> {
    /// Returns the part after the first `count` bytes; `None` if these were not captured.
    fn skip(self, count: usize) -> Option<CapturedBytes<'a>> {
        Some(CapturedBytes { bytes: self.bytes.get(count..)?, wire_len: self.wire_len - count })
    }

    /// Returns the first `count` bytes.
    fn cut(self, count: usize) -> CapturedBytes<'a> {
        let bytes = self.bytes.get(..count).unwrap_or(self.bytes);
        CapturedBytes { bytes, wire_len: self.wire_len.min(count) }
    }
}

/// A datagram that may contain Homa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender. The port is the UDP port, or 0 over raw IP.
    pub from: SocketAddr,
    /// The destination.
    pub to: SocketAddr,
    /// IPv4 type of service or IPv6 traffic class.
    pub dscp_byte: u8,
    /// Whether the datagram was sent over UDP rather than directly over IP.
    pub udp: bool,
    /// The payload: over raw IP a Homa packet, over UDP possibly a Homa packet.
    pub payload: CapturedBytes<'a>,
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A datagram that may contain Homa.
    Datagram(Datagram<'a>),
    /// An ICMP or ICMPv6 error about a datagram that may contain Homa, with a quote of its start.
    Error {
        /// The host that sent the report.
        from: IpAddr,
        /// The host that the report is addressed to.
        to: IpAddr,
        /// ICMP type. The numbering depends on the IP version.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// The quoted datagram.
        about: Datagram<'a>,
    },
    /// Part of a Homa packet that was fragmented by IP; Homa itself never fragments (WIRE-17).
    Fragment {
        /// The sender.
        from: IpAddr,
        /// The destination.
        to: IpAddr,
    },
    /// Nothing of interest.
    Other,
}

/// Finds the contents of a frame of `wire_len` bytes, of which `bytes` were captured.
pub fn dissect(link: LinkType, bytes: &[u8], wire_len: u32) -> Content<'_> {
    let frame = CapturedBytes { bytes, wire_len: (wire_len as usize).max(bytes.len()) };
    link_payload(link, frame).and_then(content).unwrap_or(Content::Other)
}

/// Returns the IP packet in a frame.
fn link_payload(link: LinkType, frame: CapturedBytes<'_>) -> Option<CapturedBytes<'_>> {
    let mut ether_type_at = match link {
        LinkType::RawIp => return Some(frame),
        // The number of the protocol family differs between systems, but the IP version in the next byte
        // gives the same information.
        LinkType::Loopback => return frame.skip(4),
        LinkType::Ethernet => 12,
        LinkType::LinuxCooked => 14,
        LinkType::LinuxCooked2 => 0,
    };
    for _ in 0..=MAX_TAGS {
        match be16(frame.bytes, ether_type_at)? {
            0x0800 | 0x86dd if link == LinkType::LinuxCooked2 => return frame.skip(20),
            0x0800 | 0x86dd => return frame.skip(ether_type_at + 2),
            0x8100 | 0x88a8 | 0x9100 if link == LinkType::Ethernet => ether_type_at += 4,
            _ => return None,
        }
    }
    None
}

/// The relevant fields of an IP header.
struct Ip<'a> {
    from: IpAddr,
    to: IpAddr,
    dscp_byte: u8,
    protocol: u8,
    /// Offset of the fragment in its packet, and whether more fragments follow.
    fragment: (u16, bool),
    payload: CapturedBytes<'a>,
}

fn content(packet: CapturedBytes<'_>) -> Option<Content<'_>> {
    let ip = parse_ip(packet)?;
    let (offset, more) = ip.fragment;
    if offset != 0 || more {
        let homa = ip.protocol == PROTOCOL_HOMA;
        return homa.then_some(Content::Fragment { from: ip.from, to: ip.to });
    }
    if !matches!((ip.protocol, ip.from), (PROTOCOL_ICMP, IpAddr::V4(_)) | (PROTOCOL_ICMPV6, IpAddr::V6(_))) {
        return datagram(&ip).map(Content::Datagram);
    }
    let &[kind, code, ..] = ip.payload.bytes else { return None };
    let is_error = match ip.from {
        // Destination unreachable, source quench, redirect, time exceeded, parameter problem.
        IpAddr::V4(_) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        IpAddr::V6(_) => kind < 128,
    };
    let quoted = parse_ip(ip.payload.skip(8)?).filter(|_| is_error)?;
    let about = datagram(&quoted)?;
    Some(Content::Error { from: ip.from, to: ip.to, kind, code, about })
}

fn datagram<'a>(ip: &Ip<'a>) -> Option<Datagram<'a>> {
    let (mut from, mut to) = (SocketAddr::new(ip.from, 0), SocketAddr::new(ip.to, 0));
    let Ip { dscp_byte, payload, .. } = *ip;
    match ip.protocol {
        PROTOCOL_HOMA => Some(Datagram { from, to, dscp_byte, udp: false, payload }),
        PROTOCOL_UDP => {
            from.set_port(be16(payload.bytes, 0)?);
            to.set_port(be16(payload.bytes, 2)?);
            let length = usize::from(be16(payload.bytes, 4)?);
            // With segmentation offload, captures on the sending host contain lengths of 0.
            let payload = if length >= 8 { payload.cut(length) } else { payload };
            Some(Datagram { from, to, dscp_byte, udp: true, payload: payload.skip(8)? })
        }
        _ => None,
    }
}

fn parse_ip(packet: CapturedBytes<'_>) -> Option<Ip<'_>> {
    match packet.bytes.first()? >> 4 {
        4 => parse_ipv4(packet),
        6 => parse_ipv6(packet),
        _ => None,
    }
}

fn parse_ipv4(packet: CapturedBytes<'_>) -> Option<Ip<'_>> {
    let header: &[u8; 20] = packet.bytes.first_chunk()?;
    let header_len = usize::from(header[0] & 15) * 4;
    if header_len < 20 {
        return None;
    }
    // 0 means that segmentation offload had not filled in the length yet.
    let packet = match usize::from(be16(header, 2)?) {
        0 => packet,
        length => packet.cut(length),
    };
    let fragment = be16(header, 6)?;
    let address = |at| Some(IpAddr::from(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?)));
    Some(Ip {
        from: address(12)?,
        to: address(16)?,
        dscp_byte: header[1],
        protocol: header[9],
        fragment: (fragment & 0x1fff, fragment & 0x2000 != 0),
        payload: packet.skip(header_len)?,
    })
}

fn parse_ipv6(packet: CapturedBytes<'_>) -> Option<Ip<'_>> {
    let header: &[u8; 40] = packet.bytes.first_chunk()?;
    let address = |at| Some(IpAddr::from(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?)));
    let mut payload = packet.skip(40)?;
    let length = usize::from(be16(header, 4)?);
    if length != 0 {
        payload = payload.cut(length);
    }
    let (mut protocol, mut fragment) = (header[6], (0, false));
    for _ in 0..MAX_EXTENSIONS {
        let (next, length) = match protocol {
            // Hop-by-hop options, routing, destination options: the length is in units of eight bytes and
            // does not include the first unit.
            0 | 43 | 60 => (*payload.bytes.first()?, 8 + 8 * usize::from(*payload.bytes.get(1)?)),
            44 => {
                let field = be16(payload.bytes, 2)?;
                fragment = (field >> 3, field & 1 != 0);
                (*payload.bytes.first()?, 8)
            }
            // Authentication header: the length is in units of four bytes, minus two.
            51 => (*payload.bytes.first()?, 8 + 4 * usize::from(*payload.bytes.get(1)?)),
            _ => break,
        };
        protocol = next;
        payload = payload.skip(length)?;
        if fragment.0 != 0 {
            break;
        }
    }
    let dscp_byte = header[0] << 4 | header[1] >> 4;
    Some(Ip { from: address(8)?, to: address(24)?, dscp_byte, protocol, fragment, payload })
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{self, append};

    const HOMA: [u8; 28] = [7; 28];

    fn ipv4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + options.len();
        let mut packet = vec![0x40 | (header_len / 4) as u8, 0xc0];
        packet.extend(((header_len + payload.len()) as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(options);
        packet.extend(payload);
        packet
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x6c, 0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([next, 64]);
        packet.extend(Ipv6Addr::LOCALHOST.octets());
        packet.extend(Ipv6Addr::UNSPECIFIED.octets());
        packet.extend(payload);
        packet
    }

    fn whole(link: LinkType, frame: &[u8]) -> Content<'_> {
        dissect(link, frame, frame.len() as u32)
    }

    /// Returns the payload of a raw datagram and its traffic class.
    fn raw(content: Content<'_>) -> (Vec<u8>, u8) {
        match content {
            Content::Datagram(Datagram { udp: false, payload, dscp_byte, from, .. }) => {
                assert_eq!(from.port(), 0);
                (payload.bytes.to_vec(), dscp_byte)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_link_type_leads_to_the_packet() {
        let ip = ipv4(146, &[], &HOMA);
        let mac = [2; 12];
        let frames = [
            (LinkType::RawIp, ip.clone()),
            (LinkType::Loopback, [&[2, 0, 0, 0], &ip[..]].concat()),
            (LinkType::Ethernet, [&mac[..], &[8, 0], &ip].concat()),
            (LinkType::Ethernet, [&mac[..], &[0x81, 0, 0, 5, 8, 0], &ip].concat()),
            (LinkType::Ethernet, [&mac[..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], &ip].concat()),
            (LinkType::LinuxCooked, [&[0; 14][..], &[8, 0], &ip].concat()),
            (LinkType::LinuxCooked2, [&[8, 0][..], &[0; 18], &ip].concat()),
        ];
        for (link, mut frame) in frames {
            // Ethernet pads short frames.
            frame.extend([0; 6]);
            assert_eq!(raw(whole(link, &frame)), (HOMA.to_vec(), 0xc0), "{link:?}");
        }
    }

    #[test]
    fn headers_of_ip_may_have_options_and_extensions() {
        assert_eq!(raw(whole(LinkType::RawIp, &ipv4(146, &[1; 8], &HOMA))), (HOMA.to_vec(), 0xc0));
        assert_eq!(raw(whole(LinkType::RawIp, &ipv6(146, &HOMA))), (HOMA.to_vec(), 0xc0));
        // Hop-by-hop options of 16 bytes, destination options of 8 bytes, and the fragment header of an
        // unfragmented packet.
        let extensions =
            [&[60, 1][..], &[0; 14], &[44, 0, 0, 0, 0, 0, 0, 0], &[146, 0, 0, 0, 0, 0, 0, 0]].concat();
        let packet = ipv6(0, &[&extensions[..], &HOMA].concat());
        assert_eq!(raw(whole(LinkType::RawIp, &packet)).0, HOMA);
    }

    #[test]
    fn what_the_wrapper_writes_is_read_back() {
        for (from, to) in [
            ("10.0.0.1:7", "10.0.0.2:8"),
            ("[::1]:7", "[::2]:8"),
            ("10.0.0.1:0", "10.0.0.2:0"),
            ("[::1]:0", "[::2]:0"),
        ] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let mut record = Vec::new();
            let parts = [&b"head"[..], b"tail"];
            let udp = from.port() != 0;
            append(&mut record, &write::Packet { time_ns: 1, from, to, dscp_byte: 0xa0, udp, parts });
            let Content::Datagram(datagram) = whole(LinkType::RawIp, &record[16..]) else { panic!() };
            let payload = CapturedBytes { bytes: b"headtail", wire_len: 8 };
            assert_eq!(datagram, Datagram { from, to, dscp_byte: 0xa0, udp, payload });
        }
    }

    #[test]
    fn an_error_quotes_the_packet_it_is_about() {
        let about = ipv4(146, &[], &HOMA);
        let error = ipv4(1, &[], &[&[3, 3, 0, 0, 0, 0, 0, 0], &about[..]].concat());
        match whole(LinkType::RawIp, &error) {
            Content::Error { kind: 3, code: 3, about, .. } => assert_eq!(about.payload.bytes, HOMA),
            other => panic!("{other:?}"),
        }
        let error = ipv6(58, &[&[1, 4, 0, 0, 0, 0, 0, 0], &ipv6(146, &HOMA)[..]].concat());
        assert!(matches!(whole(LinkType::RawIp, &error), Content::Error { kind: 1, code: 4, .. }));
        // An echo request is not an error, whatever its payload.
        let echo = ipv4(1, &[], &[&[8, 0, 0, 0, 0, 0, 0, 0], &about[..]].concat());
        assert_eq!(whole(LinkType::RawIp, &echo), Content::Other);
    }

    #[test]
    fn a_frame_cut_short_says_how_long_it_was() {
        let packet = ipv4(146, &[], &[9; 1_000]);
        let Content::Datagram(datagram) = dissect(LinkType::RawIp, &packet[..100], 1_020) else { panic!() };
        assert_eq!((datagram.payload.bytes.len(), datagram.payload.wire_len), (80, 1_000));
    }

    #[test]
    fn fragments_are_known_as_such() {
        let mut packet = ipv4(146, &[], &HOMA);
        packet[6] = 0x20;
        assert!(matches!(whole(LinkType::RawIp, &packet), Content::Fragment { .. }));
        let later = ipv6(44, &[&[146, 0, 0, 8, 0, 0, 0, 0], &HOMA[..]].concat());
        assert!(matches!(whole(LinkType::RawIp, &later), Content::Fragment { .. }));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let icmp = ipv4(1, &[], &[&[3, 3, 0, 0, 0, 0, 0, 0], &ipv4(17, &[], &HOMA)[..]].concat());
        let extended = ipv6(0, &[&[43, 0, 0, 0, 0, 0, 0, 0], &[44, 0, 0, 0, 0, 0, 0, 0], &HOMA[..]].concat());
        for packet in [icmp, extended] {
            for at in 0..packet.len() {
                for value in 0..=255 {
                    let mut damaged = packet.clone();
                    damaged[at] = value;
                    whole(LinkType::RawIp, &damaged);
                }
                whole(LinkType::RawIp, &packet[..at]);
                dissect(LinkType::LinuxCooked2, &packet[..at], 0);
            }
        }
    }
}
