//! Homa packets as bytes, in exactly the format of Linux Homa.
//!
//! Decoding takes two steps. `raw` views the bytes as big-endian structures, which cannot fail once the
//! length is checked. [`decode`] then converts the view into a [`Packet`] whose fields are in range. It also
//! resolves irregular forms: the two positions of an offset, the length -1 of a RESEND, empty ack slots.
//! [`encode`] is the reverse and cannot fail. No input makes any of these functions panic.
//!
//! Peers of this implementation use header fields that Linux Homa ignores. `flags`, `window` and `checksum`
//! carry the sender's [`Incarnation`], and `urgent` carries the mark [`OURS_MAGIC`]. The fields in the place
//! of the TCP acknowledgement number describe how [`packets`] share a datagram.

mod bundle;
mod decode;
mod display;
mod encode;
mod evidence;
mod fields;
mod incarnation;
mod packet;
mod raw;
mod route;

pub use bundle::{Packets, append_packet, packet_length, packets, stated_length};
pub(crate) use decode::offset_behind;
pub use decode::{DecodeError, decode};
pub use encode::{HeaderBuf, encode};
pub use evidence::{Evidence, evidence};
pub use fields::{COMMON_FIELDS, Field};
pub use incarnation::Incarnation;
pub use packet::{
    ACK_LEN, Ack, AckList, Body, COMMON_LEN, CUTOFFS_LEN, CUTOFFS_LIMIT_LEN, Common, Cutoffs,
    DATA_HEADER_LEN, Data, GRANT_LEN, Grant, MAX_ACKS, MAX_HEADER_LEN, MAX_MESSAGE_LENGTH,
    MAX_RESPONSE_LIMIT, OURS_MAGIC, PRIORITIES, Packet, PacketType, RESEND_LEN, RESEND_SHORT_LEN, Resend,
    START_LEN, Start, UnknownReason,
};
pub use route::{Route, owner_of, route};
