//! Tests `homa bench bridge` from the user's point of view: its errors and, as root, that each variant has
//! either values or a reason why not.

use std::process::Output;

use super::common::{Scratch, assert_output_refused, is_busy, run, stderr};
use serde_json::Value;

fn bench(words: &str) -> Output {
    run(["bench", "bridge"].into_iter().chain(words.split_whitespace()))
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (words, part) in [
        ("--variant burst-2", "burst-8"),
        ("--path carrier-pigeon", "carrier-pigeon"),
        ("--frame-bytes 63", "--frame-bytes"),
        ("--repetitions 0", "--repetitions"),
        ("--duration 1", "--duration"),
        ("--json /nowhere/at/all.json", "/nowhere/at/all.json"),
    ] {
        assert_output_refused(&[words], &bench(words), part);
    }
}

#[test]
fn every_variant_gives_values_or_says_why_not() {
    let scratch = Scratch::new("bridge");
    let words = format!("--duration 30 --repetitions 1 --out {}", scratch.path(""));
    let output = bench(&words);
    if !output.status.success() {
        // The command is refused without root, without `ip`, or without namespaces.
        assert_output_refused(&[&words], &output, "");
        return homa_testkit::skip(stderr(&output).trim());
    }
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("bursts of 64") && table.contains("Earlier findings"), "{table}");
    assert_eq!(scratch.files(""), ["report.html", "results.json"]);
    let json = std::fs::read(scratch.path("results.json")).expect("readable");
    let results: Value = serde_json::from_slice(&json).expect("JSON");
    let rows = results["rows"].as_array().expect("rows");
    assert!(rows.len() >= 19);
    let (mut measured, mut busy) = (0, 0);
    for row in rows {
        if let Some(why) = row["skipped"].as_str() {
            // Measurements made before the variant failed, if any, are kept.
            if is_busy(why) {
                busy += 1;
            } else if row["mpps"]["samples"].as_array().is_none_or(Vec::is_empty) {
                homa_testkit::skip(format_args!("{}: {why}", row["name"]));
            }
            continue;
        }
        measured += 1;
        // A thread that is not scheduled during the 30 ms of a measurement forwards nothing.
        let has_moved = |row: &Value| row["mpps"]["median"].as_f64() > Some(0.0);
        let mut values = vec![&row["mpps"]["median"], &row["flow_mpps"]["median"]];
        values.extend(has_moved(&rows[0]).then_some(&row["ratio"]["median"]));
        assert!(values.iter().all(|value| value.is_f64()), "{row}");
        if !has_moved(row) {
            continue;
        }
        let most =
            if row["name"].as_str().is_some_and(|name| name.ends_with("burst-1")) { 1.0 } else { 64.0 };
        if row["name"] != "linux" {
            assert!(row["taken"]["mean"].as_f64().is_some_and(|mean| mean <= most), "{row}");
        }
        let handed = row["handed"].is_object();
        assert_eq!(
            handed,
            row["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("handover") || name.starts_with("both-2"))
        );
    }
    assert!(measured > 0 && measured + busy >= 10, "{table}");
    for metric in ["mpps", "flow_mpps"] {
        assert!(rows.iter().any(|row| row[metric]["median"].as_f64() > Some(0.0)), "{metric}: {table}");
    }
}
