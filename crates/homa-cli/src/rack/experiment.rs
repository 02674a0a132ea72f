//! The options of `homa rack run`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, ArgAction, Args, Subcommand};
use homa_bench::driver::{Driver, XdpMode};
use homa_bench::tcp::Congestion;
use homa_bench::workloads::Truncation;
use homa_rack::experiment::options::{
    self, MessageOptions, OfferedLoad, PlantedCause, Policy, Setting, SimulationMode,
};
use homa_rack::experiment::{self};
use homa_rack::spec::{self, MTUS};
use homa_report::outputs::Outputs;

use super::PROGRAM;
use super::args::BuildArgs;
use crate::choice::choice;
use crate::recording::TraceSettingsArgs;
use crate::trace::tail::percentile;
use crate::values::{positive, truncation};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack run vs-tcp --workload w4                Homa and TCP at 80 % load: 8 hosts at 100 Mbit/s
  homa rack run vs-tcp --hosts 4 --rate 200mbit --workload w3 --repetitions 3 --out w3
  homa rack run basic --name rack                   on the rack that `homa rack up` has built

A process in each host is both client and server. A rack that the command builds is removed at its end.")]
pub struct RunArgs {
    #[command(subcommand)]
    pub experiment: Experiment,
}

/// Runs an experiment. Returns true if every RPC was answered exactly once and correctly.
pub fn run(args: &RunArgs) -> Result<bool> {
    if let Experiment::Config(args) = &args.experiment
        && args.list
    {
        print!("{}", experiment::list_of_settings());
        return Ok(true);
    }
    let experiment = args.experiment.options();
    experiment::check(&experiment)?;
    let (out, json) = args.experiment.files();
    let outputs = Outputs::check(out, json)?;
    let findings = experiment::run(&experiment)?;
    outputs.write(&findings.text(), &findings.json, || findings.page())?;
    Ok(findings.clean)
}

#[derive(Clone, Debug, Subcommand)]
pub enum Experiment {
    /// Slowdown by message size and tail latency of short messages, over Homa and over TCP, under the same
    /// load
    VsTcp(VsTcpArgs),
    /// Round trips by size without load, one message at a time, and the rates of one client and of one server
    Basic(BasicArgs),
    /// Many senders and one receiver
    Incast(IncastArgs),
    /// Tail latency of short messages at several loads
    Load(LoadsArgs),
    /// Maximum load that each protocol sustains
    MaxLoad(MaxLoadArgs),
    /// Homa and TCP at once on the same hosts, with several shares of the load
    Both(BothArgs),
    /// Several values of a setting of Homa, its hosts or the switch, with published results
    Config(ConfigArgs),
    /// Tail latency, throughput and cost by MTU
    Mtu(MtuArgs),
    /// Number of sending and of receiving threads of a client
    ClientThreads(ClientThreadsArgs),
    /// Number of ports of a server, and of threads for each
    ServerPorts(ServerPortsArgs),
    /// The largest messages under overload, by the share of bandwidth reserved for the oldest one
    Starve(StarveArgs),
    /// Injected causes of slow RPCs, and whether `homa trace tail` finds them
    Causes(CausesArgs),
    /// A few TCP flows through a router, by the distribution of received packets over the processors
    Rps(RpsArgs),
}

/// The options of all experiments.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// A running rack [default: one that is built for the experiment]
    #[arg(long, value_name = "NAME", value_parser = spec::name,
          conflicts_with_all = ["hosts", "rate", "mtu", "buffer", "switch", "switch_option"])]
    pub name: Option<String>,
    #[command(flatten)]
    pub build: BuildArgs,
    /// Driver of Homa's packets
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// Where the kernel runs the program of --driver xdp
    #[arg(long, value_name = "MODE", default_value = "generic", value_parser = choice::<XdpMode>())]
    pub xdp_mode: XdpMode,
    /// TCP's congestion control; the kernel may offer fewer
    #[arg(long, value_name = "NAME", action = ArgAction::Set, default_value = "cubic",
          value_parser = choice::<Congestion>())]
    pub cc: Vec<Congestion>,
    /// TCP connections from each host to each other host, over which its messages are distributed
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    /// Threads that answer requests, for each server port of a host. 0: one; but over Homa the thread that
    /// sends responses also answers, if the host has one server port and one endpoint and neither is varied.
    /// Client and server of a Homa host share an endpoint, where two threads would receive each other's
    /// packets
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub server_threads: u16,
    /// How long an idle thread polls before it sleeps in the kernel, microseconds. If hosts share processors,
    /// a polling thread delays other threads
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub poll_us: u64,
    /// A setting of the hosts, as in max_overcommit=4; `homa rack run config --list` lists them; can be given
    /// several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub set: Vec<Setting>,
    /// Measured seconds of each protocol in a repetition
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    pub duration: f64,
    /// Load before the measured time, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = positive)]
    pub warmup: f64,
    /// Repetitions, each with all protocols in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Seed of arrivals, sizes and the choice of servers; all protocols get the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write time traces to this directory: those of the hosts after each load of Homa, and at the end that of
    /// the switch, if the rack was built for the experiment
    #[arg(long, value_name = "DIR", help_heading = "Time traces")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub recording: TraceSettingsArgs,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

impl CommonArgs {
    fn options(&self) -> options::CommonOptions {
        options::CommonOptions {
            program: PROGRAM,
            name: self.name.clone(),
            build: self.build.options(),
            driver: self.driver,
            xdp_mode: self.xdp_mode,
            cc: self.cc.clone(),
            connections: self.connections,
            server_threads: self.server_threads,
            poll_us: self.poll_us,
            set: self.set.clone(),
            duration: self.duration,
            warmup: self.warmup,
            repetitions: self.repetitions,
            seed: self.seed,
            trace: self.trace.clone(),
            recording: self.recording.to_settings(),
        }
    }
}

/// Message sizes and the limit of open RPCs.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Message sizes: w1 to w8, a number of bytes, or a CSV file of `size,cumulative_fraction` lines
    #[arg(long, value_name = "NAME|FILE", default_value = "w4")]
    pub workload: String,
    /// Longer messages are shortened to this many bytes; `none`: do not shorten
    #[arg(long, value_name = "BYTES|none", default_value = "1000000", value_parser = truncation)]
    pub max_message: Truncation,
    /// Responses have 100 bytes instead of the request's length
    #[arg(long)]
    pub one_way: bool,
    /// Open RPCs of a host at which its arrivals wait. Each hit is counted; a run with more than 1 % hits is
    /// marked as closed-loop
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_outstanding: u32,
}

/// The load of experiments that vary another parameter.
#[derive(Args, Clone, Debug)]
pub struct OfferedArgs {
    /// Offered load as a fraction of the links' rate, headers included
    #[arg(long, value_name = "FRACTION", default_value_t = 0.8, value_parser = positive)]
    pub load: f64,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "\
Examples:
  homa rack run vs-tcp --workload w4 --load 0.8
  homa rack run vs-tcp --workload w3 --rate 50mbit --buffer 10ms --cc bbr --out w3-bbr
  homa rack run vs-tcp --hosts 4 --duration 1 --repetitions 1 --json - --sim never
  homa rack run vs-tcp --workload w2,w3,w4,w5 --buffer 1ms,10ms --rates w2=20mbit,w3=50mbit --cc cubic,bbr --out all

With several workloads or buffers, each pair is a cell: a rack of its own, on which all protocols take turns,
in reverse order in every other repetition. The results then begin with a table of all cells. If a cell fails,
it is named, the results of completed cells are written, and the exit code is 1.

The load is a fraction of each link's rate, each way, and includes headers: those of Homa, for both protocols,
so that both get the same messages at the same times. Every latency counts from the time when the message was
due.",
    mut_arg("workload", workloads),
    mut_arg("buffer", buffers),
    mut_arg("cc", congestions)
)]
pub struct VsTcpArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    #[command(flatten)]
    pub offered: OfferedArgs,
    /// When to run the same in the simulator for comparison: if it takes at most some ten seconds, always, or
    /// never
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = choice::<SimulationMode>())]
    pub sim: SimulationMode,
    /// Rates of the links for some of the workloads, as in w2=20mbit,w3=50mbit; all others use --rate
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "name", value_parser = rate_of_workload)]
    pub rates: Vec<(String, u64)>,
}

fn workloads(arg: Arg) -> Arg {
    arg.value_name("LIST").help(
        "Message sizes: w1 to w8, a number of bytes, or a CSV file of `size,cumulative_fraction` lines; several, as in w2,w3, one after the \
         other",
    )
}

fn buffers(arg: Arg) -> Arg {
    let each = |text: &str| {
        text.split(',').map(spec::buffer).collect::<Result<Vec<_>, _>>().map(|each| each.join(","))
    };
    arg.value_name("LIST").value_parser(each).help(
        "Queue limit of a switch port: a time at its rate, or a number of bytes; several, as in 60us,1ms,10ms, one after the other",
    )
}

fn congestions(arg: Arg) -> Arg {
    arg.value_name("LIST").value_delimiter(',').help(
        "TCP's congestion control; the kernel may offer fewer. With several, as in cubic,bbr, each is compared with Homa",
    )
}

fn rate_of_workload(text: &str) -> Result<(String, u64), String> {
    let (workload, rate) = text.rsplit_once('=').ok_or("use WORKLOAD=RATE, as in w2=20mbit")?;
    Ok((workload.to_owned(), spec::rate(rate)?))
}

fn setting(text: &str) -> Result<Setting, String> {
    text.parse()
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack run basic --hosts 4 --rate 1gbit --duration 2")]
pub struct BasicArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Only the length of responses and the reference of slowdown: the experiment determines the sizes.
    #[command(flatten)]
    pub messages: LoadArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack run incast --workload 10000 --one-way --senders 1,7,30,100")]
pub struct IncastArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    /// Numbers of senders; numbers above the hosts' are several RPCs of each host
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,3,7,14,30,60,100",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub senders: Vec<u32>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack run load --workload w3 --loads 0.1,0.5,0.8 --duration 3")]
pub struct LoadsArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    /// Loads, as fractions of the links' rate, headers included
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.1,0.3,0.5,0.7,0.8,0.9", value_parser = positive)]
    pub loads: Vec<f64>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack run max-load --workload w4 --loads 0.8,0.9,0.95")]
pub struct MaxLoadArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    /// Loads to try, in increasing order, until one is too high
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.6,0.7,0.8,0.85,0.9,0.95,1", value_parser = positive)]
    pub loads: Vec<f64>,
    /// Open RPCs of each host in the measurement where it always has more to send
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub outstanding: u32,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa rack run both --load 0.6 --shares 0,0.5,1")]
pub struct BothArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    /// Total load of both, as a fraction of the links' rate
    #[arg(long, value_name = "FRACTION", default_value_t = 0.6, value_parser = positive)]
    pub load: f64,
    /// Homa's shares of the load, 0 to 1; TCP has the rest
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,0.25,0.5,0.75,1")]
    pub shares: Vec<f64>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack run config --setting max_overcommit --values 1,2,4,8
  homa rack run config --setting link_margin --values 0,10,50      thousandths of the link's rate that Homa leaves unused
  homa rack run config --setting batch_cap --values 1,5,10,32      1: a grant for each packet, else for each burst
  homa rack run config --list                                      all settings, with published results

The results include published findings for the same setting on real networks. If only Homa has the setting, a
comparison with TCP would be meaningless, and only Homa runs.")]
pub struct ConfigArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    #[command(flatten)]
    pub offered: OfferedArgs,
    /// The setting to vary
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "list",
        default_value = "",
        hide_default_value = true
    )]
    pub setting: String,
    /// Its values; values of several numbers are separated by spaces
    #[arg(long, value_name = "LIST", value_delimiter = ',', required_unless_present = "list")]
    pub values: Vec<String>,
    /// Print all settings with their published results, and run nothing
    #[arg(long)]
    pub list: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: homa rack run mtu --workload w4 --mtus 1500,9000 --hosts 4 --duration 3

Builds a rack for each MTU, hence there is no --name. Slowdown is relative to Homa without load at the same
MTU. The switch's buffer does not change: 1 ms of 100 Mbit/s is one and a half packets of 9000 bytes, and TCP
loses most of its packets; try --buffer 10ms.")]
pub struct MtuArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    #[command(flatten)]
    pub offered: OfferedArgs,
    /// MTUs of the links, bytes, each 576 to 9000
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1500,3000,9000",
          value_parser = clap::value_parser!(u32).range(MTUS))]
    pub mtus: Vec<u32>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: homa rack run client-threads --workload w2 --threads 1,2,3 --receivers 0,2 --hosts 4

Each sending thread has its own client port, and over TCP its own connections; the load of a host is divided
among them. With 0 receivers, a sending thread receives its responses itself.")]
pub struct ClientThreadsArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    #[command(flatten)]
    pub offered: OfferedArgs,
    /// Sending threads of a host
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,4",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Vec<u16>,
    /// Threads that receive responses, for each of them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1",
          value_parser = clap::value_parser!(u16).range(0..=64))]
    pub receivers: Vec<u16>,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: homa rack run server-ports --workload w3 --ports 1,3 --receivers 1,2 --hosts 4"
)]
pub struct ServerPortsArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    #[command(flatten)]
    pub offered: OfferedArgs,
    /// Server ports of a host, among which its clients choose
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub ports: Vec<u16>,
    /// Answering threads of each port
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub receivers: Vec<u16>,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: homa rack run starve --workload w4 --load 1.2 --shares 0,5,10 --hosts 4 --duration 10"
)]
pub struct StarveArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub messages: LoadArgs,
    /// Offered load as a fraction of the links' rate, headers included: above the capacity
    #[arg(long, value_name = "FRACTION", default_value_t = 1.1, value_parser = positive)]
    pub load: f64,
    /// Percent of the granted bytes and of the sent bytes that are reserved for the oldest message
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,5,10")]
    pub shares: Vec<String>,
}

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "\
Examples:
  homa rack run causes --repetitions 10
  homa rack run causes --causes hog,stop --trace traces
  homa trace tail traces/hog-1                      the full analysis of that run

Each run has its own rack, processes and traces, and messages that its cause affects: short ones for causes in
processors, long ones for links, windows and losses. Hosts and the switch share this machine's processors.
`none` and `none-long` are runs without an injected cause; if they are equally slow, no cause can be found.",
    mut_arg("hosts", |arg| arg.default_value("4")),
    mut_arg("rate", |arg| arg.default_value("40mbit")),
    mut_arg("buffer", |arg| arg.default_value("50ms")),
    mut_arg("duration", |arg| arg.default_value("4"))
)]
pub struct CausesArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Causes to inject, one at a time
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "none,hog,stop,none-long,queue,pacer,windows,loss",
        value_parser = choice::<PlantedCause>()
    )]
    pub causes: Vec<PlantedCause>,
    /// Percentile of slowdown at which the tail begins [default: 99 for short messages, 90 for long ones, of
    /// which there are fewer]
    #[arg(long, value_name = "PERCENT", value_parser = percentile)]
    pub percentile: Option<f64>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa rack run rps --flows 1,2,4 --duration 5 --repetitions 10
  homa rack run rps --policies none,rps,rss-hash,sparse --mask e --nat --out rps
  homa rack run rps --server-threads 1,18           effect on a single round trip

Two hosts with a router between them, each a network namespace, without a switch. Flows run from the first
host to the second, and then back. On a veth without a policy, a packet is processed completely on the
processor that sent it. Policies take turns in each repetition. Note that senders, router and receivers share
the processors of one machine. rss-hash and sparse (`homa steer`) need root.")]
pub struct RpsArgs {
    /// Parallel flows
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub flows: Vec<u16>,
    /// Instead of flows, measure round trips of 100 bytes from the first host to the second, one at a time,
    /// over Homa and over TCP, to a server with this many threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "flows",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub server_threads: Vec<u16>,
    /// How received packets are distributed over the processors
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "none,rps", value_parser = choice::<Policy>())]
    pub policies: Vec<Policy>,
    /// Processors that receive packets, in the kernel's hexadecimal format, as in e for the second to the
    /// fourth [default: all]
    #[arg(long, value_name = "HEX")]
    pub mask: Option<String>,
    /// Make the router replace source addresses by its own (NAT), by iptables or nft; without both programs
    /// it only routes, with a warning
    #[arg(long)]
    pub nat: bool,
    /// MTU of the links, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=9000))]
    pub mtu: u32,
    /// Measured seconds of each run in each direction
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive)]
    pub duration: f64,
    /// Flows run this long before the measured time, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3, value_parser = positive)]
    pub warmup: f64,
    /// Runs of each combination
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

impl LoadArgs {
    fn options(&self) -> MessageOptions {
        MessageOptions {
            workload: self.workload.clone(),
            max_message: self.max_message,
            one_way: self.one_way,
            max_outstanding: self.max_outstanding,
        }
    }
}

impl OfferedArgs {
    fn options(&self) -> OfferedLoad {
        OfferedLoad { load: self.load }
    }
}

impl Experiment {
    /// Returns the directory and the JSON file for the results.
    fn files(&self) -> (Option<&Path>, Option<&Path>) {
        let common = match self {
            Experiment::VsTcp(args) => &args.common,
            Experiment::Basic(args) => &args.common,
            Experiment::Incast(args) => &args.common,
            Experiment::Load(args) => &args.common,
            Experiment::MaxLoad(args) => &args.common,
            Experiment::Both(args) => &args.common,
            Experiment::Config(args) => &args.common,
            Experiment::Mtu(args) => &args.common,
            Experiment::ClientThreads(args) => &args.common,
            Experiment::ServerPorts(args) => &args.common,
            Experiment::Starve(args) => &args.common,
            Experiment::Causes(args) => &args.common,
            Experiment::Rps(args) => return (args.out.as_deref(), args.json.as_deref()),
        };
        (common.out.as_deref(), common.json.as_deref())
    }

    /// Returns the options in the format of the rack library.
    fn options(&self) -> options::Experiment {
        use options::Experiment as To;
        match self {
            Experiment::VsTcp(args) => To::VsTcp(options::VsTcpOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                offered: args.offered.options(),
                sim: args.sim,
                rates: args.rates.clone(),
            }),
            Experiment::Basic(args) => To::Basic(options::BasicOptions {
                common: args.common.options(),
                messages: args.messages.options(),
            }),
            Experiment::Incast(args) => To::Incast(options::IncastOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                senders: args.senders.clone(),
            }),
            Experiment::Load(args) => To::Load(options::LoadsOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                loads: args.loads.clone(),
            }),
            Experiment::MaxLoad(args) => To::MaxLoad(options::MaxLoadOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                outstanding: args.outstanding,
                loads: args.loads.clone(),
            }),
            Experiment::Both(args) => To::Both(options::BothOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                load: args.load,
                shares: args.shares.clone(),
            }),
            Experiment::Config(args) => To::Config(options::ConfigOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                offered: args.offered.options(),
                setting: args.setting.clone(),
                values: args.values.clone(),
            }),
            Experiment::Mtu(args) => To::Mtu(options::MtuOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                offered: args.offered.options(),
                mtus: args.mtus.clone(),
            }),
            Experiment::ClientThreads(args) => To::ClientThreads(options::ClientThreadsOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                offered: args.offered.options(),
                threads: args.threads.clone(),
                receivers: args.receivers.clone(),
            }),
            Experiment::ServerPorts(args) => To::ServerPorts(options::ServerPortsOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                offered: args.offered.options(),
                ports: args.ports.clone(),
                receivers: args.receivers.clone(),
            }),
            Experiment::Starve(args) => To::Starve(options::StarveOptions {
                common: args.common.options(),
                messages: args.messages.options(),
                load: args.load,
                shares: args.shares.clone(),
            }),
            Experiment::Causes(args) => To::Causes(options::CausesOptions {
                common: args.common.options(),
                percentile: args.percentile,
                causes: args.causes.clone(),
            }),
            Experiment::Rps(args) => To::Rps(options::RpsOptions {
                nat: args.nat,
                mtu: args.mtu,
                duration: args.duration,
                warmup: args.warmup,
                repetitions: args.repetitions,
                flows: args.flows.clone(),
                server_threads: args.server_threads.clone(),
                policies: args.policies.clone(),
                mask: args.mask.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ParsedArgs {
        #[command(flatten)]
        args: RunArgs,
    }

    fn options(words: &str) -> options::Experiment {
        ParsedArgs::parse_from(["x"].into_iter().chain(words.split_whitespace())).args.experiment.options()
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let options::Experiment::VsTcp(options) = options("vs-tcp") else { panic!("another experiment") };
        let library = options::VsTcpOptions::new(PROGRAM);
        assert_eq!(format!("{options:?}"), format!("{library:?}"));
    }

    #[test]
    fn nonsense_in_a_list_is_named() {
        for (words, part) in [
            ("--workload w2,w9", "w9"),
            ("--workload w2,,w3", "missing before or after a comma"),
            ("--workload w2,W2", "--workload: `w2` is listed twice"),
            ("--buffer 1ms,1ms", "--buffer: `1ms` is listed twice"),
            ("--cc bbr,bbr", "--cc: `bbr` is listed twice"),
            ("--rates w2=20mbit,w2=30mbit --workload w2", "--rates: `w2` is listed twice"),
            ("--rates w3=20mbit --workload w2", "`w3` is not among"),
            ("--workload w2,w3 --name up", "leave out --name"),
            ("--buffer 60us,1ms --rate 20mbit", "w4, buffer 60us at 20 Mbit/s: a buffer of 150 bytes"),
        ] {
            let error = format!("{:#}", experiment::check(&options(&format!("vs-tcp {words}"))).unwrap_err());
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
