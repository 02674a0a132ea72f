//! `homa trace`: what time traces say.

mod clocks;
mod columns;
mod diff;
mod export;
mod lanes;
mod load;
mod merge;
mod report;
mod rpc;
mod rpcs;
mod select;
mod shown;
mod summary;
mod tail;
mod timeline;

use anyhow::Result;
use clap::{Args, Subcommand};

/// `homa trace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace summary traces/                        what is in them
  homa trace tail traces/                           what made the slowest 1 % slow
  homa trace rpc 0x1234 traces/                     everything about one RPC

Traces come from live hosts, from a rack (`homa rack run --trace`) and from the simulator (`homa sim run --trace`): name files, or
directories of .trace files. Those of several machines are to be merged first; those of one machine, or of one simulation, have one
clock.")]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum TraceCommand {
    /// Give the traces of many nodes one time, say how well that is known, and write them as one file
    Merge(merge::MergeArgs),
    /// Write traces for a viewer (Perfetto, Chrome) or as text
    Export(export::ExportArgs),
    /// Compare the clocks of this machine, and say how well those of traces were calibrated
    Clocks(clocks::ClocksArgs),
    /// Say what is in the traces: nodes, RPCs, durations and slowdowns by size, losses, grants, rates
    Summary(summary::SummaryArgs),
    /// List RPCs: by size, node, time, slowdown, or those that failed
    Rpcs(rpcs::RpcsArgs),
    /// Tell everything about one RPC: what happened, what its time went to, and what went on around it
    Rpc(rpc::RpcArgs),
    /// Tell what made the slowest RPCs slow, and which cause accounts for how much
    Tail(tail::TailArgs),
    /// Average the stages of short RPCs, of client and server: the fastest, the median and the slowest
    Timeline(timeline::TimelineArgs),
    /// Compare two runs: what changed by size and by cause
    Diff(diff::DiffArgs),
    /// Write all of it as one HTML page, with the slowest RPCs as timelines
    Report(report::ReportArgs),
}

/// Does what was asked for.
///
/// # Errors
/// Names the file or the option, and what to do.
pub fn run(args: &TraceArgs) -> Result<()> {
    match &args.command {
        TraceCommand::Merge(args) => merge::run(args),
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Clocks(args) => clocks::run(args),
        TraceCommand::Summary(args) => summary::run(args),
        TraceCommand::Rpcs(args) => rpcs::run(args),
        TraceCommand::Rpc(args) => rpc::run(args),
        TraceCommand::Tail(args) => tail::run(args),
        TraceCommand::Timeline(args) => timeline::run(args),
        TraceCommand::Diff(args) => diff::run(args),
        TraceCommand::Report(args) => report::run(args),
    }
}
