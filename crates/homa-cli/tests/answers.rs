//! Tests `homa trace` from the user's point of view.

use std::process::Output;
use std::sync::OnceLock;

use super::common::{Scratch, assert_output_refused, run, stderr};
use serde_json::Value;

fn trace(words: &[&str]) -> Output {
    run(["trace"].iter().chain(words).copied())
}

/// Returns the traces of a simulated rack, created only once: W4 at 80 % load between 8 hosts, as RPCs.
fn simulated() -> &'static str {
    static TRACES: OnceLock<Scratch> = OnceLock::new();
    TRACES
        .get_or_init(|| {
            let scratch = Scratch::new("trace-sim");
            let words = "sim run --topology switch --hosts 8 --workload w4 --load 0.7 --warm-up 10ms --duration 2ms --exchange echo --trace-records 1000000";
            let path = scratch.path("");
            let json = scratch.path("results.json");
            let output = run(words.split(' ').chain(["--trace", &path, "--json", &json]));
            assert!(output.status.success(), "{}", stderr(&output));
            scratch
        })
        .0
        .to_str()
        .expect("a path of characters")
}

/// Returns the JSON result of a command for the simulated rack.
fn found(words: &[&str]) -> Value {
    let output = trace(&[words, &["--json", "-", simulated()]].concat());
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    assert!(!stderr(&output).is_empty(), "{words:?}: no table");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

#[test]
fn a_node_that_is_not_there_is_named() {
    let words = ["delays", simulated(), "--node", "nobody"];
    assert_output_refused(&words, &trace(&words), "no trace is of `nobody`; there are host-0");
}

#[test]
fn packets_of_a_simulated_rack_have_their_lives() {
    let delays = found(&["delays", "--pairs"]);
    let tables = delays["tables"].as_array().expect("tables");
    let whole: Vec<&Value> = tables.iter().filter(|table| table["from"].is_null()).collect();
    assert_eq!(whole.len(), 4, "DATA and GRANT, both ways");
    for table in whole {
        assert!(table["stages"]["network"]["p0"].as_i64() > Some(0), "{table}");
        assert_eq!(table["stages"]["network"]["count"], table["stages"]["total"]["count"]);
    }
    assert!(tables.iter().any(|table| table["from"] == "host-0" && table["to"] == "host-7"));
}

#[test]
fn bytes_of_a_simulated_rack_are_kept() {
    let throughput = found(&["throughput", "--interval", "100us"]);
    let sum = |name: &str| -> u64 {
        let nodes = throughput["nodes"].as_array().expect("nodes");
        let bytes = nodes.iter().flat_map(|node| node[name].as_array().expect("intervals"));
        bytes.map(|bytes| bytes.as_u64().expect("bytes")).sum()
    };
    let (out, came, good) = (sum("out_bytes"), sum("in_bytes"), sum("goodput_bytes"));
    // Only packets in flight at the end of the traces are missing.
    assert!(came <= out && came > out / 10 * 9, "{came} of {out}");
    assert!(good < came && good > came / 10 * 8, "{good} of {came}");
}

#[test]
fn a_simulated_rack_without_faults_loses_nothing() {
    let lost = found(&["lost"]);
    assert_eq!(lost["losses"].as_array().map(Vec::len), Some(0), "{lost}");
    assert!(lost["packets"].as_u64() > Some(1_000));
    let priorities = found(&["priorities"]);
    assert_eq!(priorities["switch_inversions"], 0);
    assert!(priorities["messages"].as_u64() > Some(100));
}

#[test]
fn what_a_simulation_does_not_record_is_said_with_what_does() {
    for (command, part) in [("polls", "no bursts are in these traces"), ("cores", "no record has a core")] {
        let words = [command, simulated()];
        assert_output_refused(&words, &trace(&words), part);
    }
}

#[test]
fn extra_delays_sum_up() {
    let found = found(&["decompose"]);
    assert_eq!(found["unequal"], 0);
    let sums = &found["sums"];
    let of = |name: &str| sums[name].as_i64().expect("a sum");
    assert!(of("extra_ns") > 0);
    assert_eq!(of("extra_ns"), of("sender_ns") + of("switch_ns") + of("poll_ns") + of("receive_ns"));
    // The rate is 10 Gbit/s, derived from the densest packets.
    let bps = found["rate"]["bps"].as_f64().expect("a rate");
    assert!((9.99e9..10.01e9).contains(&bps), "{bps}");
    let check = &found["check"];
    assert!(check["error_p50_percent"].as_f64().is_some_and(|error| error <= 1.0), "{check}");
    assert!(found["worst"].as_array().is_some_and(|worst| worst.len() == 20));
}

#[test]
fn grants_of_a_simulated_rack_are_told() {
    let grants = found(&["grants", "--rate", "10gbit"]);
    let pairs = grants["pairs"].as_array().expect("pairs");
    assert!(!pairs.is_empty() && grants["way_ns"]["p0"].as_i64() > Some(0), "{grants}");
    let incoming = found(&["incoming", "--rate", "10gbit"]);
    for receiver in incoming["receivers"].as_array().expect("receivers") {
        let used = receiver["link_use"].as_f64().expect("a share");
        assert!(used > 0.0 && used < 1.05, "{receiver}");
    }
    let first = found(&["first-grant"]);
    assert!(first["sizes"].as_array().is_some_and(|sizes| !sizes.is_empty()));
    let bytes = found(&["rtt-bytes", "--rate", "10gbit"]);
    let path = &bytes["paths"][0];
    // A round trip consists of a full packet and a grant through one switch, so it takes longer than the
    // packet.
    assert!(path["round_ns"]["p0"].as_i64() > Some(2_000), "{path}");
    assert!(
        path["rtt_bytes"].as_u64() > Some(2_000) && path["line"]["ns_per_byte"].as_f64() > Some(0.8),
        "{path}"
    );
    assert!(
        found(&["pacer"])["nodes"].is_array() && found(&["copy"])["hand_over"]["count"].as_u64() > Some(0)
    );
}
