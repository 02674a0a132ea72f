//! The command line of `homa bench`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use homa_bench::compare::{Load, Options, Placement, RemoteServer};
use homa_bench::driver::Driver;
use homa_bench::protocol::Protocol;
use homa_bench::workloads::{self, Truncation};
use homa_metrics::MetricsAddr;
use homa_rack::experiment::comparison;
use homa_workload::Workload;

use super::bridge::BridgeBenchArgs;
use super::limits::LimitsArgs;
use super::on_rack::ComparisonArgs;
use super::switch::SwitchBenchArgs;
use crate::addr;
use crate::choice::choice;
use crate::idle_args::IdleArgs;
use crate::rack::PROGRAM;
use crate::recording::TraceSettingsArgs;
use crate::values::{message_bytes, positive, truncation};

/// Benchmarks other than the comparison under a workload.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure the limits of each protocol and driver here: round trips, RPCs per second, long messages,
    /// processor time
    Limits(LimitsArgs),
    /// Measure the switch: frames per second, precision of its rates, latency of a probe, behaviour under
    /// overload
    Switch(SwitchBenchArgs),
    /// Compare designs of a bridge: bursts, locks, threads, packet memory, and the kernel's own bridge
    Bridge(BridgeBenchArgs),
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  homa bench                                        Homa and TCP on an emulated rack; one minute
  homa bench --quick --workload w4 --load 0.5       the same for 10 s, with other messages
  homa bench limits                                 limits of each protocol and driver: see its own --help
  homa bench switch                                 limits of the switch between devices: see its own --help
  homa bench --loopback                             without a network: both at half of this machine's maximum
  homa bench --loopback --workload w3 --load 0.8    at 80 % of the slower protocol's measured maximum
  homa bench --size 100 --outstanding 1 --json -    round trips of 100 bytes, one at a time
  homa bench --servers 10.0.0.2,10.0.0.3 --gbps 5   against `homa serve` on two other hosts
  homa bench --driver raw --servers 10.0.0.2        Homa in IP protocol 146, against `homa serve --driver raw`; as root

The rack needs no privileges if users may create namespaces. Options that only loopback or other machines
have, such as --servers, --outstanding or --driver, imply --loopback.

Every latency counts from the time when the message was due, not from when it could be sent: a stall also
counts for the messages queued behind it (no coordinated omission). Gbps are 10^9 bits of request payload per
second, all clients together. For both protocols, an open-loop client polls instead of sleeping if its next
message is due within 2 ms.")]
pub struct BenchArgs {
    /// Another benchmark than the comparison under a workload.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Compare between processes of this machine over its loopback device, which never congests, instead of
    /// on a rack
    #[arg(long)]
    pub loopback: bool,
    /// Whether an option that describes the rack was given: a comparison over loopback would then be wrong.
    #[arg(skip)]
    pub is_rack_wanted: bool,
    #[command(flatten)]
    pub rack: ComparisonArgs,
    /// Write the time traces of Homa to this directory at the end, server.trace and one for each client.
    /// SIGUSR1 and a frozen trace also write them, as with `homa serve`
    #[arg(long, value_name = "DIR", help_heading = "Time traces")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub recording: TraceSettingsArgs,
    /// Driver of Homa's packets. Over raw IP the bench starts its servers at 127.0.0.1 and its clients at
    /// 127.0.0.2 and up, so that they are different hosts
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// Remote `homa serve` hosts, `ADDRESS[:PORT]`; without this option, servers are started on this machine
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// Message sizes: w1 to w8, short-long, one-medium, starve, a number of bytes, or a CSV file of
    /// `size,cumulative_fraction` lines [default: w3, over loopback w4]
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "size")]
    pub workload: Option<String>,
    /// All messages have this many bytes
    #[arg(long, value_name = "BYTES", value_parser = message_bytes)]
    pub size: Option<u32>,
    /// Longer messages are shortened to this many bytes; `none`: do not shorten [default: 1000000; on a rack
    /// at most what a link carries in 1/100 of the measured time]
    #[arg(long, value_name = "BYTES|none", value_parser = truncation)]
    pub max_message: Option<Truncation>,
    /// Protocols to measure, in turn: homa, tcp, grpc (tonic), quic (quinn), and udp (plain packets over
    /// --driver without any protocol, where an RPC with a lost packet is an error). A Homa server is always
    /// needed: slowdown is relative to Homa without load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "homa,tcp", value_parser = choice::<Protocol>())]
    pub protocol: Vec<Protocol>,
    /// Offered load of all clients, Gbps of request payload (open loop, Poisson arrivals)
    #[arg(long, value_name = "GBPS", group = "pace", value_parser = positive)]
    pub gbps: Option<f64>,
    /// Offered load (open loop, Poisson) as a fraction of each link's rate, headers included [default: 0.7,
    /// with less than 20 seconds 0.5]; over loopback as a fraction of the slower protocol's maximum, which is
    /// measured first [default: 0.5]
    #[arg(long, value_name = "FRACTION", group = "pace", value_parser = positive)]
    pub load: Option<f64>,
    /// Closed loop: this many RPCs open per client port; each response starts the next request
    #[arg(long, value_name = "N", group = "pace", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub outstanding: Option<u32>,
    /// Only measure each protocol's maximum goodput for the workload
    #[arg(long, conflicts_with = "pace")]
    pub find_max: bool,
    /// Client hosts, all in this process; each has its own address (hence only one over raw IP with
    /// --servers)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub clients: u16,
    /// Endpoints of each Homa host of the clients and of the servers that the bench starts; ports and RPCs
    /// are divided among them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub endpoints: u16,
    /// Client ports per client host [default: 4, but 1 with --outstanding]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub ports: Option<u16>,
    /// Server ports per server host; TCP has a connection for each pair of client port and server port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub server_ports: u16,
    /// Threads per protocol of the servers that the bench starts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub server_threads: u16,
    /// Threads per client port that only receive responses; 0: the sending thread receives them between two
    /// sends, as always with gRPC, QUIC and plain packets
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub port_receivers: u16,
    /// Responses have 100 bytes instead of the request's length (remote servers need the option too)
    #[arg(long)]
    pub one_way: bool,
    /// Open RPCs per client port at which an open loop waits. Each hit is counted; a run with more than 1 %
    /// hits is marked as closed-loop
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_outstanding: u32,
    #[command(flatten)]
    pub idle: IdleArgs,
    /// Link speed that Homa assumes, Mbit/s; remote servers have their own option [default: as reported by
    /// the network device; loopback reports none]. Without it nothing is paced, and unscheduled bytes do not
    /// depend on the round-trip time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// Processors of the clients and servers on this machine: separate ones, or any that the scheduler
    /// chooses
    #[arg(long, value_name = "HOW", default_value = "apart", value_parser = choice::<Placement>())]
    pub placement: Placement,
    /// Seconds of load per protocol, in alternating slices
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    pub duration: f64,
    /// Seed of arrivals and sizes; all protocols get the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Serve the statistics of the client's Homa hosts over HTTP at /metrics, in the format of Prometheus and
    /// for `homa top`: IP:PORT, port 0 for any free one, or the path of a new socket. The server on this
    /// machine serves its own: at a free port of the same address, or at the same path with `.server`
    /// appended. Both print their address on standard error
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<MetricsAddr>,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `homa bench` that are valid both on a rack and over loopback.
const SHARED_BENCH_OPTIONS: [&str; 9] =
    ["workload", "size", "max_message", "load", "one_way", "seed", "out", "json", "loopback"];

/// Options that are valid only on a rack.
const RACK_BENCH_OPTIONS: [&str; 6] = ["seconds", "quick", "hosts", "rate", "connections", "cc"];

/// Options for a rack that only limit the duration of the comparison, and are therefore also valid over
/// loopback.
const RACK_TIMES: [&str; 2] = ["seconds", "quick"];

impl BenchArgs {
    /// Returns the options of a comparison on a rack.
    pub fn on_rack(&self) -> comparison::Options {
        comparison::Options {
            program: PROGRAM,
            total: Duration::from_secs_f64(self.rack.total_seconds()),
            hosts: self.rack.hosts,
            rate: self.rack.rate,
            connections: self.rack.connections,
            cc: self.rack.cc.clone(),
            workload: self.size.map(|bytes| bytes.to_string()).or_else(|| self.workload.clone()),
            max_message: self.max_message,
            one_way: self.one_way,
            load: self.load,
            seed: self.seed,
        }
    }

    /// Selects a rack or loopback. Options that are only valid over loopback or with other machines imply
    /// loopback. `given` contains the IDs of the options on the command line.
    pub fn choose_place(&mut self, given: &[String]) -> Result<(), String> {
        let is_of_rack = |id: &&String| RACK_BENCH_OPTIONS.contains(&id.as_str());
        let is_shared = |id: &&String| SHARED_BENCH_OPTIONS.contains(&id.as_str());
        let of_rack = given.iter().find(is_of_rack);
        let of_loopback = given.iter().find(|id| !is_of_rack(id) && !is_shared(id));
        self.is_rack_wanted = given.iter().any(|id| is_of_rack(&id) && !RACK_TIMES.contains(&id.as_str()));
        self.loopback |= of_loopback.is_some();
        match of_rack.filter(|_| self.loopback) {
            None => Ok(()),
            Some(rack) => {
                let option = |id: &str| format!("--{}", id.replace('_', "-"));
                let other = of_loopback.map_or("--loopback".to_owned(), |id| option(id));
                Err(format!("{} is for the rack, and {other} for loopback or other machines", option(rack)))
            }
        }
    }

    /// Returns the options of a comparison over loopback or with other machines.
    ///
    /// # Errors
    /// The workload does not exist, or a server's name cannot be resolved.
    pub fn options(&self) -> Result<Options> {
        let load = match (self.gbps, self.load, self.outstanding) {
            _ if self.find_max => Load::FindMax,
            (Some(gbps), ..) => Load::Gbps(gbps),
            (_, Some(fraction), _) => Load::Fraction(fraction),
            (_, _, Some(outstanding)) => Load::Outstanding(outstanding),
            // For messages of a single size, both latency and throughput are of interest. Half of the maximum
            // load shows both.
            _ => Load::default(),
        };
        let resolve = |name: &String| -> Result<RemoteServer> {
            Ok(RemoteServer {
                name: name.clone(),
                addr: addr::resolve(name, homa::ServerAddr::DEFAULT_UDP_PORT)?,
            })
        };
        Ok(Options {
            workload: self.workload()?,
            load,
            protocols: self.protocol.clone(),
            driver: self.driver,
            servers: self.servers.iter().map(resolve).collect::<Result<_>>()?,
            clients: self.clients,
            host: self.idle.host(self.endpoints, self.link_mbps),
            ports: self.ports,
            server_ports: self.server_ports,
            server_threads: self.server_threads,
            port_receivers: self.port_receivers,
            one_way: self.one_way,
            max_outstanding: self.max_outstanding,
            poll: self.idle.poll(),
            placement: self.placement,
            // A duration that exceeds the range of the type is rejected like any other that is too long.
            duration: Duration::try_from_secs_f64(self.duration).unwrap_or(Duration::MAX),
            seed: self.seed,
            metrics: self.metrics.clone(),
            trace: self.recording.to_settings(),
            trace_dir: self.trace.clone(),
        })
    }

    fn workload(&self) -> Result<Workload> {
        match self.size {
            // Messages of a size given by --size are not truncated.
            Some(size) => Ok(Workload::fixed(size)?),
            None => workloads::named(
                self.workload.as_deref().unwrap_or("w4"),
                self.max_message.unwrap_or_default(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use homa_bench::compare::Plan;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(words: &str) -> Result<Plan> {
        match Cli::parse_from(["homa", "bench"].into_iter().chain(words.split_whitespace())).command {
            Command::Bench(args) => Plan::new(args.options()?),
            _ => panic!("not a bench"),
        }
    }

    #[test]
    fn defaults_are_the_librarys() {
        let plan = plan("").expect("valid");
        let library = Options::new(plan.workload.clone());
        assert_eq!(format!("{:?}", plan.options), format!("{library:?}"));
        assert_eq!((plan.workload.name(), plan.workload.truncated_at()), ("w4", Some(1_000_000)));
    }

    #[test]
    fn messages_are_whole_on_request_and_one_size_is_never_cut() {
        assert_eq!(plan("--workload w5 --max-message none").expect("valid").workload.truncated_at(), None);
        assert_eq!(plan("--size 2000000").expect("valid").workload.max_bytes(), 2_000_000);
    }

    #[test]
    fn an_unknown_workload_and_a_time_out_of_range_are_errors() {
        for words in ["--workload w9", "--duration 0.001", "--duration 1e300"] {
            assert!(plan(words).is_err(), "{words}");
        }
        let error = plan("--driver raw --servers 10.0.0.1 --clients 2").expect_err("one address");
        assert!(format!("{error:#}").contains("--ports"), "{error:#}");
    }
}
