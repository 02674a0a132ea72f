//! The agents of an experiment: one process per host, with its orders and replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use homa_bench::engine::rtt::{MAX_FAILURE_TIME, RttTable};
use homa_bench::engine::tally::Sample;
use homa_bench::protocol::Protocol;
use rustix::process::Pid;
use serde_json::Value;

use super::agent;
use super::agent_protocol::{Order, Reply, Setup, take_samples};
use super::testbed::{LOOK, Load, PATIENCE, Testbed};
use crate::spec::ipv4;
use crate::{RACK_COMMAND, enter};

/// One agent per host, all using the same protocol.
pub struct Agents {
    /// The agents' protocol.
    pub protocol: Protocol,
    /// [`Setup::answering_threads`] of each agent.
    pub answering_threads: u16,
    agents: Vec<Agent>,
}

impl Agents {
    /// Starts the agents, and returns once all of them serve. Each host's own address replaces the address in
    /// `setup`.
    ///
    /// # Errors
    /// An agent failed; the error contains its error output.
    pub fn start(testbed: &Testbed, setup: &Setup) -> Result<Agents> {
        let mut agents = Vec::new();
        for (number, place) in testbed.spec().numbers().zip(testbed.places()) {
            let setup = Setup { address: ipv4(number), ..setup.clone() };
            agents.push(Agent::start(testbed, &place.name, setup.protocol, &setup)?);
        }
        let answering_threads = setup.answering_threads();
        let mut agents = Agents { protocol: setup.protocol, answering_threads, agents };
        for agent in &mut agents.agents {
            agent.reply(testbed, PATIENCE)?;
        }
        Ok(agents)
    }

    /// Makes each host a client of the hosts whose numbers `peers` returns for the host's number.
    ///
    /// # Errors
    /// A host cannot reach its peers.
    pub fn open(&mut self, testbed: &Testbed, peers: impl Fn(u16) -> Vec<u16>) -> Result<()> {
        for (number, agent) in testbed.spec().numbers().zip(&mut self.agents) {
            let peers: Vec<IpAddr> = peers(number).into_iter().map(ipv4).collect();
            agent.order(testbed, &Order::Open { peers })?;
        }
        self.agents.iter_mut().try_for_each(|agent| agent.reply(testbed, PATIENCE).map(drop))
    }

    /// Makes each host a client of all others.
    ///
    /// # Errors
    /// A host cannot reach its peers.
    pub fn open_all(&mut self, testbed: &Testbed) -> Result<()> {
        self.open_among(testbed, |_| true)
    }

    /// Makes each participating host a client of all other participants. Hosts that do not participate are
    /// neither clients nor servers.
    ///
    /// # Errors
    /// A host cannot reach its peers.
    pub fn open_among(&mut self, testbed: &Testbed, takes_part: impl Fn(u16) -> bool) -> Result<()> {
        let numbers: Vec<u16> = testbed.spec().numbers().filter(|&number| takes_part(number)).collect();
        self.open(testbed, |number| {
            let others = numbers.iter().copied().filter(|&other| other != number);
            others.filter(|_| takes_part(number)).collect()
        })
    }

    /// Measures round trips from the first host to the second, without other load. Afterwards the first host
    /// is a client of the second, and the other hosts have no servers.
    ///
    /// # Errors
    /// The first RPC failed, or several others did.
    pub fn unloaded(&mut self, testbed: &Testbed, sizes: &[u32], budget: Duration) -> Result<RttTable> {
        self.open(testbed, |number| if number == 1 { vec![2] } else { Vec::new() })?;
        let agent = self.agents.first_mut().context("there is no host")?;
        let budget_ms = u64::try_from(budget.as_millis()).unwrap_or(u64::MAX);
        agent.order(testbed, &Order::Unloaded { sizes: sizes.to_vec(), budget_ms })?;
        match agent.reply(testbed, budget + MAX_FAILURE_TIME + PATIENCE)?.reply {
            Reply::Unloaded { points } => Ok(RttTable::new(points)),
            _ => bail!("a host sent a wrong reply instead of its round trips"),
        }
    }

    /// Returns all agents.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Agent> {
        self.agents.iter_mut()
    }

    /// Returns the agent process of the host with this number.
    pub fn process(&self, number: u16) -> Option<Pid> {
        let agent = self.agents.get(usize::from(number).checked_sub(1)?)?;
        Some(Pid::from_child(&agent.process))
    }

    /// Returns the counters of each host's transport, by name.
    ///
    /// # Errors
    /// An agent has exited.
    pub fn metrics(&mut self, testbed: &Testbed) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for agent in &mut self.agents {
            agent.order(testbed, &Order::Metrics)?;
            if let Reply::Metrics { seen } = agent.reply(testbed, PATIENCE)?.reply {
                all.push(seen);
            }
        }
        Ok(all)
    }

    /// Orders a load that starts at `start_ns`.
    pub(super) fn begin(
        &mut self,
        testbed: &Testbed,
        load: &Load,
        start_ns: u64,
        trace: impl Fn(Protocol, &str) -> Option<PathBuf>,
    ) -> Result<()> {
        let protocol = self.protocol;
        let trace = |host: &str| {
            let path = trace(protocol, host).filter(|_| protocol == Protocol::Homa)?;
            Some((path, host.to_owned()))
        };
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for (index, agent) in self.agents.iter_mut().enumerate() {
            let seed = load.seed_of_host(index);
            let trace = trace(&agent.host);
            agent.order(
                testbed,
                &Order::Load {
                    pace: load.rates.get(index).copied().flatten(),
                    start_ns,
                    warmup_ns: ns(load.warmup),
                    measured_ns: ns(load.measured),
                    seed,
                    trace,
                },
            )?;
        }
        Ok(())
    }
}

/// The agent of one host.
pub(super) struct Agent {
    host: String,
    protocol: Protocol,
    process: Child,
    stdin: Option<ChildStdin>,
    said: mpsc::Receiver<Result<AgentReply>>,
}

/// A reply, with the samples that follow its line.
pub(super) struct AgentReply {
    pub(super) reply: Reply,
    pub(super) samples: Vec<Sample>,
}

impl Agent {
    /// Returns the name of the agent's host.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    fn start(testbed: &Testbed, host: &str, protocol: Protocol, setup: &Setup) -> Result<Agent> {
        let program = std::env::current_exe().context("cannot find this program to start it in a host")?;
        let mut command = enter::command_in(&testbed.spec().name, host)?;
        command.arg(&program).args([RACK_COMMAND, agent::CHILD_COMMAND]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A terminal sends Ctrl-C to its whole foreground process group. An agent that Ctrl-C ended would
        // look like a failed one.
        command.process_group(0);
        let mut process = command.spawn().with_context(|| format!("cannot start a process in {host}"))?;
        let pipes = (process.stdout.take(), process.stderr.take());
        let (Some(out), Some(err)) = pipes else { bail!("the process in {host} has no output") };
        let (sender, said) = mpsc::channel();
        thread::spawn(move || listen(BufReader::new(out), err, &sender));
        let mut agent = Agent { host: host.to_owned(), protocol, stdin: process.stdin.take(), process, said };
        agent.send_order(testbed, &serde_json::to_string(setup)?)?;
        Ok(agent)
    }

    fn order(&mut self, testbed: &Testbed, order: &Order) -> Result<()> {
        self.send_order(testbed, &serde_json::to_string(order)?)
    }

    fn send_order(&mut self, testbed: &Testbed, line: &str) -> Result<()> {
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match told {
            Some(Ok(())) => Ok(()),
            // An agent reports why it failed before it stops reading.
            _ => {
                let why = self.said.recv_timeout(PATIENCE).ok().and_then(Result::err);
                Err(why.map_or_else(
                    || anyhow!("{} does not read its orders", self.name()),
                    |error| self.ended(testbed, error),
                ))
            }
        }
    }

    /// Waits for the next reply while the rack is intact.
    pub(super) fn reply(&mut self, testbed: &Testbed, patience: Duration) -> Result<AgentReply> {
        let begin = Instant::now();
        loop {
            match self.said.recv_timeout(LOOK) {
                Ok(said) => return said.map_err(|error| self.ended(testbed, error)),
                Err(RecvTimeoutError::Disconnected) => bail!("{} is gone", self.name()),
                Err(RecvTimeoutError::Timeout) => testbed.check()?,
            }
            ensure!(begin.elapsed() < patience, "{} sent no reply for {} s", self.name(), patience.as_secs());
        }
    }

    /// Explains why this agent exited. If Ctrl-C ended it, the reason is that the experiment was interrupted.
    fn ended(&self, testbed: &Testbed, error: anyhow::Error) -> anyhow::Error {
        testbed.check().err().unwrap_or_else(|| error.context(format!("{} ended", self.name())))
    }

    fn name(&self) -> String {
        format!("the {} process of {}", self.protocol.title(), self.host)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Killing fails if the agent has exited already. Waiting for it is enough in that case.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads an agent's replies until it exits, and then the reason for its exit.
fn listen(mut out: BufReader<impl Read>, mut err: impl Read, said: &mpsc::Sender<Result<AgentReply>>) {
    loop {
        match next(&mut out) {
            Ok(Some(reply)) => {
                if said.send(Ok(reply)).is_err() {
                    return;
                }
            }
            result => {
                let mut words = String::new();
                let _ = err.read_to_string(&mut words);
                let words = words.trim().trim_start_matches("homa:").trim();
                let error = match result {
                    Err(error) => error,
                    Ok(_) if words.is_empty() => {
                        anyhow!("it ended without an error message, as a killed process does")
                    }
                    Ok(_) => anyhow!("{}", words.lines().collect::<Vec<_>>().join(" ")),
                };
                let _ = said.send(Err(error));
                return;
            }
        }
    }
}

/// Reads the next reply with its samples. Returns `None` at the end of the output.
fn next(out: &mut BufReader<impl Read>) -> Result<Option<AgentReply>> {
    let mut line = String::new();
    if out.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let reply: Reply = serde_json::from_str(&line)
        .with_context(|| format!("it sent an invalid reply `{}`", line.trim_end()))?;
    let mut bytes = Vec::new();
    if let Reply::Loaded { bytes: length, .. } = reply {
        out.take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Ok(None);
        }
    }
    Ok(Some(AgentReply { reply, samples: take_samples(&bytes) }))
}
