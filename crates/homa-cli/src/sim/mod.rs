//! `homa sim`: Homa and other transports in a simulated network of any size.

pub mod args;
mod draft;
mod fits;
mod homa;
mod knobs;
mod maxload;
mod page;
mod preset;
mod published;
mod run;
mod steady;
mod steer;
mod sweep;
pub mod table;
mod trace;
mod work;

use std::fmt::Write;

use anyhow::Result;
use homa_sim::TransportConfig;

use args::{SimArgs, SimCommand};

/// Runs a subcommand.
///
/// # Errors
/// A one-line description of the cause.
pub fn run(args: &SimArgs) -> Result<()> {
    match &args.command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Sweep(args) => sweep::run(args),
        SimCommand::MaxLoad(args) => maxload::run(args),
        SimCommand::Steer(args) => steer::run(args),
        SimCommand::Router(args) => steer::router::run(args),
        SimCommand::Presets(_) => homa_report::output::print(presets().as_bytes()),
    }
}

/// Lists everything that can be selected by name.
fn presets() -> String {
    let mut out = "Presets (--preset):\n".to_owned();
    // Writing to a string cannot fail.
    for preset in preset::PRESETS {
        let _ = writeln!(out, "  {:<12} {}\n  {:<12}   {}", preset.name, preset.summary, "", preset.notes);
    }
    out.push_str("\nSweeps (homa sim sweep NAME):\n");
    for (name, text) in sweep::file::BUILT_IN {
        let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
        let _ = writeln!(out, "  {name:<14} {}", comment.join(" "));
    }
    let _ = writeln!(out, "\nTransports (--transport): {}", TransportConfig::NAMES.join(", "));
    let _ = writeln!(out, "\nSettings, as options and as keys of a sweep (`_` or `-`): {}", knobs::names());
    let _ = writeln!(
        out,
        "\nSettings of the protocol (--set, and `homa.NAME` in a sweep): {}",
        homa_settings::FIELDS.join(", ")
    );
    out
}
