//! What tests of the binary have in common.
#![allow(dead_code, reason = "each test program uses its part")]

use std::process::{Command, Output, Stdio};

pub use homa_testkit::Scratch;

pub mod traces;

/// The binary with these words, and nothing to read.
pub fn homa<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(words).stdin(Stdio::null());
    command
}

/// The binary run to its end.
pub fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Output {
    homa(words).output().expect("the binary runs")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a bench gives this reason for a missing value because the machine was busy, and not because it
/// lacks something. Such a value may be there in the next run: the test is not counted as skipped.
pub fn is_busy(why: &str) -> bool {
    let reasons = [
        "forwarded nothing",
        "disturb the machine",
        "no probe arrived",
        "no frame gets through",
        "offered less",
    ];
    reasons.iter().any(|reason| why.contains(reason))
}

/// Exit code 2 and one line that begins with our name and holds `part`; nothing on standard output.
pub fn assert_output_refused(words: &[&str], output: &Output, part: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
    assert!(text.starts_with("homa: ") && text.trim_end().lines().count() == 1, "{words:?}: {text}");
    assert!(text.contains(part), "{words:?}: `{part}` is missing: {text}");
    assert!(output.stdout.is_empty(), "{words:?}: {:?}", String::from_utf8_lossy(&output.stdout));
}
