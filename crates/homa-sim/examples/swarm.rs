//! Runs the swarm seed after seed, until stopped or to the end of a range: `--seeds A..B` or `--seeds A..`.
//!
//! `cargo run --release -p homa-sim --example swarm -- --seeds 0..1000`

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use homa_proto::MS;
use homa_sim::{SwarmOptions, swarm};

const USAGE: &str =
    "usage: swarm [--seeds A..B | A..] [--turmoil-ms N] [--check N] [--corruption yes|no] [--verbose yes|no]";

#[derive(Clone, Debug)]
struct Options {
    from: u64,
    to: u64,
    swarm: SwarmOptions,
    verbose: bool,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { from: 0, to: u64::MAX, swarm: SwarmOptions::default(), verbose: false };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} wants a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is no such number"));
            match name.as_str() {
                "--seeds" => (options.from, options.to) = seeds(&value)?,
                "--turmoil-ms" => options.swarm.turmoil_ns = number()?.saturating_mul(MS),
                "--check" => options.swarm.check_every = number()?,
                "--corruption" => options.swarm.corruption = value == "yes",
                "--verbose" => options.verbose = value == "yes",
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }

    fn run(&self, seed: u64) -> bool {
        let problems = match catch_unwind(AssertUnwindSafe(|| swarm(seed, self.swarm))) {
            Ok(report) => {
                if self.verbose {
                    println!("{report:?}");
                }
                report.problems
            }
            Err(_) => vec!["a panic".to_owned()],
        };
        if !problems.is_empty() {
            // One message, so that threads do not mix theirs.
            println!(
                "seed {seed} FAILED: {}\nreplay: cargo run --release -p homa-sim --example swarm -- --seeds {seed}..{} \
                 --turmoil-ms {} --check 1 --corruption {} --verbose yes",
                problems.join("\n  "),
                seed + 1,
                self.swarm.turmoil_ns / MS,
                if self.swarm.corruption { "yes" } else { "no" },
            );
        }
        problems.is_empty()
    }
}

fn seeds(value: &str) -> Result<(u64, u64), String> {
    let parse = |text: &str| text.parse::<u64>().ok();
    let range = value
        .split_once("..")
        .and_then(|(from, to)| Some((parse(from)?, if to.is_empty() { u64::MAX } else { parse(to)? })));
    range
        .filter(|(from, to)| from < to)
        .ok_or_else(|| format!("--seeds {value}: want A..B with A below B, or A.."))
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (next, ran, failed) = (AtomicU64::new(options.from), AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.to {
                        break;
                    }
                    if !options.run(seed) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    let ran = ran.fetch_add(1, Ordering::Relaxed) + 1;
                    if ran.is_multiple_of(100) {
                        println!("{ran} seeds, {} failed", failed.load(Ordering::Relaxed));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{} seeds, {failed} failed", ran.into_inner());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
