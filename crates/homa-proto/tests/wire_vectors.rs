//! Hand-written packets, one of each type and header form, compared with their meaning (WIRE-1).
//!
//! The first line of each packet is the common header, with the fields in this order: source port,
//! destination port, sequence, ack, type, doff, flags, window, checksum, urgent, sender id.

use homa_proto::wire::*;

/// The origin of a vector's bytes.
#[derive(PartialEq)]
enum From {
    /// A packet as encoded by `encode`, byte for byte.
    Us,
    /// A packet as encoded by Linux Homa: fields that receivers ignore have other values.
    Linux,
}

const CLIENT: Common = Common {
    source_port: 0x9c41,
    dest_port: 99,
    sender_id: 0x0102,
    incarnation: Incarnation::NONE,
    bundle_endpoints: 0,
};
const SERVER: Common = Common {
    source_port: 99,
    dest_port: 0x9c41,
    sender_id: 0x0103,
    incarnation: Incarnation::NONE,
    bundle_endpoints: 0,
};

fn with_incarnation(common: Common) -> Common {
    Common { incarnation: Incarnation::new(0xab_0102_0304), ..common }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        hex.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Checks the header in `lines`. The payload is not included.
fn check(from: From, lines: &[&str], payload_len: u32, common: Common, body: Body) {
    let header = bytes_of(&lines.concat());
    let packet = Packet { common, body, payload_len };
    assert_eq!(decode(&header, header.len() + payload_len as usize), Ok(packet));
    let encoded = encode(&common, &body);
    assert_eq!(encoded.len(), header.len());
    assert_eq!(decode(&encoded, encoded.len() + payload_len as usize), Ok(packet));
    if from == From::Us {
        assert_eq!(encoded.as_slice(), header);
    }
}

#[test]
fn data_from_linux_has_its_offset_in_the_sequence() {
    let vector = [
        "9c41 0063 00000590 000000 10 e0 06 0000 1541 b97d 0000000000000102",
        "0000 1388",        // message length 5000
        "0000 0bb8",        // incoming 3000
        "0000000000000100", // ack: client's id 256
        "0063",             // ack: server's port 99
        "0001",             // cutoff version 1
        "00",               // sent for the first time
        "000000",           // padding
        "ffffffff",         // segment offset: see the sequence, 1424
    ];
    let data = Data {
        message_length: 5000,
        incoming: 3000,
        ack: Some(Ack { client_id: 256, server_port: 99 }),
        cutoff_version: 1,
        retransmit: false,
        offset: 1424,
        response_limit: None,
    };
    check(From::Linux, &vector, 1424, CLIENT, Body::Data(data));
}

#[test]
fn data_from_segmentation_offload_has_its_offset_in_the_segment() {
    let vector = [
        "9c41 0063 00000b20 000000 10 d0 06 0000 d5fb b97d 0000000000000102",
        "0000 4e20",        // message length 20000
        "0000 2710",        // incoming 10000
        "0000000000000000", // no ack
        "0000",             // port of no ack
        "0000",             // cutoff version 0
        "00",               // sent for the first time
        "000000",           // padding
        "00001640",         // segment offset 5696; the sequence is that of the first segment
    ];
    let data = Data {
        message_length: 20_000,
        incoming: 10_000,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        offset: 5696,
        response_limit: None,
    };
    check(From::Linux, &vector, 1424, CLIENT, Body::Data(data));
}

#[test]
fn data_sent_again_by_linux_has_its_offset_twice() {
    let vector = [
        "0063 9c41 00002160 000000 10 e0 06 0000 0000 b97d 0000000000000103",
        "0000 c350",        // message length 50000
        "0000 9c40",        // incoming 40000
        "0000000000000000", // no ack
        "0000",             // port of no ack
        "0002",             // cutoff version 2
        "01",               // sent again
        "000000",           // padding
        "00002160",         // segment offset 8544
    ];
    let data = Data {
        message_length: 50_000,
        incoming: 40_000,
        ack: None,
        cutoff_version: 2,
        retransmit: true,
        offset: 8544,
        response_limit: None,
    };
    check(From::Linux, &vector, 1424, SERVER, Body::Data(data));
}

#[test]
fn data_from_us_carries_the_incarnation() {
    let vector = [
        // flags ab, window 0102 and checksum 0304 are the incarnation, since urgent is 484d ("HM")
        "9c41 0063 00000000 000000 10 e0 ab 0102 0304 484d 0000000000000102",
        "7fff ffff",        // message length 2147483647, the longest
        "0000 0064",        // incoming 100
        "fffffffffffffffe", // ack: the last client id
        "7fff",             // ack: the last server port
        "ffff",             // the last cutoff version
        "00",               // sent for the first time
        "000000",           // padding
        "00000000",         // segment offset 0
    ];
    let data = Data {
        message_length: MAX_MESSAGE_LENGTH,
        incoming: 100,
        ack: Some(Ack { client_id: u64::MAX - 1, server_port: 0x7fff }),
        cutoff_version: u16::MAX,
        retransmit: false,
        offset: 0,
        response_limit: None,
    };
    check(From::Us, &vector, 100, with_incarnation(CLIENT), Body::Data(data));
}

#[test]
fn grant() {
    let vector = [
        "0063 9c41 00000000 000000 11 50 06 0000 c3b7 b97d 0000000000000103",
        "000186a0", // exclusive end 100000
        "03",       // priority 3
    ];
    check(From::Linux, &vector, 0, SERVER, Body::Grant(Grant { offset: 100_000, priority: 3 }));
}

#[test]
fn resend_of_everything_sent() {
    let vector = [
        "9c41 0063 00000000 000000 12 50 06 0000 14ca b97d 0000000000000102",
        "00000000", // from the start
        "ffffffff", // length -1
        "07",       // priority 7
    ];
    check(From::Linux, &vector, 0, CLIENT, Body::Resend(Resend { offset: 0, length: None, priority: 7 }));
}

#[test]
fn resend_of_a_range() {
    let vector = [
        "9c41 0063 00000000 000000 12 50 ab 0102 0304 484d 0000000000000102",
        "00002160", // from byte 8544
        "00000590", // 1424 bytes
        "06",       // priority 6
    ];
    let resend = Resend { offset: 8544, length: Some(1424), priority: 6 };
    check(From::Us, &vector, 0, with_incarnation(CLIENT), Body::Resend(resend));
}

#[test]
fn rpc_unknown_from_linux_gives_no_reason() {
    // Without the mark in urgent, the sequence (1) is not a reason.
    let vector = ["0063 9c41 00000001 000000 13 50 06 0000 fe7a b97d 0000000000000103"];
    check(From::Linux, &vector, 0, SERVER, Body::RpcUnknown(UnknownReason::Unknown));
}

#[test]
fn rpc_unknown_from_us_gives_its_reason() {
    // The sequence (2) is the reason: no such port.
    let vector = ["0063 9c41 00000002 000000 13 50 ab 0102 0304 484d 0000000000000103"];
    check(From::Us, &vector, 0, with_incarnation(SERVER), Body::RpcUnknown(UnknownReason::NoSuchPort));
}

#[test]
fn busy() {
    let vector = ["0063 9c41 00000000 000000 14 50 00 0000 0000 0000 0000000000000103"];
    check(From::Us, &vector, 0, SERVER, Body::Busy);
}

#[test]
fn cutoffs() {
    let vector = [
        "0063 9c41 00000000 000000 15 50 06 0000 a0f3 b97d 0000000000000103",
        "7fffffff", // priority 0: messages of any length
        "00000000", // priorities 1 to 3: none
        "00000000",
        "00000000",
        "000f4240", // priority 4: to 1000000 bytes
        "00003a98", // priority 5: to 15000 bytes
        "00000af0", // priority 6: to 2800 bytes
        "000000c8", // priority 7: to 200 bytes
        "0005",     // version 5
    ];
    let cutoffs = [MAX_MESSAGE_LENGTH, 0, 0, 0, 1_000_000, 15_000, 2800, 200];
    check(
        From::Linux,
        &vector,
        0,
        SERVER,
        Body::Cutoffs(Cutoffs { cutoffs, version: 5, unsched_limit: None }),
    );
}

#[test]
fn freeze() {
    let vector = ["9c41 0063 00000000 000000 16 50 00 0000 0000 0000 0000000000000102"];
    check(From::Us, &vector, 0, CLIENT, Body::Freeze);
}

#[test]
fn need_ack() {
    let vector = ["0063 9c41 00000000 000000 17 50 06 0000 f300 b97d 0000000000000103"];
    check(From::Linux, &vector, 0, SERVER, Body::NeedAck);
}

#[test]
fn ack_of_the_header_alone() {
    let vector = [
        "9c41 0063 00000000 000000 18 50 00 0000 0000 0000 0000000000000102",
        "0000", // no slot in use
        "0000000000000000 0000 0000000000000000 0000 0000000000000000 0000",
        "0000000000000000 0000 0000000000000000 0000",
    ];
    check(From::Us, &vector, 0, CLIENT, Body::Ack(AckList::new()));
}

#[test]
fn ack_with_two_slots() {
    let vector = [
        "9c41 0063 00000000 000000 18 50 06 0000 14f5 b97d 0000000000000102",
        "0002",                  // two slots in use
        "0000000000000100 0063", // id 256 at port 99
        "00000000000000fe 0064", // id 254 at port 100
        "0000000000000000 0000 0000000000000000 0000 0000000000000000 0000",
    ];
    let mut acks = AckList::new();
    assert!(acks.push(Ack { client_id: 256, server_port: 99 }));
    assert!(acks.push(Ack { client_id: 254, server_port: 100 }));
    check(From::Linux, &vector, 0, CLIENT, Body::Ack(acks));
}
