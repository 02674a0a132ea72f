//! `homa trace`: what time traces say.

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
mod shown;
mod summary;
pub mod tail;
mod throughput;
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
  homa trace delays traces/                         where packets spend their time

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
    /// Tell how fast bytes are copied in and out
    Copy(copy::CopyArgs),
    /// Tell what ran on which core
    Cores(cores::CoresArgs),
    /// Split each packet's extra delay: the sender's queue, switches, polling, receiving
    Decompose(decompose::DecomposeArgs),
    /// Tell where packets spend their time, stage by stage
    Delays(delays::DelaysArgs),
    /// Tell how long messages wait for their first grant
    FirstGrant(first_grant::FirstGrantArgs),
    /// Tell how late grants were, to whom they went, and which were of no use
    Grants(grants::GrantsArgs),
    /// Tell what receivers had granted and not received over time
    Incoming(incoming::IncomingArgs),
    /// Tell which packets were lost, where, how it was found and what it cost
    Lost(lost::LostArgs),
    /// Tell how the pacer held packets back
    Pacer(pacer::PacerArgs),
    /// Tell who looks for packets in vain, and whether clients or servers are the bottleneck
    Polls(polls::PollsArgs),
    /// Tell who uses which priorities, and where lower ones went first
    Priorities(priorities::PrioritiesArgs),
    /// Tell how many bytes have to be on their way on each path, and what packets take by length
    RttBytes(rtt_bytes::RttBytesArgs),
    /// Tell what each host sent and received, interval after interval
    Throughput(throughput::ThroughputArgs),
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
