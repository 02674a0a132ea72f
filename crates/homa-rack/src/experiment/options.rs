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
    /// The switch that these words of its command `switch run` describe.
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
    /// A setting of Homa, its hosts or the switch over several values, beside what others found
    Config(ConfigOptions),
    /// Tails, throughput and cost by MTU
    Mtu(MtuOptions),
    /// How many threads of a client send, and how many take answers
    ClientThreads(ClientThreadsOptions),
    /// How many ports a server has, and how many threads each
    ServerPorts(ServerPortsOptions),
    /// The largest messages under more load than the links carry, by what is kept for the oldest one
    Starve(StarveOptions),
    /// Causes of slow RPCs, planted, and whether `homa trace tail` finds them
    Causes(CausesOptions),
    /// A few flows of TCP through a router, by how received packets are divided between the processors
    Rps(RpsOptions),
}

/// What all experiments have in common.
#[derive(Clone, Debug)]
pub struct CommonOptions {
    /// The program that the library is part of.
    pub program: Program,
    /// Name of a rack that is up. Default: one is built for the experiment.
    pub name: Option<String>,
    /// What a rack for the experiment is built of.
    pub build: BuildOptions,
    /// What carries Homa's packets.
    pub driver: Driver,
    /// Where the kernel runs the program of the driver for AF_XDP.
    pub xdp_mode: XdpMode,
    /// How TCP finds its rate; the kernel may offer fewer.
    pub cc: Vec<Congestion>,
    /// TCP connections from each host to each other host, between which its messages are spread.
    pub connections: u16,
    /// Threads that answer requests, for each server port of a host; 0: one, but over Homa the thread
    /// that sends answers, too, where a host has one, one server port and one endpoint, and none of
    /// these is what varies. Client and server of a Homa host wait at the same endpoint, and two
    /// threads would take packets for each other.
    pub server_threads: u16,
    /// How long an idle thread polls before it sleeps in the kernel, microseconds. Where hosts share
    /// processors, one that polls keeps others from running.
    pub poll_us: u64,
    /// Settings of the hosts: [`list_of_settings`](super::list_of_settings) names them.
    pub set: Vec<Setting>,
    /// Measured seconds of each protocol in a repetition.
    pub duration: f64,
    /// Load before the measured time, seconds.
    pub warmup: f64,
    /// Repetitions, each with all protocols in turn.
    pub repetitions: u32,
    /// Seeds arrivals, sizes and the choice of servers; all protocols get the same.
    pub seed: u64,
    /// Write time traces to this directory: of the hosts after each load (Homa's), and the switch's
    /// of a rack built for the experiment at the end.
    pub trace: Option<PathBuf>,
    /// How Homa records time traces.
    pub recording: TraceSettings,
}

impl CommonOptions {
    /// How TCP finds its rate, as in prose.
    pub fn cc_names(&self) -> String {
        self.cc.iter().map(|cc| cc.name()).collect::<Vec<_>>().join(" and ")
    }

    /// The same as results have it: a name, or an array of several.
    pub fn cc_json(&self) -> Value {
        if let [only] = self.cc[..] { json!(only) } else { json!(self.cc) }
    }
}

/// Messages, and at how many open ones a host waits.
#[derive(Clone, Debug)]
pub struct MessageOptions {
    /// Message sizes: w1 to w8, a number of bytes, or a CSV file of `size,cumulative_fraction` lines.
    pub workload: String,
    /// Whether longer messages are shortened.
    pub max_message: Truncation,
    /// Answers have 100 bytes instead of the request's length.
    pub one_way: bool,
    /// Open RPCs of a host at which its arrivals wait. Each hit is counted; a run with more than 1 %
    /// hits is marked as closed-loop.
    pub max_outstanding: u32,
}

/// The load of experiments that vary something else.
#[derive(Clone, Debug)]
pub struct OfferedLoad {
    /// Offered load as a share of the links' rate, headers included.
    pub load: f64,
}

/// Options of `vs-tcp`.
#[derive(Clone, Debug)]
pub struct VsTcpOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// How many of them.
    pub offered: OfferedLoad,
    /// Whether to run the same in the simulator and show it beside: where it takes some ten seconds
    /// at most, always, or never.
    pub sim: SimWhen,
    /// Rates of the links for some of the workloads, as in w2=20mbit,w3=50mbit; the others have that
    /// of the rack.
    pub rates: Vec<(String, u64)>,
}

/// When an experiment is simulated, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum SimWhen {
    /// Where there is such a simulation, and it takes some ten seconds at most
    Auto,
    /// Whatever it takes
    Always,
    /// Not at all
    Never,
}

/// Options of `basic`.
#[derive(Clone, Debug)]
pub struct BasicOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Only whether answers are short, and what slowdown would be of: sizes are those of the
    /// experiment.
    pub messages: MessageOptions,
}

/// Options of `incast`.
#[derive(Clone, Debug)]
pub struct IncastOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Numbers of senders; more than there are hosts are several RPCs of each.
    pub senders: Vec<u32>,
}

/// Options of `load`.
#[derive(Clone, Debug)]
pub struct LoadsOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Loads, as shares of the links' rate, headers included.
    pub loads: Vec<f64>,
}

/// Options of `max-load`.
#[derive(Clone, Debug)]
pub struct MaxLoadOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Loads to try, increasing, until one is too much.
    pub loads: Vec<f64>,
    /// RPCs that each host has open where there is always more to send.
    pub outstanding: u32,
}

/// Options of `both`.
#[derive(Clone, Debug)]
pub struct BothOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// The load of both together, as a share of the links' rate.
    pub load: f64,
    /// Homa's shares of it, 0 to 1; TCP has the rest.
    pub shares: Vec<f64>,
}

/// Options of `config`.
#[derive(Clone, Debug)]
pub struct ConfigOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// How many of them.
    pub offered: OfferedLoad,
    /// The setting.
    pub setting: String,
    /// Its values; those of several numbers have spaces between them.
    pub values: Vec<String>,
}

/// Options of `mtu`.
#[derive(Clone, Debug)]
pub struct MtuOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// How many of them.
    pub offered: OfferedLoad,
    /// MTUs of the links, bytes, each 576 to 9000.
    pub mtus: Vec<u32>,
}

/// Options of `client-threads`.
#[derive(Clone, Debug)]
pub struct ClientThreadsOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// How many of them.
    pub offered: OfferedLoad,
    /// Threads of a host that send.
    pub threads: Vec<u16>,
    /// Threads that take the answers for each of them.
    pub receivers: Vec<u16>,
}

/// Options of `server-ports`.
#[derive(Clone, Debug)]
pub struct ServerPortsOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// How many of them.
    pub offered: OfferedLoad,
    /// Server ports of a host, between which its clients choose.
    pub ports: Vec<u16>,
    /// Threads that answer at each of them.
    pub receivers: Vec<u16>,
}

/// Options of `starve`.
#[derive(Clone, Debug)]
pub struct StarveOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// Messages.
    pub messages: MessageOptions,
    /// Offered load as a share of the links' rate, headers included: more than there is.
    pub load: f64,
    /// Percent of the granted bytes and of the bytes sent that go to the oldest message.
    pub shares: Vec<String>,
}

/// Options of `causes`.
#[derive(Clone, Debug)]
pub struct CausesOptions {
    /// What all experiments have.
    pub common: CommonOptions,
    /// What to plant, one at a time.
    pub causes: Vec<PlantedCause>,
    /// The tail begins at this percentile of slowdown. Default: 99 for short messages, 90 for long
    /// ones, of which there are fewer.
    pub percentile: Option<f64>,
}

/// Options of `rps`.
#[derive(Clone, Debug)]
pub struct RpsOptions {
    /// Parallel flows.
    pub flows: Vec<u16>,
    /// Instead of flows, round trips of 100 bytes from the first host to the second, one at a time,
    /// over Homa and over TCP, to a server with so many threads.
    pub server_threads: Vec<u16>,
    /// How received packets are divided between the processors.
    pub policies: Vec<Policy>,
    /// Processors to divide packets between, as the kernel writes them, as in e for the second to the
    /// fourth. Default: all.
    pub mask: Option<String>,
    /// Have the router put its own address on what it forwards, by iptables or nft; without either it
    /// only routes, and says so.
    pub nat: bool,
    /// MTU of the links, bytes.
    pub mtu: u32,
    /// Measured seconds of each run in each direction.
    pub duration: f64,
    /// Flows run this long before the measured time, seconds.
    pub warmup: f64,
    /// Runs of each.
    pub repetitions: u32,
}

/// How received packets are divided between processors.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray, Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// Each stays where it came
    None,
    /// The kernel's receive packet steering: by hash of addresses and ports
    Rps,
    /// The same by a program at the devices (`homa steer`)
    RssHash,
    /// Each of a few flows gets a processor of its own, by a program at the devices (`homa steer`)
    Sparse,
}

impl Policy {
    /// Its name among the options.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl CommonOptions {
    /// The defaults: on a rack that is built for the experiment.
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
            sim: SimWhen::Auto,
            rates: Vec::new(),
        }
    }
}
