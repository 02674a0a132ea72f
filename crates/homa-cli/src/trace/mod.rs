//! `homa trace`: analyses time traces.

mod answer;
mod clocks;
mod columns;
mod copy;
mod cores;
mod decompose;
mod delays;
mod diff;
mod export;
mod first_grant;
mod format;
mod grants;
mod incoming;
mod lanes;
mod load;
mod lost;
mod merge;
mod pacer;
mod polls;
mod priorities;
mod report;
mod rpc;
mod rpcs;
mod rtt_bytes;
mod select;
mod summary;
pub mod tail;
mod throughput;
mod timeline;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace summary traces/                        an overview
  homa trace tail traces/                           causes of the slowest 1 %
  homa trace rpc 0x1234 traces/                     everything about one RPC
  homa trace delays traces/                         delay of packets in each stage

Traces come from live hosts, from a rack (`homa rack run --trace`) and from the simulator (`homa sim run
--trace`). Name files, or directories of .trace files. Merge traces of several machines first; those of one
machine, or of one simulation, have a common clock.")]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum TraceCommand {
    /// Align the clocks of many nodes' traces, print the precision, and write them as one file
    Merge(merge::MergeArgs),
    /// Write traces for a viewer (Perfetto, Chrome) or as text
    Export(export::ExportArgs),
    /// Compare the clocks of this machine, and show the clock calibration of traces
    Clocks(clocks::ClocksArgs),
    /// Summarise traces: nodes, RPCs, durations and slowdowns by size, losses, grants, rates
    Summary(summary::SummaryArgs),
    /// List RPCs: by size, node, time or slowdown, or those that failed
    Rpcs(rpcs::RpcsArgs),
    /// Show everything about one RPC: its events, the causes of its duration, and concurrent activity
    Rpc(rpc::RpcArgs),
    /// Explain the slowest RPCs: the causes and the share of each
    Tail(tail::TailArgs),
    /// Average the stages of short RPCs at client and server: the fastest, the median and the slowest
    Timeline(timeline::TimelineArgs),
    /// Compare two runs: changes by size and by cause
    Diff(diff::DiffArgs),
    /// Show the throughput of copying messages in and out
    Copy(copy::CopyArgs),
    /// Show the activity of each core
    Cores(cores::CoresArgs),
    /// Divide each packet's extra delay by cause: the sender's queue, switches, polling, receiving
    Decompose(decompose::DecomposeArgs),
    /// Show the delay of packets in each stage
    Delays(delays::DelaysArgs),
    /// Show how long messages wait for their first grant
    FirstGrant(first_grant::FirstGrantArgs),
    /// Show the delay and recipients of grants, and which were of no use
    Grants(grants::GrantsArgs),
    /// Show the bytes that receivers had granted and not yet received, over time
    Incoming(incoming::IncomingArgs),
    /// List lost packets: where they were lost, how the loss was detected and what it cost
    Lost(lost::LostArgs),
    /// Show how the pacer delayed packets
    Pacer(pacer::PacerArgs),
    /// Show unsuccessful polling, and whether clients or servers are the bottleneck
    Polls(polls::PollsArgs),
    /// Show the use of priorities, and priority inversions
    Priorities(priorities::PrioritiesArgs),
    /// Show the bytes in flight needed on each path, and packet delays by length
    RttBytes(rtt_bytes::RttBytesArgs),
    /// Show what each host sent and received in each interval
    Throughput(throughput::ThroughputArgs),
    /// Write an HTML page with all analyses and the slowest RPCs as timelines
    Report(report::ReportArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// The error names the file or the option, and the remedy.
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
        TraceCommand::Copy(args) => copy::run(args),
        TraceCommand::Cores(args) => cores::run(args),
        TraceCommand::Decompose(args) => decompose::run(args),
        TraceCommand::Delays(args) => delays::run(args),
        TraceCommand::FirstGrant(args) => first_grant::run(args),
        TraceCommand::Grants(args) => grants::run(args),
        TraceCommand::Incoming(args) => incoming::run(args),
        TraceCommand::Lost(args) => lost::run(args),
        TraceCommand::Pacer(args) => pacer::run(args),
        TraceCommand::Polls(args) => polls::run(args),
        TraceCommand::Priorities(args) => priorities::run(args),
        TraceCommand::RttBytes(args) => rtt_bytes::run(args),
        TraceCommand::Throughput(args) => throughput::run(args),
        TraceCommand::Report(args) => report::run(args),
    }
}
