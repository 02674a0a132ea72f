//! Homa compared with TCP: the same messages at the same times, with each contender in turn.

mod cells;
mod sections;
mod session;
mod table;

use std::time::Duration;

use anyhow::Result;
pub use cells::{Cell, cells, run};
use homa_bench::compare::results::Run;
use homa_bench::engine::rtt::RttTable;
use homa_bench::engine::tally::Tally;
use homa_bench::protocol::Protocol;
use homa_bench::tcp::Congestion;
use homa_report::findings::Findings;
use homa_workload::{BinSummary, ShortSummary, Workload};
use serde::Serialize;
use serde_json::{Value, json};
pub use session::{CellResults, Session};
pub use table::Spread;

use super::agent_protocol::Rate;
use super::findings::processor_warnings;
use super::harness::{self, UNLOADED, workload_of};
use super::links::Links;
use super::options::{CommonOptions, VsTcpOptions};
use super::queue::QueueSample;
use super::setup::{seconds, setup};
use super::testbed::{Load, LoadResult, Machine, Testbed};
use super::{framing, simulation, steady};
use crate::spec::Spec;

/// Offset between the TCP ports of two contenders on each host. It exceeds the maximum number of server ports
/// of a host.
const PORT_STEP: u16 = 100;

/// CSS classes of TCP, by congestion control.
const TCP_CLASSES: [&str; 4] = ["tcp", "s2", "s3", "s4"];

/// One of the protocols that are compared: Homa, or TCP with one congestion control.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The protocol.
    pub protocol: Protocol,
    /// TCP congestion control algorithm; `None` for Homa.
    pub congestion: Option<Congestion>,
    /// Display name.
    pub title: String,
    /// Key in the results of all hosts.
    pub key: String,
    /// CSS class.
    pub class: &'static str,
}

impl Contender {
    /// Returns Homa, and TCP with each of these congestion controls.
    fn all(ways: &[Congestion]) -> Vec<Contender> {
        let name = |protocol: Protocol| (protocol.title().to_owned(), protocol.name().to_owned());
        let (title, key) = name(Protocol::Homa);
        let homa = Contender { protocol: Protocol::Homa, congestion: None, title, key, class: "homa" };
        let tcp = ways.iter().zip(TCP_CLASSES).map(|(&congestion, class)| {
            let (mut title, mut key) = name(Protocol::Tcp);
            if ways.len() > 1 {
                title = format!("{title} {}", congestion.name());
                key = format!("{key}-{}", congestion.name());
            }
            Contender { protocol: Protocol::Tcp, congestion: Some(congestion), title, key, class }
        });
        [homa].into_iter().chain(tcp).collect()
    }
}

/// The results of a contender over all repetitions.
#[derive(Debug, Serialize)]
pub struct ContenderRuns {
    /// The contender.
    #[serde(skip)]
    pub contender: Contender,
    /// TCP congestion control algorithm; `None` for Homa.
    pub congestion: Option<Congestion>,
    /// The results.
    #[serde(flatten)]
    pub run: Run,
}

/// The results of a contender in one repetition.
#[derive(Serialize)]
pub struct Repetition {
    protocol: Protocol,
    congestion: Option<Congestion>,
    repetition: u32,
    /// Length of the measurement window, in seconds.
    measured_s: f64,
    /// Round trips of the short messages.
    pub short: ShortSummary,
    slowdown_mean: f64,
    /// The largest 1 % of the messages.
    largest: Option<BinSummary>,
    achieved_gbps: f64,
    /// See [`Run::completed_fraction`].
    completed_fraction: Option<f64>,
    /// Load of processors and links.
    pub machine: Machine,
    /// See [`LoadResult::queue`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueueSample>,
}

/// The totals of a contender's results so far.
struct ContenderTotal {
    contender: Contender,
    tally: Tally,
    /// Round trips of the short messages, in nanoseconds.
    short_ns: Vec<u64>,
    machines: Vec<Machine>,
}

/// The findings of a cell.
struct CellFindings {
    findings: Findings,
    entry: table::Entry,
}

/// The plan of a cell's measurement.
pub struct Plan<'a> {
    cell: &'a Cell,
    /// Message sizes.
    pub workload: Workload,
    spec: Spec,
    /// Measurement time of each contender per repetition.
    pub measured: Duration,
    /// Duration of the load before the measurement window.
    pub warmup: Duration,
    /// Load as a share of each link's rate, including headers.
    pub load: f64,
    /// Request payload of each host, in Gbit/s.
    gbps: f64,
    /// Whether the measurement window is moved so that ideal links complete what is due in it: see [`steady`].
    pub chooses_window: bool,
}

impl<'a> Plan<'a> {
    /// Creates the plan for a cell's options.
    ///
    /// # Errors
    /// The workload does not exist, or a time is out of range.
    pub fn new(spec: &Spec, cell: &'a Cell) -> Result<Plan<'a>> {
        let options = &cell.options;
        let workload = workload_of(&options.messages)?;
        let (measured, warmup) =
            (seconds("duration", options.common.duration)?, seconds("warmup", options.common.warmup)?);
        let mut plan = Plan {
            cell,
            workload,
            spec: spec.clone(),
            measured,
            warmup,
            load: 0.0,
            gbps: 0.0,
            chooses_window: false,
        };
        plan.set_load(options.offered.load);
        Ok(plan)
    }

    /// Returns the rack.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the options of the cell.
    pub fn options(&self) -> &VsTcpOptions {
        &self.cell.options
    }

    /// Sets the load, as a share of each link's rate, from now on.
    pub fn set_load(&mut self, load: f64) {
        let Spec { rate_bps, mtu, .. } = self.spec;
        self.load = load;
        self.gbps =
            framing::gbps_of_load(load, rate_bps, &self.workload, mtu, self.cell.options.messages.one_way);
    }

    /// Returns the load of a repetition. Repetitions are counted from 1.
    ///
    /// # Errors
    /// The load is zero.
    pub fn load(&self, repetition: u32) -> Result<Load> {
        let options = &self.cell.options;
        let rate = Rate::Open { gbps: self.gbps, max_outstanding: options.messages.max_outstanding };
        let load = Load {
            rates: vec![Some(rate); self.spec.hosts.into()],
            warmup: self.warmup,
            measured: self.measured,
            seed: options.common.seed.wrapping_add(u64::from(repetition) << 32),
        };
        if !self.chooses_window {
            return Ok(load);
        }
        let (connections, one_way) = (options.common.connections, options.messages.one_way);
        steady::choose_window(load, &self.spec, &self.workload, connections, one_way)
    }
}

/// Runs the experiment with one workload on one rack.
fn of_cell(testbed: &mut Testbed, cell: &Cell) -> Result<CellFindings> {
    let options = &cell.options;
    let wants_sim = simulation::is_wanted(options.sim, testbed.spec(), &options.common, &options.messages)?;
    let count = options.common.repetitions;
    let mut session = Session::start(testbed, Plan::new(testbed.spec(), cell)?, UNLOADED)?;
    for repetition in 1..=count {
        session.repeat(testbed, &format!("repetition {repetition} of {count}"))?;
    }
    let measured = session.finish(testbed)?;
    let CellResults { plan, runs, repetitions, totals, unloaded, .. } = &measured;
    let mut findings = Findings {
        title: "Homa and TCP in one rack".to_owned(),
        summary: summary(plan),
        sections: measured.sections(),
        clean: measured.is_clean(),
        ..Findings::default()
    };
    let simulation = if wants_sim { Some(simulate(testbed, plan, unloaded, runs)?) } else { None };
    if let Some(simulation) = &simulation {
        findings.sections.extend(simulation.sections(runs, &plan.workload));
    }
    findings.warnings = measured.warnings();
    findings.json = measured.json("vs-tcp");
    findings.json["sim"] = json!(simulation);
    let entry = table::Entry::of(cell, plan, runs, totals, repetitions);
    Ok(CellFindings { findings, entry })
}

fn simulate(
    testbed: &mut Testbed,
    plan: &Plan<'_>,
    unloaded: &RttTable,
    runs: &[ContenderRuns],
) -> Result<simulation::SimulationResults> {
    let options = &plan.cell.options;
    testbed.progress.step(&format!("{}the same in the simulator", plan.cell.prefix()), Duration::ZERO);
    let ask = simulation::Simulation {
        spec: &plan.spec,
        common: &options.common,
        workload: &plan.workload,
        setup: &setup(&plan.spec, &options.common, &options.messages, Protocol::Homa),
        load: options.offered.load,
        unloaded,
    };
    simulation::simulate(&ask, runs)
}

/// Returns the options as JSON, with the times, repetitions and load of the measurement: a comparison changes
/// them while it runs.
fn config(plan: &Plan<'_>, repetitions: usize) -> Value {
    let options = &plan.cell.options;
    let mut config = harness::config(&plan.spec, &options.common, &options.messages, &plan.workload);
    config["duration_s"] = json!(plan.measured.as_secs_f64());
    config["warmup_s"] = json!(plan.warmup.as_secs_f64());
    config["repetitions"] = json!(repetitions);
    config["load"] = json!(plan.load);
    config["gbps_per_host"] = json!(plan.gbps);
    config
}

impl ContenderTotal {
    fn new(contender: Contender, workload: &Workload) -> ContenderTotal {
        ContenderTotal { contender, tally: Tally::new(workload), short_ns: Vec::new(), machines: Vec::new() }
    }

    fn take(
        &mut self,
        loaded: LoadResult,
        (repetition, measured): (u32, Duration),
        plan: &Plan<'_>,
        unloaded: &RttTable,
    ) -> Result<Repetition> {
        let mut one = Tally::new(&plan.workload);
        let short_bytes = one.recorder.short().max_bytes;
        for sample in &loaded.samples {
            one.recorder.record(sample.bytes, sample.rtt_ns, unloaded.rtt_ns(sample.bytes));
        }
        let short = loaded.samples.iter().filter(|sample| sample.bytes <= short_bytes);
        self.short_ns.extend(short.map(|sample| sample.rtt_ns));
        let achieved_gbps = loaded.gbps();
        let completed_fraction = loaded.counted.completed_fraction();
        one.counted = loaded.counted;
        let largest = one.recorder.has_largest_row().then(|| one.recorder.bins().pop()).flatten();
        let (short, slowdown_mean) = (one.recorder.short(), one.recorder.slowdown_mean());
        self.tally.measured += measured;
        self.tally.cpu += measured.mul_f64(loaded.machine.cores_busy);
        self.tally.add(one)?;
        self.machines.push(loaded.machine.clone());
        let (&Contender { protocol, congestion, .. }, machine) = (&self.contender, loaded.machine);
        Ok(Repetition {
            protocol,
            congestion,
            repetition,
            measured_s: measured.as_secs_f64(),
            short,
            slowdown_mean,
            largest,
            achieved_gbps,
            completed_fraction,
            machine,
            queue: loaded.queue,
        })
    }

    fn contender_runs(&self, workload: &str, pace: homa_bench::engine::load::Pace) -> ContenderRuns {
        let contender = self.contender.clone();
        let run = Run::new(contender.protocol, workload, pace, &self.tally);
        ContenderRuns { congestion: contender.congestion, contender, run }
    }

    fn machine(&self) -> Machine {
        let mean = |of: fn(&Machine) -> f64| {
            self.machines.iter().map(of).sum::<f64>() / self.machines.len().max(1) as f64
        };
        Machine {
            cpus: self.machines.first().map_or(0, |machine| machine.cpus),
            cores_busy: mean(|machine| machine.cores_busy),
            hosts_busy: mean(|machine| machine.hosts_busy),
            switch_busy: mean(|machine| machine.switch_busy),
            hosts_waited_us: mean(|machine| machine.hosts_waited_us),
            switch_waited_us: mean(|machine| machine.switch_waited_us),
            links: Links::mean(self.machines.iter().map(|machine| machine.links)),
        }
    }
}

fn summary(plan: &Plan<'_>) -> String {
    let Plan { workload, spec, gbps, .. } = plan;
    let options = &plan.cell.options;
    let answers =
        if options.messages.one_way { "answers of 100 bytes" } else { "answers as long as requests" };
    format!(
        "{workload} (mean {:.0} bytes, {answers}) at {:.0} % of every link: {} hosts at {} Mbit/s, each client and server, {:.1} Mbit/s of \
         requests each; buffer {}; {}",
        workload.mean_bytes(),
        plan.load * 100.0,
        spec.hosts,
        spec.rate_mbps(),
        gbps * 1e3,
        spec.buffer,
        carriers(&options.common),
    )
}

/// Describes the protocols with their settings, and the repetitions.
fn carriers(common: &CommonOptions) -> String {
    format!(
        "Homa over {}, TCP {} with {} connections to each host; seed {}, {} times {} s",
        common.driver.name(),
        common.cc_names(),
        common.connections,
        common.seed,
        common.repetitions,
        common.duration,
    )
}

fn warn(findings: &mut Findings, runs: &[ContenderRuns], totals: &[ContenderTotal], packet_us: f64) {
    for (ContenderRuns { contender, run, .. }, total) in runs.iter().zip(totals) {
        let title = &contender.title;
        processor_warnings(findings, title, &total.machine(), packet_us);
        if run.closed_loop {
            let (waited, all) = (run.capped + run.unsent, run.started + run.unsent);
            findings.warnings.push(format!(
                "{title}: {waited} of {all} arrivals had to wait for an open RPC to end: the load was not open-loop"
            ));
        }
        if let Some(error) = &run.first_error {
            findings.warnings.push(format!("{title}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tcp_is_tcp_and_several_are_told_apart() {
        let names = |ways: &[Congestion]| {
            let all = Contender::all(ways).into_iter();
            all.map(|one| (one.title, one.key, one.class)).collect::<Vec<_>>()
        };
        let of = |title: &str, key: &str, class| (title.to_owned(), key.to_owned(), class);
        let homa = of("Homa", "homa", "homa");
        assert_eq!(names(&[Congestion::Bbr]), [homa.clone(), of("TCP", "tcp", "tcp")]);
        let both = [of("TCP cubic", "tcp-cubic", "tcp"), of("TCP bbr", "tcp-bbr", "s2")];
        assert_eq!(names(&[Congestion::Cubic, Congestion::Bbr])[1..], both);
    }
}
