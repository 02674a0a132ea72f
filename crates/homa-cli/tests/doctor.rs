//! Tests `homa doctor` from the user's point of view.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output, Stdio};

use super::common::{assert_output_refused, homa, run, stderr};
use serde_json::Value;

fn doctor(words: &[&str]) -> Output {
    run(["doctor"].iter().chain(words).copied())
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    for (words, part) in [
        (["--dev", "no-such-device"], "`no-such-device`; there are "),
        (["--link-mbps", "0"], "--link-mbps"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
        (["probe", "127.0.0.1:1"], "no listener at 127.0.0.1:1: start `homa doctor listen`"),
        (["listen", "--bind=192.0.2.1"], "choose another --bind"),
        (["listen", "--load-priority=7"], "--load-priority"),
    ] {
        assert_output_refused(&words, &doctor(&words), part);
    }
}

#[test]
fn every_finding_says_what_was_read_and_how_bad_it_is() {
    let output = doctor(&["--dev", "lo", "--json", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = results["findings"].as_array().expect("findings");
    for name in [
        "receive_buffer",
        "gro",
        "interrupt_moderation",
        "rps",
        "governor",
        "mtu",
        "dscp",
        "link_rate",
        "kernel",
    ] {
        let finding = findings.iter().find(|finding| finding["name"] == name);
        let finding = finding.unwrap_or_else(|| panic!("{name} is missing"));
        let severity = finding["severity"].as_str().expect("a severity");
        assert!(["cost", "note", "unknown", "fine"].contains(&severity), "{finding}");
        assert!(
            finding["read"].is_array() && finding["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{finding}"
        );
    }
}

/// Starts a listener for one host on a free port, and returns its address.
fn listener() -> (Child, String) {
    let words = [
        "doctor",
        "listen",
        "--bind",
        "127.0.0.1:0",
        "--seconds",
        "100ms",
        "--load-rate",
        "1mbit",
        "--json",
        "-",
    ];
    let mut child =
        homa(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    said.read_line(&mut line).expect("text");
    let address = line.split(' ').nth(2).unwrap_or_else(|| panic!("no address: {line}")).to_owned();
    std::thread::spawn(move || said.read_to_string(&mut String::new()));
    (child, address)
}

#[test]
fn a_probe_and_its_listener_print_the_same() {
    let (listener, address) = listener();
    let probe = doctor(&["probe", &address, "--json", "-"]);
    assert!(probe.status.success(), "{}", stderr(&probe));
    let listened = listener.wait_with_output().expect("it ends");
    assert!(listened.status.success());
    assert_eq!(listened.stdout, probe.stdout);
    let results: Value = serde_json::from_slice(&probe.stdout).expect("JSON");
    let rows = results["priorities"].as_array().expect("priorities");
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert_eq!(row["received"], row["sent"], "nothing is lost on the way to oneself: {row}");
        assert!(row["received"].as_u64().expect("a count") > 0, "{row}");
    }
}

#[test]
fn a_host_that_goes_away_ends_the_listener_in_one_line() {
    let (listener, address) = listener();
    let mut stranger = std::net::TcpStream::connect(&address).expect("it listens");
    std::io::Write::write_all(&mut stranger, b"{\"version\":1}\n").expect("sent");
    drop(stranger);
    let output = listener.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}
