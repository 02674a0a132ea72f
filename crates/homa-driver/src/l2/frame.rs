//! Ethernet frames that contain Homa packets: writes the headers of packets, and finds the packets in frames.
//!
//! The UDP checksum of sent frames is either complete or left for the kernel to complete. Over IPv4 it could
//! be omitted (0). However, Homa has no checksum of its own, and the Ethernet checksum protects a frame only
//! up to the next switch, so only the UDP checksum protects a message end to end. Computing it takes a
//! fraction of the time of copying the bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use homa_pcap::ip::{IpAddresses, fold, sum};

use crate::carrier::Carrier;
use crate::carrier::PROTOCOL_HOMA;
use crate::driver::{TxPacket, dscp_byte};

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

/// Bytes of an Ethernet header, without VLAN tag.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// Maximum bytes before a packet to send: Ethernet, IPv6 and UDP headers.
pub(crate) const HEADERS_MAX: usize = ETHERNET_BYTES + 40 + UDP_BYTES;

const UDP_BYTES: usize = 8;
const VLAN_BYTES: usize = 4;
const PROTOCOL_UDP: u8 = 17;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// EtherTypes of VLAN tags: IEEE 802.1Q and 802.1ad.
const TYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// Bits of the IPv4 fragment field: the more-fragments flag and the offset.
const FRAGMENT_BITS: u16 = 0x3fff;

impl Carrier {
    /// Returns the protocol number in the IP header.
    pub(crate) fn protocol(self) -> u8 {
        match self {
            Carrier::Udp => PROTOCOL_UDP,
            Carrier::Ip => PROTOCOL_HOMA,
        }
    }
}

/// The headers before every packet to one peer, built once. Only lengths, priority and checksums differ
/// between packets.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    bytes: [u8; HEADERS_MAX],
    length: usize,
    /// Checksum sum over the IPv4 header, with zeros in the fields that vary.
    ip_sum: u64,
    /// Checksum sum over the UDP header, with zeros in the fields that vary.
    udp_sum: u64,
    /// Checksum sum over the pseudo-header without the length.
    pseudo_sum: u64,
    carrier: Carrier,
    ipv4: bool,
}

impl Headers {
    /// Builds headers for packets from one endpoint to another, each given as an Ethernet address, an IP
    /// address and a UDP port. `None` if the IP versions differ.
    pub(crate) fn new(
        carrier: Carrier,
        (from_mac, from): (Mac, SocketAddr),
        (to_mac, to): (Mac, SocketAddr),
    ) -> Option<Headers> {
        let (ip, ether_type) = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (IpAddresses::V4(from, to), TYPE_IPV4),
            (IpAddr::V6(from), IpAddr::V6(to)) => (IpAddresses::V6(from, to), TYPE_IPV6),
            _ => return None,
        };
        let mut made = [&to_mac[..], &from_mac[..], &ether_type.to_be_bytes()[..]].concat();
        ip.append_header(&mut made, 0, carrier.protocol(), 0);
        let ipv4 = from.is_ipv4();
        let ip_at = ETHERNET_BYTES;
        let length_at = ip_at + if ipv4 { 2 } else { 4 };
        made[length_at..length_at + 2].fill(0);
        let mut ip_sum = 0;
        if ipv4 {
            made[ip_at + 10..ip_at + 12].fill(0);
            ip_sum = sum(0, &made[ip_at..]);
        }
        let (mut udp_sum, pseudo_sum) = (0, pseudo_sum(from.ip(), to.ip()));
        if carrier == Carrier::Udp {
            let udp_at = made.len();
            made.extend([from.port(), to.port(), 0, 0].map(u16::to_be_bytes).as_flattened());
            udp_sum = sum(0, &made[udp_at..]);
        }
        let mut bytes = [0; HEADERS_MAX];
        bytes[..made.len()].copy_from_slice(&made);
        Some(Headers { bytes, length: made.len(), ip_sum, udp_sum, pseudo_sum, carrier, ipv4 })
    }

    /// Writes the headers of this packet to the front of `out` and returns their length, at most
    /// [`HEADERS_MAX`]. On the wire, the Homa header and the payload follow.
    pub(crate) fn write(&self, packet: &TxPacket<'_>, out: &mut [u8; HEADERS_MAX]) -> usize {
        let length = self.write_unsummed(packet.priority, packet.len(), out);
        if self.carrier == Carrier::Udp {
            let at = length - UDP_BYTES;
            let behind_ip = (packet.len() + UDP_BYTES) as u16;
            // The length counts twice: once in the UDP header and once in the pseudo-header.
            let mut total =
                self.pseudo_sum + self.udp_sum + 2 * u64::from(behind_ip) + quick_sum(packet.header);
            let payload = quick_sum(packet.payload);
            // After a header of odd length, the bytes of all payload words are swapped; swapping the sum
            // instead gives the same result.
            total += if packet.header.len().is_multiple_of(2) { payload } else { payload.swap_bytes() >> 48 };
            // A checksum of 0 means that there is none; its complement represents the same number.
            let checksum = match fold(total) {
                0 => 0xffff,
                checksum => checksum,
            };
            out[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
        }
        length
    }

    /// Like [`Headers::write`] for `bytes` bytes after the headers, but the UDP checksum covers only the
    /// pseudo-header and is not complemented: the kernel or the device adds the rest.
    pub(crate) fn write_unsummed(&self, priority: u8, bytes: usize, out: &mut [u8; HEADERS_MAX]) -> usize {
        *out = self.bytes;
        let ip_at = ETHERNET_BYTES;
        let dscp = dscp_byte(priority);
        let behind_ip = bytes + if self.carrier == Carrier::Udp { UDP_BYTES } else { 0 };
        if self.ipv4 {
            let total = (20 + behind_ip) as u16;
            out[ip_at + 1] = dscp;
            out[ip_at + 2..ip_at + 4].copy_from_slice(&total.to_be_bytes());
            let checksum = fold(self.ip_sum + u64::from(dscp) + u64::from(total));
            out[ip_at + 10..ip_at + 12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            out[ip_at] |= dscp >> 4;
            out[ip_at + 1] |= dscp << 4;
            out[ip_at + 4..ip_at + 6].copy_from_slice(&(behind_ip as u16).to_be_bytes());
        }
        if self.carrier == Carrier::Udp {
            let udp_at = self.length - UDP_BYTES;
            let length = behind_ip as u16;
            out[udp_at + 4..udp_at + 6].copy_from_slice(&length.to_be_bytes());
            let pseudo = !fold(self.pseudo_sum + u64::from(length));
            out[udp_at + 6..udp_at + 8].copy_from_slice(&pseudo.to_be_bytes());
        }
        self.length
    }
}

/// Returns the sum over addresses and protocol that a UDP checksum starts from, without the length.
fn pseudo_sum(from: IpAddr, to: IpAddr) -> u64 {
    let of = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => sum(0, &ip.octets()),
        IpAddr::V6(ip) => sum(0, &ip.octets()),
    };
    of(from) + of(to) + u64::from(PROTOCOL_UDP)
}

/// Computes the sum over bytes as [`sum`] does, reduced to 16 bits, in a quarter of the steps. Ones'
/// complement sums do not depend on the size and order of the words, except that the byte order of the result
/// follows that of the words (RFC 1071).
fn quick_sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    u64::from(u16::from_be(!fold(total)))
}

/// A Homa packet found in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramedPacket {
    /// The sender; the port is 0 directly over IP.
    pub(crate) from: SocketAddr,
    /// The destination.
    pub(crate) to: SocketAddr,
    /// Offset of the packet in the frame.
    pub(crate) start: usize,
    /// Number of bytes of the packet that are present in the frame.
    pub(crate) length: usize,
    /// The byte of the IP header that contains the priority.
    pub(crate) dscp_byte: u8,
}

/// Why a frame contains no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseError {
    /// The frame is of another protocol, or is a fragment, which Homa never sends.
    Foreign,
    /// The frame's lengths contradict each other, a checksum is wrong, or the sender cannot be valid.
    Damaged,
}

/// How to parse a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParseOptions {
    pub(crate) carrier: Carrier,
    /// Length of the frame on the wire in bytes; fewer may be present.
    pub(crate) wire_length: usize,
    /// Whether to verify checksums. False if the device has verified them, or if the kernel left computing
    /// them to a device that the frame never passed, as between the ends of a veth. Also false if bytes are
    /// missing.
    pub(crate) verify: bool,
    /// Index of the device, which is the scope of link-local addresses.
    pub(crate) scope: u32,
}

/// Finds the Homa packet in a frame. The frame may contain any bytes.
pub(crate) fn parse(frame: &[u8], view: &ParseOptions) -> Result<FramedPacket, ParseError> {
    let mut ip_at = ETHERNET_BYTES;
    let mut ether_type = be16(frame, ip_at - 2).ok_or(ParseError::Foreign)?;
    if TYPES_VLAN.contains(&ether_type) {
        ip_at += VLAN_BYTES;
        ether_type = be16(frame, ip_at - 2).ok_or(ParseError::Foreign)?;
    }
    let ip = match ether_type {
        TYPE_IPV4 => parse_ipv4(frame, ip_at, view)?,
        TYPE_IPV6 => parse_ipv6(frame, ip_at, view)?,
        _ => return Err(ParseError::Foreign),
    };
    let (mut start, mut length, mut ports) = (ip.start, ip.length, (0, 0));
    if view.carrier == Carrier::Udp {
        (length, ports) = parse_udp(frame, &ip, view)?;
        start += UDP_BYTES;
        length -= UDP_BYTES;
    }
    if ip.from.is_multicast() || ip.from.is_unspecified() {
        return Err(ParseError::Damaged);
    }
    let end = |ip, port| match ip {
        IpAddr::V4(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
        IpAddr::V6(ip) => {
            let scope = if ip.is_unicast_link_local() { view.scope } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))
        }
    };
    let there = frame.len().saturating_sub(start);
    Ok(FramedPacket {
        from: end(ip.from, ports.0),
        to: end(ip.to, ports.1),
        start: start.min(frame.len()),
        length: length.min(there),
        dscp_byte: ip.dscp_byte,
    })
}

/// Fields of an IP header.
struct IpPart {
    from: IpAddr,
    to: IpAddr,
    /// Offset in the frame, and length on the wire, of everything after the header.
    start: usize,
    length: usize,
    dscp_byte: u8,
}

fn parse_ipv4(frame: &[u8], at: usize, view: &ParseOptions) -> Result<IpPart, ParseError> {
    let fixed: &[u8; 20] = frame.get(at..).and_then(<[u8]>::first_chunk).ok_or(ParseError::Damaged)?;
    let header_bytes = 4 * usize::from(fixed[0] & 15);
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let bad_lengths = total < header_bytes || total > view.wire_length.saturating_sub(at);
    if fixed[0] >> 4 != 4 || header_bytes < fixed.len() || bad_lengths {
        return Err(ParseError::Damaged);
    }
    let header = frame.get(at..at + header_bytes).ok_or(ParseError::Damaged)?;
    if view.verify && fold(sum(0, header)) != 0 {
        return Err(ParseError::Damaged);
    }
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & FRAGMENT_BITS;
    if fixed[9] != view.carrier.protocol() || fragment != 0 {
        return Err(ParseError::Foreign);
    }
    let address = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]).into();
    Ok(IpPart {
        from: address(12),
        to: address(16),
        start: at + header_bytes,
        length: total - header_bytes,
        dscp_byte: fixed[1],
    })
}

/// Parses an IPv6 header. Extension headers are not parsed: no sender puts them before Homa.
fn parse_ipv6(frame: &[u8], at: usize, view: &ParseOptions) -> Result<IpPart, ParseError> {
    let header: &[u8; 40] = frame.get(at..).and_then(<[u8]>::first_chunk).ok_or(ParseError::Damaged)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || length + header.len() > view.wire_length.saturating_sub(at) {
        return Err(ParseError::Damaged);
    }
    if header[6] != view.carrier.protocol() {
        return Err(ParseError::Foreign);
    }
    let address = |bytes: &[u8]| {
        let mut octets = [0; 16];
        octets.copy_from_slice(bytes);
        IpAddr::from(Ipv6Addr::from(octets))
    };
    Ok(IpPart {
        from: address(&header[8..24]),
        to: address(&header[24..40]),
        start: at + header.len(),
        length,
        dscp_byte: header[0] << 4 | header[1] >> 4,
    })
}

/// Returns the length of the datagram, including its header, and the ports of sender and receiver.
fn parse_udp(frame: &[u8], ip: &IpPart, view: &ParseOptions) -> Result<(usize, (u16, u16)), ParseError> {
    let field = |at| be16(frame, ip.start + at).ok_or(ParseError::Damaged);
    let (from, to, length, checksum) = (field(0)?, field(2)?, usize::from(field(4)?), field(6)?);
    // A packet from port 0 cannot be answered.
    if length < UDP_BYTES || length > ip.length || from == 0 {
        return Err(ParseError::Damaged);
    }
    if let (true, Some(datagram)) = (view.verify, frame.get(ip.start..ip.start + length)) {
        // Only IPv4 permits packets without a checksum.
        let right = match (checksum, ip.from) {
            (0, from) => from.is_ipv4(),
            _ => fold(pseudo_sum(ip.from, ip.to) + length as u64 + quick_sum(datagram)) == 0,
        };
        if !right {
            return Err(ParseError::Damaged);
        }
    }
    Ok((length, (from, to)))
}

/// Verifies the checksums around a packet if it is unknown whether the kernel has verified them or has left
/// them to a device. The UDP checksum may also be the partial checksum that the kernel leaves to a device, as
/// in frames between the ends of a veth. [`parse`] must have found the packet, in a complete frame without IP
/// options.
pub(crate) fn checksums_fit(carrier: Carrier, frame: &[u8], found: &FramedPacket) -> bool {
    let udp_at = found.start - if carrier == Carrier::Udp { UDP_BYTES } else { 0 };
    if found.from.is_ipv4() && fold(sum(0, &frame[udp_at - 20..udp_at])) != 0 {
        return false;
    }
    if carrier == Carrier::Ip {
        return true;
    }
    let length = found.length + UDP_BYTES;
    let pseudo = pseudo_sum(found.from.ip(), found.to.ip()) + length as u64;
    match be16(frame, udp_at + 6) {
        Some(0) => found.from.is_ipv4(),
        Some(checksum) if checksum == !fold(pseudo) => true,
        _ => fold(pseudo + quick_sum(&frame[udp_at..udp_at + length])) == 0,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

#[cfg(test)]
mod tests;
