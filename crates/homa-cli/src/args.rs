//! The command line: every option with its default, its unit and an example.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use homa::HostConfig;
use homa_metrics::MetricsAddr;
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;

use crate::bench::bridge::args::BridgeBenchArgs;
use crate::bench::driver::{Driver, XdpMode};
use crate::bench::limits::{Metric, PathChoice};
use crate::bench::placement::Placement;
use crate::bench::protocol::Protocol;
use crate::bench::switch::args::SwitchBenchArgs;
use crate::bench::workloads::{DEFAULT_MAX_MESSAGE, Truncation};
use crate::choice::choice;
use crate::decode::PacketKind;
use crate::doctor::DoctorArgs;
use crate::jitter::JitterArgs;
use crate::rack::args::RackArgs;
use crate::rack::experiment::comparison::args::ComparisonArgs;
use crate::recording::{TraceArgs, TraceSettings};
use crate::sim::args::SimArgs;
use crate::switch::args::SwitchArgs;
use crate::watch::args::{MetricsArgs, TopArgs};

/// Homa: remote procedure calls with a short tail, in user space.
#[derive(Debug, Parser)]
#[command(
    name = "homa",
    // Of build/main.rs: the version of the package, and the commit.
    version = env!("HOMA_VERSION"),
    max_term_width = 110,
    after_help = "Example: `homa bench` compares Homa and TCP on this machine and writes report.html.\n\
                  Exit codes: 0 success; 1 the bench ran, but not every RPC was answered exactly once and right; \
                  2 any other error."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer requests: an echo server, and the other side of `homa bench --servers`
    Serve(ServeArgs),
    /// Send one request, print or save the answer and its time
    Call(CallArgs),
    /// Measure the tail latency of a workload over Homa and over TCP, on an emulated rack, over loopback or between machines
    Bench(Box<BenchArgs>),
    /// Print the Homa packets of a capture, one line each
    Decode(DecodeArgs),
    /// Run a program that was written for Linux Homa's sockets, without the kernel module where that is missing
    Run(crate::run::RunArgs),
    /// Run Homa and other transports in a simulated network of any size
    Sim(SimArgs),
    /// Build a rack of hosts on this machine, and run experiments on it
    Rack(RackArgs),
    /// Forward frames between network devices as a top-of-rack switch does: link rates, priorities, bounded buffers
    Switch(Box<SwitchArgs>),
    /// Choose the cores on which the kernel processes what network devices receive
    Steer(crate::steer::args::SteerArgs),
    /// Say what time traces hold: of live hosts, of switches and of the simulator
    Trace(crate::trace::TraceArgs),
    /// Find what takes the processors of this machine away, for how long and how often
    Jitter(JitterArgs),
    /// Find what in this host's settings costs tail latency, and the command that changes it
    Doctor(DoctorArgs),
    /// Print what a process that runs with --metrics has counted, or what changed
    Metrics(MetricsArgs),
    /// Show what happens in processes that run with --metrics, again and again
    Top(TopArgs),
    /// Write the man pages and the shell completions of a package
    #[cfg(feature = "packaging")]
    #[command(hide = true)]
    Packaging(crate::packaging::PackagingArgs),
}

/// `homa serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa serve --bind 0.0.0.0:14600 --protocol homa,tcp --server-ports 2
  homa serve --driver raw --bind 10.0.0.1           in IP protocol 146, for Linux Homa too; as root
  homa serve --driver packet --interface eth0       for any peer over UDP, but faster; as root
  homa serve --link-mbps 10000 --metrics            says at the end what it counted, and what it knows of each peer
  homa serve --metrics 127.0.0.1:9100               also tells it meanwhile: to Prometheus, `homa top` and `homa metrics`
  homa serve --trace s.trace                        a time trace at the end, and at once on SIGUSR1

It serves until it gets SIGINT (ctrl-C) or SIGTERM, then says how many requests were run.")]
pub struct ServeArgs {
    /// What carries Homa's packets
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// The network device for --driver packet or xdp [default: the one that has the address of --bind]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Receive queues for --driver xdp, as in 0-3,6 [default: all]. What the device steers to others is lost
    #[arg(long, value_name = "LIST", value_parser = queues)]
    pub queues: Option<Queues>,
    /// Where the kernel runs the program of --driver xdp
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = choice::<XdpMode>())]
    pub xdp_mode: XdpMode,
    /// Address and UDP port of the Homa host (over raw IP the port means nothing to Homa); TCP listens on the same port
    /// number (the next server port on the next number), gRPC and bare UDP
    /// 1000 above, QUIC 2000. Port 0: any free ones
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:14600")]
    pub bind: String,
    /// Protocols to serve: homa, tcp, grpc, quic, udp (bare packets over --driver)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "homa,tcp", value_parser = choice::<Protocol>())]
    pub protocol: Vec<Protocol>,
    /// Server ports per protocol: Homa ports from 99 on, TCP ports from that of --bind on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub server_ports: u16,
    /// Server threads per protocol. A Homa port has at least one of its own; a port of bare packets has just one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub server_threads: u16,
    /// How long an idle thread polls before it sleeps in the kernel, microseconds; 0: sleep at once
    #[arg(long, value_name = "US", default_value_t = DEFAULT_POLL_US, value_parser = poll_us)]
    pub poll_us: u64,
    /// Which of the threads of Homa that sleep and could do the same is woken: lifo, fifo or least-recent (whose core was without any
    /// activity for longest)
    #[arg(long, value_name = "ORDER", default_value_t, value_parser = wake_order)]
    pub wake_order: WakeOrder,
    /// Most datagrams, or frames of a device, that a thread of Homa takes at a time, 1 to 32: what came together is answered together
    #[arg(long, value_name = "PACKETS", default_value_t = HostConfig::default().batch_cap, value_parser = batch_cap)]
    pub batch_cap: BatchCap,
    /// Endpoints of the Homa host, each with a packet path, a lock and its part of the RPCs: about one per core that the network
    /// may fill
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub endpoints: u16,
    /// Largest request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_MAX_MESSAGE, value_parser = message_bytes)]
    pub max_message: u32,
    /// Answer each request with 100 bytes instead of its own
    #[arg(long)]
    pub one_way: bool,
    /// Speed of the link, Mbit/s [default: what the network device tells; many virtual ones tell none]. Without it nothing
    /// is paced, and unscheduled bytes follow no round-trip time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// At the end, print every counter of Homa that is not 0, and a table of the peers: round-trip time, how many bytes of a
    /// message go unscheduled to each, and the limit it sets for them. With an address also serve all of it meanwhile, over HTTP at
    /// /metrics, in the format of Prometheus: IP:PORT, port 0 for any free one, or the path of a socket to make, as in
    /// unix:/run/homa.sock
    #[arg(long, value_name = "ADDR", num_args = 0..=1)]
    pub metrics: Option<Option<MetricsAddr>>,
    /// Print what was served and the metrics as one JSON object, and nothing else on standard output
    #[arg(long, requires = "metrics")]
    pub json: bool,
    /// Keep the processors out of deep sleep while RPCs of Homa are in flight, which makes sleeping round trips shorter and costs
    /// power; takes the right to write to /dev/cpu_dma_latency
    #[arg(long)]
    pub low_latency: bool,
    #[command(flatten)]
    pub recording: TraceArgs,
    /// Bare packets one by one: the kernel neither cuts nor merges runs of them
    #[arg(long, hide = true)]
    pub no_offload: bool,
    /// Exit when standard input ends, and print what was served: how the bench ends its own servers
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// `homa call`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa call 127.0.0.1:14600 --text hello
  homa call --driver raw 10.0.0.1/99 --size 500000  in IP protocol 146, to Linux Homa too; as root
  homa call 10.0.0.1 --trace c.trace                and a time trace of it
  homa call 10.0.0.1 --size 500000 --link-mbps 10000 --metrics
                                                    and what was counted, measured and chosen on the way

A round-trip time is measured by messages so long that they need a grant.")]
pub struct CallArgs {
    /// What carries Homa's packets
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// The network device for --driver packet or xdp [default: the one by which the server is reached]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Receive queues for --driver xdp, as in 0-3,6 [default: all]. What the device steers to others is lost
    #[arg(long, value_name = "LIST", value_parser = queues)]
    pub queues: Option<Queues>,
    /// Where the kernel runs the program of --driver xdp
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = choice::<XdpMode>())]
    pub xdp_mode: XdpMode,
    /// The server: `ADDRESS[:UDP_PORT][/HOMA_PORT]`, by default UDP port 14600 and Homa port 99; raw IP has no UDP port
    #[arg(value_name = "ADDR")]
    pub addr: String,
    /// Send the content of this file
    #[arg(long, value_name = "FILE", group = "request")]
    pub file: Option<PathBuf>,
    /// Send this text
    #[arg(long, value_name = "TEXT", group = "request")]
    pub text: Option<String>,
    /// Send this many bytes of a pattern (the default, with 100 bytes)
    #[arg(long, value_name = "BYTES", group = "request", value_parser = message_bytes)]
    pub size: Option<u32>,
    /// Save the answer in this file; `-` writes it to standard output and nothing else there
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Speed of the link, Mbit/s [default: what the network device tells; many virtual ones tell none]. Without it nothing
    /// is paced, and unscheduled bytes follow no round-trip time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// After the call, print on standard error (with --json: in the result) every counter that is not 0, and what is known of
    /// the peer: round-trip time, how many bytes of a message go unscheduled to it, and the limit it sets for them. A call
    /// that fails prints them too
    #[arg(long)]
    pub metrics: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    pub deadline: f64,
    #[command(flatten)]
    pub recording: TraceArgs,
}

/// `homa decode`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: homa decode trouble.pcap --rpc 4242\n          \
                        tcpdump -i eth0 -w - 'proto 146 or udp port 14600' | homa decode -\n\
                        Each line: time, source > destination, priority, type, RPC id (odd from the server), and the \
                        fields of the type; ranges exclude their end. Hosts are ADDRESS/HOMA_PORT over IP protocol 146, \
                        ADDRESS:UDP_PORT/HOMA_PORT over UDP. Packets that share a datagram have a line each, with \
                        their number in the bundle. The last line goes to standard error and counts.\n\
                        JSON: the names under `header` are PROTOCOL.md's, the values those on the wire; RPC ids are \
                        strings, since they have 64 bits.")]
pub struct DecodeArgs {
    /// The capture, pcap or pcapng, as tcpdump, Wireshark and this project's wrapper write them; `-`: standard input
    #[arg(value_name = "FILE.pcap")]
    pub file: PathBuf,
    /// Only packets about this RPC, by the id of either side, those that acknowledge it, and ICMP errors about it
    #[arg(long, value_name = "ID")]
    pub rpc: Option<u64>,
    /// Only packets of these types: data, grant, resend, rpc_unknown, busy, cutoffs, freeze, need_ack, ack, icmp, cut, bad
    #[arg(long = "type", value_name = "LIST", value_delimiter = ',', value_parser = packet_kind)]
    pub types: Vec<PacketKind>,
    /// UDP port of Homa hosts, can be given several times; packets of other UDP ports are then not looked at
    /// [default: 14600, and whatever has the form of our packets]
    #[arg(long = "udp-port", value_name = "N")]
    pub udp_ports: Vec<u16>,
    /// Times of day in UTC, not seconds since the first packet
    #[arg(long)]
    pub absolute: bool,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Receive queues of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues(pub Vec<u32>);

fn queues(text: &str) -> Result<Queues, String> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(u32::from(first)..=u32::from(last))
    };
    let parts: Option<Vec<_>> = text.split(',').map(part).collect();
    let parts = parts.ok_or("use numbers and ranges of them, as in 0-3,6")?;
    Ok(Queues(parts.into_iter().flatten().collect()))
}

fn metric(text: &str) -> Result<Metric, String> {
    Metric::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
        format!("there is no such row: use {}, or w1 to w5", names.join(", "))
    })
}

fn packet_kind(text: &str) -> Result<PacketKind, String> {
    PacketKind::from_name(text).ok_or_else(|| {
        "use data, grant, resend, rpc_unknown, busy, cutoffs, freeze, need_ack, ack, icmp, cut or bad"
            .to_owned()
    })
}

/// What `homa bench` does beside comparing under a workload.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure what each protocol and driver can do at best here: round trips, RPCs per second, long messages, processor time
    Limits(LimitsArgs),
    /// Measure the switch: frames a second, how exact its rates are, what a probe meets, what overload does
    Switch(SwitchBenchArgs),
    /// Compare ways to build a bridge: bursts, locks, threads, memory of packets, and the kernel's own
    Bridge(BridgeBenchArgs),
}

/// `homa bench limits`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa bench limits                             everything; some minutes. As root also the drivers that need it
  homa bench limits --low-latency --json l.json with the processors kept from deep sleep in one more column
  homa bench limits --quick --protocol homa,tcp a smoke test
  homa bench limits --driver udp --targets docs/perf/targets.toml
                                                Homa, TCP and bare UDP, against the targets of this project
  homa bench limits --driver udp --rows w1,w2,rpcs_per_s_32,rtt_polling_p99_us
                                                a part of the table

The first table compares Homa over UDP with TCP and with bare/udp-offload. W1 to W5 are the highest rates of
workloads: what `homa bench --loopback --workload W --find-max` measures, 6 slices for each level of open RPCs.
A file of targets has an entry for each row, by its name in JSON (of `comparisons` or `figures`). The bounds are
ratios to TCP, or with as = \"absolute\" values in the unit of the JSON; for times they are maxima:
  [[target]]
  name = \"rpcs_per_s_32\"
  floor = 0.85
  goal = 1.1

The other tables: homa/DRIVER; bare/DRIVER, request and response with no protocol, one packet each where they fit; bare/udp-offload
and bare/packet-offload, the same with runs of equal packets passed to the kernel as one; tcp; grpc (tonic); quic (quinn). Each has one client thread and one
server thread, on different processors. Polling: both sides poll for 10 ms before they sleep. Sleeping: they sleep at once. The
messages of 1 MB go one way, 8 at a time, over one connection, and are answered with 100 bytes. CPU is the time of both
processes: per RPC and packet of 100 bytes with 32 open and both sides sleeping when idle, and per packet of 1 MB messages.
Packets are those that Homa or the bench sends; what the kernel cuts and merges counts as what it is cut into.")]
pub struct LimitsArgs {
    /// Protocols to measure: homa, tcp, grpc, quic, udp (bare packets) [default: all that this program was built with]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<Protocol>())]
    pub protocol: Vec<Protocol>,
    /// Drivers for Homa and for bare packets [default: all]; what cannot be opened is skipped, with the reason
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<Driver>())]
    pub driver: Vec<Driver>,
    /// What clients and servers are joined by
    #[arg(long, value_name = "WHAT", default_value = "auto", value_parser = choice::<PathChoice>())]
    pub path: PathChoice,
    /// MTU of the veth pair, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub mtu: u32,
    /// Have packets cross the veth pair one by one, as on a wire, and not as one of up to 64 KB that nobody ever cuts; needs the veth pair
    #[arg(long)]
    pub wire: bool,
    /// Measure long messages only
    #[arg(long)]
    pub long_only: bool,
    /// Measure only these, by their names in JSON; w1 to w5 are the highest rates of workloads [default: all]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "long_only",
        value_parser = metric
    )]
    pub rows: Vec<Metric>,
    /// Judge the rows by the targets in this TOML file: a floor, and a goal, for each
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Repetitions, each with all rows in turn [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Measured time of each cell in a repetition, milliseconds; a quarter of it goes before [default: 200, with --quick 20]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub slice_ms: Option<u64>,
    /// Also measure sleeping round trips while /dev/cpu_dma_latency is held at 0; as root
    #[arg(long)]
    pub low_latency: bool,
    /// Only see whether it works
    #[arg(long)]
    pub quick: bool,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// `homa bench`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  homa bench                                        Homa and TCP on a rack of hosts that this machine emulates; one minute
  homa bench --quick --workload w4 --load 0.5       the same for 10 s, with other messages
  homa bench limits                                 what each protocol and driver can do at best: see its own --help
  homa bench switch                                 what the switch between devices can do: see its own --help
  homa bench --loopback                             without a network: both protocols at half of what this machine holds
  homa bench --loopback --workload w3 --load 0.8    at 80 % of the slower protocol's measured maximum
  homa bench --size 100 --outstanding 1 --json -    round trips of 100 bytes, one at a time
  homa bench --servers 10.0.0.2,10.0.0.3 --gbps 5   against `homa serve` on two other hosts
  homa bench --driver raw --servers 10.0.0.2        Homa in IP protocol 146, against `homa serve --driver raw`; as root

The rack needs no privileges where users may have namespaces of their own. Options that only loopback or other machines have, such as
--servers, --outstanding or --driver, imply --loopback.

Every latency counts from the moment the message was due, not from when it could be sent: a stall also counts for
those that waited behind it (no coordinated omission). Gbps are 10^9 bits of request payload per second, all clients
together. An open-loop client polls rather than sleeps when its next message is due within 2 ms, for both protocols.")]
pub struct BenchArgs {
    /// Something else than the comparison under a workload.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Compare between processes of this machine over its loopback device, where nothing congests, instead of on a rack
    #[arg(long)]
    pub loopback: bool,
    /// An option that describes the rack was given: a comparison over loopback would not answer the question.
    #[arg(skip)]
    pub is_rack_wanted: bool,
    /// Of the rack.
    #[command(flatten)]
    pub rack: ComparisonArgs,
    /// Write the time traces of Homa to this directory at the end, server.trace and one for each client; and on SIGUSR1, or when one
    /// froze, as `homa serve` does
    #[arg(long, value_name = "DIR", help_heading = "Time traces")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub recording: TraceSettings,
    /// What carries Homa's packets; over raw IP the servers that the bench starts are at 127.0.0.1 and the clients at
    /// 127.0.0.2 and up, so that they are different hosts
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// Remote `homa serve` hosts, `ADDRESS[:PORT]`; without, servers are started on this machine
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub servers: Vec<String>,
    /// Message sizes: w1 to w8, short-long, one-medium, starve, a number of bytes, or a CSV file of
    /// `size,cumulative_fraction` lines [default: w3, over loopback w4]
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "size")]
    pub workload: Option<String>,
    /// All messages have this many bytes
    #[arg(long, value_name = "BYTES", value_parser = message_bytes)]
    pub size: Option<u32>,
    /// Longer messages are shortened to this many bytes; `none`: send them as long as they are
    /// [default: 1000000; in a rack as many as a link carries in 1/100 of the measured time, if
    /// those are fewer]
    #[arg(long, value_name = "BYTES|none", value_parser = truncation)]
    pub max_message: Option<Truncation>,
    /// Protocols to measure, in turn: homa, tcp, grpc (tonic), quic (quinn), and udp: bare packets over --driver with no protocol at all, in which an RPC
    /// of a lost packet is an error. A Homa server is needed in any case: slowdown is relative to Homa without load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "homa,tcp", value_parser = choice::<Protocol>())]
    pub protocol: Vec<Protocol>,
    /// Offered load of all clients, Gbps of request payload (open loop, Poisson arrivals)
    #[arg(long, value_name = "GBPS", group = "pace", value_parser = positive)]
    pub gbps: Option<f64>,
    /// Offered load (open loop, Poisson) as a fraction of each link's rate, headers included [default: 0.7, with less than 20 seconds 0.5]; over loopback of the slower
    /// protocol's maximum, which is measured first [default: 0.5]
    #[arg(long, value_name = "FRACTION", group = "pace", value_parser = positive)]
    pub load: Option<f64>,
    /// Closed loop: this many RPCs open per client port, each answer starts the next
    #[arg(long, value_name = "N", group = "pace", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub outstanding: Option<u32>,
    /// Only measure each protocol's maximum goodput for the workload
    #[arg(long, conflicts_with = "pace")]
    pub find_max: bool,
    /// Client hosts, all in this process; each has its own address (so that over raw IP, with --servers, there is one)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub clients: u16,
    /// Endpoints of each Homa host, of the clients and of the servers that the bench starts, between which its ports and RPCs are
    /// divided
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub endpoints: u16,
    /// Client ports per client host [default: 4, but 1 with --outstanding]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub ports: Option<u16>,
    /// Server ports per server host; TCP has a connection for each pair of client port and server port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub server_ports: u16,
    /// Threads per protocol of the servers that the bench starts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub server_threads: u16,
    /// Threads per client port that only take answers; 0: the sending thread takes them between two sends, and so it always
    /// does with gRPC, QUIC and bare packets
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub port_receivers: u16,
    /// Answers have 100 bytes instead of the request's length (remote servers need the option too)
    #[arg(long)]
    pub one_way: bool,
    /// Open RPCs per client port at which an open loop waits. Each hit is counted; a run with more than 1 % hits is
    /// marked as closed-loop
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_outstanding: u32,
    /// How long an idle thread polls before it sleeps in the kernel, microseconds; 0: sleep at once
    #[arg(long, value_name = "US", default_value_t = DEFAULT_POLL_US, value_parser = poll_us)]
    pub poll_us: u64,
    /// Which of the threads of Homa that sleep and could do the same is woken: lifo, fifo or least-recent (whose core was without any
    /// activity for longest)
    #[arg(long, value_name = "ORDER", default_value_t, value_parser = wake_order)]
    pub wake_order: WakeOrder,
    /// Most datagrams, or frames of a device, that a thread of Homa takes at a time, 1 to 32: what came together is answered together
    #[arg(long, value_name = "PACKETS", default_value_t = HostConfig::default().batch_cap, value_parser = batch_cap)]
    pub batch_cap: BatchCap,
    /// Speed of the link as Homa takes it, Mbit/s; remote servers have an option of their own [default: what the network
    /// device tells; loopback tells none]. Without it nothing is paced, and unscheduled bytes follow no round-trip time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// Where the clients and servers of this machine run, with neither on the other's processors or wherever the scheduler
    /// likes
    #[arg(long, value_name = "HOW", default_value = "apart", value_parser = choice::<Placement>())]
    pub placement: Placement,
    /// Seconds of load per protocol, in slices that take turns
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    pub duration: f64,
    /// Seeds arrivals and sizes; both protocols get the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Serve what the Homa hosts of the clients count, over HTTP at /metrics, in the format of Prometheus, for `homa top` too: IP:PORT,
    /// port 0 for any free one, or the path of a socket to make. The server of this machine serves its own beside it: at a free port of the
    /// same address, or the same path with `.server` behind it. Both say where on standard error
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<MetricsAddr>,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `homa bench` that both the rack and loopback have.
const SHARED_BENCH_OPTIONS: [&str; 9] =
    ["workload", "size", "max_message", "load", "one_way", "seed", "out", "json", "loopback"];

/// Options that only the rack has.
const RACK_BENCH_OPTIONS: [&str; 6] = ["seconds", "quick", "hosts", "rate", "connections", "cc"];

/// Those of them that only say how long the comparison may take, which holds over loopback, too.
const RACK_TIMES: [&str; 2] = ["seconds", "quick"];

impl Cli {
    /// What the words of a command line mean.
    ///
    /// # Errors
    /// Clap's, help and version included.
    pub fn of_words<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if let (Command::Bench(args), Some(("bench", matches))) = (&mut cli.command, matches.subcommand()) {
            let options = command.find_subcommand("bench").into_iter().flat_map(clap::Command::get_arguments);
            let given = options
                .map(|option| option.get_id().as_str())
                .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
            let given: Vec<String> = given.map(str::to_owned).collect();
            args.choose_place(&given).map_err(|text| command.error(ErrorKind::ArgumentConflict, text))?;
        }
        Ok(cli)
    }
}

impl BenchArgs {
    /// Options that only loopback and other machines have imply it. `given`: ids of the options on the command line.
    fn choose_place(&mut self, given: &[String]) -> Result<(), String> {
        let is_of_rack = |id: &&String| RACK_BENCH_OPTIONS.contains(&id.as_str());
        let is_shared = |id: &&String| SHARED_BENCH_OPTIONS.contains(&id.as_str());
        let of_rack = given.iter().find(is_of_rack);
        let of_loopback = given.iter().find(|id| !is_of_rack(id) && !is_shared(id));
        self.is_rack_wanted = given.iter().any(|id| is_of_rack(&id) && !RACK_TIMES.contains(&id.as_str()));
        self.loopback |= of_loopback.is_some();
        match of_rack.filter(|_| self.loopback) {
            None => Ok(()),
            Some(rack) => {
                let option = |id: &str| format!("--{}", id.replace('_', "-"));
                let other = of_loopback.map_or("--loopback".to_owned(), |id| option(id));
                Err(format!("{} is for the rack, and {other} for loopback or other machines", option(rack)))
            }
        }
    }
}

/// Long enough that a short RPC between two busy hosts rarely sleeps, short enough that an idle host costs little.
const DEFAULT_POLL_US: u64 = 50;
/// More would let the threads of an idle protocol disturb the other's turn.
const MAX_POLL_US: u64 = 10_000;
/// Lengths on the wire are 32 bits, signed at some peers.
const MAX_MESSAGE: u32 = i32::MAX as u32;

/// As clap has it, for commands with options of their own.
pub fn truncation(text: &str) -> Result<Truncation, String> {
    if text == "none" {
        return Ok(Truncation::Off);
    }
    message_bytes(text).map(Truncation::At).map_err(|error| format!("{error}, or `none`"))
}

/// As clap has it, for commands with options of their own.
pub fn message_bytes(text: &str) -> Result<u32, String> {
    match text.parse::<u64>() {
        Ok(bytes) if (1..=u64::from(MAX_MESSAGE)).contains(&bytes) => Ok(bytes as u32),
        _ => Err(format!("a message has 1 to {MAX_MESSAGE} bytes")),
    }
}

/// What drivers can do, of the caps that there are.
pub fn batch_cap(text: &str) -> Result<BatchCap, String> {
    let most = homa_driver::BURST_PACKETS as u32;
    let cap =
        text.parse().ok().filter(|&packets| packets <= most).and_then(|packets| BatchCap::new(packets).ok());
    cap.ok_or_else(|| format!("use 1 to {most} packets"))
}

pub fn wake_order(text: &str) -> Result<WakeOrder, String> {
    text.parse().map_err(|error: homa_steer::SteerError| error.to_string())
}

fn poll_us(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(us) if us <= MAX_POLL_US => Ok(us),
        _ => Err(format!("use 0 to {MAX_POLL_US} microseconds")),
    }
}

/// As clap has it, for commands with options of their own.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("use a positive number".to_owned()),
    }
}

/// One line that says what is wrong with a command line, from clap's longer text: its first paragraph, and the tip if
/// there is one.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let mut line = paragraphs.next().unwrap_or_default();
    if let Some(tip) = paragraphs.find(|paragraph| paragraph.starts_with("tip:")) {
        line = format!("{line} ({})", tip.trim_start_matches("tip:").trim());
    }
    line.trim_start_matches("error:").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words)
    }

    fn bench(words: &[&str]) -> BenchArgs {
        match parse(words).map(|cli| cli.command) {
            Ok(Command::Bench(args)) => *args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn bench_without_options_compares_both() {
        let args = bench(&["homa", "bench"]);
        assert_eq!(args.protocol, [Protocol::Homa, Protocol::Tcp]);
        assert_eq!(args.max_message.unwrap_or_default(), Truncation::At(1_000_000));
        assert_eq!(args.max_outstanding, 200);
    }

    #[test]
    fn only_a_described_rack_rules_out_loopback() {
        for (words, is_rack_wanted) in
            [("", false), (" --quick", false), (" --seconds 20", false), (" --hosts 3", true)]
        {
            let words = format!("homa bench{words}");
            let cli = Cli::of_words(words.split(' ').map(OsString::from)).expect("valid");
            let Command::Bench(args) = cli.command else { panic!("{words}") };
            assert_eq!((args.is_rack_wanted, args.loopback), (is_rack_wanted, false), "{words}");
        }
    }

    #[test]
    fn limits_have_options_of_their_own() {
        let limits = |words: &str| {
            let words = format!("homa bench limits {words}");
            match bench(&words.split_whitespace().collect::<Vec<_>>()).command {
                Some(BenchCommand::Limits(args)) => args,
                _ => panic!("{words}: not the limits"),
            }
        };
        let args = limits("");
        assert!(args.protocol.is_empty() && args.driver.is_empty() && args.path == PathChoice::Auto);
        assert_eq!((args.repetitions, args.slice_ms, args.mtu), (None, None, 1500));
        let args =
            limits("--quick --protocol homa,udp --driver udp,raw --path loopback --repetitions 2 --json -");
        assert_eq!(args.protocol, [Protocol::Homa, Protocol::Udp]);
        assert_eq!(args.driver, [Driver::Udp, Driver::Raw]);
        assert!(args.quick && args.repetitions == Some(2));
        assert!(args.rows.is_empty() && args.targets.is_none());
        let args = limits("--rows w2,rpcs_per_s_128 --targets t.toml");
        assert_eq!(args.rows, [Metric::MaxW2, Metric::Rpcs128]);
        assert_eq!(args.targets, Some(PathBuf::from("t.toml")));
        for words in [
            "--rows w9",
            "--rows w1 --long-only",
            "--gbps 1",
            "--mtu 100",
            "--repetitions 0",
            "--slice-ms 0",
            "--path wire",
        ] {
            let words = format!("homa bench limits {words}");
            assert!(parse(&words.split_whitespace().collect::<Vec<_>>()).is_err(), "{words}");
        }
        assert!(parse(&["homa", "bench", "--gbps", "1", "limits"]).is_err());
    }

    #[test]
    fn one_pace_at_a_time() {
        for words in [
            ["homa", "bench", "--gbps", "1", "--load", "0.5"],
            ["homa", "bench", "--gbps", "1", "--outstanding", "5"],
            ["homa", "bench", "--size", "1", "--workload", "w1"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (option, value) in [
            ("--gbps", "0"),
            ("--gbps", "nan"),
            ("--load", "-1"),
            ("--size", "0"),
            ("--size", "3000000000"),
            ("--max-message", "0"),
            ("--poll-us", "10001"),
            ("--link-mbps", "0"),
            ("--duration", "inf"),
            ("--ports", "0"),
            ("--endpoints", "0"),
            ("--endpoints", "65"),
        ] {
            assert!(parse(&["homa", "bench", option, value]).is_err(), "{option} {value}");
        }
    }

    #[test]
    fn an_error_is_one_line() {
        for words in [
            &["homa", "bench", "--laod", "1"][..],
            &["homa", "bench", "--protocol", "sctp"],
            &["homa", "call"],
            &["homa", "frobnicate"],
            &["homa"],
        ] {
            let line = one_line(&parse(words).expect_err("must not parse"));
            assert!(!line.is_empty() && !line.contains('\n'), "{words:?}: {line:?}");
            assert!(!line.starts_with("error"), "{words:?}: {line:?}");
        }
    }
}
