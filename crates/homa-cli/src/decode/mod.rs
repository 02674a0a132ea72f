//! `homa decode`: prints the packets of a capture, one line each.

mod bundle;
mod item;
mod json;
mod line;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use homa_pcap::frame::dissect;
use homa_pcap::read::{CaptureReader, ReadError};

use item::{CaptureItem, ItemCategory, Selection};

pub use item::ItemCategory as PacketKind;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: homa decode trouble.pcap --rpc 4242\n          \
                        tcpdump -i eth0 -w - 'proto 146 or udp port 14600 or udp port 54321' | homa decode -\n\
                        Each line: time, source > destination, priority, type, RPC id (odd from the server), and the \
                        fields of the type; ranges exclude their end. Hosts are ADDRESS/HOMA_PORT over IP protocol 146, \
                        ADDRESS:UDP_PORT/HOMA_PORT over UDP. Packets that share a datagram have a line each, with \
                        their number in the bundle. The last line, on standard error, has the counts.\n\
                        JSON: the names under `header` are PROTOCOL.md's, the values those on the wire; RPC ids are \
                        strings, since they have 64 bits.")]
pub struct DecodeArgs {
    /// The capture, pcap or pcapng, as written by tcpdump, Wireshark and this project's wrapper; `-`:
    /// standard input
    #[arg(value_name = "FILE.pcap")]
    pub file: PathBuf,
    /// Only packets of this RPC, by the id of either side, packets that acknowledge it, and ICMP errors about
    /// it
    #[arg(long, value_name = "ID")]
    pub rpc: Option<u64>,
    /// Only packets of these types: data, grant, resend, rpc_unknown, busy, cutoffs, freeze, need_ack, ack,
    /// icmp, cut, bad
    #[arg(long = "type", value_name = "LIST", value_delimiter = ',', value_parser = packet_kind)]
    pub types: Vec<PacketKind>,
    /// UDP port of Homa hosts, can be given several times; packets of other UDP ports are then ignored
    /// [default: 14600, 54321, and all packets in the format of ours]
    #[arg(long = "udp-port", value_name = "N")]
    pub udp_ports: Vec<u16>,
    /// Times of day in UTC, not seconds since the first packet
    #[arg(long)]
    pub absolute: bool,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

fn packet_kind(text: &str) -> Result<PacketKind, String> {
    PacketKind::from_name(text).ok_or_else(|| {
        "use data, grant, resend, rpc_unknown, busy, cutoffs, freeze, need_ack, ack, icmp, cut or bad"
            .to_owned()
    })
}

/// Number of bytes to read from the file at a time: enough for a few hundred packets.
const BUFFER_BYTES: usize = 1 << 18;

/// Prints the packets of the capture. Stops when the output is closed, which is not an error.
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
        // The packets of a live capture must be printed one by one.
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
    /// Number of packets printed, by category.
    counts: BTreeMap<ItemCategory, u64>,
    /// Number of frames that are not Homa, plus packets that were not requested.
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
                self.show(&CaptureItem { number, time_ns: record.time_ns, start_ns, nanoseconds, what })?;
            }
        }
    }

    fn show(&mut self, item: &CaptureItem<'_>) -> Result<(), Stop> {
        *self.counts.entry(item.what.kind()).or_default() += 1;
        if self.args.json {
            serde_json::to_writer(&mut self.out, &json::object(item)).map_err(io::Error::from)?;
            self.out.write_all(b"\n")?;
        } else {
            writeln!(self.out, "{}", line::Line { item, absolute: self.args.absolute })?;
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
