//! `homa metrics` and `homa top`: metrics of processes that export them.

pub mod args;
mod diff;
mod show;
mod state;
mod top;

use anyhow::Result;

use args::{MetricsArgs, MetricsCommand};
pub use top::run as top;

/// Runs `homa metrics` or its subcommand.
pub fn metrics(args: &MetricsArgs) -> Result<()> {
    match &args.command {
        Some(MetricsCommand::Diff(args)) => diff::run(args),
        None => show::run(args),
    }
}
