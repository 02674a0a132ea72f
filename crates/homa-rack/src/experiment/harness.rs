//! Measurements shared by the experiments: connected agents, equal loads on all hosts, and scores of loads.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use homa_bench::engine::rtt::RttTable;
use homa_bench::engine::tally::Sample;
use homa_bench::protocol::Protocol;
use homa_bench::workloads;
use homa_report::findings::Findings;
use homa_workload::{BinSummary, ShortSummary, SlowdownRecorder, Workload};
use serde::Serialize;
use serde_json::{Value, json};

use super::agent_protocol::{Rate, Setup};
use super::agents::Agents;
use super::findings::processor_warnings;
use super::framing;
use super::links::Links;
use super::options::{CommonOptions, MessageOptions, Setting};
use super::setup::{seconds, setup};
use super::testbed::{Load, LoadResult, Machine, Testbed};
use crate::spec::Spec;

/// Maximum time for measuring unloaded round trips.
pub const UNLOADED: Duration = Duration::from_secs(2);

/// Version of the JSON. It increases when a field changes its meaning or is removed, not when a field is
/// added.
const SCHEMA: u32 = 1;

/// Runs loads on a rack and computes their scores.
pub struct Harness<'a> {
    /// The rack.
    pub testbed: &'a mut Testbed,
    /// The messages.
    pub workload: Workload,
    /// Unloaded round trips, the baseline for slowdown; empty until [`Harness::measure_unloaded`].
    pub unloaded: RttTable,
    common: &'a CommonOptions,
    messages: &'a MessageOptions,
    measured: Duration,
    warmup: Duration,
}

/// The score of a load.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// The protocol under load.
    pub protocol: Protocol,
    /// Round trips of the short messages.
    pub short: ShortSummary,
    /// Mean slowdown of all messages.
    pub slowdown_mean: f64,
    /// The largest 1 % of the messages.
    pub largest: Option<BinSummary>,
    /// Offered load of all hosts in Gbit/s of request payload; `null` in a closed loop.
    pub offered_gbps: Option<f64>,
    /// Answered load of all hosts, in the same unit.
    pub achieved_gbps: f64,
    /// Request payload that all hosts received, in the same unit. It includes payload of RPCs that were not
    /// answered within the measurement window.
    pub carried_gbps: f64,
    /// RPCs answered within the measurement window, per second.
    pub rpcs_per_s: f64,
    /// Number of RPCs that ended in an error or with a wrong response.
    pub errors: u64,
    /// Number of RPCs that never ended.
    pub lost: u64,
    /// Whether more than 1 % of the arrivals had to wait, so that the offered load was not reached.
    pub closed_loop: bool,
    /// The first error.
    pub first_error: Option<String>,
    /// Load of processors and links.
    pub machine: Machine,
}

impl<'a> Harness<'a> {
    /// Creates a harness. Starts nothing.
    ///
    /// # Errors
    /// The workload or a time is invalid.
    pub fn new(
        testbed: &'a mut Testbed,
        common: &'a CommonOptions,
        messages: &'a MessageOptions,
    ) -> Result<Harness<'a>> {
        let workload = workload_of(messages)?;
        let (measured, warmup) = (seconds("duration", common.duration)?, seconds("warmup", common.warmup)?);
        let unloaded = RttTable::new(vec![(1, 1)]);
        Ok(Harness { testbed, workload, unloaded, common, messages, measured, warmup })
    }

    /// Starts agents of a protocol, each of which is a client of all others. `change` modifies their setup.
    ///
    /// # Errors
    /// A host failed; the error contains its error output.
    pub fn agents(&self, protocol: Protocol, change: impl FnOnce(&mut Setup)) -> Result<Agents> {
        let mut setup = setup(self.testbed.spec(), self.common, self.messages, protocol);
        change(&mut setup);
        let mut agents = Agents::start(self.testbed, &setup)?;
        agents.open_all(self.testbed)?;
        Ok(agents)
    }

    /// Measures unloaded Homa, with separate agents.
    ///
    /// # Errors
    /// A host failed; the error contains its error output.
    pub fn measure_unloaded(&mut self) -> Result<()> {
        self.testbed.progress.step("Homa: round trips without load, by size", UNLOADED);
        let budget = self.unloaded_time();
        self.unloaded = self.agents(Protocol::Homa, |_| ())?.unloaded(self.testbed, &[], budget)?;
        Ok(())
    }

    /// Returns the time for measuring unloaded round trips: at most twice the measurement time of a load.
    pub fn unloaded_time(&self) -> Duration {
        UNLOADED.min(2 * self.measured)
    }

    /// Returns the rate of an open loop that loads each link to this fraction of its rate.
    pub fn rate_of_load(&self, load: f64) -> Rate {
        let spec = self.testbed.spec();
        let gbps =
            framing::gbps_of_load(load, spec.rate_bps, &self.workload, spec.mtu, self.messages.one_way);
        Rate::Open { gbps, max_outstanding: self.messages.max_outstanding }
    }

    /// Returns the maximum request payload of each host in Gbit/s, if links carry only data with the
    /// protocol's headers.
    pub fn header_limited_gbps(&self, protocol: Protocol) -> f64 {
        let spec = self.testbed.spec();
        framing::header_limited_gbps(protocol, spec.rate_bps, &self.workload, spec.mtu, self.messages.one_way)
    }

    /// Returns the same load for all hosts.
    pub fn on_all_hosts(&self, rate: Rate, repetition: u32) -> Load {
        self.on(rate, repetition, |_| true)
    }

    /// Returns a load on those hosts for whose numbers `sends` returns true.
    pub fn on(&self, rate: Rate, repetition: u32, sends: impl Fn(u16) -> bool) -> Load {
        let numbers = self.testbed.spec().numbers();
        Load {
            rates: numbers.map(|number| sends(number).then_some(rate)).collect(),
            warmup: self.warmup,
            measured: self.measured,
            seed: self.common.seed.wrapping_add(u64::from(repetition) << 32),
        }
    }

    /// Runs a load on one group of agents.
    ///
    /// # Errors
    /// The errors of [`Testbed::load`].
    pub fn run(&mut self, agents: &mut Agents, load: &Load, text: &str) -> Result<(Score, Vec<Sample>)> {
        let protocol = agents.protocol;
        let mut all = self.testbed.load(&mut [(agents, load)], text)?;
        let loaded = all.pop().unwrap_or_default();
        let score = self.score(protocol, load, &loaded);
        Ok((score, loaded.samples))
    }

    /// Computes the score of a load.
    pub fn score(&self, protocol: Protocol, load: &Load, loaded: &LoadResult) -> Score {
        let recorder = self.recorder(&loaded.samples);
        let offered = load.rates.iter().flatten().map(|rate| match rate {
            Rate::Open { gbps, .. } => Some(gbps),
            Rate::Closed { .. } => None,
        });
        let offered_gbps = offered.sum::<Option<f64>>();
        let counted = &loaded.counted;
        Score {
            protocol,
            short: recorder.short(),
            slowdown_mean: recorder.slowdown_mean(),
            largest: recorder.has_largest_row().then(|| recorder.bins().pop()).flatten(),
            offered_gbps,
            achieved_gbps: loaded.gbps(),
            carried_gbps: loaded.received_gbps()
                * framing::request_share(&self.workload, self.messages.one_way),
            rpcs_per_s: loaded.samples.len() as f64 / self.measured.as_secs_f64(),
            errors: counted.errors + counted.duplicated,
            lost: counted.lost,
            closed_loop: offered_gbps.is_some() && counted.closed_loop(),
            first_error: counted.first_error.clone(),
            machine: loaded.machine.clone(),
        }
    }

    /// Records the slowdowns of these samples.
    pub fn recorder(&self, samples: &[Sample]) -> SlowdownRecorder {
        let mut recorder = SlowdownRecorder::new(&self.workload);
        for sample in samples {
            recorder.record(sample.bytes, sample.rtt_ns, self.unloaded.rtt_ns(sample.bytes));
        }
        recorder
    }

    /// Adds the parts common to all experiments to the findings: conditions, warnings about the scores of
    /// these named loads, and the JSON with `results`.
    pub fn finish(
        &self,
        findings: &mut Findings,
        experiment: &str,
        scores: &[(String, &Score)],
        results: Value,
    ) {
        let spec = self.testbed.spec();
        let common = self.common;
        findings.clean = scores.iter().all(|(_, score)| score.errors == 0 && score.lost == 0);
        for (name, score) in scores {
            processor_warnings(findings, name, &score.machine, spec.packet_us());
            if let Some(error) = &score.first_error {
                findings.warnings.push(format!("{name}: {error}"));
            }
        }
        findings.summary = format!(
            "{}; {} hosts at {} Mbit/s, buffer {}; Homa over {}, TCP {} with {} connections to each host; seed {}, {} s",
            self.workload,
            spec.hosts,
            spec.rate_mbps(),
            spec.buffer,
            common.driver.name(),
            common.cc_names(),
            common.connections,
            common.seed,
            common.duration
        );
        findings.json = header(
            experiment,
            spec,
            common,
            config(spec, common, self.messages, &self.workload),
            &self.unloaded,
        );
        findings.json["results"] = results;
        findings.json["switch"] = json!(self.testbed.switch_stats());
    }
}

/// Returns the first part of the JSON, which is common to all experiments.
pub fn header(
    experiment: &str,
    spec: &Spec,
    common: &CommonOptions,
    config: Value,
    unloaded: &RttTable,
) -> Value {
    let mut header = preamble(experiment, common);
    header["rack"] = json!(spec);
    header["config"] = config;
    header["unloaded"] = points(unloaded);
    header
}

/// Returns the common first part of the JSON for an experiment on several racks, each of which has its own
/// header.
pub fn preamble(experiment: &str, common: &CommonOptions) -> Value {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "schema": SCHEMA,
        "experiment": experiment,
        "version": env!("CARGO_PKG_VERSION"),
        "unix_time_s": now.as_secs(),
        "seed": common.seed,
    })
}

/// Returns round trips by size as JSON.
pub fn points(table: &RttTable) -> Value {
    table.points().iter().map(|&(bytes, ns)| json!({ "bytes": bytes, "rtt_us": ns as f64 / 1e3 })).collect()
}

/// Returns the options as JSON, with the number of answering threads per server port for each protocol.
/// Results with other numbers of threads state their own numbers.
pub fn config(spec: &Spec, common: &CommonOptions, messages: &MessageOptions, workload: &Workload) -> Value {
    let answering = |protocol| setup(spec, common, messages, protocol).answering_threads();
    json!({
        "workload": workload.name(),
        "truncated_at": workload.truncated_at(),
        "mean_bytes": workload.mean_bytes(),
        "one_way": messages.one_way,
        "max_outstanding": messages.max_outstanding,
        "driver": common.driver.name(),
        "congestion": common.cc_json(),
        "connections": common.connections,
        "server_threads": common.server_threads,
        "answering_threads": { "homa": answering(Protocol::Homa), "tcp": answering(Protocol::Tcp) },
        "poll_us": common.poll_us,
        "settings": common.set.iter().map(Setting::text).collect::<Vec<_>>(),
        "duration_s": common.duration,
        "warmup_s": common.warmup,
        "repetitions": common.repetitions,
    })
}

/// Returns the workload selected by these options. A number is a message size.
///
/// # Errors
/// There is no such workload.
pub fn workload_of(messages: &MessageOptions) -> Result<Workload> {
    match messages.workload.parse() {
        Ok(size) => Ok(Workload::fixed(size)?),
        Err(_) => workloads::named(&messages.workload, messages.max_message),
    }
}

/// Returns the cells of a score, for a table with the header [`SCORE_HEAD`].
pub fn score_cells(name: String, score: &Score) -> Vec<String> {
    let mbps = |gbps: f64| format!("{:.1}", gbps * 1e3);
    let of_links = |share: fn(Links) -> f64| {
        score.machine.links.map_or("-".to_owned(), |links| format!("{:.1}", share(links) * 100.0))
    };
    vec![
        name,
        format!("{:.1}", score.short.p50_us),
        format!("{:.1}", score.short.p99_us),
        format!("{:.2}", score.slowdown_mean),
        score.largest.as_ref().map_or("-".to_owned(), |bin| format!("{:.2}", bin.slowdown_mean)),
        score.offered_gbps.map_or("-".to_owned(), mbps),
        mbps(score.achieved_gbps),
        format!("{}", score.errors + score.lost),
        format!("{:.2}", score.machine.cores_busy),
        of_links(|links| links.busy),
        of_links(|links| links.dropped),
    ]
}

/// The table header for [`score_cells`]. The experiment names the first column.
pub const SCORE_HEAD: [&str; 10] = [
    "short P50, us",
    "short P99, us",
    "mean slowdown",
    "largest 1 %",
    "offered Mbit/s",
    "answered",
    "failed",
    "cores busy",
    "links busy, %",
    "dropped, %",
];
