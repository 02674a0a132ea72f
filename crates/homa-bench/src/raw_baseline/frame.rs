//! The header of a raw packet.

use bytes::{Buf, BufMut};

/// Header bytes before the payload of each packet.
pub const HEADER_LEN: usize = 20;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// A packet of a request.
    Request,
    /// A packet of a response.
    Answer,
    /// Acknowledges received bytes of a request; no payload.
    RequestTaken,
    /// Acknowledges received bytes of a response; no payload.
    AnswerTaken,
}

impl PacketKind {
    const ALL: [PacketKind; 4] =
        [PacketKind::Request, PacketKind::Answer, PacketKind::RequestTaken, PacketKind::AnswerTaken];

    /// Returns the kind of packet that acknowledges messages of this kind.
    pub fn taken(self) -> PacketKind {
        match self {
            PacketKind::Request | PacketKind::RequestTaken => PacketKind::RequestTaken,
            PacketKind::Answer | PacketKind::AnswerTaken => PacketKind::AnswerTaken,
        }
    }

    /// Returns the kind of message to which a packet of this kind belongs.
    pub fn message(self) -> PacketKind {
        match self {
            PacketKind::Request | PacketKind::RequestTaken => PacketKind::Request,
            PacketKind::Answer | PacketKind::AnswerTaken => PacketKind::Answer,
        }
    }

    /// Returns whether the packet carries a part of a message.
    pub fn carries(self) -> bool {
        self == self.message()
    }
}

/// The header of a raw packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the packet.
    pub kind: PacketKind,
    /// Length of the whole message in bytes.
    pub total: u32,
    /// Offset of the payload in the message; in an acknowledgement, the bytes received so far.
    pub offset: u32,
    /// The RPC's ID, chosen by the client and copied by the server into its response.
    pub id: u64,
}

impl Header {
    /// Encodes the header: little-endian, fields in declaration order, 4 bytes for the kind.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut rest = &mut bytes[..];
        rest.put_u32_le(self.kind as u32);
        rest.put_u32_le(self.total);
        rest.put_u32_le(self.offset);
        rest.put_u64_le(self.id);
        bytes
    }

    /// Splits a packet into header and payload, or returns `None` if it is not a raw packet.
    pub fn decode(packet: &[u8]) -> Option<(Header, &[u8])> {
        let (mut header, payload) = packet.split_at_checked(HEADER_LEN)?;
        let kind = header.get_u32_le();
        let kind = PacketKind::ALL.into_iter().find(|&known| known as u32 == kind)?;
        let header =
            Header { kind, total: header.get_u32_le(), offset: header.get_u32_le(), id: header.get_u64_le() };
        let end = u64::from(header.offset) + payload.len() as u64;
        (end <= u64::from(header.total)).then_some((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_nonsense_does_not() {
        for kind in PacketKind::ALL {
            let header = Header { kind, total: 7, offset: 5, id: u64::MAX };
            let packet = [&header.encode()[..], b"ab"].concat();
            assert_eq!(Header::decode(&packet), Some((header, &b"ab"[..])));
            let beyond = [&packet[..], b"c"].concat();
            assert_eq!(Header::decode(&beyond), None, "it would reach beyond the message");
        }
        assert_eq!(Header::decode(&[0; HEADER_LEN - 1]), None);
        assert_eq!(Header::decode(&[9; HEADER_LEN]), None);
    }

    #[test]
    fn what_is_taken_names_its_message() {
        assert_eq!(PacketKind::Request.taken(), PacketKind::RequestTaken);
        assert_eq!(PacketKind::AnswerTaken.message(), PacketKind::Answer);
        assert!(PacketKind::Answer.carries() && !PacketKind::AnswerTaken.carries());
    }
}
