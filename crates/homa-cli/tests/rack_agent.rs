//! Tests `homa rack agent`, the process that an experiment runs in a host of a rack, by controlling it as the
//! experiment does.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use super::common::homa;
use serde_json::{Value, json};

#[test]
fn a_load_ordered_after_its_start_is_reported_and_the_next_one_runs() {
    let mut agent = homa(["rack", "agent"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut orders = agent.stdin.take().expect("piped");
    let mut replies = BufReader::new(agent.stdout.take().expect("piped"));
    let mut say = |line: &Value| writeln!(orders, "{line}").expect("it listens");
    let mut reply = || -> String {
        let mut line = String::new();
        replies.read_line(&mut line).expect("text");
        let reply: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        reply["reply"].as_str().expect("a name").to_owned()
    };
    say(&json!({
        "protocol": "tcp", "driver": "udp", "xdp_mode": "auto", "address": "127.0.0.1", "udp_port": 0,
        "link_mbps": 100, "mtu": 1_500, "workload": "100", "longest": 100, "connections": 1,
        "server_threads": 1, "server_ports": 1, "client_threads": 1, "port_receivers": 0, "endpoints": 1,
        "poll_us": 0, "one_way": false, "seed": 1, "settings": [],
        "recording": {"records": 0, "freeze_peers": false, "device_times": false},
    }));
    assert_eq!(reply(), "ready");
    let load = |start_ns: u64| json!({"order": "load", "start_ns": start_ns, "warmup_ns": 0, "measured_ns": 1_000_000, "seed": 1});
    // A start time that is already in the past.
    say(&load(1));
    assert_eq!(reply(), "late");
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Late enough even on a busy machine.
    say(&load((now.tv_sec.unsigned_abs() + 10) * 1_000_000_000));
    assert_eq!(reply(), "loaded");
    drop(orders);
    assert!(agent.wait().expect("a child").success());
}
