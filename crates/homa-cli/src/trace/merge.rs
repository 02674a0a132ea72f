//! `homa trace merge`: aligns the clocks of many nodes and writes one file.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use homa_analysis::align::{self, Clocks, NodeClock, warnings};
use homa_report::output::Output;
use homa_trace::{Dump, NodeKind};
use serde_json::{Value, json};

use super::answer::Answer;
use super::load::Inputs;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace merge h1.trace h2.trace switch.trace --out merged.trace
  homa trace merge traces/ --reference 10.0.0.1:4000     only the table of all *.trace there
  homa trace merge traces/ --same-clock --out merged.trace

Clocks are compared by packets that two nodes have both recorded. The drift is the rate at which the
difference of two clocks grows. The offset assumes that the fastest packets took equally long in both
directions: `likely` is the remaining uncertainty from their scatter. If one direction takes longer, the
offset is wrong by half of the difference. The error never exceeds `at most`, half of the fastest round trip
to the reference, since no packet arrives before it was sent.")]
pub struct MergeArgs {
    #[command(flatten)]
    inputs: Inputs,
    /// Write all traces to this file, each with its clock correction [default: only print the table]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// Aligns the clocks, prints the table and writes the file.
///
/// # Errors
/// A file cannot be read, does not match the others, or cannot be written.
pub fn run(args: &MergeArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let out = args.out.as_deref().map(Output::check).transpose()?;
    let mut dumps = args.inputs.read()?;
    let clocks = args.inputs.clocks(&dumps)?;
    let warnings = warnings(&dumps, &clocks);
    let json = to_json(&dumps, &clocks, &warnings);
    let mut text = table(&dumps, &clocks);
    for warning in &warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    if let Some(out) = &out {
        align::apply(&clocks, &mut dumps);
        out.write_with(|file| dumps.iter().try_for_each(|dump| dump.write(file)))?;
    }
    outputs.answer(&text, &json)?;
    if let Some(out) = &out {
        eprintln!("\nwritten: {}", out.path().display());
    }
    Ok(())
}

fn table(dumps: &[Dump], clocks: &Clocks) -> String {
    let width = dumps.iter().map(|dump| dump.node.name.chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "\n{:<width$}{:>11}{:>20}{:>13}{:>12}{:>12}{:>11}  time of\n{:<width$}{:>11}{:>20}{:>13}{:>12}{:>12}{:>11}\n",
        "node",
        "records",
        "offset",
        "drift",
        "likely",
        "at most",
        "packets",
        "",
        "",
        "us",
        "ppm",
        "+-us",
        "+-us",
        ""
    );
    for (dump, clock) in dumps.iter().zip(&clocks.nodes) {
        // Writing to a string cannot fail.
        let _ = row(&mut text, width, dump, clock, dumps);
    }
    text
}

fn row(text: &mut String, width: usize, dump: &Dump, clock: &NodeClock, dumps: &[Dump]) -> std::fmt::Result {
    write!(text, "{:<width$}{:>11}", dump.node.name, dump.records.len())?;
    match clock.reference {
        None => writeln!(text, "{:>20}{:>13}{:>12}{:>12}{:>11}  its own", "-", "-", "-", "-", clock.packets),
        Some(reference) => writeln!(
            text,
            "{:>20.3}{:>13.3}{:>12.3}{:>12.3}{:>11}  {}",
            clock.offset_ns / 1e3,
            clock.drift_ppm,
            clock.likely_ns / 1e3,
            clock.bound_ns / 1e3,
            clock.packets,
            dumps[reference].node.name
        ),
    }
}

fn to_json(dumps: &[Dump], clocks: &Clocks, warnings: &[String]) -> Value {
    let name = |node: usize| dumps[node].node.name.as_str();
    let nodes = dumps.iter().zip(&clocks.nodes).map(|(dump, clock)| {
        json!({
            "name": dump.node.name,
            "kind": if dump.node.kind == NodeKind::Switch { "switch" } else { "host" },
            "records": dump.records.len(),
            "overwritten": dump.overwritten,
            "reference": clock.reference.map(name),
            "offset_ns": clock.offset_ns,
            "drift_ppm": clock.drift_ppm,
            "likely_error_ns": clock.likely_ns,
            "likely_error_ppm": clock.likely_ppm,
            "max_error_ns": clock.bound_ns,
            "packets": clock.packets,
        })
    });
    let pairs = clocks.pairs.iter().map(|pair| {
        json!({
            "nodes": [name(pair.first), name(pair.second)],
            "packets": pair.packets,
            "shortest_ns": pair.shortest_ns,
        })
    });
    json!({
        "nodes": nodes.collect::<Vec<Value>>(),
        "pairs": pairs.collect::<Vec<Value>>(),
        "warnings": warnings,
    })
}
