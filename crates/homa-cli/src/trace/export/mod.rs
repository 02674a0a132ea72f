//! `homa trace export`: writes traces for viewers or as text.

mod digits;
mod event_text;
mod perfetto;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use homa_analysis::Model;
use homa_analysis::model::{NodeId, Rpc};
use homa_report::output::Output;
use homa_report::units::duration_ns;
use homa_trace::Record;

use super::load::{Inputs, node_option};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace export merged.trace --out trace.json                open it in https://ui.perfetto.dev or chrome://tracing
  homa trace export traces/ --format text --rpc 7340032 --out -
  homa trace export merged.trace --from 1.5ms --to 2ms --node 10.0.0.1:4000 --out part.json

The clocks of several traces are aligned first, unless `homa trace merge` has done that. Times are relative to
the first event of all. In a viewer each node is a process: its RPCs are slices, its cores (or a switch's
ports) are threads with packets and other events, arrows connect the sending and the receipt of packets, and a
switch's queues are counters.")]
pub struct ExportArgs {
    #[command(flatten)]
    inputs: Inputs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Perfetto)]
    format: Format,
    /// Output file; `-` is standard output
    #[arg(long, value_name = "FILE|-")]
    out: PathBuf,
    /// Only this RPC, by its id at the client or at the server
    #[arg(long, value_name = "ID")]
    rpc: Option<u64>,
    /// No events before this time, counted from the very first event, as in 1.5ms
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    from: Option<u64>,
    /// No events after this time
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    to: Option<u64>,
    /// Only this node; may be given several times
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Chrome's trace events as JSON, which Perfetto opens
    Perfetto,
    /// A line for each event
    Text,
}

/// The selected events.
#[derive(Debug)]
struct Filter {
    /// RPC ID as seen by the client.
    rpc: Option<u64>,
    from_ns: u64,
    to_ns: u64,
    /// Whether each node is selected, indexed by the node's number.
    nodes: Vec<bool>,
}

impl Filter {
    fn has_node(&self, node: NodeId) -> bool {
        self.nodes.get(usize::from(node)).is_some_and(|wanted| *wanted)
    }

    fn has_time(&self, ns: u64) -> bool {
        (self.from_ns..=self.to_ns).contains(&ns)
    }

    fn has(&self, record: &Record) -> bool {
        self.has_time(record.time) && self.rpc.is_none_or(|id| record.id & !1 == id)
    }

    fn has_rpc(&self, rpc: &Rpc) -> bool {
        self.rpc.is_none_or(|id| rpc.id == id)
    }
}

/// Writes the selected events. Stops when standard output is closed, which is not an error.
///
/// # Errors
/// A file is not a trace or cannot be written, or the node does not exist.
pub fn run(args: &ExportArgs) -> Result<()> {
    let to_stdout = args.out == Path::new("-");
    let out = if to_stdout { None } else { Some(Output::check(&args.out)?) };
    let model = args.inputs.model()?;
    let mut nodes = vec![args.node.is_empty(); model.nodes.len()];
    for name in &args.node {
        node_option(&model, name)?.into_iter().for_each(|number| nodes[number] = true);
    }
    let filter = Filter {
        rpc: args.rpc.map(|id| id & !1),
        from_ns: args.from.unwrap_or(0),
        to_ns: args.to.unwrap_or(u64::MAX),
        nodes,
    };
    let Some(out) = out else {
        return match export(args.format, &model, &filter, &mut BufWriter::new(io::stdout().lock())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("cannot write to standard output"),
        };
    };
    out.write_with(|file| export(args.format, &model, &filter, file))?;
    eprintln!("written: {}", out.path().display());
    Ok(())
}

fn export(format: Format, model: &Model, filter: &Filter, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Perfetto => perfetto::write(model, filter, out),
        Format::Text => text::write(model, filter, out),
    }?;
    out.flush()
}
