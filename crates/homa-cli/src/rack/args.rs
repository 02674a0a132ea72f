//! The options of `homa rack`.

use clap::{Args, Subcommand};
use homa_rack::spec::{self, BuildOptions, MAX_HOSTS, MTUS, SwitchKind};
use homa_rack::status::LinkState;
use homa_rack::{daemon, disturb, enter, experiment};

use crate::choice::choice;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack up --hosts 8 --rate 1gbit               hosts h1 to h8, each with a link of 1 Gbit/s to one switch
  homa rack exec h1 -- ping -c 1 10.146.0.2         any command in a host; 10.146.0.N is hN, and so is fd00:146::N
  homa rack status; homa rack link h2 down          show the rack; disconnect a host
  homa rack down                                    removes everything, also after a crash
  homa rack run vs-tcp --workload w4                Homa against TCP at 80 % load, on a rack of its own

A host is a network namespace: programs in it have its addresses and its link, and the machine's files. Needs
root, or a system that permits users to create namespaces. The machine's own network is not changed.")]
pub struct RackArgs {
    #[command(subcommand)]
    pub command: RackCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum RackCommand {
    /// Build a rack: hosts, links and a switch
    Up(UpArgs),
    /// Show the parts of a rack and their state
    Status(StatusArgs),
    /// Run a command in a host of a rack
    #[command(name = enter::COMMAND)]
    Exec(ExecArgs),
    /// Disconnect a host from the switch, or reconnect it
    Link(LinkArgs),
    /// Run an experiment with a process in each host
    Run(Box<super::experiment::RunArgs>),
    /// Stop a rack and all its processes; also removes the remains of a crash
    Down(DownArgs),
    /// The process that holds a rack's namespaces
    #[command(name = daemon::CHILD_COMMAND, hide = true)]
    Daemon(ChildArgs),
    /// The process of an experiment in a host
    #[command(name = experiment::agent::CHILD_COMMAND, hide = true)]
    Agent,
    /// The load by which an experiment slows RPCs down
    #[command(name = disturb::CHILD_COMMAND, hide = true)]
    Disturb(ChildArgs),
}

/// The configuration of a rack.
#[derive(Args, Clone, Debug)]
pub struct BuildArgs {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_HOSTS)))]
    pub hosts: u16,
    /// Rate of each host's link, each way: 10mbit to 5gbit. Two processors can emulate eight hosts at some
    /// 100 Mbit/s
    #[arg(long, value_name = "RATE", default_value = "100mbit", value_parser = spec::rate)]
    pub rate: u64,
    /// MTU of the links, bytes: 576 to 9000; below 1280 hosts have no IPv6 addresses. With smaller packets,
    /// the buffer of a slow link holds more of them
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(MTUS))]
    pub mtu: u32,
    /// Queue limit of a switch port: a time at its rate, or a number of bytes
    #[arg(long, value_name = "TIME|BYTES", default_value = "1ms", value_parser = spec::buffer)]
    pub buffer: String,
    /// What forwards between the hosts
    #[arg(long, value_name = "WHAT", default_value = "homa", value_parser = choice::<SwitchKind>())]
    pub switch: SwitchKind,
    /// An additional option for `homa switch run`, as in --switch-option=--priorities=1; can be given several
    /// times
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub switch_option: Vec<String>,
}

impl BuildArgs {
    /// Returns the options in the format of the rack library.
    pub fn options(&self) -> BuildOptions {
        BuildOptions {
            hosts: self.hosts,
            rate: self.rate,
            mtu: self.mtu,
            buffer: self.buffer.clone(),
            switch: self.switch,
            switch_option: self.switch_option.clone(),
        }
    }
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack up --hosts 4 --rate 1gbit
  homa rack up --name old --hosts 4 --switch linux-bridge
  homa rack up --foreground                         until ctrl-C

A host's link has the same rate in both directions: the switch paces packets to a host, and a token bucket
packets from it. The kernel divides packets and computes checksums before they leave a host, also for TCP, so
that only packets of the MTU cross the links.")]
pub struct UpArgs {
    /// Name of the rack, for a second one on this machine
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    #[command(flatten)]
    pub build: BuildArgs,
    /// Wait for ctrl-C, then stop the rack
    #[arg(long)]
    pub foreground: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: homa rack status\n          homa rack status --name old --json")]
pub struct StatusArgs {
    /// Name of the rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack exec h1 ip -brief addr
  homa rack exec h1 -- homa serve --driver packet & homa rack exec h2 homa call 10.146.0.1 --text hello
  homa rack exec switch tcpdump -i p1               packets on the link of h1

The exit code is that of the command.")]
pub struct ExecArgs {
    /// Name of the rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// End with the process that started it
    #[arg(long = enter::DIE_WITH_PARENT, hide = true)]
    pub die_with_parent: bool,
    /// The host: h1, h2 and so on, or `switch`
    #[arg(value_name = "HOST")]
    pub host: String,
    /// The command
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack link h2 down; sleep 1; homa rack link h2 up")]
pub struct LinkArgs {
    /// Name of the rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// The host: h1, h2 and so on
    #[arg(value_name = "HOST")]
    pub host: String,
    /// New state of its link
    #[arg(value_name = "down|up", value_parser = choice::<LinkState>())]
    pub to: LinkState,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: homa rack down\n          homa rack down --all")]
pub struct DownArgs {
    /// Name of the rack
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = spec::name)]
    pub name: String,
    /// Every rack of this user
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

/// Commands that the rack's library starts.
#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// The command, as written by the library
    pub order: String,
}

/// The default name of a rack.
pub const DEFAULT_NAME: &str = "rack";
