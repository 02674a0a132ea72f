//! Import circles: sets of files in which each file uses all others directly or indirectly.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::baseline::{Mode, compare_or_write};
use crate::imports::imports;
use crate::modules::{ModulePath, Modules, read};

/// Prints the largest circle of each crate, and compares the sizes with the committed list.
///
/// # Errors
/// A size differs from the list, or a file cannot be read.
pub fn run(root: &Path, mode: Mode) -> Result<()> {
    let mut sizes = BTreeMap::new();
    for directory in crates(root)? {
        let name = directory.file_name().context("a crate without a name")?.to_string_lossy().into_owned();
        let modules = Modules::below(&directory.join("src"))?;
        let arrows = arrows(&modules)?;
        let largest = circles(&arrows).into_iter().max_by_key(Vec::len).unwrap_or_default();
        println!("{name:16} {:4} files, largest circle {:3}", modules.files.len(), largest.len());
        if mode == Mode::List {
            for &member in &largest {
                let (module, uses) = &arrows[member];
                let uses = uses.iter().filter(|used| largest.contains(used));
                let uses: Vec<String> = uses.map(|&used| arrows[used].0.join("::")).collect();
                println!("  {} -> {}", module.join("::"), uses.join(", "));
            }
        }
        sizes.insert(name, largest.len());
    }
    compare_or_write(&root.join(".ci/circles"), "circles", &sizes, mode)
}

/// Returns the directories of the crates, sorted by name.
pub fn crates(root: &Path) -> Result<Vec<std::path::PathBuf>> {
    let directory = root.join("crates");
    let entries = directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
    let mut crates: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    crates.retain(|path| path.join("src").is_dir());
    crates.sort();
    Ok(crates)
}

/// The modules, each with the indexes of the modules that it uses.
type Arrows = Vec<(ModulePath, Vec<usize>)>;

fn arrows(modules: &Modules) -> Result<Arrows> {
    let place: BTreeMap<&ModulePath, usize> =
        modules.files.keys().enumerate().map(|(at, module)| (module, at)).collect();
    let arrow = |(module, file): (&ModulePath, &std::path::PathBuf)| {
        let used = imports(&read(file)?, module, modules);
        Ok((module.clone(), used.iter().filter_map(|module| place.get(module).copied()).collect()))
    };
    modules.files.iter().map(arrow).collect()
}

/// Returns the circles of more than one module, as indexes into `arrows`.
fn circles(arrows: &Arrows) -> Vec<Vec<usize>> {
    let reachable: Vec<Vec<bool>> = (0..arrows.len()).map(|from| reachable(arrows, from)).collect();
    let mut found = Vec::new();
    let mut done = vec![false; arrows.len()];
    for from in 0..arrows.len() {
        if done[from] {
            continue;
        }
        let is_member = |to: &usize| *to == from || (reachable[from][*to] && reachable[*to][from]);
        let members: Vec<usize> = (0..arrows.len()).filter(is_member).collect();
        members.iter().for_each(|&member| done[member] = true);
        if members.len() > 1 {
            found.push(members);
        }
    }
    found
}

/// Returns the modules that `from` uses directly or indirectly.
fn reachable(arrows: &Arrows, from: usize) -> Vec<bool> {
    let mut seen = vec![false; arrows.len()];
    let mut left = arrows[from].1.clone();
    while let Some(at) = left.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            left.extend(&arrows[at].1);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_has_all_that_lead_back() {
        let name = |name: &str| vec![name.to_owned()];
        let arrows = vec![
            (name("a"), vec![1]),
            (name("b"), vec![2]),
            (name("c"), vec![0, 3]),
            (name("d"), vec![4]),
            (name("e"), vec![]),
        ];
        assert_eq!(circles(&arrows), [[0, 1, 2]]);
        assert!(
            circles(&arrows[3..].iter().map(|(name, _)| (name.clone(), Vec::new())).collect()).is_empty()
        );
    }
}
