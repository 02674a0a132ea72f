//! `homa doctor` as a user meets it.

mod common;

use std::process::Output;

use common::{assert_output_refused, run, stderr};
use serde_json::Value;

fn doctor(words: &[&str]) -> Output {
    run(["doctor"].iter().chain(words).copied())
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (words, part) in [
        (["--dev", "no-such-device"], "`no-such-device`; there are "),
        (["--link-mbps", "0"], "--link-mbps"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
    ] {
        assert_output_refused(&words, &doctor(&words), part);
    }
}

#[test]
fn every_finding_says_what_was_read_and_how_bad_it_is() {
    let output = doctor(&["--dev", "lo", "--json", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = results["findings"].as_array().expect("findings");
    for name in [
        "receive_buffer",
        "gro",
        "interrupt_moderation",
        "rps",
        "governor",
        "mtu",
        "dscp",
        "link_rate",
        "kernel",
    ] {
        let finding = findings.iter().find(|finding| finding["name"] == name);
        let finding = finding.unwrap_or_else(|| panic!("{name} is missing"));
        let severity = finding["severity"].as_str().expect("a severity");
        assert!(["cost", "note", "unknown", "fine"].contains(&severity), "{finding}");
        assert!(
            finding["read"].is_array() && finding["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{finding}"
        );
    }
}
