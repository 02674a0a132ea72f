//! Watching: metrics served to whoever asks, `homa metrics` and `homa top`.

pub mod address;
pub mod args;
mod ask;
mod change;
mod diff;
pub mod exporter;
mod figures;
mod histogram;
mod screen;
mod show;
mod state;
mod text;
mod top;

use anyhow::Result;

use args::{MetricsArgs, MetricsCommand};
pub use top::run as top;

/// `homa metrics`.
pub fn metrics(args: &MetricsArgs) -> Result<()> {
    match &args.command {
        Some(MetricsCommand::Diff(args)) => diff::run(args),
        None => show::run(args),
    }
}
