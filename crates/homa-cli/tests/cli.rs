//! Tests the binary from the user's point of view: its output, its files, and its errors.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::common::{Scratch, assert_output_refused, stderr};
use homa_testkit::ClosedPort;
use serde_json::Value;

fn homa(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    homa(words).output().expect("the binary runs")
}

/// Checks that a command is refused, like [`assert_output_refused`].
fn assert_refused(words: &[&str], part: &str) {
    assert_output_refused(words, &run(words), part);
}

/// A running `homa serve` that ends with the test.
struct Serve {
    process: Child,
    /// The stream on which the server prints its addresses.
    lines: BufReader<Box<dyn Read>>,
    /// `HOST:PORT/HOMA_PORT` of the first Homa server port.
    homa: String,
}

impl Serve {
    fn start(words: &[&str]) -> Serve {
        Serve::try_start(words).expect("the server ended early")
    }

    /// Returns `None` if the server ended before all ports were open.
    fn try_start(words: &[&str]) -> Option<Serve> {
        let mut command = homa(&["serve", "--until-stdin-ends"]);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        Serve::spawn(command, false)
    }

    /// Starts a Homa server on any free port. A signal ends it, as a user would.
    fn until_a_signal(words: &[&str]) -> Serve {
        let mut command = homa(&["serve", "--bind", "127.0.0.1:0", "--protocol", "homa"]);
        let json = words.contains(&"--json");
        command.args(words).stdout(Stdio::piped()).stderr(if json {
            Stdio::piped()
        } else {
            Stdio::inherit()
        });
        Serve::spawn(command, json).expect("the server ended early")
    }

    fn spawn(mut command: Command, reports_on_stderr: bool) -> Option<Serve> {
        let mut process = command.spawn().expect("the server starts");
        let lines: Box<dyn Read> = if reports_on_stderr {
            Box::new(process.stderr.take().expect("piped"))
        } else {
            Box::new(process.stdout.take().expect("piped"))
        };
        let lines = BufReader::new(lines);
        let mut server = Serve { process, lines, homa: String::new() };
        loop {
            let mut line = String::new();
            if server.lines.read_line(&mut line).expect("readable") == 0 {
                return None;
            }
            if let Some(addr) = line.strip_prefix("serving homa ").filter(|_| server.homa.is_empty()) {
                server.homa = addr.trim().to_owned();
            }
            if line == "ready\n" {
                return Some(server);
            }
        }
    }

    /// Sends the process a signal.
    fn tell(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.process.id()).expect("a process id");
        // SAFETY: the process is a child that was not waited for, so the ID still belongs to it.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Sends the process a signal and returns its exit code.
    fn signal(&mut self, signal: libc::c_int) -> Option<i32> {
        self.tell(signal);
        self.process.wait().expect("a child").code()
    }

    /// Starts a server with the same port number for both protocols, as `--servers` expects. If another
    /// program takes the port between the search and the bind, tries another port.
    fn on_one_number(words: &[&str]) -> (Serve, String) {
        for _ in 0..50 {
            let free = TcpListener::bind("127.0.0.1:0").expect("any port");
            let addr = free.local_addr().expect("bound").to_string();
            drop(free);
            if let Some(server) = Serve::try_start(&[&["--bind", &addr], words].concat()) {
                return (server, addr);
            }
        }
        panic!("found no free port number");
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| {
        panic!("not JSON: {error}: {}", String::from_utf8_lossy(bytes));
    })
}

/// Checks that all documented fields exist, that there were no errors, and that something was measured.
fn check_results(results: &Value, protocols: &[&str]) {
    assert_eq!(results["schema"], 1);
    assert!(results["seed"].is_u64() && results["config"].is_object());
    let runs = results["runs"].as_array().expect("an array");
    let names: Vec<&str> = runs.iter().map(|run| run["protocol"].as_str().expect("a name")).collect();
    assert_eq!(names, protocols);
    assert!(runs.iter().any(|run| run["rpcs"] != 0), "{results}");
    for run in runs {
        for counter in ["errors", "lost", "duplicated"] {
            assert_eq!(run[counter], 0, "{counter}: {run}");
        }
        // On a busy machine, a run whose threads were not scheduled measures nothing.
        let has_measured = run["rpcs"].as_u64().expect("a count") > 0;
        assert_eq!(run["achieved_gbps"].as_f64().expect("a rate") > 0.0, has_measured, "{run}");
        for field in ["cpu_busy", "slowdown_mean"] {
            assert!(run[field].is_f64(), "{field}: {run}");
        }
        assert!(run["workload"].is_string() && run.get("offered_gbps").is_some());
        let bins = run["bins"].as_array().expect("an array");
        assert!(!bins.is_empty());
        for bin in bins {
            for field in [
                "max_bytes",
                "count",
                "slowdown_mean",
                "slowdown_p50",
                "slowdown_p99",
                "slowdown_p999",
                "rtt_p50_us",
                "rtt_p99_us",
            ] {
                assert!(bin[field].is_number(), "{field}: {bin}");
            }
        }
        for field in ["max_bytes", "count", "p50_us", "p99_us", "p999_us"] {
            assert!(run["short"][field].is_number(), "{field}: {run}");
        }
    }
}

fn assert_clean(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

#[test]
fn help_has_examples_and_goes_to_standard_output() {
    for words in [&["--help"][..], &["serve", "--help"], &["call", "--help"], &["bench", "--help"]] {
        let output = run(words);
        assert_clean(&output);
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example"), "{words:?}");
    }
    assert_clean(&run(&["--version"]));
}

#[test]
fn a_wrong_command_line_is_one_line() {
    assert_refused(
        &[],
        "serve, call, bench, decode, run, sim, switch, rack, steer, trace, jitter, doctor, metrics or top",
    );
    assert_refused(&["frobnicate"], "frobnicate");
    assert_refused(&["bench", "--laod", "0.8"], "--laod");
    assert_refused(&["bench", "--load", "much"], "--load");
    assert_refused(&["bench", "--protocol", "sctp"], "sctp");
    assert_refused(&["bench", "--gbps", "1", "--outstanding", "1"], "cannot be used with");
    assert_refused(&["bench", "--workload", "w9"], "w9");
    assert_refused(&["bench", "--duration", "0.0001"], "--duration");
    assert_refused(&["call"], "ADDR");
    assert_refused(&["call", "127.0.0.1:99999"], "99999");
    assert_refused(&["call", "127.0.0.1/0"], "Homa port");
    assert_refused(&["serve", "--bind", "here:there"], "there");
    assert_refused(&["serve", "--json"], "--metrics");
    assert_refused(&["serve", "--metrics", "--protocol", "tcp"], "--protocol homa,tcp");
    assert_refused(&["call", "127.0.0.1", "--link-mbps", "0"], "--link-mbps");
}

#[test]
fn a_missing_file_is_one_line() {
    assert_refused(&["call", "127.0.0.1", "--file", "/no/such/file"], "/no/such/file");
    assert_refused(&["bench", "--workload", "/no/such/file.csv"], "/no/such/file.csv");
    assert_refused(&["bench", "--out", "/dev/null/directory"], "/dev/null/directory");
    assert_refused(&["bench", "--json", "/no/such/directory/a.json"], "/no/such/directory");
}

#[test]
fn a_bad_workload_file_names_its_line() {
    let scratch = Scratch::new("csv");
    fs::write(scratch.path("bad.csv"), "100,0.5\n50,1\n").expect("written");
    assert_refused(&["bench", "--workload", &scratch.path("bad.csv")], "line 2");
}

#[test]
fn an_unreachable_server_is_one_line() {
    // Bound and never read: a call to it gets no answer and no refusal.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("any port");
    let mute = silent.local_addr().expect("bound").to_string();
    let closed = ClosedPort::udp("127.0.0.1:0");
    let nobody = closed.address().to_string();
    assert_refused(&["call", &nobody], &nobody);
    assert_refused(&["call", &mute, "--deadline", "0.3"], &mute);
    assert_refused(&["bench", "--servers", &nobody, "--json", "-", "--duration", "0.1"], &nobody);
    assert_refused(&["bench", "--servers", "no.such.host.invalid", "--json", "-"], "no.such.host.invalid");
}

#[test]
fn a_server_of_only_one_protocol_is_named() {
    let (_server, addr) = Serve::on_one_number(&["--protocol", "homa"]);
    assert_refused(&["bench", "--servers", &addr, "--json", "-", "--duration", "0.1", "--size", "8"], &addr);
}

#[test]
fn a_busy_port_is_one_line() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("any port");
    let addr = tcp.local_addr().expect("bound").to_string();
    assert_refused(&["serve", "--protocol", "tcp", "--bind", &addr], &addr);
    let (_server, addr) = Serve::on_one_number(&["--protocol", "homa"]);
    assert_refused(&["serve", "--protocol", "homa", "--bind", &addr], &addr);
}

#[test]
fn a_full_disk_is_an_error() {
    let bench = ["bench", "--size", "100", "--outstanding", "1", "--protocol", "homa", "--duration", "0.05"];
    let output = run(&[&bench[..], &["--json", "/dev/full"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).ends_with("homa: cannot write /dev/full: No space left on device (os error 28)\n")
    );
    assert!(!Path::new("/dev/full").metadata().expect("there").is_file());

    let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
    let output = homa(&[&bench[..], &["--json", "-"]].concat()).stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));

    let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
    let output = homa(&["bench", "--help"]).stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_call_prints_or_saves_the_answer() {
    let server = Serve::start(&["--bind", "127.0.0.1:0", "--protocol", "homa"]);
    let output = run(&["call", &server.homa, "--text", "hello"]);
    assert_clean(&output);
    assert_eq!(output.stdout, b"hello\n");
    assert!(stderr(&output).contains("5 bytes, the same as sent"), "{}", stderr(&output));

    let scratch = Scratch::new("call");
    let content: Vec<u8> = (0..1_000_000u32).map(|at| (at * 7 % 253) as u8).collect();
    fs::write(scratch.path("in"), &content).expect("written");
    assert_clean(&run(&[
        "call",
        &server.homa,
        "--file",
        &scratch.path("in"),
        "--output",
        &scratch.path("out"),
    ]));
    assert!(fs::read(scratch.path("out")).expect("readable") == content);
    assert_eq!(scratch.files("."), ["in", "out"]);

    let output = run(&["call", &server.homa, "--size", "3000", "--json"]);
    assert_clean(&output);
    let result = json(&output.stdout);
    assert_eq!(
        (&result["response_bytes"], &result["same_as_request"]),
        (&Value::from(3000), &Value::from(true))
    );
    assert!(result["time_us"].as_f64().expect("a time") > 0.0);
}

#[test]
fn a_call_that_fails_writes_nothing() {
    let scratch = Scratch::new("call-fails");
    let closed = ClosedPort::udp("127.0.0.1:0");
    let nobody = closed.address().to_string();
    assert_refused(&["call", &nobody, "--output", &scratch.path("out")], &nobody);
    assert!(scratch.files(".").is_empty());
    fs::write(scratch.path("empty"), "").expect("written");
    assert_refused(&["call", &nobody, "--file", &scratch.path("empty")], "empty");
}

#[test]
fn one_size_one_at_a_time_as_json() {
    for poll in ["0", "50"] {
        let words = ["bench", "--size", "100", "--outstanding", "1", "--duration", "0.3", "--json", "-"];
        let output = run(&[&words[..], &["--poll-us", poll]].concat());
        assert_clean(&output);
        let results = json(&output.stdout);
        check_results(&results, &["homa", "tcp"]);
        assert_eq!(results["runs"][0]["bins"].as_array().map(Vec::len), Some(1));
        assert_eq!(results["config"]["poll_us"].to_string(), poll);
    }
}

#[test]
fn the_floor_runs_beside_the_others_here_and_elsewhere() {
    let words = ["bench", "--protocol", "udp,homa,tcp", "--duration", "0.5", "--json", "-"];
    let output = run(&[&words[..], &["--workload", "w3", "--outstanding", "4", "--poll-us", "0"]].concat());
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp", "udp"]);

    let (_server, addr) = Serve::on_one_number(&["--protocol", "homa,udp"]);
    let remote = ["--size", "1000000", "--outstanding", "2", "--protocol", "udp", "--servers", &addr];
    let output = run(&[&words[..1], &words[3..], &remote[..]].concat());
    assert_clean(&output);
    check_results(&json(&output.stdout), &["udp"]);
}

#[cfg(feature = "peers")]
#[test]
fn peers_beside_homa_and_tcp_in_one_run_here_and_elsewhere() {
    let all = "udp,quic,grpc,tcp,homa";
    let words = ["bench", "--duration", "0.2", "--json", "-", "--protocol", all];
    let output = run(&[&words[..], &["--workload", "w3", "--outstanding", "4"]].concat());
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp", "grpc", "quic", "udp"]);

    let (_server, addr) = Serve::on_one_number(&["--protocol", all, "--server-ports", "2"]);
    let remote = ["--size", "100000", "--gbps", "0.5", "--server-ports", "2", "--servers", &addr];
    let output = run(&[&words[..], &remote[..]].concat());
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp", "grpc", "quic", "udp"]);
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_peer_that_was_left_out_is_one_line() {
    assert_refused(&["bench", "--protocol", "homa,grpc"], "`peers`");
    assert_refused(&["serve", "--protocol", "quic"], "`peers`");
}

#[test]
fn the_limits_are_a_table_and_json_with_stable_names() {
    let scratch = Scratch::new("limits");
    let words = ["bench", "limits", "--quick", "--slice-ms", "5", "--path", "loopback", "--driver", "udp"];
    let directory = scratch.path("out");
    let output = run(&[&words[..], &["--json", &scratch.path("limits.json"), "--out", &directory]].concat());
    assert_clean(&output);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["polling us", "bare/udp-offload", "homa/udp", "tcp", "figures", "W5 max"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert_eq!(scratch.files("."), ["limits.json", "out"]);
    assert_eq!(scratch.files("out"), ["report.html", "results.json"]);
    let page = fs::read_to_string(scratch.path("out/report.html")).expect("readable");
    assert!(page.contains("rtt_polling_p50_us") && page.contains("homa/udp"), "{page}");
    let results = json(&fs::read(scratch.path("limits.json")).expect("readable"));
    assert_eq!(results["schema"], 1);
    let config = &results["config"];
    assert_eq!((config["path"].as_str(), config["slice_ms"].as_u64()), (Some("loopback"), Some(5)));
    let rows = results["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    let peers: &[&str] = if cfg!(feature = "peers") { &["grpc", "quic"] } else { &[] };
    assert_eq!(names, [&["bare/udp", "bare/udp-offload", "homa/udp", "tcp"], peers].concat());
    for row in rows {
        assert!(row["skipped"].is_null(), "{row}");
        for metric in
            ["rtt_polling_p50_us", "rtt_sleeping_p99_us", "rpcs_per_s_128", "gbps_1mb", "cpu_ns_per_rpc"]
        {
            for field in ["median", "min", "max"] {
                assert!(row["metrics"][metric][field].is_f64(), "{metric} {field}: {row}");
            }
        }
    }
    let figures = results["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|figure| figure["name"] == "rtt_polling_over_bare").expect("asked for");
    assert!(figure["measured"]["median"].is_f64(), "{figure}");
    for name in ["asked", "aim", "ok", "aim_reached", "verdict"] {
        assert!(figure.get(name).is_some_and(Value::is_null), "{name} without a target: {figure}");
    }
    let comparisons = results["comparisons"].as_array().expect("comparisons");
    assert_eq!(comparisons.len(), 11);
    for row in comparisons {
        let bare = !matches!(row["name"].as_str(), Some("max_gbps_w4" | "max_gbps_w5"));
        for (name, measured) in [("homa", true), ("tcp", true), ("over_tcp", true), ("bare_udp", bare)] {
            assert_eq!(row[name]["median"].is_f64(), measured, "{name}: {row}");
        }
        assert!(row["target"].is_null() && row["verdict"].is_null(), "{row}");
    }
}

#[test]
fn limits_are_judged_by_the_targets_of_a_file() {
    let scratch = Scratch::new("targets");
    // Bounds that every machine satisfies, and one that no machine does.
    let targets = "\
[[target]]
name = \"max_gbps_w1\"
floor = 0.000001
[[target]]
name = \"rpcs_per_s_32\"
as = \"absolute\"
floor = 1
goal = 2
[[target]]
name = \"rtt_polling_p99_us\"
as = \"absolute\"
floor = 0.000001
[[target]]
name = \"gbps_1mb\"
floor = 1
[[target]]
name = \"rpcs_32_over_bare\"
floor = 0.000001
";
    let file = scratch.path("targets.toml");
    fs::write(&file, targets).expect("writable");
    let words = ["bench", "limits", "--quick", "--slice-ms", "5", "--path", "loopback", "--driver", "udp"];
    let rows = ["--rows", "w1,rpcs_per_s_32,rtt_polling_p99_us", "--targets", &file, "--json", "-"];
    let output = run(&[&words[..], &rows].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let results = json(&output.stdout);
    assert_eq!(results["config"]["targets"], *file);
    let verdict = |of: &str, name: &str| {
        let rows = results[of].as_array().expect("rows");
        rows.iter().find(|row| row["name"] == name).map_or(Value::Null, |row| row["verdict"].clone())
    };
    assert_eq!(verdict("comparisons", "max_gbps_w1"), "reached");
    assert_eq!(verdict("comparisons", "rpcs_per_s_32"), "goal");
    assert_eq!(verdict("comparisons", "rtt_polling_p99_us"), "below_floor");
    assert_eq!(verdict("figures", "rpcs_32_over_bare"), "reached");
    // This row was not requested.
    assert!(results["comparisons"].as_array().expect("rows").iter().all(|row| row["name"] != "gbps_1mb"));
    let table = stderr(&output);
    for part in ["below floor", "goal 0.00", "W1 max, Gbit/s"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(!table.contains("W2 max"), "{table}");

    // An invalid file is rejected before the measurement.
    for (from, to, part) in [
        ("gbps_1mb", "gbps_2mb", "targets.toml: line 14: unknown row `gbps_2mb`"),
        ("floor = 1\n", "floor = \"much\"\n", "targets.toml: line 7: invalid type"),
        ("goal = 2", "goals = 2", "targets.toml: line 8: unknown field `goals`"),
    ] {
        fs::write(&file, targets.replacen(from, to, 1)).expect("writable");
        assert_refused(&["bench", "limits", "--targets", &file], part);
    }
    assert_refused(&["bench", "limits", "--targets", "/no/such/file.toml"], "cannot read /no/such/file.toml");
    assert_refused(&["bench", "limits", "--rows", "w9"], "w9");
    assert_refused(&["bench", "limits", "--rows", "rtt_low_latency_p50_us"], "needs --low-latency");
}

#[test]
fn limits_without_root_say_what_they_leave_out() {
    // Run the command as an unprivileged user: if the test itself is unprivileged, as the same user.
    let words =
        ["bench", "limits", "--quick", "--slice-ms", "1", "--driver", "raw", "--protocol", "homa,tcp"];
    let words = [&words[..], &["--json", "/dev/null"]].concat();
    let program = env!("CARGO_BIN_EXE_homa");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups", program]).args(words).stdin(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.code() != Some(127));
    let Some(output) = output.filter(|output| !stderr(output).starts_with("setpriv")) else {
        return homa_testkit::skip("no setpriv that may become another user");
    };
    assert_clean(&output);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["homa/raw: skipped: needs root", "over loopback, since a veth pair needs root"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert_refused(&["bench", "limits", "--repetitions", "0"], "--repetitions");
    assert_refused(
        &["bench", "limits", "--quick", "--json", "/no/such/directory/a.json"],
        "/no/such/directory",
    );
}

#[test]
fn a_workload_at_half_load_writes_report_and_results() {
    let scratch = Scratch::new("workload");
    let output = run(&["bench", "--duration", "0.5", "--out", &scratch.path("")]);
    assert_clean(&output);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["W4 truncated to 1000000 bytes", "largest 1 %", "P99.9", "Short messages", "50 %"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert_eq!(scratch.files("."), ["report.html", "results.json"]);
    let results = json(&fs::read(scratch.path("results.json")).expect("readable"));
    check_results(&results, &["homa", "tcp"]);
    assert_eq!(results["config"]["truncated_at"], 1_000_000);
    assert_eq!(results["max"].as_array().map(Vec::len), Some(2));
    assert!(results["config"]["gbps"].is_f64());
    let page = fs::read_to_string(scratch.path("report.html")).expect("readable");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn tiny_messages_over_many_ports_and_threads() {
    let output = run(&[
        "bench",
        "--workload",
        "w1",
        "--gbps",
        "0.01",
        "--duration",
        "0.3",
        "--json",
        "-",
        "--clients",
        "2",
        "--ports",
        "2",
        "--server-ports",
        "2",
        "--server-threads",
        "2",
        "--port-receivers",
        "1",
    ]);
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp"]);
}

#[test]
fn messages_above_a_megabyte_on_request() {
    let output = run(&[
        "bench",
        "--size",
        "3000000",
        "--outstanding",
        "2",
        "--duration",
        "0.3",
        "--json",
        "-",
        "--max-message",
        "none",
    ]);
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp"]);
}

#[test]
fn one_way_answers_are_short() {
    let output = run(&[
        "bench",
        "--size",
        "20000",
        "--outstanding",
        "4",
        "--duration",
        "0.2",
        "--json",
        "-",
        "--one-way",
    ]);
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp"]);
}

#[test]
fn the_maximum_of_each_protocol() {
    let output = run(&["bench", "--workload", "w3", "--find-max", "--duration", "0.2", "--json", "-"]);
    assert_clean(&output);
    let results = json(&output.stdout);
    check_results(&results, &["homa", "tcp"]);
    for max in results["max"].as_array().expect("an array") {
        assert!(max["gbps"].as_f64().expect("a rate") > 0.0);
    }
}

#[test]
fn remote_servers_are_used_and_left_running() {
    let (mut server, addr) = Serve::on_one_number(&["--server-ports", "2"]);
    let words = ["bench", "--servers", &addr, "--server-ports", "2", "--size", "500", "--gbps", "0.05"];
    let output = run(&[&words[..], &["--duration", "0.2", "--json", "-"]].concat());
    assert_clean(&output);
    check_results(&json(&output.stdout), &["homa", "tcp"]);
    assert!(server.process.try_wait().expect("a child").is_none(), "the server ended");

    let output = run(&[&words[..], &["--duration", "0.2", "--json", "-", "--one-way"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("start the server with --one-way"), "{}", stderr(&output));
}

#[test]
fn a_server_of_the_bench_ends_with_its_input_and_says_what_it_served() {
    let mut server = Serve::start(&["--bind", "127.0.0.1:0"]);
    assert_clean(&run(&["call", &server.homa, "--text", "x"]));
    drop(server.process.stdin.take());
    let mut rest = String::new();
    server.lines.read_to_string(&mut rest).expect("readable");
    assert_eq!(rest, "served homa 1\nserved tcp 0\n");
    assert_eq!(server.process.wait().expect("a child").code(), Some(0));
}

/// Returns a result with a round-trip time. A call with a retransmission yields none, so it is repeated.
fn call_that_measures(server: &str, link: &[&str]) -> Value {
    for _ in 0..20 {
        let output = run(&[&["call", server, "--size", "200000", "--json", "--metrics"], link].concat());
        assert_clean(&output);
        let result = json(&output.stdout);
        let peers = result["metrics"]["peers"].as_array().expect("an array");
        assert_eq!(peers.len(), 1, "{result}");
        if peers[0]["rtt_us"].is_f64() {
            return result;
        }
    }
    panic!("no call measured a round-trip time");
}

#[test]
fn the_metrics_of_a_call_show_what_was_measured_and_chosen() {
    let server = Serve::start(&["--bind", "127.0.0.1:0", "--protocol", "homa"]);
    // On a slow link, few bytes are sent in a round trip. Without the option no value is derived, since the
    // loopback device reports no speed.
    for (link, chosen) in [(&["--link-mbps", "10"][..], 500..40_000), (&[], 40_000..40_001)] {
        let result = call_that_measures(&server.homa, link);
        let (counters, peer) = (&result["metrics"]["counters"], &result["metrics"]["peers"][0]);
        assert_eq!(counters["rtt_samples"], 1);
        assert_eq!(counters["drop_invalid"], 0, "counters that are 0 have their names too");
        assert_eq!(counters["host_link_mbps"], if link.is_empty() { 0 } else { 10 });
        let addr = server.homa.split('/').next();
        assert_eq!((peer["addr"].as_str(), &peer["is_ours"]), (addr, &Value::from(true)));
        let unscheduled = peer["unsched_bytes"].as_u64().expect("a number");
        assert!(chosen.contains(&unscheduled), "{link:?}: {peer}");
        assert!(peer["unsched_limit"].is_null() && peer["max_packet"].as_u64() > Some(0), "{peer}");
    }
}

#[test]
fn the_metrics_of_a_call_do_not_disturb_its_answer() {
    let server = Serve::start(&["--bind", "127.0.0.1:0", "--protocol", "homa"]);
    let output = run(&["call", &server.homa, "--text", "hello", "--metrics"]);
    assert_clean(&output);
    assert_eq!(output.stdout, b"hello\n");
    let text = stderr(&output);
    for part in ["5 bytes", "counters that are not 0:", "Requests started by our clients.", "unscheduled"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.contains(server.homa.trim_end_matches("/99")), "{text}");
    assert!(!text.contains("drop_invalid"), "{text}");
    let output = run(&["call", &server.homa, "--text", "hello", "--json"]);
    assert!(json(&output.stdout).get("metrics").is_none());
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_call_that_fails_prints_its_metrics_before_its_one_line() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("any port");
    let mute = silent.local_addr().expect("bound").to_string();
    let output = run(&["call", &mute, "--deadline", "0.1", "--metrics"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let text = stderr(&output);
    assert!(text.contains("requests_started") && text.contains("peers:"), "{text}");
    assert!(text.lines().last().expect("a line").starts_with("homa: "), "{text}");
}

#[test]
fn a_server_ended_by_a_signal_says_what_it_counted() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut server = Serve::until_a_signal(&["--metrics", "--link-mbps", "10000"]);
        assert_clean(&run(&["call", &server.homa, "--text", "x"]));
        assert_eq!(server.signal(signal), Some(0));
        let mut rest = String::new();
        server.lines.read_to_string(&mut rest).expect("readable");
        assert!(rest.starts_with("served homa 1\ncounters that are not 0:\n"), "{rest}");
        for part in ["requests_delivered", "host_link_mbps", "peers:\n", "127.0.0.1:"] {
            assert!(rest.contains(part), "{part}:\n{rest}");
        }
    }
}

#[test]
fn a_server_says_at_its_end_one_json_object() {
    let mut server = Serve::until_a_signal(&["--metrics", "--json"]);
    let mut stdout = server.process.stdout.take().expect("piped");
    assert_clean(&run(&["call", &server.homa, "--text", "x"]));
    assert_eq!(server.signal(libc::SIGTERM), Some(0));
    let mut text = Vec::new();
    stdout.read_to_end(&mut text).expect("readable");
    let ended = json(&text);
    assert_eq!((&ended["schema"], &ended["served"]["homa"]), (&Value::from(1), &Value::from(1)));
    assert!(ended["served"]["tcp"].is_null(), "{ended}");
    assert_eq!(ended["metrics"]["counters"]["requests_delivered"], 1);
    assert_eq!(ended["metrics"]["peers"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_server_writes_its_trace_on_a_signal_when_it_froze_and_at_its_end() {
    let scratch = Scratch::new("serve-trace");
    let path = scratch.path("s.trace");
    let mut server = Serve::until_a_signal(&["--trace", &path]);
    let addr = server.homa.clone();
    let read = |name: &str| homa_trace::read_dump(&fs::read(scratch.path(name)).expect("readable"));
    let client = scratch.path("c.trace");
    let words = ["call", &addr, "--trace", &client, "--trace-slower-than", "0", "--trace-freeze-peers"];
    assert!(run(&words).status.success());
    let call = read("c.trace").expect("a dump");
    assert!(call.records.iter().any(|record| record.event() == Some(homa_trace::EventKind::RpcEnd)));
    // The client's trace froze at the end of its call, and the server's trace froze with it.
    wait_for(&scratch, "s.1.trace");
    let frozen = read("s.1.trace").expect("a dump");
    let last = frozen.records.last().expect("records").event();
    assert_eq!(last, Some(homa_trace::EventKind::Freeze));
    server.tell(libc::SIGUSR1);
    wait_for(&scratch, "s.2.trace");
    assert_eq!(server.signal(libc::SIGTERM), Some(0));
    let end = read("s.trace").expect("a dump");
    assert!(end.records.len() > frozen.records.len());
    assert_eq!(end.node.name, addr.split('/').next().expect("an address"));
}

/// Waits until a file exists and is complete.
fn wait_for(scratch: &Scratch, name: &str) {
    let begin = Instant::now();
    while !scratch.0.join(name).exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no {name}: {:?}", scratch.files(""));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn traces_that_cannot_be_written_are_refused_before_anything_runs() {
    let nowhere = ["--trace", "/nowhere/s.trace"];
    assert_refused(&[&["serve", "--bind", "127.0.0.1:0"][..], &nowhere].concat(), "/nowhere/s.trace");
    assert_refused(&["serve", "--protocol", "tcp", "--trace", "/tmp/x.trace"], "--trace needs Homa");
    assert_refused(&["call", "127.0.0.1:1", "--trace-slower-than", "7"], "is no time");
}
