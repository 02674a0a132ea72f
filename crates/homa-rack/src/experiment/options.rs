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

/// The program that this library is part of.
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
    /// The program that this library is part of.
    pub program: Program,
    /// Name of a running rack. Default: a new rack is built for the experiment.
    pub name: Option<String>,
    /// Description of a rack that is built for the experiment.
    pub build: BuildOptions,
    /// The driver of Homa.
    pub driver: Driver,
    /// Where the kernel runs the AF_XDP program.
    pub xdp_mode: XdpMode,
    /// Congestion control algorithms of TCP. Only those that the kernel offers are permitted.
    pub cc: Vec<Congestion>,
    /// Number of TCP connections from each host to each other host. Messages are distributed over them.
    pub connections: u16,
    /// Number of threads that answer requests at each server port of a host; 0 means one. With Homa, 0 means
    /// instead that the sending thread also answers, if a host has one thread, one server port and one
    /// endpoint, and none of these is varied. With two threads, client and server would wait at the same
    /// endpoint and receive packets for each other.
    pub server_threads: u16,
    /// Time that an idle thread polls before it sleeps, in microseconds. If hosts share processors, a polling
    /// host keeps other hosts from running.
    pub poll_us: u64,
    /// Settings of the hosts; [`list_of_settings`](super::list_of_settings) lists them.
    pub set: Vec<Setting>,
    /// Measurement time of each protocol per repetition, in seconds.
    pub duration: f64,
    /// Duration of the load before the measurement window, in seconds.
    pub warmup: f64,
    /// Number of repetitions. In each of them, all protocols take turns.
    pub repetitions: u32,
    /// Seed of arrivals, sizes and the choice of servers, the same for all protocols.
    pub seed: u64,
    /// Directory for time traces: those of Homa's hosts after each load and, if the rack was built for the
    /// experiment, that of the switch at the end.
    pub trace: Option<PathBuf>,
    /// How Homa records time traces.
    pub recording: TraceSettings,
}

impl CommonOptions {
    /// Returns TCP's congestion control as text for readers.
    pub fn cc_names(&self) -> String {
        self.cc.iter().map(|cc| cc.name()).collect::<Vec<_>>().join(" and ")
    }

    /// Returns TCP's congestion control as JSON: a name, or an array of names.
    pub fn cc_json(&self) -> Value {
        if let [only] = self.cc[..] { json!(only) } else { json!(self.cc) }
    }
}

/// Message sizes, and the limit on open RPCs.
#[derive(Clone, Debug)]
pub struct MessageOptions {
    /// Message sizes: w1 to w8, a number of bytes, or a CSV file of `size,cumulative_fraction` lines.
    pub workload: String,
    /// The treatment of long messages.
    pub max_message: Truncation,
    /// Whether responses are 100 bytes long instead of as long as the request.
    pub one_way: bool,
    /// Maximum number of open RPCs per host; further arrivals wait and are counted. A run in which more than
    /// 1 % of the arrivals wait is marked as closed-loop.
    pub max_outstanding: u32,
}

/// The load of experiments that vary another parameter.
#[derive(Clone, Debug)]
pub struct OfferedLoad {
    /// Offered load as a share of the link rate, including headers.
    pub load: f64,
}

/// Options of `vs-tcp`.
#[derive(Clone, Debug)]
pub struct VsTcpOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// The load of these messages.
    pub offered: OfferedLoad,
    /// Whether to run the same load in the simulator too, and to show the simulation with the results.
    pub sim: SimulationMode,
    /// Link rates for some of the workloads, as in w2=20mbit,w3=50mbit. The other workloads use the rack's
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
    /// Whether responses are short, and the workload from which slowdown is computed. The message sizes of
    /// the experiment are fixed.
    pub messages: MessageOptions,
}

/// Options of `incast`.
#[derive(Clone, Debug)]
pub struct IncastOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// Sender counts to run. If a count exceeds the number of other hosts, each host keeps several RPCs open.
    pub senders: Vec<u32>,
}

/// Options of `load`.
#[derive(Clone, Debug)]
pub struct LoadsOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// Loads, as shares of the link rate, including headers.
    pub loads: Vec<f64>,
}

/// Options of `max-load`.
#[derive(Clone, Debug)]
pub struct MaxLoadOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// Loads to try in increasing order, until one is too high.
    pub loads: Vec<f64>,
    /// Number of open RPCs per host in a closed loop.
    pub outstanding: u32,
}

/// Options of `both`.
#[derive(Clone, Debug)]
pub struct BothOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// Total load of both protocols, as a share of the link rate.
    pub load: f64,
    /// Homa's shares of the load, 0 to 1; TCP gets the rest.
    pub shares: Vec<f64>,
}

/// Options of `config`.
#[derive(Clone, Debug)]
pub struct ConfigOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// The load of these messages.
    pub offered: OfferedLoad,
    /// The setting.
    pub setting: String,
    /// Values of the setting. A value that consists of several numbers contains spaces.
    pub values: Vec<String>,
}

/// Options of `mtu`.
#[derive(Clone, Debug)]
pub struct MtuOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// The load of these messages.
    pub offered: OfferedLoad,
    /// MTUs of the links in bytes, each 576 to 9000.
    pub mtus: Vec<u32>,
}

/// Options of `client-threads`.
#[derive(Clone, Debug)]
pub struct ClientThreadsOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// The load of these messages.
    pub offered: OfferedLoad,
    /// Numbers of sending threads per host.
    pub threads: Vec<u16>,
    /// Numbers of threads that receive responses for each sending thread.
    pub receivers: Vec<u16>,
}

/// Options of `server-ports`.
#[derive(Clone, Debug)]
pub struct ServerPortsOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// The load of these messages.
    pub offered: OfferedLoad,
    /// Numbers of server ports per host, among which the host's clients choose.
    pub ports: Vec<u16>,
    /// Numbers of threads per server port that answer requests.
    pub receivers: Vec<u16>,
}

/// Options of `starve`.
#[derive(Clone, Debug)]
pub struct StarveOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// The messages to send.
    pub messages: MessageOptions,
    /// Offered load as a share of the link rate, including headers; above 1.
    pub load: f64,
    /// Shares of granted bytes and of sent bytes that are reserved for the oldest message, in percent.
    pub shares: Vec<String>,
}

/// Options of `causes`.
#[derive(Clone, Debug)]
pub struct CausesOptions {
    /// Options common to all experiments.
    pub common: CommonOptions,
    /// Causes to plant, one at a time.
    pub causes: Vec<PlantedCause>,
    /// Percentile of slowdown at which the tail begins. Default: 99 for short messages; 90 for long messages,
    /// of which there are fewer.
    pub percentile: Option<f64>,
}

/// Options of `rps`.
#[derive(Clone, Debug)]
pub struct RpsOptions {
    /// Numbers of parallel flows.
    pub flows: Vec<u16>,
    /// Numbers of server threads. If they are given, the experiment measures 100-byte round trips instead of
    /// flows: one RPC at a time, over Homa and over TCP, from the first host to the second.
    pub server_threads: Vec<u16>,
    /// Ways to distribute received packets over the processors.
    pub policies: Vec<Policy>,
    /// Processors over which packets are distributed, in the kernel's notation: `e` means the second to the
    /// fourth processor. Default: all.
    pub mask: Option<String>,
    /// Whether the router translates addresses, with iptables or nft. Without either program, the router only
    /// routes, and a warning is added.
    pub nat: bool,
    /// MTU of the links, in bytes.
    pub mtu: u32,
    /// Measurement time of each run and direction, in seconds.
    pub duration: f64,
    /// Time that flows run before the measurement window, in seconds.
    pub warmup: f64,
    /// Number of runs of each combination.
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
    /// Returns the name used in the options.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl CommonOptions {
    /// Returns the defaults, for a rack that is built for the experiment.
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
    /// Returns the defaults.
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
