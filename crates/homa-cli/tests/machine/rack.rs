//! Builds, uses and removes a rack on this machine, as a user would.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::common::{Scratch, assert_output_refused, stderr};
use homa_trace::{EventKind, Record};
use serde_json::Value;

fn homa(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(words.split(' ')).stdin(Stdio::null());
    command
}

fn run(words: &str) -> Output {
    homa(words).output().expect("the binary runs")
}

/// A rack that is removed at the end of the test.
struct Rack(String);

impl Rack {
    /// Builds a rack. Returns `None`, and prints the reason, if namespaces are not permitted.
    fn up(name: &str, options: &str) -> Option<Rack> {
        let name = format!("{name}-{}", std::process::id());
        let output = run(&format!("rack up --name {name} {options}"));
        if output.status.success() {
            return Some(Rack(name));
        }
        let said = stderr(&output);
        assert!(
            said.contains("namespace")
                || said.contains("cannot run `ip`")
                || said.contains("cannot run `tc`"),
            "{said}"
        );
        homa_testkit::skip(said);
        None
    }

    fn exec(&self, words: &str) -> Command {
        homa(&format!("rack exec --name {} {words}", self.0))
    }

    fn status(&self) -> Value {
        let output = run(&format!("rack status --name {} --json", self.0));
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn down(&self) -> Output {
        run(&format!("rack down --name {}", self.0))
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        let _ = self.down();
    }
}

/// Checks that the experiment ran to completion. Exit code 1 means that RPCs failed. On a busy machine, a
/// host that is not scheduled for seconds is a silent peer, which is not a defect of the experiment.
fn assert_ran(output: &Output) {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}: {}", output.status, stderr(output));
}

fn kill(pid: u64) {
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kill runs");
    assert!(killed.success());
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie counts as a process that has ended.
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Returns whether a child of this process has these words in its command line.
fn has_child(pid: u32, words: &str) -> bool {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().any(|child| {
        let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).replace('\0', " ").contains(words)
    })
}

/// Starts a server in a host, and waits until it is ready.
fn serve(rack: &Rack, host: &str) -> Child {
    let program = env!("CARGO_BIN_EXE_homa");
    let words = format!("{host} -- {program} serve --bind 0.0.0.0:14600 --protocol homa");
    let mut server = rack.exec(&words).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(server.stdout.as_mut().expect("piped")).lines();
    assert!(lines.map(|line| line.expect("text")).any(|line| line == "ready"), "the server ended early");
    server
}

fn devices() -> String {
    let text = std::fs::read_to_string("/proc/net/dev").expect("the machine's devices");
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned() + " ")
        .collect()
}

#[test]
fn hosts_reach_each_other_and_nothing_is_left() {
    let before = devices();
    let Some(rack) = Rack::up("up", "--hosts 3 --switch linux-bridge") else { return };
    assert_eq!(devices(), before, "the machine's own network");
    let status = rack.status();
    let hosts = status["hosts_up"].as_array().expect("hosts");
    assert_eq!(hosts.len(), 3);
    assert!(hosts.iter().all(|host| host["link_up"] == true), "{status}");
    let mut server = serve(&rack, "h3");
    let program = env!("CARGO_BIN_EXE_homa");
    for address in ["10.146.0.3", "10.146.0.3/99"] {
        let output =
            rack.exec(&format!("h1 {program} call {address} --text hello")).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{}", stderr(&output));
    }
    let tuned = rack.exec("h2 cat /proc/self/ns/net").output().expect("it runs");
    assert!(!tuned.status.success(), "the command's exit code is passed on");
    let keeper = status["keeper"].as_u64().expect("a pid") as u32;
    let output = rack.down();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(server.wait().is_ok());
    // The keeper ends shortly after it has released its name.
    while lives(keeper) {}
    assert_eq!(devices(), before);
    assert_output_refused(&["rack", "status"], &run(&format!("rack status --name {}", rack.0)), "no rack");
}

/// On Debian, `tc` is in /usr/sbin, and the `PATH` of ordinary users does not contain that directory.
#[test]
fn a_rack_is_built_by_programs_in_sbin_that_path_leaves_out() {
    if !Path::new("/usr/sbin/tc").exists() {
        return homa_testkit::skip("/usr/sbin/tc does not exist");
    }
    let rack = Rack(format!("sbin-{}", std::process::id()));
    let mut up = homa(&format!("rack up --name {} --hosts 2 --rate 100mbit", rack.0));
    let output = up.env("PATH", "/usr/bin:/bin").output().expect("the binary runs");
    let text = stderr(&output);
    if !output.status.success() {
        assert!(text.contains("namespace"), "{text}");
        homa_testkit::skip(text);
    }
}

#[test]
fn links_too_narrow_for_ipv6_carry_calls_by_ipv4_alone() {
    for (mtu, addresses) in [(576, 1), (1_279, 1), (1_280, 2)] {
        let Some(rack) = Rack::up(&format!("mtu-{mtu}"), &format!("--hosts 2 --mtu {mtu}")) else { return };
        let status = rack.status();
        let hosts = status["hosts_up"].as_array().expect("hosts");
        assert!(
            hosts.iter().all(|host| host["addresses"].as_array().map(Vec::len) == Some(addresses)),
            "{status}"
        );
        let mut server = serve(&rack, "h2");
        let words = format!("h1 {} call 10.146.0.2 --size 5000", env!("CARGO_BIN_EXE_homa"));
        let output = rack.exec(&words).output().expect("it runs");
        assert!(stderr(&output).starts_with("5000 bytes, the same as sent"), "{}", stderr(&output));
        rack.down();
        assert!(server.wait().is_ok());
    }
}

#[test]
fn a_pulled_cable_stops_calls_and_a_plugged_one_lets_them_go_on() {
    let Some(rack) = Rack::up("link", "--hosts 2 --switch linux-bridge") else { return };
    let mut server = serve(&rack, "h2");
    let program = env!("CARGO_BIN_EXE_homa");
    let call = |deadline: &str| {
        let words = format!("h1 {program} call 10.146.0.2 --text hello --deadline {deadline}");
        rack.exec(&words).output().expect("it runs").status.success()
    };
    let link = |to: &str| run(&format!("rack link --name {} h2 {to}", rack.0)).status.success();
    assert!(call("5") && link("down"));
    assert_eq!(rack.status()["hosts_up"][1]["link_up"], false);
    assert!(!call("0.2") && link("up"));
    assert!(call("10"), "calls go on");
    server.kill().expect("it lives");
    let _ = server.wait();
}

/// The verdict itself depends on free processors, which a busy machine lacks. It is checked by unit tests of
/// the delays.
#[test]
fn probes_of_all_priorities_cross_a_rack_beside_the_load() {
    let Some(rack) = Rack::up("probe", "--hosts 4 --rate 20mbit --buffer 200ms") else { return };
    let program = env!("CARGO_BIN_EXE_homa");
    let listen = format!("h1 -- {program} doctor listen --senders 3 --load-rate 15mbit --json -");
    let mut listener =
        rack.exec(&listen).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(listener.stderr.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    assert!(line().starts_with("listening on "));
    let probes: Vec<Child> = ["h2", "h3", "h4"]
        .into_iter()
        .map(|host| {
            let words = format!("{host} -- {program} doctor probe 10.146.0.1");
            let probe = rack.exec(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            // The host that connects first sends the probes.
            assert!(line().ends_with(" is there"));
            probe.expect("it starts")
        })
        .collect();
    std::thread::spawn(move || said.count());
    let results = listener.wait_with_output().expect("it ends").stdout;
    for mut probe in probes {
        assert!(probe.wait().expect("it ends").success());
    }
    let results: Value = serde_json::from_slice(&results).expect("JSON");
    assert!(results["load_mbps"].as_f64().is_some_and(|mbps| mbps > 0.0), "{results}");
    let priorities = results["priorities"].as_array().expect("a list");
    assert_eq!(priorities.len(), 8);
    for row in priorities {
        let count = |name: &str| row[name].as_u64().expect("a number");
        assert!(count("sent") > 0 && count("received") <= count("sent"), "{row}");
    }
    let highest = priorities[7]["received"].as_u64();
    assert!(highest.is_some_and(|received| received > 0), "{results}");
    assert!(results["verdict"].is_string(), "{results}");
}

#[test]
fn what_a_crash_leaves_is_cleared_away() {
    let Some(rack) = Rack::up("crash", "--hosts 2 --switch linux-bridge") else { return };
    let mut sleeper = rack.exec("h1 sleep 1000").spawn().expect("it starts");
    let status = rack.status();
    assert_output_refused(
        &["rack", "up"],
        &run(&format!("rack up --name {} --switch linux-bridge", rack.0)),
        "is up already",
    );
    kill(status["keeper"].as_u64().expect("a pid"));
    while run(&format!("rack status --name {}", rack.0)).status.success() {}
    let broken = run(&format!("rack status --name {}", rack.0));
    assert_output_refused(&["rack", "status"], &broken, "homa rack down");
    assert!(lives(sleeper.id()));
    let output = rack.down();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(sleeper.wait().is_ok_and(|status| !status.success()));
    assert_output_refused(&["rack", "down"], &rack.down(), "no rack");
    // The name of the rack is available again.
    assert!(run(&format!("rack up --name {} --hosts 2 --switch linux-bridge", rack.0)).status.success());
}

/// The command is run as a user other than root, in a user namespace.
#[test]
fn a_user_without_privileges_has_racks_too() {
    let scratch = Scratch::new("user-rack");
    // Other users may not be able to read the build directory.
    let program = scratch.path("homa");
    std::fs::copy(env!("CARGO_BIN_EXE_homa"), &program).expect("a copy");
    let own = scratch.path("own");
    std::fs::create_dir(&own).expect("a directory");
    if let Err(error) = std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)) {
        return homa_testkit::skip(format_args!("only root can be somebody else: {error}"));
    }
    let as_nobody = |words: &str| {
        let mut command = Command::new(&program);
        command
            .args(words.split(' '))
            .stdin(Stdio::null())
            .uid(NOBODY)
            .gid(NOBODY)
            .env("XDG_RUNTIME_DIR", &own);
        command.output().expect("the binary runs")
    };
    let up = as_nobody("rack up --hosts 2 --rate 50mbit");
    if !up.status.success() {
        let said = stderr(&up);
        assert!(said.contains("namespace"), "{said}");
        return homa_testkit::skip(said);
    }
    let load = "--workload w3 --max-message 20000 --load 0.1 --shares 1 --duration 0.3 --warmup 0.1 --json -";
    let experiment = as_nobody(&format!("rack run both --name rack {load}"));
    let status = as_nobody("rack status --json");
    let down = as_nobody("rack down");
    assert_ran(&experiment);
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert!(status["switch_runs"] == true && forwarded(&status) > 0, "{status}");
    assert!(down.status.success(), "{}", stderr(&down));
    assert!(!as_nobody("rack status").status.success());
}

/// The unprivileged user whose ID is the same on all systems.
const NOBODY: u32 = 65_534;

#[test]
fn a_rack_in_the_foreground_ends_with_ctrl_c() {
    let name = format!("fg-{}", std::process::id());
    let mut process = homa(&format!("rack up --foreground --name {name} --hosts 2 --switch linux-bridge"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
    if line.is_empty() {
        return homa_testkit::skip(stderr(&process.wait_with_output().expect("it ends")));
    }
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    assert!(process.wait().expect("it ends").success());
    assert!(!run(&format!("rack status --name {name}")).status.success());
    assert!(!Path::new("/run/homa-rack").join(&name).exists());
}

/// Runs a short experiment on four hosts. Returns `None`, and prints the reason, if namespaces are not
/// permitted.
fn experiment(options: &str) -> Option<Command> {
    // Check that a rack can be built.
    drop(Rack::up("probe", "--hosts 2 --switch linux-bridge")?);
    Some(homa(&format!("rack run vs-tcp --hosts 4 --rate 50mbit --warmup 0.2 --repetitions 1 {options}")))
}

/// Returns whether any rack of an experiment with this process ID remains.
fn left_by(pid: u32) -> bool {
    run(&format!("rack status --name run-{pid}")).status.success()
        || Path::new("/run/homa-rack").join(format!("run-{pid}")).exists()
}

/// Returns the IDs of the experiment's processes that run in the hosts of a rack.
fn agents(rack: &Value) -> Vec<u64> {
    let pids = rack["processes"].as_array().expect("processes").iter().filter_map(Value::as_u64);
    let is_agent = |pid: &u64| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|&byte| byte == 0).any(|word| word == b"agent")
    };
    pids.filter(is_agent).collect()
}

/// Returns the number of frames that the switch sent to a host.
fn forwarded(rack: &Value) -> u64 {
    let queues = rack["switch_stats"]["ports"][0]["queues"].as_array().into_iter().flatten();
    queues.filter_map(|queue| queue["frames"].as_u64()).sum()
}

#[test]
fn homa_and_tcp_are_compared_on_four_hosts() {
    let Some(mut command) = experiment("--workload w3 --load 0.3 --duration 1") else {
        return;
    };
    let (scratch, traces) = (Scratch::new("rack"), Scratch::new("rack-traces"));
    let child = command
        .args(["--out", &scratch.path(""), "--trace", &traces.path("")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = child.spawn().expect("it starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_ran(&output);
    let table = String::from_utf8_lossy(&output.stdout);
    for part in ["Slowdown by message size", "Short messages", "TCP / Homa", "processors busy", "Differences"]
    {
        assert!(table.contains(part), "{part} is missing: {table}");
    }
    assert_eq!(scratch.files(""), ["report.html", "results.json"]);
    let json = std::fs::read(scratch.path("results.json")).expect("readable");
    let results: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((&results["experiment"], &results["rack"]["hosts"]), (&"vs-tcp".into(), &4.into()));
    let simulated = results["sim"]["runs"].as_array().expect("simulated runs");
    for (run, protocol) in simulated.iter().zip(["homa", "tcp"]) {
        assert_eq!((&run["protocol"], &run["unfinished"]), (&protocol.into(), &0.into()));
        assert!(run["distance"]["p50"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{run}");
    }
    let runs = results["runs"].as_array().expect("runs");
    for (run, protocol) in runs.iter().zip(["homa", "tcp"]) {
        assert_eq!(run["protocol"], protocol);
        assert!(run["rpcs"].as_u64().is_some_and(|count| count > 100), "{run}");
        assert_eq!((&run["lost"], &run["duplicated"]), (&0.into(), &0.into()), "{run}");
    }
    // Both protocols had the same messages to send, though perhaps not enough time to send all of them. The
    // measured times may differ by microseconds.
    let due = |run: &Value| ["started", "unsent"].map(|name| run[name].as_f64().expect("a number"));
    let due = |run: &Value| due(run).iter().sum::<f64>();
    assert!((due(&runs[0]) / due(&runs[1]) - 1.0).abs() < 0.05, "{runs:?}");
    assert!(!left_by(pid));
    let files = (1..=4).map(|host| format!("load1-homa-h{host}.trace"));
    let files: Vec<String> = files.chain(["switch.trace".to_owned()]).collect();
    assert_eq!(traces.files(""), files);
    assert_traces_agree(&files.iter().map(|file| traces.path(file)).collect::<Vec<_>>());
}

/// Options that the tests of cells share.
const CELL: &str = "--hosts 3 --max-message 20000 --load 0.2 --warmup 0.05 --sim never";

#[test]
fn every_cell_has_a_rack_of_its_own_and_a_row_in_the_table() {
    let ways =
        "--workload w2,w3 --rates w2=20mbit --rate 50mbit --cc cubic,reno --duration 0.3 --repetitions 2";
    if Rack::up("probe3", "--hosts 2 --switch linux-bridge").is_none() {
        return;
    }
    let output = run(&format!("rack run vs-tcp {ways} {CELL} --json -"));
    assert_ran(&output);
    let text = stderr(&output);
    for part in
        ["Short messages: TCP / Homa", "TCP reno P99", "w2, 1ms", "w3, 1ms", "w3, buffer 1ms: Conditions"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&results["experiment"], &results["failed_cells"]),
        (&"vs-tcp".into(), &serde_json::json!([]))
    );
    let (cells, table) =
        (results["cells"].as_array().expect("cells"), results["table"].as_array().expect("rows"));
    assert_eq!((cells.len(), table.len()), (2, 2));
    for ((cell, row), (workload, mbps)) in cells.iter().zip(table).zip([("w2", 20), ("w3", 50)]) {
        assert_eq!((&cell["config"]["workload"], &row["workload"]), (&workload.into(), &workload.into()));
        assert_eq!(
            (&cell["rack"]["rate_bps"], &row["rate_bps"]),
            (&(mbps * 1_000_000).into(), &(mbps * 1_000_000).into())
        );
        let ways = |list: &Value| {
            list.as_array().expect("a list").iter().map(|one| one["congestion"].clone()).collect::<Vec<_>>()
        };
        let all: [Value; 3] = [Value::Null, "cubic".into(), "reno".into()];
        assert_eq!((ways(&cell["runs"]), ways(&row["tcp"])), (all.to_vec(), all[1..].to_vec()));
        // Each repetition lists the contenders in the same order, even though they ran in different orders.
        assert_eq!(ways(&cell["repetitions"]), [all.clone(), all].concat());
        assert!(
            row["tcp"]
                .as_array()
                .is_some_and(|tcp| tcp.iter().all(|one| one["short_p99_ratio"]["count"].as_u64() <= Some(2))),
            "{row}"
        );
        assert!(
            cell["runs"]
                .as_array()
                // On a busy machine, a protocol may not have been scheduled in some of its runs.
                .is_some_and(|runs| runs.iter().any(|run| run["rpcs"].as_u64() > Some(20))),
            "{cell}"
        );
        assert!(cell["hosts"]["tcp-reno"].is_array() && cell["unloaded"].is_array(), "{cell}");
    }
}

#[test]
fn a_cell_that_fails_is_named_and_the_others_are_kept() {
    if Rack::up("probe4", "--hosts 2 --switch linux-bridge").is_none() {
        return;
    }
    let options = "--workload w3 --buffer 1ms,2ms,3ms --switch linux-bridge --duration 0.5 --repetitions 1";
    let scratch = Scratch::new("rack-cells");
    let mut command = homa(&format!("rack run vs-tcp {options} {CELL} --out {}", scratch.path("")));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id();
    let victim = loop {
        assert!(child.try_wait().expect("a child").is_none(), "it ended early");
        let status = run(&format!("rack status --name run-{pid} --json"));
        let Ok(rack) = serde_json::from_slice::<Value>(&status.stdout) else { continue };
        if let (Some("2ms"), Some(&agent)) = (rack["buffer"].as_str(), agents(&rack).first()) {
            break agent;
        }
    };
    kill(victim);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json = std::fs::read(scratch.path("results.json")).expect("readable");
    let results: Value = serde_json::from_slice(&json).expect("JSON");
    let buffers = |list: &Value, at: &str| {
        let all = list.as_array().expect("a list").iter();
        all.map(|one| one.pointer(at).cloned().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(buffers(&results["cells"], "/rack/buffer"), ["1ms", "3ms"]);
    assert_eq!(buffers(&results["failed_cells"], "/buffer"), ["2ms"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("WARNING: w3, buffer 2ms: no results: the "), "{text}");
    assert!(!left_by(pid));
}

/// Records that occur only once per direction, with their times, keyed by type, RPC and arguments.
type UniqueRecords = HashMap<(u16, u64, u32, u32), (Record, u64)>;

fn seen(file: &String) -> UniqueRecords {
    let dump = homa_trace::read_dump(&std::fs::read(file).expect("readable")).expect("a dump");
    let (mut seen, mut twice) = (HashMap::new(), HashSet::new());
    for record in &dump.records {
        let key = (record.kind, record.id, record.a, record.b);
        if seen.insert(key, (*record, dump.time_ns(record))).is_some() {
            twice.insert(key);
        }
    }
    // If a packet was retransmitted, or two hosts used its ID, its one-way time cannot be determined.
    seen.retain(|key, _| !twice.contains(key));
    seen
}

/// Checks that the hosts' packets match those of the switch, whose file is the last one, and that events are
/// in the right order.
fn assert_traces_agree(files: &[String]) {
    let (switch, hosts) = files.split_last().expect("files");
    let switch = seen(switch);
    let hosts: Vec<UniqueRecords> = hosts.iter().map(seen).collect();
    let find = |seen: &UniqueRecords, kind: EventKind, id, (a, b)| {
        seen.get(&(kind as u16, id, a, b)).map(|(record, time)| (record.place, *time))
    };
    let mut ways = 0;
    for (number, host) in hosts.iter().enumerate() {
        let sent = host.values().filter(|(record, _)| record.event() == Some(EventKind::PacketSent));
        for (record, sent_ns) in sent {
            let what = (record.a, record.b);
            let entered = find(&switch, EventKind::SwitchEntered, record.id, what);
            let left = find(&switch, EventKind::SwitchLeft, record.id, what);
            let (Some((place, entered_ns)), Some((left_place, left_ns))) = (entered, left) else { continue };
            assert_ne!(usize::from(place.port()), number, "it goes to another port than its sender's");
            assert_eq!(place, left_place);
            let receiver = &hosts[usize::from(place.port())];
            let Some((_, received_ns)) = find(receiver, EventKind::PacketReceived, record.id ^ 1, what)
            else {
                continue;
            };
            let times = [*sent_ns, entered_ns, left_ns, received_ns];
            assert!(times.is_sorted(), "{record:?}: {times:?}");
            ways += 1;
        }
    }
    assert!(ways > 50, "only {ways} packets are in all three traces");
}

/// Experiments with published results.
const PUBLISHED: [&str; 4] = ["config", "client-threads", "server-ports", "starve"];

/// Returns whether a load had responses. On a busy machine, a load of 0.2 s has none if its hosts were not
/// scheduled.
fn has_carried(load: &Value) -> bool {
    load["score"]["rpcs_per_s"].as_f64().expect("a rate") > 0.0
}

/// Checks the parts common to the results of all experiments, and the number of loads in each.
#[test]
fn every_experiment_ends_with_results() {
    let Some(rack) = Rack::up("all", "--hosts 3 --rate 50mbit --switch linux-bridge") else { return };
    for (words, loads) in [
        ("basic", 0),
        ("incast --workload 5000 --senders 1,5", 4),
        ("load --workload w2 --max-message 20000 --loads 0.1,0.2", 4),
        ("max-load --workload w3 --max-message 20000 --loads 0.1", 0),
        ("both --workload w3 --max-message 20000 --load 0.2 --shares 0,0.5,1", 4),
        ("config --workload w3 --max-message 20000 --load 0.2 --setting max_overcommit --values 1,4", 2),
        ("config --workload w3 --max-message 20000 --load 0.2 --setting batch_cap --values 1,32", 2),
        ("client-threads --workload w3 --max-message 20000 --load 0.2 --threads 1,2 --receivers 1", 4),
        ("server-ports --workload w3 --max-message 20000 --load 0.2 --ports 1,2 --receivers 2", 4),
        ("starve --workload w3 --max-message 20000 --shares 0,5", 2),
    ] {
        let options = format!("--name {} --duration 0.2 --warmup 0.05 --json -", rack.0);
        let output = run(&format!("rack run {words} {options}"));
        assert_ran(&output);
        let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(results["experiment"], *words.split(' ').next().expect("a name"));
        assert_eq!((&results["schema"], &results["rack"]["hosts"]), (&1.into(), &3.into()));
        if loads > 0 {
            let all = results["results"].as_array().expect("results");
            assert_eq!(all.len(), loads, "{words}");
            assert!(all.iter().any(has_carried), "{results}");
            // If results have been published, they are listed with the parameter that was varied.
            assert_eq!(results["published"].is_array(), PUBLISHED.iter().any(|name| words.starts_with(name)));
        }
        assert!(stderr(&output).contains("In numbers") || words.starts_with("basic"), "{}", stderr(&output));
    }
}

/// Runs the experiments that build a separate rack for each value.
#[test]
fn a_rack_is_built_for_each_value_that_takes_one() {
    if Rack::up("probe2", "--hosts 2 --switch linux-bridge").is_none() {
        return;
    }
    let before = devices();
    let load = "--workload w3 --max-message 20000 --load 0.2 --duration 0.2 --warmup 0.05";
    for (words, hosts_option) in [
        ("mtu --mtus 1500,9000", "--hosts 2 --rate 50mbit --switch linux-bridge"),
        ("config --setting switch_priorities --values 1,8", "--hosts 2 --rate 50mbit"),
    ] {
        let output = run(&format!("rack run {words} {load} {hosts_option} --json -"));
        assert_ran(&output);
        let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = results["results"].as_array().expect("results");
        assert!(all.iter().any(has_carried), "{results}");
        assert_eq!(all.len(), if words.starts_with("mtu") { 4 } else { 2 });
        assert!(results["published"].as_array().is_some_and(|notes| !notes.is_empty()), "{results}");
        let built = if words.starts_with("mtu") {
            ("mtu", 9_000.into())
        } else {
            ("switch_options", serde_json::json!(["--priorities=8"]))
        };
        assert_eq!(results["rack"][built.0], built.1);
    }
    assert_eq!(devices(), before, "the machine's own network");
}

#[test]
fn causes_are_planted_one_at_a_time_and_each_run_has_its_verdict() {
    if Rack::up("probe3", "--hosts 2 --switch linux-bridge").is_none() {
        return;
    }
    let before = devices();
    let traces = std::env::temp_dir().join(format!("homa-planted-{}", std::process::id()));
    let words = "--hosts 3 --duration 0.4 --warmup 0.05 --repetitions 1";
    let output = run(&format!("rack run causes {words} --trace {} --json -", traces.display()));
    assert_ran(&output);
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = results["results"]["runs"].as_array().expect("runs");
    let planted: Vec<&str> = runs.iter().filter_map(|run| run["planted"].as_str()).collect();
    assert_eq!(planted, ["none", "hog", "stop", "none-long", "queue", "pacer", "windows", "loss"]);
    assert!(runs.iter().all(|run| run["rpcs"].as_u64() > Some(0) && run["cause"].is_string()), "{results}");
    assert_eq!(runs[0]["found"], false, "nothing was planted");
    // The traces of a run are kept as evidence.
    let lost = run(&format!("trace lost {} --json -", traces.join("loss-1").display()));
    assert_eq!(lost.status.code(), Some(0), "{}", stderr(&lost));
    std::fs::remove_dir_all(&traces).expect("the traces");
    assert_eq!(devices(), before, "the machine's own network");
}

#[test]
fn flows_cross_a_router_under_each_policy_and_nothing_is_left() {
    let before = devices();
    // In a user namespace, no user may load programs.
    let policies: &[&str] = if rustix::process::geteuid().is_root() {
        &["none", "rps", "rss-hash", "sparse"]
    } else {
        &["none", "rps"]
    };
    let list = policies.join(",");
    let words = format!(
        "rack run rps --flows 1,3 --policies {list} --duration 0.1 --warmup 0.05 --repetitions 2 --nat --json -"
    );
    let output = run(&words);
    let said = stderr(&output);
    // Only root in the initial user namespace may configure RPS (`rps_cpus`).
    let needs = ["namespace", "cannot run `ip`", "rps_cpus: Operation not permitted"];
    if output.status.code() != Some(0) && needs.iter().any(|part| said.contains(part)) {
        return homa_testkit::skip(said);
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Published"), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // If there is no program to translate addresses, the result says so.
    assert_eq!(results["config"]["nat"].is_null(), said.contains("only routes"));
    let all = results["results"].as_array().expect("results");
    let measured: Vec<_> = all.iter().map(|one| (one["policy"].as_str(), one["flows"].as_u64())).collect();
    let of = |&policy: &&'static str| [1, 3].map(|flows| (Some(policy), Some(flows)));
    assert_eq!(measured, policies.iter().flat_map(of).collect::<Vec<_>>());
    for one in all {
        for direction in ["forward", "backward", "sum"] {
            let runs = one[direction]["runs"].as_array().expect("runs");
            // On a busy machine, a run whose flows were not scheduled transfers nothing.
            assert!(runs.len() == 2 && runs.iter().all(|run| run.as_f64() >= Some(0.0)), "{one}");
            assert!(runs.iter().any(|run| run.as_f64() > Some(0.0)), "{one}");
        }
        assert!(one["cores_busy"].as_array().is_some_and(|cores| !cores.is_empty()), "{one}");
    }
    assert_eq!(devices(), before, "the machine's own network");
}

#[test]
fn a_host_that_dies_ends_the_experiment_in_one_line() {
    let Some(rack) = Rack::up("dies", "--hosts 4 --switch linux-bridge") else { return };
    let options = format!("rack run vs-tcp --name {} --duration 60 --repetitions 1 --json -", rack.0);
    let child = homa(&options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let victim = loop {
        if let Some(&pid) = agents(&rack.status()).first() {
            break pid;
        }
    };
    kill(victim);
    let output = child.wait_with_output().expect("it ends");
    assert_output_refused(&["rack", "run"], &output, "process of h");
    // The experiment did not build the rack, so it leaves the rack running.
    assert!(rack.status()["processes"].as_array().is_some_and(Vec::is_empty));
}

/// During an experiment, a cable is unplugged and a switch is killed. The experiment must continue, no
/// response may be lost silently, and the results must report both events.
#[test]
fn an_experiment_goes_on_past_a_pulled_cable_and_a_killed_switch() {
    let Some(rack) = Rack::up("goes-on", "--hosts 2 --rate 50mbit") else { return };
    let load = "--workload w3 --max-message 20000 --load 0.2 --shares 1 --duration 6 --warmup 0.1 --json -";
    let options = format!("rack run both --name {} {load}", rack.0);
    let mut child = homa(&options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let until = |child: &mut Child, holds: &dyn Fn(&Value) -> bool| {
        while !holds(&rack.status()) {
            assert!(child.try_wait().expect("a child").is_none(), "it ended early");
        }
    };
    // The agents that measured unloaded round trips have ended. The remaining agents are those of Homa and
    // TCP.
    until(&mut child, &|rack| agents(rack).len() == 4);
    let begin = forwarded(&rack.status());
    until(&mut child, &|rack| forwarded(rack) > begin + 500);
    let link = |to: &str| run(&format!("rack link --name {} h2 {to}", rack.0)).status.success();
    assert!(link("down"));
    assert_eq!(rack.status()["hosts_up"][1]["link_up"], false);
    assert!(link("up"));
    let status = rack.status();
    assert_eq!((&status["switch_runs"], &status["switch_ends"]), (&true.into(), &0.into()));
    kill(status["switch_pid"].as_u64().expect("the switch"));
    until(&mut child, &|rack| rack["switch_ends"] == 1 && rack["switch_runs"] == true);
    let output = child.wait_with_output().expect("it ends");
    assert_ran(&output);
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = results["link_events"].as_array().expect("events");
    let ups: Vec<_> = events.iter().map(|event| (event["host"].as_str(), event["up"].as_bool())).collect();
    assert_eq!(ups, [(Some("h2"), Some(false)), (Some("h2"), Some(true))]);
    let warnings = results["warnings"].to_string();
    assert!(warnings.contains("link of h2") && warnings.contains("the switch ended"), "{warnings}");
    let score = &results["results"][0]["score"];
    assert_eq!(score["lost"], 0, "{score}");
}

#[test]
fn a_switch_that_always_ends_ends_the_experiment_in_one_line() {
    let Some(rack) = Rack::up("switch", "--hosts 2") else { return };
    let options = format!("rack run vs-tcp --name {} --duration 60 --repetitions 1 --json -", rack.0);
    let child = homa(&options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    while agents(&rack.status()).is_empty() {}
    let mut status = rack.status();
    assert!(status["switch_stats"].is_object() && status["switch_runs"] == true, "{status}");
    while status["switch_given_up"] == false {
        if let Some(pid) = status["switch_pid"].as_u64() {
            kill(pid);
            while rack.status()["switch_ends"] == status["switch_ends"] {}
        }
        status = rack.status();
    }
    let output = child.wait_with_output().expect("it ends");
    assert_output_refused(&["rack", "run"], &output, "the switch ended");
    assert_eq!(rack.status()["switch_runs"], false);
}

#[test]
fn an_interrupted_experiment_leaves_nothing() {
    let Some(mut command) = experiment("--switch linux-bridge --json - --duration 60") else { return };
    command.process_group(0);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id();
    while !has_child(pid, "rack agent") {
        assert!(child.try_wait().expect("a child").is_none(), "it ended early");
    }
    // Signal the whole foreground process group, including the agents, as a terminal does.
    let group = format!("-{pid}");
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_output_refused(&["rack", "run"], &output, "interrupted");
    assert!(!left_by(pid));
}

#[test]
fn bench_goes_on_over_loopback_where_namespaces_are_forbidden() {
    // Run as root in a user namespace that permits no further namespaces, as in a container.
    let forbid = "for kind in user net; do echo 0 > /proc/sys/user/max_${kind}_namespaces || exit 77; done; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", forbid, "sh", env!("CARGO_BIN_EXE_homa")]);
    let output = command.args("bench --seconds 8 --json -".split(' ')).stdin(Stdio::null()).output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && !stderr(&output).starts_with("unshare:") => output,
        Ok(output) => return homa_testkit::skip(stderr(&output)),
        Err(error) => return homa_testkit::skip(format_args!("there is no unshare: {error}")),
    };
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("namespaces is 0; allow it by `sudo sysctl") && said.contains("loopback"),
        "{said}"
    );
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(results["runs"].as_array().map(Vec::len), Some(2));
}
