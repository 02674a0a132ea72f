//! The messages with which one process hands packets and network reports over to another.
//!
//! A message consists of a header of fixed size and its content: packets of one sender, of equal length
//! except for the last, or the quoted start of a packet. Both ends run on one machine, so numbers have its
//! byte order. Processes of different versions never exchange messages, because they share no segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::socket::{Cause, NetworkError, QuotedHeader};

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 48;

/// The priority of packets whose priority is unknown.
const NO_PRIORITY: u8 = u8::MAX;

const PACKETS: u8 = 1;
const REPORT: u8 = 2;
const HELLO: u8 = 3;

const PORT_UNREACHABLE: u8 = 1;
const PROTOCOL_UNREACHABLE: u8 = 2;
const TOO_BIG: u8 = 3;
const OTHER: u8 = 4;

/// The properties of a message's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketInfo {
    pub(super) from: SocketAddr,
    pub(super) priority: Option<u8>,
    /// When the kernel received the packets; 0 if unknown.
    pub(super) time_ns: u64,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Packets of `segment` bytes each follow; the last may be shorter.
    Packets { info: PacketInfo, segment: usize },
    /// The quoted start of a packet follows.
    Report { to: SocketAddr, cause: Cause },
    /// The first message on a connection, from the process that opened it; contains its slot.
    Hello { slot: u32 },
}

impl Header {
    /// Returns the header of the message that forwards a network report.
    pub(super) fn of_report(report: &NetworkError) -> Header {
        Header::Report { to: report.to, cause: report.cause }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let peer = match self {
            Header::Packets { info, segment } => {
                put(0, &[PACKETS, info.priority.unwrap_or(NO_PRIORITY)]);
                put(4, &(*segment as u32).to_ne_bytes());
                put(8, &info.time_ns.to_ne_bytes());
                info.from
            }
            Header::Report { to, cause } => {
                let (cause, mtu) = match cause {
                    Cause::PortUnreachable => (PORT_UNREACHABLE, 0),
                    Cause::ProtocolUnreachable => (PROTOCOL_UNREACHABLE, 0),
                    Cause::TooBig { mtu } => (TOO_BIG, *mtu),
                    Cause::Other => (OTHER, 0),
                };
                put(0, &[REPORT, cause]);
                put(4, &(mtu as u32).to_ne_bytes());
                *to
            }
            Header::Hello { slot } => {
                put(0, &[HELLO]);
                put(4, &slot.to_ne_bytes());
                return bytes;
            }
        };
        let (ip, scope) = match peer {
            SocketAddr::V4(peer) => (peer.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(peer) => (*peer.ip(), peer.scope_id()),
        };
        put(16, &ip.octets());
        put(32, &scope.to_ne_bytes());
        put(36, &peer.port().to_ne_bytes());
        put(38, &[u8::from(peer.is_ipv4())]);
        bytes
    }

    /// Parses a header; `None` if it is invalid.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
            std::array::from_fn(|index| bytes[at + index])
        }
        let (ip, port) = (Ipv6Addr::from(field::<16>(bytes, 16)), u16::from_ne_bytes(field(bytes, 36)));
        let peer = if bytes[38] == 1 {
            SocketAddr::new(IpAddr::V4(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)), port)
        } else {
            SocketAddrV6::new(ip, port, 0, u32::from_ne_bytes(field(bytes, 32))).into()
        };
        let number = u32::from_ne_bytes(field(bytes, 4)) as usize;
        match bytes[0] {
            PACKETS => {
                let priority = Some(bytes[1]).filter(|&priority| priority != NO_PRIORITY);
                let info = PacketInfo { from: peer, priority, time_ns: u64::from_ne_bytes(field(bytes, 8)) };
                (number > 0).then_some(Header::Packets { info, segment: number })
            }
            REPORT => {
                let cause = match bytes[1] {
                    PORT_UNREACHABLE => Cause::PortUnreachable,
                    PROTOCOL_UNREACHABLE => Cause::ProtocolUnreachable,
                    TOO_BIG => Cause::TooBig { mtu: number },
                    OTHER => Cause::Other,
                    _ => return None,
                };
                Some(Header::Report { to: peer, cause })
            }
            HELLO => Some(Header::Hello { slot: number as u32 }),
            _ => None,
        }
    }

    /// Returns the report that a message forwards, with its quoted bytes.
    pub(super) fn report(&self, quoted: &[u8]) -> Option<NetworkError> {
        let Header::Report { to, cause } = *self else { return None };
        Some(NetworkError { to, cause, quoted: QuotedHeader::of(quoted), local: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_went_in() {
        for peer in ["10.1.2.3:54321", "[2001:db8::1]:9", "[fe80::1%7]:54321", "[::ffff:1.2.3.4]:1"] {
            let peer: SocketAddr = peer.parse().unwrap();
            for (priority, time_ns) in [(None, 0), (Some(7), u64::MAX)] {
                let packets =
                    Header::Packets { info: PacketInfo { from: peer, priority, time_ns }, segment: 1_472 };
                assert_eq!(Header::parse(&packets.encode()), Some(packets));
            }
            for cause in [
                Cause::PortUnreachable,
                Cause::ProtocolUnreachable,
                Cause::TooBig { mtu: 1_280 },
                Cause::Other,
            ] {
                let report =
                    NetworkError { to: peer, cause, quoted: QuotedHeader::of(&[7; 40]), local: false };
                let header = Header::parse(&Header::of_report(&report).encode()).unwrap();
                assert_eq!(header.report(report.quoted.bytes()), Some(report));
            }
        }
        let hello = Header::Hello { slot: 63 };
        assert_eq!(Header::parse(&hello.encode()), Some(hello));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        assert_eq!(Header::parse(&[0; HEADER_BYTES]), None);
        assert_eq!(Header::parse(&[0xff; HEADER_BYTES]), None);
        let mut none = [0; HEADER_BYTES];
        none[0] = PACKETS;
        assert_eq!(Header::parse(&none), None, "packets of no bytes");
        none[0] = REPORT;
        assert_eq!(Header::parse(&none), None, "no cause");
    }
}
