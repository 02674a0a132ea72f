//! The dump: a trace as bytes.
//!
//! All numbers are little-endian. A header of [`DUMP_HEADER_BYTES`]:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, [`DUMP_MAGIC`] |
//! | 8 | 2 | version, [`DUMP_VERSION`] |
//! | 10 | 2 | clock: 0 time stamp counter, 1 monotonic, 2 virtual |
//! | 12 | 4 | bytes per record, 32 |
//! | 16 | 8 | ticks per second of the clock |
//! | 24 | 8 | nanoseconds of `CLOCK_MONOTONIC_RAW` over which that was measured; 0 where it is exact |
//! | 32 | 8 | a moment in the clock's ticks ... |
//! | 40 | 8 | ... and the same moment in nanoseconds of `CLOCK_MONOTONIC_RAW`, so that traces of one machine can be merged |
//! | 48 | 8 | number of records that follow |
//! | 56 | 8 | records that were overwritten before the dump |
//!
//! then the records, oldest first, 32 bytes each (time 8, id 8, a 4, b 4, kind 2, zero 6), then a checksum of 8 bytes over all
//! that stands before it.

use std::io::{self, Write};

use crate::clock::{Clock, calibrate};
use crate::trace::{Record, Trace};

/// First bytes of every dump.
pub const DUMP_MAGIC: [u8; 8] = *b"HOMATRC\n";
/// The version that this crate writes, and the only one that it reads.
pub const DUMP_VERSION: u16 = 1;
/// Length of the header.
pub const DUMP_HEADER_BYTES: usize = 64;

const CHECKSUM_BYTES: usize = 8;

/// A dump that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The clock of the records' times.
    pub clock: Clock,
    /// Ticks of that clock per second: 1,000,000,000 unless the clock is the time stamp counter.
    pub frequency_hz: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW` over which `frequency_hz` was measured; 0 where it is exact. Both ends of the
    /// measurement are good to about 50 ns.
    pub calibration_span_ns: u64,
    /// A moment in the clock's ticks: the start of the trace.
    pub start_time: u64,
    /// The same moment in nanoseconds of `CLOCK_MONOTONIC_RAW`; 0 for a virtual clock that is of
    /// no real time.
    pub start_ns: u64,
    /// Records that newer ones had overwritten before the dump.
    pub overwritten: u64,
    /// The records, oldest first.
    pub records: Vec<Record>,
}

impl Dump {
    /// The time of a record in nanoseconds: of `CLOCK_MONOTONIC_RAW`, or of the virtual clock. Times before the start of the
    /// trace, which no recorder writes, count as the start.
    #[must_use]
    pub fn time_ns(&self, record: &Record) -> u64 {
        let ticks = u128::from(record.time.saturating_sub(self.start_time));
        let since_start_ns = ticks * 1_000_000_000 / u128::from(self.frequency_hz.max(1));
        u64::try_from(since_start_ns).unwrap_or(u64::MAX).saturating_add(self.start_ns)
    }
}

/// Why bytes are not a dump that this version reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The bytes do not begin with [`DUMP_MAGIC`].
    #[error("not a Homa trace: the file does not begin with its magic bytes")]
    NotADump,
    /// Another version of the format.
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
        /// Bytes that the header calls for, or the length of a header.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// More bytes than the header calls for.
    #[error("{extra} bytes follow the end of the trace: split files that hold several traces")]
    TrailingBytes {
        /// Bytes too many.
        extra: u64,
    },
    /// The bytes are not what was written.
    #[error("the trace is damaged: its {what} is wrong; copy or record it again")]
    Corrupt {
        /// The part that gave it away.
        what: &'static str,
    },
}

/// FNV-1a over 64-bit words, with a rotation so that high bits reach low ones. It finds accidents, not forgeries.
struct Checksum(u64);

impl Checksum {
    fn new() -> Checksum {
        Checksum(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

impl Trace {
    /// Writes the trace as a dump, oldest record first.
    ///
    /// With [`Clock::Tsc`] the counter's rate is measured from the creation of the trace until now; a trace younger than 10 ms
    /// busy-waits until it is that old. Makes small writes: give it a buffered writer.
    ///
    /// # Errors
    /// Those of `out`. What has been written by then is not a dump.
    pub fn write_dump(&self, out: &mut impl Write) -> io::Result<()> {
        let start = self.start();
        let (frequency_hz, calibration_span_ns) = match self.clock() {
            Clock::Tsc => calibrate(start),
            Clock::Monotonic | Clock::Virtual => (1_000_000_000, 0),
        };
        let words = [frequency_hz, calibration_span_ns, start.time, start.monotonic_ns];
        write(out, self.clock(), words, self.overwritten(), self.iter())
    }
}

impl Dump {
    /// Takes in the records of another recorder of this process, by their times. Both used the same clock, of which this
    /// dump's measure counts.
    pub fn merge(&mut self, other: &Dump) {
        self.overwritten += other.overwritten;
        self.records.extend_from_slice(&other.records);
        self.records.sort_by_key(|record| record.time);
    }

    /// Writes the dump anew. Makes small writes: give it a buffered writer.
    ///
    /// # Errors
    /// Those of `out`. What has been written by then is not a dump.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let words = [self.frequency_hz, self.calibration_span_ns, self.start_time, self.start_ns];
        write(out, self.clock, words, self.overwritten, self.records.iter())
    }
}

/// Writes a dump: `words` are the four of its header that tell of the clock.
fn write<'a>(
    out: &mut impl Write,
    clock: Clock,
    words: [u64; 4],
    overwritten: u64,
    records: impl ExactSizeIterator<Item = &'a Record>,
) -> io::Result<()> {
    let mut checksum = Checksum::new();
    let mut put = |word: u64| {
        checksum.add(word);
        out.write_all(&word.to_le_bytes())
    };
    put(u64::from_le_bytes(DUMP_MAGIC))?;
    put(u64::from(DUMP_VERSION) | (clock as u64) << 16 | (Record::BYTES as u64) << 32)?;
    for word in words {
        put(word)?;
    }
    put(records.len() as u64)?;
    put(overwritten)?;
    for record in records {
        for word in record.to_words() {
            put(word)?;
        }
    }
    out.write_all(&checksum.0.to_le_bytes())
}

/// Reads a dump that [`Trace::write_dump`] wrote. The bytes must be one whole dump and nothing else.
///
/// # Errors
/// The first thing found wrong; see [`DumpError`].
pub fn read_dump(bytes: &[u8]) -> Result<Dump, DumpError> {
    let found = bytes.len() as u64;
    let magic = &bytes[..bytes.len().min(DUMP_MAGIC.len())];
    if !DUMP_MAGIC.starts_with(magic) {
        return Err(DumpError::NotADump);
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let word = |index: usize| u64::from_le_bytes(words[index]);
    // The version comes before the length: another version may have a shorter header.
    if words.len() > 1 && word(1) as u16 != DUMP_VERSION {
        return Err(DumpError::Version { found: word(1) as u16 });
    }
    if bytes.len() < DUMP_HEADER_BYTES + CHECKSUM_BYTES {
        return Err(DumpError::Truncated { expected: (DUMP_HEADER_BYTES + CHECKSUM_BYTES) as u64, found });
    }
    let clock = Clock::from_u16((word(1) >> 16) as u16).ok_or(DumpError::Corrupt { what: "clock" })?;
    if word(1) >> 32 != Record::BYTES as u64 {
        return Err(DumpError::Corrupt { what: "record size" });
    }
    if word(2) == 0 {
        return Err(DumpError::Corrupt { what: "clock rate" });
    }
    let expected = word(6)
        .checked_mul(Record::BYTES as u64)
        .and_then(|length| length.checked_add((DUMP_HEADER_BYTES + CHECKSUM_BYTES) as u64))
        .ok_or(DumpError::Corrupt { what: "number of records" })?;
    if found < expected {
        return Err(DumpError::Truncated { expected, found });
    }
    if found > expected || !rest.is_empty() {
        return Err(DumpError::TrailingBytes { extra: found - expected });
    }
    let (checked, last) = words.split_at(words.len() - 1);
    let mut checksum = Checksum::new();
    checked.iter().for_each(|word| checksum.add(u64::from_le_bytes(*word)));
    if checksum.0 != u64::from_le_bytes(last[0]) {
        return Err(DumpError::Corrupt { what: "checksum" });
    }
    let (records, _) = checked[DUMP_HEADER_BYTES / 8..].as_chunks::<4>();
    Ok(Dump {
        clock,
        frequency_hz: word(2),
        calibration_span_ns: word(3),
        start_time: word(4),
        start_ns: word(5),
        overwritten: word(7),
        records: records.iter().map(|record| Record::from_words(record.map(u64::from_le_bytes))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    fn dumped(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        trace.write_dump(&mut bytes).expect("a vector takes all writes");
        bytes
    }

    #[test]
    fn two_recorders_make_one_dump_in_the_order_of_their_times() {
        let of = |times: [u64; 3]| {
            let mut trace = Trace::new(2, Clock::Virtual);
            for time in times {
                trace.set_virtual_now(time);
                trace.record(EventKind::RpcStart, time, 0, 0);
            }
            read_dump(&dumped(&trace)).unwrap()
        };
        let mut both = of([1, 3, 6]);
        both.merge(&of([2, 4, 5]));
        let mut bytes = Vec::new();
        both.write(&mut bytes).unwrap();
        let read = read_dump(&bytes).unwrap();
        assert_eq!(read, both);
        assert_eq!(read.records.iter().map(|record| record.id).collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(read.overwritten, 2);
    }

    fn sample() -> Trace {
        let mut trace = Trace::new(4, Clock::Virtual);
        for i in 0..6u32 {
            trace.set_virtual_now(1_000 + u64::from(i));
            trace.record(EventKind::GrantSent, u64::MAX - u64::from(i), u32::MAX - i, i);
        }
        trace
    }

    #[test]
    fn a_dump_reads_back_as_the_trace() {
        let trace = sample();
        let dump = read_dump(&dumped(&trace)).unwrap();
        assert_eq!(dump.records, trace.iter().copied().collect::<Vec<_>>());
        assert_eq!((dump.clock, dump.frequency_hz, dump.overwritten), (Clock::Virtual, 1_000_000_000, 2));
        assert_eq!(dump.time_ns(&dump.records[0]), 1_002);
    }

    #[test]
    fn an_empty_trace_and_one_that_is_off_dump_too() {
        for trace in [Trace::off(), Trace::new(8, Clock::Monotonic)] {
            assert!(read_dump(&dumped(&trace)).unwrap().records.is_empty());
        }
    }

    #[test]
    fn the_counters_rate_is_in_the_dump_and_its_times_convert() {
        let mut trace = Trace::new(8, Clock::Tsc);
        let before_ns = crate::clock::monotonic_raw_ns();
        trace.record(EventKind::AppSend, 1, 0, 0);
        let after_ns = crate::clock::monotonic_raw_ns();
        let dump = read_dump(&dumped(&trace)).unwrap();
        if dump.clock != Clock::Tsc {
            println!("skipped: no invariant time stamp counter on this machine");
            return;
        }
        assert!(dump.calibration_span_ns >= 10_000_000);
        // The two clocks agree to the error of an anchor; 10 us leaves room for a machine whose anchors were all interrupted.
        let time_ns = dump.time_ns(&dump.records[0]);
        assert!(
            (before_ns - 10_000..after_ns + 10_000).contains(&time_ns),
            "{before_ns} {time_ns} {after_ns}"
        );
    }

    #[test]
    fn every_cut_is_called_a_cut() {
        let bytes = dumped(&sample());
        for length in 0..bytes.len() {
            let error = read_dump(&bytes[..length]).unwrap_err();
            assert!(matches!(error, DumpError::Truncated { .. }), "{length}: {error}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut bytes = dumped(&sample());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read_dump(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(read_dump(&bytes).is_ok());
    }

    #[test]
    fn other_files_versions_and_joined_dumps_are_named() {
        assert_eq!(read_dump(b"#!/bin/sh\n"), Err(DumpError::NotADump));
        let mut bytes = dumped(&sample());
        bytes[8] = 9;
        let error = read_dump(&bytes).unwrap_err();
        assert_eq!(error, DumpError::Version { found: 9 });
        assert!(error.to_string().contains("version 9"), "{error}");
        // Even when the other version's file is shorter than our header.
        assert_eq!(read_dump(&bytes[..20]), Err(DumpError::Version { found: 9 }));
        bytes[8] = DUMP_VERSION as u8;
        bytes.push(0);
        assert_eq!(read_dump(&bytes), Err(DumpError::TrailingBytes { extra: 1 }));
    }

    #[test]
    fn a_kind_of_a_newer_version_is_kept() {
        let record = Record::from_words([1, 2, 3, 60_000]);
        assert_eq!((record.event(), record.kind), (None, 60_000));
        assert_eq!(record.to_words(), [1, 2, 3, 60_000]);
    }

    #[test]
    fn a_writer_that_fails_is_the_callers_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(sample().write_dump(&mut Full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
