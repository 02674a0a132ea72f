//! `homa metrics diff`.

use anyhow::{Context, Result, bail};
use homa_metrics::Source;
use homa_metrics::changes::{Changes, between};
use homa_report::output::print;

use super::args::DiffArgs;
use super::state::State;

/// Prints the changes.
pub fn run(args: &DiffArgs) -> Result<()> {
    let first = Source::of(&args.a);
    let Some(second) = &args.b else { return since_last_time(args, &first) };
    let before = first.read()?;
    let now = Source::of(second).read()?;
    show(args, &between(Some(&before), &now), None)
}

fn since_last_time(args: &DiffArgs, source: &Source) -> Result<()> {
    let Source::Live(addr) = source else {
        bail!(
            "{} is no address of metrics: give a second snapshot to compare it with, or an address as in 127.0.0.1:9100",
            args.a
        );
    };
    let state = State::of(addr, args.state.as_deref())?;
    let before = state.last(addr)?;
    let now = source.read()?;
    let changes = between(before.as_ref(), &now);
    let first = before.is_none().then(|| {
        format!(
            "no earlier snapshot in {}: all values are since the start of the process\n",
            state.path().display()
        )
    });
    show(args, &changes, first)?;
    // Save the snapshot only after printing, so that changes that could not be printed appear again next
    // time.
    state.keep(&now)
}

fn show(args: &DiffArgs, changes: &Changes, first: Option<String>) -> Result<()> {
    let text = if args.json {
        serde_json::to_string_pretty(changes).context("cannot write the changes as JSON")? + "\n"
    } else {
        first.unwrap_or_default() + &changes.text()
    };
    print(text.as_bytes())
}
