//! Options that name trace files, and functions that read, check and align the traces.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use homa_analysis::Model;
use homa_analysis::align::{ClockChoice, Clocks};
use homa_analysis::selection::{UnknownNode, nodes_named};
use homa_trace::{Dump, files};

/// The traces, and how their clocks are compared.
#[derive(Args, Clone, Debug, Default)]
pub struct Inputs {
    /// Traces, each of one node or of several; a directory stands for all *.trace in it
    #[arg(value_name = "FILE|DIR", required = true)]
    pub files: Vec<PathBuf>,
    /// The node whose clock is the reference, by its name [default: the first host from which other nodes
    /// have packets]
    #[arg(long, value_name = "NODE", conflicts_with = "same_clock")]
    pub reference: Option<String>,
    /// All nodes are namespaces or processes of one machine: trust its clock, and use packets only to check
    /// it [default: if the traces say that they come from one machine or from a simulation, and no
    /// --reference is given]
    #[arg(long)]
    pub same_clock: bool,
    /// Compare clocks by packets, even on one machine
    #[arg(long, conflicts_with = "same_clock")]
    pub by_packets: bool,
}

impl Inputs {
    /// Reads all traces, aligned or not. Each node may occur only once.
    ///
    /// # Errors
    /// A file is not a trace, is damaged, or does not match the others.
    pub fn read(&self) -> Result<Vec<Dump>> {
        Ok(files::read_together(&self.files)?)
    }

    /// Determines how the clocks of these traces are compared.
    ///
    /// # Errors
    /// The reference node does not exist.
    fn choice(&self, dumps: &[Dump]) -> Result<ClockChoice> {
        let named = |name: &String| nodes_named(dumps.iter().map(|dump| &*dump.node.name), name);
        let reference = self.reference.as_ref().map(named).transpose().map_err(of_option("--reference"))?;
        Ok(ClockChoice {
            reference: reference.map(|same| same[0]),
            same_clock: self.same_clock,
            by_packets: self.by_packets,
        })
    }

    /// Compares the clocks without changing the traces.
    ///
    /// # Errors
    /// The reference node does not exist.
    pub fn clocks(&self, dumps: &[Dump]) -> Result<Clocks> {
        Ok(self.choice(dumps)?.clocks(dumps))
    }

    /// Reads all traces, aligns those that are not yet aligned, and prints warnings on standard error.
    ///
    /// # Errors
    /// The errors of [`Inputs::read`] and [`Inputs::clocks`].
    pub fn aligned(&self) -> Result<Vec<Dump>> {
        let mut dumps = self.read()?;
        for warning in self.choice(&dumps)?.apply(&mut dumps) {
            eprintln!("homa: warning: {warning}");
        }
        Ok(dumps)
    }

    /// Reads and aligns all traces, and merges their events.
    ///
    /// # Errors
    /// The errors of [`Inputs::aligned`], or there are no events or too many.
    pub fn model(&self) -> Result<Model> {
        Model::new(self.aligned()?).with_context(|| self.to_string())
    }
}

impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&files.join(", "))
    }
}

/// Returns the error for an option that names an unknown node.
pub fn of_option(option: &str) -> impl Fn(UnknownNode) -> anyhow::Error + '_ {
    move |error| anyhow!("{option}: {error}")
}

/// Returns the numbers of the nodes named by `--node`.
///
/// # Errors
/// There is no node with this name.
pub fn node_option(model: &Model, name: &str) -> Result<Vec<usize>> {
    model.nodes_named(name).map_err(of_option("--node"))
}
