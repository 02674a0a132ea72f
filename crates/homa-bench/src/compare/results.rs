//! The results as objects: what `results.json` holds, and what table and report are made of.

use homa_workload::{BinSummary, ShortSummary};
use serde::Serialize;

use crate::compare::plan::Plan;
use crate::engine::load::Pace;
use crate::engine::rtt::RttTable;
use crate::engine::tally::Tally;
use crate::protocol::Protocol;

/// Version of the JSON: it grows when a field changes its meaning or goes, not when one is added.
const SCHEMA: u32 = 1;

/// A whole bench.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of this format.
    pub schema: u32,
    /// The seed of arrivals, sizes and content.
    pub seed: u64,
    /// The settings.
    pub config: Config,
    /// Median round trip of Homa alone, by size: what slowdown is measured against.
    pub unloaded: Vec<Unloaded>,
    /// Maximum goodput of each protocol, where it was measured.
    pub max: Vec<Maximum>,
    /// One for each protocol.
    pub runs: Vec<Run>,
}

/// The settings of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// Version of this program.
    pub version: &'static str,
    /// When the bench began, seconds since 1970.
    pub unix_time_s: u64,
    /// Processors of this machine.
    pub cpus: usize,
    /// The workload's name.
    pub workload: String,
    /// The size to which longer messages were shortened, in bytes; `null` if none was.
    pub truncated_at: Option<u32>,
    /// Mean message, in bytes, as sent.
    pub mean_bytes: f64,
    /// Offered load as a fraction of the slower protocol's maximum, where it was chosen so.
    pub load: Option<f64>,
    /// Offered load, 10^9 bits of request payload per second; `null` in a closed loop.
    pub gbps: Option<f64>,
    /// Closed loop: RPCs open per client port.
    pub outstanding: Option<u32>,
    /// Open loop: RPCs open per client port at which arrivals wait.
    pub max_outstanding: u32,
    /// Answers had 100 bytes.
    pub one_way: bool,
    /// What carried Homa's packets: `udp` or `raw`.
    pub driver: &'static str,
    /// Remote servers; empty: servers on this machine, over loopback.
    pub servers: Vec<String>,
    /// Client hosts.
    pub clients: u16,
    /// Endpoints of each Homa host, save remote ones.
    pub endpoints: u16,
    /// Client ports per client host.
    pub ports: u16,
    /// Threads that drive the client ports.
    pub client_threads: usize,
    /// Threads per client port that only take answers.
    pub port_receivers: u16,
    /// Server ports per server.
    pub server_ports: u16,
    /// Server threads per protocol.
    pub server_threads: u16,
    /// Polling before sleeping, in microseconds, on both sides.
    pub poll_us: u64,
    /// Which of Homa's sleeping threads is woken, on both sides.
    pub wake_order: String,
    /// Most packets that Homa takes at a time, on both sides.
    pub batch_cap: u32,
    /// Speed of the link in Mbit/s, as asked for; `None`: what the network device tells.
    pub link_mbps: Option<u32>,
    /// `apart`: the local servers had half of the processors to themselves and the clients the others; `free`: not.
    pub placement: &'static str,
    /// Measured seconds for each protocol.
    pub duration_s: f64,
    /// The number of slices these were measured in, protocols in turn.
    pub slices: u32,
}

/// An unloaded round trip.
#[derive(Clone, Debug, Serialize)]
pub struct Unloaded {
    /// Size of the request, in bytes.
    pub bytes: u32,
    /// Median round trip, in microseconds.
    pub rtt_us: f64,
}

/// A protocol's maximum.
#[derive(Clone, Debug, Serialize)]
pub struct Maximum {
    /// The protocol.
    pub protocol: Protocol,
    /// Its highest goodput, 10^9 bits of request payload per second.
    pub gbps: f64,
    /// RPCs open per client port at which it was reached.
    pub outstanding: u32,
}

/// A protocol's run. The fields up to `short` are those that every command that measures has.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The protocol.
    pub protocol: Protocol,
    /// The workload's name.
    pub workload: String,
    /// Offered load, 10^9 bits of request payload per second; `null` in a closed loop.
    pub offered_gbps: Option<f64>,
    /// Payload of the requests answered within the measured time.
    pub achieved_gbps: f64,
    /// Bytes answered within the measured time over the bytes due in it: 1 in steady state; `null` in a closed loop.
    pub completed_fraction: Option<f64>,
    /// RPCs measured: due within the measured time, and answered.
    pub rpcs: u64,
    /// RPCs that ended in an error or with a wrong answer, the warm-up included; so are the next two.
    pub errors: u64,
    /// RPCs that never ended.
    pub lost: u64,
    /// Second answers, and requests that the server ran more than once.
    pub duplicated: u64,
    /// Processors busy on average, clients and (where they are ours) servers.
    pub cpu_busy: f64,
    /// Mean slowdown of all messages.
    pub slowdown_mean: f64,
    /// By size.
    pub bins: Vec<BinSummary>,
    /// The short messages.
    pub short: ShortSummary,
    /// The last of `bins` is the largest 1 % of the messages.
    pub largest_row: bool,
    /// RPCs started.
    pub started: u64,
    /// Arrivals that had to wait because `max_outstanding` RPCs were open.
    pub capped: u64,
    /// Arrivals that still waited at the end.
    pub unsent: u64,
    /// More than 1 % of the arrivals had to wait: the offered load was not reached.
    pub closed_loop: bool,
    /// The first thing that went wrong.
    pub first_error: Option<String>,
}

impl Run {
    /// Sums a protocol's run up.
    pub fn new(protocol: Protocol, workload: &str, pace: Pace, tally: &Tally) -> Run {
        let (offered_gbps, closed) = match pace {
            Pace::Open { gbps, .. } => (Some(gbps), tally.counted.closed_loop()),
            Pace::Closed { .. } => (None, true),
        };
        Run {
            protocol,
            workload: workload.to_owned(),
            offered_gbps,
            achieved_gbps: tally.achieved_gbps(),
            completed_fraction: offered_gbps.and_then(|_| tally.counted.completed_fraction()),
            rpcs: tally.recorder.count(),
            errors: tally.counted.errors,
            lost: tally.counted.lost,
            duplicated: tally.counted.duplicated,
            cpu_busy: tally.cpu_busy(),
            slowdown_mean: tally.recorder.slowdown_mean(),
            bins: tally.recorder.bins(),
            short: tally.recorder.short(),
            largest_row: tally.recorder.has_largest_row(),
            started: tally.counted.started,
            capped: tally.counted.capped,
            unsent: tally.counted.unsent,
            closed_loop: closed,
            first_error: tally.counted.first_error.clone(),
        }
    }

    /// Whether every RPC was answered exactly once, and right.
    pub fn clean(&self) -> bool {
        self.errors == 0 && self.lost == 0 && self.duplicated == 0
    }
}

impl Results {
    /// Puts the parts together.
    pub fn new(plan: &Plan, pace: Pace, unloaded: &RttTable, max: Vec<Maximum>, runs: Vec<Run>) -> Results {
        let points = unloaded.points().iter();
        let unloaded = points.map(|&(bytes, ns)| Unloaded { bytes, rtt_us: ns as f64 / 1e3 }).collect();
        Results { schema: SCHEMA, seed: plan.seed, config: plan.config(pace), unloaded, max, runs }
    }

    /// The run of a protocol.
    pub fn run(&self, protocol: Protocol) -> Option<&Run> {
        self.runs.iter().find(|run| run.protocol == protocol)
    }

    /// Homa's run and TCP's where both ran: then they are compared.
    pub fn pair(&self) -> Option<(&Run, &Run)> {
        Some((self.run(Protocol::Homa)?, self.run(Protocol::Tcp)?))
    }

    /// Homa's run and each of the others, where Homa ran: then they are compared.
    pub fn against_homa(&self) -> impl Iterator<Item = (&Run, &Run)> {
        let others = self.runs.iter().filter(|run| run.protocol != Protocol::Homa);
        self.run(Protocol::Homa).into_iter().flat_map(move |homa| others.clone().map(move |run| (homa, run)))
    }
}
