//! The header of a bare packet.

use bytes::{Buf, BufMut};

/// Bytes before the payload of each packet.
pub const HEADER_LEN: usize = 20;

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes of a request.
    Request,
    /// Bytes of an answer.
    Answer,
    /// No bytes: so many of a request were taken.
    RequestTaken,
    /// No bytes: so many of an answer were taken.
    AnswerTaken,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Request, Kind::Answer, Kind::RequestTaken, Kind::AnswerTaken];

    /// What says of a message of this kind how much of it was taken.
    pub fn taken(self) -> Kind {
        match self {
            Kind::Request | Kind::RequestTaken => Kind::RequestTaken,
            Kind::Answer | Kind::AnswerTaken => Kind::AnswerTaken,
        }
    }

    /// The kind of message that a packet is about.
    pub fn message(self) -> Kind {
        match self {
            Kind::Request | Kind::RequestTaken => Kind::Request,
            Kind::Answer | Kind::AnswerTaken => Kind::Answer,
        }
    }

    /// Whether the packet carries bytes of a message.
    pub fn carries(self) -> bool {
        self == self.message()
    }
}

/// The header of a bare packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the packet carries.
    pub kind: Kind,
    /// Bytes of the whole message.
    pub total: u32,
    /// Where the packet's bytes begin in it; in one that carries none, how many were taken.
    pub offset: u32,
    /// Chosen by the client; the answer has the same.
    pub id: u64,
}

impl Header {
    /// As it goes over the wire: little-endian, in the order of the fields, with 4 bytes for the kind.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut rest = &mut bytes[..];
        rest.put_u32_le(self.kind as u32);
        rest.put_u32_le(self.total);
        rest.put_u32_le(self.offset);
        rest.put_u64_le(self.id);
        bytes
    }

    /// The header and what follows it; `None` where that is not a packet of ours.
    pub fn decode(packet: &[u8]) -> Option<(Header, &[u8])> {
        let (mut header, payload) = packet.split_at_checked(HEADER_LEN)?;
        let kind = header.get_u32_le();
        let kind = Kind::ALL.into_iter().find(|&known| known as u32 == kind)?;
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
        for kind in Kind::ALL {
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
        assert_eq!(Kind::Request.taken(), Kind::RequestTaken);
        assert_eq!(Kind::AnswerTaken.message(), Kind::Answer);
        assert!(Kind::Answer.carries() && !Kind::AnswerTaken.carries());
    }
}
