//! Tests merging and exporting time traces, as a user would do it.

use std::fs::{self, File};

use super::common::traces::{dump_of, merged, planted, write};
use super::common::{Scratch, assert_output_refused, run, stderr};
use homa_trace::{Dump, EventKind, read_dumps};
use serde_json::Value;

/// Simulates a network of eight hosts under this load and writes its traces. With longer traces, drift can be
/// determined more precisely.
fn simulated(name: &str, load: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let (out, traces) = (scratch.path("out"), scratch.path("traces"));
    fs::create_dir(&out).expect("a directory");
    let words = "sim run --transport homa --workload w3 --hosts 8 --racks 2 --warm-up 0 --seed 7 --trace-records 262144";
    let output = run(words.split(' ').chain(load.split(' ')).chain(["--out", &out, "--trace", &traces]));
    assert!(output.status.success(), "{}", stderr(&output));
    scratch
}

fn assert_refused(words: &[&str], part: &str) {
    let words = [&["trace"], words].concat();
    assert_output_refused(&words, &run(words.iter().copied()), part);
}

/// Changes the clock of a dump, so that it has this offset at time zero and runs fast by this much.
fn plant(dump: &mut Dump, (offset_ns, ppm): (i64, f64)) {
    // No time may become negative.
    const LATER_NS: i64 = 100_000_000_000;
    for record in &mut dump.records {
        let drift = (record.time as f64 * ppm / 1e6).round() as i64;
        record.time = (record.time as i64 + LATER_NS + offset_ns + drift) as u64;
    }
}

#[test]
fn planted_offsets_and_drifts_of_simulated_hosts_are_found() {
    let scratch = simulated("trace-planted", "--load 0.05 --duration 200ms");
    let names = scratch.files("traces");
    assert!(names.len() > 8, "eight hosts and switches: {names:?}");
    let mut ends = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let name = format!("traces/{name}");
        let mut dump = dump_of(&scratch, &name);
        ends.push((dump.records[0].time, dump.records[dump.records.len() - 1].time));
        plant(&mut dump, planted(number));
        write(&scratch, &name, &dump);
    }
    let out = scratch.path("merged.trace");
    let found = merged(&[&scratch.path("traces"), "--out", &out, "--reference", "host-0"]);
    assert_eq!(found["warnings"], Value::Array(Vec::new()));
    let dumps = read_dumps(&mut File::open(&out).expect("written")).expect("traces");
    assert_eq!(dumps.len(), names.len());
    for (number, dump) in dumps.iter().enumerate() {
        let node = &found["nodes"][number];
        let of = |name: &str| node[name].as_f64().expect("a number");
        // The paths to and from a switch have different lengths.
        let most = if node["kind"] == "switch" { of("max_error_ns") + 50.0 } else { 1_000.0 };
        // The correct times of this node's first and last records, on the first host's clock.
        for (record, truth) in [(0, ends[number].0), (dump.records.len() - 1, ends[number].1)] {
            let error = dump.time_ns(&dump.records[record]) as i64 - 100_000_000_000 - truth as i64;
            assert!((error.abs() as f64) < most, "{error} ns off: {node}");
        }
        let ppm = of("drift_ppm") + planted(number).1;
        assert!(ppm.abs() < 1.0, "{ppm} ppm off: {node}");
    }
}

#[test]
fn a_viewer_gets_whole_json_with_both_ends_of_everything() {
    let scratch = simulated("trace-export", "--load 0.5 --duration 1ms");
    let (traces, out) = (scratch.path("traces"), scratch.path("trace.json"));
    let output = run(["trace", "export", &traces, "--same-clock", "--out", &out]);
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&fs::read(&out).expect("written")).expect("JSON");
    let events = document["traceEvents"].as_array().expect("a list");
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    let files = scratch.files("traces");
    let of_file = |name: &String| dump_of(&scratch, &format!("traces/{name}")).records.len();
    let records: usize = files.iter().map(of_file).sum();
    assert_eq!(count("i") + count("X"), records);
    assert!(count("b") > 100 && count("b") == count("e"));
    assert!(count("s") > 1_000 && count("s") == count("f"));
    let names: Vec<&Value> = events.iter().filter(|event| event["name"] == "process_name").collect();
    assert_eq!(names.len(), files.len());
    for event in events {
        assert!(event["pid"].is_u64() && event["tid"].is_u64() && event["ts"].is_number(), "{event}");
        let wanted = match event["ph"].as_str() {
            Some("X") => "dur",
            Some("i") => "s",
            Some("b" | "e") => "id2",
            Some("s" | "f") => "id",
            Some("M" | "C") => "args",
            _ => panic!("{event}"),
        };
        assert!(!event[wanted].is_null() && event["name"].is_string(), "{event}");
    }
}

#[test]
fn text_has_a_line_for_each_event_that_is_wanted() {
    let scratch = simulated("trace-text", "--load 0.5 --duration 3ms");
    let traces = scratch.path("traces");
    let text = |more: &[&str]| {
        let words =
            [&["trace", "export", &traces, "--same-clock", "--format", "text", "--out", "-"], more].concat();
        let output = run(words);
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let dump = dump_of(&scratch, "traces/host-3.trace");
    assert_eq!(text(&["--node", "host-3"]).lines().count(), dump.records.len());
    let start =
        dump.records.iter().find(|record| record.event() == Some(EventKind::RpcStart)).expect("an RPC");
    let of_rpc = text(&["--rpc", &(start.id ^ 1).to_string()]);
    assert!(
        of_rpc.contains("rpc_start") && of_rpc.contains("DATA of") && of_rpc.contains("host-3"),
        "{of_rpc}"
    );
    let ids = [format!("rpc {} ", start.id), format!("rpc {} ", start.id ^ 1)];
    assert!(of_rpc.lines().all(|line| ids.iter().any(|id| line.contains(id))), "{of_rpc}");
    let times = |text: &str| -> Vec<f64> {
        text.lines()
            .map(|line| line.split(" us").next().and_then(|time| time.trim().parse().ok()).expect("a time"))
            .collect()
    };
    let part = times(&text(&["--from", "1ms", "--to", "1500us"]));
    assert!(part.len() > 100 && part.is_sorted() && part[0] >= 1_000.0 && part[part.len() - 1] <= 1_500.0);
}

#[test]
fn files_that_do_not_do_are_named() {
    let scratch = simulated("trace-refused", "--load 0.5 --duration 3ms");
    let (first, second) = (scratch.path("traces/host-0.trace"), scratch.path("traces/host-1.trace"));
    assert_refused(&["merge", &first, &second, &first], "host-0.trace: it is of node host-0, and so is");
    let mut live = dump_of(&scratch, "traces/host-1.trace");
    live.start_ns = 1_000_000;
    write(&scratch, "live.trace", &live);
    assert_refused(&["merge", &first, &scratch.path("live.trace")], "live.trace of a live host");
    assert_refused(
        &["merge", &first, "--reference", "host-9"],
        "--reference: no trace is of `host-9`; there are host-0",
    );
    assert_refused(&["merge", &scratch.path("out")], "there is no *.trace in the directory");
    assert_refused(&["merge", &first, "--out", "/proc/x/merged.trace"], "cannot write /proc/x/merged.trace");
    assert_refused(&["merge", &scratch.path("none.trace")], "cannot read");
    assert_refused(&["merge"], "FILE|DIR");
}

/// Nodes without common packets are merged, but with a warning.
#[test]
fn who_cannot_be_aligned_is_said() {
    let scratch = simulated("trace-alone", "--load 0.5 --duration 3ms");
    let mut alone = dump_of(&scratch, "traces/host-1.trace");
    alone.records.retain(|record| record.id == 0 || record.event() == Some(EventKind::RpcStart));
    write(&scratch, "traces/host-1.trace", &alone);
    let found = merged(&[&scratch.path("traces"), "--by-packets"]);
    assert_eq!(found["nodes"][1]["reference"], Value::Null);
    assert_eq!(found["warnings"][0], "host-1 keeps its own time: no packet of it is in another trace");
}

#[test]
fn clocks_of_this_machine_are_compared_and_traces_tell_theirs() {
    let scratch = simulated("trace-clocks", "--load 0.5 --duration 3ms");
    let trace = scratch.path("traces/host-0.trace");
    let output = run(["trace", "clocks", "--seconds", "0.05", &trace, "--json", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let clocks = found["clocks"].as_array().expect("a list");
    let named = |name: &str| clocks.iter().find(|clock| clock["clock"] == name);
    let day = named("gettimeofday").expect("there");
    assert!(day["resolution_ns"].as_f64().is_some_and(|ns| ns > 900.0), "{day}");
    let raw = named("CLOCK_MONOTONIC_RAW").expect("there");
    assert_eq!((raw["steps_back"].as_u64(), raw["drift_ppm"].as_f64()), (Some(0), Some(0.0)), "{raw}");
    assert_eq!(found["tsc_invariant"], named("TSC").is_some());
    assert_eq!(
        (&found["traces"][0]["node"], &found["traces"][0]["clock"]),
        (&"host-0".into(), &"virtual".into())
    );
}

#[test]
fn a_slow_rpc_freezes_all_simulated_traces_at_its_end() {
    let scratch =
        simulated("trace-freeze", "--load 0.8 --exchange echo --duration 1ms --trace-slower-than 30us");
    let traces = fs::read_dir(scratch.path("traces")).expect("traces");
    let names = traces.map(|entry| format!("traces/{}", entry.expect("an entry").file_name().display()));
    let dumps: Vec<Dump> = names.map(|name| dump_of(&scratch, &name)).collect();
    let freezes = dumps
        .iter()
        .flat_map(|dump| &dump.records)
        .filter(|record| record.event() == Some(EventKind::Freeze));
    let freezes: Vec<(u64, u64)> = freezes.map(|record| (record.time, record.id)).collect();
    assert_eq!(freezes.len(), dumps.len());
    let (at, slow) = *freezes.iter().max_by_key(|freeze| freeze.1).expect("traces");
    assert!(freezes.iter().all(|freeze| freeze.0 == at) && slow > 0);
    // The trace froze when the first RPC had taken this long, so it contains that RPC from its start until it
    // had taken this long.
    let starts = dumps.iter().flat_map(|dump| &dump.records);
    let start = starts
        .filter(|record| record.id == slow && record.event() == Some(EventKind::AppSend))
        .map(|record| record.time);
    assert!(start.min().is_some_and(|start| at - start >= 30_000));
}
