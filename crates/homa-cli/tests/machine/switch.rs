//! Tests `homa switch` from the user's point of view: its errors, and its counters while it runs (as root in
//! namespaces).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use super::common::{self, Scratch, assert_output_refused, stderr};
use serde_json::Value;

fn homa(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.arg("switch").args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    homa(words).output().expect("the binary runs")
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let scratch = Scratch::new("switch-bad");
    let nowhere = scratch.path("nowhere.sock");
    let run_with = |more: &[&'static str]| [&["run", "--ports", "none0,none1"], more].concat();
    for (words, part) in [
        (vec!["run"], "--ports"),
        (vec!["run", "--ports", "none0"], "two ports or more"),
        (run_with(&[]), "none0"),
        (run_with(&["--rate", "10"]), "is no rate"),
        (run_with(&["--rate", "400gbit"]), "use 1000000 to 10000000000"),
        (run_with(&["--buffer", "10x"]), "is no amount"),
        (run_with(&["--buffer", "1us"]), "holds no frame"),
        (run_with(&["--priorities", "9"]), "1 to 8"),
        (run_with(&["--loss", "2"]), "0 to 1"),
        (run_with(&["--rate", "none", "--ecn", "1ms"]), "without a rate"),
        (run_with(&["--alpha", "1"]), "--shared-buffer"),
        (run_with(&["--shared-buffer", "1ms", "--alpha", "0"]), "above 0"),
        (run_with(&["--control", "/nowhere/at/all.sock"]), "/nowhere/at/all.sock"),
        (run_with(&["--trace", "/nowhere/at/all.trace"]), "/nowhere/at/all.trace"),
        (run_with(&["--trace-records", "100"]), "--trace"),
        (vec!["stats", "--control", &nowhere], "no switch listens"),
        (vec!["top", "--control", &nowhere], "no switch listens"),
    ] {
        assert_output_refused(&words, &run(&words), part);
    }
}

/// A switch between two devices with connected peers, in its own namespace.
struct SwitchProcess(Child);

impl SwitchProcess {
    /// Starts the switch. Returns `None`, and prints the reason, if a required privilege or tool is missing.
    fn start(control: &str, metrics: &str) -> Option<SwitchProcess> {
        let script = "ip link add a0 type veth peer name a1 && ip link add b0 type veth peer name b1 && \
                      for d in a0 a1 b0 b1; do ip link set $d up; done && exec \"$@\"";
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_homa")])
            .args(["switch", "run", "--ports", "a0,b0", "--rate", "100mbit", "--control", control, "--json"])
            .args(["--metrics", metrics])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| homa_testkit::skip(format_args!("cannot run `unshare`: {error}")))
            .ok()?;
        let said = BufReader::new(child.stdout.as_mut().expect("it is piped"));
        let lines: Vec<String> = said.lines().map(|line| line.expect("text")).take(2).collect();
        if lines == [format!("metrics unix:{metrics}"), "ready".to_owned()] {
            return Some(SwitchProcess(child));
        }
        let output = child.wait_with_output().expect("it has ended");
        homa_testkit::skip(stderr(&output).trim());
        None
    }

    /// Stops the switch and returns its output.
    fn end(self) -> Output {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        self.0.wait_with_output().expect("it ends")
    }
}

#[test]
fn a_running_switch_tells_its_counters_and_cleans_up() {
    let scratch = Scratch::new("switch-run");
    let control = scratch.path("control.sock");
    let metrics = scratch.path("metrics.sock");
    let Some(switch) = SwitchProcess::start(&control, &metrics) else { return };
    let ask = |words: &[&str]| {
        let output = run(&[&words[..1], &["--control", &control], &words[1..]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let counters: Value = serde_json::from_str(&ask(&["stats", "--json"])).expect("JSON");
    let names: Vec<&str> = ["a0", "b0"].into();
    for (index, name) in names.iter().enumerate() {
        let port = &counters["ports"][index];
        assert_eq!(port["name"], *name);
        assert_eq!(port["queues"].as_array().map(Vec::len), Some(8));
        assert!(port["queues"][7]["depth"]["p99_bytes"].is_u64());
    }
    let table = ask(&["stats"]);
    assert!(table.contains("queued bytes") && table.contains("a0"), "{table}");
    let prometheus = ask(&["stats", "--prometheus"]);
    assert!(prometheus.contains("# TYPE homa_switch_sent_bytes_total counter"));
    assert!(prometheus.contains("homa_switch_depth_p99_bytes{port=\"b0\",priority=\"7\"} 0"), "{prometheus}");
    let served = common::run(["metrics", &metrics, "--json"]);
    let served: Value = serde_json::from_slice(&served.stdout).expect("JSON");
    let names: Vec<&str> = served["metrics"]
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert!(names.contains(&"homa_switch_link_busy_seconds_total"), "{names:?}");
    let looks = ask(&["top", "--interval", "30ms", "--count", "2", "--json"]);
    assert_eq!(looks.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 2);
    let second = run(&["run", "--ports", "x,y", "--control", &control]);
    assert_output_refused(&["run"], &second, "another process listens");
    let output = switch.end();
    assert!(output.status.success(), "{}", stderr(&output));
    let last: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(last["time_ns"].as_u64() > counters["time_ns"].as_u64());
    assert!(!std::path::Path::new(&control).exists(), "its socket is gone");
    assert!(!std::path::Path::new(&metrics).exists(), "its socket is gone");
}
