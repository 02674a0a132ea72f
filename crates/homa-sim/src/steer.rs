//! Hosts with cores under load: the effect of a steering policy on RPCs.

use std::ops::ControlFlow;

use homa_workload::Workload;
use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterConfig, ClusterError, ClusterReport, Exchange, Progress, Traffic};
use crate::cores::{CoreCounts, CoresConfig};
use crate::transport::{HomaConfig, TransportConfig};

/// The load of the hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SteerLoad {
    /// Poisson arrivals. The load, above 0 and at most 1, is a fraction of the hosts' capacity: the capacity
    /// of their links, or of their cores if the cores are the bottleneck. Cores are assumed to share the work
    /// of RPCs evenly and to do nothing else ([`CoresConfig::rpc_ns`]).
    Share(f64),
    /// A fixed number of open RPCs per host.
    Outstanding(u32),
}

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct SteerConfig {
    /// Message sizes. A response is as long as its request. Messages above 1,000,000 bytes, the maximum of
    /// Linux Homa, are truncated to that length.
    pub workload: Workload,
    /// The load of the hosts.
    pub load: SteerLoad,
    /// Number of hosts at one switch, at least 2. Each host is both client and server.
    pub hosts: usize,
    /// The cores of each host.
    pub cores: CoresConfig,
    /// Seed of the run.
    pub seed: u64,
    /// Approximate number of measured RPCs. It is reduced if the messages are so long that they would total
    /// more than 2 GB.
    pub rpcs: u64,
    /// Measured time in nanoseconds, instead of a number of RPCs.
    pub duration_ns: Option<u64>,
}

/// Results of a run. Times are in microseconds, from when a thread starts to send a request until a thread
/// has the response, as in the benchmark of the kernel module. Requests that an overloaded sender has not
/// started are not part of the times, and reduce the throughput.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteerReport {
    /// The policy's name.
    pub policy: String,
    /// The workload's name.
    pub workload: String,
    /// Number of cores of a host.
    pub cores: usize,
    /// Load as a fraction of the hosts' capacity; 0: a fixed number of open RPCs.
    pub load: f64,
    /// The seed of the run.
    pub seed: u64,
    /// Measured RPCs.
    pub rpcs: u64,
    /// Measured RPCs that had not ended at the end of the run.
    pub unfinished: u64,
    /// Maximum length of a short message: 1,499 bytes or, if fewer than a tenth of the messages are that
    /// short, the 10th percentile of the lengths.
    pub short_bytes: u32,
    /// Number of completed RPCs with short messages.
    pub short_rpcs: u64,
    /// Median time of the short RPCs.
    pub short_p50_us: f64,
    /// 99th percentile of the times of the short RPCs.
    pub short_p99_us: f64,
    /// 99.9th percentile of the times of the short RPCs.
    pub short_p999_us: f64,
    /// Mean time of the short RPCs.
    pub short_mean_us: f64,
    /// 99th percentile of the times of all RPCs.
    pub p99_us: f64,
    /// Completed RPCs per second per host, in thousands.
    pub krpcs_per_sec: f64,
    /// Rate at which a host received message bytes, in Gbit/s.
    pub gbps: f64,
    /// Counters of the cores.
    pub counts: CoreCounts,
}

/// Number of nodes in the cluster whose results are published ("Small-message latencies", January 2021).
const HOSTS: usize = 40;
/// Maximum message length of Linux Homa.
const MAX_MESSAGE: u32 = 1_000_000;
/// Maximum bytes of measured messages in a run: a few million packets.
const MAX_BYTES: f64 = 2e9;
/// Maximum length of a short message in the kernel paper.
const SHORT_BYTES: u32 = 1_499;
/// Minimum warm-up: a few round trips after the hosts' initial exchanges.
const WARM_UP_NS: u64 = 500_000;
/// Maximum time to wait for measured RPCs: more than any RPC takes under a sustained load, but less than a
/// peer's timeout.
const DRAIN_NS: u64 = 30_000_000;
/// Approximate time of one RPC, used to estimate how long many RPCs take one after the other.
const RPC_NS: f64 = 20_000.0;

/// Maximum number of measured RPCs. Each one is stored as a sample, and percentiles are computed over all
/// samples.
const MAX_RPCS: u64 = 10_000_000;
/// Maximum measured time.
const MAX_DURATION_NS: u64 = 10_000_000_000;

impl SteerConfig {
    /// Returns a run with the hosts of [`CoresConfig::x86`] and a few thousand RPCs.
    #[must_use]
    pub fn new(workload: Workload, load: SteerLoad, cores: CoresConfig) -> SteerConfig {
        let workload = workload.truncated(MAX_MESSAGE).unwrap_or(workload);
        SteerConfig { workload, load, hosts: HOSTS, cores, seed: 1, rpcs: 20_000, duration_ns: None }
    }

    /// Returns the cluster and Homa's settings: the network of [`ClusterConfig::atc21`] with cores instead of
    /// delays in hosts.
    fn plan(&self) -> (ClusterConfig, HomaConfig) {
        let base = ClusterConfig {
            hosts: self.hosts,
            ..ClusterConfig::atc21(self.workload.clone(), 0.5, self.seed)
        };
        // RTTbytes depend on the delays.
        let homa = HomaConfig::for_steering(&base);
        let link_per_sec = crate::cluster::rpcs_per_sec(&base, 1.0);
        let host_per_sec = link_per_sec.min(self.cores_per_sec(&base));
        let (traffic, per_sec) = match self.load {
            SteerLoad::Share(share) => {
                (Traffic::Uniform { load: share * host_per_sec / link_per_sec }, share * host_per_sec)
            }
            SteerLoad::Outstanding(outstanding) => {
                let alone_per_sec = f64::from(outstanding.max(1)) * 1e9 / RPC_NS;
                (Traffic::Closed { outstanding }, alone_per_sec.min(host_per_sec))
            }
        };
        let rpcs = (self.rpcs as f64).min(MAX_BYTES / (2.0 * self.workload.mean_bytes()));
        let duration_ns =
            self.duration_ns.unwrap_or((rpcs * 1e9 / (per_sec * self.hosts as f64)) as u64).max(1);
        let cluster = ClusterConfig {
            traffic,
            exchange: Exchange::Echo,
            send_delay_ns: 0,
            receive_delay_ns: 0,
            cores: Some(Box::new(self.cores.clone())),
            warm_up_ns: (duration_ns / 4).max(WARM_UP_NS),
            duration_ns,
            drain_ns: DRAIN_NS,
            keep_samples: true,
            ..base
        };
        (cluster, homa)
    }

    /// Returns the RPCs per second that the cores of a host can process.
    fn cores_per_sec(&self, cluster: &ClusterConfig) -> f64 {
        let rpc_ns = crate::cluster::mean_of(&self.workload, |bytes| {
            self.cores.rpc_ns(bytes, cluster.framing.payload) as f64
        });
        self.cores.cores as f64 * 1e9 / rpc_ns.max(1.0)
    }

    /// Checks that the run is possible.
    ///
    /// # Errors
    /// Names the setting that is out of its range.
    pub fn check(&self) -> Result<(), ClusterError> {
        let wrong = |field, rule| Err(ClusterError { field, rule });
        match self.load {
            SteerLoad::Share(share) if !(share > 0.0 && share <= 1.0) => {
                return wrong("load", "must be above 0 and at most 1");
            }
            _ if self.hosts < 2 => return wrong("hosts", "must be at least 2"),
            _ if !(1..=MAX_RPCS).contains(&self.rpcs) => return wrong("rpcs", "must be 1 to 10000000"),
            _ if self.duration_ns.is_some_and(|ns| !(1..=MAX_DURATION_NS).contains(&ns)) => {
                return wrong("duration", "must be above 0 and at most 10 s");
            }
            _ if self.cores.check().is_err() => {
                return wrong("cores", "have settings that are out of their ranges");
            }
            SteerLoad::Share(_) | SteerLoad::Outstanding(_) => {}
        }
        self.plan().0.validate()
    }

    /// Runs to the end, or until `progress` stops the run.
    ///
    /// # Panics
    /// If [`SteerConfig::check`] fails.
    pub fn run(&self, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> SteerReport {
        self.check().expect("the settings are checked before");
        let (cluster, homa) = self.plan();
        let report = TransportConfig::Homa(homa).run(cluster, progress);
        self.report(report)
    }

    fn report(&self, report: ClusterReport) -> SteerReport {
        let cdf = self.workload.cdf(SHORT_BYTES);
        let short_bytes = if cdf >= 0.1 { SHORT_BYTES } else { self.workload.quantile(0.1) };
        let sorted = |keep: &dyn Fn(u32) -> bool| {
            let kept = report.samples.iter().filter(|(bytes, _)| keep(*bytes));
            let mut times: Vec<u64> = kept.map(|&(_, ns)| ns).collect();
            times.sort_unstable();
            times
        };
        let (short, all) = (sorted(&|bytes| bytes <= short_bytes), sorted(&|_| true));
        let seconds = report.duration_ns as f64 / 1e9;
        let host = |count: f64| count / (seconds * self.hosts as f64);
        SteerReport {
            policy: self.cores.policy.to_string(),
            workload: self.workload.name().to_owned(),
            cores: self.cores.cores,
            load: match self.load {
                SteerLoad::Share(share) => share,
                SteerLoad::Outstanding(_) => 0.0,
            },
            seed: self.seed,
            rpcs: report.started,
            unfinished: report.unfinished,
            short_bytes,
            short_rpcs: short.len() as u64,
            short_p50_us: percentile(&short, 0.5),
            short_p99_us: percentile(&short, 0.99),
            short_p999_us: percentile(&short, 0.999),
            short_mean_us: short.iter().sum::<u64>() as f64 / 1e3 / short.len().max(1) as f64,
            p99_us: percentile(&all, 0.99),
            krpcs_per_sec: host(report.ended as f64) / 1e3,
            gbps: host(report.ended_bytes as f64 * 8.0) / 1e9,
            counts: report.cores.unwrap_or_default(),
        }
    }
}

/// Returns the given percentile in microseconds; 0 if there are no samples.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).map_or(0.0, |&ns| ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use homa_steer::PolicyName;

    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let times: Vec<u64> = (1..=1_000).map(|time| time * 1_000).collect();
        assert_eq!(
            [0.5, 0.99, 0.999, 1.0].map(|share| percentile(&times, share)),
            [500.0, 990.0, 999.0, 1_000.0]
        );
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn what_cannot_run_is_named() {
        let config = |load, cores| {
            SteerConfig::new(Workload::fixed(100).unwrap(), load, CoresConfig::x86(cores, PolicyName::Gen2))
        };
        assert_eq!(config(SteerLoad::Share(0.5), 4).check(), Ok(()));
        let field = |config: SteerConfig| config.check().unwrap_err().field;
        assert_eq!(field(config(SteerLoad::Share(1.5), 4)), "load");
        assert_eq!(field(config(SteerLoad::Outstanding(0), 4)), "outstanding");
        assert_eq!(field(config(SteerLoad::Share(0.5), 0)), "cores");
        assert_eq!(field(SteerConfig { hosts: 1, ..config(SteerLoad::Share(0.5), 1) }), "hosts");
    }

    /// Equal seeds give equal runs, and different seeds give different runs.
    #[test]
    fn a_run_is_its_seed() {
        let run = |seed| {
            let cores = CoresConfig::x86(4, PolicyName::HomaHash);
            let base = SteerConfig::new(Workload::named("w3").unwrap(), SteerLoad::Share(0.5), cores);
            SteerConfig { seed, rpcs: 500, hosts: 3, ..base }.run(&mut |_| ControlFlow::Continue(()))
        };
        let first = run(1);
        assert!(first.rpcs > 300 && first.unfinished == 0, "{first:?}");
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
    }
}
