//! Reads dumps.

use std::io::{self, Read};

use crate::clock::Clock;
use crate::dump::{Alignment, CHECKSUM_BYTES, Checksum, DUMP_HEADER_BYTES, DUMP_MAGIC, DUMP_VERSION, Dump};
use crate::node::Node;
use crate::trace::Record;

const HEADER_WORDS: usize = DUMP_HEADER_BYTES / 8;
/// Bytes per read. Memory use grows only with the records that actually arrive.
const CHUNK_BYTES: usize = 64 * 1024;

/// Why bytes are not a dump that this version can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The bytes do not begin with [`DUMP_MAGIC`].
    #[error("not a Homa trace: the file does not begin with its magic bytes")]
    NotADump,
    /// The dump has a different version of the format.
    #[error(
        "this trace has format version {found}, and only version {DUMP_VERSION} can be read: use the release that wrote it"
    )]
    Version {
        /// The version in the header.
        found: u16,
    },
    /// The bytes end too early.
    #[error("the trace is cut short: {found} bytes of {expected} are there; copy or record it again")]
    Truncated {
        /// Bytes that the header announces, or the length of a header.
        expected: u64,
        /// Bytes present.
        found: u64,
    },
    /// There are more bytes than the header announces.
    #[error("bytes follow the end of the trace: one trace was expected, or this file is damaged")]
    TrailingBytes,
    /// The bytes are damaged.
    #[error("the trace is damaged: its {what} is wrong; copy or record it again")]
    Corrupt {
        /// The part that is damaged.
        what: &'static str,
    },
}

/// Why no dumps can be read from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The contents are not a dump.
    #[error(transparent)]
    Dump(#[from] DumpError),
}

/// Reads the single complete dump in these bytes, which must contain nothing else.
///
/// # Errors
/// The first defect found; see [`DumpError`].
pub fn read_dump(bytes: &[u8]) -> Result<Dump, DumpError> {
    let mut rest = bytes;
    let dump = match read_one(&mut rest) {
        Ok(dump) => dump.ok_or(DumpError::Truncated { expected: DUMP_HEADER_BYTES as u64, found: 0 })?,
        Err(ReadError::Dump(error)) => return Err(error),
        Err(ReadError::Io(_)) => unreachable!("bytes in memory are read without errors"),
    };
    if rest.is_empty() { Ok(dump) } else { Err(DumpError::TrailingBytes) }
}

/// Reads all dumps of a file, at least one. Memory use grows with the bytes that are present, not with the
/// size that a header announces. Reads in large pieces, so the file needs no buffering.
///
/// # Errors
/// The first error of the file, or the first defect in it.
pub fn read_dumps(file: &mut impl Read) -> Result<Vec<Dump>, ReadError> {
    let mut dumps = Vec::new();
    while let Some(dump) = read_one(file)? {
        dumps.push(dump);
    }
    if dumps.is_empty() {
        return Err(DumpError::Truncated { expected: DUMP_HEADER_BYTES as u64, found: 0 }.into());
    }
    Ok(dumps)
}

/// Reads the next dump. Returns `None` at the end of the file.
fn read_one(file: &mut impl Read) -> Result<Option<Dump>, ReadError> {
    let mut header = [0; DUMP_HEADER_BYTES];
    let found = fill(file, &mut header)?;
    if found == 0 {
        return Ok(None);
    }
    let header = checked_header(&header[..found])?;
    let [_, formats, frequency_hz, calibration_span_ns, start_time, start_ns, count, overwritten, ..] =
        header;
    let corrupt = |what| DumpError::Corrupt { what };
    let clock = Clock::from_u16((formats >> 16) as u16).ok_or(corrupt("clock"))?;
    let alignment = match header[11] as u32 {
        0 => None,
        1 => Some(Alignment {
            offset_ns: header[8] as i64,
            drift_ppb: header[9] as i64,
            uncertainty_ns: header[10],
        }),
        _ => return Err(corrupt("alignment").into()),
    };
    let node_words = header[11] >> 32;
    let total = count
        .checked_mul(Record::BYTES as u64)
        .and_then(|bytes| bytes.checked_add(node_words * 8 + (DUMP_HEADER_BYTES + CHECKSUM_BYTES) as u64))
        .ok_or(corrupt("number of records"))?;
    let mut body = BodyReader { file, checksum: Checksum::new(), read: DUMP_HEADER_BYTES as u64, total };
    header.iter().for_each(|word| body.checksum.add(*word));
    let mut node = Vec::new();
    body.words(node_words, |word| node.push(word))?;
    let mut records = Vec::new();
    let mut part = [0; 4];
    let mut filled = 0;
    // This cannot overflow, because the computation of the total, which is larger, has not overflowed.
    body.words(count * 4, |word| {
        part[filled] = word;
        filled = (filled + 1) % 4;
        if filled == 0 {
            records.push(Record::from_words(part));
        }
    })?;
    let sum = body.checksum.sum();
    let mut last = 0;
    body.words(1, |word| last = word)?;
    if sum != last {
        return Err(corrupt("checksum").into());
    }
    let node = Node::from_words(&node).ok_or(corrupt("node"))?;
    Ok(Some(Dump {
        node,
        clock,
        frequency_hz,
        calibration_span_ns,
        start_time,
        start_ns,
        alignment,
        overwritten,
        records,
    }))
}

/// Returns the words of a header after checking magic, version, record size and rate.
fn checked_header(bytes: &[u8]) -> Result<[u64; HEADER_WORDS], DumpError> {
    let magic = &bytes[..bytes.len().min(DUMP_MAGIC.len())];
    if !DUMP_MAGIC.starts_with(magic) {
        return Err(DumpError::NotADump);
    }
    // Check the version before the length, because another version may have a shorter header.
    if let Some(version) = bytes.get(8..10) {
        let found = u16::from_le_bytes([version[0], version[1]]);
        if found != DUMP_VERSION {
            return Err(DumpError::Version { found });
        }
    }
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let words = <[u64; HEADER_WORDS]>::try_from(words).map_err(|_| DumpError::Truncated {
        expected: (DUMP_HEADER_BYTES + CHECKSUM_BYTES) as u64,
        found: bytes.len() as u64,
    })?;
    if words[1] >> 32 != Record::BYTES as u64 {
        return Err(DumpError::Corrupt { what: "record size" });
    }
    if words[2] == 0 {
        return Err(DumpError::Corrupt { what: "clock rate" });
    }
    Ok(words)
}

/// A reader for the bytes after a header.
struct BodyReader<'a, R> {
    file: &'a mut R,
    checksum: Checksum,
    read: u64,
    total: u64,
}

impl<R: Read> BodyReader<'_, R> {
    /// Passes the next `count` words to `give`, and adds them to the checksum.
    fn words(&mut self, count: u64, mut give: impl FnMut(u64)) -> Result<(), ReadError> {
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(count * 8).unwrap_or(CHUNK_BYTES))];
        let mut left = count * 8;
        while left > 0 {
            let wanted = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let found = fill(self.file, &mut chunk[..wanted])?;
            self.read += found as u64;
            if found < wanted {
                return Err(DumpError::Truncated { expected: self.total, found: self.read }.into());
            }
            for word in chunk[..wanted].as_chunks::<8>().0 {
                let word = u64::from_le_bytes(*word);
                self.checksum.add(word);
                give(word);
            }
            left -= wanted as u64;
        }
        Ok(())
    }
}

/// Reads until `bytes` is full or the file ends, and returns the number of bytes read.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
