//! The Homa packets in a frame, so that traces of the switch and of its hosts can be matched.

use homa_pcap::frame::{Content, Datagram, LinkType, dissect};
use homa_proto::wire::{Body, Incarnation, decode, packets};
use homa_trace::packet_word;

/// A packet's identity in time traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The sender's RPC ID; 0 if the frame carries no Homa packet. The receiver's ID is `id ^ 1`.
    pub id: u64,
    /// Type and length of the Homa packet ([`packet_word`]); type 0 and the frame's length if there is none.
    pub word: u32,
    /// For a DATA packet, the offset of its first payload byte in its message.
    pub offset: u32,
}

/// The packets of a frame, in order. There are several if the frame is a bundle (PROTOCOL.md WIRE-21).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    first: Packet,
    /// Empty, and without an allocation, unless the frame is a bundle.
    others: Vec<Packet>,
}

impl Packets {
    /// Parses the packets of a frame, at least one. Over UDP only packets with this implementation's mark are
    /// recognized.
    #[must_use]
    pub fn of(frame: &[u8]) -> Packets {
        let length = frame.len() as u32;
        let found = match dissect(LinkType::Ethernet, frame, length) {
            Content::Datagram(datagram) => homa(&datagram),
            _ => None,
        };
        found.unwrap_or(Packets::from(Packet { word: packet_word(0, length), ..Packet::default() }))
    }

    /// Returns all packets.
    pub fn iter(&self) -> impl Iterator<Item = Packet> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

impl From<Packet> for Packets {
    fn from(first: Packet) -> Packets {
        Packets { first, others: Vec::new() }
    }
}

#[cfg(test)]
impl From<[Packet; 2]> for Packets {
    fn from([first, second]: [Packet; 2]) -> Packets {
        Packets { first, others: vec![second] }
    }
}

/// Parses the valid packets of a datagram, if the first one is valid.
fn homa(datagram: &Datagram<'_>) -> Option<Packets> {
    let bytes = datagram.payload.bytes;
    if !datagram.udp {
        return packet(bytes, false).map(Packets::from);
    }
    let mut divided = packets(bytes);
    let first = packet(divided.next()?, true)?;
    // WIRE-22: invalid packets are dropped, and the others are kept.
    Some(Packets { first, others: divided.filter_map(|bytes| packet(bytes, true)).collect() })
}

fn packet(bytes: &[u8], udp: bool) -> Option<Packet> {
    let packet = decode(bytes, bytes.len()).ok()?;
    if udp && packet.common.incarnation == Incarnation::NONE {
        return None;
    }
    Some(Packet {
        id: packet.common.sender_id,
        word: packet_word(packet.body.packet_type() as u8, bytes.len() as u32),
        offset: if let Body::Data(data) = &packet.body { data.offset } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::wire::{Common, Data, append_packet, encode};

    /// Creates an Ethernet frame from one IPv4 address to another.
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
        // The padding of a short frame is not part of the packet.
        let padded = [in_ip(146, &packet), vec![0; 9]].concat();
        for frame in [in_ip(146, &packet), in_udp(&packet), padded] {
            assert_eq!(Packets::of(&frame), Packets::from(known));
        }
        assert_eq!(
            Packets::of(&in_ip(146, &data(Incarnation::NONE))).first.id,
            1_234,
            "of Linux Homa, in IP"
        );
    }

    /// WIRE-21, WIRE-22.
    #[test]
    fn each_packet_of_a_bundle_is_known() {
        let packet = data(Incarnation::new(5));
        let known = Packet { id: 1_234, word: packet_word(0x10, packet.len() as u32), offset: 1_400 };
        let mut bundle = Vec::new();
        for _ in 0..3 {
            append_packet(&mut bundle, &packet, &[]);
        }
        let ids = |payload: &[u8]| Packets::of(&in_udp(payload)).iter().collect::<Vec<_>>();
        assert_eq!(ids(&bundle), [known; 3]);
        assert_eq!(ids(&[&bundle[..], &[0; 40]].concat()), [known; 3], "padded");
        assert_eq!(ids(&bundle[..bundle.len() - 1]), [known; 2], "the last does not fit");
        bundle[packet.len() + 11] = 0;
        assert_eq!(ids(&bundle), [known; 2], "the second is of no type");
        let in_ip = Packets::of(&in_ip(146, &bundle));
        assert_eq!(in_ip.iter().count(), 1, "IP carries one packet");
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
            assert_eq!(Packets::of(&frame), Packets::from(Packet { word, ..Packet::default() }), "{frame:?}");
        }
    }
}
