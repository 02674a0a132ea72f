//! Servers in child processes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use homa_report::output::print;

use super::{Report, Server, ServerOptions};
use crate::protocol::Protocol;

/// First argument that makes the program a server process, which calls [`serve_for_parent`].
pub const CHILD_COMMAND: &str = "bench-server";

/// Runs the server described by the [`ServerOptions`] in the first line of standard input, until standard
/// input is closed.
///
/// # Errors
/// The errors of [`Server::start`], or the first line does not contain valid options.
pub fn serve_for_parent() -> Result<()> {
    let mut order = String::new();
    let mut input = io::stdin().lock();
    input.read_line(&mut order).context("cannot read the server options from the bench")?;
    let options = serde_json::from_str(&order).context("the server options from the bench are invalid")?;
    let report = |report: Report| print(format!("{report}\n").as_bytes());
    let mut server = Server::start(&options, report)?;
    // A read error also counts as the end of input.
    let _ = input.read_to_end(&mut Vec::new());
    server.write_trace()?;
    server.served().into_iter().try_for_each(|(protocol, count)| report(Report::Served(protocol, count)))
}

/// A child process that serves one protocol. It exits when its standard input is closed, so it cannot outlive
/// its parent.
pub struct ServerProcess {
    protocol: Protocol,
    process: Child,
    reports: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts a child process for one protocol. Returns once all ports are open, together with their reports.
    ///
    /// # Errors
    /// The child cannot be started, or exits early; the error then contains the child's error output.
    pub fn start(options: &ServerOptions) -> Result<(ServerProcess, Vec<Report>)> {
        let [protocol] = options.protocols[..] else { bail!("a server process has one protocol") };
        let program = std::env::current_exe().context("cannot find this program to start a server")?;
        let mut command = Command::new(program);
        command.arg(CHILD_COMMAND);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start a server process")?;
        let reports = process.stdout.take().context("the server process has no output")?;
        let mut server = ServerProcess { protocol, process, reports: BufReader::new(reports) };
        server.order(options)?;
        let mut ports = Vec::new();
        loop {
            match server.report()? {
                Some(Report::Ready) => return Ok((server, ports)),
                Some(Report::Served(..)) => bail!("the server process ended early"),
                Some(port) => ports.push(port),
                None => return Err(server.exit_reason()),
            }
        }
    }

    fn order(&mut self, options: &ServerOptions) -> Result<()> {
        let order = serde_json::to_string(options)?;
        let input = self.process.stdin.as_mut().context("the server process has no input")?;
        let sent = writeln!(input, "{order}");
        // If the child has exited, it has printed the reason.
        sent.map_err(|_| self.exit_reason())
    }

    /// Returns the served protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the process ID of the child.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the next report of the child, or `None` at the end of its output.
    fn report(&mut self) -> Result<Option<Report>> {
        let mut line = String::new();
        self.reports.read_line(&mut line).context("cannot read from the server process")?;
        if line.is_empty() { Ok(None) } else { line.trim_end().parse().map(Some) }
    }

    /// Returns the reason why the child exited early, from its error output.
    fn exit_reason(&mut self) -> anyhow::Error {
        let mut words = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        let words = words.trim().trim_start_matches("homa:").trim();
        anyhow!("the server process failed: {}", if words.is_empty() { "it printed no error" } else { words })
    }

    /// Ends the child. Returns its protocol and the number of requests that it handled.
    pub fn finish(mut self) -> Result<(Protocol, u64)> {
        drop(self.process.stdin.take());
        let served = match self.report()? {
            Some(Report::Served(protocol, count)) if protocol == self.protocol => count,
            _ => return Err(self.exit_reason()),
        };
        Ok((self.protocol, served))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Killing fails if the child has exited already. Waiting for it is enough in that case.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
