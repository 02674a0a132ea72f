//! Trace files, read, checked and brought to one time.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use homa_analysis::Model;
use homa_analysis::align::{self, AlignOptions, Clocks};
use homa_trace::{Clock, Dump, NodeKind, read_dumps};

/// Which traces, and how their clocks are compared.
#[derive(Args, Clone, Debug, Default)]
pub struct Inputs {
    /// Traces, each of one node or of several; a directory stands for all *.trace in it
    #[arg(value_name = "FILE|DIR", required = true)]
    pub files: Vec<PathBuf>,
    /// The node whose time the others get, by its name [default: the first host that others have packets of]
    #[arg(long, value_name = "NODE", conflicts_with = "same_clock")]
    pub reference: Option<String>,
    /// All nodes are namespaces or processes of one machine: trust its clock, and use packets only to check it [default: where the
    /// traces say that they are of one machine or of a simulation, and no --reference is named]
    #[arg(long)]
    pub same_clock: bool,
    /// Compare clocks by packets, also those of one machine
    #[arg(long, conflicts_with = "same_clock")]
    pub by_packets: bool,
}

/// What a trace's file name ends in, where a directory is given.
const EXTENSION: &str = "trace";

impl Inputs {
    /// Reads all of them, each node once, whatever alignment they have.
    ///
    /// # Errors
    /// Names the file that is no trace, damaged, or does not go with the others.
    pub fn read(&self) -> Result<Vec<Dump>> {
        let (dumps, from) = read_files(&self.files)?;
        check_kinds(&dumps, &from)?;
        check_names(&dumps, &from)?;
        Ok(dumps)
    }

    /// Compares the clocks. Nothing is changed.
    ///
    /// # Errors
    /// There is no such reference.
    pub fn clocks(&self, dumps: &[Dump]) -> Result<Clocks> {
        let named = |name: &String| named(dumps.iter().map(|dump| &*dump.node.name), name, "--reference");
        let reference = self.reference.as_ref().map(named).transpose()?.map(|same| same[0]);
        let by_packets = self.by_packets || self.reference.is_some();
        let same_clock = self.same_clock || !by_packets && is_one_clock(dumps);
        Ok(align::align(dumps, AlignOptions { reference, same_clock }))
    }

    /// Reads all of them, and brings them to one time where they are not yet; says on standard error what is in doubt.
    ///
    /// # Errors
    /// As [`Inputs::read`] and [`Inputs::clocks`].
    pub fn aligned(&self) -> Result<Vec<Dump>> {
        let mut dumps = self.read()?;
        let asked = self.same_clock || self.by_packets || self.reference.is_some();
        if asked || dumps.iter().any(|dump| dump.alignment.is_none()) && dumps.len() > 1 {
            let simulated = !asked && dumps.iter().all(is_simulated);
            let clocks = if simulated { align::one_clock(&dumps) } else { self.clocks(&dumps)? };
            for warning in warnings(&dumps, &clocks) {
                eprintln!("homa: warning: {warning}");
            }
            align::apply(&clocks, &mut dumps);
        }
        Ok(dumps)
    }

    /// Reads all of them on one time, and puts their events together.
    ///
    /// # Errors
    /// As [`Inputs::aligned`]; or there are no events, or too many.
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

/// Reads all dumps of these files, and says which file each is from. Directories stand for the traces in them.
///
/// # Errors
/// Names the file that is no trace or damaged.
pub fn read_files(files: &[PathBuf]) -> Result<(Vec<Dump>, Vec<PathBuf>)> {
    let mut dumps = Vec::new();
    let mut from = Vec::new();
    for path in paths(files)? {
        let mut file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for mut dump in read_dumps(&mut file).with_context(|| path.display().to_string())? {
            name(&mut dump, &path);
            dumps.push(dump);
            from.push(path.clone());
        }
    }
    Ok((dumps, from))
}

fn paths(files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for path in files {
        if !path.is_dir() {
            paths.push(path.clone());
            continue;
        }
        let failed = || format!("cannot read the directory {}", path.display());
        let entries =
            fs::read_dir(path).with_context(failed)?.collect::<Result<Vec<_>, _>>().with_context(failed)?;
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        found.retain(|file| file.extension().is_some_and(|extension| extension == EXTENSION));
        if found.is_empty() {
            bail!("there is no *.{EXTENSION} in the directory {}", path.display());
        }
        found.sort();
        paths.extend(found);
    }
    Ok(paths)
}

/// Nodes that an error names, for a start.
const NAMED: usize = 20;

/// The numbers of the nodes of this name, at least one: a host and a switch may have the same.
///
/// # Errors
/// There is none; names the option that asked for it, and nodes that are there.
pub fn named<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    name: &str,
    option: &str,
) -> Result<Vec<usize>> {
    let same = names.clone().enumerate().filter(|(_, other)| *other == name);
    let found: Vec<usize> = same.map(|(number, _)| number).collect();
    if found.is_empty() {
        let there: Vec<&str> = names.take(NAMED).collect();
        bail!("{option}: no trace is of `{name}`; there are {}", there.join(", "));
    }
    Ok(found)
}

/// The same in a model, whose nodes `--node` names.
///
/// # Errors
/// As [`named`].
pub fn nodes_named(model: &Model, name: &str) -> Result<Vec<usize>> {
    named(model.nodes.iter().map(|node| &*node.name), name, "--node")
}

/// A node without a name, or with that of any address, is called as its file.
fn name(dump: &mut Dump, path: &Path) {
    let name = &dump.node.name;
    if name.is_empty() || name.starts_with("0.0.0.0") || name.starts_with("[::]") {
        dump.node.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
}

/// Whether all of them are known to be of one clock: that of a machine, or of a simulation.
fn is_one_clock(dumps: &[Dump]) -> bool {
    let first = dumps.first().map_or(0, |dump| dump.node.machine);
    dumps.iter().all(is_simulated) || first != 0 && dumps.iter().all(|dump| dump.node.machine == first)
}

/// Whether its times are the simulator's: a switch also counts from its own start, but says when that was.
fn is_simulated(dump: &Dump) -> bool {
    dump.clock == Clock::Virtual && dump.start_ns == 0
}

fn check_kinds(dumps: &[Dump], from: &[PathBuf]) -> Result<()> {
    let of_kind = |simulated| dumps.iter().position(|dump| is_simulated(dump) == simulated);
    if let (Some(simulated), Some(live)) = (of_kind(true), of_kind(false)) {
        bail!(
            "{} is of the simulator and {} of a live host: their times have nothing in common, pass one kind",
            from[simulated].display(),
            from[live].display()
        );
    }
    Ok(())
}

fn check_names(dumps: &[Dump], from: &[PathBuf]) -> Result<()> {
    let mut seen = BTreeMap::new();
    for (dump, path) in dumps.iter().zip(from) {
        if let Some(other) = seen.insert((&dump.node.name, dump.node.kind == NodeKind::Switch), path) {
            let (name, remedy) = (&dump.node.name, remedy(path, other));
            let (path, other) = (path.display(), other.display());
            bail!("{path}: it is of node {name}, and so is {other}: {remedy}");
        }
    }
    Ok(())
}

/// What to do about two traces of a node: those of a later run in the same directory begin with another word.
fn remedy(path: &Path, other: &Path) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (later, first) = (name(path), name(other));
    let same = first.chars().zip(later.chars()).take_while(|(a, b)| a == b).count();
    let run = first.char_indices().skip(same).find(|(_, letter)| *letter == '-');
    match run.filter(|_| path.parent() == other.parent()) {
        Some((end, _)) => {
            let files = other.with_file_name(format!("{}*.{EXTENSION}", &first[..=end]));
            format!(
                "they are of two runs: pass the traces of one, {}, and those of its switches",
                files.display()
            )
        }
        None => "pass one trace of each node".to_owned(),
    }
}

/// Packets that arrive this much before they were sent are no matter of rounding, in nanoseconds.
const DOUBT_NS: f64 = 50.0;

/// What should be known before anybody relies on the times.
pub fn warnings(dumps: &[Dump], clocks: &Clocks) -> Vec<String> {
    let name = |node: usize| dumps[node].node.name.as_str();
    let mut warnings = Vec::new();
    if dumps.len() == 1 {
        return warnings;
    }
    let mut references: Vec<usize> = clocks.nodes.iter().filter_map(|node| node.reference).collect();
    references.sort_unstable();
    references.dedup();
    if references.len() > 1 {
        let names: Vec<&str> = references.iter().map(|node| name(*node)).collect();
        warnings.push(format!(
            "there are {} groups of nodes without packets between them, with the times of {}: do not compare times across groups",
            names.len(),
            names.join(", ")
        ));
    }
    for (node, clock) in clocks.nodes.iter().enumerate().filter(|(_, clock)| clock.reference.is_none()) {
        let why = match (dumps[node].records.is_empty(), clock.packets) {
            (true, _) => "its trace is empty",
            (false, 0) => "no packet of it is in another trace",
            (false, _) => "packets to others went one way only",
        };
        warnings.push(format!("{} keeps its own time: {why}", name(node)));
    }
    for pair in &clocks.pairs {
        let Some([there, back]) = pair.shortest_ns else { continue };
        let least = there.min(back);
        if least < -DOUBT_NS {
            let (from, to) = if there < back { (pair.first, pair.second) } else { (pair.second, pair.first) };
            warnings.push(format!(
                "a packet from {} to {} arrives {:.3} us before it was sent: a clock was set or does not run steadily",
                name(from),
                name(to),
                -least / 1e3
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_in_a_directory_are_told_apart_by_their_names() {
        let of = |path: &str, other: &str| remedy(Path::new(path), Path::new(other));
        let found = of("t/load2-homa-h1.trace", "t/load1-homa-h1.trace");
        assert!(found.contains("t/load1-*.trace, and those of its switches"), "{found}");
        for (path, other) in
            [("t/b.trace", "t/a.trace"), ("u/a-1.trace", "t/b-1.trace"), ("a.trace", "a.trace")]
        {
            assert_eq!(of(path, other), "pass one trace of each node");
        }
    }
}
