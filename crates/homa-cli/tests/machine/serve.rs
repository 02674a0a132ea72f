//! Runs the binary in a network namespace.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use homa_testkit::namespace::Namespace;

use super::common::stderr;

pub fn homa(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs the binary in a namespace until it exits.
pub fn run(namespace: &Namespace, words: &str) -> Output {
    let words = words.to_owned();
    namespace.run(move || homa(&words.split(' ').collect::<Vec<_>>()).output().expect("the binary runs"))
}

pub fn assert_clean(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}

/// Returns an IP address in the format of the command line.
pub fn host(ip: &str) -> String {
    if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() }
}

/// Runs a bench over `driver` to a server at `host` in another namespace. Every RPC must end without an
/// error.
pub fn bench_to(namespace: &Namespace, driver: &str, host: &str) {
    let bench = format!(
        "bench --driver {driver} --protocol homa --servers {host} --workload w4 --gbps 0.1 --duration 0.5 \
         --json -"
    );
    let output = run(namespace, &bench);
    assert_clean(&output);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(results["config"]["driver"], driver);
    let run = &results["runs"][0];
    assert!(run["rpcs"].as_u64().is_some_and(|count| count > 0), "{run}");
    assert_eq!(
        (&run["errors"], &run["lost"], &run["duplicated"]),
        (&0.into(), &0.into(), &0.into()),
        "{run}"
    );
}

/// Runs a bench over `driver` in its own namespace, with its own servers and clients, and also concurrently
/// with a bench over UDP.
pub fn bench_alone(driver: &str) {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return homa_testkit::skip(why),
    };
    let bench =
        format!("bench --driver {driver} --clients 2 --size 2000 --outstanding 2 --duration 0.3 --json -");
    assert_clean(&run(&namespace, &bench));
    assert_clean(&run(&namespace, &format!("{bench} --protocol homa,udp")));
}

/// A running `homa serve`, which ends with the test.
pub struct Serve(Child);

impl Serve {
    /// Starts the server, and returns its output up to the line that says that it is ready.
    pub fn start(namespace: &Namespace, words: &str) -> (Serve, String) {
        let words = words.to_owned();
        let mut process = namespace.run(move || {
            let mut command = homa(&words.split(' ').collect::<Vec<_>>());
            command.stdout(Stdio::piped()).spawn().expect("the server starts")
        });
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let server = Serve(process);
        let said: Vec<String> =
            lines.map(|line| line.expect("text")).take_while(|line| line != "ready").collect();
        (server, said.join("\n"))
    }

    /// Returns the resident bytes of the process.
    pub fn resident_bytes(&self) -> u64 {
        homa_testkit::resident_bytes(self.0.id()).expect("it runs")
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
