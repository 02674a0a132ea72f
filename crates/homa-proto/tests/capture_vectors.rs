//! Packets sent by Linux Homa, one of each type and header form, with the meaning of each field.
//!
//! They come from the reference captures. If the captures are present, a test searches them for each of the
//! packets. No capture has a FREEZE; it is among the hand-written packets (`wire_vectors`), like the forms
//! that only we send. Payload is omitted.
//!
//! The first line of each packet is the common header, with the fields in this order: source port,
//! destination port, sequence, ack, type, doff, flags, window, checksum, urgent, sender id. Linux Homa always
//! sets flags to 06 and urgent to b97d. Servers have port 4000 (0fa0) or 4002 (0fa2) here, and clients have
//! ports from hexadecimal 8000 (32768) on.

use std::net::IpAddr;

use super::capture::{self, FrameContent};
use homa_proto::wire::*;

/// The contents of the checksum field: TCP's checksum over a pseudo-header with TCP's protocol number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Checksum {
    /// Only the sum of the pseudo-header: the rest was left to hardware, but there was none.
    Partial,
    /// The complete checksum.
    Whole,
    /// A partial checksum after segmentation.
    Segment,
}

struct Vector {
    /// The capture, the sender and the receiver.
    from: (&'static str, &'static str, &'static str),
    header: String,
    payload_len: u32,
    checksum: Checksum,
    common: Common,
    body: Body,
}

const V4: (&str, &str) = ("10.77.0.2", "10.77.0.3");

fn up(capture: &'static str) -> (&'static str, &'static str, &'static str) {
    (capture, V4.0, V4.1)
}

fn down(capture: &'static str) -> (&'static str, &'static str, &'static str) {
    (capture, V4.1, V4.0)
}

fn common(source_port: u16, dest_port: u16, sender_id: u64) -> Common {
    Common { source_port, dest_port, sender_id, incarnation: Incarnation::NONE, bundle_endpoints: 0 }
}

fn data(message_length: u32, incoming: u32, cutoff_version: u16, offset: u32) -> Data {
    Data {
        message_length,
        incoming,
        ack: None,
        cutoff_version,
        retransmit: false,
        offset,
        response_limit: None,
    }
}

fn first_data() -> Vec<Vector> {
    vec![
        // A request in one packet, the first of its host since boot. The offset is only in the sequence.
        Vector {
            from: up("rpc-100B-ipv4"),
            header: [
                "8000 0fa0 00000000 000000 10 e0 06 0000 1541 b97d 0000000000000002",
                "00000064",              // message length 100
                "00000064",              // incoming 100: all of it
                "0000000000000000 0000", // no acknowledgement
                "0000",                  // cutoff version 0: none received yet
                "00 000000",             // sent for the first time; padding
                "ffffffff",              // segment offset: see the sequence, 0
            ]
            .concat(),
            payload_len: 100,
            checksum: Checksum::Partial,
            common: common(32_768, 4_000, 2),
            body: Body::Data(data(100, 100, 0, 0)),
        },
        // Its response, with the complete checksum.
        Vector {
            from: down("rpc-100B-ipv4"),
            header: [
                "0fa0 8000 00000000 000000 10 e0 06 0000 182c b97d 0000000000000003",
                "00000064 00000064 0000000000000000 0000 0000 00 000000 ffffffff",
            ]
            .concat(),
            payload_len: 100,
            checksum: Checksum::Whole,
            common: common(4_000, 32_768, 3),
            body: Body::Data(data(100, 100, 0, 0)),
        },
        // The next request acknowledges the first RPC; by now its sender knows the server's cutoffs.
        Vector {
            from: up("rpc-100B-ipv4"),
            header: [
                "8000 0fa0 00000000 000000 10 e0 06 0000 1541 b97d 0000000000000004",
                "00000064 00000064",
                "0000000000000002 0fa0", // ack: id 2, sent to port 4000
                "0001",                  // cutoff version 1
                "00 000000 ffffffff",
            ]
            .concat(),
            payload_len: 100,
            checksum: Checksum::Partial,
            common: common(32_768, 4_000, 4),
            body: Body::Data(Data {
                ack: Some(Ack { client_id: 2, server_port: 4_000 }),
                ..data(100, 100, 1, 0)
            }),
        },
        // IPv6 only changes the addresses in the checksum.
        Vector {
            from: ("rpc-100B-ipv6", "fd77::2", "fd77::3"),
            header: [
                "800a 0fa0 00000000 000000 10 e0 06 0000 fb96 b97d 0000000000004850",
                "00000064 00000064 0000000000000000 0000 0000 00 000000 ffffffff",
            ]
            .concat(),
            payload_len: 100,
            checksum: Checksum::Partial,
            common: common(32_778, 4_000, 0x4850),
            body: Body::Data(data(100, 100, 0, 0)),
        },
    ]
}

fn other_data() -> Vec<Vector> {
    vec![
        // Scheduled bytes: incoming stays at the unscheduled limit.
        Vector {
            from: up("rpc-500KB-ipv4"),
            header: [
                "8006 0fa0 00018b70 000000 10 e0 06 0000 1a6d b97d 0000000000003cca",
                "0007a120",                             // message length 500000
                "00009c40",                             // incoming 40000
                "0000000000000000 0000 0001 00 000000", // no ack, cutoff version 1
                "ffffffff",                             // segment offset: see the sequence, 101232
            ]
            .concat(),
            payload_len: 1_424,
            checksum: Checksum::Partial,
            common: common(32_774, 4_000, 0x3cca),
            body: Body::Data(data(500_000, 40_000, 1, 101_232)),
        },
        // Created by segmentation offload: doff is d0, the offset is that of the segment, and the sequence is
        // that of the first segment.
        Vector {
            from: ("gso-20000", "10.77.0.4", "10.77.0.3"),
            header: [
                "8000 0fa0 00000000 000000 10 d0 06 0000 5d5f b97d 00000000000007a8",
                "000186a0 00009c40 0000000000000000 0000 0000 00 000000",
                "00000590", // segment offset 1424
            ]
            .concat(),
            payload_len: 1_424,
            checksum: Checksum::Segment,
            common: common(32_768, 4_000, 0x07a8),
            body: Body::Data(data(100_000, 40_000, 0, 1_424)),
        },
        // A retransmission: the offset is in both fields. Here, incoming is the end of the range requested by
        // RESEND.
        Vector {
            from: down("loss-2pct-50KB"),
            header: [
                "0fa0 800c 00002160 000000 10 e0 06 0000 ac41 b97d 00000000000051bb",
                "0000c350", // message length 50000
                "000026f0", // incoming 9968
                "0000000000000000 0000 0001",
                "01 000000", // sent again
                "00002160",  // segment offset 8544
            ]
            .concat(),
            payload_len: 1_424,
            checksum: Checksum::Whole,
            common: common(4_000, 32_780, 0x51bb),
            body: Body::Data(Data { retransmit: true, ..data(50_000, 9_968, 1, 8_544) }),
        },
        // A packet in a jumbo frame.
        Vector {
            from: up("rpc-500KB-mtu9000"),
            header: [
                "8017 0fa0 00000000 000000 10 e0 06 0000 37b9 b97d 000000000000ab62",
                "0007a120 00009c40 0000000000000000 0000",
                "0005", // cutoff version 5
                "00 000000 ffffffff",
            ]
            .concat(),
            payload_len: 8_924,
            checksum: Checksum::Partial,
            common: common(32_791, 4_000, 0xab62),
            body: Body::Data(data(500_000, 40_000, 5, 0)),
        },
    ]
}

fn requests_for_bytes() -> Vec<Vector> {
    vec![
        Vector {
            from: down("rpc-500KB-ipv4"),
            header: [
                "0fa0 8006 00000000 000000 11 50 06 0000 e0ff b97d 0000000000003ccb",
                "00033430", // exclusive end 209968
                "00",       // priority 0
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Whole,
            common: common(4_000, 32_774, 0x3ccb),
            body: Body::Grant(Grant { offset: 209_968, priority: 0 }),
        },
        // A grant of 50,000 more bytes to the oldest message.
        Vector {
            from: down("rpc-500KB-ipv4"),
            header: [
                "0fa0 8006 00000000 000000 11 50 06 0000 17af b97d 0000000000003ccb",
                "0003f780", // exclusive end 259968
                "06",       // priority 6
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Whole,
            common: common(4_000, 32_774, 0x3ccb),
            body: Body::Grant(Grant { offset: 259_968, priority: 6 }),
        },
        Vector {
            from: up("loss-10pct-100B"),
            header: [
                "800d 0fa0 00000000 000000 12 50 06 0000 14ca b97d 0000000000005374",
                "00000000", // from the start
                "ffffffff", // length -1: everything sent so far
                "07",       // priority 7
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Partial,
            common: common(32_781, 4_000, 0x5374),
            body: Body::Resend(Resend { offset: 0, length: None, priority: 7 }),
        },
        Vector {
            from: up("loss-2pct-50KB"),
            header: [
                "800c 0fa0 00000000 000000 12 50 06 0000 14ca b97d 00000000000051ba",
                "00002160", // from byte 8544
                "00000590", // 1424 bytes
                "07",       // priority 7
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Partial,
            common: common(32_780, 4_000, 0x51ba),
            body: Body::Resend(Resend { offset: 8_544, length: Some(1_424), priority: 7 }),
        },
    ]
}

fn headers_alone() -> Vec<Vector> {
    let vector = |from, header: &str, common, body| Vector {
        from,
        header: header.to_owned(),
        payload_len: 0,
        checksum: Checksum::Whole,
        common,
        body,
    };
    vec![
        vector(
            down("loss-10pct-100B"),
            "0fa0 800d 00000000 000000 13 50 06 0000 fe7a b97d 000000000000537f",
            common(4_000, 32_781, 0x537f),
            Body::RpcUnknown(UnknownReason::Unknown),
        ),
        vector(
            down("cutoffs-change"),
            "0fa0 8011 00000000 000000 14 50 06 0000 c9eb b97d 0000000000008809",
            common(4_000, 32_785, 0x8809),
            Body::Busy,
        ),
        vector(
            down("need-ack"),
            "0fa2 801a 00000000 000000 17 50 06 0000 a331 b97d 000000000000aeb5",
            common(4_002, 32_794, 0xaeb5),
            Body::NeedAck,
        ),
    ]
}

fn cutoffs_and_acks() -> Vec<Vector> {
    let mut acks = AckList::new();
    assert!(acks.push(Ack { client_id: 0x5448, server_port: 4_000 }));
    let cutoffs =
        Cutoffs { cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200], version: 1, unsched_limit: None };
    let empty = "0000000000000000 0000";
    vec![
        // The first cutoffs after boot.
        Vector {
            from: down("rpc-100B-ipv4"),
            header: [
                "0fa0 8000 00000000 000000 15 50 06 0000 c93f b97d 0000000000000003",
                "00000000 00000000 00000000 00000000", // priorities 0 to 3: for scheduled bytes
                "000f4240",                            // priority 4: to 1000000 bytes
                "00003a98",                            // priority 5: to 15000 bytes
                "00000af0",                            // priority 6: to 2800 bytes
                "000000c8",                            // priority 7: to 200 bytes
                "0001",                                // version 1
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Whole,
            common: common(4_000, 32_768, 3),
            body: Body::Cutoffs(cutoffs),
        },
        // Cutoffs set by an administrator: priority 0 is for messages of any length.
        Vector {
            from: ("one-rpc-raw-socket-client", "10.77.0.3", "10.77.0.1"),
            header: [
                "0fa0 9c40 00000000 000000 15 50 06 0000 14e2 b97d 00000001f47c4539",
                "7fffffff 00000000 00000000 00000000 000f4240 00003a98 00000af0 000000c8",
                "0005", // version 5
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Partial,
            common: common(4_000, 40_000, 0x1_f47c_4539),
            body: Body::Cutoffs(Cutoffs {
                cutoffs: [MAX_MESSAGE_LENGTH, 0, 0, 0, 1_000_000, 15_000, 2_800, 200],
                version: 5,
                ..cutoffs
            }),
        },
        // The answer to a NEED_ACK: it acknowledges the header's id.
        Vector {
            from: up("rpc-100B-ipv4"),
            header: [
                "8000 0fa0 00000000 000000 18 50 06 0000 14f5 b97d 0000000000000002",
                "0000", // no slot in use; all five are present
                empty,
                empty,
                empty,
                empty,
                empty,
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Partial,
            common: common(32_768, 4_000, 2),
            body: Body::Ack(AckList::new()),
        },
        // An ACK that names the same RPC twice.
        Vector {
            from: up("loss-10pct-100B"),
            header: [
                "800d 0fa0 00000000 000000 18 50 06 0000 14f5 b97d 0000000000005448",
                "0001",                  // one slot in use
                "0000000000005448 0fa0", // id 21576, sent to port 4000
                empty,
                empty,
                empty,
                empty,
            ]
            .concat(),
            payload_len: 0,
            checksum: Checksum::Partial,
            common: common(32_781, 4_000, 0x5448),
            body: Body::Ack(acks),
        },
    ]
}

fn vectors() -> Vec<Vector> {
    [first_data(), other_data(), requests_for_bytes(), headers_alone(), cutoffs_and_acks()]
        .into_iter()
        .flatten()
        .collect()
}

impl Vector {
    fn bytes(&self) -> Vec<u8> {
        let digits: Vec<u8> =
            self.header.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.from.1.parse().unwrap(), self.from.2.parse().unwrap())
    }
}

#[test]
fn each_means_what_it_says_and_is_encoded_to_the_same_meaning() {
    for vector in vectors() {
        let bytes = vector.bytes();
        let Vector { common, body, payload_len, .. } = vector;
        let packet = Packet { common, body, payload_len };
        assert_eq!(decode(&bytes, bytes.len() + payload_len as usize), Ok(packet), "{:?}", vector.from);
        let encoded = encode(&common, &body);
        assert_eq!(encoded.len(), bytes.len(), "{packet}");
        assert_eq!(decode(&encoded, encoded.len() + payload_len as usize), Ok(packet));
    }
}

#[test]
fn checksums_are_partial_or_whole() {
    for vector in vectors() {
        let (from, to) = vector.addresses();
        let bytes = vector.bytes();
        let length = bytes.len() as u32 + vector.payload_len;
        let pseudo = capture::pseudo_header(from, to, length);
        let partial = capture::ones_complement_sum(&pseudo) == capture::be16(&bytes, 16);
        assert_eq!(partial, vector.checksum == Checksum::Partial, "{:?}", vector.from);
        // Without its payload, only a control packet's checksum can be computed.
        if vector.checksum == Checksum::Whole && vector.payload_len == 0 {
            assert_eq!(capture::ones_complement_sum(&[pseudo, bytes].concat()), 0xffff, "{:?}", vector.from);
        }
    }
}

#[test]
fn each_is_in_its_capture() {
    let files = capture::files();
    for vector in vectors() {
        let Some(file) = files.iter().find(|file| capture::name(file) == vector.from.0) else { continue };
        let (from, to) = vector.addresses();
        let found = capture::read(file).into_iter().any(|frame| match &frame.content {
            FrameContent::Homa(bytes) => {
                let header = vector.bytes();
                (frame.from, frame.to) == (from, to)
                    && bytes.len() == header.len() + vector.payload_len as usize
                    && bytes.starts_with(&header)
            }
            FrameContent::Unreachable { .. } => false,
        });
        assert!(found, "{:?}: {}", vector.from, vector.header);
    }
}

#[test]
fn every_type_but_freeze_and_start_msg_is_among_them() {
    let vectors = vectors();
    for kind in PacketType::ALL {
        let there = vectors.iter().any(|vector| vector.body.packet_type() == kind);
        assert_eq!(there, !matches!(kind, PacketType::Freeze | PacketType::Start), "{kind}");
    }
}
