//! Message sizes by name or from a file.

use std::path::Path;

use anyhow::{Context, Result, bail};
use homa_workload::{Workload, WorkloadError};

/// Maximum message length of Linux Homa in bytes, and the default for our own hosts.
pub const DEFAULT_MAX_MESSAGE: u32 = 1_000_000;

/// The treatment of messages longer than a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// Messages are sent in full length.
    Off,
    /// Longer messages are shortened to this many bytes.
    At(u32),
}

impl Default for Truncation {
    /// Returns truncation at [`DEFAULT_MAX_MESSAGE`].
    fn default() -> Truncation {
        Truncation::At(DEFAULT_MAX_MESSAGE)
    }
}

/// Returns the workload with this name, or from the file with this name, with longer messages shortened.
///
/// # Errors
/// There is no such workload, or the file is invalid.
pub fn named(name: &str, max_message: Truncation) -> Result<Workload> {
    let whole = match Workload::named(name) {
        Err(WorkloadError::UnknownName { .. }) => from_file(name)?,
        result => result.with_context(|| format!("--workload {name}"))?,
    };
    Ok(match max_message {
        Truncation::At(bytes) => whole.truncated(bytes)?,
        Truncation::Off => whole,
    })
}

fn from_file(name: &str) -> Result<Workload> {
    let names: Vec<&str> = Workload::names().collect();
    let path = Path::new(name);
    if !path.exists() {
        bail!("unknown workload `{name}`: no file has that name, and it is none of {}", names.join(", "));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Workload::from_csv(&stem, &text).with_context(|| format!("workload {name}"))
}

/// Describes a workload.
pub fn text(workload: &Workload) -> String {
    let name = workload.name();
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("messages of {name} bytes");
    }
    let name = match name.strip_prefix('w') {
        Some(digit) if digit.len() == 1 => format!("W{digit}"),
        _ => name.to_owned(),
    };
    let mean = format!("mean {:.0} bytes", workload.mean_bytes());
    match workload.truncated_at() {
        Some(bytes) => format!("{name} truncated to {bytes} bytes ({mean})"),
        None => format!("{name} ({mean})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_unless_told_otherwise() {
        let cut = named("w4", Truncation::default()).expect("a workload");
        assert_eq!((cut.name(), cut.truncated_at()), ("w4", Some(1_000_000)));
        let whole = named("w5", Truncation::Off).expect("a workload");
        assert!(whole.max_bytes() > 1_000_000 && whole.truncated_at().is_none());
    }

    #[test]
    fn an_unknown_workload_is_named() {
        let error = named("w9", Truncation::Off).expect_err("unknown");
        assert!(format!("{error:#}").contains("w9"), "{error:#}");
    }
}
