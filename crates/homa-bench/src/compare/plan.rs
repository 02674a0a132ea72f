//! The plan of a comparison, derived from its options.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use homa_workload::Workload;

use super::options::{Load, Options};
use crate::compare::results::Config;
use crate::engine::load::Pace;
use crate::peers;
use crate::protocol::Protocol;
use crate::workloads;

/// Default number of client ports for loads with more than one open RPC. A careful user of TCP opens several
/// connections, so that short messages do not always wait behind long ones.
const DEFAULT_PORTS: u16 = 4;

/// Maximum slice: short enough that a disturbance of a few seconds affects both protocols.
const MAX_SLICE: Duration = Duration::from_millis(2_500);

/// Maximum warm-up of a slice: a few hundred round trips even on a slow network.
const MAX_WARMUP: Duration = Duration::from_millis(250);

/// Permitted durations of the load.
const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86_400);

/// A comparison, ready to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Message sizes.
    pub workload: Workload,
    /// The protocols in the order of the tables, without duplicates.
    pub protocols: Vec<Protocol>,
    /// Number of processors of this machine.
    pub cpus: usize,
    /// Number of client ports per client host.
    pub client_ports: u16,
    /// Number of client ports of each thread.
    pub ports: Vec<usize>,
    /// The number of slices for each protocol.
    pub slices: u32,
    /// Length of a slice's measurement window.
    pub slice: Duration,
    /// The warm-up of each slice.
    pub warmup: Duration,
    /// Seed of arrivals, sizes, choices and content.
    pub seed: u64,
    /// The options.
    pub options: Options,
    began: SystemTime,
}

impl Plan {
    /// Checks the options and derives the remaining fields.
    ///
    /// # Errors
    /// The duration is out of range, this program was built without one of the protocols, or there are
    /// several client hosts although each address is one host.
    pub fn new(options: Options) -> Result<Plan> {
        let mut protocols = options.protocols.clone();
        protocols.sort_by_key(|protocol| Protocol::ALL.iter().position(|other| other == protocol));
        protocols.dedup();
        protocols.iter().try_for_each(|&protocol| peers::check(protocol))?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let duration = options.duration;
        ensure!(DURATIONS.contains(&duration), "--duration must be 0.01 to 86400 seconds");
        let slices = duration.as_nanos().div_ceil(MAX_SLICE.as_nanos()) as u32;
        let slice = duration / slices;
        let servers_here = if options.servers.is_empty() { usize::from(options.server_threads) } else { 0 };
        ensure!(
            !options.driver.shares_address() || options.servers.is_empty() || options.clients == 1,
            "--clients {}: with --driver {} an address is one host; use --ports for more client ports",
            options.clients,
            options.driver.name()
        );
        let load = options.load;
        let client_ports = options.ports.unwrap_or(match load {
            Load::Outstanding(_) => 1,
            _ => DEFAULT_PORTS,
        });
        let ports = usize::from(options.clients) * usize::from(client_ports);
        // In a closed loop, a thread sleeps while it waits, and can sleep on one port only. In an open loop,
        // threads poll, and would preempt each other if there were more threads than processors.
        let threads = match load {
            Load::Outstanding(_) => ports,
            _ => cpus.saturating_sub(servers_here).max(1),
        };
        Ok(Plan {
            workload: options.workload.clone(),
            protocols,
            cpus,
            client_ports,
            ports: share(ports, threads),
            slices,
            slice,
            warmup: MAX_WARMUP.min(slice / 10),
            seed: options.seed,
            options,
            began: SystemTime::now(),
        })
    }

    /// Returns the pace of an open loop at this load.
    pub fn open(&self, gbps: f64) -> Pace {
        Pace::Open { gbps, max_outstanding: self.options.max_outstanding }
    }

    /// Returns how long an idle thread polls.
    pub fn poll(&self) -> Duration {
        self.options.poll
    }

    /// Returns the workload in words.
    pub fn workload_text(&self) -> String {
        workloads::text(&self.workload)
    }

    /// Returns the settings in the form used in the results.
    pub fn config(&self, pace: Pace) -> Config {
        let options = &self.options;
        let load = if let Load::Fraction(load) = options.load { Some(load) } else { None };
        let (gbps, outstanding) = match pace {
            Pace::Open { gbps, .. } => (Some(gbps), None),
            Pace::Closed { outstanding } => (None, Some(outstanding)),
        };
        Config {
            version: env!("CARGO_PKG_VERSION"),
            unix_time_s: self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            cpus: self.cpus,
            workload: self.workload.name().to_owned(),
            truncated_at: self.workload.truncated_at(),
            mean_bytes: self.workload.mean_bytes(),
            load,
            gbps,
            outstanding,
            max_outstanding: options.max_outstanding,
            one_way: options.one_way,
            driver: options.driver.name(),
            servers: options.servers.iter().map(|server| server.name.clone()).collect(),
            clients: options.clients,
            ports: self.client_ports,
            client_threads: self.ports.len(),
            port_receivers: options.port_receivers,
            server_ports: options.server_ports,
            server_threads: options.server_threads,
            poll_us: options.poll.as_micros() as u64,
            host: options.host,
            placement: options.placement.name(),
            duration_s: (self.slice * self.slices).as_secs_f64(),
            slices: self.slices,
        }
    }
}

/// Divides ports among at most `threads` threads as evenly as possible.
fn share(ports: usize, threads: usize) -> Vec<usize> {
    let threads = threads.min(ports);
    (0..threads).map(|index| (ports + threads - 1 - index) / threads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::options::RemoteServer;
    use crate::driver::Driver;
    use crate::workloads::Truncation;

    fn options() -> Options {
        Options::new(workloads::named("w4", Truncation::default()).expect("a workload"))
    }

    #[test]
    fn without_options_half_of_the_maximum_in_slices() {
        let plan = Plan::new(options()).expect("valid");
        assert!(plan.workload_text().starts_with("W4 truncated to 1000000 bytes"));
        assert_eq!((plan.slices, plan.slice, plan.client_ports), (4, MAX_SLICE, DEFAULT_PORTS));
        assert_eq!(plan.options.load, Load::Fraction(0.5));
    }

    #[test]
    fn a_protocol_named_twice_runs_once_and_homa_comes_first() {
        let protocols = vec![Protocol::Tcp, Protocol::Homa, Protocol::Tcp];
        let plan = Plan::new(Options { protocols, ..options() }).expect("valid");
        assert_eq!(plan.protocols, [Protocol::Homa, Protocol::Tcp]);
    }

    #[test]
    fn a_time_out_of_range_and_hosts_that_share_an_address_are_errors() {
        for duration in [Duration::from_millis(1), Duration::MAX] {
            assert!(Plan::new(Options { duration, ..options() }).is_err());
        }
        let server = RemoteServer { name: "far".to_owned(), addr: ([10, 0, 0, 1], 0).into() };
        let raw = |servers| Plan::new(Options { driver: Driver::Raw, clients: 2, servers, ..options() });
        let error = raw(vec![server]).expect_err("one address");
        assert!(format!("{error:#}").contains("--ports"), "{error:#}");
        assert!(raw(Vec::new()).is_ok());
    }

    #[test]
    fn ports_are_shared_evenly() {
        assert_eq!(share(1, 8), [1]);
        assert_eq!(share(8, 3), [3, 3, 2]);
        assert_eq!(share(4, 4), [1, 1, 1, 1]);
    }
}
