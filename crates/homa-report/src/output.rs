//! Output files that are written atomically, and standard output whose errors are reported.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// Formats an error and its causes on one line. Some libraries include the source's text in the error's own
/// text; repeated texts are dropped.
pub fn error_line(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if words.is_empty() {
            words = text;
        } else if ![format!(": {text}"), format!("({text})")].iter().any(|told| words.contains(told)) {
            words = format!("{words}: {text}");
        }
    }
    words
}

/// Creates a directory and its parents if they do not exist. The empty path is the working directory.
///
/// # Errors
/// The error names the directory.
pub fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make the directory {}", path.display()))
}

/// An output file that is checked before it is written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
}

impl Output {
    /// Checks that the file can be created, so that a long run does not fail only at its end.
    pub fn check(path: &Path) -> Result<Output> {
        let output = Output { path: path.to_owned() };
        if path.is_dir() {
            bail!("cannot write {}: it is a directory", path.display());
        }
        if output.is_device_or_pipe() {
            return Ok(output);
        }
        let temporary = output.temporary();
        File::create(&temporary)
            .and_then(|_| fs::remove_file(&temporary))
            .with_context(|| output.failed())?;
        Ok(output)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a temporary file in the same directory, and renames it when it is complete.
    pub fn write(&self, content: &[u8]) -> Result<()> {
        self.write_with(|file| file.write_all(content))
    }

    /// Like [`write`](Output::write), for contents that do not fit in memory. Small writes are buffered.
    pub fn write_with(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let result = if self.is_device_or_pipe() {
            File::options().write(true).open(&self.path).and_then(|file| fill(file, write)).map(drop)
        } else {
            self.replace(write)
        };
        result.with_context(|| self.failed())
    }

    fn replace(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
        let temporary = self.temporary();
        let result = File::create(&temporary)
            .and_then(|file| fill(file, write)?.sync_all())
            .and_then(|()| fs::rename(&temporary, &self.path));
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    /// Returns whether the path is a device or a pipe. These are written directly, because a rename would
    /// replace them with a file.
    fn is_device_or_pipe(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_file())
    }

    fn temporary(&self) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", std::process::id()));
        self.path.with_file_name(name)
    }

    fn failed(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 1 << 18;

fn fill(file: File, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<File> {
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut file)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)
}

/// Formats indented JSON with a final line feed.
///
/// # Errors
/// The value cannot be represented, which is a bug.
pub fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value).context("cannot make JSON of the results")?;
    text.push(b'\n');
    Ok(text)
}

/// Writes to standard output. A full disk or a closed pipe is an error.
pub fn print(content: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(content).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Terminal escape sequences: move the cursor home, and clear to the end.
const HOME: &str = "\x1b[H\x1b[J";

/// Replaces the contents of the terminal with a text, or appends the text if standard output is not a
/// terminal. Changes no terminal mode, so the program may be killed at any time.
pub fn redraw(text: &str) -> Result<()> {
    let home = if io::stdout().is_terminal() { HOME } else { "" };
    print(format!("{home}{text}").as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn an_error_says_each_of_its_causes_once() {
        #[derive(Debug)]
        struct Both(io::Error);
        impl std::fmt::Display for Both {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "cannot open a: {}", self.0)
            }
        }
        impl std::error::Error for Both {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = anyhow::Error::from(Both(io::Error::other("no")));
        assert_eq!(error_line(&error.context("a rack")), "a rack: cannot open a: no");
        let within = anyhow::anyhow!("no").context("device a is taken (no)");
        assert_eq!(error_line(&within), "device a is taken (no)");
        let apart = anyhow::Error::from(io::Error::other("no")).context("cannot read b");
        assert_eq!(error_line(&apart), "cannot read b: no");
    }

    /// Creates a temporary directory for a test.
    pub(crate) fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("homa-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        path
    }

    fn files(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).expect("readable");
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let directory = directory("replace");
        let output = Output::check(&directory.join("a.json")).expect("writable");
        assert!(files(&directory).is_empty());
        output.write(b"old").expect("written");
        output.write(b"new").expect("written");
        assert_eq!(fs::read(output.path()).expect("readable"), b"new");
        assert_eq!(files(&directory), ["a.json"]);
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn a_missing_directory_and_a_directory_are_known_before() {
        let directory = directory("missing");
        for path in [directory.join("none").join("a.json"), directory.clone()] {
            let error = Output::check(&path).expect_err("cannot be written");
            assert!(format!("{error:#}").contains(&path.display().to_string()), "{error:#}");
        }
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn a_full_device_is_an_error_and_stays_a_device() {
        let path = Path::new("/dev/full");
        assert!(Output::check(path).expect("there").write(b"x").is_err());
        assert!(!path.metadata().expect("there").is_file());
    }
}
