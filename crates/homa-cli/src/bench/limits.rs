//! `homa bench limits`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use homa_bench::driver::Driver;
use homa_bench::limits::{self, Metric, Options, PathChoice, Row};
use homa_bench::protocol::Protocol;
use homa_report::outputs::Outputs;

use crate::choice::choice;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa bench limits                             everything; some minutes. As root also drivers that need root
  homa bench limits --low-latency --json l.json additional column without deep sleep of the processors
  homa bench limits --quick --protocol homa,tcp a smoke test
  homa bench limits --driver udp --targets docs/perf/targets.toml
                                                Homa, TCP and plain UDP, against the targets of this project
  homa bench limits --driver udp --rows w1,w2,rpcs_per_s_32,rtt_polling_p99_us
                                                a part of the table

The first table compares Homa over UDP with TCP and with bare/udp-offload. W1 to W5 are the maximum rates of
workloads, as measured by `homa bench --loopback --workload W --find-max`: 6 slices for each level of open
RPCs. A file of targets has an entry for each row, by its name in JSON (of `comparisons` or `figures`). The
bounds are ratios to TCP, or with as = \"absolute\" values in the unit of the JSON; for times they are maxima:
  [[target]]
  name = \"rpcs_per_s_32\"
  floor = 0.85
  goal = 1.1

The other tables: homa/DRIVER; bare/DRIVER, request and response without a protocol, one packet each if they
fit; bare/udp-offload and bare/packet-offload, the same with runs of equal packets passed to the kernel as
one; tcp; grpc (tonic); quic (quinn). Each has one client thread and one server thread, on different
processors. Polling: both sides poll for 10 ms before they sleep. Sleeping: they sleep at once. Messages of 1
MB go one way, 8 at a time, over one connection, with responses of 100 bytes. CPU is the time of both
processes: per RPC and packet of 100 bytes with 32 open RPCs and both sides sleeping when idle, and per packet
of 1 MB messages. Packets are those that Homa or the bench sends; a packet that the kernel divides counts as
its parts.")]
pub struct LimitsArgs {
    /// Protocols to measure: homa, tcp, grpc, quic, udp (plain packets) [default: all that are compiled in]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<Protocol>())]
    pub protocol: Vec<Protocol>,
    /// Drivers for Homa and for plain packets [default: all]; those that cannot be opened are skipped, with
    /// the reason
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<Driver>())]
    pub driver: Vec<Driver>,
    /// The link between clients and servers
    #[arg(long, value_name = "WHAT", default_value = "auto", value_parser = choice::<PathChoice>())]
    pub path: PathChoice,
    /// MTU of the veth pair, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub mtu: u32,
    /// Send packets over the veth pair one by one, as on a wire, instead of merged into packets of up to 64
    /// KB that are never split; needs the veth pair
    #[arg(long)]
    pub wire: bool,
    /// Measure long messages only
    #[arg(long)]
    pub long_only: bool,
    /// Measure only these rows, by their names in JSON; w1 to w5 are the maximum rates of workloads [default:
    /// all]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "long_only",
        value_parser = metric
    )]
    pub rows: Vec<Metric>,
    /// Compare the rows with the targets in this TOML file: a minimum and a goal for each
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Repetitions, each with all rows in turn [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Measured time of each cell in a repetition, milliseconds, after a quarter of it as warm-up [default:
    /// 200, with --quick 20]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub slice_ms: Option<u64>,
    /// Also measure sleeping round trips while /dev/cpu_dma_latency is held at 0; as root
    #[arg(long)]
    pub low_latency: bool,
    /// Only check that the benchmark works
    #[arg(long)]
    pub quick: bool,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Runs the benchmark. Returns true if every RPC was answered exactly once and correctly, except that packets
/// without a protocol may be lost.
pub fn run(args: &LimitsArgs) -> Result<bool> {
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let limits = limits::measure(&Options::from(args))?;
    outputs.write(&limits::text(&limits), &limits, || limits::page(&limits))?;
    Ok(limits.rows.iter().all(Row::clean))
}

impl From<&LimitsArgs> for Options {
    fn from(args: &LimitsArgs) -> Options {
        Options {
            protocols: args.protocol.clone(),
            drivers: args.driver.clone(),
            path: args.path,
            mtu: args.mtu,
            wire: args.wire,
            long_only: args.long_only,
            rows: args.rows.clone(),
            targets: args.targets.clone(),
            repetitions: args.repetitions,
            slice: args.slice_ms.map(Duration::from_millis),
            low_latency: args.low_latency,
            quick: args.quick,
        }
    }
}

fn metric(text: &str) -> Result<Metric, String> {
    Metric::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
        format!("there is no such row: use {}, or w1 to w5", names.join(", "))
    })
}
