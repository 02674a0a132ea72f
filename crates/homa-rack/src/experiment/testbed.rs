//! The rack of an experiment, and loads that start at the same time in the agents of all hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use homa_bench::cpu::{Scheduled, machine_busy};
use homa_bench::engine::load::DRAIN;
use homa_bench::engine::tally::{RpcCounters, Sample};
use homa_report::findings::Findings;
use homa_report::progress::Progress;
use rustix::process::Pid;
use serde::Serialize;
use serde_json::{Value, json};

use super::agent::monotonic_ns;
use super::agent_protocol::{Rate, Reply};
use super::agents::{AgentReply, Agents};
use super::cables::{Cables, LinkEvent, event_lines};
use super::links::Links;
use super::options::CommonOptions;
use super::queue::{QueueRecorder, QueueSample};
use crate::daemon::NamespaceDaemon;
use crate::spec::{BuildOptions, Spec, SwitchKind};
use crate::state::{Directory, Place, State};
use crate::{interruption, status, switch};

/// Maximum time to execute an order, in addition to the duration that the order specifies.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Time from the orders to the common start, per host, in the first attempt.
const HEAD_START: Duration = Duration::from_millis(10);

/// Maximum number of attempts to start a load, in case hosts miss the start. The head start of the last
/// attempt is 64 times that of the first.
const START_ATTEMPTS: u32 = 7;

/// Interval at which the experiment checks for an interruption.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// A rack on which an experiment runs.
pub struct Testbed {
    /// The progress of the experiment.
    pub progress: Progress,
    directory: Directory,
    state: State,
    interrupted: Arc<AtomicBool>,
    cables: Cables,
    link_events: Vec<LinkEvent>,
    /// Events of the rack during loads, which are reported with the results.
    notes: Vec<String>,
    /// Directory of the time traces; `None`: no traces are written.
    trace: Option<PathBuf>,
    /// The switch port whose queue is recorded under each load, counted from 0.
    pub recorded_port: Option<usize>,
    /// Number of loads run so far.
    loads: u32,
    /// Whether the rack was built for the experiment.
    is_own: bool,
    /// The daemon of a rack that was built for the experiment. It is the last field, because dropping it ends
    /// the rack.
    daemon: Option<NamespaceDaemon>,
}

/// A position in the events of a testbed.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventMark {
    link_events: usize,
    notes: usize,
}

impl Testbed {
    /// Builds a rack, or opens the running rack named in the options.
    ///
    /// # Errors
    /// The rack cannot be built, or it does not exist.
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

    /// Builds another rack in place of this one. No agents may be running on it.
    ///
    /// # Errors
    /// The rack was not built for the experiment, or the other rack cannot be built.
    pub fn rebuild(&mut self, build: &BuildOptions) -> Result<()> {
        ensure!(self.is_own, "each value needs a rack that is built for it: leave out --name");
        self.progress.step("building the rack", Duration::ZERO);
        // Both racks have the same name, so the old one must end first.
        self.daemon = None;
        let trace = format!("switch-from-load{}", self.loads + 1);
        let spec = traced(build.spec(&self.state.spec.name), self.trace.as_deref(), &trace);
        self.daemon = Some(NamespaceDaemon::start(&spec, true)?);
        self.state = self.directory.up()?;
        self.cables = Cables::watch(&self.state.spec)?;
        Ok(())
    }

    /// Builds another rack like [`Testbed::rebuild`], with this directory for the time traces of the rack's
    /// hosts and switch.
    ///
    /// # Errors
    /// The errors of [`Testbed::rebuild`].
    pub fn rebuild_traced(&mut self, build: &BuildOptions, traces: &Path) -> Result<()> {
        self.trace = Some(traces.to_owned());
        self.rebuild(build)
    }

    /// Ends the rack, so that its switch writes its time trace. No agents may be running on it. After this
    /// call, only [`Testbed::rebuild`] is permitted.
    pub fn stop_rack(&mut self) {
        self.daemon = None;
    }

    /// Returns the namespaces of the hosts.
    pub(super) fn places(&self) -> &[Place] {
        &self.state.hosts
    }

    /// Returns the description of the rack.
    pub fn spec(&self) -> &Spec {
        &self.state.spec
    }

    /// Returns the process of the switch, or `None` if the kernel forwards.
    pub fn switch_process(&self) -> Option<Pid> {
        self.state.switch_pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }

    /// Returns the counters of the switch, or `None` if it does not respond.
    pub fn switch_stats(&self) -> Option<Value> {
        status::switch_stats(&self.state, &self.directory)
    }

    /// Adds the events of the rack to the findings: links that went down or up, and switches that exited.
    pub fn report(&self, findings: &mut Findings) {
        self.report_since(EventMark::default(), findings);
    }

    /// Adds the events since `since` to the findings.
    pub fn report_since(&self, since: EventMark, findings: &mut Findings) {
        let events = &self.link_events[since.link_events..];
        findings.warnings.extend(event_lines(events));
        findings.warnings.extend_from_slice(&self.notes[since.notes..]);
        findings.json["link_events"] = json!(events);
        findings.json["warnings"] = json!(findings.warnings);
    }

    /// Returns the current position in the events.
    pub fn event_position(&self) -> EventMark {
        EventMark { link_events: self.link_events.len(), notes: self.notes.len() }
    }

    /// Returns whether the user has interrupted the experiment.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Records the rack's events since the start of a load.
    fn note(&mut self, load: &str, begin: Instant) -> Result<()> {
        self.link_events.extend(self.cables.take(load, begin));
        let Some(now) = self.directory.read()? else { return Ok(()) };
        if now.switch_ends > self.state.switch_ends {
            let how = now.switch_ended.as_deref().unwrap_or("unknown");
            self.notes.push(format!(
                "{load}: the switch ended ({how}), and another was started: its queued packets are lost, and the counters restarted"
            ));
        }
        self.state = now;
        Ok(())
    }

    /// Checks that the experiment can continue.
    ///
    /// # Errors
    /// The user pressed Ctrl-C, or the switch or the whole rack has ended.
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

    /// Runs loads on several groups of agents at the same time.
    ///
    /// All hosts start at the same time. If the processors are so busy that a host reads its order only after
    /// the start, the load is repeated with twice the head start.
    ///
    /// # Errors
    /// A process or the switch exited, an order failed, or a host missed the start in every attempt.
    pub fn load(&mut self, agents: &mut [(&mut Agents, &Load)], text: &str) -> Result<Vec<LoadResult>> {
        let Some(first) = agents.first().map(|(_, load)| *load) else { return Ok(Vec::new()) };
        self.progress.step(text, first.warmup + first.measured);
        let mut missed = String::new();
        for head_start in lead_times(self.spec().hosts) {
            match self.attempt(agents, text, Window::after(head_start, first))? {
                Attempt::Done(all) => return Ok(all),
                Attempt::Late { host } => {
                    self.progress.say(&format!(
                        "{text}: the processors are busy, and {host} missed the start: trying again with a longer head start"
                    ));
                    missed = host;
                }
            }
        }
        bail!(
            "{missed} missed the start of {text} {START_ATTEMPTS} times: the processors are too busy, try fewer --hosts"
        )
    }

    /// Runs a load that begins at the start of the window, unless a host receives its order too late.
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
            let mut loaded =
                LoadResult { queue: queue.clone(), ..LoadResult::new(load.measured, machine.clone()) };
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

    /// Waits until the end of the measurement window. Returns the load of the machine during that window.
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

/// Creates a directory, and returns its absolute path for processes with different working directories.
fn directory(path: &Path) -> Result<PathBuf> {
    let failed = || format!("cannot write time traces to {}: choose another --trace", path.display());
    std::fs::create_dir_all(path).and_then(|()| path.canonicalize()).with_context(failed)
}

/// Adds a time trace of the switch to the description of a rack whose switch is `homa switch`.
fn traced(mut spec: Spec, directory: Option<&Path>, name: &str) -> Spec {
    if let (Some(directory), SwitchKind::Homa) = (directory, spec.switch) {
        let file = directory.join(format!("{name}.trace"));
        spec.switch_options.extend(["--trace".to_owned(), file.display().to_string()]);
    }
    spec
}

/// The result of one attempt at a load.
enum Attempt {
    /// All hosts started in time.
    Done(Vec<LoadResult>),
    /// This host received its order after the start and sent nothing. The results of the other hosts are
    /// discarded.
    Late { host: String },
}

/// Returns the head start for each attempt: the time from the orders to the common start.
fn lead_times(hosts: u16) -> impl Iterator<Item = Duration> {
    (0..START_ATTEMPTS).map(move |attempt| HEAD_START * (2 + u32::from(hosts)) * (1 << attempt))
}

/// The start times of a load's phases.
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
    /// The load of each host; `None` for a host that only answers.
    pub rates: Vec<Option<Rate>>,
    /// Duration of the load before the measurement window.
    pub warmup: Duration,
    /// Length of the measurement window.
    pub measured: Duration,
    /// Seed of arrivals, sizes and choices.
    pub seed: u64,
}

impl Load {
    /// Returns the seed of the host with this index, counted from 0.
    pub fn seed_of_host(&self, index: usize) -> u64 {
        self.seed ^ (index as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95)
    }
}

/// The results of a load, over all hosts.
#[derive(Clone, Debug, Default)]
pub struct LoadResult {
    /// The RPCs that were due in the measurement window and have been answered.
    pub samples: Vec<Sample>,
    /// Counters. All except the goodput include the warm-up.
    pub counted: RpcCounters,
    /// Load of processors and links.
    pub machine: Machine,
    /// Goodput of each host in Gbit/s of request payload.
    pub host_gbps: Vec<f64>,
    /// Message bytes of requests and responses that all hosts received in the measurement window, including
    /// those of incomplete messages.
    pub received: u64,
    /// The queue at the recorded port of the switch.
    pub queue: Vec<QueueSample>,
    measured: Duration,
    hosts: Scheduled,
}

/// Load of processors and links in the measurement window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Number of processors.
    pub cpus: usize,
    /// Average number of processors kept busy by all processes.
    pub cores_busy: f64,
    /// Average number of processors kept busy by the hosts' agents.
    pub hosts_busy: f64,
    /// Average number of processors kept busy by the switch.
    pub switch_busy: f64,
    /// Mean time that a runnable thread of a host waited for a processor, in microseconds.
    pub hosts_waited_us: f64,
    /// Mean time that the switch waited for a processor, in microseconds.
    pub switch_waited_us: f64,
    /// Load of the links; `None` if the switch does not measure it.
    pub links: Option<Links>,
}

fn mean_wait_us(scheduled: Scheduled) -> f64 {
    scheduled.waited.as_secs_f64() * 1e6 / scheduled.turns.max(1) as f64
}

impl LoadResult {
    fn new(measured: Duration, machine: Machine) -> LoadResult {
        LoadResult {
            samples: Vec::new(),
            counted: RpcCounters::default(),
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
            bail!("a host sent a wrong reply instead of its results")
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

    /// Returns the rate of message bytes that all hosts received, including those of incomplete messages, in
    /// Gbit/s.
    pub fn received_gbps(&self) -> f64 {
        self.received as f64 * 8.0 / 1e9 / self.seconds()
    }

    /// Returns the rate, in Gbit/s, of request payload in answered RPCs, summed over all hosts.
    pub fn gbps(&self) -> f64 {
        self.counted.goodput_bytes as f64 * 8.0 / 1e9 / self.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_has_twice_the_head_start_of_the_one_before() {
        let all: Vec<Duration> = lead_times(4).collect();
        assert_eq!((all.len(), all[0]), (7, Duration::from_millis(60)));
        assert!(all.windows(2).all(|two| two[1] == two[0] * 2));
    }
}
