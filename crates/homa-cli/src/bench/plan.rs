//! From the options to what will be done.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use homa_workload::Workload;

use super::load::Pace;
use super::results::Config;
use super::workloads;
use crate::args::BenchArgs;
use crate::bench::driver::Driver;
use crate::bench::protocol::Protocol;
use crate::peers;

/// The load without an option: where queues form, and both protocols still keep up.
const DEFAULT_LOAD: f64 = 0.5;

/// Client ports without an option, where there is more than one RPC at a time. A careful user of TCP opens some
/// connections, so that not every short message stands behind every long one.
const DEFAULT_PORTS: u16 = 4;

/// The longest slice: short enough that a disturbance of some seconds hits both protocols.
const MAX_SLICE: Duration = Duration::from_millis(2_500);

/// The longest unmeasured beginning of a slice: some hundred round trips even where the network is slow.
const MAX_WARMUP: Duration = Duration::from_millis(250);

/// How the load is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Open loop at this absolute load.
    Gbps(f64),
    /// Open loop at this fraction of the slower protocol's maximum.
    Fraction(f64),
    /// Closed loop.
    Outstanding(u32),
    /// No load of its own: only the maxima.
    FindMax,
}

/// A bench to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Message sizes, truncated.
    pub workload: Workload,
    /// How the load is chosen.
    pub load: Load,
    /// What is measured, in turn, each once.
    pub protocols: Vec<Protocol>,
    /// Processors of this machine.
    pub cpus: usize,
    /// Client ports per client host.
    pub client_ports: u16,
    /// Client ports of each thread.
    pub ports: Vec<usize>,
    /// The number of slices for each protocol.
    pub slices: u32,
    /// The measured time of a slice.
    pub slice: Duration,
    /// The time before in each slice.
    pub warmup: Duration,
    /// Seeds everything.
    pub seed: u64,
    /// The options.
    pub args: BenchArgs,
    began: SystemTime,
}

impl Plan {
    /// Checks the options and derives the rest.
    pub fn new(args: &BenchArgs) -> Result<Plan> {
        let workload = workload(args)?;
        let mut protocols = args.protocol.clone();
        protocols.sort_by_key(|protocol| Protocol::ALL.iter().position(|other| other == protocol));
        protocols.dedup();
        protocols.iter().try_for_each(|&protocol| peers::check(protocol))?;
        let load = match (args.gbps, args.load, args.outstanding) {
            _ if args.find_max => Load::FindMax,
            (Some(gbps), ..) => Load::Gbps(gbps),
            (_, Some(fraction), _) => Load::Fraction(fraction),
            (_, _, Some(outstanding)) => Load::Outstanding(outstanding),
            // Sizes of one kind are for latency as much as for load, and at half of the maximum both show.
            _ => Load::Fraction(DEFAULT_LOAD),
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let duration = Duration::try_from_secs_f64(args.duration)
            .ok()
            .filter(|duration| (Duration::from_millis(10)..=Duration::from_secs(86_400)).contains(duration))
            .context("--duration must be 0.01 to 86400 seconds")?;
        let slices = duration.as_nanos().div_ceil(MAX_SLICE.as_nanos()) as u32;
        let slice = duration / slices;
        let servers_here = if args.servers.is_empty() { usize::from(args.server_threads) } else { 0 };
        if args.driver == Driver::Raw && !args.servers.is_empty() && args.clients > 1 {
            bail!(
                "--clients {}: over raw IP an address is one host; use --ports for more client ports",
                args.clients
            );
        }
        let client_ports = args.ports.unwrap_or(match load {
            Load::Outstanding(_) => 1,
            _ => DEFAULT_PORTS,
        });
        let ports = usize::from(args.clients) * usize::from(client_ports);
        // A closed loop sleeps while it waits, and a thread can sleep on one port; an open loop polls, and more threads
        // that poll than processors would only take them from each other.
        let threads = match load {
            Load::Outstanding(_) => ports,
            _ => cpus.saturating_sub(servers_here).max(1),
        };
        Ok(Plan {
            workload,
            load,
            protocols,
            cpus,
            client_ports,
            ports: share(ports, threads),
            slices,
            slice,
            warmup: MAX_WARMUP.min(slice / 10),
            seed: args.seed,
            args: args.clone(),
            began: SystemTime::now(),
        })
    }

    /// The open loop at this load.
    pub fn open(&self, gbps: f64) -> Pace {
        Pace::Open { gbps, max_outstanding: self.args.max_outstanding }
    }

    /// How long an idle thread polls.
    pub fn poll(&self) -> Duration {
        Duration::from_micros(self.args.poll_us)
    }

    /// The workload in words.
    pub fn workload_text(&self) -> String {
        workloads::text(&self.workload)
    }

    /// The settings as they go into the results.
    pub fn config(&self, pace: Pace) -> Config {
        let args = &self.args;
        let load = if let Load::Fraction(load) = self.load { Some(load) } else { None };
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
            max_outstanding: args.max_outstanding,
            one_way: args.one_way,
            driver: args.driver.name(),
            servers: args.servers.clone(),
            clients: args.clients,
            endpoints: args.endpoints,
            ports: self.client_ports,
            client_threads: self.ports.len(),
            port_receivers: args.port_receivers,
            server_ports: args.server_ports,
            server_threads: args.server_threads,
            poll_us: args.poll_us,
            wake_order: args.wake_order.to_string(),
            batch_cap: args.batch_cap.packets(),
            link_mbps: args.link_mbps,
            placement: args.placement.name(),
            duration_s: (self.slice * self.slices).as_secs_f64(),
            slices: self.slices,
        }
    }
}

fn workload(args: &BenchArgs) -> Result<Workload> {
    match args.size {
        // A size that was asked for by itself is not cut.
        Some(size) => Ok(Workload::fixed(size)?),
        None => {
            workloads::named(args.workload.as_deref().unwrap_or("w4"), args.max_message.unwrap_or_default())
        }
    }
}

/// Shares ports among at most so many threads, as evenly as it goes.
fn share(ports: usize, threads: usize) -> Vec<usize> {
    let threads = threads.min(ports);
    (0..threads).map(|index| (ports + threads - 1 - index) / threads).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(words: &str) -> Result<Plan> {
        match Cli::parse_from(["homa", "bench"].into_iter().chain(words.split_whitespace())).command {
            Command::Bench(args) => Plan::new(&args),
            _ => panic!("not a bench"),
        }
    }

    #[test]
    fn without_options_w4_truncated_in_slices() {
        let plan = plan("").expect("valid");
        assert_eq!(plan.workload.name(), "w4");
        assert_eq!(plan.workload.truncated_at(), Some(1_000_000));
        assert!(plan.workload_text().starts_with("W4 truncated to 1000000 bytes"));
        assert_eq!((plan.slices, plan.slice), (4, MAX_SLICE));
        assert_eq!(plan.load, Load::Fraction(DEFAULT_LOAD));
    }

    #[test]
    fn untruncated_on_request() {
        let plan = plan("--workload w5 --max-message none").expect("valid");
        assert!(plan.workload.max_bytes() > 1_000_000);
        assert_eq!(plan.workload.truncated_at(), None);
    }

    #[test]
    fn a_protocol_named_twice_runs_once_and_homa_comes_first() {
        assert_eq!(
            plan("--protocol tcp,homa,tcp").expect("valid").protocols,
            [Protocol::Homa, Protocol::Tcp]
        );
    }

    #[test]
    fn an_unknown_workload_and_a_bad_duration_are_errors() {
        let error = plan("--workload w9").expect_err("unknown");
        assert!(format!("{error:#}").contains("w9"), "{error:#}");
        assert!(plan("--duration 0.001").is_err());
        assert!(plan("--duration 1e300").is_err());
        let error = plan("--driver raw --servers 10.0.0.1 --clients 2").expect_err("one address");
        assert!(format!("{error:#}").contains("--ports"), "{error:#}");
        assert!(plan("--driver raw --clients 2").is_ok());
    }

    #[test]
    fn ports_are_shared_evenly() {
        assert_eq!(share(1, 8), [1]);
        assert_eq!(share(8, 3), [3, 3, 2]);
        assert_eq!(share(4, 4), [1, 1, 1, 1]);
    }
}
