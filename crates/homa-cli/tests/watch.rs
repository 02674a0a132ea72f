//! Tests metrics from the user's point of view: a server that exports its metrics, and the commands that read
//! them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::common::{Scratch, assert_output_refused, homa, run, stderr};
use homa_testkit::ClosedPort;
use serde_json::Value;

/// A running `homa serve` that exports its metrics.
struct ServeProcess {
    process: Child,
    lines: BufReader<ChildStdout>,
    /// The server's address, to which calls are sent.
    homa: String,
    /// The URL of the metrics, as printed.
    url: String,
}

impl ServeProcess {
    fn start(metrics: &str) -> ServeProcess {
        ServeProcess::spawn(homa([
            "serve",
            "--bind",
            "127.0.0.1:0",
            "--protocol",
            "homa",
            "--metrics",
            metrics,
        ]))
    }

    fn spawn(mut command: Command) -> ServeProcess {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        let mut served = ServeProcess { process, lines, homa: String::new(), url: String::new() };
        loop {
            let mut line = String::new();
            assert_ne!(served.lines.read_line(&mut line).expect("readable"), 0, "the server ended early");
            if let Some(addr) = line.strip_prefix("serving homa ") {
                served.homa = addr.trim().to_owned();
            } else if let Some(url) = line.strip_prefix("metrics ") {
                served.url = url.trim().to_owned();
            } else if line == "ready\n" {
                return served;
            }
        }
    }

    fn call(&self) {
        let output = run(["call", &self.homa, "--text", "hello"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }

    /// Returns the address of the metrics as IP:PORT.
    fn addr(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/metrics")
    }

    /// Ends the server as a user would, and returns its final output.
    fn end(mut self) -> String {
        let pid = libc::pid_t::try_from(self.process.id()).expect("a process id");
        // SAFETY: the process is a child that was not waited for, so the ID still belongs to it.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        assert_eq!(self.process.wait().expect("a child").code(), Some(0));
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        rest
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ask(addr: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("somebody listens");
    stream.write_all(request.as_bytes()).expect("writable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

fn clean(words: &[&str]) -> String {
    let output = run(words.iter().copied());
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}: {text}"))
}

fn refused(words: &[&str], part: &str) {
    assert_output_refused(words, &run(words.iter().copied()), part);
}

/// Returns the entry for the metric with this name.
fn change<'a>(changes: &'a Value, name: &str) -> Option<&'a Value> {
    changes["metrics"].as_array().expect("an array").iter().find(|change| change["name"] == name)
}

#[test]
fn a_scraper_gets_the_metrics_and_only_those() {
    let served = ServeProcess::start("127.0.0.1:0");
    served.call();
    let answer = ask(served.addr(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    let host = served.homa.split('/').next().expect("an address");
    for line in [
        "# TYPE homa_requests_delivered_total counter".to_owned(),
        format!("homa_requests_delivered_total{{host=\"{host}\"}} 1"),
        format!("homa_host_endpoints{{host=\"{host}\"}} 1"),
    ] {
        assert!(body.lines().any(|other| other == line), "no line {line} in {body}");
    }
    assert!(body.contains("\nprocess_cpu_seconds_total ") && body.contains("\nhoma_peer_open_rpcs{host="));
    assert!(ask(served.addr(), "GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(served.addr(), &("GET /".to_owned() + &"x".repeat(20_000))).starts_with("HTTP/1.1 431 "));
    assert!(served.end().contains("requests_delivered"));
}

#[test]
fn scrapers_that_say_nothing_keep_neither_calls_nor_the_end_waiting() {
    let served = ServeProcess::start("127.0.0.1:0");
    let silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(served.addr()).expect("somebody listens")).collect();
    served.call();
    served.end();
    drop(silent);
}

#[test]
fn a_socket_in_the_file_system_does_as_well_and_goes_with_the_server() {
    let scratch = Scratch::new("watch-socket");
    let path = scratch.path("homa.sock");
    // A socket left behind by a dead process is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let served = ServeProcess::start(&path);
    assert_eq!(served.url, format!("unix:{path}"));
    refused(&["serve", "--bind", "127.0.0.1:0", "--metrics", &path], "another process listens");
    assert!(clean(&["metrics", &path]).contains("homa_host_endpoints"));
    assert!(clean(&["metrics", &served.url]).contains("homa_host_endpoints"));
    served.end();
    assert!(fs::symlink_metadata(&path).is_err());
}

#[test]
fn a_look_at_a_server_tells_what_happens_there() {
    let served = ServeProcess::start("127.0.0.1:0");
    served.call();
    let words = ["top", served.addr(), "--once", "--interval", "100ms"];
    let text = clean(&words);
    assert!(text.contains("RPCs open") && text.contains(served.addr()) && !text.contains('\x1b'), "{text}");
    let look = json(&clean(&[&words[..], &["--json"]].concat()));
    assert_eq!((&look["schema"], &look["endpoints"][0]["up"]), (&1.into(), &true.into()));
    let host = &look["endpoints"][0]["hosts"][0];
    assert_eq!(host["host"], served.homa.split('/').next().expect("an address"));
    assert_eq!(host["restarted"], false);
    assert!(host["seconds"].as_f64().expect("a time") >= 0.05, "{host}");
    for name in
        ["open_rpcs", "requests_per_s", "granted_bytes", "queued_requests", "drops_per_s", "lock_missed"]
    {
        assert!(host[name].is_f64(), "{name}: {host}");
    }
    assert_eq!(host["calls"]["count"], 0.0);
    let lines = clean(&["top", &served.url, "--count", "2", "--interval", "100ms", "--json"]);
    assert_eq!(lines.lines().map(json).count(), 2);
}

#[test]
fn one_that_goes_and_comes_back_is_told_and_one_that_never_came_is_an_error() {
    let closed = ClosedPort::tcp("127.0.0.1:0");
    let free = closed.address().to_string();
    refused(&["top", &free, "--once"], &free);
    refused(&["metrics", &free], "no metrics at");
    let scratch = Scratch::new("watch-back");
    let path = scratch.path("homa.sock");
    let stays = ServeProcess::start("127.0.0.1:0");
    let goes = ServeProcess::start(&path);
    let mut top = homa(["top", stays.addr(), &path, "--interval", "100ms", "--json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut looks = BufReader::new(top.stdout.take().expect("piped"));
    // Returns the first update in which the second process is up or down, as requested. The first process is
    // always up.
    let mut until = |up: bool| loop {
        let mut line = String::new();
        assert_ne!(looks.read_line(&mut line).expect("readable"), 0, "top ended");
        let look = json(&line);
        assert_eq!(look["endpoints"][0]["up"], true, "{look}");
        if look["endpoints"][1]["up"] == up {
            return look;
        }
    };
    until(true);
    goes.end();
    let away = until(false);
    assert!(
        away["endpoints"][1]["error"].as_str().is_some_and(|error| error.contains("no metrics at")),
        "{away}"
    );
    let back = ServeProcess::start(&path);
    until(true);
    top.kill().and_then(|()| top.wait()).expect("ours");
    drop(back);
}

#[test]
fn what_changed_between_two_snapshots_and_since_last_time() {
    let scratch = Scratch::new("watch-diff");
    let [before, after, state] = ["before.prom", "after.prom", "state.prom"].map(|name| scratch.path(name));
    let served = ServeProcess::start("127.0.0.1:0");
    let since =
        |words: &[&str]| clean(&[&["metrics", "diff", served.addr(), "--state", &state], words].concat());
    let first = since(&[]);
    assert!(first.starts_with("no earlier snapshot in"), "{first}");
    clean(&["metrics", served.addr(), "--out", &before]);
    served.call();
    served.call();
    let shown = json(&clean(&["metrics", &served.url, "--out", &after, "--json"]));
    assert_eq!((&shown["schema"], &shown["source"]), (&1.into(), &served.addr().into()));
    let changes = json(&clean(&["metrics", "diff", &before, &after, "--json"]));
    assert_eq!((&changes["schema"], &changes["since_start"]), (&1.into(), &false.into()));
    let seconds = changes["seconds"].as_f64().expect("a time");
    let delivered = change(&changes, "homa_requests_delivered_total").expect("it changed");
    assert_eq!((&delivered["difference"], &delivered["now"]), (&2.0.into(), &2.0.into()));
    let rate = delivered["per_second"].as_f64().expect("a rate");
    assert!((rate * seconds - 2.0).abs() < 1e-6, "{delivered}");
    assert!(change(&changes, "homa_drop_invalid_total").is_none());
    let table = clean(&["metrics", "diff", &before, &after]);
    assert!(table.starts_with("time in between: ") && table.contains("per second"), "{table}");
    // The last snapshot was taken before the calls, and the next one is taken after them.
    let changes = json(&since(&["--json"]));
    assert_eq!(change(&changes, "homa_requests_delivered_total").expect("it changed")["difference"], 2.0);
    assert!(change(&json(&since(&["--json"])), "homa_requests_delivered_total").is_none());
}

#[test]
fn a_server_that_began_anew_is_told() {
    let scratch = Scratch::new("watch-anew");
    let (path, state) = (scratch.path("homa.sock"), scratch.path("state.prom"));
    let start = |bind: &str| {
        ServeProcess::spawn(homa(["serve", "--bind", bind, "--protocol", "homa", "--metrics", &path]))
    };
    let served = start("127.0.0.1:0");
    let host = served.homa.split('/').next().expect("an address").to_owned();
    served.call();
    served.call();
    clean(&["metrics", "diff", &path, "--state", &state]);
    served.end();
    let served = start(&host);
    served.call();
    let changes = json(&clean(&["metrics", "diff", &path, "--state", &state, "--json"]));
    assert_eq!(changes["restarted"], serde_json::json!([host]));
    let delivered = change(&changes, "homa_requests_delivered_total").expect("it changed");
    assert_eq!((&delivered["difference"], &delivered["went_back"]), (&1.0.into(), &true.into()));
    drop(served);
}

#[test]
fn the_last_snapshot_is_kept_where_users_keep_states() {
    let scratch = Scratch::new("watch-state");
    let served = ServeProcess::start("127.0.0.1:0");
    let mut command = homa(["metrics", "diff", served.addr()]);
    let output = command.env("XDG_STATE_HOME", &scratch.0).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(scratch.files("homa/metrics"), [served.addr().replace(':', "_") + ".prom"]);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let scratch = Scratch::new("watch-bad");
    let served = ServeProcess::start("127.0.0.1:0");
    let (good, bad, part) = (scratch.path("good"), scratch.path("bad"), scratch.path("part"));
    clean(&["metrics", served.addr(), "--out", &good]);
    fs::write(&bad, b"\xff\x00damaged\n").expect("writable");
    let whole = fs::read(&good).expect("readable");
    fs::write(&part, &whole[..whole.len() / 2]).expect("writable");
    let taken = TcpListener::bind("127.0.0.1:0").expect("any port");
    let taken = taken.local_addr().expect("bound").to_string();
    let other = ServeProcess::start("127.0.0.1:0");
    for (words, needle) in [
        (vec!["serve", "--bind", "127.0.0.1:0", "--metrics", served.addr()], served.addr()),
        (vec!["serve", "--bind", "127.0.0.1:0", "--metrics", "192.0.2.1:9"], "192.0.2.1:9"),
        (vec!["serve", "--bind", "127.0.0.1:0", "--metrics", "/nowhere/at/all.sock"], "/nowhere/at/all.sock"),
        (vec!["serve", "--bind", "127.0.0.1:0", "--metrics", "nonsense"], "is no address of metrics"),
        (vec!["bench", "--metrics", served.addr(), "--out", "/tmp"], served.addr()),
        (vec!["top"], "ADDR"),
        (vec!["top", "nonsense"], "is no address of metrics"),
        (vec!["top", &taken, "--interval", "1ms"], "100ms"),
        (vec!["metrics"], "ADDR"),
        (vec!["metrics", "/nowhere/at.all"], "/nowhere/at.all"),
        (vec!["metrics", &bad], "no text"),
        (vec!["metrics", "diff", &good, &part], "its end is missing"),
        (vec!["metrics", "diff", &bad, &good], "is no whole snapshot"),
        (vec!["metrics", "diff", &good], "give a second snapshot"),
        (vec!["metrics", "diff", served.addr(), "--state", &bad], "remove it to start again"),
        (vec!["metrics", "diff", other.addr(), "--state", &good], "choose another --state"),
        (vec!["metrics", "diff", served.addr(), "--state", "/nowhere/a/b"], "/nowhere/a/b"),
        (vec!["metrics", served.addr(), "--out", "/nowhere/a/b"], "/nowhere/a/b"),
    ] {
        refused(&words, needle);
    }
}

#[test]
fn the_clients_of_a_bench_have_times_of_calls_and_its_server_has_requests() {
    let scratch = Scratch::new("watch-bench");
    let out = scratch.path("out");
    fs::create_dir_all(&out).expect("a directory");
    let mut bench = homa([
        "bench",
        "--protocol",
        "homa",
        "--size",
        "100",
        "--outstanding",
        "1",
        "--duration",
        "30",
        "--out",
        &out,
        "--metrics",
        "127.0.0.1:0",
    ]);
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(bench.stderr.take().expect("piped")).lines();
    let mut url = |before: &str| {
        let line = said.next().expect("a line").expect("text");
        line.strip_prefix(before).unwrap_or_else(|| panic!("not `{before}`: {line}")).to_owned()
    };
    let (url, of_server) = (url("metrics "), url("metrics of the server "));
    let look = |url: &str| {
        let look = json(&clean(&["top", url, "--once", "--interval", "100ms", "--json"]));
        look["endpoints"][0]["hosts"].as_array().expect("an array").clone()
    };
    let counted = |_| {
        let calls = |host: &Value| host["calls"]["count"].as_f64().is_some_and(|count| count > 0.0);
        look(&url).into_iter().find(calls)
    };
    // At first there is no host. The bench runs longer than these updates take.
    let host = (0..100).find_map(counted).expect("calls");
    assert!(host["calls"]["p99_s"].as_f64().expect("a time") > 0.0, "{host}");
    assert_eq!(host["calls_by_bytes"][0]["bytes"], "0-1000");
    // The server receives no calls between two phases of the bench.
    let asked = |host: &Value| host["requests_per_s"].as_f64().is_some_and(|rate| rate > 0.0);
    let server = (0..100).find_map(|_| look(&of_server).into_iter().find(asked)).expect("requests");
    assert_eq!(server["calls"]["count"], 0.0, "a server calls nobody: {server}");
    bench.kill().and_then(|()| bench.wait()).expect("ours");
}
