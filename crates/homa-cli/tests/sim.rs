//! Tests `homa sim` from the user's point of view: its tables, JSON, files and errors.

use std::fs;
use std::process::{Command, Output, Stdio};

use super::common::{Scratch, assert_output_refused, stderr};
use serde_json::{Value, json};

fn homa(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.arg("sim").args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    homa(words).output().expect("the binary runs")
}

fn stdout(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Checks that a command is refused, like [`assert_output_refused`].
fn assert_refused(words: &[&str], part: &str) {
    assert_output_refused(words, &run(words), part);
}

/// Options for a network and a duration that can be simulated quickly.
const SMALL: &[&str] =
    &["--hosts", "8", "--racks", "2", "--duration", "500us", "--warm-up", "100us", "--workload", "w2"];

fn small<'a>(first: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[first], SMALL, more].concat()
}

#[test]
fn a_run_prints_tables_and_writes_a_page_that_needs_nothing_else() {
    let scratch = Scratch::new("run");
    let out = scratch.path("");
    let text = stdout(&small("run", &["--transport", "homa,oracle", "--load", "0.5", "--out", &out]));
    for part in [
        "bytes up to",
        "homa",
        "oracle",
        "P99.9",
        "goodput",
        "downlinks wasted",
        "queue to host, P99",
        "resends",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(scratch.files("."), ["report.html", "results.json"]);
    let page = scratch.read("report.html");
    assert_eq!(page.matches("<svg class=\"wide\"").count(), 3);
    assert!(page.contains("Messages under way") && page.contains("measured from here"), "{page}");
    for outside in ["http:", "https:", "src=", "@import", "url(", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn json_has_stable_names() {
    let text = stdout(&small("run", &["--json", "-", "--seed", "3"]));
    let json: Value = serde_json::from_str(&text).expect("JSON and nothing else");
    assert_eq!(json["schema"], 1);
    let setup = &json["setup"];
    for (name, value) in
        [("hosts", json!(8)), ("racks", json!(2)), ("duration", json!(500_000)), ("workload", json!("w2"))]
    {
        assert_eq!(setup[name], value, "{name}");
    }
    assert_eq!((&setup["seed"], &setup["load"]), (&Value::from(3), &Value::from(0.8)));
    assert!(setup["homa"]["max_overcommit"].is_u64(), "{setup}");
    let run = &json["runs"][0];
    for name in [
        "started",
        "delivered",
        "unfinished",
        "goodput",
        "slowdown_mean",
        "downlink_wasted",
        "dropped",
        "lost",
        "hops",
        "events",
        "bytes_by_priority",
        "transport_counts",
    ] {
        assert!(!run[name].is_null(), "{name}: {run}");
    }
    for name in ["max_bytes", "count", "slowdown_p50", "slowdown_p99", "slowdown_p999"] {
        assert!(run["bins"][0][name].is_number(), "{name}");
    }
    for name in ["mean_bytes", "p99_bytes", "max_bytes"] {
        assert!(run["edge_queue"][name].is_number(), "{name}");
    }
}

/// A run that is too short and starts from an empty network prints a warning, and its JSON contains the
/// figures for it. A run in steady state prints no warning.
#[test]
fn a_run_says_whether_it_was_in_steady_state() {
    let of = |more: &[&str]| {
        let output = run(&[&["run", "--hosts", "8", "--racks", "2", "--json", "-"], more].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (json["runs"][0]["steady"].clone(), stderr(&output))
    };
    let (steady, text) = of(&["--workload", "w4", "--warm-up", "0us", "--duration", "3ms", "--drain", "1ms"]);
    assert_eq!(steady["reached"], false, "{steady}");
    assert!(text.contains("homa: not in steady state: "), "{text}");
    assert!(text.contains("had not arrived when the run ended"), "{text}");
    for name in [
        "backlog_bytes",
        "backlog_rise",
        "downlink_idle",
        "downlink_idle_rise",
        "completed_over_offered",
        "offered_over_load",
        "unfinished_share",
    ] {
        assert!(steady[name].is_number(), "{name}: {steady}");
    }
    assert_eq!(steady["course"]["backlog_bytes"].as_array().map(Vec::len), Some(100));
    let (steady, text) = of(&["--workload", "w1", "--load", "0.5", "--duration", "4ms"]);
    assert_eq!(steady["reached"], true, "{steady}");
    assert!(!text.contains("steady state: "), "{text}");
}

#[test]
fn what_a_load_counts_is_said_and_can_be_chosen() {
    let of = |more: &[&str]| -> Value {
        let words = [
            "run",
            "--hosts",
            "8",
            "--racks",
            "2",
            "--workload",
            "w4",
            "--warm-up",
            "1ms",
            "--duration",
            "5ms",
        ];
        serde_json::from_str(&stdout(&[&words, more, &["--json", "-"]].concat())).expect("JSON")
    };
    let (data, grants) = (of(&[]), of(&["--load-counts", "grants"]));
    assert_eq!(
        (&data["setup"]["load_counts"], &grants["setup"]["load_counts"]),
        (&json!("data"), &json!("grants"))
    );
    let started = |json: &Value| json["runs"][0]["started"].as_f64().expect("a number");
    assert!(started(&grants) < started(&data), "{} {}", started(&grants), started(&data));
}

#[test]
fn connections_reach_tcp() {
    let of = |connections: &str| -> u64 {
        let words = small("run", &["--transport", "tcp", "--connections", connections, "--json", "-"]);
        let json: Value = serde_json::from_str(&stdout(&words)).expect("JSON");
        assert_eq!(json["setup"]["connections"], connections);
        json["runs"][0]["transport_counts"]["connections"].as_u64().expect("a number")
    };
    assert!(of("2") <= 8 * 7 * 2);
    assert!(of("message") > 1_000);
}

#[test]
fn speed_is_said_beside_the_results_and_in_them_only_when_asked_for() {
    let words = small("run", &["--transport", "homa,basic", "--json", "-"]);
    let plain = run(&words);
    assert!(stderr(&plain).contains("M packet-hops/s"), "{}", stderr(&plain));
    let plain: Value = serde_json::from_slice(&plain.stdout).expect("JSON");
    assert!(plain.get("speed").is_none(), "it differs from run to run");
    let mut timed: Value = serde_json::from_str(&stdout(&[&words[..], &["--speed"]].concat())).expect("JSON");
    let speed = timed.as_object_mut().and_then(|json| json.remove("speed")).expect("asked for");
    let speed = speed.as_array().expect("runs");
    assert_eq!(speed.len(), 2);
    for (index, (speed, name)) in speed.iter().zip(["homa", "basic"]).enumerate() {
        assert_eq!((&speed["transport"], &speed["hops"]), (&json!(name), &plain["runs"][index]["hops"]));
        for name in ["cpu_s", "hops_per_s", "events_per_s"] {
            assert!(speed[name].as_f64() > Some(0.0), "{name}: {speed}");
        }
    }
    assert_eq!(timed, plain);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let of = |jobs| stdout(&small("run", &["--transport", "homa,oracle", "--json", "-", "--jobs", jobs]));
    assert_eq!(of("1"), of("2"));
}

#[test]
fn another_seed_is_another_run() {
    let of = |seed| {
        let text = stdout(&small("run", &["--json", "-", "--seed", seed]));
        serde_json::from_str::<Value>(&text).expect("JSON")["runs"][0]["bins"].clone()
    };
    assert_ne!(of("1"), of("2"));
}

const PUBLISHED: &str = "protocol,size_bytes,percent_of_messages,slowdown_mean,slowdown_p50,slowdown_p99\n\
                         Homa,1000,50,1.5,1.4,2\nHoma,2000,50,1.5,1.4,2.5\n";

#[test]
fn published_values_are_drawn_where_they_belong() {
    let scratch = Scratch::new("published");
    let csv = scratch.write("mine.csv", "size,cumulative_fraction\n1000,0.5\n2000,1\n");
    let published = scratch.write("published.csv", PUBLISHED);
    let out = scratch.path("");
    let base = [
        "run",
        "--hosts",
        "4",
        "--duration",
        "200us",
        "--warm-up",
        "0",
        "--out",
        &out,
        "--published",
        &published,
    ];
    stdout(&[&base[..], &["--workload", &csv]].concat());
    let page = scratch.read("report.html");
    assert_eq!(
        page.matches("curve homa reference").count(),
        4,
        "P50 and P99, each for wide and for narrow pages"
    );
    assert!(page.contains("Homa, published"));
    assert_refused(&[&base[..], &["--workload", "w1"]].concat(), "published.csv: line 2: it is not about w1");
    let odd = PUBLISHED.replace("Homa,2000,50", "Homa,2000,20");
    scratch.write("published.csv", &odd);
    assert_refused(&[&base[..], &["--workload", &csv]].concat(), "published.csv: line 3: ");
    assert_refused(&[&base[..], &["--preset", "atc21"]].concat(), "those of preset sigcomm18");
}

#[test]
fn the_marking_threshold_reaches_dctcp() {
    let of = |threshold: &str| -> Value {
        let words = small("run", &["--transport", "dctcp", "--ecn", threshold, "--json", "-"]);
        serde_json::from_str(&stdout(&words)).expect("JSON")
    };
    let (short, long) = (of("3kB"), of("300kB"));
    assert_eq!((&short["setup"]["ecn"], &long["setup"]["ecn"]), (&json!(3_000), &json!(300_000)));
    assert_ne!(short["runs"][0]["bins"], long["runs"][0]["bins"]);
    assert_refused(&small("run", &["--ecn", "3kB"]), "ecn: it changes nothing without transport dctcp");
    assert_refused(
        &small("run", &["--transport", "tcp", "--overcommit", "2"]),
        "overcommit: it changes nothing without transport homa",
    );
}

#[test]
fn an_incast_has_senders_and_no_load() {
    let words =
        ["run", "--preset", "incast", "--hosts", "8", "--senders", "20", "--duration", "3ms", "--json", "-"];
    let json: Value = serde_json::from_str(&stdout(&words)).expect("JSON");
    assert_eq!((&json["setup"]["senders"], &json["setup"]["load"]), (&Value::from(20), &Value::Null));
    assert_eq!(json["runs"][0]["started"], 60);
    assert_refused(&[&words[..], &["--load", "0.5"]].concat(), "an incast has no load");
}

#[test]
fn names_and_numbers_that_make_no_run_are_refused() {
    let scratch = Scratch::new("refused");
    let csv = scratch.write("wrong.csv", "size,cumulative_fraction\n100,0.5\n90,1\n");
    for (words, part) in [
        (&["--preset", "sigcom18"][..], "unknown preset `sigcom18`: use sigcomm18, atc21, incast"),
        (&["--transport", "homa,quic"], "unknown transport `quic`: use homa"),
        (&["--workload", "w9"], "unknown workload `w9`"),
        (&["--workload", &csv], "line 3"),
        (&["--workload", "none.csv"], "none.csv"),
        (&["--load", "1.01"], "load: must be above 0 and at most 1"),
        (&["--load", "0"], "load: must be above 0 and at most 1"),
        (&["--load", "-0.5"], "load: must be above 0 and at most 1"),
        (&["--load", "nan"], "load: must be above 0 and at most 1"),
        (&["--hosts", "1"], "hosts: must be 2"),
        (&["--spines", "0"], "spines: must be at least 1"),
        (&["--hosts-per-rack", "0"], "hosts per rack: must be at least 1"),
        (&["--topology", "ring"], "use leaf-spine or switch"),
        (&["--duration", "50"], "duration: `50` is no time"),
        (&["--duration", "0"], "duration: must be above 0"),
        (&["--rate", "10"], "rate: `10` is no rate"),
        (&["--loss", "1"], "loss: must be at least 0 and below 1"),
        (&["--port-buffer", "100"], "buffer: must have room for a full packet"),
        (&["--sample", "0"], "sample interval: must be at least 1 ns"),
        (&["--bins", "0"], "bins: must be 1 to 1000"),
        (&["--priorities", "9"], "priorities: must be 1 to 8"),
        (&["--set", "overcommit=3"], "homa.overcommit: there is no such setting: use wire_dialect"),
        (&["--set", "max_overcommit"], "use NAME=VALUE"),
        (&["--set", "max_overcommit=0"], "homa.max_overcommit: must be at least 1"),
        (&["--messages", "0"], "messages: must be at least 1"),
        (&["--transport", "homa,homa"], "transport: homa is listed twice"),
        (&["--shared-buffer", "1MB", "--buffer-share", "200"], "buffer-share: must be 1 to 100"),
        (&["--shared-buffer", "1MB", "--buffer-share", "0"], "buffer-share: must be 1 to 100"),
        (&["--hosts", "100", "--racks", "3"], "racks: 100 hosts do not fill 3 racks evenly"),
        (&["--hosts", "3", "--racks", "5"], "racks: 3 hosts do not fill 5 racks evenly"),
        (
            &["--load", "0.99"],
            "load: 0.99 cannot be sustained: with the grants or acknowledgements of homa it takes 104.7 %",
        ),
        (&["--load", "0.97", "--transport", "oracle,tcp"], "acknowledgements of tcp"),
        (
            &["--workload", "w2", "--warm-up", "80ms"],
            "warm-up: 80.0 ms is longer than the measured 50.0 ms, and this load needs",
        ),
        (&["--transport", "tcp", "--connections", "0"], "connections: must be at least 1, or message"),
        (&["--connections", "4"], "connections: it changes nothing without transport tcp or dctcp"),
        (&["--load-counts", "acks"], "load-counts: `acks` is unknown: use data or grants"),
        (&["--jobs", "0"], "--jobs"),
        (&["--out", "/dev/null/directory"], "/dev/null/directory"),
    ] {
        assert_refused(&[&["run"], words].concat(), part);
    }
}

#[test]
fn a_network_that_is_too_large_for_the_machine_is_refused_with_the_numbers() {
    for words in [
        &["--hosts", "1048576"][..],
        &["--hosts", "1048576", "--acquaint", "no"],
        &["--hosts", "16", "--duration", "3600s"],
    ] {
        let words = [&["run"], words].concat();
        let output = run(&words);
        assert_output_refused(&words, &output, "use fewer hosts");
    }
    let text = stderr(&run(&["run", "--hosts", "1048576"]));
    assert!(text.contains(" GB") && text.contains("acquaint"), "{text}");
}

#[test]
fn a_full_disk_is_an_error() {
    let output = run(&small("run", &["--json", "/dev/full"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("homa: cannot write /dev/full"), "{}", stderr(&output));
}

#[test]
fn hosts_have_traces_in_the_format_of_live_ones() {
    let scratch = Scratch::new("trace");
    let (out, traces) = (scratch.path("out"), scratch.path("traces"));
    fs::create_dir(&out).expect("a directory");
    stdout(&small("run", &["--out", &out, "--trace", &traces, "--trace-records", "1000"]));
    let names: Vec<String> = (0..8).map(|host| format!("host-{host}.trace")).collect();
    let switches: Vec<String> =
        scratch.files("traces").into_iter().filter(|name| name.starts_with("switch-")).collect();
    assert!(!switches.is_empty());
    assert_eq!(scratch.files("traces"), [&names[..], &switches].concat());
    for name in &switches {
        let bytes = fs::read(scratch.0.join("traces").join(name)).expect("readable");
        let dump = homa_trace::read_dump(&bytes).expect("a dump");
        assert_eq!(dump.node.kind, homa_trace::NodeKind::Switch);
        assert!(dump.records.len() > 100, "{name}");
        assert!(dump.records.iter().all(|r| r.id != 0 && dump.node.others.contains_key(&r.place.port())));
    }
    for name in names {
        let bytes = fs::read(scratch.0.join("traces").join(&name)).expect("readable");
        let dump = homa_trace::read_dump(&bytes).expect("a dump");
        let times: Vec<u64> = dump.records.iter().map(|record| dump.time_ns(record)).collect();
        assert!(times.is_sorted() && times.len() > 500, "{name}: {} records", times.len());
        let last = times.last().copied().unwrap_or(0);
        assert!((100_000..10_000_000).contains(&last), "{name}: the last record is of {last} ns");
    }
    assert_refused(
        &small("run", &["--transport", "oracle", "--trace", &traces]),
        "only homa has time traces",
    );
    assert_refused(
        &small("run", &["--trace", "/dev/null/traces"]),
        "cannot make the directory /dev/null/traces",
    );
}

const SWEEP: &str = "\
title = \"A small sweep\"
seeds = [1, 2]
[base]
workload = \"w2\"
transport = [\"homa\", \"oracle\"]
hosts = 8
hosts_per_rack = 4
warm_up = \"0\"
duration = \"300us\"
[vary]
load = [0.3, 0.6]
overcommit = [1, 4]
";

/// Returns all files that a sweep wrote, by name.
fn written(scratch: &Scratch, out: &str) -> Vec<(String, String)> {
    let runs = scratch.files(&format!("{out}/runs")).into_iter().map(|name| format!("{out}/runs/{name}"));
    let all = runs.chain([format!("{out}/results.json"), format!("{out}/report.html")]);
    all.map(|name| (name.replacen(out, "", 1), scratch.read(&name))).collect()
}

#[test]
fn a_sweep_that_goes_on_ends_as_one_that_was_never_stopped() {
    let scratch = Scratch::new("sweep");
    let file = scratch.write("small.toml", SWEEP);
    let whole = stdout(&["sweep", &file, "--out", &scratch.path("whole"), "--jobs", "2"]);
    for part in ["A small sweep: 6 combinations, 2 seeds", "overcommit", "wasted", "homa", "oracle"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    let expected = written(&scratch, "whole");
    assert_eq!(expected.len(), 12 + 2);
    // Homa's settings do not apply to the oracle, so each of its runs is compared with all of Homa's runs
    // that have the same messages.
    let results: Value = serde_json::from_str(&scratch.read("whole/results.json")).expect("JSON");
    for row in results["rows"].as_array().expect("rows") {
        let ratio = row["metrics"]["slowdown_mean_over_oracle"]["mean"].as_f64().expect("a number");
        let is_oracle = row["transport"] == "oracle";
        assert!(if is_oracle { ratio == 1.0 } else { (1.01..3.0).contains(&ratio) }, "{ratio}: {row}");
    }
    // Store half of the runs, and truncate one of the files as a crash would.
    fs::create_dir_all(scratch.0.join("part/runs")).expect("writable");
    for name in scratch.files("whole/runs").iter().step_by(2) {
        fs::copy(scratch.0.join("whole/runs").join(name), scratch.0.join("part/runs").join(name))
            .expect("copied");
    }
    let cut = scratch.files("part/runs")[0].clone();
    fs::write(scratch.0.join("part/runs").join(cut), "{\"schema\": 1,").expect("writable");
    let output = run(&["sweep", &file, "--out", &scratch.path("part"), "--jobs", "1"]);
    assert!(stderr(&output).contains("5 of 12 runs were finished before"), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), whole);
    assert!(written(&scratch, "part") == expected, "the files differ");
}

#[test]
fn finished_runs_are_not_run_again() {
    let scratch = Scratch::new("again");
    let file = scratch.write("small.toml", SWEEP);
    let out = scratch.path("out");
    stdout(&["sweep", &file, "--out", &out]);
    let name = scratch.files("out/runs")[0].clone();
    let path = scratch.0.join("out/runs").join(name);
    let changed = fs::read_to_string(&path).expect("there").replace("\"goodput\": 0.", "\"goodput\": 7.");
    fs::write(&path, &changed).expect("writable");
    let text = stdout(&["sweep", &file, "--out", &out]);
    assert_eq!(fs::read_to_string(&path).expect("there"), changed);
    assert!(text.lines().any(|line| line.contains("  7") || line.contains("  3")), "{text}");
}

#[test]
fn a_sweep_is_shortened_without_a_change_of_its_file() {
    let scratch = Scratch::new("shortened");
    let file = scratch.write("small.toml", SWEEP);
    let out = scratch.path("out");
    let more = ["--out", &out, "--set", "load=0.5", "--set", "transport=homa", "--seeds", "7"];
    let words: Vec<&str> = ["sweep", &file].into_iter().chain(more).collect();
    let text = stdout(&words);
    assert!(text.contains("A small sweep: 2 combinations, 1 seed"), "{text}");
    assert_refused(&["sweep", &file, "--out", &out, "--set", "laod=1"], "laod");
    assert_refused(&["sweep", &file, "--out", &out, "--set", "load"], "NAME=VALUE");
}

#[test]
fn an_interrupted_sweep_keeps_what_is_finished() {
    let scratch = Scratch::new("interrupted");
    // There are more runs than can finish before the signal.
    let text = SWEEP.replace("seeds = [1, 2]", &format!("seeds = {:?}", (0..2_000).collect::<Vec<_>>()));
    let file = scratch.write("long.toml", &text);
    let out = scratch.path("out");
    let child = homa(&["sweep", &file, "--out", &out]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the binary runs");
    let runs = scratch.0.join("out/runs");
    while fs::read_dir(&runs).map_or(0, Iterator::count) < 3 {
        std::thread::yield_now();
    }
    let id = i32::try_from(child.id()).expect("a process id");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(id).expect("not 0"),
        rustix::process::Signal::INT,
    )
    .expect("the child is there");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.starts_with("homa: interrupted: ") && text.trim_end().lines().count() == 1, "{text}");
    assert!(text.contains("of 12000 runs are finished and kept in"), "{text}");
    let files = scratch.files("out/runs");
    assert!(
        files.len() >= 3 && files.iter().all(|name| name.ends_with(".json") && !name.starts_with('.')),
        "{files:?}"
    );
    for name in files {
        serde_json::from_str::<Value>(&scratch.read(&format!("out/runs/{name}"))).expect("a whole file");
    }
    assert!(!scratch.0.join("out/results.json").exists());
}

#[test]
fn a_sweep_that_is_none_is_refused() {
    let scratch = Scratch::new("sweep-refused");
    for (text, part) in [
        ("sedes = [1]", "unknown key `sedes`: use title, seeds, base, vary"),
        ("[vary]\novercomit = [1]", "unknown key `overcomit` in [vary]: use workload"),
        ("[vary]\nload = [0.5, 1.5]", "with load = 1.5: load: must be above 0"),
        ("[base]\nload = \n", "line 2"),
        ("[base]\npreset = \"none\"", "unknown preset `none`"),
    ] {
        let file = scratch.write("wrong.toml", text);
        assert_refused(&["sweep", &file, "--out", &scratch.path("out")], part);
    }
    assert!(!scratch.0.join("out").exists());
    assert_refused(&["sweep", "none.toml"], "sweeps that need no file are overcommit");
    let file = scratch.write("small.toml", SWEEP);
    assert_refused(&["sweep", &file, "--out", &file], "small.toml");
}

#[test]
fn the_highest_load_is_found() {
    let words = small("max-load", &["--transport", "homa,oracle", "--json", "-"]);
    let json: Value = serde_json::from_str(&stdout(&words)).expect("JSON");
    let transports = json["transports"].as_array().expect("a list");
    assert_eq!(transports.len(), 2);
    for found in transports {
        let max = found["max_load"].as_f64().expect("a number");
        assert!((0.5..=1.0).contains(&max), "{found}");
        let probes = found["probes"].as_array().expect("a list");
        let highest = probes
            .iter()
            .filter(|probe| probe["sustained"] == true)
            .filter_map(|probe| probe["load"].as_f64());
        assert_eq!(highest.fold(0.0, f64::max), max);
        let too_high = probes
            .iter()
            .filter(|probe| probe["sustained"] == false)
            .filter_map(|probe| probe["load"].as_f64());
        assert!(too_high.fold(2.0, f64::min) > max, "{found}");
    }
    let narrow = small("max-load", &["--spines", "1", "--core-rate", "1gbit", "--json", "-"]);
    let json: Value = serde_json::from_str(&stdout(&narrow)).expect("JSON");
    assert!(json["transports"][0]["max_load"].as_f64().expect("a number") < 0.3, "{json}");
    assert_refused(&["max-load", "--load", "0.5"], "--load: max-load searches for the load");
    assert_refused(&["max-load", "--preset", "incast"], "an incast has no load");
}

#[test]
fn steering_policies_are_compared_in_a_table_a_page_and_json() {
    let scratch = Scratch::new("steer");
    let words =
        ["steer", "--policies", "rss-hash,gen2", "--workloads", "w2,100", "--cores", "2,4", "--loads", "0.3"];
    let small = ["--hosts", "3", "--rpcs", "200"];
    let json_file = scratch.path("steer.json");
    let text = stdout(&[&words[..], &small, &["--out", &scratch.path(""), "--json", &json_file]].concat());
    let head = text.lines().nth(2).expect("a head");
    for column in ["workload", "short P50 us", "P99.9", "busiest core %", "hand-offs %", "cold threads %"] {
        assert!(head.contains(column), "{column}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("gen2")).count(), 4, "{text}");
    let json: Value = serde_json::from_str(&scratch.read("steer.json")).expect("JSON");
    let runs = json["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 8);
    for run in runs {
        assert!(
            run["short_p99_us"].as_f64().expect("a number")
                >= run["short_p50_us"].as_f64().expect("a number")
        );
        assert!(run["counts"]["packets"].as_u64().expect("a number") > 100, "{run}");
    }
    assert_eq!(json["costs"]["receive"]["packet_ns"], 350);
    assert!(scratch.read("report.html").contains("<svg"));
    let again = stdout(&[&words[..], &small, &["--jobs", "1", "--json", "-"]].concat());
    assert_eq!(again, scratch.read("steer.json"), "the same seed, the same results");
}

#[test]
fn costs_come_from_a_file() {
    let scratch = Scratch::new("costs");
    let printed = stdout(&["steer", "--print-costs", "x86"]);
    let small = [
        "steer",
        "--policies",
        "gen2",
        "--workloads",
        "100",
        "--cores",
        "2",
        "--hosts",
        "2",
        "--rpcs",
        "50",
        "--json",
        "-",
    ];
    let p50 = |file: &str| {
        let json: Value =
            serde_json::from_str(&stdout(&[&small[..], &["--costs", file]].concat())).expect("JSON");
        json["runs"][0]["short_p50_us"].as_f64().expect("a number")
    };
    let slow = printed.replace("receive_ns = 435", "receive_ns = 100435");
    let (same, slow) = (scratch.write("same.toml", &printed), scratch.write("slow.toml", &slow));
    assert_eq!(p50("x86"), p50(&same));
    assert!(p50(&slow) > p50(&same) + 200.0, "each message takes 100 us more");
    let wrong = scratch.write("wrong.toml", &printed.replace("poll_ns = 267", "poll_ns = 2e3"));
    assert_refused(&["steer", "--costs", &wrong], "wrong.toml: line");
    assert_refused(&["steer", "--costs", "none.toml"], "those that need no file are x86 and mips-router");
}

#[test]
fn few_connections_cross_a_router() {
    let words =
        ["router", "--flows", "1,2", "--runs", "2", "--duration", "300ms", "--policies", "same-core,sparse"];
    let json: Value = serde_json::from_str(&stdout(&[&words[..], &["--json", "-"]].concat())).expect("JSON");
    let rows = json["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 4);
    assert!(
        rows[1]["gain"].as_f64().expect("a number") > 0.3,
        "three cores forward more than none: {}",
        rows[1]
    );
}

#[test]
fn what_cannot_be_steered_is_refused() {
    for (words, part) in [
        (&["steer", "--policies", "rps"][..], "no policy rps"),
        (&["steer", "--cores", "0"], "cores must be 1 to 64"),
        (&["steer", "--cores", "65"], "cores must be 1 to 64"),
        (&["steer", "--loads", "1.5"], "load"),
        (&["steer", "--hosts", "1"], "hosts"),
        (&["steer", "--workloads", "w99"], "w99"),
        (&["steer", "--batch-cap", "0"], "batch cap"),
        (&["steer", "--server-threads", "0"], "server threads must be 1 to 1024"),
        (&["steer", "--receive-cores", "99"], "receive cores must be"),
        (&["steer", "--print-costs", "arm"], "use x86 or mips-router"),
        (&["router", "--flows", "0"], "connections must be 1 to 10000"),
        (&["router", "--cores", "1"], "cores must be at least 2"),
        (&["router", "--duration", "1ns"], "the duration must be"),
    ] {
        assert_refused(words, part);
    }
}

#[test]
fn everything_with_a_name_is_listed() {
    let text = stdout(&["presets"]);
    for name in [
        "sigcomm18",
        "atc21",
        "incast",
        "overcommit",
        "link-speed",
        "homa",
        "oracle",
        "core_rate",
        "max_incoming",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn every_command_has_examples() {
    for command in ["run", "sweep", "max-load", "steer", "router", "presets"] {
        let text = stdout(&[command, "--help"]);
        let examples = text.split_once("Example").map_or("", |(_, examples)| examples);
        assert!(examples.contains(&format!("homa sim {command}")), "{command}: {text}");
    }
}
