//! The reference captures of Linux Homa, read for tests: Homa packets and the ICMP errors about them.
//!
//! The captures lie beside the repository, not in it; without them a test says so and passes.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/kernel-captures");
const HOMA_PROTOCOL: u8 = 146;
const ICMP: u8 = 1;

/// One frame of interest.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Nanoseconds since the capture's first frame.
    pub at_ns: u64,
    pub from: IpAddr,
    pub to: IpAddr,
    /// IPv4 type of service or IPv6 traffic class.
    pub tos: u8,
    pub what: What,
}

/// What a frame carries.
#[derive(Clone, Debug)]
pub enum What {
    /// A Homa packet, header and payload.
    Homa(Vec<u8>),
    /// An ICMP error of type "destination unreachable" and this code about a Homa packet that its receiver had sent;
    /// the beginning of that packet.
    Unreachable { code: u8, quoted: Vec<u8> },
}

/// The capture files with their names, in order, or nothing when they are not there, with the reason printed.
pub fn files() -> Vec<PathBuf> {
    if !Path::new(CAPTURES).is_dir() {
        homa_testkit::skip(format_args!("there are no captures at {CAPTURES}"));
        return Vec::new();
    }
    let mut files: Vec<_> = fs::read_dir(CAPTURES).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    files.sort();
    assert!(!files.is_empty(), "no capture in {CAPTURES}");
    files
}

/// The name without directory and extension.
pub fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Everything of interest in a classic capture file of Ethernet frames, in the file's order. Frames of other protocols
/// (neighbour solicitations) are left out.
pub fn read(path: &Path) -> Vec<Seen> {
    let file = fs::read(path).unwrap();
    let nanoseconds = match u32_le(&file, 0) {
        0xa1b2_c3d4 => 1_000,
        0xa1b2_3c4d => 1,
        _ => panic!("{} is not a classic pcap file of a little-endian machine", path.display()),
    };
    assert_eq!(u32_le(&file, 20), 1, "{} has no Ethernet frames", path.display());
    let mut seen = Vec::new();
    let (mut at, mut first) = (24, None);
    while at < file.len() {
        let time_ns =
            u64::from(u32_le(&file, at)) * 1_000_000_000 + u64::from(u32_le(&file, at + 4)) * nanoseconds;
        let captured = u32_le(&file, at + 8) as usize;
        assert_eq!(captured, u32_le(&file, at + 12) as usize, "frame was cut");
        let frame = &file[at + 16..at + 16 + captured];
        at += 16 + captured;
        let at_ns = time_ns - *first.get_or_insert(time_ns);
        if matches!(be16(frame, 12), 0x0800 | 0x86dd) {
            seen.extend(frame_of_interest(at_ns, &frame[14..]));
        }
    }
    seen
}

fn frame_of_interest(at_ns: u64, bytes: &[u8]) -> Option<Seen> {
    let ip = Ip::parse(bytes);
    let what = match ip.protocol {
        HOMA_PROTOCOL => What::Homa(ip.payload.to_vec()),
        ICMP if ip.payload[0] == 3 => {
            let quoted = Ip::parse(&ip.payload[8..]);
            assert_eq!(
                (quoted.protocol, quoted.from),
                (HOMA_PROTOCOL, ip.to),
                "an error about another packet"
            );
            What::Unreachable { code: ip.payload[1], quoted: quoted.payload.to_vec() }
        }
        _ => return None,
    };
    Some(Seen { at_ns, from: ip.from, to: ip.to, tos: ip.tos, what })
}

/// An IP packet, without the padding of short Ethernet frames.
struct Ip<'a> {
    protocol: u8,
    tos: u8,
    from: IpAddr,
    to: IpAddr,
    payload: &'a [u8],
}

impl<'a> Ip<'a> {
    fn parse(bytes: &'a [u8]) -> Ip<'a> {
        if bytes[0] >> 4 == 4 {
            assert_eq!(be16(bytes, 6) & 0x3fff, 0, "fragment");
            let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap()).into();
            let end = be16(bytes, 2).min(bytes.len());
            let payload = &bytes[usize::from(bytes[0] & 15) * 4..end];
            Ip { protocol: bytes[9], tos: bytes[1], from: address(12), to: address(16), payload }
        } else {
            let address =
                |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap()).into();
            let payload = &bytes[40..bytes.len().min(40 + be16(bytes, 4))];
            let tos = bytes[0] << 4 | bytes[1] >> 4;
            Ip { protocol: bytes[6], tos, from: address(8), to: address(24), payload }
        }
    }
}

pub fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_le(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// What TCP's checksum begins with, which Linux Homa's counts as: the addresses, the length, and TCP's protocol number.
pub fn pseudo_header(from: IpAddr, to: IpAddr, length: u32) -> Vec<u8> {
    const TCP: u32 = 6;
    let mut bytes = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => panic!("one packet has addresses of one kind"),
    };
    bytes.extend(length.to_be_bytes());
    bytes.extend(TCP.to_be_bytes());
    bytes
}

/// RFC 1071, without the complement at the end.
pub fn ones_complement_sum(bytes: &[u8]) -> usize {
    let word = |pair: &[u8]| usize::from(pair[0]) << 8 | usize::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: usize = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum
}
