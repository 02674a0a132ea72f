//! Tests `homa trace` from the user's point of view, on traces from the simulator: tables, JSON and errors.

use std::fs;

use super::common::{Scratch, assert_output_refused, run, stderr};
use serde_json::Value;

/// Runs the simulator and writes its traces to `scratch`. Returns the directory of the traces.
fn simulated(scratch: &Scratch, name: &str, seed: u32, more: &[&str]) -> String {
    let traces = scratch.path(name);
    let (json, seed) = (scratch.path("run.json"), seed.to_string());
    let words = ["sim", "run", "--exchange", "echo", "--trace", &traces, "--json", &json, "--seed", &seed];
    let records = ["--trace-records", "300000", "--warm-up", "500us", "--hosts", "8"];
    let output = run(words.iter().chain(&records).chain(more).copied());
    assert!(output.status.success(), "{}", stderr(&output));
    traces
}

fn answer(words: &[&str]) -> Value {
    let output = run(["trace"].iter().chain(words).chain(&["--json", "-"]).copied());
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(words: &[&str]) -> String {
    let output = run(["trace"].iter().chain(words).copied());
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Checks that for at least nine of ten seeds, the analysis finds the injected cause, at a place whose name
/// ends with `place`.
fn assert_found(name: &str, (causes, place): (&[&str], &str), planted: &[&str]) {
    let found = (1..=10).filter(|seed| {
        let scratch = Scratch::new(&format!("trace-{name}-{seed}"));
        let traces = simulated(&scratch, "traces", *seed, planted);
        let tail = answer(&["tail", "--percentile", "90", "--rate", "25gbit", &traces]);
        let main = tail["main_cause"]["cause"].as_str().unwrap_or("none").to_owned();
        let said = tail["main_cause"]["where"].as_str().unwrap_or_default().to_owned();
        let is_right = causes.contains(&&*main) && said.ends_with(place);
        if !is_right {
            println!("{name}, seed {seed}: {main} at {said}");
        }
        is_right
    });
    let found = found.count();
    assert!(found >= 9, "{name}: {found} of 10");
}

const ONE_SWITCH: &[&str] = &["--topology", "switch", "--rate", "25gbit"];

#[test]
fn losses_are_found() {
    let planted =
        [ONE_SWITCH, &["--workload", "w3", "--load", "0.1", "--loss", "0.01", "--duration", "1ms"]].concat();
    assert_found("loss", (&["loss_wait"], ""), &planted);
}

#[test]
fn windows_that_are_too_small_are_found() {
    let small = ["--set", "window=3000", "--set", "unsched_bytes=3000", "--set", "min_grant_increment=1400"];
    let planted =
        [ONE_SWITCH, &["--workload", "100000", "--load", "0.05", "--duration", "5ms"], &small].concat();
    assert_found("window", (&["grant_window"], ""), &planted);
}

#[test]
fn a_pacer_at_half_the_rate_is_found() {
    let planted = ["--preset", "atc21", "--duration", "5ms", "--workload", "50000", "--load", "0.1"];
    let half = ["--set", "link_mbps=12500"];
    assert_found("pacer", (&["pacer"], ""), &[&planted[..], &half].concat());
}

/// Seven hosts send unscheduled packets to one host, faster than its link can carry them.
#[test]
fn a_queue_that_stands_at_a_port_is_found_there() {
    let planted = ["--workload", "w2", "--senders", "7", "--incast-interval", "10us", "--duration", "1ms"];
    let planted = [ONE_SWITCH, &planted].concat();
    assert_found("queue", (&["switch_queue"], "(host-0)"), &planted);
}

#[test]
fn everything_is_told_of_an_rpc_and_adds_up() {
    let scratch = Scratch::new("trace-rpc");
    let traces =
        simulated(&scratch, "traces", 3, &["--workload", "w3", "--load", "0.5", "--duration", "2ms"]);
    let tail = answer(&["tail", &traces]);
    let worst = &tail["worst"][0];
    let id = worst["id"].as_u64().expect("an id");
    let rpc = answer(&["rpc", &id.to_string(), &traces]);
    let spans = rpc["path"].as_array().expect("spans");
    let sum: u64 =
        spans.iter().map(|span| span["to_ns"].as_u64().unwrap() - span["from_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), worst["duration_ns"].as_u64());
    assert_eq!(rpc["duration_ns"], worst["duration_ns"]);
    // The server's ID and hexadecimal notation are accepted, too.
    let of_server = answer(&["rpc", &format!("{:#x}", id + 1), &traces]);
    assert_eq!(of_server, rpc);
    let words = text(&["rpc", &id.to_string(), &traces]);
    for part in ["Causes of its time", "Around", "Events", "packet_sent", "slowdown"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let summary = answer(&["summary", &traces]);
    let nodes = summary["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.iter().filter(|node| node["kind"] == "host").count(), 8);
    assert_eq!(summary["whole"], tail["rpcs"]);
    assert!(text(&["tail", &traces]).contains("Main cause: "));
}

#[test]
fn lists_stages_differences_and_the_page_are_of_the_same_rpcs() {
    let scratch = Scratch::new("trace-all");
    let load = ["--workload", "w2", "--duration", "200us", "--load"];
    let slow = simulated(&scratch, "slow", 1, &[&load[..], &["0.8"]].concat());
    let fast = simulated(&scratch, "fast", 1, &[&load[..], &["0.1"]].concat());
    let listed = answer(&["rpcs", "--min-slowdown", "1", "--limit", "5", &slow]);
    assert_eq!(listed["rpcs"].as_array().map(Vec::len), Some(5));
    let slowdowns: Vec<f64> =
        listed["rpcs"].as_array().unwrap().iter().map(|rpc| rpc["slowdown"].as_f64().unwrap()).collect();
    assert!(slowdowns.is_sorted_by(|a, b| a >= b), "{slowdowns:?}");
    assert_eq!(answer(&["rpcs", "--failed", &slow])["meant"], 0);

    let timeline = answer(&["timeline", &slow]);
    for band in ["fastest", "median", "p99"] {
        let stages = timeline["bands"][band]["stages"].as_array().expect("stages");
        let sides = |stage: &Value| {
            stage["client_ns"].as_f64().unwrap_or(0.0) + stage["server_ns"].as_f64().unwrap_or(0.0)
        };
        let (total, rest): (Vec<&Value>, Vec<&Value>) =
            stages.iter().partition(|stage| stage["stage"] == "total");
        let sum: f64 = rest.into_iter().map(sides).sum();
        assert!((sum - sides(total[0])).abs() < 1.0, "{band}: {stages:?}");
    }
    let diff = answer(&["diff", &slow, &fast]);
    assert!(diff["by_size"].as_array().is_some_and(|rows| !rows.is_empty()));
    assert!(text(&["diff", &slow, &fast]).contains("by size"));

    let page = scratch.path("page.html");
    let output = run(["trace", "report", "--worst", "3", "--out", &page, &slow]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(page).expect("a page");
    assert_eq!(page.matches("<figcaption>RPC ").count(), 3);
    for part in ["Main cause", "Durations by size", "class=\"c-network\"", "</html>"] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["http://", "https://", "NaN", "<script"] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn what_the_traces_do_not_have_is_named() {
    let scratch = Scratch::new("trace-files");
    let traces = simulated(&scratch, "traces", 1, &["--workload", "w1", "--duration", "200us"]);
    for (words, part) in [
        (vec!["rpc", "0xzz", &traces], "0xzz"),
        (vec!["rpc", "1", &traces], "RPC 1"),
        (vec!["tail", "--node", "nobody", &traces], "nobody"),
        (vec!["tail", "--percentile", "100", &traces], "less than 100"),
        (vec!["tail"], "FILE"),
    ] {
        assert_output_refused(&words, &run(["trace"].iter().chain(&words).copied()), part);
    }
}
