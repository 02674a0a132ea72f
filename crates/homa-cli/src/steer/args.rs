//! The command line of `homa steer`.

use clap::{Args, Subcommand, ValueEnum};
use homa_report::units::duration_ns;
use homa_steer::{Cores, PolicyName};
use homa_steer_xdp::IN_KERNEL;

/// `homa steer`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: `homa steer attach eth0 --policy sparse --cpus 0-3` gives each of a few flows a core of its own.")]
pub struct SteerArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SteerCommand,
}

/// What there is to do with a device's packets.
#[derive(Clone, Debug, Subcommand)]
pub enum SteerCommand {
    /// Have a policy choose the core for each packet that devices receive
    Attach(AttachArgs),
    /// Show packets, cores, flows, drops and decisions of steered devices
    Status(StatusArgs),
    /// Leave the packets of devices to the kernel again
    Detach(DetachArgs),
}

/// Which packets are steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FilterChoice {
    /// Homa in IP, and in UDP from or to --homa-port
    Homa,
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// All of IP
    All,
}

/// A policy that can run at a device.
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

/// What each policy does, for the help.
fn policies() -> String {
    let line = |policy: PolicyName| format!("  {:<10}  {}", policy.entry().name, policy.entry().about);
    format!(
        "Policies:\n{}\n\nExamples:\n  homa steer attach eth0 --policy sparse --cpus 0-3\n  homa steer attach left right --policy sparse --cpus 0-1 \
         --filter tcp --until-exit\n\nNeeds root, Linux 5.15 with XDP and CPUMAP, and nothing else. The kernel's own steering (rps_cpus) should be off for \
         the devices, or both steer. Devices named together share one state. Where standard output is closed or full nothing stays attached.",
        IN_KERNEL.map(line).join("\n")
    )
}

/// `homa steer attach`.
#[derive(Args, Clone, Debug)]
#[command(after_help = policies())]
pub struct AttachArgs {
    /// The network devices
    #[arg(value_name = "DEV", required = true)]
    pub devices: Vec<String>,
    /// How a core is chosen
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub policy: PolicyName,
    /// The cores to choose among, as in 0-3,6
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub cpus: Cores,
    /// With sparse: flows that a core may have before the hash decides
    #[arg(long, value_name = "N", default_value_t = homa_steer::Settings::default().levels,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(homa_steer::MAX_LEVELS)))]
    pub levels: u32,
    /// Which packets are steered; the others go on as before
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    pub filter: Vec<FilterChoice>,
    /// UDP port of Homa servers, by which Homa over UDP is known
    #[arg(long, value_name = "PORT", default_value_t = homa::ServerAddr::DEFAULT_UDP_PORT)]
    pub homa_port: u16,
    /// Run in the device's driver, which hands packets over sooner; not on a veth whose other end leaves sums to the device
    #[arg(long)]
    pub native: bool,
    /// Packets that may wait for a core
    #[arg(long, value_name = "N", default_value_t = homa_steer_xdp::SteerConfig::default().queue_packets,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub queue: u32,
    /// Stay until SIGINT (ctrl-C) or SIGTERM, and steer no longer than this process lives, however it ends
    #[arg(long)]
    pub until_exit: bool,
    /// Say it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `homa steer status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: homa steer status eth0 --cost 2s --json

Flows are about those of the last second or two. Drops are packets that found too many waiting for their core; while packets come without
a pause, the few that are under way count with them.")]
pub struct StatusArgs {
    /// The devices [default: all that are steered]
    #[arg(value_name = "DEV")]
    pub devices: Vec<String>,
    /// Have the kernel measure for so long what a decision takes (BPF run statistics)
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub cost: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `homa steer detach`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa steer detach eth0")]
pub struct DetachArgs {
    /// The network devices
    #[arg(value_name = "DEV", required = true)]
    pub devices: Vec<String>,
    /// Say it as JSON
    #[arg(long)]
    pub json: bool,
}
