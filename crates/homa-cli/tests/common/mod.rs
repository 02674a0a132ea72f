//! Helpers shared by the tests of the binary.
#![allow(dead_code, reason = "each test program uses its part")]

use std::process::{Command, Output, Stdio};

pub use homa_testkit::Scratch;

pub mod traces;

/// Returns the binary as a command with these arguments and an empty standard input.
pub fn homa<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs the binary until it exits.
pub fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Output {
    homa(words).output().expect("the binary runs")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns whether a bench reports that a value is missing because the machine was busy, rather than because
/// a resource is missing. The next run may produce the value, so the test is not counted as skipped.
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

/// Checks that the exit code is 2, standard output is empty, and standard error is one line that begins with
/// the program's name and contains `part`.
pub fn assert_output_refused(words: &[&str], output: &Output, part: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
    assert!(text.starts_with("homa: ") && text.trim_end().lines().count() == 1, "{words:?}: {text}");
    assert!(text.contains(part), "{words:?}: `{part}` is missing: {text}");
    assert!(output.stdout.is_empty(), "{words:?}: {:?}", String::from_utf8_lossy(&output.stdout));
}
