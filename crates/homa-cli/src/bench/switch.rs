//! `homa bench switch`.

use std::path::PathBuf;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use homa_bench::switch::{self, Measurement, Options, PortPath};
use homa_report::outputs::Outputs;

use crate::choice::choice;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa bench switch                                     everything, two minutes
  homa bench switch --path xdp-generic --measure probe  one part
  homa bench switch --quick --json -                    a smoke test

The switch runs in a thread on one processor. A thread on the other processor is source and sink of all
frames, by AF_XDP if available, so that all times are from one clock. Both have network namespaces of their
own, joined by two veth pairs. A veth's work for its receiver counts for the sender: bringing frames to the
switch counts for the source, and bringing them to the sink counts for the switch. Hence the capacity is
measured twice: with a socket that receives at the sink, and without one, where the kernel counts and drops
the frames at the sink's device, as if the port led to a wire. The machine's own interruptions are measured by
a thread in the switch's place that only reads the clock: no switch can be more precise, unless it compensates
for them. Needs root.")]
pub struct SwitchBenchArgs {
    /// How frames enter and leave the switch [default: all]; ways that are not available are skipped, with
    /// the reason
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<PortPath>())]
    pub path: Vec<PortPath>,
    /// What to measure [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<Measurement>())]
    pub measure: Vec<Measurement>,
    /// Repetitions, each with all paths in turn [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Measured time of each value in a repetition, milliseconds [default: 300, with --quick 30]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub slice_ms: Option<u64>,
    /// Only check that the benchmark works
    #[arg(long)]
    pub quick: bool,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Runs the benchmark. Always returns true: a value that exceeds its bound is marked, but is not an error.
pub fn run(args: &SwitchBenchArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let results = switch::measure(&Options {
        paths: args.path.clone(),
        measurements: args.measure.clone(),
        repetitions: args.repetitions,
        slice: args.slice_ms.map(Duration::from_millis),
        quick: args.quick,
    })?;
    outputs.write(&switch::text(&results), &results, || switch::page(&results))?;
    Ok(true)
}
