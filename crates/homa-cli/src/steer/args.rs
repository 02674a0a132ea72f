//! The command line of `homa steer`.

use clap::{Args, Subcommand, ValueEnum};
use homa_report::units::duration_ns;
use homa_steer::{Cores, PolicyName};
use homa_steer_xdp::IN_KERNEL;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: `homa steer attach eth0 --policy sparse --cpus 0-3` gives each of a few flows a core of its own.")]
pub struct SteerArgs {
    #[command(subcommand)]
    pub command: SteerCommand,
}

/// Actions on a device's packets.
#[derive(Clone, Debug, Subcommand)]
pub enum SteerCommand {
    /// Choose the core for each packet that devices receive, by a policy
    Attach(AttachArgs),
    /// Show packets, cores, flows, drops and decisions of steered devices
    Status(StatusArgs),
    /// Stop steering the packets of devices
    Detach(DetachArgs),
}

/// Classes of packets to steer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FilterChoice {
    /// Homa over raw IP, and over UDP from or to --homa-port
    Homa,
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// All of IP
    All,
}

/// Parses a policy that can run on a device.
fn policy(name: &str) -> Result<PolicyName, String> {
    let names = || IN_KERNEL.map(|policy| policy.entry().name).join(", ");
    match name.parse::<PolicyName>() {
        Ok(policy) if IN_KERNEL.contains(&policy) => Ok(policy),
        Ok(policy) => Err(format!(
            "{policy} needs the loads of the cores, which are not known at a device: use {}",
            names()
        )),
        Err(_) => Err(format!("there is no policy {name}: use {}", names())),
    }
}

fn cores(text: &str) -> Result<Cores, String> {
    text.parse().map_err(|error: homa_steer::SteerError| error.to_string())
}

/// Returns the policies and their descriptions, for the help text.
fn policies() -> String {
    let line = |policy: PolicyName| format!("  {:<10}  {}", policy.entry().name, policy.entry().about);
    format!(
        "Policies:\n{}\n\nExamples:\n  homa steer attach eth0 --policy sparse --cpus 0-3\n  homa steer attach left right --policy sparse --cpus 0-1 \
         --filter tcp --until-exit\n\nNeeds only root and Linux 5.15 with XDP and CPUMAP. The kernel's own steering (rps_cpus) should be off for \
         the devices, or both steer. Devices named together share one state. If standard output is closed or full, nothing \
         stays attached.",
        IN_KERNEL.map(line).join("\n")
    )
}

#[derive(Args, Clone, Debug)]
#[command(after_help = policies())]
pub struct AttachArgs {
    /// The network devices
    #[arg(value_name = "DEV", required = true)]
    pub devices: Vec<String>,
    /// The policy that chooses the core
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub policy: PolicyName,
    /// The cores to choose from, as in 0-3,6
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub cpus: Cores,
    /// With sparse: maximum flows of a core before the hash decides
    #[arg(long, value_name = "N", default_value_t = homa_steer::Settings::default().levels,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(homa_steer::MAX_LEVELS)))]
    pub levels: u32,
    /// Packets to steer; others are not affected
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    pub filter: Vec<FilterChoice>,
    /// UDP port of Homa servers, which identifies Homa over UDP
    #[arg(long, value_name = "PORT", default_value_t = homa::ServerAddr::DEFAULT_UDP_PORT)]
    pub homa_port: u16,
    /// Run in the device's driver, which passes packets on earlier; not for a veth whose peer leaves
    /// checksums to the device
    #[arg(long)]
    pub native: bool,
    /// Packets that may wait for each core
    #[arg(long, value_name = "N", default_value_t = homa_steer_xdp::SteerConfig::default().queue_packets,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub queue: u32,
    /// Wait for SIGINT (ctrl-C) or SIGTERM; steering stops when this process ends, for any reason
    #[arg(long)]
    pub until_exit: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: homa steer status eth0 --cost 2s --json

Flows are approximately those of the last second or two. Drops are packets that found their core's queue full;
during continuous traffic, the few packets in flight are counted as drops, too.")]
pub struct StatusArgs {
    /// The devices [default: all steered devices]
    #[arg(value_name = "DEV")]
    pub devices: Vec<String>,
    /// Make the kernel measure the cost of a decision for this long (BPF run statistics)
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub cost: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa steer detach eth0")]
pub struct DetachArgs {
    /// The network devices
    #[arg(value_name = "DEV", required = true)]
    pub devices: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}
