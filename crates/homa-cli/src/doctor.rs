//! `homa doctor`: checks this host's settings for causes of tail latency, and probes whether the network
//! preserves priorities.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use homa_doctor::checks;
use homa_doctor::probe::{self, ListenOptions};
use homa_report::outputs::Outputs;
use homa_report::units::{duration_ns, rate_bps};
use serde_json::json;

use crate::addr::resolve;

#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  homa doctor                                       the devices with a default route
  homa doctor --dev eth1 --link-mbps 25000          also checks the rate of the link
  homa doctor --all --json -                        also checks without a finding; only JSON on standard output

The command only reads; each finding names the command that changes the setting. Severities: COST, a setting
that costs tail latency or loses packets; NOTE, one that may, depending on the use; UNKNOWN, one that the
system does not reveal; FINE. Settings in /proc and /sys are lost at a restart: /etc/sysctl.d and boot options
keep them. `homa jitter` measures actual interruptions of the processors. `homa doctor listen` on one host and
`homa doctor probe` on others measure whether the network keeps priorities."
)]
pub struct DoctorArgs {
    /// Another action than checking this host's settings
    #[command(subcommand)]
    pub command: Option<DoctorCommand>,
    /// A network device; can be given several times [default: those with a default route, else those with any
    /// route]
    #[arg(long = "dev", value_name = "NAME")]
    pub devices: Vec<String>,
    /// The rate that the links of these devices should have, Mbit/s
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// Also print checks without a finding
    #[arg(long)]
    pub all: bool,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
pub enum DoctorCommand {
    /// Measure, with `homa doctor probe` on other hosts, whether the network keeps priorities
    Listen(ListenArgs),
    /// Send probes or load to a `homa doctor listen`
    Probe(ProbeArgs),
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa doctor listen                                one `homa doctor probe` from another host
  homa doctor listen --senders 3 --seconds 5s       three hosts: the first to connect probes, the others send load

With one sender, load and probes come from the same host, and mainly meet in that host's own queue. With three
or more senders, the load of all but the first meets at the last switch, whose queues are then measured. The
load uses the full link, or --load-rate: choose a time at which that disturbs nobody.")]
pub struct ListenArgs {
    /// Address and port to listen on, by TCP for commands to the probing hosts and by UDP for probes
    #[arg(long, value_name = "IP[:PORT]", default_value = "0.0.0.0")]
    pub bind: String,
    /// Probing hosts to wait for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub senders: u16,
    /// How long probes are sent during the load
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration_ns)]
    pub seconds: u64,
    /// Rate of each host's load, in bits per second of UDP payload [default: maximum]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub load_rate: Option<u64>,
    /// Priority of the load, 0 to 6: packets of higher priority should overtake it
    #[arg(long, value_name = "P", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub load_priority: u8,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example:
  homa doctor probe 10.0.0.2                        with a running `homa doctor listen` on that host

Start it on as many hosts as the listener waits for. The listener starts the measurement, and all hosts print
the result.")]
pub struct ProbeArgs {
    /// The listener
    #[arg(value_name = "HOST[:PORT]")]
    pub to: String,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

impl From<&DoctorArgs> for checks::Options {
    fn from(args: &DoctorArgs) -> checks::Options {
        checks::Options { devices: args.devices.clone(), link_mbps: args.link_mbps }
    }
}

impl TryFrom<&ListenArgs> for ListenOptions {
    type Error = anyhow::Error;

    fn try_from(args: &ListenArgs) -> Result<ListenOptions> {
        Ok(ListenOptions {
            bind: resolve(&args.bind, probe::PORT)?,
            senders: args.senders,
            loaded: Duration::from_nanos(args.seconds),
            load_rate_bps: args.load_rate,
            load_priority: args.load_priority,
        })
    }
}

/// Checks this host, or probes the network.
///
/// # Errors
/// The device does not exist, a file cannot be written, or there is no listener for a probing host.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let notify = &mut |line: &str| eprintln!("{line}");
    match &args.command {
        None => {
            let outputs = Outputs::json_only(args.json.as_deref())?;
            let report = checks::check(&args.into())?;
            outputs.answer(&report.text(args.all), &json!(report))
        }
        Some(DoctorCommand::Listen(args)) => {
            let outputs = Outputs::json_only(args.json.as_deref())?;
            let results = probe::listen(&args.try_into()?, notify)?;
            outputs.answer(&results.text(), &results)
        }
        Some(DoctorCommand::Probe(args)) => {
            let outputs = Outputs::json_only(args.json.as_deref())?;
            let results = probe::send(resolve(&args.to, probe::PORT)?, notify)?;
            outputs.answer(&results.text(), &results)
        }
    }
}
