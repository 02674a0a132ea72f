//! Files and directories of traces, and which RPCs of them are meant.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use homa_analysis::model::Rpc;
use homa_analysis::tail::{Base, Cost};
use homa_analysis::{Model, packets};
use homa_trace::{Clock, Dump, read_dumps};

use crate::units::{bytes_u32, duration_ns, rate_bps};

/// How a trace's file is called in a directory.
const EXTENSION: &str = "trace";
/// A packet that came so long before it was sent shows that the clocks are not one, in nanoseconds.
const CLOCKS_APART_NS: u64 = 1_000;

/// Reads these files, and of directories the files that end in .trace.
///
/// # Errors
/// Names the file that cannot be read, or is no trace.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Dump>> {
    let mut dumps = Vec::new();
    for path in paths {
        if path.is_dir() {
            let files = traces_in(path)?;
            if files.is_empty() {
                bail!("{}: no .{EXTENSION} files are in this directory", path.display());
            }
            files.iter().try_for_each(|file| read_file(file, &mut dumps))?;
        } else {
            read_file(path, &mut dumps)?;
        }
    }
    Ok(dumps)
}

fn traces_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", directory.display()))?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, dumps: &mut Vec<Dump>) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut of_file = read_dumps(&mut file).with_context(|| path.display().to_string())?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    for dump in &mut of_file {
        if dump.node.name.is_empty() {
            dump.node.name.clone_from(&stem);
        }
    }
    dumps.append(&mut of_file);
    Ok(())
}

/// Puts dumps together, and says on standard error where their clocks disagree.
///
/// # Errors
/// There are no events.
pub fn model(paths: &[PathBuf]) -> Result<Model> {
    let dumps = read(paths)?;
    let unaligned = |dump: &&Dump| dump.clock != Clock::Virtual && dump.alignment.is_none();
    if dumps.iter().filter(unaligned).count() > 1
        && let Some((early, late)) = clocks_apart(&dumps)
    {
        eprintln!(
            "homa: warning: packets from {early} come to {late} before they are sent, so the clocks of these traces are not one: \
             one-way times are off; run `homa trace merge` first"
        );
    }
    let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    Model::new(dumps).with_context(|| first)
}

fn clocks_apart(dumps: &[Dump]) -> Option<(String, String)> {
    let apart = packets::passages(dumps).into_iter().find(|passage| {
        let (from, to) = (&dumps[usize::from(passage.from)], &dumps[usize::from(passage.to)]);
        let left = from.time_ns(&from.records[passage.left as usize]);
        let came = to.time_ns(&to.records[passage.came as usize]);
        came.saturating_add(CLOCKS_APART_NS) < left
    })?;
    let name = |dump: u16| dumps[usize::from(dump)].node.name.clone();
    Some((name(apart.from), name(apart.to)))
}

/// Where traces are.
#[derive(Args, Clone, Debug)]
pub struct Files {
    /// Traces, and directories of .trace files
    #[arg(required = true, value_name = "FILE|DIR")]
    pub files: Vec<PathBuf>,
}

/// Against what RPCs are held.
#[derive(Args, Clone, Debug)]
pub struct Against {
    /// Rate of the hosts' links, as in 25gbit [default: as the traces show it]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub rate: Option<u64>,
    /// What an RPC without payload takes in an empty network, as in 15us: slowdown is then against this and --rate [default: what is left
    /// of each RPC without what disturbed it]
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub base: Option<u64>,
}

impl Against {
    /// The base, if one was given.
    pub fn base(&self) -> Option<Base> {
        self.base.map(|rpc_ns| Base { rpc_ns, rate_bps: self.rate.unwrap_or(0) })
    }
}

/// Which RPCs are meant.
#[derive(Args, Clone, Debug, Default)]
pub struct Filter {
    /// Only RPCs whose longer message has at least this many bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes_u32)]
    pub min_size: Option<u32>,
    /// Only RPCs whose longer message has at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes_u32)]
    pub max_size: Option<u32>,
    /// Only RPCs with this node as client or server
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only RPCs that began so long after the first event, or later, as in 10ms
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub from: Option<u64>,
    /// Only RPCs that began before that
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub until: Option<u64>,
}

impl Filter {
    /// Checks that there is such a node.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self, model: &Model) -> Result<()> {
        match &self.node {
            Some(name) if !model.nodes.iter().any(|node| node.name == *name) => {
                let names: Vec<&str> = model.nodes.iter().map(|node| &*node.name).take(20).collect();
                bail!("--node: no trace is of `{name}`; there are {}", names.join(", "))
            }
            _ => Ok(()),
        }
    }

    /// Whether this RPC is meant.
    pub fn takes(&self, model: &Model, rpc: &Rpc) -> bool {
        let size = rpc.request.length.max(rpc.response.length);
        let start = rpc.start.ns().unwrap_or(0);
        let is = |name: &String| model.name(rpc.client) == name || model.name(rpc.server) == name;
        self.min_size.is_none_or(|least| size >= least)
            && self.max_size.is_none_or(|most| size <= most)
            && self.node.as_ref().is_none_or(is)
            && self.from.is_none_or(|from| start >= from)
            && self.until.is_none_or(|until| start < until)
    }

    /// Those that are meant.
    pub fn chosen(&self, model: &Model, costs: &[Cost]) -> Vec<Cost> {
        let takes = |cost: &&Cost| self.takes(model, &model.rpcs[cost.rpc as usize]);
        costs.iter().filter(takes).copied().collect()
    }
}
