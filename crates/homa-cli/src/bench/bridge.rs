//! `homa bench bridge`.

use std::path::PathBuf;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use homa_bench::bridge::{self, Options, VARIANTS, Variant};
use homa_bench::switch::PortPath;
use homa_report::outputs::Outputs;

use crate::choice::choice;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa bench bridge --out bridge                               all variants, two minutes; plots in bridge/report.html
  homa bench bridge --variant burst-1,burst-8,burst-64         only variants of the burst
  homa bench bridge --frame-bytes 1514 --path ring --json -    full frames over packet sockets

Compares designs of a bridge between two devices, in alternating turns. The bridge has a processor of its own;
source and sink of all frames share the other one. The first measurement starts the bridge with queued frames
while the source sleeps, which gives the speed of the bridge alone. In the second one, the source sends at
maximum speed; it gives the throughput and the number of packets found at once. If two threads on two
processors share the work, the second thread has the processor of the source. The kernel's bridge works in the
sender's time: its speed is the additional time over sending the same frames to a device that drops them. Each
ratio is of two values of the same repetition. Needs root.

Variants: burst-1, burst-8, burst-32, burst-64, lock-burst, lock-packet, pool, allocator, apart, prefetch, both, handover, handover-2,
handover-2-burst-1, handover-2-lock-burst, handover-2-lock-packet, both-2, both-2-lock-packet, linux.")]
pub struct BridgeBenchArgs {
    /// Designs to compare with burst-32, which is always included [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = variant)]
    pub variant: Vec<Variant>,
    /// How frames enter and leave the bridge
    #[arg(long, value_name = "HOW", default_value = "xdp-generic", value_parser = choice::<PortPath>())]
    pub path: PortPath,
    /// Length of the frames, without the check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=1514))]
    pub frame_bytes: u16,
    /// Measured time of each variant in a repetition, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub duration: u64,
    /// Repetitions, each with all variants in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Runs the benchmark. Always returns true: a slow design is not an error.
pub fn run(args: &BridgeBenchArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let findings = bridge::measure(&Options {
        variants: args.variant.clone(),
        path: args.path,
        frame_bytes: args.frame_bytes,
        slice: Duration::from_millis(args.duration),
        repetitions: args.repetitions,
    })?;
    outputs.write(&findings.text(), &findings.json, || findings.page())?;
    Ok(true)
}

fn variant(text: &str) -> Result<Variant, String> {
    let found = VARIANTS.into_iter().find(|variant| variant.name == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
        format!("there is no variant `{text}`: use {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// [`BridgeBenchArgs`] as a command, for the test.
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        _args: BridgeBenchArgs,
    }

    #[test]
    fn the_help_names_every_variant() {
        let help = Command::command().render_long_help().to_string();
        let words: Vec<&str> = help.split([' ', ',', '.', '\n']).collect();
        for Variant { name, .. } in VARIANTS {
            assert!(words.contains(&name) && variant(name).is_ok(), "{name}");
        }
        assert!(variant("burst-2").is_err_and(|error| error.contains("burst-8")));
    }
}
