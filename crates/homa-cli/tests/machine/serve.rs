//! The binary in a network namespace.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use homa_testkit::namespace::Namespace;

pub fn homa(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(words).stdin(Stdio::null());
    command
}

/// A running `homa serve`, which ends with the test.
pub struct Serve(Child);

impl Serve {
    /// Starts it, and returns its output until it is ready.
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

    /// Resident bytes of the process.
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
