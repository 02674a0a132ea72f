//! Reads the reference captures of Linux Homa for tests: Homa packets, and ICMP errors about them.
//!
//! The captures are stored next to the repository, not in it. Without them, the tests are skipped.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs::{self, File};
use std::io::BufReader;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use homa_pcap::frame::{Content, Datagram, dissect};
use homa_pcap::read::CaptureReader;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/kernel-captures");

/// A frame with a Homa packet, or an ICMP error about one.
#[derive(Clone, Debug)]
pub struct CapturedFrame {
    /// Nanoseconds since the capture's first frame.
    pub at_ns: u64,
    pub from: IpAddr,
    pub to: IpAddr,
    pub content: FrameContent,
}

/// The content of a frame.
#[derive(Clone, Debug)]
pub enum FrameContent {
    /// A Homa packet, header and payload.
    Homa(Vec<u8>),
    /// An ICMP "destination unreachable" error with this code, and the beginning of the Homa packet that
    /// caused it. The receiver of the error sent that packet.
    Unreachable { code: u8, quoted: Vec<u8> },
}

/// Returns the paths of the capture files, in order. If they are missing, prints the reason and returns none.
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

/// Returns the file's name without directory and extension.
pub fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Reads all relevant frames of a capture file, in order. Frames of other protocols (neighbour solicitations)
/// are skipped.
pub fn read(path: &Path) -> Vec<CapturedFrame> {
    let mut reader = CaptureReader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let (mut frames, mut first) = (Vec::new(), None);
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(record.bytes.len(), record.wire_len as usize, "frame was cut");
        let at_ns = record.time_ns - *first.get_or_insert(record.time_ns);
        frames.extend(of_interest(at_ns, dissect(record.link, record.bytes, record.wire_len)));
    }
    frames
}

fn of_interest(at_ns: u64, content: Content<'_>) -> Option<CapturedFrame> {
    match content {
        Content::Datagram(Datagram { from, to, udp: false, payload, .. }) => {
            let content = FrameContent::Homa(payload.bytes.to_vec());
            Some(CapturedFrame { at_ns, from: from.ip(), to: to.ip(), content })
        }
        Content::Error { from, to, kind: 3, code, about } if from.is_ipv4() => {
            assert_eq!((about.udp, about.from.ip()), (false, to), "an error about another packet");
            let content = FrameContent::Unreachable { code, quoted: about.payload.bytes.to_vec() };
            Some(CapturedFrame { at_ns, from, to, content })
        }
        Content::Fragment { .. } => panic!("fragment"),
        _ => None,
    }
}

pub fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Returns the pseudo-header of TCP's checksum, which Linux Homa's packets use: the addresses, the length,
/// and TCP's protocol number.
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

/// Returns the sum of RFC 1071, without the final complement.
pub fn ones_complement_sum(bytes: &[u8]) -> usize {
    let word = |pair: &[u8]| usize::from(pair[0]) << 8 | usize::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: usize = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum
}
