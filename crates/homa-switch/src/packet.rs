//! Which Homa packet a frame holds, so that what a switch did with it can be found beside what its hosts did.

use homa_driver::pcap::frame::{Content, Datagram, LinkType, dissect};
use homa_proto::wire::{Body, Incarnation, decode};
use homa_trace::packet_word;

/// A packet, as time traces name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The RPC, as the packet's sender has it; 0 for what is no Homa packet. Its receiver has the other one of the pair, `id ^ 1`.
    pub id: u64,
    /// Type and length ([`packet_word`]): those of the Homa packet; of what is none type 0 and the length of the frame.
    pub word: u32,
    /// Where in its message the first byte of a DATA packet's payload is.
    pub offset: u32,
}

impl Packet {
    /// What a frame holds. In UDP only packets of this implementation are known, by the mark that they have.
    #[must_use]
    pub fn of(frame: &[u8]) -> Packet {
        let length = frame.len() as u32;
        let found = match dissect(LinkType::Ethernet, frame, length) {
            Content::Datagram(datagram) => homa(&datagram),
            _ => None,
        };
        found.unwrap_or(Packet { word: packet_word(0, length), ..Packet::default() })
    }
}

fn homa(datagram: &Datagram<'_>) -> Option<Packet> {
    let length = datagram.payload.wire_len;
    let packet = decode(datagram.payload.bytes, length).ok()?;
    if datagram.udp && packet.common.incarnation == Incarnation::NONE {
        return None;
    }
    Some(Packet {
        id: packet.common.sender_id,
        word: packet_word(packet.body.packet_type() as u8, length as u32),
        offset: if let Body::Data(data) = &packet.body { data.offset } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::wire::{Common, Data, encode};

    /// An Ethernet frame from one IPv4 address to another.
    fn in_ip(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0]].concat();
        frame.extend((20 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(payload);
        frame
    }

    fn in_udp(payload: &[u8]) -> Vec<u8> {
        let length = 8 + payload.len() as u16;
        in_ip(17, &[&[0, 7, 0, 9], &length.to_be_bytes()[..], &[0, 0], payload].concat())
    }

    fn data(incarnation: Incarnation) -> Vec<u8> {
        let common =
            Common { source_port: 40_000, dest_port: 99, sender_id: 1_234, incarnation, bundle_endpoints: 0 };
        let data = Data {
            message_length: 10_000,
            incoming: 10_000,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset: 1_400,
            response_limit: None,
        };
        let mut packet = encode(&common, &Body::Data(data)).as_slice().to_vec();
        packet.extend([7; 100]);
        packet
    }

    #[test]
    fn a_data_packet_is_known_by_rpc_and_offset_in_ip_and_in_udp() {
        let packet = data(Incarnation::new(5));
        let known = Packet { id: 1_234, word: packet_word(0x10, packet.len() as u32), offset: 1_400 };
        // What fills a short frame up is not the packet's.
        let padded = [in_ip(146, &packet), vec![0; 9]].concat();
        for frame in [in_ip(146, &packet), in_udp(&packet), padded] {
            assert_eq!(Packet::of(&frame), known);
        }
        assert_eq!(Packet::of(&in_ip(146, &data(Incarnation::NONE))).id, 1_234, "of Linux Homa, in IP");
    }

    #[test]
    fn what_is_no_homa_packet_has_no_id() {
        let packet = data(Incarnation::new(5));
        for frame in [
            in_udp(&data(Incarnation::NONE)),
            in_udp(b"a question about a name"),
            in_ip(6, &packet),
            in_ip(146, &packet[..20]),
            vec![0xff; 14],
            Vec::new(),
        ] {
            let word = packet_word(0, frame.len() as u32);
            assert_eq!(Packet::of(&frame), Packet { word, ..Packet::default() }, "{frame:?}");
        }
    }
}
