//! Time traces in files, with deliberately changed clocks.

use std::fs::File;
use std::io::BufWriter;

use homa_trace::{Dump, read_dumps};
use serde_json::Value;

use super::{Scratch, run, stderr};

pub fn dump_of(scratch: &Scratch, name: &str) -> Dump {
    let mut file = File::open(scratch.path(name)).expect("readable");
    read_dumps(&mut file).expect("a trace").remove(0)
}

pub fn write(scratch: &Scratch, name: &str, dump: &Dump) {
    let mut out = BufWriter::new(File::create(scratch.path(name)).expect("writable"));
    dump.write(&mut out).expect("written");
}

/// Returns the JSON result of `homa trace merge`.
pub fn merged(words: &[&str]) -> Value {
    let output = run(["trace", "merge"].iter().chain(words).chain(&["--json", "-"]).copied());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the injected offset in nanoseconds and drift in parts per million of the host with this number.
pub fn planted(host: usize) -> (i64, f64) {
    let sign = if host.is_multiple_of(2) { 1 } else { -1 };
    (sign * 1_000_000_007 * host as i64, sign as f64 * 13.7 * host as f64)
}
