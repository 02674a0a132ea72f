//! Packets as bytes: round trips, invalid packets, the printed form, incarnations.

use homa_proto::wire::*;
use insta::assert_snapshot;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const COMMON: Common = Common {
    source_port: 40001,
    dest_port: 99,
    sender_id: 1234,
    incarnation: Incarnation::NONE,
    bundle_endpoints: 0,
};

const DATA: Data = Data {
    message_length: 5000,
    incoming: 5000,
    ack: Some(Ack { client_id: 1232, server_port: 99 }),
    cutoff_version: 1,
    retransmit: true,
    offset: 0,
    response_limit: None,
};

fn packet(body: Body, payload_len: u32) -> Packet {
    Packet { common: COMMON, body, payload_len }
}

fn acks(count: usize) -> AckList {
    let mut acks = AckList::new();
    for index in 0..count as u64 {
        assert!(acks.push(Ack { client_id: 1000 + 2 * index, server_port: 99 + index as u16 }));
    }
    acks
}

/// Encodes the header and decodes it as the start of a packet with the same payload.
fn round_trip(packet: &Packet) -> Result<Packet, DecodeError> {
    let header = encode(&packet.common, &packet.body);
    decode(&header, header.len() + packet.payload_len as usize)
}

fn ack() -> impl Strategy<Value = Ack> {
    (1..=u64::MAX / 2, any::<u16>()).prop_map(|(half, server_port)| Ack { client_id: 2 * half, server_port })
}

fn data() -> impl Strategy<Value = (Body, u32)> {
    let lengths = prop_oneof![1..5000u32, 1..=MAX_MESSAGE_LENGTH]
        .prop_flat_map(|length| (Just(length), 0..length, 0..=length))
        .prop_flat_map(|(length, offset, incoming)| {
            (Just(length), Just(offset), Just(incoming), 1..=(length - offset).min(65_000))
        });
    (lengths, proptest::option::of(ack()), any::<u16>(), any::<bool>()).prop_map(
        |((message_length, offset, incoming, payload_len), ack, cutoff_version, retransmit)| {
            let response_limit = None;
            let data =
                Data { message_length, incoming, ack, cutoff_version, retransmit, offset, response_limit };
            (Body::Data(data), payload_len)
        },
    )
}

fn control() -> impl Strategy<Value = Body> {
    let number = || prop_oneof![0..100_000u32, 0..=MAX_MESSAGE_LENGTH];
    let priority = || 0..PRIORITIES as u8;
    prop_oneof![
        (number(), priority()).prop_map(|(offset, priority)| Body::Grant(Grant { offset, priority })),
        (number(), proptest::option::of(number()), priority())
            .prop_map(|(offset, length, priority)| Body::Resend(Resend { offset, length, priority })),
        (0..5u32).prop_map(|code| Body::RpcUnknown(UnknownReason::from_code(code))),
        Just(Body::Busy),
        (proptest::array::uniform8(number()), any::<u16>())
            .prop_map(|(cutoffs, version)| Body::Cutoffs(Cutoffs { cutoffs, version, unsched_limit: None })),
        (1..=MAX_MESSAGE_LENGTH).prop_map(|message_length| Body::Start(Start { message_length })),
        Just(Body::Freeze),
        Just(Body::NeedAck),
        proptest::collection::vec(ack(), 0..=MAX_ACKS).prop_map(|list| {
            let mut acks = AckList::new();
            for ack in list {
                assert!(acks.push(ack));
            }
            Body::Ack(acks)
        }),
    ]
}

fn incarnation() -> impl Strategy<Value = Incarnation> {
    prop_oneof![Just(Incarnation::NONE), any::<u64>().prop_map(Incarnation::new)]
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let bodies = prop_oneof![data(), control().prop_map(|body| (body, 0))];
    (any::<u16>(), any::<u16>(), 2..=u64::MAX, incarnation(), bodies).prop_map(
        |(source_port, dest_port, sender_id, incarnation, (body, payload_len))| {
            let body = match body {
                // A sender without an incarnation cannot give a reason either.
                Body::RpcUnknown(_) if incarnation.is_none() => Body::RpcUnknown(UnknownReason::Unknown),
                body => body,
            };
            Packet {
                common: Common { source_port, dest_port, sender_id, incarnation, bundle_endpoints: 0 },
                body,
                payload_len,
            }
        },
    )
}

/// Generates arbitrary bytes with a valid type, so that they reach the decoders of all types.
fn nonsense() -> impl Strategy<Value = Vec<u8>> {
    let small = || prop_oneof![Just(0u8), Just(0xff), any::<u8>()];
    (proptest::collection::vec(small(), 0..120), 0x0f..=0x1au8, any::<bool>()).prop_map(
        |(mut bytes, kind, ours)| {
            if let Some(byte) = bytes.get_mut(11) {
                *byte = kind;
            }
            if let (Some(urgent), true) = (bytes.get_mut(18..20), ours) {
                urgent.copy_from_slice(&OURS_MAGIC.to_be_bytes());
            }
            bytes
        },
    )
}

/// Checks the properties of every accepted packet.
fn check_accepted(packet: &Packet, wire_len: usize) -> Result<(), TestCaseError> {
    match packet.body {
        Body::Data(data) => {
            prop_assert!(packet.payload_len > 0 && packet.payload_len as usize <= wire_len - DATA_HEADER_LEN);
            prop_assert!(data.message_length <= MAX_MESSAGE_LENGTH && data.incoming <= data.message_length);
            prop_assert!(packet.payload_len <= data.message_length - data.offset);
        }
        _ => prop_assert_eq!(packet.payload_len, 0),
    }
    prop_assert_eq!(round_trip(packet), Ok(*packet));
    prop_assert!(packet.to_string().contains(packet.body.packet_type().name()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn valid_packets_round_trip(packet in any_packet()) {
        prop_assert_eq!(round_trip(&packet), Ok(packet));
    }

    #[test]
    fn header_has_the_length_of_its_type(packet in any_packet()) {
        let header = encode(&packet.common, &packet.body);
        prop_assert_eq!(header.len(), packet.body.packet_type().header_len());
    }

    #[test]
    fn cut_headers_are_too_short(packet in any_packet()) {
        let header = encode(&packet.common, &packet.body);
        let whole = header.len();
        let least = packet.body.packet_type().min_len();
        for got in 0..least {
            let needed = if got < COMMON_LEN { COMMON_LEN } else { least };
            let error = Err(DecodeError::TooShort { needed, got });
            prop_assert_eq!(decode(&header[..got], whole + 100), error);
            prop_assert_eq!(decode(&header, got), error);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        wire_len in prop_oneof![0..200usize, any::<usize>()],
    ) {
        if let Ok(packet) = decode(&bytes, wire_len) {
            check_accepted(&packet, wire_len)?;
        }
    }

    #[test]
    fn nonsense_of_a_known_type_does_not_panic(
        bytes in nonsense(),
        wire_len in prop_oneof![0..200usize, any::<usize>()],
    ) {
        match decode(&bytes, wire_len) {
            Ok(packet) => check_accepted(&packet, wire_len)?,
            Err(error) => prop_assert!(!error.to_string().is_empty() && !error.reason().is_empty()),
        }
    }

    #[test]
    fn fields_out_of_range_do_not_panic(
        numbers in any::<[u32; 8]>(),
        priority in any::<u8>(),
        id in any::<u64>(),
    ) {
        let [offset, length, ..] = numbers;
        let mut acks = AckList::new();
        acks.push(Ack { client_id: id, server_port: 1 });
        let data = Data { message_length: length, offset, incoming: offset, ..DATA };
        for body in [
            Body::Data(data),
            Body::Grant(Grant { offset, priority }),
            Body::Resend(Resend { offset, length: Some(length), priority }),
            Body::Cutoffs(Cutoffs { cutoffs: numbers, version: 0, unsched_limit: None }),
            Body::Ack(acks),
        ] {
            let packet = Packet { common: Common { sender_id: id, ..COMMON }, body, payload_len: length };
            let _ = packet.to_string();
            if let Ok(packet) = round_trip(&packet) {
                check_accepted(&packet, usize::MAX)?;
            }
        }
    }

    #[test]
    fn newer_incarnations_are_ahead(start in any::<u64>(), ahead in 1..(1u64 << 39) - 1) {
        let (old, new) = (Incarnation::new(start), Incarnation::new(start.wrapping_add(ahead)));
        // Number 0 is skipped, so two adjacent incarnations may coincide.
        prop_assert_eq!(new.is_newer_than(old), new != old);
        prop_assert!(!old.is_newer_than(new));
    }
}

#[test]
fn incarnation_is_never_none_by_chance() {
    for value in [0, 1 << 40, u64::MAX << 40] {
        assert_eq!(Incarnation::new(value).get(), 1);
    }
    assert_eq!(Incarnation::new(u64::MAX).get(), (1 << 40) - 1);
    assert!(Incarnation::NONE.is_none() && !Incarnation::new(0).is_none());
}

#[test]
fn incarnation_wraps_around() {
    let (last, first) = (Incarnation::new(u64::MAX), Incarnation::new(1));
    assert!(first.is_newer_than(last));
    assert!(!last.is_newer_than(first));
}

#[test]
fn incarnation_none_is_neither_newer_nor_older() {
    let some = Incarnation::new(7);
    assert!(!some.is_newer_than(Incarnation::NONE));
    assert!(!Incarnation::NONE.is_newer_than(some));
    assert!(!some.is_newer_than(some));
}

#[test]
fn magic_without_incarnation_is_a_peer_of_another_kind() {
    let mut bytes = encode(&COMMON, &Body::RpcUnknown(UnknownReason::Unknown)).to_vec();
    bytes[18..20].copy_from_slice(&OURS_MAGIC.to_be_bytes());
    bytes[7] = UnknownReason::TooLarge as u8;
    let packet = decode(&bytes, bytes.len()).unwrap();
    assert_eq!(packet.common.incarnation, Incarnation::NONE);
    assert_eq!(packet.body, Body::RpcUnknown(UnknownReason::Unknown));
}

#[test]
fn unknown_reason_of_a_later_version_reads_as_unknown() {
    let common = Common { incarnation: Incarnation::new(5), ..COMMON };
    let mut bytes = encode(&common, &Body::RpcUnknown(UnknownReason::OwnerGone)).to_vec();
    assert_eq!(decode(&bytes, COMMON_LEN).unwrap().body, Body::RpcUnknown(UnknownReason::OwnerGone));
    bytes[7] = 5;
    assert_eq!(decode(&bytes, COMMON_LEN).unwrap().body, Body::RpcUnknown(UnknownReason::Unknown));
}

#[test]
fn packet_type_codes() {
    for code in 0..=u8::MAX {
        match PacketType::try_from(code) {
            Ok(kind) => assert_eq!(kind as u8, code),
            Err(error) => assert_eq!(error, DecodeError::UnknownType(code)),
        }
        assert_eq!(PacketType::try_from(code).is_ok(), (0x10..=0x19).contains(&code));
    }
}

#[test]
fn ack_list_holds_five() {
    let mut list = acks(MAX_ACKS);
    assert!(list.is_full());
    assert!(!list.push(Ack { client_id: 2, server_port: 1 }));
    assert_eq!(list.len(), MAX_ACKS);
    assert_eq!(list.iter().map(|ack| ack.client_id).collect::<Vec<_>>(), [1000, 1002, 1004, 1006, 1008]);
}

#[test]
fn ack_of_no_rpc_takes_no_place() {
    let mut list = acks(MAX_ACKS);
    assert!(list.push(Ack { client_id: 0, server_port: 1 }));
    assert_eq!(list, acks(MAX_ACKS));
}

#[test]
fn empty_ack_slots_are_skipped() {
    let mut bytes = encode(&COMMON, &Body::Ack(acks(3))).to_vec();
    bytes[40..50].fill(0);
    let Body::Ack(list) = decode(&bytes, ACK_LEN).unwrap().body else { panic!("not an ACK") };
    assert_eq!(list.iter().map(|ack| ack.client_id).collect::<Vec<_>>(), [1000, 1004]);
}

#[test]
fn ack_slots_beyond_the_count_are_ignored() {
    let mut bytes = encode(&COMMON, &Body::Ack(acks(3))).to_vec();
    bytes[29] = 1;
    assert_eq!(decode(&bytes, ACK_LEN).unwrap().body, Body::Ack(acks(1)));
}

#[test]
fn payload_beyond_the_message_is_left_out() {
    let header = encode(&COMMON, &Body::Data(Data { offset: 4990, ..DATA }));
    assert_eq!(decode(&header, DATA_HEADER_LEN + 1424).unwrap().payload_len, 10);
    assert_eq!(decode(&header, usize::MAX).unwrap().payload_len, 10);
}

#[test]
fn incoming_ends_with_the_message() {
    let header = encode(&COMMON, &Body::Data(Data { incoming: u32::MAX, ..DATA }));
    assert_eq!(decode(&header, 100).unwrap().body, Body::Data(DATA));
}

#[test]
fn negative_cutoffs_admit_nothing() {
    let cutoffs = [0x7fff_ffff, 0, 0, 0, 1_000_000, 15_000, 2800, 200];
    let mut bytes =
        encode(&COMMON, &Body::Cutoffs(Cutoffs { cutoffs, version: 3, unsched_limit: None })).to_vec();
    bytes[32..36].fill(0xff);
    assert_eq!(
        decode(&bytes, CUTOFFS_LEN).unwrap().body,
        Body::Cutoffs(Cutoffs { cutoffs, version: 3, unsched_limit: None })
    );
}

#[test]
fn values_too_large_to_send_are_bounded() {
    let resend = Body::Resend(Resend { offset: 1, length: Some(u32::MAX), priority: 200 });
    let sent = Body::Resend(Resend { offset: 1, length: Some(MAX_MESSAGE_LENGTH), priority: 7 });
    assert_eq!(round_trip(&packet(resend, 0)).unwrap().body, sent);
    let cutoffs = Body::Cutoffs(Cutoffs { cutoffs: [u32::MAX; 8], version: 1, unsched_limit: None });
    let sent = Body::Cutoffs(Cutoffs { cutoffs: [MAX_MESSAGE_LENGTH; 8], version: 1, unsched_limit: None });
    assert_eq!(round_trip(&packet(cutoffs, 0)).unwrap().body, sent);
}

#[test]
fn control_packets_may_be_longer_than_their_header() {
    let mut bytes = encode(&COMMON, &Body::Busy).to_vec();
    bytes.resize(1000, 0xaa);
    assert_eq!(decode(&bytes, bytes.len()), Ok(packet(Body::Busy, 0)));
}

/// Returns the error for `body` after `bytes` are written at `at`, with 10 bytes of payload.
fn error_of(body: Body, at: usize, bytes: &[u8]) -> DecodeError {
    let mut packet = encode(&COMMON, &body).to_vec();
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet.resize(packet.len() + 10, 0);
    decode(&packet, packet.len()).unwrap_err()
}

#[test]
fn errors_name_the_field() {
    let data = Body::Data(DATA);
    let grant = Body::Grant(Grant { offset: 1, priority: 1 });
    let resend = Body::Resend(Resend { offset: 1, length: Some(1), priority: 1 });
    let minus_two = (-2i32).to_be_bytes();
    let long = 5000u32.to_be_bytes();
    let errors = [
        decode(&[0; 20], 20).unwrap_err(),
        error_of(Body::Busy, 11, &[0x1a]),
        error_of(data, 28, &[0; 4]),
        error_of(data, 28, &minus_two),
        decode(&encode(&COMMON, &data), DATA_HEADER_LEN).unwrap_err(),
        error_of(data, 52, &long),
        error_of(data, 52, &minus_two),
        error_of(data, 43, &[1]),
        error_of(data, 20, &[0, 0, 0, 0, 0, 0, 0, 1]),
        error_of(grant, 28, &minus_two),
        error_of(grant, 32, &[8]),
        error_of(resend, 28, &minus_two),
        error_of(resend, 32, &minus_two),
        error_of(resend, 36, &[255]),
        error_of(Body::Start(Start { message_length: 5 }), 28, &[0; 4]),
        error_of(Body::Start(Start { message_length: 5 }), 28, &minus_two),
        error_of(Body::Start(Start { message_length: 5 }), 20, &[0; 8]),
        error_of(Body::Ack(acks(5)), 29, &[6]),
        error_of(Body::Ack(acks(5)), 37, &[7]),
    ];
    let lines: Vec<_> = errors.iter().map(|error| format!("{}: {error}", error.reason())).collect();
    assert_snapshot!(lines.join("\n"), @"
    too_short: packet of 20 bytes is too short: its header takes 28
    unknown_type: 0x1a is not the type of a Homa packet
    zero_length: the message has length 0
    bad_length: length 4294967294 is larger than 2147483647
    empty_payload: DATA without payload
    bad_offset: offset 5000 is out of a message of length 5000
    bad_offset: offset 4294967294 is out of a message of length 5000
    odd_ack_id: acknowledged id 1025 is odd
    no_rpc_id: DATA without an RPC id
    bad_offset: offset 4294967294 is out of a message of length 2147483647
    bad_priority: priority 8 is not less than 8
    bad_offset: offset 4294967294 is out of a message of length 2147483647
    bad_length: length 4294967294 is larger than 2147483647
    bad_priority: priority 255 is not less than 8
    empty_start: START_MSG of length 0
    bad_length: length 4294967294 is larger than 2147483647
    no_rpc_id: START_MSG without an RPC id
    too_many_acks: 6 acknowledgements in an ACK with room for 5
    odd_ack_id: acknowledged id 775 is odd
    ");
}

#[test]
fn packets_print_in_one_line() {
    let data = Body::Data(DATA);
    let scheduled = Data { offset: 2848, ack: None, retransmit: false, cutoff_version: 4, ..DATA };
    let common = Common { incarnation: Incarnation::new(0x12_3456_789a), ..COMMON };
    let packets = [
        packet(data, 1424),
        packet(Body::Data(scheduled), 1424),
        packet(Body::Grant(Grant { offset: 50_000, priority: 3 }), 0),
        packet(Body::Resend(Resend { offset: 1424, length: Some(2848), priority: 7 }), 0),
        packet(Body::Resend(Resend { offset: 0, length: None, priority: 7 }), 0),
        packet(Body::RpcUnknown(UnknownReason::Unknown), 0),
        packet(Body::RpcUnknown(UnknownReason::NoSuchPort), 0),
        packet(Body::Busy, 0),
        packet(
            Body::Cutoffs(Cutoffs {
                cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2800, 200],
                version: 1,
                unsched_limit: None,
            }),
            0,
        ),
        packet(Body::Freeze, 0),
        packet(Body::NeedAck, 0),
        packet(Body::Ack(acks(0)), 0),
        packet(Body::Ack(acks(2)), 0),
        Packet { common, ..packet(Body::Busy, 0) },
    ];
    let lines: Vec<_> = packets.iter().map(ToString::to_string).collect();
    assert_snapshot!(lines.join("\n"), @"
    40001 > 99: DATA id 1234 [0, 1424) of 5000 incoming 5000 cv 1 ack 1232@99 retransmit
    40001 > 99: DATA id 1234 [2848, 4272) of 5000 incoming 5000 cv 4
    40001 > 99: GRANT id 1234 to 50000 priority 3
    40001 > 99: RESEND id 1234 [1424, 4272) priority 7
    40001 > 99: RESEND id 1234 [0, sent) priority 7
    40001 > 99: RPC_UNKNOWN id 1234
    40001 > 99: RPC_UNKNOWN id 1234 (no such port)
    40001 > 99: BUSY id 1234
    40001 > 99: CUTOFFS id 1234 cv 1: 0 0 0 0 1000000 15000 2800 200
    40001 > 99: FREEZE id 1234
    40001 > 99: NEED_ACK id 1234
    40001 > 99: ACK id 1234
    40001 > 99: ACK id 1234 1000@99 1002@100
    40001 > 99: BUSY id 1234 incarnation 123456789a
    ");
}

#[test]
fn limits_of_unscheduled_bytes_travel_between_our_peers_only() {
    let ours = Common { incarnation: Incarnation::new(7), ..COMMON };
    let limited = |limit| Body::Data(Data { response_limit: limit, ..DATA });
    let cutoffs =
        |limit| Body::Cutoffs(Cutoffs { cutoffs: [9; PRIORITIES], version: 3, unsched_limit: limit });
    for limit in [Some(1), Some(MAX_RESPONSE_LIMIT), None] {
        for (body, payload_len) in [(limited(limit), 1), (cutoffs(limit), 0)] {
            let sent = Packet { common: ours, body, payload_len };
            assert_eq!(round_trip(&sent), Ok(sent));
        }
    }
    let too_large = round_trip(&Packet { common: ours, body: limited(Some(u32::MAX)), payload_len: 1 });
    assert_eq!(too_large.unwrap().body, limited(Some(MAX_RESPONSE_LIMIT)));
    // Without an incarnation, the limit is neither sent nor read.
    assert_eq!(round_trip(&packet(limited(Some(9)), 1)), Ok(packet(limited(None), 1)));
    assert_eq!(round_trip(&packet(cutoffs(Some(9)), 0)), Ok(packet(cutoffs(None), 0)));
    for body in [limited(Some(9)), cutoffs(Some(9))] {
        let mut bytes = encode(&ours, &body).to_vec();
        bytes[18..20].fill(0);
        let decoded = decode(&bytes, bytes.len() + 1).unwrap().body;
        assert!(decoded == limited(None) || decoded == cutoffs(None), "{decoded:?}");
    }
}

#[test]
fn a_limit_out_of_range_or_cut_off_is_none() {
    let ours = Common { incarnation: Incarnation::new(7), ..COMMON };
    let body = Body::Cutoffs(Cutoffs { cutoffs: [9; PRIORITIES], version: 3, unsched_limit: Some(5) });
    let whole = encode(&ours, &body);
    assert_eq!(whole.len(), CUTOFFS_LIMIT_LEN);
    for (len, limit) in [(CUTOFFS_LEN, 5), (CUTOFFS_LIMIT_LEN - 1, 5), (66, 0), (66, 0x8000_0000)] {
        let mut bytes = whole.to_vec();
        bytes[62..].copy_from_slice(&u32::to_be_bytes(limit));
        let Body::Cutoffs(cutoffs) = decode(&bytes[..len], len).unwrap().body else { panic!("CUTOFFS") };
        assert_eq!((cutoffs.version, cutoffs.unsched_limit), (3, None), "{len} bytes, {limit}");
    }
}
