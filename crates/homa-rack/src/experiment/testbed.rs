//! What experiments run on: a rack, and loads that begin at one moment in the agents of all its hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use homa_bench::cpu::{Scheduled, machine_busy};
use homa_bench::engine::load::DRAIN;
use homa_bench::engine::tally::{Counted, Sample};
use homa_report::findings::Findings;
use homa_report::progress::Progress;
use rustix::process::Pid;
use serde::Serialize;
use serde_json::{Value, json};

use super::agent::monotonic_ns;
use super::agent_protocol::{Rate, Reply};
use super::agents::{AgentReply, Agents};
use super::cables::{Cables, LinkEvent, told};
use super::links::Links;
use super::options::CommonOptions;
use super::queue::{QueueRecorder, QueueSample};
use crate::daemon::NamespaceDaemon;
use crate::spec::{BuildOptions, Spec, SwitchKind};
use crate::state::{Directory, Place, State};
use crate::{interruption, status, switch};

/// How long an order may take beside the time that it is for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// From an order to the moment when all hosts begin, for each host, at the first attempt.
const HEAD_START: Duration = Duration::from_millis(10);

/// Attempts at a load whose start some host missed. The head start of the last one is 64 times that of the first.
const START_ATTEMPTS: u32 = 7;

/// How often the experiment looks whether it is to end.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// A rack in use.
pub struct Testbed {
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
    daemon: Option<NamespaceDaemon>,
}

/// A moment of a testbed, by what had happened to its rack.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventMark {
    link_events: usize,
    notes: usize,
}

impl Testbed {
    /// Builds the rack, or takes the one that is up.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(common: &CommonOptions, total: Duration) -> Result<Testbed> {
        let interrupted = interruption()?;
        let mut progress = Progress::new(total);
        let trace = common.trace.as_deref().map(directory).transpose()?;
        let (name, daemon) = match &common.name {
            Some(name) => (name.clone(), None),
            None => {
                progress.step("building the rack", Duration::ZERO);
                let name = format!("run-{}", std::process::id());
                let spec = traced(common.build.spec(&name), trace.as_deref(), "switch");
                (name.clone(), Some(NamespaceDaemon::start(&spec, true)?))
            }
        };
        let directory = Directory::of(&name);
        let state = directory.up()?;
        let cables = Cables::watch(&state.spec)?;
        let (link_events, notes) = (Vec::new(), Vec::new());
        Ok(Testbed {
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
            is_own: daemon.is_some(),
            daemon,
        })
    }

    /// Builds another rack in the place of this one, which no agent has any more.
    ///
    /// # Errors
    /// This one is not the experiment's own, or why there is no other.
    pub fn rebuild(&mut self, build: &BuildOptions) -> Result<()> {
        ensure!(self.is_own, "each value takes a rack that is built for it: leave out --name");
        self.progress.step("building the rack", Duration::ZERO);
        // Their name is the same.
        self.daemon = None;
        let trace = format!("switch-from-load{}", self.loads + 1);
        let spec = traced(build.spec(&self.state.spec.name), self.trace.as_deref(), &trace);
        self.daemon = Some(NamespaceDaemon::start(&spec, true)?);
        self.state = self.directory.up()?;
        self.cables = Cables::watch(&self.state.spec)?;
        Ok(())
    }

    /// The same, with this directory for the time traces of its hosts and its switch.
    ///
    /// # Errors
    /// As [`Testbed::rebuild`].
    pub fn rebuild_traced(&mut self, build: &BuildOptions, traces: &Path) -> Result<()> {
        self.trace = Some(traces.to_owned());
        self.rebuild(build)
    }

    /// Ends the rack, which no agent has any more: its switch has written its time trace then. Only [`Testbed::rebuild`] goes on from here.
    pub fn take_down(&mut self) {
        self.daemon = None;
    }

    /// The namespaces of the hosts.
    pub(super) fn places(&self) -> &[Place] {
        &self.state.hosts
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
        self.report_since(EventMark::default(), findings);
    }

    /// The same of what has happened since.
    pub fn report_since(&self, since: EventMark, findings: &mut Findings) {
        let events = &self.link_events[since.link_events..];
        findings.warnings.extend(told(events));
        findings.warnings.extend_from_slice(&self.notes[since.notes..]);
        findings.json["link_events"] = json!(events);
        findings.json["warnings"] = json!(findings.warnings);
    }

    /// How much has happened to the rack so far.
    pub fn happened(&self) -> EventMark {
        EventMark { link_events: self.link_events.len(), notes: self.notes.len() }
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

    /// A load on some agents at once, each group with its own.
    ///
    /// All hosts start at the same time. Where the processors are so busy that a host reads the order after that time, the
    /// load is repeated with twice the head start.
    ///
    /// # Errors
    /// A process or the switch ended, an order failed, or a host missed every start.
    pub fn load(&mut self, agents: &mut [(&mut Agents, &Load)], text: &str) -> Result<Vec<Loaded>> {
        let Some(first) = agents.first().map(|(_, load)| *load) else { return Ok(Vec::new()) };
        self.progress.step(text, first.warmup + first.measured);
        let mut missed = String::new();
        for head_start in head_starts(self.spec().hosts) {
            match self.attempt(agents, text, Window::after(head_start, first))? {
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
    fn attempt(
        &mut self,
        agents: &mut [(&mut Agents, &Load)],
        text: &str,
        window: Window,
    ) -> Result<Attempt> {
        let begin = window.start;
        for (agents, load) in agents.iter_mut() {
            agents.begin(self, load, window.start_ns, |protocol, host| {
                let name = format!("load{}-{}-{host}.trace", self.loads + 1, protocol.name());
                self.trace.as_ref().map(|directory| directory.join(name))
            })?;
        }
        let control = switch::control(&self.directory);
        let recorder = self.recorded_port.map(|port| QueueRecorder::start(control, port));
        let machine = self.watch(&window)?;
        let queue = recorder.map(|recorder| recorder.end(window.from, window.to)).unwrap_or_default();
        let (mut all, mut late) = (Vec::new(), None);
        for (agents, load) in agents.iter_mut() {
            let mut loaded = Loaded { queue: queue.clone(), ..Loaded::new(load.measured, machine.clone()) };
            for agent in agents.each() {
                match agent.reply(self, DRAIN + PATIENCE)? {
                    AgentReply { reply: Reply::Late, .. } => late = Some(agent.host().to_owned()),
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

/// A load on the agents of a protocol.
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

    fn add(&mut self, answer: AgentReply) -> Result<()> {
        let Reply::Loaded { counted, usage, received, .. } = answer.reply else {
            bail!("a host said something else than its load")
        };
        self.host_gbps.push(counted.goodput_bytes as f64 * 8.0 / 1e9 / self.seconds());
        self.counted.add(counted);
        self.received += received;
        self.hosts = self.hosts.plus(usage.into());
        self.machine.hosts_busy = self.hosts.ran.as_secs_f64() / self.seconds();
        self.machine.hosts_waited_us = mean_wait_us(self.hosts);
        self.samples.extend(answer.samples);
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
