//! What every experiment stands on: a rack, processes in its hosts, and loads that begin in all of them at one moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use homa_bench::cpu::{Scheduled, machine_busy};
use homa_bench::engine::load::DRAIN;
use homa_bench::engine::rtt::RttTable;
use homa_bench::engine::tally::{Counted, Sample};
use homa_bench::protocol::Protocol;
use homa_report::findings::Findings;
use homa_report::progress::Progress;
use rustix::process::Pid;
use serde::Serialize;
use serde_json::{Value, json};

use super::agent::monotonic_ns;
use super::args::CommonArgs;
use super::cables::{Cables, LinkEvent, told};
use super::links::Links;
use super::orders::{Order, Rate, Reply, Setup, take_samples};
use super::queue::{QueueRecorder, QueueSample};
use crate::rack::args::BuildArgs;
use crate::rack::keeper::Keeper;
use crate::rack::spec::{Spec, SwitchKind, ipv4};
use crate::rack::state::{Directory, State};
use crate::rack::{interruption, status, switch};

/// How long an order may take beside the time that it is for.
const PATIENCE: Duration = Duration::from_secs(30);

/// From an order to the moment when all hosts begin, for each host, at the first attempt.
const HEAD_START: Duration = Duration::from_millis(10);

/// Attempts at a load whose start some host missed. The head start of the last one is 64 times that of the first.
const START_ATTEMPTS: u32 = 7;

/// How often the experiment looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// A rack in use.
pub struct Lab {
    /// How far the experiment is.
    pub progress: Progress,
    directory: Directory,
    state: State,
    interrupted: Arc<AtomicBool>,
    cables: Cables,
    link_events: Vec<LinkEvent>,
    /// What happened to the rack while a load was on it, for whoever reads the results.
    notes: Vec<String>,
    /// Where time traces go.
    trace: Option<PathBuf>,
    /// The port of the switch whose queue is recorded under each load, counted from 0.
    pub recorded_port: Option<usize>,
    /// Loads so far.
    loads: u32,
    /// The rack was built for the experiment.
    is_own: bool,
    /// The rack goes with it, where it was built for the experiment. Dropped last.
    keeper: Option<Keeper>,
}

/// A moment of a lab, by what had happened to its rack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    link_events: usize,
    notes: usize,
}

impl Lab {
    /// Builds the rack, or takes the one that is up.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(common: &CommonArgs, total: Duration) -> Result<Lab> {
        let interrupted = interruption()?;
        let mut progress = Progress::new(total);
        let trace = common.trace.as_deref().map(directory).transpose()?;
        let (name, keeper) = match &common.name {
            Some(name) => (name.clone(), None),
            None => {
                progress.step("building the rack", Duration::ZERO);
                let name = format!("run-{}", std::process::id());
                let spec = traced(common.build.spec(&name), trace.as_deref(), "switch");
                (name.clone(), Some(Keeper::start(&spec, true)?))
            }
        };
        let directory = Directory::of(&name);
        let state = directory.up()?;
        let cables = Cables::watch(&state.spec)?;
        let (link_events, notes) = (Vec::new(), Vec::new());
        Ok(Lab {
            progress,
            directory,
            state,
            interrupted,
            cables,
            link_events,
            notes,
            trace,
            recorded_port: None,
            loads: 0,
            is_own: keeper.is_some(),
            keeper,
        })
    }

    /// Builds another rack in the place of this one, which no crew has any more.
    ///
    /// # Errors
    /// This one is not the experiment's own, or why there is no other.
    pub fn rebuild(&mut self, build: &BuildArgs) -> Result<()> {
        ensure!(self.is_own, "each value takes a rack that is built for it: leave out --name");
        self.progress.step("building the rack", Duration::ZERO);
        // Their name is the same.
        self.keeper = None;
        let trace = format!("switch-from-load{}", self.loads + 1);
        let spec = traced(build.spec(&self.state.spec.name), self.trace.as_deref(), &trace);
        self.keeper = Some(Keeper::start(&spec, true)?);
        self.state = self.directory.up()?;
        self.cables = Cables::watch(&self.state.spec)?;
        Ok(())
    }

    /// The same, with this directory for the time traces of its hosts and its switch.
    ///
    /// # Errors
    /// As [`Lab::rebuild`].
    pub fn rebuild_traced(&mut self, build: &BuildArgs, traces: &Path) -> Result<()> {
        self.trace = Some(traces.to_owned());
        self.rebuild(build)
    }

    /// Ends the rack, which no crew has any more: its switch has written its time trace then. Only [`Lab::rebuild`] goes on from here.
    pub fn take_down(&mut self) {
        self.keeper = None;
    }

    /// What the rack is made of.
    pub fn spec(&self) -> &Spec {
        &self.state.spec
    }

    /// The process of the switch, where it is one.
    pub fn switch_process(&self) -> Option<Pid> {
        self.state.switch_pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }

    /// What the switch has counted so far, where it tells.
    pub fn switch_stats(&self) -> Option<Value> {
        status::switch_stats(&self.state, &self.directory)
    }

    /// Puts into the findings what happened to the rack meanwhile: links that went down or up, switches that ended.
    pub fn report(&self, findings: &mut Findings) {
        self.report_since(Happened::default(), findings);
    }

    /// The same of what has happened since.
    pub fn report_since(&self, since: Happened, findings: &mut Findings) {
        let events = &self.link_events[since.link_events..];
        findings.warnings.extend(told(events));
        findings.warnings.extend_from_slice(&self.notes[since.notes..]);
        findings.json["link_events"] = json!(events);
        findings.json["warnings"] = json!(findings.warnings);
    }

    /// How much has happened to the rack so far.
    pub fn happened(&self) -> Happened {
        Happened { link_events: self.link_events.len(), notes: self.notes.len() }
    }

    /// Whether somebody wants the experiment to end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Notes what happened to the rack since a load began.
    fn note(&mut self, load: &str, begin: Instant) -> Result<()> {
        self.link_events.extend(self.cables.take(load, begin));
        let Some(now) = self.directory.read()? else { return Ok(()) };
        if now.switch_ends > self.state.switch_ends {
            let how = now.switch_ended.as_deref().unwrap_or("unknown");
            self.notes.push(format!(
                "{load}: the switch ended ({how}), and another was started: what it held is lost, and the counters began anew"
            ));
        }
        self.state = now;
        Ok(())
    }

    /// Whether the experiment can go on.
    ///
    /// # Errors
    /// Ctrl-C, or the switch or the whole rack is gone.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.is_interrupted(), "interrupted: nothing was written");
        let state = self.directory.read()?;
        let state = state.filter(|state| state.token == self.state.token);
        let Some(state) = state.filter(|_| self.directory.is_held()) else {
            bail!("the rack ended under the experiment")
        };
        match state.switch_ended.filter(|_| state.switch_given_up) {
            Some(how) => bail!("the switch ended under the experiment: {how}"),
            None => Ok(()),
        }
    }

    /// A load on the hosts of some crews at once, each with its own.
    ///
    /// All hosts start at the same time. Where the processors are so busy that a host reads the order after that time, the
    /// load is repeated with twice the head start.
    ///
    /// # Errors
    /// A process or the switch ended, an order failed, or a host missed every start.
    pub fn load(&mut self, crews: &mut [(&mut Crew, &Load)], text: &str) -> Result<Vec<Loaded>> {
        let Some(first) = crews.first().map(|(_, load)| *load) else { return Ok(Vec::new()) };
        self.progress.step(text, first.warmup + first.measured);
        let mut missed = String::new();
        for head_start in head_starts(self.spec().hosts) {
            match self.attempt(crews, text, Window::after(head_start, first))? {
                Attempt::Done(all) => return Ok(all),
                Attempt::Late { host } => {
                    self.progress.say(&format!(
                        "{text}: the processors are busy, and {host} missed the start: again with a longer head start"
                    ));
                    missed = host;
                }
            }
        }
        bail!(
            "{missed} missed the start of {text} {START_ATTEMPTS} times: the processors are too busy, try fewer --hosts"
        )
    }

    /// A load that begins at the start of the window, unless some host gets the order later.
    fn attempt(&mut self, crews: &mut [(&mut Crew, &Load)], text: &str, window: Window) -> Result<Attempt> {
        let begin = window.start;
        for (crew, load) in crews.iter_mut() {
            crew.begin(self, load, window.start_ns, |crew, host| {
                let name = format!("load{}-{}-{host}.trace", self.loads + 1, crew.name());
                self.trace.as_ref().map(|directory| directory.join(name))
            })?;
        }
        let control = switch::control(&self.directory);
        let recorder = self.recorded_port.map(|port| QueueRecorder::start(control, port));
        let machine = self.watch(&window)?;
        let queue = recorder.map(|recorder| recorder.end(window.from, window.to)).unwrap_or_default();
        let (mut all, mut late) = (Vec::new(), None);
        for (crew, load) in crews.iter_mut() {
            let mut loaded = Loaded { queue: queue.clone(), ..Loaded::new(load.measured, machine.clone()) };
            for agent in &mut crew.agents {
                match agent.reply(self, DRAIN + PATIENCE)? {
                    Said { reply: Reply::Late, .. } => late = Some(agent.host.clone()),
                    said => loaded.add(said)?,
                }
            }
            all.push(loaded);
        }
        self.note(text, begin)?;
        if let Some(host) = late {
            return Ok(Attempt::Late { host });
        }
        self.loads += 1;
        Ok(Attempt::Done(all))
    }

    /// Waits until the measured time is over and says what the machine did in it.
    fn watch(&self, window: &Window) -> Result<Machine> {
        self.wait(window.start, window.from)?;
        let switch = || self.state.switch_pid.map(Scheduled::of).unwrap_or_default();
        let links = self.switch_stats();
        let (busy, before, begin) = (machine_busy(), switch(), Instant::now());
        self.wait(window.start, window.to)?;
        let time = begin.elapsed().as_secs_f64().max(1e-9);
        let switch = switch().since(before);
        let busy = machine_busy().saturating_sub(busy);
        Ok(Machine {
            cpus: thread::available_parallelism().map_or(1, usize::from),
            cores_busy: busy.as_secs_f64() / time,
            switch_busy: switch.ran.as_secs_f64() / time,
            switch_waited_us: mean_wait_us(switch),
            links: Links::between(links.as_ref(), self.switch_stats().as_ref()),
            ..Machine::default()
        })
    }

    fn wait(&self, start: Instant, until: Instant) -> Result<()> {
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.check()?;
            self.progress.within(start.elapsed());
            thread::sleep(left.min(LOOK));
        }
        Ok(())
    }
}

/// A directory that is there afterwards, by a name that also processes elsewhere know it by.
fn directory(path: &Path) -> Result<PathBuf> {
    let failed = || format!("cannot write time traces to {}: choose another --trace", path.display());
    std::fs::create_dir_all(path).and_then(|()| path.canonicalize()).with_context(failed)
}

/// The rack whose switch writes a time trace, where it is one of ours.
fn traced(mut spec: Spec, directory: Option<&Path>, name: &str) -> Spec {
    if let (Some(directory), SwitchKind::Homa) = (directory, spec.switch) {
        let file = directory.join(format!("{name}.trace"));
        spec.switch_options.extend(["--trace".to_owned(), file.display().to_string()]);
    }
    spec
}

/// What came of one attempt at a load.
enum Attempt {
    /// All hosts began in time.
    Done(Vec<Loaded>),
    /// This host read the order after the start, and did nothing; what the other hosts did is discarded.
    Late { host: String },
}

/// How long before the common start the hosts get their orders, attempt by attempt.
fn head_starts(hosts: u16) -> impl Iterator<Item = Duration> {
    (0..START_ATTEMPTS).map(move |attempt| HEAD_START * (2 + u32::from(hosts)) * (1 << attempt))
}

/// The moments of a load.
struct Window {
    start_ns: u64,
    start: Instant,
    from: Instant,
    to: Instant,
}

impl Window {
    fn after(head_start: Duration, load: &Load) -> Window {
        let ns = u64::try_from(head_start.as_nanos()).unwrap_or(u64::MAX);
        let (start_ns, start) = (monotonic_ns().saturating_add(ns), Instant::now() + head_start);
        let from = start + load.warmup;
        Window { start_ns, start, from, to: from + load.measured }
    }
}

/// A load on the hosts of a crew.
#[derive(Clone, Debug)]
pub struct Load {
    /// What each host sends; `None`: it only answers. One for each host.
    pub rates: Vec<Option<Rate>>,
    /// Before the measured time.
    pub warmup: Duration,
    /// The measured time.
    pub measured: Duration,
    /// Of arrivals, sizes and choices.
    pub seed: u64,
}

impl Load {
    /// The seed of the host with this index, counted from 0.
    pub fn seed_of_host(&self, index: usize) -> u64 {
        self.seed ^ (index as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95)
    }
}

/// What came of a load, all hosts together.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Every RPC that was due in the measured time and answered.
    pub samples: Vec<Sample>,
    /// Counters, the warm-up included but for the goodput.
    pub counted: Counted,
    /// What the processors did.
    pub machine: Machine,
    /// Of each host, 10^9 bits of request payload per second.
    pub host_gbps: Vec<f64>,
    /// Bytes of messages, requests and answers, that came to all hosts in the measured time, of complete messages or not.
    pub received: u64,
    /// The queue at the recorded port of the switch.
    pub queue: Vec<QueueSample>,
    measured: Duration,
    hosts: Scheduled,
}

/// What the processors and the links did in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Processors there are.
    pub cpus: usize,
    /// Processors busy on average, whoever kept them so.
    pub cores_busy: f64,
    /// Of that, the hosts' processes.
    pub hosts_busy: f64,
    /// Of that, the switch.
    pub switch_busy: f64,
    /// Mean time in microseconds that a thread of a host waited for a processor, each time it wanted one.
    pub hosts_waited_us: f64,
    /// The same for the switch.
    pub switch_waited_us: f64,
    /// What the links did, where the switch counts it.
    pub links: Option<Links>,
}

fn mean_wait_us(scheduled: Scheduled) -> f64 {
    scheduled.waited.as_secs_f64() * 1e6 / scheduled.turns.max(1) as f64
}

impl Loaded {
    fn new(measured: Duration, machine: Machine) -> Loaded {
        Loaded {
            samples: Vec::new(),
            counted: Counted::default(),
            machine,
            host_gbps: Vec::new(),
            received: 0,
            queue: Vec::new(),
            measured,
            hosts: Scheduled::default(),
        }
    }

    fn add(&mut self, said: Said) -> Result<()> {
        let Reply::Loaded { counted, usage, received, .. } = said.reply else {
            bail!("a host said something else than its load")
        };
        self.host_gbps.push(counted.goodput_bytes as f64 * 8.0 / 1e9 / self.seconds());
        self.counted.add(counted);
        self.received += received;
        self.hosts = self.hosts.plus(usage.into());
        self.machine.hosts_busy = self.hosts.ran.as_secs_f64() / self.seconds();
        self.machine.hosts_waited_us = mean_wait_us(self.hosts);
        self.samples.extend(said.samples);
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.measured.as_secs_f64().max(1e-9)
    }

    /// Bytes of messages that came to all hosts, 10^9 bits per second, of complete messages or not.
    pub fn received_gbps(&self) -> f64 {
        self.received as f64 * 8.0 / 1e9 / self.seconds()
    }

    /// Payload of answered requests, 10^9 bits per second, all hosts together.
    pub fn gbps(&self) -> f64 {
        self.counted.goodput_bytes as f64 * 8.0 / 1e9 / self.seconds()
    }
}

/// A process in each host, all of one protocol.
pub struct Crew {
    /// What they speak.
    pub protocol: Protocol,
    /// [`Setup::answering_threads`] of each.
    pub answering_threads: u16,
    agents: Vec<Agent>,
}

impl Crew {
    /// Starts them and returns when all serve. The address in `setup` is each host's own.
    ///
    /// # Errors
    /// In the words of the host that failed.
    pub fn start(lab: &Lab, setup: &Setup) -> Result<Crew> {
        let mut agents = Vec::new();
        for (number, place) in lab.spec().numbers().zip(&lab.state.hosts) {
            let setup = Setup { address: ipv4(number), ..setup.clone() };
            agents.push(Agent::start(lab, &place.name, setup.protocol, &setup)?);
        }
        let answering_threads = setup.answering_threads();
        let mut crew = Crew { protocol: setup.protocol, answering_threads, agents };
        for agent in &mut crew.agents {
            agent.reply(lab, PATIENCE)?;
        }
        Ok(crew)
    }

    /// Makes each host a client of those that `peers` gives for its number.
    ///
    /// # Errors
    /// A host cannot reach them.
    pub fn open(&mut self, lab: &Lab, peers: impl Fn(u16) -> Vec<u16>) -> Result<()> {
        for (number, agent) in lab.spec().numbers().zip(&mut self.agents) {
            let peers: Vec<IpAddr> = peers(number).into_iter().map(ipv4).collect();
            agent.order(lab, &Order::Open { peers })?;
        }
        self.agents.iter_mut().try_for_each(|agent| agent.reply(lab, PATIENCE).map(drop))
    }

    /// Makes each host a client of all others.
    ///
    /// # Errors
    /// A host cannot reach them.
    pub fn open_all(&mut self, lab: &Lab) -> Result<()> {
        self.open_among(lab, |_| true)
    }

    /// Makes each host that takes part a client of all others that do; the rest are clients of nobody, and have none.
    ///
    /// # Errors
    /// A host cannot reach them.
    pub fn open_among(&mut self, lab: &Lab, takes_part: impl Fn(u16) -> bool) -> Result<()> {
        let numbers: Vec<u16> = lab.spec().numbers().filter(|&number| takes_part(number)).collect();
        self.open(lab, |number| {
            let others = numbers.iter().copied().filter(|&other| other != number);
            others.filter(|_| takes_part(number)).collect()
        })
    }

    /// Round trips from the first host to the second, while nothing else is on the way. The hosts are clients of nobody afterwards.
    ///
    /// # Errors
    /// An RPC failed.
    pub fn unloaded(&mut self, lab: &Lab, sizes: &[u32], budget: Duration) -> Result<RttTable> {
        self.open(lab, |number| if number == 1 { vec![2] } else { Vec::new() })?;
        let agent = self.agents.first_mut().context("there is no host")?;
        let budget_ms = u64::try_from(budget.as_millis()).unwrap_or(u64::MAX);
        agent.order(lab, &Order::Unloaded { sizes: sizes.to_vec(), budget_ms })?;
        match agent.reply(lab, budget + PATIENCE)?.reply {
            Reply::Unloaded { points } => Ok(RttTable::new(points)),
            _ => bail!("a host said something else than its round trips"),
        }
    }

    /// The process in the host of this number.
    pub fn process(&self, number: u16) -> Option<Pid> {
        let agent = self.agents.get(usize::from(number).checked_sub(1)?)?;
        Some(Pid::from_child(&agent.process))
    }

    /// What the transport of each host has counted, by name.
    ///
    /// # Errors
    /// A host is gone.
    pub fn metrics(&mut self, lab: &Lab) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for agent in &mut self.agents {
            agent.order(lab, &Order::Metrics)?;
            if let Reply::Metrics { seen } = agent.reply(lab, PATIENCE)?.reply {
                all.push(seen);
            }
        }
        Ok(all)
    }

    fn begin(
        &mut self,
        lab: &Lab,
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
                lab,
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

/// The process in a host.
struct Agent {
    host: String,
    protocol: Protocol,
    process: Child,
    stdin: Option<ChildStdin>,
    said: mpsc::Receiver<Result<Said>>,
}

/// A line, and what followed it.
struct Said {
    reply: Reply,
    samples: Vec<Sample>,
}

impl Agent {
    fn start(lab: &Lab, host: &str, protocol: Protocol, setup: &Setup) -> Result<Agent> {
        let program = std::env::current_exe().context("cannot find this program to start it in a host")?;
        let mut command = Command::new(&program);
        command.args(["rack", "exec", "--die-with-parent", "--name", &lab.spec().name, host, "--"]);
        command.arg(&program).args(["rack", "agent"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A terminal sends Ctrl-C to its whole foreground group. An agent that died of it would look like a failure.
        command.process_group(0);
        let mut process = command.spawn().with_context(|| format!("cannot start a process in {host}"))?;
        let pipes = (process.stdout.take(), process.stderr.take());
        let (Some(out), Some(err)) = pipes else { bail!("the process in {host} has no output") };
        let (sender, said) = mpsc::channel();
        thread::spawn(move || listen(BufReader::new(out), err, &sender));
        let mut agent = Agent { host: host.to_owned(), protocol, stdin: process.stdin.take(), process, said };
        agent.tell(lab, &serde_json::to_string(setup)?)?;
        Ok(agent)
    }

    fn order(&mut self, lab: &Lab, order: &Order) -> Result<()> {
        self.tell(lab, &serde_json::to_string(order)?)
    }

    fn tell(&mut self, lab: &Lab, line: &str) -> Result<()> {
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match told {
            Some(Ok(())) => Ok(()),
            // An agent says why it ends before it stops reading.
            _ => {
                let why = self.said.recv_timeout(PATIENCE).ok().and_then(Result::err);
                Err(why.map_or_else(
                    || anyhow!("{} does not listen", self.name()),
                    |error| self.ended(lab, error),
                ))
            }
        }
    }

    /// What it says next, while the rack is as it should be.
    fn reply(&mut self, lab: &Lab, patience: Duration) -> Result<Said> {
        let begin = Instant::now();
        loop {
            match self.said.recv_timeout(LOOK) {
                Ok(said) => return said.map_err(|error| self.ended(lab, error)),
                Err(RecvTimeoutError::Disconnected) => bail!("{} is gone", self.name()),
                Err(RecvTimeoutError::Timeout) => lab.check()?,
            }
            ensure!(begin.elapsed() < patience, "{} said nothing for {} s", self.name(), patience.as_secs());
        }
    }

    /// Why this agent ended. A Ctrl-C that it did not survive counts as the experiment's interruption.
    fn ended(&self, lab: &Lab, error: anyhow::Error) -> anyhow::Error {
        lab.check().err().unwrap_or_else(|| error.context(format!("{} ended", self.name())))
    }

    fn name(&self) -> String {
        format!("the {} process of {}", self.protocol.title(), self.host)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It may have ended by itself; then there is nothing to kill, only to reap.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads what a process says until it ends, and then why.
fn listen(mut out: BufReader<impl Read>, mut err: impl Read, said: &mpsc::Sender<Result<Said>>) {
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
                    Ok(_) if words.is_empty() => anyhow!("it said nothing, as if it was killed"),
                    Ok(_) => anyhow!("{}", words.lines().collect::<Vec<_>>().join(" ")),
                };
                let _ = said.send(Err(error));
                return;
            }
        }
    }
}

/// The next line with what follows it; `None` at the end.
fn next(out: &mut BufReader<impl Read>) -> Result<Option<Said>> {
    let mut line = String::new();
    if out.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let reply: Reply =
        serde_json::from_str(&line).with_context(|| format!("it said `{}`", line.trim_end()))?;
    let mut bytes = Vec::new();
    if let Reply::Loaded { bytes: length, .. } = reply {
        out.take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Ok(None);
        }
    }
    Ok(Some(Said { reply, samples: take_samples(&bytes) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_has_twice_the_head_start_of_the_one_before() {
        let all: Vec<Duration> = head_starts(4).collect();
        assert_eq!((all.len(), all[0]), (7, Duration::from_millis(60)));
        assert!(all.windows(2).all(|two| two[1] == two[0] * 2));
    }
}
