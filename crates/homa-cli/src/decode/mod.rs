//! `homa decode`: what the packets of a capture say, one line a packet.

mod bundle;
mod json;
mod line;
mod seen;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use homa_driver::pcap::frame::dissect;
use homa_driver::pcap::read::{CaptureReader, ReadError};

use crate::args::DecodeArgs;
use seen::{Kind, Seen, Selection};

pub use seen::Kind as PacketKind;

/// Read from the file at a time, in bytes: a few hundred packets.
const BUFFER_BYTES: usize = 1 << 18;

/// Prints what the capture has. Nobody reading it any more is a reason to stop, and no error.
pub fn run(args: &DecodeArgs) -> Result<()> {
    let from_stdin = args.file == Path::new("-");
    let name = if from_stdin { "standard input".to_owned() } else { args.file.display().to_string() };
    let input: Box<dyn Read> = if from_stdin {
        Box::new(io::stdin().lock())
    } else {
        if args.file.is_dir() {
            bail!("cannot read {name}: it is a directory");
        }
        Box::new(File::open(&args.file).with_context(|| format!("cannot read {name}"))?)
    };
    let mut decoder = Decoder {
        args,
        selection: Selection::new(args),
        out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()),
        // Who decodes a capture while it is made wants each packet at once.
        flush_each: from_stdin,
        counts: BTreeMap::new(),
        others: 0,
    };
    match decoder.decode(BufReader::with_capacity(BUFFER_BYTES, input)) {
        Ok(()) => {
            eprintln!("homa: {}", decoder.summary());
            Ok(())
        }
        Err(Stop::NobodyReads) => Ok(()),
        Err(Stop::Output(error)) => Err(error).context("cannot write to standard output"),
        Err(Stop::Capture(error)) => Err(error).with_context(|| name),
    }
}

/// Why decoding ends before the capture does.
enum Stop {
    NobodyReads,
    Output(io::Error),
    Capture(ReadError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        if error.kind() == io::ErrorKind::BrokenPipe { Stop::NobodyReads } else { Stop::Output(error) }
    }
}

struct Decoder<'a, W: Write> {
    args: &'a DecodeArgs,
    selection: Selection<'a>,
    out: BufWriter<W>,
    flush_each: bool,
    /// Packets printed.
    counts: BTreeMap<Kind, u64>,
    /// Frames that are not Homa, and packets not asked for.
    others: u64,
}

impl<W: Write> Decoder<'_, W> {
    fn decode(&mut self, input: impl Read) -> Result<(), Stop> {
        let mut reader = CaptureReader::new(input).map_err(Stop::Capture)?;
        let result = self.records(&mut reader);
        self.out.flush()?;
        result
    }

    fn records(&mut self, reader: &mut CaptureReader<impl Read>) -> Result<(), Stop> {
        let (mut number, mut start_ns) = (0, None);
        loop {
            let nanoseconds = reader.has_nanoseconds();
            let Some(record) = reader.next_record().map_err(Stop::Capture)? else { return Ok(()) };
            number += 1;
            let start_ns = *start_ns.get_or_insert(record.time_ns);
            let content = dissect(record.link, record.bytes, record.wire_len);
            let selected = self.selection.select(&content);
            self.others += u64::from(selected.is_empty());
            for what in selected {
                self.show(&Seen { number, time_ns: record.time_ns, start_ns, nanoseconds, what })?;
            }
        }
    }

    fn show(&mut self, seen: &Seen<'_>) -> Result<(), Stop> {
        *self.counts.entry(seen.what.kind()).or_default() += 1;
        if self.args.json {
            serde_json::to_writer(&mut self.out, &json::object(seen)).map_err(io::Error::from)?;
            self.out.write_all(b"\n")?;
        } else {
            writeln!(self.out, "{}", line::Line { seen, absolute: self.args.absolute })?;
        }
        if self.flush_each {
            self.out.flush()?;
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let total: u64 = self.counts.values().sum();
        let counts: Vec<String> =
            self.counts.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        let colon = if counts.is_empty() { "" } else { ": " };
        format!("{total} shown{colon}{}; {} other frames", counts.join(", "), self.others)
    }
}
