//! Runs W3, without a limit on message sizes, over a network that loses, duplicates and reorders packets, for
//! many seeds. Every RPC must be answered once, with correct bytes, be executed at most once, and leave no
//! state.
//!
//! `cargo run --release -p homa-sim --example faults -- --seeds 0..50 --rpcs 100000`

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use homa_sim::{FaultProfile, Load, NetworkConfig, Report, Simulation, SimulationConfig};
use homa_workload::Workload;

#[path = "support/seeds.rs"]
mod seeds;

const USAGE: &str = "usage: faults [--seeds A..B] [--rpcs N] [--workload NAME] [--outstanding N] [--loss P] \
                     [--duplication P] [--reordering P] [--corruption P] [--check N] [--threads N]";

#[derive(Clone, Debug)]
struct Options {
    seeds: Range<u64>,
    rpcs: u64,
    workload: Workload,
    outstanding: u32,
    faults: FaultProfile,
    check_every: u64,
    threads: usize,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            seeds: 0..50,
            rpcs: 100_000,
            workload: Workload::named("w3").map_err(|error| error.to_string())?,
            outstanding: 32,
            faults: FaultProfile::uniform(0.05),
            check_every: 0,
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} wants a value"))?;
            match name.as_str() {
                "--seeds" => options.seeds = seeds::parse(&value)?,
                "--rpcs" => options.rpcs = parse(&name, &value)?,
                "--workload" => {
                    options.workload = Workload::named(&value).map_err(|error| error.to_string())?
                }
                "--outstanding" => options.outstanding = parse(&name, &value)?,
                "--loss" => options.faults.loss = parse(&name, &value)?,
                "--duplication" => options.faults.duplication = parse(&name, &value)?,
                "--reordering" => options.faults.reordering = parse(&name, &value)?,
                "--corruption" => options.faults.corruption = parse(&name, &value)?,
                "--check" => options.check_every = parse(&name, &value)?,
                "--threads" => options.threads = parse(&name, &value)?,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }

    fn replay(&self, seed: u64) -> String {
        let faults = &self.faults;
        format!(
            "cargo run --release -p homa-sim --example faults -- --seeds {seed}..{} --rpcs {} --workload {} --outstanding {} \
             --loss {} --duplication {} --reordering {} --corruption {} --check 1",
            seed + 1,
            self.rpcs,
            self.workload.name(),
            self.outstanding,
            faults.loss,
            faults.duplication,
            faults.reordering,
            faults.corruption,
        )
    }

    fn run(&self, seed: u64) -> Report {
        let mut network = NetworkConfig::new(seed, 4);
        network.faults = self.faults.clone();
        network.check_every = self.check_every;
        network.protocol.max_message = self.workload.max_bytes();
        let load = Load {
            rpcs: self.rpcs,
            clients: 0..2,
            servers: 2..4,
            ..Load::closed(self.workload.clone(), self.outstanding)
        };
        Simulation::new(SimulationConfig::new(network, load)).run()
    }
}

fn parse<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}: {value} is no such number"))
}

/// Runs one seed and prints its result. Returns false on failure.
fn report(options: &Options, seed: u64) -> bool {
    // Corrupted payload cannot be checked, so only panics and leftover state are detected.
    let corrupting = options.faults.corruption > 0.0;
    let problems = match catch_unwind(AssertUnwindSafe(|| options.run(seed))) {
        Ok(report) if corrupting => {
            println!("{report}");
            if report.idle { Vec::new() } else { report.broken_promises() }
        }
        Ok(report) => {
            println!("{report}");
            report.problems()
        }
        // The panic has printed the cause.
        Err(_) => vec!["a panic".to_owned()],
    };
    for problem in &problems {
        println!("seed {seed} FAILED: {problem}");
    }
    if !problems.is_empty() {
        println!("seed {seed}: replay with {}", options.replay(seed));
    }
    problems.is_empty()
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (next, failed) = (AtomicU64::new(options.seeds.start), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.seeds.end {
                        break;
                    }
                    if !report(&options, seed) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{} seeds, {failed} failed", options.seeds.end - options.seeds.start);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
