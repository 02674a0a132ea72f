//! `homa bench limits`: the maximum performance of each protocol and driver, with raw packets as the
//! baseline.
//!
//! Every subject has one client thread and one server thread. The subjects take turns, so that a disturbance
//! of the machine affects all of them. A server process runs only while its subject is measured. Otherwise,
//! programs attached to a device, or sockets that receive its packets, would slow the other subjects down.

pub mod closed;
mod comparisons;
mod figures;
mod page;
mod place;
mod results;
#[cfg(test)]
mod samples;
mod subject;
mod table;
mod targets;
mod workloads;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

use crate::addresses::host_config;
use crate::driver::Driver;
use crate::engine::link::Link;
use crate::engine::pattern::Pattern;
use crate::homa_link;
use crate::peers::{self, PeerLinkConfig};
use crate::protocol::Protocol;
use crate::raw_baseline::client::{RawBaselineLink, RawBaselineLinkConfig};
use crate::server::{Report, ServerOptions, ServerProcess};
use crate::tcp::client::{TcpLink, TcpLinkConfig};
use closed::{Sample, Spec};
use homa_report::progress::Progress;
pub use page::render as page;
use place::Place;
use results::{Config, SCHEMA};
pub use results::{Limits, Metric, Row};
use subject::Subject;
pub use table::render as text;
use targets::Targets;
use workloads::Maximum;

/// Polling time of both sides: long enough that no side sleeps within a slice, and short enough that an idle
/// server sleeps before the next subject's turn.
const POLL: Duration = Duration::from_millis(10);

/// Length of a short message in bytes.
const SHORT: u32 = 100;

/// Length of a long message in bytes.
const LONG: u32 = 1_000_000;

/// Number of open long messages: enough for another message to be ready when one ends.
const LONG_OPEN: usize = 8;

/// Number of open short messages when processor time is measured.
const CPU_OPEN: usize = 32;

/// Number of slices per number of open RPCs in the search for a workload's maximum. With more slices, five
/// repetitions of all measurements would take more than ten minutes on a busy machine.
const WORKLOAD_SLICES: u32 = 6;

/// Estimated time to set up the network, for the progress bar.
const START: Duration = Duration::from_secs(1);

/// Estimated time to start and end a server, for the progress bar.
const SETUP: Duration = Duration::from_millis(60);

/// The network between the clients and servers of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum PathChoice {
    /// A veth pair if started by root, else loopback
    Auto,
    /// Two private network namespaces, joined by a veth pair; needs root and `ip` (iproute2)
    Veth,
    /// Loopback
    Loopback,
}

/// The measurements that share a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Polling,
    Sleeping,
    /// Both sides sleep. Homa's hosts keep the processors out of deep sleep while RPCs are in flight.
    LowLatency,
    Bulk,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Polling(usize),
    Sleeping,
    LowLatency,
    Cpu,
    Bulk,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Polling, Phase::Sleeping, Phase::LowLatency, Phase::Bulk];

    /// Returns the cells that measure any of these metrics.
    fn cells(self, wanted: &[Metric]) -> Vec<Cell> {
        const POLLING: [Cell; 4] =
            [Cell::Polling(1), Cell::Polling(8), Cell::Polling(32), Cell::Polling(128)];
        let all: &[Cell] = match self {
            Phase::Polling => &POLLING,
            Phase::Sleeping => &[Cell::Sleeping, Cell::Cpu],
            Phase::LowLatency => &[Cell::LowLatency],
            Phase::Bulk => &[Cell::Bulk],
        };
        let is_wanted = |cell: &&Cell| cell.metrics().iter().any(|metric| wanted.contains(metric));
        all.iter().filter(is_wanted).copied().collect()
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

    fn metrics(self) -> &'static [Metric] {
        match self {
            Cell::Polling(1) => &[Metric::PollingP50, Metric::PollingP99, Metric::Rpcs1],
            Cell::Polling(8) => &[Metric::Rpcs8],
            Cell::Polling(32) => &[Metric::Rpcs32],
            Cell::Polling(_) => &[Metric::Rpcs128],
            Cell::Sleeping => &[Metric::SleepingP50, Metric::SleepingP99],
            Cell::LowLatency => &[Metric::LowLatencyP50, Metric::LowLatencyP99],
            Cell::Cpu => &[Metric::CpuRpc, Metric::CpuPacket],
            Cell::Bulk => &[Metric::Bulk, Metric::CpuBulkPacket],
        }
    }

    /// Adds a sample's values of the wanted metrics to a row.
    fn note(self, sample: &mut Sample, wanted: &[Metric], row: &mut Row) {
        for &metric in self.metrics().iter().filter(|metric| wanted.contains(metric)) {
            let value = match metric {
                Metric::PollingP50 | Metric::SleepingP50 | Metric::LowLatencyP50 => sample.rtt_us(0.5),
                Metric::PollingP99 | Metric::SleepingP99 | Metric::LowLatencyP99 => sample.rtt_us(0.99),
                Metric::Bulk => Some(sample.rate() * f64::from(LONG) * 8.0 / 1e9),
                Metric::CpuRpc => sample.cpu_ns_per_rpc(),
                Metric::CpuPacket | Metric::CpuBulkPacket => sample.cpu_ns_per_packet(),
                _ => Some(sample.rate()),
            };
            row.add(metric, value);
        }
        row.errors += sample.errors;
        if row.first_error.is_none() {
            row.first_error = sample.first_error.take();
        }
    }
}

/// The settings of a limits measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Protocols; empty: all that this program was built with.
    pub protocols: Vec<Protocol>,
    /// Drivers of Homa and of raw packets; empty: all. A driver that cannot be opened is skipped, and the
    /// reason is reported.
    pub drivers: Vec<Driver>,
    /// The network between clients and servers.
    pub path: PathChoice,
    /// MTU of the veth pair in bytes, 1280 to 65535.
    pub mtu: u32,
    /// Whether packets cross the veth pair one by one, as over a physical wire.
    pub wire: bool,
    /// Whether to measure only long messages.
    pub long_only: bool,
    /// Metrics to measure; empty: all.
    pub rows: Vec<Metric>,
    /// File with the targets of the rows.
    pub targets: Option<PathBuf>,
    /// Number of repetitions, at least 1. In each of them, all rows take turns. `None`: the default.
    pub repetitions: Option<u32>,
    /// Measurement time of each cell per repetition; `None`: the default.
    pub slice: Option<Duration>,
    /// Whether to measure also with /dev/cpu_dma_latency held at 0.
    pub low_latency: bool,
    /// Whether to measure only briefly, to check that everything works.
    pub quick: bool,
}

impl Default for Options {
    /// Returns the options for all measurements, over a veth pair with the MTU of Ethernet if a pair can be
    /// created.
    fn default() -> Options {
        Options {
            protocols: Vec::new(),
            drivers: Vec::new(),
            path: PathChoice::Auto,
            mtu: 1500,
            wire: false,
            long_only: false,
            rows: Vec::new(),
            targets: None,
            repetitions: None,
            slice: None,
            low_latency: false,
            quick: false,
        }
    }
}

/// Measures the limits.
///
/// # Errors
/// The options contradict each other, the targets cannot be read, or the network cannot be set up.
pub fn measure(options: &Options) -> Result<Limits> {
    let targets = options.targets.as_deref().map(Targets::read).transpose()?.unwrap_or_default();
    let wanted = wanted(options)?;
    Bench::new(options, wanted)?.measure(&targets)
}

/// Returns the metrics that the options select.
fn wanted(options: &Options) -> Result<Vec<Metric>> {
    if let Some(metric) = options.rows.iter().find(|row| row.needs_low_latency() && !options.low_latency) {
        bail!("--rows {} needs --low-latency", metric.name());
    }
    if options.long_only {
        return Ok(vec![Metric::Bulk, Metric::CpuBulkPacket]);
    }
    if options.rows.is_empty() {
        return Ok(Metric::ALL.to_vec());
    }
    Ok(options.rows.clone())
}

struct Bench {
    progress: Progress,
    subjects: Vec<Subject>,
    place: Place,
    config: Config,
    wanted: Vec<Metric>,
    slice: Duration,
    short: Pattern,
    long: Pattern,
    began: SystemTime,
}

impl Bench {
    fn new(options: &Options, mut wanted: Vec<Metric>) -> Result<Bench> {
        let protocols = match &options.protocols[..] {
            [] => Protocol::ALL.into_iter().filter(|&protocol| peers::check(protocol).is_ok()).collect(),
            named => named.to_vec(),
        };
        protocols.iter().try_for_each(|&protocol| peers::check(protocol))?;
        let drivers =
            if options.drivers.is_empty() { Driver::VARIANTS.to_vec() } else { options.drivers.clone() };
        let mut config = Config {
            version: env!("CARGO_PKG_VERSION"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            repetitions: options.repetitions.unwrap_or(if options.quick { 1 } else { 5 }),
            slice_ms: options
                .slice
                .map_or(if options.quick { 20 } else { 200 }, |slice| slice.as_millis() as u64),
            ..Config::default()
        };
        config.targets = options.targets.as_ref().map(|path| path.display().to_string());
        let mut progress = Progress::new(START);
        progress.step("making the network", START);
        let place = place(options, &mut config.notes)?;
        config.path = place.name();
        config.mtu = (place.name() == "veth").then_some(options.mtu);
        config.wire = options.wire;
        config.low_latency = options.low_latency
            && low_latency().map_or_else(
                |error| {
                    config.notes.push(format!(
                        "low latency was not measured: {}",
                        homa_report::output::error_line(&error)
                    ));
                    false
                },
                |_| true,
            );
        wanted.retain(|metric| config.low_latency || !metric.needs_low_latency());
        let slice = Duration::from_millis(config.slice_ms);
        config.workload_slice_ms = (slice * WORKLOAD_SLICES).as_millis() as u64;
        Ok(Bench {
            progress,
            subjects: Subject::all(&protocols, &drivers),
            place,
            wanted,
            slice,
            config,
            short: Pattern::new(SHORT, 1, false),
            long: Pattern::new(LONG, 1, true),
            began: SystemTime::now(),
        })
    }

    fn measure(mut self, targets: &Targets) -> Result<Limits> {
        let subjects = std::mem::take(&mut self.subjects);
        let mut rows: Vec<Row> = subjects.iter().map(|subject| self.row(subject)).collect();
        let mut maxima = self.maxima(&rows)?;
        let each = self.time_of_subject();
        let measured = rows.iter().filter(|row| row.skipped.is_none()).count() as u32;
        let of_workloads: Duration = maxima.iter().map(Maximum::time).sum();
        self.progress.set_total(START + (each * measured + of_workloads) * self.config.repetitions);
        for repetition in 1..=self.config.repetitions {
            let of = format!("{repetition} of {}", self.config.repetitions);
            for (&subject, row) in subjects.iter().zip(&mut rows) {
                if row.skipped.is_some() || each.is_zero() {
                    continue;
                }
                self.progress.step(&format!("{}: repetition {of}", row.name), each);
                // A subject that cannot be measured does not stop the others.
                if let Err(error) = self.repetition(subject, row) {
                    row.skipped = Some(homa_report::output::error_line(&error));
                }
            }
            self.workloads(&mut maxima, &mut rows, &of)?;
        }
        drop(self.progress);
        self.config.unix_time_s =
            self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let comparisons = comparisons::comparisons(&rows, targets);
        let figures = figures::figures(&rows, targets);
        Ok(Limits { schema: SCHEMA, config: self.config, rows, comparisons, figures })
    }

    /// Estimates the duration of one repetition of one subject.
    fn time_of_subject(&self) -> Duration {
        let phases = Phase::ALL.map(|phase| phase.cells(&self.wanted).len() as u32);
        let started = phases.iter().filter(|&&cells| cells > 0).count() as u32;
        (self.slice + self.warmup()) * phases.iter().sum::<u32>() + SETUP * started
    }

    /// Returns the searches for the maxima of workloads.
    fn maxima(&self, rows: &[Row]) -> Result<Vec<Maximum>> {
        let metrics = self.wanted.iter().filter(|metric| metric.workload().is_some());
        let slice = self.slice * WORKLOAD_SLICES;
        metrics.filter_map(|&metric| Maximum::new(metric, rows, slice).transpose()).collect()
    }

    /// Measures a repetition of all workloads over loopback. A workload that fails is noted and not measured
    /// again.
    fn workloads(&mut self, maxima: &mut Vec<Maximum>, rows: &mut [Row], repetition: &str) -> Result<()> {
        if maxima.is_empty() {
            return Ok(());
        }
        self.place.leave()?;
        let (progress, notes) = (&mut self.progress, &mut self.config.notes);
        maxima.retain(|maximum| {
            let name = maximum.metric.name();
            progress.step(name, maximum.time());
            let part = progress.part(&format!("{name}, {repetition}"));
            let result = maximum.repetition(rows, part);
            if let Err(error) = &result {
                notes.push(format!(
                    "{name} failed in repetition {repetition}: {}",
                    homa_report::output::error_line(error)
                ));
            }
            result.is_ok()
        });
        Ok(())
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

    fn repetition(&self, subject: Subject, row: &mut Row) -> Result<()> {
        for phase in Phase::ALL {
            let cells = phase.cells(&self.wanted);
            if cells.is_empty() {
                continue;
            }
            // Homa's hosts themselves hold /dev/cpu_dma_latency while RPCs are in flight. For other
            // protocols, the bench holds it the whole time.
            let held_here = phase == Phase::LowLatency && subject.protocol != Protocol::Homa;
            let _held = held_here.then(low_latency).transpose()?;
            let (server, mut link) = self.connect(&subject, phase)?;
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
                cell.note(&mut sample, &self.wanted, row);
            }
            drop(link);
            server.finish()?;
        }
        Ok(())
    }

    /// Starts a server process and opens a link to it.
    fn connect(&self, subject: &Subject, phase: Phase) -> Result<(ServerProcess, Box<dyn Link>)> {
        let (protocol, driver, poll) = (subject.protocol, subject.driver, phase.poll());
        let max_message = phase.size();
        let options = ServerOptions {
            protocols: vec![protocol],
            driver,
            bind: self.place.server_bind(),
            poll,
            max_message,
            one_way: phase == Phase::Bulk,
            offload: subject.offload,
            low_latency: phase == Phase::LowLatency,
            ..ServerOptions::default()
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
            Protocol::Udp => Box::new(RawBaselineLink::open(RawBaselineLinkConfig {
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

/// Sets up the network. If it falls back from the veth pair to loopback, adds the reason to `notes`.
fn place(options: &Options, notes: &mut Vec<String>) -> Result<Place> {
    match options.path {
        PathChoice::Loopback if options.wire => bail!("--wire needs the veth pair: use --path veth"),
        PathChoice::Loopback => Place::loopback(),
        _ if options.wire => Place::veth(options.mtu, true).context("--wire needs the veth pair"),
        PathChoice::Veth => Place::veth(options.mtu, options.wire).context("--path veth"),
        PathChoice::Auto if !is_root() => {
            notes.push("over loopback, since a veth pair needs root".to_owned());
            Place::loopback()
        }
        PathChoice::Auto => Place::veth(options.mtu, options.wire).or_else(|error| {
            notes.push(format!(
                "over loopback, since there is no veth pair: {}",
                homa_report::output::error_line(&error)
            ));
            Place::loopback()
        }),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Keeps the processors out of sleep states with a long wake-up time while the returned file is open.
fn low_latency() -> Result<File> {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let mut file =
        File::options().write(true).open(DEVICE).with_context(|| format!("cannot open {DEVICE}"))?;
    file.write_all(&0_i32.to_ne_bytes()).with_context(|| format!("cannot write to {DEVICE}"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_but_those_of_workloads_has_one_cell() {
        let cells: Vec<Cell> = Phase::ALL.iter().flat_map(|phase| phase.cells(&Metric::ALL)).collect();
        let mut metrics: Vec<Metric> = cells.iter().flat_map(|cell| cell.metrics()).copied().collect();
        metrics.extend(Metric::MAXIMA);
        metrics.sort();
        assert_eq!(metrics, Metric::ALL);
    }

    #[test]
    fn only_cells_of_wanted_metrics_are_measured_and_only_these_are_noted() {
        let wanted = [Metric::Rpcs1, Metric::CpuRpc, Metric::MaxW1];
        let cells: Vec<Cell> = Phase::ALL.iter().flat_map(|phase| phase.cells(&wanted)).collect();
        assert_eq!(cells, [Cell::Polling(1), Cell::Cpu]);
        let mut row = Row::default();
        let second = Duration::from_secs(1);
        let mut sample =
            Sample { rtts_ns: vec![2_000, 4_000, 6_000], elapsed: second, errors: 2, ..Sample::default() };
        Cell::Polling(1).note(&mut sample, &wanted, &mut row);
        assert_eq!(row.metrics.keys().copied().collect::<Vec<_>>(), ["rpcs_per_s_1"]);
        assert_eq!((row.get(Metric::Rpcs1).map(|rate| rate.median), row.errors), (Some(3.0), 2));
        Cell::Polling(1).note(&mut sample, &Metric::ALL, &mut row);
        assert_eq!(row.get(Metric::PollingP50).map(|rtt| rtt.median), Some(4.0));
        assert_eq!(row.get(Metric::PollingP99).map(|rtt| rtt.median), Some(6.0));
    }
}
