//! Tests `homa bench switch` from the user's point of view: its errors and, as root, that each path has
//! either every metric or a reason why not.

use std::process::Output;

use homa_testkit::Scratch;

use super::common::{assert_output_refused, is_busy, run, stderr};
use serde_json::Value;

fn bench(words: &str) -> Output {
    run(["bench", "switch"].into_iter().chain(words.split_whitespace()))
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (words, part) in [
        ("--path carrier-pigeon", "carrier-pigeon"),
        ("--measure beauty", "beauty"),
        ("--repetitions 0", "--repetitions"),
        ("--slice-ms 1", "--slice-ms"),
        ("--json /nowhere/at/all.json", "/nowhere/at/all.json"),
        ("--out /dev/null/results", "/dev/null/results"),
    ] {
        assert_output_refused(&[words], &bench(words), part);
    }
}

#[test]
fn every_path_gives_every_metric_or_says_why_not() {
    let scratch = Scratch::new("switch-bench");
    let output = bench(&format!("--quick --json - --out {}", scratch.path("")));
    if !output.status.success() {
        // The command is refused without root, without `ip`, or without namespaces.
        assert_output_refused(&["--quick"], &output, "");
        homa_testkit::skip(stderr(&output).trim());
        return;
    }
    assert_eq!(scratch.files(""), ["report.html", "results.json"]);
    let table = stderr(&output);
    assert!(table.contains("frames of 64 B") && table.contains("xdp-generic"), "{table}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let measures = results["measures"].as_array().expect("measures");
    let paths = results["paths"].as_array().expect("paths");
    assert_eq!(paths.len(), 3);
    for path in paths {
        if let Some(why) = path["skipped"].as_str() {
            // Measurements made before the failure, if any, are kept. On a busy machine, the source may be
            // too slow for the remaining ones.
            if !is_busy(why) && path["metrics"].as_object().is_none_or(serde_json::Map::is_empty) {
                homa_testkit::skip(format_args!("{}: {why}", path["name"]));
            }
            continue;
        }
        for measure in measures {
            let name = measure["name"].as_str().expect("a name");
            if name.ends_with("_clear_worst") {
                // On a busy machine, all windows of ten milliseconds may contain a gap.
                continue;
            }
            let metric = &path["metrics"][name];
            assert!(
                metric["median"].is_f64() && metric["samples"].as_array().map(Vec::len) == Some(1),
                "{measure}"
            );
        }
    }
    assert!(paths.iter().any(|path| path["metrics"]["small_mpps"].is_object()), "{table}");
}
