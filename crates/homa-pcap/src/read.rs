//! Reads capture files record by record: classic pcap and pcapng, in either byte order.
//!
//! One record is in memory at a time. No record may be longer than `MAX_RECORD` bytes, whatever its length
//! field says.

use std::io::{self, Read};

use crate::frame::LinkType;

/// Maximum length of a record in bytes: four times the longest record that libpcap writes.
const MAX_RECORD: u32 = 1 << 20;

/// Maximum number of interfaces in one section of a pcapng file. A file that lists more is damaged, or was
/// crafted to exhaust memory.
const MAX_INTERFACES: usize = 65_536;

/// Why a capture cannot be read, or not any further. Records read before the error are valid.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading the file itself failed.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// The file does not begin with the magic number of a capture.
    #[error("this is not a capture: it begins with {0:02x?}; pcap and pcapng are read")]
    NotACapture([u8; 4]),
    /// The file is compressed.
    #[error("the capture is compressed: unpack it first, as in `{0} -dc FILE | homa decode -`")]
    Compressed(&'static str),
    /// The file ends in the middle of a record.
    #[error("the capture ends in the middle of record {0}: it was cut, or is still being written")]
    Cut(u64),
    /// A length in the file is out of range.
    #[error("record {record} is damaged: {what}")]
    Damaged {
        /// Number of the record, counted from 1.
        record: u64,
        /// The defect.
        what: &'static str,
    },
    /// The frames in the file have an unsupported link type.
    #[error("frames of link type {0} are not known: Ethernet, Linux cooked, raw IP and loopback are")]
    UnknownLink(u32),
}

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The link type, which determines the first header in `bytes`.
    pub link: LinkType,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// The frame's length on the wire, at least `bytes.len()`.
    pub wire_len: u32,
}

/// A capture file whose header has been read.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    form: FileFormat,
    order: ByteOrder,
    records: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum FileFormat {
    Classic { link: LinkType, nanoseconds: bool },
    Ng { interfaces: Vec<Interface> },
}

/// A pcapng interface: its link type, and the number of time units per second.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    units_per_second: u64,
}

#[derive(Clone, Copy, Debug)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }
}

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// The interface option that specifies the unit of times.
const OPTION_RESOLUTION: u16 = 9;

impl<R: Read> CaptureReader<R> {
    /// Reads the header of a capture.
    ///
    /// # Errors
    /// The file is not a capture, or its link type is not supported.
    pub fn new(mut input: R) -> Result<CaptureReader<R>, ReadError> {
        let mut magic = [0; 4];
        let got = read_up_to(&mut input, &mut magic)?;
        let not_a_capture = ReadError::NotACapture(magic);
        match (got, magic) {
            (4, [0x0a, 0x0d, 0x0d, 0x0a]) => {
                let form = FileFormat::Ng { interfaces: Vec::new() };
                let mut reader =
                    CaptureReader { input, form, order: ByteOrder::Little, records: 0, buffer: Vec::new() };
                reader.section()?;
                Ok(reader)
            }
            (4, [0xd4, 0xc3, 0xb2, 0xa1]) => CaptureReader::classic(input, ByteOrder::Little, false),
            (4, [0x4d, 0x3c, 0xb2, 0xa1]) => CaptureReader::classic(input, ByteOrder::Little, true),
            (4, [0xa1, 0xb2, 0xc3, 0xd4]) => CaptureReader::classic(input, ByteOrder::Big, false),
            (4, [0xa1, 0xb2, 0x3c, 0x4d]) => CaptureReader::classic(input, ByteOrder::Big, true),
            (4, [0x1f, 0x8b, ..]) => Err(ReadError::Compressed("gzip")),
            (4, [0x28, 0xb5, 0x2f, 0xfd]) => Err(ReadError::Compressed("zstd")),
            _ => Err(not_a_capture),
        }
    }

    fn classic(mut input: R, order: ByteOrder, nanoseconds: bool) -> Result<CaptureReader<R>, ReadError> {
        let mut rest = [0; 20];
        if read_up_to(&mut input, &mut rest)? < rest.len() {
            return Err(ReadError::Cut(0));
        }
        // The upper bits give the length of the frame check sequence, which the lengths in IP exclude anyway.
        let link = order.u32(&rest, 16) & 0xffff;
        let link = LinkType::from_code(link).ok_or(ReadError::UnknownLink(link))?;
        Ok(CaptureReader {
            input,
            form: FileFormat::Classic { link, nanoseconds },
            order,
            records: 0,
            buffer: Vec::new(),
        })
    }

    /// Whether the file's times have nanosecond rather than microsecond resolution.
    pub fn has_nanoseconds(&self) -> bool {
        match &self.form {
            FileFormat::Classic { nanoseconds, .. } => *nanoseconds,
            FileFormat::Ng { interfaces } => {
                interfaces.iter().any(|interface| interface.units_per_second > 1_000_000)
            }
        }
    }

    /// Returns the next record; `None` at the end of the file.
    ///
    /// # Errors
    /// The file ends within a record or is damaged. Reading cannot continue.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match self.form {
            FileFormat::Classic { link, nanoseconds } => self.classic_record(link, nanoseconds),
            FileFormat::Ng { .. } => self.ng_record(),
        }
    }

    fn classic_record(&mut self, link: LinkType, nanoseconds: bool) -> Result<Option<Record<'_>>, ReadError> {
        let mut header = [0; 16];
        let number = self.records + 1;
        match read_up_to(&mut self.input, &mut header)? {
            0 => return Ok(None),
            16 => {}
            _ => return Err(ReadError::Cut(number)),
        }
        let word = |at| self.order.u32(&header, at);
        let unit_ns = if nanoseconds { 1 } else { 1_000 };
        let time_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * unit_ns;
        let (captured, wire_len) = (word(8), word(12));
        self.fill(captured, number)?;
        self.records = number;
        Ok(Some(Record { time_ns, link, bytes: &self.buffer, wire_len: wire_len.max(captured) }))
    }

    /// Reads `len` bytes into the buffer.
    fn fill(&mut self, len: u32, record: u64) -> Result<(), ReadError> {
        if len > MAX_RECORD {
            return Err(ReadError::Damaged { record, what: "its length is beyond any packet's" });
        }
        // Allocate only as much memory as the file has bytes, because the length field may be wrong.
        self.buffer.clear();
        let got = (&mut self.input).take(u64::from(len)).read_to_end(&mut self.buffer)?;
        if got < len as usize { Err(ReadError::Cut(record)) } else { Ok(()) }
    }

    fn ng_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        loop {
            let number = self.records + 1;
            let mut header = [0; 4];
            match read_up_to(&mut self.input, &mut header)? {
                0 => return Ok(None),
                4 => {}
                _ => return Err(ReadError::Cut(number)),
            }
            // The type of a section header is the same in either byte order, and a section may change the
            // order.
            let kind = self.order.u32(&header, 0);
            if kind == SECTION {
                self.section()?;
                continue;
            }
            self.block(number)?;
            match kind {
                INTERFACE => self.interface(number)?,
                ENHANCED_PACKET | SIMPLE_PACKET => {
                    let packet = self.packet(kind, number)?;
                    self.records = number;
                    let Packet { time_ns, link, range, wire_len } = packet;
                    let bytes = &self.buffer[range];
                    return Ok(Some(Record { time_ns, link, bytes, wire_len }));
                }
                _ => {}
            }
        }
    }

    /// Reads the rest of a block whose type has already been read. Afterwards, the buffer contains the
    /// block's body.
    fn block(&mut self, record: u64) -> Result<(), ReadError> {
        let mut length = [0; 4];
        if read_up_to(&mut self.input, &mut length)? < 4 {
            return Err(ReadError::Cut(record));
        }
        let length = self.order.u32(&length, 0);
        let body = length.checked_sub(8).filter(|body| *body >= 4 && body % 4 == 0);
        let body = body.ok_or(ReadError::Damaged { record, what: "the length of its block" })?;
        self.fill(body, record)?;
        // The length is repeated at the end of the block.
        self.buffer.truncate(body as usize - 4);
        Ok(())
    }

    /// Reads a section's header, whose type has already been read. It sets the byte order and starts a new
    /// list of interfaces.
    fn section(&mut self) -> Result<(), ReadError> {
        let record = self.records + 1;
        let mut header = [0; 8];
        if read_up_to(&mut self.input, &mut header)? < 8 {
            return Err(ReadError::Cut(record));
        }
        self.order = if u32::from_le_bytes([header[4], header[5], header[6], header[7]]) == BYTE_ORDER {
            ByteOrder::Little
        } else if u32::from_be_bytes([header[4], header[5], header[6], header[7]]) == BYTE_ORDER {
            ByteOrder::Big
        } else {
            return Err(ReadError::Damaged { record, what: "the byte order of its section" });
        };
        let length = self.order.u32(&header, 0);
        let rest = length.checked_sub(12).filter(|rest| *rest >= 16 && rest % 4 == 0);
        self.fill(rest.ok_or(ReadError::Damaged { record, what: "the length of its section" })?, record)?;
        self.form = FileFormat::Ng { interfaces: Vec::new() };
        Ok(())
    }

    fn interface(&mut self, record: u64) -> Result<(), ReadError> {
        let damaged = ReadError::Damaged { record, what: "the description of its interface" };
        let FileFormat::Ng { interfaces } = &mut self.form else { return Ok(()) };
        if self.buffer.len() < 8 || interfaces.len() >= MAX_INTERFACES {
            return Err(damaged);
        }
        let link = u32::from(self.order.u16(&self.buffer, 0));
        let mut units_per_second = Some(1_000_000);
        let mut at = 8;
        while at + 4 <= self.buffer.len() {
            let (code, length) = (self.order.u16(&self.buffer, at), self.order.u16(&self.buffer, at + 2));
            if code == OPTION_RESOLUTION && length >= 1 && at + 4 < self.buffer.len() {
                let resolution = self.buffer[at + 4];
                let (base, power) =
                    if resolution & 0x80 == 0 { (10, resolution) } else { (2, resolution & 0x7f) };
                units_per_second = u64::checked_pow(base, u32::from(power));
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        let units_per_second = units_per_second.ok_or(damaged)?;
        interfaces.push(Interface { link, units_per_second });
        Ok(())
    }

    /// Parses the packet in the block that the buffer contains.
    fn packet(&self, kind: u32, record: u64) -> Result<Packet, ReadError> {
        let damaged = |what| ReadError::Damaged { record, what };
        let FileFormat::Ng { interfaces } = &self.form else { return Err(damaged("its form")) };
        let (header, number) = if kind == ENHANCED_PACKET { (20, 0) } else { (4, 4) };
        if self.buffer.len() < header {
            return Err(damaged("it is shorter than its own header"));
        }
        let word = |at| self.order.u32(&self.buffer, at);
        let index = if number == 0 { word(0) as usize } else { 0 };
        let interface = interfaces.get(index).ok_or(damaged("its interface was not described"))?;
        let link = LinkType::from_code(interface.link).ok_or(ReadError::UnknownLink(interface.link))?;
        let room = (self.buffer.len() - header) as u32;
        let (units, captured, wire_len) = if kind == ENHANCED_PACKET {
            (u64::from(word(4)) << 32 | u64::from(word(8)), word(12), word(16))
        } else {
            (0, word(0).min(room), word(0))
        };
        if captured > room {
            return Err(damaged("it is longer than its block"));
        }
        let scaled = u128::from(units) * 1_000_000_000 / u128::from(interface.units_per_second);
        let time_ns = u64::try_from(scaled).map_err(|_| damaged("its time"))?;
        let range = header..header + captured as usize;
        Ok(Packet { time_ns, link, range, wire_len: wire_len.max(captured) })
    }
}

/// Position of a packet in the buffer.
struct Packet {
    time_ns: u64,
    link: LinkType,
    range: std::ops::Range<usize>,
    wire_len: u32,
}

/// Fills `bytes` with as much as the input has, and returns the number of bytes read.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classic(order: ByteOrder, nanoseconds: bool, frames: &[&[u8]]) -> Vec<u8> {
        let word = |value: u32| match order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let mut file = [word(magic), word(0), word(0), word(0), word(65_535), word(101)].concat();
        for (number, frame) in frames.iter().enumerate() {
            let length = word(frame.len() as u32);
            file.extend([word(7), word(number as u32), length, length].concat());
            file.extend(*frame);
        }
        file
    }

    /// Returns a pcapng block.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut padded = body.to_vec();
        padded.resize(body.len().next_multiple_of(4), 0);
        let length = (padded.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, &padded, &length].concat()
    }

    fn section() -> Vec<u8> {
        block(SECTION, &[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255])
    }

    /// A record's time, bytes, and length on the wire.
    type ReadRecord = (u64, Vec<u8>, u32);

    fn all(file: &[u8]) -> (Vec<ReadRecord>, Option<ReadError>) {
        let mut reader = match CaptureReader::new(file) {
            Ok(reader) => reader,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let mut records = Vec::new();
        loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push((record.time_ns, record.bytes.to_vec(), record.wire_len)),
                Ok(None) => return (records, None),
                Err(error) => return (records, Some(error)),
            }
        }
    }

    #[test]
    fn classic_files_of_both_orders_and_units() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (nanoseconds, unit_ns) in [(false, 1_000), (true, 1)] {
                let (records, error) = all(&classic(order, nanoseconds, &[b"one", b"two!"]));
                assert!(error.is_none(), "{error:?}");
                let second = 7_000_000_000;
                assert_eq!(records, [(second, b"one".to_vec(), 3), (second + unit_ns, b"two!".to_vec(), 4)]);
            }
        }
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_is_whole() {
        let file = classic(ByteOrder::Little, true, &[b"one", b"two!"]);
        for length in 24..file.len() {
            let (records, error) = all(&file[..length]);
            let whole = if length < 24 + 19 { 0 } else { 1 };
            assert_eq!(records.len(), whole);
            match error {
                None => assert!(length == 24 || length == 24 + 19, "{length}"),
                Some(ReadError::Cut(record)) => assert_eq!(record, whole as u64 + 1),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_length_that_is_a_lie_takes_no_memory() {
        let mut file = classic(ByteOrder::Little, true, &[b"one"]);
        file[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            matches!(all(&file), (records, Some(ReadError::Damaged { record: 1, .. })) if records.is_empty())
        );
        file[24 + 8..24 + 12].copy_from_slice(&MAX_RECORD.to_le_bytes());
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        assert!(matches!(reader.next_record(), Err(ReadError::Cut(1))));
        assert!(reader.buffer.capacity() < 10_000);
    }

    #[test]
    fn a_pcapng_file_with_its_interfaces_and_blocks_that_mean_nothing_here() {
        let mut file = section();
        file.extend(block(INTERFACE, &[0, 101, 0, 0, 0, 0, 0, 0]));
        // The option for nanosecond times: option 9, one byte long, value 9.
        file.extend(block(INTERFACE, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0]));
        file.extend(block(5, b"statistics"));
        let enhanced = |interface: u8, time: u64, bytes: &[u8]| {
            let mut body = vec![0, 0, 0, interface];
            body.extend(time.to_be_bytes());
            body.extend((bytes.len() as u32).to_be_bytes());
            body.extend(100_u32.to_be_bytes());
            body.extend(bytes);
            block(ENHANCED_PACKET, &body)
        };
        file.extend(enhanced(0, 5_000_001, b"one"));
        file.extend(enhanced(1, 5_000_000_001, b"two!"));
        file.extend(block(SIMPLE_PACKET, &[0, 0, 0, 2, b'h', b'i', 0, 0]));
        let (records, error) = all(&file);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(
            records,
            [
                (5_000_001_000, b"one".to_vec(), 100),
                (5_000_000_001, b"two!".to_vec(), 100),
                (0, b"hi".to_vec(), 2)
            ]
        );
        file.extend(enhanced(2, 0, b"three"));
        assert!(matches!(all(&file), (_, Some(ReadError::Damaged { record: 4, .. }))));
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(matches!(all(b""), (_, Some(ReadError::NotACapture(_)))));
        assert!(matches!(all(b"#!/bin/sh"), (_, Some(ReadError::NotACapture(_)))));
        assert!(matches!(all(&[0x1f, 0x8b, 8, 0]), (_, Some(ReadError::Compressed("gzip")))));
        let mut file = classic(ByteOrder::Little, true, &[]);
        file[20] = 147;
        assert!(matches!(all(&file), (_, Some(ReadError::UnknownLink(147)))));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut files = vec![classic(ByteOrder::Big, false, &[b"one", b"two!"])];
        let mut ng = section();
        ng.extend(block(INTERFACE, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 9, 0, 0, 0]));
        ng.extend(block(ENHANCED_PACKET, &[0; 24]));
        ng.extend(block(SIMPLE_PACKET, &[0, 0, 0, 2, 1, 2, 0, 0]));
        files.push(ng);
        for file in files {
            for at in 0..file.len() {
                for value in [0, 1, 3, 6, 0x7f, 0x80, 0xff] {
                    let mut damaged = file.clone();
                    damaged[at] = value;
                    let _ = all(&damaged);
                }
            }
        }
    }
}
