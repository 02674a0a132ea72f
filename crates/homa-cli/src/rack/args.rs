//! The options of `homa rack`.

use clap::{Args, Subcommand, ValueEnum};
use homa_report::units;

use super::spec::{self, MAX_HOSTS, MTUS, SwitchKind};

/// `homa rack`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack up --hosts 8 --rate 1gbit               hosts h1 to h8, each with a link of 1 Gbit/s to one switch
  homa rack exec h1 -- ping -c 1 10.146.0.2         any command in a host; 10.146.0.N is hN, and so is fd00:146::N
  homa rack status; homa rack link h2 down          what it is and does; pull a cable
  homa rack down                                    nothing is left, after a crash neither
  homa rack run vs-tcp --workload w4                Homa against TCP at 80 % load, on a rack of its own

A host is a network namespace: programs in it have its addresses and its link, and the machine's files. As root, or where the system
lets users have namespaces of their own. Nothing of the machine's own network is touched.")]
pub struct RackArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RackCommand,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum RackCommand {
    /// Build a rack: hosts, links and a switch
    Up(UpArgs),
    /// Say what a rack is made of and whether it works
    Status(StatusArgs),
    /// Run a command in a host of a rack
    Exec(ExecArgs),
    /// Pull the cable between a host and the switch, or put it back
    Link(LinkArgs),
    /// Run an experiment with a process in each host
    Run(Box<super::experiment::args::RunArgs>),
    /// End a rack and whatever runs in it; clears away what a crash left
    Down(DownArgs),
    /// The process that holds a rack's namespaces
    #[command(hide = true)]
    Keep(KeepArgs),
    /// The process of an experiment in a host
    #[command(hide = true)]
    Agent,
    /// What an experiment makes RPCs slow with
    #[command(hide = true, subcommand)]
    Disturb(super::disturb::Disturbance),
}

/// What a rack is built of.
#[derive(Args, Clone, Debug)]
pub struct BuildArgs {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_HOSTS)))]
    pub hosts: u16,
    /// Rate of each host's link, each way: 10mbit to 5gbit. Two processors carry eight hosts at some 100 Mbit/s
    #[arg(long, value_name = "RATE", default_value = "100mbit", value_parser = rate)]
    pub rate: u64,
    /// MTU of the links, bytes: 576 to 9000; below 1280 hosts have no IPv6 addresses. A slow link has more packets in its buffer where they
    /// are smaller
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(MTUS))]
    pub mtu: u32,
    /// What a port of the switch may queue: a time at its rate, or a number of bytes
    #[arg(long, value_name = "TIME|BYTES", default_value = "1ms", value_parser = buffer)]
    pub buffer: String,
    /// What forwards between the hosts
    #[arg(long, value_name = "WHAT", default_value = "homa")]
    pub switch: SwitchKind,
    /// A further option for `homa switch run`, as in --switch-option=--priorities=1; can be given several times
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub switch_option: Vec<String>,
}

impl BuildArgs {
    /// The rack, under this name.
    pub fn spec(&self, name: &str) -> spec::Spec {
        spec::Spec {
            name: name.to_owned(),
            hosts: self.hosts,
            rate_bps: self.rate,
            mtu: self.mtu,
            switch: self.switch,
            buffer: self.buffer.clone(),
            switch_options: self.switch_option.clone(),
        }
    }
}

/// `homa rack up`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack up --hosts 4 --rate 1gbit
  homa rack up --name old --hosts 4 --switch linux-bridge
  homa rack up --foreground                         until ctrl-C

A host's link is as fast both ways: the switch paces what goes to a host, and a token bucket what comes from it. The kernel cuts packets
and computes checksums before they leave a host, for TCP too, so that only packets of the MTU cross the links.")]
pub struct UpArgs {
    /// Its name, for a second rack on this machine
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// What it is built of.
    #[command(flatten)]
    pub build: BuildArgs,
    /// Stay until ctrl-C, and end the rack then
    #[arg(long)]
    pub foreground: bool,
}

/// `homa rack status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: homa rack status\n          homa rack status --name old --json")]
pub struct StatusArgs {
    /// Which rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `homa rack exec`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack exec h1 ip -brief addr
  homa rack exec h1 -- homa serve --driver packet & homa rack exec h2 homa call 10.146.0.1 --text hello
  homa rack exec switch tcpdump -i p1               what crosses the link of h1

The command's own exit code is that of this one.")]
pub struct ExecArgs {
    /// Which rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// End with the process that started it
    #[arg(long, hide = true)]
    pub die_with_parent: bool,
    /// The host: h1, h2 and so on, or `switch`
    #[arg(value_name = "HOST")]
    pub host: String,
    /// The command
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// `homa rack link`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack link h2 down; sleep 1; homa rack link h2 up")]
pub struct LinkArgs {
    /// Which rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// The host: h1, h2 and so on
    #[arg(value_name = "HOST")]
    pub host: String,
    /// What becomes of its link
    #[arg(value_name = "down|up")]
    pub to: LinkState,
}

/// A cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkState {
    /// Pulled.
    Down,
    /// Plugged.
    Up,
}

/// `homa rack down`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: homa rack down\n          homa rack down --all")]
pub struct DownArgs {
    /// Which rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// Every rack of this user
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

/// `homa rack keep`.
#[derive(Args, Clone, Debug)]
pub struct KeepArgs {
    /// The rack as JSON
    pub spec: String,
    /// End when standard input does
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// As root of a user namespace
    #[arg(long)]
    pub user_namespace: bool,
}

/// The name of a rack without another.
pub const DEFAULT_NAME: &str = "rack";

/// The rates that the switch paces.
const RATES_BPS: std::ops::RangeInclusive<u64> = 10_000_000..=5_000_000_000;

/// The rate of a link, bits per second.
///
/// # Errors
/// It is none, or none that the switch paces.
pub fn rate(text: &str) -> Result<u64, String> {
    let bps = units::rate_bps(text)?;
    if RATES_BPS.contains(&bps) { Ok(bps) } else { Err("a link has 10mbit to 5gbit".to_owned()) }
}

/// What a port may queue, as `homa switch` takes it.
///
/// # Errors
/// It is neither a time nor a number of bytes, or nothing.
pub fn buffer(text: &str) -> Result<String, String> {
    let given = units::duration_ns(text).or_else(|_| units::bytes(text));
    match given {
        Ok(1..) => Ok(text.to_owned()),
        Ok(0) => Err("a switch without a buffer forwards nothing".to_owned()),
        Err(_) => Err("use a time, as in 1ms, or a number of bytes, as in 64kB".to_owned()),
    }
}
