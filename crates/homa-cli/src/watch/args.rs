//! The command lines of `homa metrics` and `homa top`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use homa_report::units::duration_ns;

/// Minimum interval. A shorter interval would show noise, and the cost to the observed processes would
/// outweigh what it reveals.
const SHORTEST_INTERVAL_NS: u64 = 100_000_000;

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  homa serve --metrics 127.0.0.1:9100               a process that serves its metrics
  homa metrics 127.0.0.1:9100                       its counters so far
  homa metrics 127.0.0.1:9100 --out before.prom     and save it
  homa metrics diff 127.0.0.1:9100                  changes since the last time
  homa metrics diff before.prom after.prom          changes between two saved snapshots

A snapshot is in the text format of Prometheus: the output of `curl -s http://127.0.0.1:9100/metrics` is one, too.")]
pub struct MetricsArgs {
    /// Another action than printing a snapshot.
    #[command(subcommand)]
    pub command: Option<MetricsCommand>,
    /// Metrics of the process: IP:PORT or the path of a socket, as in its --metrics option; or a saved
    /// snapshot
    #[arg(value_name = "ADDR|FILE", required = true)]
    pub from: Option<String>,
    /// Print all metrics as JSON; without this option, only those that are not 0
    #[arg(long)]
    pub json: bool,
    /// Save the snapshot in this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Other actions on metrics.
#[derive(Clone, Debug, Subcommand)]
pub enum MetricsCommand {
    /// Print changes between two snapshots, or since the last time: differences, rates, fractions of the time
    Diff(DiffArgs),
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa metrics diff 127.0.0.1:9100                  since the last time
  homa metrics diff before.prom 127.0.0.1:9100      since a saved snapshot

Unchanged lines are omitted. A share is a fraction of the time between the snapshots: 50 % of a time counted
in one thread means half of that time.")]
pub struct DiffArgs {
    /// The earlier snapshot, a file or an address; without B, an address whose last snapshot is kept in a
    /// file
    #[arg(value_name = "A")]
    pub a: String,
    /// The later snapshot, a file or an address
    #[arg(value_name = "B")]
    pub b: Option<String>,
    /// File of the last snapshot [default: a file named after the address in $XDG_STATE_HOME/homa/metrics, or
    /// ~/.local/state/homa/metrics]
    #[arg(long, value_name = "FILE", conflicts_with = "b")]
    pub state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa top 127.0.0.1:9100                           a process that runs with `--metrics 127.0.0.1:9100`, until ctrl-C
  homa top 10.0.0.1:9100 10.0.0.2:9100 --interval 5s
  homa top unix:/run/homa.sock --once --json        one update, for a program

Each column is a host; a process may have several. Rates are since the last update. Call times are of calls
that ended since then, at the precision of histogram buckets: at most a quarter too long. A host that only
serves has none.")]
pub struct TopArgs {
    /// Metrics of processes: IP:PORT or the path of a socket, as in their --metrics option
    #[arg(value_name = "ADDR", required = true)]
    pub addrs: Vec<String>,
    /// Interval between updates, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: u64,
    /// A single update, after one interval
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
    /// Number of updates [default: until ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print each update as a line of JSON
    #[arg(long)]
    pub json: bool,
}

fn interval(text: &str) -> Result<u64, String> {
    match duration_ns(text)? {
        ns if ns >= SHORTEST_INTERVAL_NS => Ok(ns),
        _ => Err("use 100ms or more".to_owned()),
    }
}
