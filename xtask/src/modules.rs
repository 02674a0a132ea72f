//! The modules of a crate, derived from its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Names of the modules on the path from the crate's root to a module; empty for the root.
pub type ModulePath = Vec<String>;

/// The modules of a crate that have their own files.
#[derive(Debug, Default)]
pub struct Modules {
    /// The file of each module.
    pub files: BTreeMap<ModulePath, PathBuf>,
}

impl Modules {
    /// Finds the modules in this source directory, without test files.
    ///
    /// # Errors
    /// A directory or a file cannot be read.
    pub fn below(src: &Path) -> Result<Modules> {
        let mut modules = Modules::default();
        modules.add(src, src)?;
        let mut of_tests = Vec::new();
        for (module, file) in &modules.files {
            let text = read(file)?;
            let names = text.split("#[cfg(test)]\nmod ").skip(1);
            let names = names.filter_map(|rest| rest.split_once(';').map(|(name, _)| name));
            let is_name = |name: &&str| name.chars().all(|char| char.is_alphanumeric() || char == '_');
            of_tests.extend(names.filter(is_name).map(|name| child(module, name)));
        }
        modules.files.retain(|module, _| !of_tests.iter().any(|tests| module.starts_with(tests)));
        Ok(modules)
    }

    fn add(&mut self, src: &Path, directory: &Path) -> Result<()> {
        let entries = directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                self.add(src, &path)?;
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                self.files.insert(module_of(path.strip_prefix(src)?), path);
            }
        }
        Ok(())
    }

    /// Returns whether this module exists and has its own file.
    pub fn contains(&self, module: &[String]) -> bool {
        self.files.contains_key(module)
    }
}

/// Returns the module of a file, from the file's path relative to the source directory.
fn module_of(file: &Path) -> ModulePath {
    let mut module: ModulePath =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// Returns the path of the child module with this name.
pub fn child(module: &[String], name: &str) -> ModulePath {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Reads the text of a file.
///
/// # Errors
/// The file cannot be read.
pub fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_modules_by_their_place() {
        let module = |file: &str| module_of(Path::new(file)).join("::");
        assert_eq!(module("lib.rs"), "");
        assert_eq!(module("a.rs"), "a");
        assert_eq!(module("a/mod.rs"), "a");
        assert_eq!(module("a/b.rs"), "a::b");
    }
}
