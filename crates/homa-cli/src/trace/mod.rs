//! `homa trace`: what time traces say.

mod clocks;
mod export;
mod load;
mod merge;

use anyhow::Result;
use clap::{Args, Subcommand};

/// `homa trace`.
#[derive(Args, Clone, Debug)]
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
    }
}
