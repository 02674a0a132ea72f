//! The files in which Linux describes the machine: `/proc` and `/sys`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// The directory that contains `proc`, `sys` and `dev`: `/`, or in tests a directory with planted files.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Returns the root of this machine.
    pub fn here() -> Root {
        Root(PathBuf::from("/"))
    }

    /// Uses another directory instead of `/`.
    #[cfg(test)]
    pub fn at(path: &std::path::Path) -> Root {
        Root(path.to_owned())
    }

    /// Returns the full path of `path`, which has no leading slash.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Returns the trimmed text of a file. The error is a sentence that names the file relative to `/`.
    pub fn read(&self, path: &str) -> Result<String, String> {
        let text = fs::read(self.path(path)).map_err(|error| unreadable(path, &error))?;
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// Returns the value of a file that contains one number.
    pub fn number(&self, path: &str) -> Result<u64, String> {
        let text = self.read(path)?;
        text.parse().map_err(|_| format!("/{path} has `{text}`, which is no number"))
    }

    /// Returns the names in a directory, shorter ones first, or an empty list if there is no such directory.
    pub fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    }

    /// Returns the text of a per-processor file for each processor that has it.
    pub fn of_cpus(&self, file: &str) -> Vec<(usize, String)> {
        let cpus = self.list(CPUS).into_iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok());
        cpus.filter_map(|cpu: usize| Some((cpu, self.read(&format!("{CPUS}/cpu{cpu}/{file}")).ok()?)))
            .collect()
    }
}

/// The directory of the processors.
pub const CPUS: &str = "sys/devices/system/cpu";

/// Returns the reason why a file cannot be read.
fn unreadable(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no /{path}"),
        io::ErrorKind::PermissionDenied => format!("/{path} may not be read: run it as root"),
        _ => format!("/{path} cannot be read: {error}"),
    }
}

/// Parses a list of processors in Linux's format, as in "0-3,6". Returns an empty list if the text is not
/// such a list.
pub fn cpu_list(text: &str) -> Vec<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(usize::from(first)..=usize::from(last))
    };
    text.split(',').filter_map(part).flatten().collect()
}

/// Processor numbers in increasing order, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Returns the numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for CpuList {
    type Err = String;

    /// Parses numbers and ranges separated by commas, as in "0-3,6".
    fn from_str(text: &str) -> Result<CpuList, String> {
        let parts: Vec<Vec<usize>> = text.split(',').map(cpu_list).collect();
        if parts.iter().any(Vec::is_empty) {
            return Err("use numbers and ranges of them, as in 0-3,6".to_owned());
        }
        let mut cpus = parts.concat();
        cpus.sort_unstable();
        cpus.dedup();
        Ok(CpuList(cpus))
    }
}

#[cfg(test)]
pub mod fake_root {
    //! Planted files for tests.

    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{Root, fs};

    /// A temporary directory used instead of `/`. It is removed when this value is dropped.
    pub struct FakeRoot(std::path::PathBuf);

    impl FakeRoot {
        /// Creates a directory with these files, given as pairs of path and text.
        pub fn new(files: &[(&str, &str)]) -> FakeRoot {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("homa-doctor-root-{}-{number}", std::process::id()));
            let fake_root = FakeRoot(path);
            for (file, text) in files {
                fake_root.write(file, text);
            }
            fake_root
        }

        /// Writes a file, replacing any earlier one.
        pub fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("a temporary directory");
            fs::write(path, text).expect("a temporary file");
        }

        /// Returns the root for the code under test.
        pub fn root(&self) -> Root {
            Root::at(&self.0)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake_root::FakeRoot;
    use super::*;

    #[test]
    fn files_are_read_below_the_root_and_errors_name_them_as_they_are() {
        let fake_root = FakeRoot::new(&[("proc/a", " 17\n"), ("proc/b", "x"), ("proc/c/y", "")]);
        let root = fake_root.root();
        assert_eq!(root.number("proc/a"), Ok(17));
        assert_eq!(root.number("proc/b"), Err("/proc/b has `x`, which is no number".to_owned()));
        assert_eq!(root.read("proc/none"), Err("there is no /proc/none".to_owned()));
        assert_eq!(
            (root.list("proc"), root.list("sys")),
            (["a", "b", "c"].map(str::to_owned).to_vec(), vec![])
        );
    }

    #[test]
    fn processors_are_in_the_order_of_their_numbers() {
        let fake_root = FakeRoot::new(&[
            ("sys/devices/system/cpu/cpu10/x", "ten"),
            ("sys/devices/system/cpu/cpu2/x", "two"),
            ("sys/devices/system/cpu/cpufreq/x", "none"),
        ]);
        assert_eq!(fake_root.root().of_cpus("x"), [(2, "two".to_owned()), (10, "ten".to_owned())]);
        assert_eq!(cpu_list("0-2,6"), [0, 1, 2, 6]);
        assert!(cpu_list("").is_empty() && cpu_list("(null)").is_empty());
    }

    #[test]
    fn a_list_of_processors_is_checked() {
        assert_eq!("3,0-1,1".parse(), Ok(CpuList(vec![0, 1, 3])));
        for text in ["", "a", "3-1", "0,", "-1"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }
}
