//! Tests `homa jitter` from the user's point of view.

use std::fs;
use std::process::Output;

use super::common::{Scratch, assert_output_refused, run, stderr};
use serde_json::Value;

fn jitter(words: &[&str]) -> Output {
    run(["jitter"].iter().chain(words).copied())
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (words, part) in [
        (["--seconds", "0"], "--seconds"),
        (["--threshold", "5"], "--threshold"),
        (["--cpus", "1-"], "--cpus"),
        (["--cpus", "1023"], "may not use processor 1023"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
    ] {
        assert_output_refused(&words, &jitter(&words), part);
    }
}

#[test]
fn every_processor_is_reported_and_the_page_has_the_distribution() {
    let scratch = Scratch::new("jitter");
    let output = jitter(&["--seconds", "0.05", "--out", &scratch.path(""), "--json", "-"]);
    let table = stderr(&output);
    assert!(output.status.success(), "{table}");
    assert!(table.contains("Gaps by length") && table.contains("What the system tells"), "{table}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cores = results["cores"].as_array().expect("cores");
    assert!(!cores.is_empty());
    for core in cores {
        let classes = core["classes"].as_object().expect("classes");
        let sum: u64 = classes.values().filter_map(|class| class["gaps"].as_u64()).sum();
        assert_eq!(core["gaps"].as_u64(), Some(sum));
        assert!(core["measured_ns"].as_u64() > Some(40_000_000), "{core}");
    }
    for name in ["steal_ms", "softnet", "ksoftirqd_ns", "management_interrupts"] {
        let told = &results["counted"][name];
        assert!(told["value"].is_array() || told["unreadable"].is_string(), "{name}: {told}");
    }
    let page = fs::read_to_string(scratch.path("report.html")).expect("a page");
    assert!(page.contains("Gaps per second of this length and more") || !page.contains("<svg"), "{page}");
}
