//! Runs the swarm for many seeds: a range, or random seeds, once or until stopped.
//!
//! `cargo run --release -p homa-sim --example swarm -- --forever`

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use homa_proto::MS;
use homa_sim::dialects::{PairReport, Speaker, pair_swarm};
use homa_sim::{SwarmOptions, swarm};

use progress::ProgressLines;

#[path = "support/progress.rs"]
mod progress;
#[path = "support/seeds.rs"]
mod seeds;

const USAGE: &str = "\
Runs everything that can go wrong, chosen by a seed, and looks at what is left.

usage: swarm [--seeds A..B | --fresh N | --forever] [options]

  --seeds A..B      these seeds, B exclusive; A.. goes on until stopped (default 0..200)
  --fresh N         N seeds from a base that the time gives and that is printed
  --forever         fresh seeds until stopped
  --threads N       threads (default: one for each processor)
  --turmoil-ms N    how long hosts work and things go wrong, on virtual time (default 200)
  --check N         prove each host's state after every N of its steps; 0: never (default 1)
  --dialects        pair the endpoint with model kernels of each dialect of Linux Homa, and print a table
  --corruption      bits change that no checksum catches; payload cannot be vouched for then
  --fault NAME      plant a fault, in a build with RUSTFLAGS='--cfg homa_canary'
  --stop-at-failure ends with the first seed that fails
  --verbose         print what became of each seed

example: swarm --seeds 0..1000 --check 7

Exit code 0: no seed failed; 1: some did, each with the command that replays it; 2: the options are wrong.";

#[derive(Clone, Debug)]
struct Options {
    from: u64,
    to: u64,
    threads: usize,
    swarm: SwarmOptions,
    stop_at_failure: bool,
    verbose: bool,
    dialects: bool,
}

impl Options {
    /// Parses the arguments; `None`: help was requested.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        let swarm = SwarmOptions { check_every: 1, ..SwarmOptions::default() };
        let mut options = Options {
            from: 0,
            to: 200,
            threads,
            swarm,
            stop_at_failure: false,
            verbose: false,
            dialects: false,
        };
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{name} wants a value"));
            let number = |text: String| {
                text.parse::<u64>().map_err(|_| format!("{name}: {text} is no number from 0 to 2^64 - 1"))
            };
            match name.as_str() {
                "--seeds" => {
                    let seeds = seeds::parse(&value()?)?;
                    (options.from, options.to) = (seeds.start, seeds.end);
                }
                "--fresh" => {
                    options.from = fresh_base();
                    options.to = options.from.saturating_add(number(value()?)?);
                }
                "--forever" => (options.from, options.to) = (fresh_base(), u64::MAX),
                "--threads" => options.threads = number(value()?)?.clamp(1, 1_024) as usize,
                "--turmoil-ms" => options.swarm.turmoil_ns = number(value()?)?.saturating_mul(MS),
                "--check" => options.swarm.check_every = number(value()?)?,
                "--dialects" => options.dialects = true,
                "--corruption" => options.swarm.corruption = true,
                "--fault" => plant(&value()?)?,
                "--stop-at-failure" => options.stop_at_failure = true,
                "--verbose" => options.verbose = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(Some(options))
    }

    /// Returns the command that repeats the run of one seed exactly.
    fn replay(&self, seed: u64) -> String {
        format!(
            "cargo run --release -p homa-sim --example swarm -- --seeds {seed}..{} --turmoil-ms {} --check {}{}{} --verbose",
            seed.saturating_add(1),
            self.swarm.turmoil_ns / MS,
            self.swarm.check_every,
            if self.swarm.corruption { " --corruption" } else { "" },
            if self.dialects { " --dialects" } else { "" },
        )
    }

    /// Returns the problems of a seed. The results of pairings are added to `table`.
    fn problems(&self, seed: u64, table: &Mutex<Table>) -> Vec<String> {
        if self.dialects {
            let (plan, report) = pair_swarm(seed);
            if self.verbose {
                println!("{plan:#?}\n{report:#?}");
            }
            let row = (plan.client, plan.server, plan.bytes, plan.loss);
            if let (Ok(mut table), None) = (table.lock(), plan.then) {
                table.entry(row).or_default().add(&report);
            }
            return report.problems;
        }
        let report = swarm(seed, self.swarm);
        if self.verbose {
            println!("{report:#?}");
        }
        report.problems
    }

    /// Runs a seed. Returns its problems, if any, as the error.
    fn run(&self, seed: u64, table: &Mutex<Table>) -> Result<(), String> {
        let problems = match catch_unwind(AssertUnwindSafe(|| self.problems(seed, table))) {
            Ok(problems) => problems,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                vec![format!("a panic: {}", text.unwrap_or_default())]
            }
        };
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!("seed {seed} FAILED: {}\nreplay: {}", problems.join("\n  "), self.replay(seed)))
    }
}

/// Plants a fault that this run must find.
#[cfg(homa_canary)]
fn plant(name: &str) -> Result<(), String> {
    homa_proto::planted_faults::plant(name).map_err(|error| format!("--fault: {error}"))
}

#[cfg(not(homa_canary))]
fn plant(name: &str) -> Result<(), String> {
    Err(format!("--fault {name}: this build has no planted faults: build with RUSTFLAGS='--cfg homa_canary'"))
}

/// Returns the start of a range of random seeds, derived from the time: a range of a million for each second.
fn fresh_base() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

/// Results of pairings, by client, server, bytes of a message, and lost packets per thousand.
type Table = BTreeMap<(Speaker, Speaker, u32, u32), PairReport>;

fn print_table(table: &Table) {
    if table.is_empty() {
        return;
    }
    println!("client server   bytes  loss completed failed run twice RESENDs/RPC sent twice longest ms");
    for ((client, server, bytes, loss), sum) in table {
        let sent = sum.client.bytes + sum.server.bytes;
        let twice = sum.client.bytes_twice + sum.server.bytes_twice;
        println!(
            "{:6} {:6} {bytes:7} {:4} % {:9} {:6} {:9} {:11.3} {:8.2} % {:10.2}",
            client.name(),
            server.name(),
            f64::from(*loss) / 10.0,
            sum.completed,
            sum.failed,
            sum.client.executed_again + sum.server.executed_again,
            sum.resends_per_call(),
            100.0 * twice as f64 / sent as f64,
            sum.longest_ns as f64 / 1e6
        );
    }
}

/// State shared by the threads.
struct Progress {
    table: Mutex<Table>,
    next: AtomicU64,
    ran: AtomicU64,
    failed: AtomicU64,
    stop: AtomicBool,
    begin: Instant,
    lines: ProgressLines,
}

impl Progress {
    fn new(options: &Options) -> Progress {
        let end = if options.to == u64::MAX { String::new() } else { options.to.to_string() };
        let first = format!("seeds {}..{end} on {} threads", options.from, options.threads);
        Progress {
            table: Mutex::default(),
            next: AtomicU64::new(options.from),
            ran: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            begin: Instant::now(),
            lines: ProgressLines::start(&first),
        }
    }

    fn line(&self) -> String {
        let (ran, failed) = (self.ran.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        let per_second = ran as f64 / self.begin.elapsed().as_secs_f64().max(1e-3);
        format!("{ran} seeds, {failed} failed, {per_second:.1} seeds per second")
    }

    fn work(&self, options: &Options) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= options.to {
                return;
            }
            if let Err(problem) = options.run(seed, &self.table) {
                println!("{problem}"); // Printed in one call, so that threads do not interleave their output.
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.stop.fetch_or(options.stop_at_failure, Ordering::Relaxed);
            }
            self.ran.fetch_add(1, Ordering::Relaxed);
            self.lines.update(|| self.line());
        }
    }
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
    let progress = Progress::new(&options);
    std::thread::scope(|scope| {
        (0..options.threads).for_each(|_| drop(scope.spawn(|| progress.work(&options))));
    });
    println!("{}", progress.line());
    if let Ok(table) = progress.table.lock() {
        print_table(&table);
    }
    if progress.failed.into_inner() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
