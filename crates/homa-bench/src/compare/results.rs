//! The results as objects: the content of `results.json`, and the input of the table and the report.

use homa_workload::{BinSummary, ShortSummary};
use serde::Serialize;

use crate::compare::plan::Plan;
use crate::engine::load::Pace;
use crate::engine::rtt::RttTable;
use crate::engine::tally::Tally;
use crate::host_options::HostOptions;
use crate::protocol::Protocol;

/// Version of the JSON. It increases when a field changes its meaning or is removed, not when a field is
/// added.
const SCHEMA: u32 = 1;

/// The results of a whole bench.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of this format.
    pub schema: u32,
    /// The seed of arrivals, sizes and content.
    pub seed: u64,
    /// The settings.
    pub config: Config,
    /// Median round trip of Homa without load, by size: the baseline for slowdown.
    pub unloaded: Vec<UnloadedRtt>,
    /// Maximum goodput of each protocol, if it was measured.
    pub max: Vec<Maximum>,
    /// One run for each protocol.
    pub runs: Vec<Run>,
}

/// The settings of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// Version of this program.
    pub version: &'static str,
    /// When the bench began, in seconds since 1970.
    pub unix_time_s: u64,
    /// Number of processors of this machine.
    pub cpus: usize,
    /// The workload's name.
    pub workload: String,
    /// Size to which longer messages were truncated, in bytes; `null` if no message was truncated.
    pub truncated_at: Option<u32>,
    /// Mean message size in bytes, after truncation.
    pub mean_bytes: f64,
    /// Offered load as a fraction of the slower protocol's maximum, if it was chosen as a fraction.
    pub load: Option<f64>,
    /// Offered load in Gbit/s of request payload; `null` in a closed loop.
    pub gbps: Option<f64>,
    /// Closed loop: number of open RPCs per client port.
    pub outstanding: Option<u32>,
    /// Open loop: number of open RPCs per client port above which arrivals wait.
    pub max_outstanding: u32,
    /// Whether responses were 100 bytes long.
    pub one_way: bool,
    /// The driver of Homa's packets.
    pub driver: &'static str,
    /// Remote servers; empty: servers on this machine, over loopback.
    pub servers: Vec<String>,
    /// Number of client hosts.
    pub clients: u16,
    /// Number of client ports per client host.
    pub ports: u16,
    /// Number of threads that drive the client ports.
    pub client_threads: usize,
    /// Number of threads per client port that only receive responses.
    pub port_receivers: u16,
    /// Number of server ports per server.
    pub server_ports: u16,
    /// Number of server threads per protocol.
    pub server_threads: u16,
    /// Time that idle threads poll before they sleep, in microseconds, on both sides.
    pub poll_us: u64,
    /// The options of Homa's hosts on this machine.
    #[serde(flatten)]
    pub host: HostOptions,
    /// `apart`: the local servers used one half of the processors, and the clients the other half; `free`:
    /// the scheduler placed both.
    pub placement: &'static str,
    /// Measurement time for each protocol, in seconds.
    pub duration_s: f64,
    /// Number of slices per protocol; the protocols took turns.
    pub slices: u32,
}

/// An unloaded round trip.
#[derive(Clone, Debug, Serialize)]
pub struct UnloadedRtt {
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
    /// The protocol's highest goodput, in Gbit/s of request payload.
    pub gbps: f64,
    /// Number of open RPCs per client port at which the maximum was reached.
    pub outstanding: u32,
}

/// The run of a protocol. All commands that measure share the fields up to `short`.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The protocol.
    pub protocol: Protocol,
    /// The workload's name.
    pub workload: String,
    /// Offered load in Gbit/s of request payload; `null` in a closed loop.
    pub offered_gbps: Option<f64>,
    /// Payload of the requests answered within the measurement window, in Gbit/s.
    pub achieved_gbps: f64,
    /// Bytes answered within the measurement window divided by the bytes due in it: 1 in steady state; `null`
    /// in a closed loop.
    pub completed_fraction: Option<f64>,
    /// Number of measured RPCs: those that were due within the measurement window and have been answered.
    pub rpcs: u64,
    /// Number of RPCs that ended in an error or with a wrong response. This field, `lost` and `duplicated`
    /// include the RPCs of the warm-up.
    pub errors: u64,
    /// Number of RPCs that never ended.
    pub lost: u64,
    /// Duplicate responses, and requests that the server executed more than once.
    pub duplicated: u64,
    /// Average number of processors kept busy by the clients and, if this bench started them, by the servers.
    pub cpu_busy: f64,
    /// Mean slowdown of all messages.
    pub slowdown_mean: f64,
    /// Statistics by size.
    pub bins: Vec<BinSummary>,
    /// Statistics of the short messages.
    pub short: ShortSummary,
    /// Whether the last entry of `bins` is the largest 1 % of the messages.
    pub largest_row: bool,
    /// Number of RPCs started.
    pub started: u64,
    /// Number of arrivals that had to wait because `max_outstanding` RPCs were open.
    pub capped: u64,
    /// Number of arrivals that were still waiting at the end.
    pub unsent: u64,
    /// Whether more than 1 % of the arrivals had to wait, so that the offered load was not reached.
    pub closed_loop: bool,
    /// The first error.
    pub first_error: Option<String>,
}

impl Run {
    /// Computes the run of a protocol from its counts.
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

    /// Returns whether every RPC was answered exactly once and correctly.
    pub fn clean(&self) -> bool {
        self.errors == 0 && self.lost == 0 && self.duplicated == 0
    }
}

impl Results {
    /// Composes the results from their parts.
    pub fn new(plan: &Plan, pace: Pace, unloaded: &RttTable, max: Vec<Maximum>, runs: Vec<Run>) -> Results {
        let points = unloaded.points().iter();
        let unloaded = points.map(|&(bytes, ns)| UnloadedRtt { bytes, rtt_us: ns as f64 / 1e3 }).collect();
        Results { schema: SCHEMA, seed: plan.seed, config: plan.config(pace), unloaded, max, runs }
    }

    /// Returns the run of a protocol.
    pub fn run(&self, protocol: Protocol) -> Option<&Run> {
        self.runs.iter().find(|run| run.protocol == protocol)
    }

    /// Returns the runs of Homa and TCP for comparison, if both exist.
    pub fn pair(&self) -> Option<(&Run, &Run)> {
        Some((self.run(Protocol::Homa)?, self.run(Protocol::Tcp)?))
    }

    /// Returns pairs of Homa's run and another protocol's run, for comparison; none if Homa did not run.
    pub fn against_homa(&self) -> impl Iterator<Item = (&Run, &Run)> {
        let others = self.runs.iter().filter(|run| run.protocol != Protocol::Homa);
        self.run(Protocol::Homa).into_iter().flat_map(move |homa| others.clone().map(move |run| (homa, run)))
    }
}
