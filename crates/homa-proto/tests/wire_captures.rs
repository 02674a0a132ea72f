//! All captured packets of Linux Homa decode without errors and encode to the same meaning, and the value of
//! every header byte is explained.

use std::collections::BTreeMap;
use std::ops::Range;

use super::capture::{self, CapturedFrame, FrameContent, be16};
use homa_proto::wire::*;

/// Header bytes that may change if a packet of Linux Homa is decoded and encoded again: flags, window,
/// checksum and urgent.
const IGNORED: Range<usize> = 13..20;
/// In DATA, three more fields may change: the sequence and the segment offset, of which Linux Homa sets one
/// or both, and doff, which shows which of them is set.
const IGNORED_IN_DATA: [Range<usize>; 3] = [4..8, 12..20, 52..56];

/// The first segment's `doff` shows that segmentation offload created the packet.
const DOFF_OF_SEGMENTS: u8 = 0xd0;

fn check_packet(bytes: &[u8]) -> Packet {
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
    packet
}

/// Checks the fields that a receiver ignores. Every value in the captures must be a known one, so that there
/// is no header byte whose meaning is only a guess.
fn check_ignored_fields(frame: &CapturedFrame, bytes: &[u8], packet: &Packet) -> Form {
    let (flags, window, urgent) = (bytes[13], be16(bytes, 14), be16(bytes, 18));
    assert_eq!(window, 0, "{packet}");
    let checksum = match (flags, urgent) {
        // The raw-socket client in one of the captures, which sets none of these fields.
        (0, 0) => {
            assert_eq!(be16(bytes, 16), 0, "{packet}");
            Checksum::None
        }
        (6, 0xb97d) => checksum_form(frame, bytes),
        other => panic!("flags and urgent are {other:x?}: {packet}"),
    };
    let Body::Data(data) = packet.body else {
        assert_ne!(checksum, Checksum::Other, "{packet}");
        return Form { segmented: false, offset_in_sequence: false, checksum };
    };
    let (sequence, segment_offset) = (&bytes[4..8], &bytes[52..56]);
    let segmented = bytes[12] == DOFF_OF_SEGMENTS;
    let offset_in_sequence = segment_offset == [0xff; 4];
    if segmented {
        // `sequence` is the offset of the first segment, which is not after this segment.
        assert!(!offset_in_sequence && sequence <= segment_offset, "{packet}");
        assert_eq!(segment_offset, data.offset.to_be_bytes(), "{packet}");
    } else {
        assert_eq!(bytes[12], 0xe0, "{packet}");
        assert_eq!(sequence, data.offset.to_be_bytes(), "{packet}");
        assert!(offset_in_sequence || segment_offset == sequence, "{packet}");
        assert_ne!(checksum, Checksum::Other, "{packet}");
    }
    Form { segmented, offset_in_sequence, checksum }
}

/// The header forms of Linux Homa that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    segmented: bool,
    offset_in_sequence: bool,
    checksum: Checksum,
}

/// The contents of the checksum field. It is computed like a TCP checksum, although the IP protocol differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checksum {
    None,
    /// Only the sum of the pseudo-header. The rest was left to hardware, which did not compute it.
    Partial,
    Whole,
    /// The result of segmentation offload on a partial checksum.
    Other,
}

fn checksum_form(frame: &CapturedFrame, bytes: &[u8]) -> Checksum {
    let mut sum = capture::pseudo_header(frame.from, frame.to, bytes.len() as u32);
    if capture::ones_complement_sum(&sum) == be16(bytes, 16) {
        return Checksum::Partial;
    }
    sum.extend(bytes);
    if capture::ones_complement_sum(&sum) == 0xffff { Checksum::Whole } else { Checksum::Other }
}

#[test]
fn captures_of_linux_homa_decode_and_encode_to_the_same() {
    let files = capture::files();
    if files.is_empty() {
        return;
    }
    let (mut all, mut forms) = (BTreeMap::new(), BTreeMap::new());
    for path in files {
        let mut counts = BTreeMap::new();
        for frame in capture::read(&path) {
            match &frame.content {
                FrameContent::Homa(bytes) => {
                    let packet = check_packet(bytes);
                    let form = check_ignored_fields(&frame, bytes, &packet);
                    let kind = packet.body.packet_type();
                    *counts.entry(kind).or_insert(0) += 1;
                    *all.entry(kind).or_insert(0) += 1;
                    if kind == PacketType::Data {
                        *forms.entry(form).or_insert(0) += 1;
                    }
                }
                // A quoted packet may end anywhere after its first eight bytes, which include the ports.
                FrameContent::Unreachable { quoted, .. } => assert!(quoted.len() >= 8, "{quoted:02x?}"),
            }
        }
        println!("{}: {counts:?}", capture::name(&path));
        assert!(!counts.is_empty(), "{} has no Homa packet", path.display());
    }
    println!("all: {all:?}\nforms of DATA: {forms:#?}");
    // FREEZE is a developers' tool and occurs in no capture. The captures are older than START_MSG.
    let missing: Vec<_> = PacketType::ALL.into_iter().filter(|kind| !all.contains_key(kind)).collect();
    assert_eq!(missing, [PacketType::Freeze, PacketType::Start]);
    let met = |wanted: fn(&Form) -> bool| forms.keys().any(wanted);
    assert!(met(|form| form.segmented), "WIRE-12: segments made by offload");
    assert!(met(|form| form.offset_in_sequence), "WIRE-4: offsets in the sequence");
    assert!(met(|form| !form.offset_in_sequence && !form.segmented), "WIRE-4: offsets in both places");
    assert!(met(|form| form.checksum == Checksum::Partial) && met(|form| form.checksum == Checksum::Whole));
}
