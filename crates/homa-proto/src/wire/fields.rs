//! The fields of each header by name, for tools that show raw packets.
//!
//! The names are those of the tables in PROTOCOL.md; a test compares them. [`decode`](super::decode())
//! defines the meaning of the fields.

use super::packet::PacketType;

/// One field of a header: a big-endian number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name in PROTOCOL.md.
    pub name: &'static str,
    /// Offset of the first byte in the packet.
    pub offset: usize,
    /// Number of bytes, 1 to 8.
    pub len: usize,
}

impl Field {
    const fn new(name: &'static str, offset: usize, len: usize) -> Self {
        Self { name, offset, len }
    }

    /// Returns the field's value in a packet; `None` if the packet ends before the end of the field.
    pub fn value(&self, packet: &[u8]) -> Option<u64> {
        let bytes = packet.get(self.offset..)?.get(..self.len)?;
        Some(bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }
}

const COMMON: [Field; 12] = [
    Field::new("source_port", 0, 2),
    Field::new("dest_port", 2, 2),
    Field::new("sequence", 4, 4),
    Field::new("packet_length", 8, 2),
    Field::new("bundle_endpoints", 10, 1),
    Field::new("type", 11, 1),
    Field::new("doff", 12, 1),
    Field::new("flags", 13, 1),
    Field::new("window", 14, 2),
    Field::new("checksum", 16, 2),
    Field::new("urgent", 18, 2),
    Field::new("sender_id", 20, 8),
];

const DATA: [Field; 8] = [
    Field::new("message_length", 28, 4),
    Field::new("incoming", 32, 4),
    Field::new("ack.client_id", 36, 8),
    Field::new("ack.server_port", 44, 2),
    Field::new("cutoff_version", 46, 2),
    Field::new("retransmit", 48, 1),
    Field::new("pad", 49, 3),
    Field::new("seg.offset", 52, 4),
];

const GRANT: [Field; 2] = [Field::new("offset", 28, 4), Field::new("priority", 32, 1)];

const RESEND: [Field; 3] =
    [Field::new("offset", 28, 4), Field::new("length", 32, 4), Field::new("priority", 36, 1)];

const CUTOFFS: [Field; 10] = [
    Field::new("cutoffs[0]", 28, 4),
    Field::new("cutoffs[1]", 32, 4),
    Field::new("cutoffs[2]", 36, 4),
    Field::new("cutoffs[3]", 40, 4),
    Field::new("cutoffs[4]", 44, 4),
    Field::new("cutoffs[5]", 48, 4),
    Field::new("cutoffs[6]", 52, 4),
    Field::new("cutoffs[7]", 56, 4),
    Field::new("cutoff_version", 60, 2),
    Field::new("unsched_limit", 62, 4),
];

const ACK: [Field; 11] = [
    Field::new("num_acks", 28, 2),
    Field::new("acks[0].client_id", 30, 8),
    Field::new("acks[0].server_port", 38, 2),
    Field::new("acks[1].client_id", 40, 8),
    Field::new("acks[1].server_port", 48, 2),
    Field::new("acks[2].client_id", 50, 8),
    Field::new("acks[2].server_port", 58, 2),
    Field::new("acks[3].client_id", 60, 8),
    Field::new("acks[3].server_port", 68, 2),
    Field::new("acks[4].client_id", 70, 8),
    Field::new("acks[4].server_port", 78, 2),
];

const START: [Field; 1] = [Field::new("message_length", 28, 4)];

/// The fields at the start of every packet.
pub const COMMON_FIELDS: &[Field] = &COMMON;

impl PacketType {
    /// Returns the fields that follow the common fields in packets of this type. The last field of CUTOFFS
    /// exists only between peers of this implementation.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Data => &DATA,
            Self::Grant => &GRANT,
            Self::Resend => &RESEND,
            Self::Cutoffs => &CUTOFFS,
            Self::Ack => &ACK,
            Self::Start => &START,
            Self::RpcUnknown | Self::Busy | Self::Freeze | Self::NeedAck => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_header_has_one_name() {
        for kind in PacketType::ALL {
            let mut end = 0;
            for field in COMMON_FIELDS.iter().chain(kind.fields()) {
                assert_eq!(field.offset, end, "{kind}: {}", field.name);
                end += field.len;
            }
            // CUTOFFS has one field that only our peers send.
            let ours = if kind == PacketType::Cutoffs { 4 } else { 0 };
            assert_eq!(end, kind.header_len() + ours, "{kind}");
        }
    }

    /// Returns the rows of the field tables in PROTOCOL.md that precede the rules: packet type, offset,
    /// bytes, name.
    fn documented() -> Vec<(String, String, String, String)> {
        let text = include_str!("../../../../PROTOCOL.md");
        let (_, formats) = text.split_once("## Packet formats").unwrap();
        let (formats, _) = formats.split_once("## WIRE").unwrap();
        let mut kind = String::from("common");
        let mut rows = Vec::new();
        for line in formats.lines() {
            if let Some(name) = line.strip_suffix(':').filter(|name| !name.contains(' ')) {
                kind = name.to_owned();
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let ["", offset, bytes, name, _, ..] = cells[..]
                && bytes.parse::<usize>().is_ok()
            {
                rows.push((kind.clone(), offset.to_owned(), bytes.to_owned(), name.to_owned()));
            }
        }
        rows
    }

    /// Returns the table row of a field; indexed fields share one row.
    fn row(kind: &str, field: &Field) -> (String, String, String, String) {
        let (offset, name) = match field.name.split_once('[') {
            Some(("cutoffs", _)) => ("28 + 4 i".to_owned(), "cutoffs[i], i = 0 to 7".to_owned()),
            Some((_, rest)) if rest.ends_with("client_id") => {
                ("30 + 10 k".to_owned(), "acks[k].client_id, k = 0 to 4".to_owned())
            }
            Some(_) => ("38 + 10 k".to_owned(), "acks[k].server_port".to_owned()),
            None => (field.offset.to_string(), field.name.to_owned()),
        };
        (kind.to_owned(), offset, field.len.to_string(), name)
    }

    #[test]
    fn names_offsets_and_lengths_are_those_of_the_document() {
        let mut rows: Vec<_> = COMMON_FIELDS.iter().map(|field| row("common", field)).collect();
        for kind in PacketType::ALL {
            for field in kind.fields() {
                let row = row(kind.name(), field);
                if rows.last() != Some(&row) && !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        assert_eq!(documented(), rows);
    }

    #[test]
    fn a_value_is_there_or_not() {
        let field = Field::new("any", 1, 3);
        assert_eq!(field.value(&[9, 1, 2, 3]), Some(0x01_0203));
        assert_eq!(field.value(&[9, 1, 2]), None);
        assert_eq!(field.value(&[]), None);
    }
}
