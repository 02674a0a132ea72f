//! Test helpers shared by all crates; used only as a dev-dependency.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod closed_port;
pub mod namespace;

pub use closed_port::ClosedPort;

/// The environment variable that names the file to which [`skip`] appends.
pub const SKIPS: &str = "TEST_SKIPS";

/// Reports that the calling test skips itself or a part of itself, and why.
///
/// Prints `skipped: <package> <test>: <why>`. Cargo hides that line if the test passes. Therefore, if
/// [`SKIPS`] is set, the same text without `skipped: ` is also appended to the file that the variable names,
/// and `.ci/run test` counts the lines of that file. The call does not end the test.
///
/// # Panics
/// Panics if the file that [`SKIPS`] names cannot be written, since the skip would not be counted.
pub fn skip(why: impl Display) {
    // Cargo sets the package for each test that it runs, and the test harness names the thread after the
    // test.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "unknown".to_owned());
    let thread = std::thread::current();
    let line = skip_line(&package, thread.name().unwrap_or("unknown"), &why.to_string());
    println!("skipped: {line}");
    if let Some(path) = std::env::var_os(SKIPS) {
        append(Path::new(&path), &line).unwrap_or_else(|error| {
            panic!("cannot append to {SKIPS}={}: {error}", path.display());
        });
    }
}

/// Formats the skip as one line, even if the reason has several lines.
fn skip_line(package: &str, test: &str, why: &str) -> String {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{package} {test}: {why}")
}

/// Appends a line with a single write, because several tests may skip at the same time.
fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}

/// Returns the resident memory of a process in bytes, or `None` if there is no such process.
///
/// # Panics
/// Panics if the kernel reports something other than a number of kilobytes.
pub fn resident_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") << 10)
}

/// A temporary directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes a new, empty directory whose name contains `name`.
    ///
    /// # Panics
    /// Panics if the directory cannot be created.
    pub fn new(name: &str) -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("homa-test-{name}-{}-{number}", std::process::id()));
        // An earlier process with this ID may have been killed before it removed its directory.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary directory");
        Scratch(path)
    }

    /// Returns the path of an entry as text, for the arguments of a command.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// Writes a file and returns its path.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("writable");
        self.path(name)
    }

    /// Returns the text of a file.
    ///
    /// # Panics
    /// Panics if the file cannot be read.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the sorted names of the entries in the subdirectory `name`. An empty `name` means this
    /// directory.
    ///
    /// # Panics
    /// Panics if the directory cannot be read.
    pub fn files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(name)).expect("readable");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_becomes_one_line() {
        let line = skip_line("homa-cli", "rack::up", "no namespace:\n  not permitted\n");
        assert_eq!(line, "homa-cli rack::up: no namespace: not permitted");
    }

    #[test]
    fn each_skip_is_one_line_of_the_file() {
        let scratch = Scratch::new("skips");
        let path = PathBuf::from(scratch.path("skips"));
        append(&path, "a b: first").unwrap();
        append(&path, "a c: second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a b: first\na c: second\n");
        assert_eq!(scratch.files(""), ["skips"]);
    }

    #[test]
    fn directories_of_one_name_are_two() {
        let [a, b] = [Scratch::new("twin"), Scratch::new("twin")];
        assert_ne!(a.0, b.0);
    }

    /// With `autotests = false` in the manifest, Cargo does not discover tests. A file that no target
    /// includes would not even be compiled.
    #[test]
    fn every_file_of_tests_is_part_of_a_target() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        for directory in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
            let (manifest, tests) = (read(&directory.join("Cargo.toml")), directory.join("tests"));
            for (inside, root) in [(tests.clone(), "it.rs"), (tests.join("machine"), "main.rs")] {
                let declared = read(&inside.join(root));
                let Ok(entries) = fs::read_dir(&inside) else { continue };
                for path in entries.map(|entry| entry.unwrap().path()) {
                    let (name, stem) =
                        (path.file_name().unwrap(), path.file_stem().unwrap().to_str().unwrap());
                    if path.extension().is_none_or(|extension| extension != "rs") || name == root {
                        continue;
                    }
                    assert!(
                        declared.contains(&format!("mod {stem};"))
                            || manifest.contains(&format!("name = \"{stem}\"")),
                        "{} belongs to no test target: declare it in {root}",
                        path.display()
                    );
                }
            }
        }
    }

    #[test]
    fn a_scratch_directory_goes_with_its_value() {
        let scratch = Scratch::new("gone");
        let path = PathBuf::from(scratch.path(""));
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
