//! `homa switch`: a software top-of-rack switch between network devices, and its counters.

pub mod args;
mod control;
mod prometheus;
mod run;
mod table;
mod top;

use anyhow::{Context, Result};
use homa_report::output;

use args::{StatsArgs, SwitchArgs, SwitchCommand};

/// Runs the subcommand.
pub fn run(args: &SwitchArgs) -> Result<()> {
    match &args.command {
        SwitchCommand::Run(args) => run::run(args),
        SwitchCommand::Stats(args) => stats(args),
        SwitchCommand::Top(args) => top::run(args),
    }
}

fn stats(args: &StatsArgs) -> Result<()> {
    let snapshot = homa_switch::ask(&args.control)?;
    let text = if args.json {
        let mut json =
            serde_json::to_string_pretty(&snapshot).context("cannot write the counters as JSON")?;
        json.push('\n');
        json
    } else if args.prometheus {
        prometheus::text(&snapshot)
    } else {
        table::whole(&snapshot)
    };
    output::print(text.as_bytes())
}
