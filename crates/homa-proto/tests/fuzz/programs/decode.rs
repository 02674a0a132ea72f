//! Decodes arbitrary bytes as a packet.

use homa_proto::wire::{
    Body, COMMON_LEN, DATA_HEADER_LEN, MAX_HEADER_LEN, MAX_MESSAGE_LENGTH, Packet, append_packet, decode,
    encode, packet_length, packets,
};

/// Decodes `bytes` as one packet, as a bundle, truncated, and as the header of a longer packet.
pub fn run(bytes: &[u8]) {
    check(bytes, bytes.len());
    check_division(bytes);
    let header = &bytes[..bytes.len().min(MAX_HEADER_LEN)];
    for len in 0..header.len() {
        check(&header[..len], len);
    }
    let claimed = bytes.first_chunk().map_or(0, |first| usize::from(u16::from_be_bytes(*first)));
    check(header, header.len() + claimed);
}

/// WIRE-21, WIRE-22: checks how a datagram is split into packets.
fn check_division(datagram: &[u8]) {
    let divided: Vec<&[u8]> = packets(datagram).collect();
    divided.iter().for_each(|packet| check(packet, packet.len()));
    if packet_length(datagram).is_none() {
        assert_eq!(divided, [datagram], "no bundle: one packet, whatever its bytes");
        return;
    }
    let is_broken = divided.last().is_some_and(|packet| packet.is_empty());
    let whole = &divided[..divided.len() - usize::from(is_broken)];
    let mut rest = datagram;
    let mut joined = Vec::new();
    for packet in whole {
        assert!(packet.len() >= COMMON_LEN && packet_length(rest) == Some(packet.len()));
        assert_eq!(*packet, &rest[..packet.len()], "each begins where the one before it ends");
        rest = &rest[packet.len()..];
        append_packet(&mut joined, packet, &[]);
        // Trailing bytes change nothing.
        assert!(packets(&joined).eq(whole.iter().copied().take_while(|of| of.as_ptr() <= packet.as_ptr())));
    }
    assert_eq!(joined, datagram[..datagram.len() - rest.len()], "what was divided is what is joined");
    match packet_length(rest) {
        Some(length) => assert!(is_broken && (length < COMMON_LEN || length > rest.len())),
        None => assert!(!is_broken, "padding, or nothing"),
    }
}

/// WIRE-13, WIRE-14: decodes the bytes without a panic, and checks that a decoded packet stays the same when
/// it is encoded and decoded again.
fn check(bytes: &[u8], wire_len: usize) {
    let packet = match decode(bytes, wire_len) {
        Ok(packet) => packet,
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.reason().is_empty());
            return;
        }
    };
    assert!(!packet.to_string().contains('\n'), "a packet takes one line: {packet}");
    check_ranges(&packet, wire_len);
    let header = encode(&packet.common, &packet.body);
    assert!(header.len() >= packet.body.packet_type().header_len());
    let again = decode(&header, header.len() + packet.payload_len as usize);
    assert_eq!(again, Ok(packet), "what was read is what is written");
    assert_eq!(encode(&packet.common, &packet.body).as_slice(), header.as_slice());
    check_ignored(bytes, wire_len, &packet);
}

fn check_ranges(packet: &Packet, wire_len: usize) {
    match &packet.body {
        Body::Data(data) => {
            assert!(packet.payload_len >= 1 && packet.payload_len as usize <= wire_len - DATA_HEADER_LEN);
            assert!((1..=MAX_MESSAGE_LENGTH).contains(&data.message_length), "{packet}");
            assert!(data.incoming <= data.message_length, "{packet}");
            assert!(data.offset + packet.payload_len <= data.message_length, "{packet}");
            assert!(data.ack.is_none_or(|ack| ack.client_id & 1 == 0 && ack.client_id != 0), "{packet}");
        }
        Body::Grant(grant) => assert!(grant.offset <= MAX_MESSAGE_LENGTH && grant.priority < 8, "{packet}"),
        Body::Resend(resend) => {
            assert!(resend.offset <= MAX_MESSAGE_LENGTH && resend.priority < 8, "{packet}");
            assert!(resend.length.is_none_or(|length| length <= MAX_MESSAGE_LENGTH), "{packet}");
        }
        Body::Start(start) => {
            assert!((1..=MAX_MESSAGE_LENGTH).contains(&start.message_length), "{packet}");
        }
        Body::Ack(acks) => {
            assert!(acks.iter().all(|ack| ack.client_id & 1 == 0 && ack.client_id != 0), "{packet}");
        }
        _ => {}
    }
    assert!(matches!(packet.body, Body::Data(_)) || packet.payload_len == 0);
}

/// WIRE-3: checks that bytes without a meaning have no effect.
fn check_ignored(bytes: &[u8], wire_len: usize, packet: &Packet) {
    let mut other = bytes.to_vec();
    for at in [8, 9, 12] {
        other[at] = !other[at];
    }
    if packet.common.incarnation.is_none() {
        other[10] = !other[10];
        // If the urgent field is not the mark, no other field matters.
        for at in 13..18 {
            other[at] = if other[18..20] == [0x48, 0x4d] { 0 } else { !other[at] };
        }
        if matches!(packet.body, Body::Data(_)) {
            other[49..52].fill(0xa5);
        }
    }
    assert_eq!(decode(&other, wire_len), Ok(*packet));
}
