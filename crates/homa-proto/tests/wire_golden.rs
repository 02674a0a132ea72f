//! Compares packets of the three dialects of Linux Homa with their meaning, field by field (WIRE-1, WIRE-25).

use homa_proto::wire::*;

use super::golden::{GOLDEN, golden};

fn common(source_port: u16, dest_port: u16, sender_id: u64) -> Common {
    Common { source_port, dest_port, sender_id, incarnation: Incarnation::NONE, bundle_endpoints: 0 }
}

fn request() -> Common {
    common(40_000, 99, 1234)
}

fn response() -> Common {
    common(99, 40_000, 1235)
}

/// Checks the meaning of a golden packet, and that an encoded packet has the same meaning; returns its
/// evidence.
fn check(name: &str, common: Common, body: Body, payload: &[u8]) -> Evidence {
    let bytes = golden(name);
    let packet = Packet { common, body, payload_len: payload.len() as u32 };
    assert_eq!(decode(&bytes, bytes.len()), Ok(packet), "{name}");
    assert_eq!(&bytes[bytes.len() - payload.len()..], payload, "{name}");
    let header = encode(&common, &body);
    assert_eq!(decode(&header, header.len() + payload.len()), Ok(packet), "{name}, encoded");
    evidence(&bytes, bytes.len())
}

fn data(message_length: u32, incoming: u32, offset: u32) -> Data {
    Data {
        message_length,
        incoming,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        offset,
        response_limit: None,
    }
}

#[test]
fn start_msg_has_a_length_and_nothing_else() {
    let start = |message_length| Body::Start(Start { message_length });
    assert_eq!(check("G1", request(), start(100_000), &[]), Evidence::StartMsg);
    assert_eq!(check("G2", response(), start(40_001), &[]), Evidence::StartMsg);
    assert_eq!(check("G13", request(), start(100_000), &[]), Evidence::StartMsg);
    assert_eq!(check("G14", request(), start(100_000), &[]), Evidence::StartMsg);
    // The encoder produces the same bytes except for the marks, which this implementation does not send.
    let mut encoded = encode(&request(), &start(100_000)).to_vec();
    (encoded[13], encoded[18], encoded[19]) = (6, 0xb9, 0x7d);
    assert_eq!(encoded, golden("G1"));
    assert_eq!(encode(&request(), &start(100_000)).as_slice(), golden("G13"));
}

#[test]
fn the_same_segment_in_four_forms() {
    let again = Data { cutoff_version: 1, retransmit: true, ..data(100_000, 0, 1_424) };
    assert_eq!(check("G5", request(), Body::Data(again), b"abcd"), Evidence::Unannounced);
    let announced = Body::Data(Data { cutoff_version: 1, ..data(100_000, 40_000, 1_424) });
    assert_eq!(check("G6", request(), announced, b"abcd"), Evidence::Announced);
    assert_eq!(check("G7", request(), announced, b"abcd"), Evidence::OffsetInSequence);
    let bare = Body::Data(data(100_000, 0, 1_424));
    assert_eq!(check("G8", request(), bare, b"abcd"), Evidence::UnmarkedUnannounced);
}

#[test]
fn whole_messages_of_dialect_two() {
    let ack = Some(Ack { client_id: 1_232, server_port: 99 });
    let first = Data { ack, cutoff_version: 1, ..data(8, 0, 0) };
    assert_eq!(check("G4", request(), Body::Data(first), b"homa2026"), Evidence::Unannounced);
    let in_udp = golden("G16");
    let packet = decode(&in_udp, in_udp.len()).unwrap();
    assert_eq!((packet.payload_len, &in_udp[56..]), (8, b"homa2026".as_slice()));
}

// WIRE-25
#[test]
fn resend_without_a_priority_asks_for_the_highest() {
    let everything = Body::Resend(Resend { offset: 0, length: None, priority: 7 });
    assert_eq!(check("G9", request(), everything, &[]), Evidence::ShortResend);
    let rest = Body::Resend(Resend { offset: 40_000, length: Some(60_000), priority: 7 });
    assert_eq!(check("G10", request(), rest, &[]), Evidence::ShortResend);
    assert_eq!(check("G11", request(), everything, &[]), Evidence::Full);
}

#[test]
fn answers() {
    let grant = Body::Grant(Grant { offset: 100_000, priority: 2 });
    assert_eq!(check("G3", response(), grant, &[]), Evidence::Full);
    let unknown = Body::RpcUnknown(UnknownReason::Unknown);
    assert_eq!(check("G12", response(), unknown, &[]), Evidence::Full);
    let busy = golden("G15");
    assert_eq!(decode(&busy, busy.len()).map(|packet| packet.body), Ok(Body::Busy));
}

#[test]
fn what_is_no_packet_says_why() {
    let error = |name: &str| {
        let bytes = golden(name);
        decode(&bytes, bytes.len()).map(|packet| packet.to_string()).map_err(|error| error.to_string())
    };
    let why = |name: &str| error(name).unwrap_err();
    assert_eq!(why("N1"), "packet of 31 bytes is too short: its header takes 32");
    assert_eq!(why("N2"), "START_MSG of length 0");
    assert_eq!(why("N4"), "0x1a is not the type of a Homa packet");
    assert_eq!(why("N5"), "packet of 35 bytes is too short: its header takes 36");
    let too_long = error("N3").unwrap();
    assert_eq!(too_long, "40000 > 99: START_MSG id 1234 of 1000001", "a packet; the endpoint refuses it");
}

// WIRE-26
#[test]
fn our_mark_in_a_form_that_we_never_send_is_no_packet() {
    for name in ["G9", "G10", "G7"] {
        let mut bytes = golden(name);
        bytes[13..20].copy_from_slice(&[0, 0, 0, 0, 1, 0x48, 0x4d]);
        assert_eq!(decode(&bytes, bytes.len()), Err(DecodeError::MixedForms), "{name}");
        assert_eq!(evidence(&bytes, bytes.len()), Evidence::Ours, "{name}");
    }
}

/// Every golden packet must also be an initial input of the fuzzer.
#[test]
fn each_golden_packet_is_an_input_of_the_fuzzer() {
    let names =
        GOLDEN.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next());
    for name in names {
        let path = format!("{}/tests/fuzz_regressions/decode/golden_{name}", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(std::fs::read(&path).unwrap_or_default(), golden(name), "{path}");
    }
}
