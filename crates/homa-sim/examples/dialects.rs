//! Measures what this project's endpoint and each dialect of Linux Homa cost each other, by message size and
//! loss.
//!
//! `cargo run --release -p homa-sim --example dialects -- --help`

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use homa_report::findings::{Findings, Section, Table};
use homa_report::output::error_line;
use homa_report::outputs::Outputs;
use homa_sim::dialects::{
    PAIR_LOSSES, PAIR_SIZES, PairPlan, PairReport, Quirks, Speaker, pair_plan, pairings, run_pair,
};
use serde::Serialize;

use progress::ProgressLines;

#[path = "support/progress.rs"]
mod progress;
#[path = "support/seeds.rs"]
mod seeds;

const USAGE: &str = "\
A table of this project's endpoint with model kernels of each dialect of Linux Homa, in both roles: for
requests and responses of 100 B, 100 kB and 1 MB, with 0, 2 and 10 % of the packets lost.

usage: dialects [options]

  --seeds A..B    these seeds, B exclusive (default 0..16)
  --calls N       calls of 100 B for each seed; of 100 kB an eighth, of 1 MB a 32nd (default 400)
  --at-once N     maximum number of open calls (default 4)
  --threads N     threads (default: one for each processor). Results do not depend on it
  --json FILE|-   write the results as JSON to this file, or to standard output with `-` (the tables then go
                  to standard error)
  --out DIR       directory for report.html and results.json (default: neither is written)

example: dialects --seeds 0..4 --json dialects.json

Servers answer at once. The link delays 2 % of the packets and duplicates 1 %, whatever it loses. +/- is the
standard deviation between seeds. `twice` is the share of the sent payload that its sender had sent before,
and `lost` the share that the link lost: where only lost bytes are sent again, the two are equal.

Exit code 0: no run had a problem; 1: some did, and they are printed; 2: the options are wrong.";

#[derive(Clone, Debug)]
struct Options {
    seeds: Range<u64>,
    calls: u32,
    at_once: u32,
    threads: usize,
    json: Option<PathBuf>,
    out: Option<PathBuf>,
}

impl Options {
    /// Parses the arguments; `None`: help was requested.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        let mut options = Options { seeds: 0..16, calls: 400, at_once: 4, threads, json: None, out: None };
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{name} wants a value"));
            let number = |text: String| {
                let parsed = text.parse::<u32>().ok().filter(|&number| number > 0);
                parsed.ok_or_else(|| format!("{name}: {text} is no number from 1 to 2^32 - 1"))
            };
            match name.as_str() {
                "--seeds" => options.seeds = seeds::parse(&value()?)?,
                "--calls" => options.calls = number(value()?)?,
                "--at-once" => options.at_once = number(value()?)?,
                "--threads" => options.threads = number(value()?)?.min(1_024) as usize,
                "--json" => options.json = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.seeds.end == u64::MAX {
            return Err("--seeds A..: this table needs the last seed, too".to_owned());
        }
        Ok(Some(options))
    }

    fn calls_of(&self, bytes: u32) -> u32 {
        let divisor = match bytes {
            0..10_000 => 1,
            10_000..1_000_000 => 8,
            1_000_000.. => 32,
        };
        (self.calls / divisor).max(1)
    }
}

/// A pairing with its message size and loss.
#[derive(Clone, Copy, Debug)]
struct Pairing {
    client: Speaker,
    server: Speaker,
    bytes: u32,
    /// Lost packets per thousand.
    loss: u32,
}

impl Pairing {
    /// Returns all pairings, in the order of the table.
    fn all() -> Vec<Pairing> {
        let mut all = Vec::new();
        for bytes in PAIR_SIZES {
            for (client, server) in pairings() {
                all.extend(PAIR_LOSSES.map(|loss| Pairing { client, server, bytes, loss }));
            }
        }
        all
    }

    fn run(self, options: &Options, seed: u64) -> PairReport {
        let Pairing { client, server, bytes, loss } = self;
        // The seed determines the IP version and the unknown behaviours of the kernels.
        let plan = pair_plan(seed);
        run_pair(PairPlan {
            client,
            server,
            bytes,
            loss,
            then: None,
            calls: options.calls_of(bytes),
            at_once: options.at_once,
            quirks: Quirks { service_ns: 0, service_spread_ns: 0, ..plan.quirks },
            checks: false,
            ..plan
        })
    }
}

/// A figure over all seeds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figure {
    mean: f64,
    /// Standard deviation between seeds.
    deviation: f64,
}

impl Figure {
    fn of(reports: &[PairReport], figure: impl Fn(&PairReport) -> f64) -> Figure {
        let figures: Vec<f64> = reports.iter().map(figure).collect();
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        Figure { mean, deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }

    fn times(self, factor: f64) -> Figure {
        Figure { mean: self.mean * factor, deviation: self.deviation * factor }
    }

    fn text(self, decimals: usize) -> String {
        format!("{:.decimals$} +/- {:.decimals$}", self.mean, self.deviation)
    }
}

/// A row of the table.
#[derive(Debug, Serialize)]
struct Row {
    client: &'static str,
    server: &'static str,
    message_bytes: u32,
    loss_percent: f64,
    calls: u64,
    completed: u64,
    /// Requests that a server (our endpoint's or a model kernel's) executed more than once.
    executed_again: u64,
    client_resends_per_rpc: Figure,
    server_resends_per_rpc: Figure,
    sent_twice_percent: Figure,
    lost_percent: Figure,
    mean_call_ms: f64,
    longest_call_ms: f64,
}

fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

impl Row {
    fn new(pairing: Pairing, reports: &[PairReport]) -> Row {
        let mut sum = PairReport::default();
        reports.iter().for_each(|report| sum.add(report));
        let calls = |report: &PairReport| report.completed + report.failed;
        let payload = |report: &PairReport| report.client.bytes + report.server.bytes;
        Row {
            client: pairing.client.name(),
            server: pairing.server.name(),
            message_bytes: pairing.bytes,
            loss_percent: f64::from(pairing.loss) / 10.0,
            calls: calls(&sum),
            completed: sum.completed,
            executed_again: sum.client.executed_again + sum.server.executed_again,
            client_resends_per_rpc: Figure::of(reports, |report| share(report.client.resends, calls(report))),
            server_resends_per_rpc: Figure::of(reports, |report| share(report.server.resends, calls(report))),
            sent_twice_percent: Figure::of(reports, |report| {
                share(report.client.bytes_twice + report.server.bytes_twice, payload(report))
            })
            .times(100.0),
            lost_percent: Figure::of(reports, |report| {
                share(report.client.bytes_lost + report.server.bytes_lost, payload(report))
            })
            .times(100.0),
            mean_call_ms: sum.times().mean_ns() as f64 / 1e6,
            longest_call_ms: sum.longest_ns as f64 / 1e6,
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{} -> {}", self.client, self.server),
            self.loss_percent.to_string(),
            format!("{}/{}", self.completed, self.calls),
            self.executed_again.to_string(),
            self.client_resends_per_rpc.text(3),
            self.server_resends_per_rpc.text(3),
            self.sent_twice_percent.text(2),
            format!("{:.2}", self.lost_percent.mean),
            format!("{:.2}", self.mean_call_ms),
            format!("{:.1}", self.longest_call_ms),
        ]
    }
}

const HEAD: [&str; 10] = [
    "client -> server",
    "loss, %",
    "completed",
    "run twice",
    "RESENDs/RPC, client",
    "RESENDs/RPC, server",
    "twice, %",
    "lost, %",
    "mean, ms",
    "longest, ms",
];

/// Returns the reports of all seeds, for each pairing in the table.
fn run_all(options: &Options, pairings: &[Pairing]) -> Vec<Vec<PairReport>> {
    let seeds: Vec<u64> = options.seeds.clone().collect();
    let jobs = pairings.len() * seeds.len();
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let reports = Mutex::new(vec![None; jobs]);
    let first =
        format!("{} pairings, {} seeds each, on {} threads", pairings.len(), seeds.len(), options.threads);
    let lines = ProgressLines::start(&first);
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    // Long runs are last in the table and start first, so that no thread finishes long before
                    // the others.
                    let Some(job) = jobs.checked_sub(next.fetch_add(1, Ordering::Relaxed) + 1) else {
                        return;
                    };
                    let report = pairings[job / seeds.len()].run(options, seeds[job % seeds.len()]);
                    if let Ok(mut reports) = reports.lock() {
                        reports[job] = Some(report);
                    }
                    let ended = ended.fetch_add(1, Ordering::Relaxed) + 1;
                    lines.update(|| format!("{ended} of {jobs} runs"));
                }
            });
        }
    });
    let reports = reports.into_inner().unwrap_or_default();
    reports.chunks(seeds.len()).map(|of_pairing| of_pairing.iter().flatten().cloned().collect()).collect()
}

fn findings(options: &Options, rows: &[Row], problems: Vec<String>) -> Findings {
    let mut sections = Vec::new();
    for of_size in rows.chunk_by(|a, b| a.message_bytes == b.message_bytes) {
        let bytes = of_size[0].message_bytes;
        let mut table = Table::new(&HEAD);
        table.rows = of_size.iter().map(Row::cells).collect();
        let heading = format!("Requests and responses of {bytes} bytes");
        let text = format!("{} calls for each seed", options.calls_of(bytes));
        sections.push(Section { heading, text, table, ..Section::default() });
    }
    Findings {
        title: "This endpoint with each dialect of Linux Homa".to_owned(),
        summary: format!(
            "seeds {}..{}, {} calls at once, 10 Gbit/s; `ours` is this endpoint, 1 to 3 are model kernels",
            options.seeds.start, options.seeds.end, options.at_once
        ),
        clean: problems.is_empty(),
        warnings: problems,
        sections,
        ..Findings::default()
    }
}

fn run(options: &Options) -> anyhow::Result<bool> {
    let outputs = match &options.out {
        Some(out) => Outputs::check(Some(out), options.json.as_deref())?,
        None => Outputs::json_only(options.json.as_deref())?,
    };
    let pairings = Pairing::all();
    let reports = run_all(options, &pairings);
    let rows: Vec<Row> =
        pairings.iter().zip(&reports).map(|(pairing, reports)| Row::new(*pairing, reports)).collect();
    let mut problems = Vec::new();
    for (pairing, seed, report) in pairings.iter().zip(&reports).flat_map(|(pairing, reports)| {
        options.seeds.clone().zip(reports).map(move |(seed, report)| (pairing, seed, report))
    }) {
        let name = format!("{} -> {}", pairing.client.name(), pairing.server.name());
        let of = format!("{name}, {} bytes, {} of 1000 lost, seed {seed}", pairing.bytes, pairing.loss);
        problems.extend(report.problems.iter().map(|problem| format!("{of}: {problem}")));
    }
    let findings = findings(options, &rows, problems);
    let found = serde_json::json!({ "rows": rows, "problems": findings.warnings });
    outputs.write(&findings.text(), &found, || findings.page())?;
    Ok(findings.clean)
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}", error_line(&error));
            ExitCode::from(2)
        }
    }
}
