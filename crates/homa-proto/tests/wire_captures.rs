//! Captures of Linux Homa decode without an error and encode to the same meaning.
//!
//! The captures lie beside the repository, not in it; without them the test says so and passes.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use homa_proto::wire::*;

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/kernel-captures");
const HOMA_PROTOCOL: u8 = 146;

/// Header bytes that may change when a packet of Linux Homa is decoded and encoded: flags, window, checksum
/// and urgent.
const IGNORED: Range<usize> = 13..20;
/// In DATA also the sequence and the segment's offset, of which Linux Homa fills in one or both, and doff,
/// which tells which.
const IGNORED_IN_DATA: [Range<usize>; 3] = [4..8, 12..20, 52..56];

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// The frames of a classic capture file of Ethernet or "cooked" link type, each from its EtherType on.
fn frames(file: &[u8]) -> Vec<&[u8]> {
    let little_endian = match file[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => true,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => false,
        _ => panic!("not a classic pcap file"),
    };
    let u32_at = |at: usize| {
        let bytes = file[at..at + 4].try_into().unwrap();
        if little_endian { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    };
    let ether_type_at = match u32_at(20) {
        1 => 12,
        113 => 14,
        276 => 0,
        link => panic!("link type {link} is not known here"),
    };
    let network_at = if ether_type_at == 0 { 20 } else { ether_type_at + 2 };
    let mut frames = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let captured = u32_at(at + 8) as usize;
        assert_eq!(captured, u32_at(at + 12) as usize, "frame was cut");
        let frame = &file[at + 16..at + 16 + captured];
        if matches!(be16(frame, ether_type_at), 0x0800 | 0x86dd) {
            frames.push(&frame[network_at..]);
        }
        at += 16 + captured;
    }
    frames
}

/// The Homa packet in an IP packet, without the padding of short Ethernet frames.
fn homa_packet(ip: &[u8]) -> Option<&[u8]> {
    let (protocol, packet) = if ip[0] >> 4 == 4 {
        assert_eq!(be16(ip, 6) & 0x3fff, 0, "fragment");
        (ip[9], &ip[usize::from(ip[0] & 15) * 4..be16(ip, 2)])
    } else {
        (ip[6], &ip[40..40 + be16(ip, 4)])
    };
    (protocol == HOMA_PROTOCOL).then_some(packet)
}

fn check_packet(bytes: &[u8]) -> PacketType {
    let packet = decode(bytes, bytes.len()).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"));
    let kind = packet.body.packet_type();
    assert_eq!(bytes.len(), kind.header_len() + packet.payload_len as usize, "{packet}");
    assert!(packet.common.incarnation.is_none(), "{packet}");

    let encoded = encode(&packet.common, &packet.body);
    assert_eq!(decode(&encoded, bytes.len()), Ok(packet), "{packet}");
    let (mut sent, mut again) = (bytes[..kind.header_len()].to_vec(), encoded.to_vec());
    let ignored = if kind == PacketType::Data { &IGNORED_IN_DATA[..] } else { &[IGNORED] };
    for range in ignored {
        sent[range.clone()].fill(0);
        again[range.clone()].fill(0);
    }
    assert_eq!(sent, again, "{packet}");
    kind
}

#[test]
fn captures_of_linux_homa_decode_and_encode_to_the_same() {
    if !Path::new(CAPTURES).is_dir() {
        println!("skipped: there are no captures at {CAPTURES}");
        return;
    }
    let mut seen = BTreeMap::new();
    let mut files: Vec<_> = fs::read_dir(CAPTURES).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    files.sort();
    for path in files {
        let file = fs::read(&path).unwrap();
        let mut counts = BTreeMap::new();
        for packet in frames(&file).into_iter().filter_map(homa_packet) {
            let kind = check_packet(packet);
            *counts.entry(kind).or_insert(0) += 1;
            *seen.entry(kind).or_insert(0) += 1;
        }
        println!("{}: {counts:?}", path.file_name().unwrap().display());
        assert!(!counts.is_empty(), "{} has no Homa packet", path.display());
    }
    println!("all: {seen:?}");
    // FREEZE is a tool of developers, which no capture shows.
    let missing: Vec<_> = PacketType::ALL.into_iter().filter(|kind| !seen.contains_key(kind)).collect();
    assert_eq!(missing, [PacketType::Freeze]);
}
