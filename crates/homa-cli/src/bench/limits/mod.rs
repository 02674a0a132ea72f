//! `homa bench limits`: what each protocol and each driver can do at best, beside bare packets, in one run.
//!
//! Every subject has one client thread and one server thread, in turn with all others, so that what disturbs the machine disturbs
//! all. Its server process lives only while it is measured: a program attached to a device, or a socket that sees its packets,
//! would cost the others something.

pub mod closed;
mod figures;
mod page;
mod place;
mod results;
#[cfg(test)]
mod samples;
mod subject;
mod table;

use std::fs::File;
use std::io::Write;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use homa::HostConfig;
use homa_steer::wake::WakeOrder;

use super::homa_link;
use super::link::Link;
use super::pattern::Pattern;
use super::servers::{ServerOptions, ServerProcess};
use crate::args::{Driver, LimitsArgs, PathChoice, Protocol};
use crate::bare::client::{BareLink, BareLinkConfig};
use crate::peers::{self, PeerLinkConfig};
use crate::serve::{Report, host_config};
use crate::tcp::client::{TcpLink, TcpLinkConfig};
use closed::{Sample, Spec};
use homa_report::outputs::Outputs;
use homa_report::progress::Progress;
use place::Place;
use results::{Config, Limits, Metric, Row, SCHEMA};
use subject::Subject;

/// Both sides poll for so long that they never sleep within a slice, and an idle server does before the next subject's turn.
const POLL: Duration = Duration::from_millis(10);

/// Bytes of a short message.
const SHORT: u32 = 100;

/// Bytes of a long message.
const LONG: u32 = 1_000_000;

/// Long messages open at a time: enough that the next is there when one ends.
const LONG_OPEN: usize = 8;

/// Short messages open at a time while processor time is measured.
const CPU_OPEN: usize = 32;

/// What a server's start and end take, for the progress bar.
const SETUP: Duration = Duration::from_millis(60);

/// What is measured against one server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Polling,
    Sleeping,
    /// Sleeping, with hosts of ours that keep the processors awake while RPCs are in flight.
    LowLatency,
    Bulk,
}

/// What is measured at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Polling(usize),
    Sleeping,
    LowLatency,
    Cpu,
    Bulk,
}

impl Phase {
    fn all(long_only: bool) -> &'static [Phase] {
        const ALL: [Phase; 4] = [Phase::Polling, Phase::Sleeping, Phase::LowLatency, Phase::Bulk];
        if long_only { &ALL[3..] } else { &ALL }
    }

    fn cells(self, low_latency: bool) -> Vec<Cell> {
        match self {
            Phase::Polling => [1, 8, 32, 128].map(Cell::Polling).into(),
            Phase::Sleeping => vec![Cell::Sleeping, Cell::Cpu],
            Phase::LowLatency if low_latency => vec![Cell::LowLatency],
            Phase::LowLatency => Vec::new(),
            Phase::Bulk => vec![Cell::Bulk],
        }
    }

    fn poll(self) -> Duration {
        if matches!(self, Phase::Sleeping | Phase::LowLatency) { Duration::ZERO } else { POLL }
    }

    fn size(self) -> u32 {
        if self == Phase::Bulk { LONG } else { SHORT }
    }
}

impl Cell {
    fn outstanding(self) -> usize {
        match self {
            Cell::Polling(open) => open,
            Cell::Sleeping | Cell::LowLatency => 1,
            Cell::Cpu => CPU_OPEN,
            Cell::Bulk => LONG_OPEN,
        }
    }

    /// Adds what a sample shows to a row.
    fn note(self, sample: &mut Sample, row: &mut Row) {
        let (p50, p99, rate) = (sample.rtt_us(0.5), sample.rtt_us(0.99), Some(sample.rate()));
        match self {
            Cell::Polling(1) => {
                row.add(Metric::PollingP50, p50);
                row.add(Metric::PollingP99, p99);
                row.add(Metric::Rpcs1, rate);
            }
            Cell::Polling(8) => row.add(Metric::Rpcs8, rate),
            Cell::Polling(32) => row.add(Metric::Rpcs32, rate),
            Cell::Polling(_) => row.add(Metric::Rpcs128, rate),
            Cell::Sleeping => {
                row.add(Metric::SleepingP50, p50);
                row.add(Metric::SleepingP99, p99);
            }
            Cell::LowLatency => {
                row.add(Metric::LowLatencyP50, p50);
                row.add(Metric::LowLatencyP99, p99);
            }
            Cell::Cpu => {
                row.add(Metric::CpuRpc, sample.cpu_ns_per_rpc());
                row.add(Metric::CpuPacket, sample.cpu_ns_per_packet());
            }
            Cell::Bulk => {
                row.add(Metric::Bulk, rate.map(|rate| rate * f64::from(LONG) * 8.0 / 1e9));
                row.add(Metric::CpuBulkPacket, sample.cpu_ns_per_packet());
            }
        }
        row.errors += sample.errors;
        if row.first_error.is_none() {
            row.first_error = sample.first_error.take();
        }
    }
}

/// Runs the table. True if every RPC was answered exactly once, and right; bare packets may be lost.
pub fn run(args: &LimitsArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let limits = Bench::new(args)?.measure()?;
    outputs.write(&table::render(&limits), &limits, || page::render(&limits))?;
    Ok(limits.rows.iter().all(Row::clean))
}

struct Bench {
    subjects: Vec<Subject>,
    place: Place,
    config: Config,
    phases: &'static [Phase],
    slice: Duration,
    short: Pattern,
    long: Pattern,
    began: SystemTime,
}

impl Bench {
    fn new(args: &LimitsArgs) -> Result<Bench> {
        let protocols = match &args.protocol[..] {
            [] => Protocol::ALL.into_iter().filter(|&protocol| peers::check(protocol).is_ok()).collect(),
            named => named.to_vec(),
        };
        protocols.iter().try_for_each(|&protocol| peers::check(protocol))?;
        let drivers =
            if args.driver.is_empty() { Driver::value_variants().to_vec() } else { args.driver.clone() };
        let mut config = Config {
            version: env!("CARGO_PKG_VERSION"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 5 }),
            slice_ms: args.slice_ms.unwrap_or(if args.quick { 20 } else { 200 }),
            ..Config::default()
        };
        let place = place(args, &mut config.notes)?;
        config.path = place.name();
        config.mtu = (place.name() == "veth").then_some(args.mtu);
        config.wire = args.wire;
        config.low_latency = args.low_latency
            && low_latency().map_or_else(
                |error| {
                    config.notes.push(format!(
                        "no figures with low latency: {}",
                        homa_report::output::in_words(&error)
                    ));
                    false
                },
                |_| true,
            );
        Ok(Bench {
            subjects: Subject::all(&protocols, &drivers),
            place,
            phases: Phase::all(args.long_only),
            slice: Duration::from_millis(config.slice_ms),
            config,
            short: Pattern::new(SHORT, 1, false),
            long: Pattern::new(LONG, 1, true),
            began: SystemTime::now(),
        })
    }

    fn measure(mut self) -> Result<Limits> {
        let mut rows: Vec<Row> = self.subjects.iter().map(|subject| self.row(subject)).collect();
        let cells: usize = self.phases.iter().map(|phase| phase.cells(self.config.low_latency).len()).sum();
        let each = (self.slice + self.warmup()) * cells as u32 + SETUP * self.phases.len() as u32;
        let subjects = rows.iter().filter(|row| row.skipped.is_none()).count() as u32;
        let mut progress = Progress::new(each * subjects * self.config.repetitions);
        for repetition in 1..=self.config.repetitions {
            for (subject, row) in self.subjects.iter().zip(&mut rows) {
                if row.skipped.is_some() {
                    continue;
                }
                let text = format!("{}: repetition {repetition} of {}", row.name, self.config.repetitions);
                progress.step(&text, each);
                // One that cannot be measured does not keep the others from it.
                if let Err(error) = self.repetition(subject, row) {
                    row.skipped = Some(homa_report::output::in_words(&error));
                }
            }
        }
        drop(progress);
        self.config.unix_time_s =
            self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut limits = Limits { schema: SCHEMA, config: self.config, rows, figures: Vec::new() };
        limits.figures = figures::figures(&limits);
        Ok(limits)
    }

    fn row(&self, subject: &Subject) -> Row {
        let skipped = match subject {
            subject if subject.needs_root() && !is_root() => Some("needs root".to_owned()),
            subject if subject.needs_device() && self.place.name() != "veth" => {
                Some("needs a network device: use --path veth".to_owned())
            }
            _ => None,
        };
        Row { name: subject.name(), skipped, ..Row::default() }
    }

    fn warmup(&self) -> Duration {
        self.slice / 4
    }

    fn repetition(&self, subject: &Subject, row: &mut Row) -> Result<()> {
        for &phase in self.phases {
            let cells = phase.cells(self.config.low_latency);
            if cells.is_empty() {
                continue;
            }
            // Homa's hosts do it themselves, and only while RPCs are in flight; for the others the bench does, all the time.
            let held_here = phase == Phase::LowLatency && subject.protocol != Protocol::Homa;
            let _held = held_here.then(low_latency).transpose()?;
            let (server, mut link) = self.connect(subject, phase)?;
            let pattern = if phase == Phase::Bulk { &self.long } else { &self.short };
            let mut number = 0;
            for cell in cells {
                let spec = Spec {
                    size: phase.size(),
                    outstanding: cell.outstanding(),
                    warmup: self.warmup(),
                    measured: self.slice,
                    pattern,
                    server: server.pid(),
                };
                let mut sample = closed::run(link.as_mut(), &spec, &mut number)?;
                cell.note(&mut sample, row);
            }
            drop(link);
            server.finish()?;
        }
        Ok(())
    }

    /// A server process and a link to it.
    fn connect(&self, subject: &Subject, phase: Phase) -> Result<(ServerProcess, Box<dyn Link>)> {
        let (protocol, driver, poll) = (subject.protocol, subject.driver, phase.poll());
        let max_message = phase.size();
        let options = ServerOptions {
            protocol,
            driver,
            bind: self.place.server_bind(),
            ports: 1,
            threads: 1,
            wake_order: WakeOrder::default(),
            batch_cap: HostConfig::default().batch_cap,
            poll,
            max_message,
            link_mbps: None,
            one_way: phase == Phase::Bulk,
            endpoints: 1,
            no_offload: !subject.offload,
            low_latency: phase == Phase::LowLatency,
            metrics: None,
            recording: Vec::new(),
            trace: None,
        };
        self.place.enter_servers()?;
        let started = ServerProcess::start(&options);
        self.place.enter_clients()?;
        let (server, ports) = started?;
        let max_message = max_message.max(SHORT);
        let link = match ports.first() {
            Some(Report::Homa(addr)) => {
                let bind = self.place.client_bind(driver, false)?;
                let mut config = host_config(driver, bind, max_message, poll);
                config.low_latency = phase == Phase::LowLatency;
                homa_link::open_at(config, &[*addr])?
            }
            Some(&Report::Socket(protocol, addr)) => {
                self.socket_link(subject, protocol, addr, poll, max_message)?
            }
            _ => bail!("the server of {} has no port", subject.name()),
        };
        Ok((server, link))
    }

    fn socket_link(
        &self,
        subject: &Subject,
        protocol: Protocol,
        addr: std::net::SocketAddr,
        poll: Duration,
        max_message: u32,
    ) -> Result<Box<dyn Link>> {
        let servers = vec![addr];
        Ok(match protocol {
            Protocol::Udp => Box::new(BareLink::open(BareLinkConfig {
                driver: subject.driver,
                binds: vec![self.place.client_bind(subject.driver, true)?],
                servers,
                poll,
                max_message,
                offload: subject.offload,
            })?),
            Protocol::Tcp => Box::new(TcpLink::connect(TcpLinkConfig {
                servers,
                ports: 1,
                receivers: 0,
                poll,
                max_message,
                one_way: false,
                congestion: None,
                precise: false,
            })?),
            _ => peers::connect(protocol, &PeerLinkConfig { servers, ports: 1, poll, max_message })?,
        })
    }
}

/// The wire or loopback, and in `notes` why it is not what was hoped for.
fn place(args: &LimitsArgs, notes: &mut Vec<String>) -> Result<Place> {
    match args.path {
        PathChoice::Loopback if args.wire => bail!("--wire is of the veth pair: use --path veth"),
        PathChoice::Loopback => Place::loopback(),
        _ if args.wire => Place::veth(args.mtu, true).context("--wire needs the veth pair"),
        PathChoice::Veth => Place::veth(args.mtu, args.wire).context("--path veth"),
        PathChoice::Auto if !is_root() => {
            notes.push("over loopback, since a veth pair needs root".to_owned());
            Place::loopback()
        }
        PathChoice::Auto => Place::veth(args.mtu, args.wire).or_else(|error| {
            notes.push(format!(
                "over loopback, since there is no veth pair: {}",
                homa_report::output::in_words(&error)
            ));
            Place::loopback()
        }),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Keeps the processors from sleep states that take long to leave, for as long as the file is open.
fn low_latency() -> Result<File> {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let mut file =
        File::options().write(true).open(DEVICE).with_context(|| format!("cannot open {DEVICE}"))?;
    file.write_all(&0_i32.to_ne_bytes()).with_context(|| format!("cannot write to {DEVICE}"))?;
    Ok(file)
}
