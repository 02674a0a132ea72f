//! The options of experiments.

use std::path::PathBuf;

use anyhow::Result;
use homa_bench::driver::{Driver, XdpMode};
use homa_bench::recording::TraceSettings;
use homa_bench::tcp::Congestion;
use homa_bench::workloads::Truncation;
use homa_switch::SwitchConfig;
use serde::Serialize;
use serde_json::{Value, json};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

pub use super::causes::planted::PlantedCause;
pub use super::settings::Setting;
use crate::spec::BuildOptions;

/// The program that the library is part of.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Parses the arguments of the program's command `switch run`.
    pub switch_config: fn(&[String]) -> Result<SwitchConfig>,
}

/// The experiments.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// Slowdown by message size and the tail of short messages, over Homa and over TCP, under the same load
    VsTcp(VsTcpOptions),
    /// Round trips by size without load, one message at a time, and the rates of one client and of one server
    Basic(BasicOptions),
    /// Many senders and one receiver
    Incast(IncastOptions),
    /// The tail of short messages at several loads
    Load(LoadsOptions),
    /// The highest load with which each protocol keeps up
    MaxLoad(MaxLoadOptions),
    /// Homa and TCP at once on the same hosts, at several shares of the load
    Both(BothOptions),
    /// A setting of Homa, its hosts or the switch over several values, with published results
    Config(ConfigOptions),
    /// Tails, throughput and cost by MTU
    Mtu(MtuOptions),
    /// Numbers of client threads that send, and of threads that receive answers
    ClientThreads(ClientThreadsOptions),
    /// Numbers of server ports, and of threads for each
    ServerPorts(ServerPortsOptions),
    /// The largest messages under overload, by the share that is reserved for the oldest one
    Starve(StarveOptions),
    /// Planted causes of slow RPCs, and whether `homa trace tail` finds them
    Causes(CausesOptions),
    /// A few TCP flows through a router, by the distribution of received packets over the processors
    Rps(RpsOptions),
}

/// The options that all experiments share.
#[derive(Clone, Debug)]
pub struct CommonOptions {
    /// The program that the library is part of.
    pub program: Program,
    /// Name of a running rack. Default: a rack is built for the experiment.
    pub name: Option<String>,
    /// Description of a rack that is built for the experiment.
    pub build: BuildOptions,
    /// The driver of Homa.
    pub driver: Driver,
    /// Where the kernel runs the program of AF_XDP.
    pub xdp_mode: XdpMode,
    /// Congestion control of TCP. Only those that the kernel offers are permitted.
    pub cc: Vec<Congestion>,
    /// TCP connections from each host to each other host; messages are distributed over them.
    pub connections: u16,
    /// Threads that answer requests, for each server port of a host; 0: one. Over Homa, 0 means that the
    /// sending thread also answers, if a host has one thread, one server port and one endpoint, and none of
    /// these is varied. With two threads, client and server would wait at the same endpoint and receive
    /// packets for each other.
    pub server_threads: u16,
    /// Time that an idle thread polls before it sleeps, in microseconds. If hosts share processors, polling
    /// keeps other hosts from running.
    pub poll_us: u64,
    /// Settings of the hosts; [`list_of_settings`](super::list_of_settings) lists them.
    pub set: Vec<Setting>,
    /// Measured seconds of each protocol in a repetition.
    pub duration: f64,
    /// Load before the measured time, seconds.
    pub warmup: f64,
    /// Repetitions; in each all protocols take turns.
    pub repetitions: u32,
    /// Seed of arrivals, sizes and the choice of servers, the same for all protocols.
    pub seed: u64,
    /// Directory of time traces: those of Homa's hosts after each load, and, for a rack built for the
    /// experiment, that of the switch at the end.
    pub trace: Option<PathBuf>,
    /// How Homa records time traces.
    pub recording: TraceSettings,
}

impl CommonOptions {
    /// The congestion control of TCP, in prose.
    pub fn cc_names(&self) -> String {
        self.cc.iter().map(|cc| cc.name()).collect::<Vec<_>>().join(" and ")
    }

    /// The congestion control of TCP, in JSON: a name, or an array of several.
    pub fn cc_json(&self) -> Value {
        if let [only] = self.cc[..] { json!(only) } else { json!(self.cc) }
    }
}

/// Message sizes, and the limit of open messages.
#[derive(Clone, Debug)]
pub struct MessageOptions {
    /// Message sizes: w1 to w8, a number of bytes, or a CSV file of `size,cumulative_fraction` lines.
    pub workload: String,
    /// The treatment of long messages.
    pub max_message: Truncation,
    /// Whether answers have 100 bytes instead of the request's length.
    pub one_way: bool,
    /// Maximum open RPCs of a host; further arrivals wait and are counted. A run in which more than 1 % wait
    /// is marked as closed-loop.
    pub max_outstanding: u32,
}

/// The load of experiments that vary another parameter.
#[derive(Clone, Debug)]
pub struct OfferedLoad {
    /// Offered load as a share of the links' rate, headers included.
    pub load: f64,
}

/// Options of `vs-tcp`.
#[derive(Clone, Debug)]
pub struct VsTcpOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Load of these messages.
    pub offered: OfferedLoad,
    /// When to run the same load in the simulator and to show it with the results.
    pub sim: SimulationMode,
    /// Link rates for some of the workloads, as in w2=20mbit,w3=50mbit. The other workloads have the rack's
    /// rate.
    pub rates: Vec<(String, u64)>,
}

/// When to run an experiment in the simulator too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum SimulationMode {
    /// If it can be simulated in about ten seconds
    Auto,
    /// Whatever time it takes
    Always,
    /// Never
    Never,
}

/// Options of `basic`.
#[derive(Clone, Debug)]
pub struct BasicOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Only whether answers are short, and the workload for slowdown; the sizes are those of the experiment.
    pub messages: MessageOptions,
}

/// Options of `incast`.
#[derive(Clone, Debug)]
pub struct IncastOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Numbers of senders. If there are more than hosts, each host has several open RPCs.
    pub senders: Vec<u32>,
}

/// Options of `load`.
#[derive(Clone, Debug)]
pub struct LoadsOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Loads, as shares of the links' rate, headers included.
    pub loads: Vec<f64>,
}

/// Options of `max-load`.
#[derive(Clone, Debug)]
pub struct MaxLoadOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Increasing loads to try until one is too high.
    pub loads: Vec<f64>,
    /// Open RPCs of each host in a closed loop.
    pub outstanding: u32,
}

/// Options of `both`.
#[derive(Clone, Debug)]
pub struct BothOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Load of both protocols together, as a share of the links' rate.
    pub load: f64,
    /// Homa's shares of the load, 0 to 1; TCP has the rest.
    pub shares: Vec<f64>,
}

/// Options of `config`.
#[derive(Clone, Debug)]
pub struct ConfigOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Load of these messages.
    pub offered: OfferedLoad,
    /// The setting.
    pub setting: String,
    /// Values of the setting. Values of several numbers contain spaces.
    pub values: Vec<String>,
}

/// Options of `mtu`.
#[derive(Clone, Debug)]
pub struct MtuOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Load of these messages.
    pub offered: OfferedLoad,
    /// MTUs of the links, bytes, each 576 to 9000.
    pub mtus: Vec<u32>,
}

/// Options of `client-threads`.
#[derive(Clone, Debug)]
pub struct ClientThreadsOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Load of these messages.
    pub offered: OfferedLoad,
    /// Numbers of sending threads of a host.
    pub threads: Vec<u16>,
    /// Numbers of threads that receive the answers, for each sending thread.
    pub receivers: Vec<u16>,
}

/// Options of `server-ports`.
#[derive(Clone, Debug)]
pub struct ServerPortsOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Load of these messages.
    pub offered: OfferedLoad,
    /// Numbers of server ports of a host; its clients choose among them.
    pub ports: Vec<u16>,
    /// Numbers of threads that answer at each of them.
    pub receivers: Vec<u16>,
}

/// Options of `starve`.
#[derive(Clone, Debug)]
pub struct StarveOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Offered load as a share of the links' rate, headers included; above 1.
    pub load: f64,
    /// Shares of the oldest message in the granted and in the sent bytes, in percent.
    pub shares: Vec<String>,
}

/// Options of `causes`.
#[derive(Clone, Debug)]
pub struct CausesOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Causes to plant, one at a time.
    pub causes: Vec<PlantedCause>,
    /// Percentile of slowdown at which the tail begins. Default: 99 for short messages, 90 for long ones, of
    /// which there are fewer.
    pub percentile: Option<f64>,
}

/// Options of `rps`.
#[derive(Clone, Debug)]
pub struct RpsOptions {
    /// Numbers of parallel flows.
    pub flows: Vec<u16>,
    /// Numbers of server threads. If given, lone round trips of 100 bytes over Homa and over TCP are measured
    /// instead of flows, from the first host to the second.
    pub server_threads: Vec<u16>,
    /// Ways to distribute received packets over the processors.
    pub policies: Vec<Policy>,
    /// Processors to distribute packets over, in the kernel's notation: e is the second to the fourth.
    /// Default: all.
    pub mask: Option<String>,
    /// Whether the router translates addresses, with iptables or nft. Without either program it only routes,
    /// and there is a warning.
    pub nat: bool,
    /// MTU of the links, bytes.
    pub mtu: u32,
    /// Measured time of each run and direction, in seconds.
    pub duration: f64,
    /// Time that flows run before the measured time, in seconds.
    pub warmup: f64,
    /// Runs of each combination.
    pub repetitions: u32,
}

/// How received packets are distributed over the processors.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray, Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// Packets stay on the processor that received them
    None,
    /// The kernel's receive packet steering: by hash of addresses and ports
    Rps,
    /// By the same hash, with a program at the devices (`homa steer`)
    RssHash,
    /// Each of a few flows has its own processor, with a program at the devices (`homa steer`)
    Sparse,
}

impl Policy {
    /// The name in the options.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl CommonOptions {
    /// The defaults, for a rack that is built for the experiment.
    pub fn new(program: Program) -> CommonOptions {
        CommonOptions {
            program,
            name: None,
            build: BuildOptions::default(),
            driver: Driver::Udp,
            xdp_mode: XdpMode::Generic,
            cc: vec![Congestion::Cubic],
            connections: 4,
            server_threads: 0,
            poll_us: 0,
            set: Vec::new(),
            duration: 5.0,
            warmup: 0.5,
            repetitions: 3,
            seed: 1,
            trace: None,
            recording: TraceSettings::default(),
        }
    }
}

impl Default for MessageOptions {
    fn default() -> MessageOptions {
        MessageOptions {
            workload: "w4".to_owned(),
            max_message: Truncation::default(),
            one_way: false,
            max_outstanding: 2_000,
        }
    }
}

impl VsTcpOptions {
    /// The defaults.
    pub fn new(program: Program) -> VsTcpOptions {
        VsTcpOptions {
            common: CommonOptions::new(program),
            messages: MessageOptions::default(),
            offered: OfferedLoad { load: 0.8 },
            sim: SimulationMode::Auto,
            rates: Vec::new(),
        }
    }
}
