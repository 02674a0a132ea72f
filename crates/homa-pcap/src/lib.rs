//! Capture files with Homa packets.
//!
//! - [`read`]: reads the records of pcap and pcapng files, in either byte order, one at a time.
//! - [`frame`]: finds the contents of a captured frame: Homa over IP, Homa over UDP, or an ICMP error about
//!   either.
//! - [`mod@write`]: writes pcap files that Wireshark opens, from packets without IP and UDP headers.
//! - [`ip`]: builds the synthetic IP headers for these files, and computes the Internet checksum.
//!
//! ```
//! use homa_pcap::frame::{Content, dissect};
//! use homa_pcap::read::CaptureReader;
//! use homa_pcap::write::{self, Packet};
//!
//! # fn main() -> Result<(), homa_pcap::read::ReadError> {
//! let mut file = write::file_header().to_vec();
//! let (from, to) = (([10, 0, 0, 1], 4_000).into(), ([10, 0, 0, 2], 4_000).into());
//! let parts = [&b"header"[..], b"payload"];
//! write::append(&mut file, &Packet { time_ns: 1, from, to, dscp_byte: 0xc0, udp: true, parts });
//!
//! let mut reader = CaptureReader::new(&file[..])?;
//! while let Some(record) = reader.next_record()? {
//!     match dissect(record.link, record.bytes, record.wire_len) {
//!         Content::Datagram(datagram) => assert_eq!(datagram.payload.bytes, b"headerpayload"),
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Design
//!
//! - **Nothing panics, whatever the bytes are**, and no length in a file makes the reader allocate more
//!   memory than the file has bytes.
//! - **Payloads are not parsed**: the payload of a datagram is a slice of bytes. The caller parses it as Homa
//!   packets, so this crate needs no protocol code.
//! - **Frames of all supported link types are read, but only IP packets are written** (LINKTYPE_RAW), because
//!   a transport over sockets has no frames.

#![forbid(unsafe_code)]

pub mod frame;
pub mod ip;
pub mod read;
pub mod write;

/// IP protocol number of Homa.
pub const PROTOCOL_HOMA: u8 = 146;
