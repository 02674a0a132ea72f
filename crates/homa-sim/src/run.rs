//! A complete run of the standard load, and its results.

use std::collections::BTreeMap;
use std::fmt;

use homa_proto::{SEC, Time};

use crate::fabric::FabricStats;
use crate::fault::FaultCounts;
use crate::load::{Load, RpcLoad};
use crate::network::{Network, NetworkConfig};

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct SimulationConfig {
    /// The network.
    pub network: NetworkConfig,
    /// The load.
    pub load: Load,
    /// Maximum virtual time of the load.
    pub load_limit_ns: u64,
    /// Maximum virtual time from the end of the load until nothing is left.
    pub idle_limit_ns: u64,
}

impl SimulationConfig {
    /// Returns a run of this load on this network, with time limits far above those of any correct run.
    pub fn new(network: NetworkConfig, load: Load) -> SimulationConfig {
        SimulationConfig { network, load, load_limit_ns: 10_000 * SEC, idle_limit_ns: 60 * SEC }
    }
}

/// A run of the standard load.
pub struct Simulation {
    config: SimulationConfig,
    network: Network<RpcLoad>,
}

impl Simulation {
    /// Makes a run with this configuration at time 0.
    ///
    /// # Panics
    /// As [`Network::new`] and [`RpcLoad::new`].
    pub fn new(config: SimulationConfig) -> Simulation {
        let (load, seed) = (&config.load, config.network.seed);
        let network = Network::new(config.network.clone(), |host| RpcLoad::new(load, seed, host));
        Simulation { config, network }
    }

    /// Returns the network, for inspection and faults.
    pub fn network(&mut self) -> &mut Network<RpcLoad> {
        &mut self.network
    }

    /// Runs the load to its end and the network until it is idle, or to the limits.
    pub fn run(&mut self) -> Report {
        let load_limit = Time::from_ns(self.config.load_limit_ns);
        // A client that is done stays done. The clients are therefore checked in turn until each is done,
        // instead of checking all of them after each event.
        let mut done = self.config.load.clients.start;
        let clients = self.config.load.clients.end;
        self.network.run_until_done(load_limit, |network| {
            while done < clients && network.host(done).app().is_done(network.now()) {
                done += 1;
            }
            done >= clients
        });
        let load_ended = self.network.now();
        self.network.run_until_idle(load_ended + self.config.idle_limit_ns);
        self.report(load_ended)
    }

    fn report(&self, load_ended: Time) -> Report {
        let mut report = Report {
            seed: self.config.network.seed,
            load_ended,
            idle_at: self.network.now(),
            idle: self.network.is_idle(),
            network: self.network.stats(),
            faults: self.network.fault_counts(),
            ..Report::default()
        };
        for host in self.network.hosts() {
            let (load, counts) = (&host.app().counts, host.counts());
            report.started += load.started;
            report.answered += load.answered;
            report.unexpected += load.unexpected;
            report.lengths_wrong += load.lengths_wrong + counts.lengths_wrong;
            report.unfinished += host.app().open() as u64;
            add(&mut report.failed, &load.failed);
            add(&mut report.refused, &load.refused);
            report.executed += counts.executed;
            report.executed_again += counts.executed_again;
            report.bytes_wrong += host.bytes_wrong();
            report.bytes_received += host.bytes_received();
            report.stored_bytes += host.stored_bytes();
            report.stored_rpcs += host.stored_rpcs() as u64;
            report.violations.extend_from_slice(host.violations());
            report.leftovers.extend(host.leftovers());
            add_up(&mut report.goodput_bytes, &load.goodput_bytes);
            for (name, value, _) in
                host.endpoint().map(|endpoint| endpoint.stats().entries()).unwrap_or_default()
            {
                *report.protocol.entry(name).or_default() += value;
            }
        }
        report
    }
}

fn add(sums: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        *sums.entry(name.clone()).or_default() += count;
    }
}

fn add_up(sums: &mut Vec<u64>, counts: &[u64]) {
    sums.resize(sums.len().max(counts.len()), 0);
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// Results of a run, over all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed of the run.
    pub seed: u64,
    /// Time at which the last RPC of the load ended.
    pub load_ended: Time,
    /// Time at which nothing was left, or the time limit.
    pub idle_at: Time,
    /// Whether the run ended with no packet in flight, every endpoint idle, and nothing stored.
    pub idle: bool,
    /// RPCs started.
    pub started: u64,
    /// RPCs answered.
    pub answered: u64,
    /// RPCs that were neither answered nor failed.
    pub unfinished: u64,
    /// RPCs failed, by error.
    pub failed: BTreeMap<String, u64>,
    /// RPCs refused by the endpoint, by error.
    pub refused: BTreeMap<String, u64>,
    /// Reported ends of RPCs that were not open.
    pub unexpected: u64,
    /// Requests that servers executed.
    pub executed: u64,
    /// Requests that the same incarnation of a server executed more than once.
    pub executed_again: u64,
    /// Requests and responses of a wrong length.
    pub lengths_wrong: u64,
    /// Payload bytes that were wrong on arrival.
    pub bytes_wrong: u64,
    /// Payload bytes that arrived, each counted once.
    pub bytes_received: u64,
    /// RPCs that are still stored.
    pub stored_rpcs: u64,
    /// Bytes of messages still stored.
    pub stored_bytes: u64,
    /// Descriptions of the first stored RPCs of each host.
    pub leftovers: Vec<String>,
    /// Descriptions of the first violations of the drive contract by each endpoint.
    pub violations: Vec<String>,
    /// Bytes of complete messages by interval of [`Load::goodput_interval_ns`].
    pub goodput_bytes: Vec<u64>,
    /// Counters of the network.
    pub network: FabricStats,
    /// Counters of faults.
    pub faults: FaultCounts,
    /// The endpoints' counters, summed.
    pub protocol: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Describes violations of the requirements of a run in which peers stay up: every RPC is answered
    /// exactly once, with the right bytes, and executed once, and nothing is left.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.broken_promises();
        for (error, count) in self.failed.iter().chain(&self.refused) {
            problems.push(format!("{count} RPCs ended in {error}"));
        }
        if self.answered != self.started {
            problems.push(format!("{} RPCs were started and {} answered", self.started, self.answered));
        }
        if self.executed != self.started {
            problems.push(format!("{} RPCs were started and {} run", self.started, self.executed));
        }
        problems
    }

    /// Describes violations of the requirements that hold for any behaviour of the network and the hosts.
    pub fn broken_promises(&self) -> Vec<String> {
        let mut problems = self.violations.clone();
        let counts = [
            (self.unfinished, "RPCs neither answered nor failed"),
            (self.unexpected, "ends of RPCs that were not open"),
            (self.executed_again, "requests run again"),
            (self.lengths_wrong, "messages of a wrong length"),
            (self.bytes_wrong, "bytes wrong"),
            (self.stored_rpcs, "RPCs still stored"),
            (self.stored_bytes, "bytes still stored"),
        ];
        problems.extend(
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
        );
        if !self.idle {
            problems.push(format!("not idle at {} ms", self.idle_at.as_ns() / homa_proto::MS));
            problems.extend(self.leftovers.iter().cloned());
        }
        problems
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = &self.faults;
        write!(
            f,
            "seed {}: {} answered of {}, {} run, {:.1} MB in {:.3} s, idle {:.3} s later; {} packets, {} lost, {} \
             duplicated, {} delayed, {} corrupted, {} overflowed; {} RESENDs, {} retransmitted; {} events",
            self.seed,
            self.answered,
            self.started,
            self.executed,
            self.bytes_received as f64 / 1e6,
            self.load_ended.as_ns() as f64 / 1e9,
            self.idle_at.since(self.load_ended) as f64 / 1e9,
            self.network.sent,
            faults.lost,
            faults.duplicated,
            faults.delayed,
            faults.corrupted,
            self.network.overflowed,
            self.protocol.get("resends_sent").copied().unwrap_or_default(),
            self.protocol.get("retransmits").copied().unwrap_or_default(),
            self.network.events,
        )
    }
}
