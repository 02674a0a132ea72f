//! The options of `homa doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::probe::{ListenArgs, ProbeArgs};

/// `homa doctor`.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  homa doctor                                       the devices with a default route
  homa doctor --dev eth1 --link-mbps 25000          and whether the link has the rate that it should
  homa doctor --all --json -                        also what is fine; and nothing else on standard output

It reads, and changes nothing: each finding has the command that would. Severities: COST, what costs tail latency or loses packets;
NOTE, what may, depending on the use; UNKNOWN, what the system does not tell; FINE. Settings in /proc and /sys do not outlive a
restart: /etc/sysctl.d and the boot options keep them. What takes the processors away in fact is measured by `homa jitter`; whether the
network keeps priorities, by `homa doctor listen` on one host and `homa doctor probe` on others."
)]
pub struct DoctorArgs {
    /// Something else than to read this host's settings
    #[command(subcommand)]
    pub command: Option<DoctorCommand>,
    /// A network device; can be given several times [default: those with a default route, else those with any]
    #[arg(long = "dev", value_name = "NAME")]
    pub devices: Vec<String>,
    /// The rate that the links of these devices should have, Mbit/s
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// Also print what is fine
    #[arg(long)]
    pub all: bool,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// What `homa doctor` does besides.
#[derive(Subcommand, Clone, Debug)]
pub enum DoctorCommand {
    /// Measure, with `homa doctor probe` on other hosts, whether the network keeps priorities
    Listen(ListenArgs),
    /// Send probes or load to a `homa doctor listen`
    Probe(ProbeArgs),
}
