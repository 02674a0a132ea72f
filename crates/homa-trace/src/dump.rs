//! The dump format: a trace as bytes.
//!
//! All numbers are little-endian. A dump begins with a header of [`DUMP_HEADER_BYTES`]:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, [`DUMP_MAGIC`] |
//! | 8 | 2 | version, [`DUMP_VERSION`] |
//! | 10 | 2 | clock: 0 time stamp counter, 1 monotonic, 2 virtual |
//! | 12 | 4 | bytes per record, 32 |
//! | 16 | 8 | ticks per second of the clock |
//! | 24 | 8 | nanoseconds of `CLOCK_MONOTONIC_RAW` over which the rate was measured; 0 if it is exact |
//! | 32 | 8 | start of the trace in the clock's ticks ... |
//! | 40 | 8 | ... and in nanoseconds of `CLOCK_MONOTONIC_RAW`, to merge traces of one machine |
//! | 48 | 8 | number of records that follow |
//! | 56 | 8 | records that were overwritten before the dump |
//! | 64 | 8 | alignment: nanoseconds to be added, signed |
//! | 72 | 8 | alignment: parts per billion by which the clock is slow, signed |
//! | 80 | 8 | alignment: maximum remaining error of a time, in nanoseconds |
//! | 88 | 4 | alignment: 1 if there is one; otherwise 0, and the three fields above are 0 |
//! | 92 | 4 | size of the node in words of 8 bytes |
//!
//! The header is followed by the [`Node`], the records, and a checksum of 8 bytes over everything before it.
//! The records have 32 bytes each, oldest first: time 8, id 8, a 4, b 4, kind 2, place 6. A file may contain
//! several dumps one after another, for the traces of several nodes.

use std::io::{self, Write};

use crate::clock::{ANCHOR_ERROR_NS, Clock};
use crate::node::Node;
use crate::trace::{Record, Trace};

/// First bytes of every dump.
pub const DUMP_MAGIC: [u8; 8] = *b"HOMATRC\n";
/// The version that this crate writes, and the only one that it reads.
pub const DUMP_VERSION: u16 = 2;
/// Length of the header.
pub const DUMP_HEADER_BYTES: usize = 96;

pub(crate) const CHECKSUM_BYTES: usize = 8;

/// Converts a dump's times to a time shared by several dumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// Nanoseconds to add.
    pub offset_ns: i64,
    /// Parts per billion by which the clock is slow: this many nanoseconds are added per second since the
    /// start of the trace.
    pub drift_ppb: i64,
    /// Maximum remaining error of a time, in nanoseconds.
    pub uncertainty_ns: u64,
}

/// A trace of one node, copied from its recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The node on which the trace was recorded.
    pub node: Node,
    /// The clock of the records' times.
    pub clock: Clock,
    /// Ticks of `clock` per second: 1,000,000,000 unless `clock` is the time stamp counter.
    pub frequency_hz: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW` over which `frequency_hz` was measured; 0 if the frequency is
    /// exact. The clock readings at both ends have an error of about 50 ns.
    pub calibration_span_ns: u64,
    /// The start of the trace, in ticks of the clock.
    pub start_time: u64,
    /// The start of the trace in nanoseconds of `CLOCK_MONOTONIC_RAW`; 0 for a virtual clock that is
    /// unrelated to real time.
    pub start_ns: u64,
    /// The conversion of the node's times to the shared time; `None` if the dump is not aligned.
    pub alignment: Option<Alignment>,
    /// Number of records that were overwritten by newer ones before the dump.
    pub overwritten: u64,
    /// The records, oldest first.
    pub records: Vec<Record>,
}

impl Dump {
    /// Returns the time of a record in nanoseconds of `CLOCK_MONOTONIC_RAW` or of the virtual clock. If there
    /// is an [`alignment`](Dump::alignment), returns the time that the aligned dumps share. Times before the
    /// start of the trace, which no recorder writes, count as the start. Negative times count as zero.
    #[must_use]
    pub fn time_ns(&self, record: &Record) -> u64 {
        let since_start_ns = self.since_start_ns(record);
        let own_ns = since_start_ns.saturating_add(self.start_ns);
        let Some(alignment) = self.alignment else { return own_ns };
        let drift = i128::from(since_start_ns) * i128::from(alignment.drift_ppb) / 1_000_000_000;
        let shared_ns = i128::from(own_ns) + i128::from(alignment.offset_ns) + drift;
        u64::try_from(shared_ns.max(0)).unwrap_or(u64::MAX)
    }

    /// Returns the time of a record in nanoseconds of the node's own clock. Like [`time_ns`](Dump::time_ns),
    /// but ignores the [`alignment`](Dump::alignment).
    #[must_use]
    pub fn own_time_ns(&self, record: &Record) -> u64 {
        self.since_start_ns(record).saturating_add(self.start_ns)
    }

    fn since_start_ns(&self, record: &Record) -> u64 {
        let ticks = u128::from(record.time.saturating_sub(self.start_time));
        let since_start_ns = match self.frequency_hz {
            1_000_000_000 => ticks,
            hz => ticks * 1_000_000_000 / u128::from(hz.max(1)),
        };
        u64::try_from(since_start_ns).unwrap_or(u64::MAX)
    }

    /// Merges in the records of another recorder of the same process and host, by time. Both recorders must
    /// use the same clock; this dump's rate applies to all records. Peers of `other` that this dump already
    /// has get the numbers used in this dump; other peers get new numbers.
    pub fn merge(&mut self, other: &Dump) {
        let numbers = self.node.adopt(&other.node);
        let renumbered = other.records.iter().map(|record| {
            let place = record
                .place
                .peer()
                .and_then(|peer| numbers.get(&peer))
                .map(|&peer| record.place.of_peer(peer));
            Record { place: place.unwrap_or(record.place), ..*record }
        });
        self.overwritten += other.overwritten;
        self.records.extend(renumbered);
        self.records.sort_by_key(|record| record.time);
    }

    /// Returns the maximum error of `frequency_hz` in parts per billion. Each of the two readings of a pair
    /// of clocks has an error of about 50 ns; the result is the sum of these errors divided by the time
    /// between the readings, or 0 if the clock's rate is exact. Between the two readings, which span the
    /// whole trace, the error of a time does not exceed the error of a reading.
    #[must_use]
    pub fn calibration_error_ppb(&self) -> u64 {
        (2 * ANCHOR_ERROR_NS * 1_000_000_000).checked_div(self.calibration_span_ns).unwrap_or(0)
    }

    /// Encodes the dump.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(DUMP_HEADER_BYTES + self.records.len() * Record::BYTES + 4_096);
        self.write(&mut bytes).expect("a vector takes whatever is written to it");
        bytes
    }

    /// Writes the dump. Writes in small pieces: pass a buffered writer.
    ///
    /// # Errors
    /// The errors of `out`. The bytes written before an error are not a dump.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let node = self.node.to_words();
        let alignment = self.alignment.unwrap_or_default();
        let header = [
            u64::from_le_bytes(DUMP_MAGIC),
            u64::from(DUMP_VERSION) | (self.clock as u64) << 16 | (Record::BYTES as u64) << 32,
            self.frequency_hz,
            self.calibration_span_ns,
            self.start_time,
            self.start_ns,
            self.records.len() as u64,
            self.overwritten,
            alignment.offset_ns as u64,
            alignment.drift_ppb as u64,
            alignment.uncertainty_ns,
            u64::from(self.alignment.is_some()) | (node.len() as u64) << 32,
        ];
        let mut checksum = Checksum::new();
        let records = self.records.iter().flat_map(|record| record.to_words());
        for word in header.into_iter().chain(node).chain(records) {
            checksum.add(word);
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&checksum.sum().to_le_bytes())
    }
}

impl Trace {
    /// Returns the contents of the trace as a dump of this node; see
    /// [`Snapshot::dump`](crate::Snapshot::dump).
    #[must_use]
    pub fn dump(&self, node: Node) -> Dump {
        self.snapshot().dump(node)
    }

    /// Writes [`dump`](Trace::dump) to `out`. Writes in small pieces: pass a buffered writer.
    ///
    /// # Errors
    /// The errors of `out`. The bytes written before an error are not a dump.
    pub fn write_dump(&self, node: Node, out: &mut impl Write) -> io::Result<()> {
        self.dump(node).write(out)
    }
}

/// FNV-1a over 64-bit words, with a rotation so that high bits affect low ones. Detects accidental damage,
/// not forgeries.
pub(crate) struct Checksum(u64);

impl Checksum {
    pub(crate) fn new() -> Checksum {
        Checksum(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::read::{DumpError, ReadError, read_dump, read_dumps};

    fn dumped(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        trace.write_dump(Node::host("h1"), &mut bytes).expect("a vector takes all writes");
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

    #[test]
    fn late_records_are_in_their_place_in_a_dump() {
        let mut trace = sample();
        let place = trace.place(0, 0);
        trace.record_stamped(1_004, EventKind::AppSend, 1, 0, 0, place);
        let times: Vec<u64> = trace.dump(Node::default()).records.iter().map(|record| record.time).collect();
        assert_eq!(times, [1_003, 1_004, 1_004, 1_005]);
    }

    #[test]
    fn peers_of_two_recorders_get_one_number() {
        let of = |peers: &[(u16, &str)]| {
            let mut trace = Trace::new(4, Clock::Virtual);
            for (number, _) in peers {
                trace.record_with(EventKind::PacketSent, u64::from(*number), 0, 0, *number, 3);
            }
            let mut node = Node::host("h1");
            node.others = peers.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
            trace.dump(node)
        };
        let mut both = of(&[(1, "a"), (2, "b")]);
        both.merge(&of(&[(1, "b"), (2, "c"), (7, "d")]));
        let names: Vec<&str> =
            both.records.iter().map(|record| &*both.node.others[&record.place.peer().unwrap()]).collect();
        assert_eq!(names, ["a", "b", "b", "c", "d"]);
        assert_eq!(both.node.others.len(), 4);
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
        assert_eq!((dump.time_ns(&dump.records[0]), dump.calibration_error_ppb()), (1_002, 0));
    }

    #[test]
    fn several_dumps_in_a_file_are_several_traces() {
        let mut second = sample().dump(Node::switch("tor", ["veth1".into()]));
        second.alignment = Some(Alignment { offset_ns: -300, drift_ppb: -7, uncertainty_ns: 40 });
        let mut bytes = dumped(&sample());
        second.write(&mut bytes).unwrap();
        let dumps = read_dumps(&mut &bytes[..]).unwrap();
        assert_eq!(dumps, [read_dump(&dumped(&sample())).unwrap(), second]);
        assert_eq!(read_dump(&bytes), Err(DumpError::TrailingBytes));
        let error = read_dumps(&mut &bytes[..bytes.len() - 1]).unwrap_err();
        assert!(matches!(error, ReadError::Dump(DumpError::Truncated { .. })), "{error}");
        assert!(read_dumps(&mut &[][..]).is_err(), "no trace at all");
    }

    #[test]
    fn aligned_times_are_shifted_and_stretched() {
        let mut dump = sample().dump(Node::default());
        dump.records[0].time = 2_000_000_000;
        dump.alignment = Some(Alignment { offset_ns: 500, drift_ppb: 1_000, uncertainty_ns: 0 });
        assert_eq!(dump.time_ns(&dump.records[0]), 2_000_000_000 + 500 + 2_000);
        dump.alignment = Some(Alignment { offset_ns: -3_000_000_000, ..Alignment::default() });
        assert_eq!(dump.time_ns(&dump.records[0]), 0);
    }

    #[test]
    fn a_claim_of_many_records_takes_no_memory() {
        let mut bytes = dumped(&sample());
        bytes[48..56].copy_from_slice(&(1_u64 << 58).to_le_bytes());
        assert!(matches!(read_dump(&bytes), Err(DumpError::Truncated { .. })));
        bytes[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(read_dump(&bytes), Err(DumpError::Corrupt { what: "number of records" }));
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
            homa_testkit::skip("no invariant time stamp counter on this machine");
            return;
        }
        assert!(dump.calibration_span_ns >= 10_000_000);
        // A span of ten milliseconds limits the error to ten parts per million. A trace of one second reduces
        // the limit to a tenth of a part per million.
        assert!((1..=10_000).contains(&dump.calibration_error_ppb()), "{}", dump.calibration_error_ppb());
        // The two clocks agree to within the error of an anchor. 10 us are enough even on a machine on which
        // all anchors were interrupted.
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
        // The version is reported even if the file of the other version is shorter than our header.
        assert_eq!(read_dump(&bytes[..20]), Err(DumpError::Version { found: 9 }));
        bytes[8] = DUMP_VERSION as u8;
        bytes.push(0);
        assert_eq!(read_dump(&bytes), Err(DumpError::TrailingBytes));
    }

    #[test]
    fn a_kind_of_a_newer_version_is_kept() {
        let record = Record::from_words([1, 2, 3, 60_000]);
        assert_eq!((record.event(), record.kind), (None, 60_000));
        assert_eq!(record.to_words(), [1, 2, 3, 60_000]);
    }

    #[test]
    fn a_writer_that_fails_is_the_callers_error() {
        struct FullDisk;
        impl Write for FullDisk {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(
            sample().write_dump(Node::default(), &mut FullDisk).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }
}
