//! Trace files: reads their dumps, and checks that they belong together.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::dump::Dump;
use crate::node::NodeKind;
use crate::read::{ReadError, read_dumps};

/// File name extension of traces in a directory.
const EXTENSION: &str = "trace";

/// Why dumps cannot be read from files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A file cannot be opened.
    #[error("cannot read {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A directory cannot be listed.
    #[error("cannot read the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A directory contains no trace files.
    #[error("there is no *.{EXTENSION} in the directory {}", .0.display())]
    NoTrace(PathBuf),
    /// A file is not a trace, or is damaged.
    #[error("{}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: ReadError,
    },
    /// The traces come from both the simulator and live hosts.
    #[error(
        "{} is of the simulator and {} of a live host: their times have nothing in common, pass one kind",
        simulated.display(),
        live.display()
    )]
    MixedClocks {
        /// A file written by the simulator.
        simulated: PathBuf,
        /// A file written by a live host.
        live: PathBuf,
    },
    /// Two traces come from the same node.
    #[error("{}: it is of node {node}, and so is {}: {remedy}", path.display(), other.display())]
    SameNode {
        /// The node's name.
        node: String,
        /// The later file.
        path: PathBuf,
        /// The earlier file.
        other: PathBuf,
        /// The files to pass instead.
        remedy: String,
    },
}

/// Reads all dumps of these files, each with its file. A directory stands for all *.trace files in it. A node
/// without a name is named after its file.
///
/// # Errors
/// The error names the file that cannot be read, is not a trace, or is damaged.
pub fn read_each(files: &[PathBuf]) -> Result<Vec<(Dump, PathBuf)>, FileError> {
    let mut dumps = Vec::new();
    for path in paths(files)? {
        let mut file = File::open(&path).map_err(|source| FileError::Open { path: path.clone(), source })?;
        let read = read_dumps(&mut file).map_err(|source| FileError::Dump { path: path.clone(), source })?;
        for mut dump in read {
            name(&mut dump, &path);
            dumps.push((dump, path.clone()));
        }
    }
    Ok(dumps)
}

/// Reads all dumps of these files like [`read_each`], and checks that they belong together: each node may
/// have only one dump, and either all dumps or none must be from a simulation.
///
/// # Errors
/// The error names the file that cannot be read, is not a trace, is damaged, or does not belong to the
/// others.
pub fn read_together(files: &[PathBuf]) -> Result<Vec<Dump>, FileError> {
    let dumps = read_each(files)?;
    check_clocks(&dumps)?;
    check_names(&dumps)?;
    Ok(dumps.into_iter().map(|(dump, _)| dump).collect())
}

fn paths(files: &[PathBuf]) -> Result<Vec<PathBuf>, FileError> {
    let mut paths = Vec::new();
    for path in files {
        if !path.is_dir() {
            paths.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries = entries.map_err(|source| FileError::Directory { path: path.clone(), source })?;
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        found.retain(|file| file.extension().is_some_and(|extension| extension == EXTENSION));
        if found.is_empty() {
            return Err(FileError::NoTrace(path.clone()));
        }
        found.sort();
        paths.extend(found);
    }
    Ok(paths)
}

/// Names a node after its file if it has no name, or if its name is the unspecified address.
fn name(dump: &mut Dump, path: &Path) {
    let name = &dump.node.name;
    if name.is_empty() || name.starts_with("0.0.0.0") || name.starts_with("[::]") {
        dump.node.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
}

fn check_clocks(dumps: &[(Dump, PathBuf)]) -> Result<(), FileError> {
    let first = |simulated| dumps.iter().find(|(dump, _)| dump.is_simulated() == simulated);
    match (first(true), first(false)) {
        (Some((_, simulated)), Some((_, live))) => {
            Err(FileError::MixedClocks { simulated: simulated.clone(), live: live.clone() })
        }
        _ => Ok(()),
    }
}

fn check_names(dumps: &[(Dump, PathBuf)]) -> Result<(), FileError> {
    let mut nodes = BTreeMap::new();
    for (dump, path) in dumps {
        if let Some(other) = nodes.insert((&dump.node.name, dump.node.kind == NodeKind::Switch), path) {
            return Err(FileError::SameNode {
                node: dump.node.name.clone(),
                path: path.clone(),
                other: other.clone(),
                remedy: remedy(path, other),
            });
        }
    }
    Ok(())
}

/// Suggests a remedy for two traces of one node. If both are in one directory, files of different runs have
/// names that begin with different words.
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

impl Dump {
    /// Returns whether the dump's times are simulated. A live switch also counts time from its own start, but
    /// records when it started.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.clock == Clock::Virtual && self.start_ns == 0
    }
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
