//! `homa serve`: answers each request with the request's own bytes, over Homa and over TCP.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, ensure};
use clap::Args;
use homa_bench::driver::{Driver, XdpMode};
use homa_bench::host_report::HostReport;
use homa_bench::protocol::Protocol;
use homa_bench::server::{Report, Server, ServerOptions};
use homa_bench::workloads::DEFAULT_MAX_MESSAGE;
use homa_metrics::MetricsAddr;
use homa_report::output::print;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::addr;
use crate::choice::choice;
use crate::idle_args::IdleArgs;
use crate::recording::RecordingArgs;
use crate::values::{Queues, message_bytes, queues};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa serve --bind 0.0.0.0:14600 --protocol homa,tcp --server-ports 2
  homa serve --driver raw --bind 10.0.0.1           in IP protocol 146, for Linux Homa too; as root
  homa serve --linux-udp                            at UDP port 54321, for Linux Homa's UDP form too
  homa serve --driver packet --interface eth0       for any peer over UDP, but faster; as root
  homa serve --link-mbps 10000 --metrics            prints counters and a table of peers at the end
  homa serve --metrics 127.0.0.1:9100               also serves them to Prometheus, `homa top` and `homa metrics`
  homa serve --trace s.trace                        a time trace at the end, and at once on SIGUSR1

The command serves until SIGINT (ctrl-C) or SIGTERM, then prints the number of requests.")]
pub struct ServeArgs {
    /// Driver of Homa's packets
    #[arg(long, value_name = "HOW", default_value = "udp", value_parser = choice::<Driver>())]
    pub driver: Driver,
    /// The same as --driver linux-udp
    #[arg(long, conflicts_with = "driver")]
    pub linux_udp: bool,
    /// The network device for --driver packet or xdp [default: the one with the address of --bind]
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Receive queues for --driver xdp, as in 0-3,6 [default: all]. Packets on other queues are lost
    #[arg(long, value_name = "LIST", value_parser = queues)]
    pub queues: Option<Queues>,
    /// Where the kernel runs the program of --driver xdp
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = choice::<XdpMode>())]
    pub xdp_mode: XdpMode,
    /// Address and UDP port of the Homa host (over raw IP and with --driver linux-udp the port has no meaning
    /// for Homa). TCP listens on
    /// the same port number (further server ports on the following numbers), gRPC and plain UDP 1000 above,
    /// QUIC 2000 above. Port 0: any free ports
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:14600")]
    pub bind: String,
    /// Protocols to serve: homa, tcp, grpc, quic, udp (plain packets over --driver)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "homa,tcp", value_parser = choice::<Protocol>())]
    pub protocol: Vec<Protocol>,
    /// Server ports per protocol: Homa ports from 99 upwards, TCP ports from that of --bind upwards
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub server_ports: u16,
    /// Server threads per protocol. Each Homa port has at least one thread; a port of plain packets has
    /// exactly one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub server_threads: u16,
    #[command(flatten)]
    pub idle: IdleArgs,
    /// Endpoints of the Homa host, each with a packet path, a lock and its part of the RPCs: about one for
    /// each core that the network traffic can saturate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub endpoints: u16,
    /// Largest request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_MAX_MESSAGE, value_parser = message_bytes)]
    pub max_message: u32,
    /// Answer each request with 100 bytes instead of its own bytes
    #[arg(long)]
    pub one_way: bool,
    /// Link speed, Mbit/s [default: as reported by the network device; many virtual ones report none].
    /// Without it nothing is paced, and unscheduled bytes do not depend on the round-trip time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link_mbps: Option<u32>,
    /// At the end, print every counter of Homa that is not 0 and a table of the peers: round-trip time,
    /// unscheduled bytes of a message to each, and its limit for them. With an address, also serve these
    /// metrics over HTTP at /metrics while running, in the format of Prometheus: IP:PORT, port 0 for any free
    /// one, or the path of a new socket, as in unix:/run/homa.sock
    #[arg(long, value_name = "ADDR", num_args = 0..=1)]
    pub metrics: Option<Option<MetricsAddr>>,
    /// Print the numbers of served requests and the metrics as one JSON object, and nothing else on standard
    /// output
    #[arg(long, requires = "metrics")]
    pub json: bool,
    /// Keep the processors out of deep sleep while RPCs of Homa are in flight, which shortens sleeping round
    /// trips and costs power; needs write access to /dev/cpu_dma_latency
    #[arg(long)]
    pub low_latency: bool,
    #[command(flatten)]
    pub recording: RecordingArgs,
    /// Print what was served and exit when standard input ends: for programs that start a server and end it
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

impl ServeArgs {
    fn options(&self) -> Result<ServerOptions> {
        Ok(ServerOptions {
            protocols: self.protocol.clone(),
            driver: if self.linux_udp { Driver::LinuxUdp } else { self.driver },
            interface: self.interface.clone(),
            queues: self.queues.as_ref().map(|queues| queues.0.clone()),
            xdp_mode: self.xdp_mode,
            bind: addr::resolve(&self.bind, homa::ServerAddr::DEFAULT_UDP_PORT)?,
            ports: self.server_ports,
            threads: self.server_threads,
            host: self.idle.host(self.endpoints, self.link_mbps),
            poll: self.idle.poll(),
            max_message: self.max_message,
            one_way: self.one_way,
            offload: true,
            low_latency: self.low_latency,
            metrics: self.metrics.clone().flatten(),
            trace: self.recording.settings.to_settings(),
            trace_file: self.recording.trace.clone(),
        })
    }
}

/// The final output of a server as JSON.
#[derive(Serialize)]
struct Summary {
    schema: u32,
    served: RequestCounts,
    metrics: HostReport,
}

/// Number of requests handled for each protocol; `None` for protocols that were not served.
#[derive(Serialize)]
struct RequestCounts {
    homa: Option<u64>,
    tcp: Option<u64>,
    grpc: Option<u64>,
    quic: Option<u64>,
    udp: Option<u64>,
}

/// Serves requests until a signal arrives or standard input is closed.
pub fn run(args: &ServeArgs) -> Result<()> {
    let with_homa = args.protocol.contains(&Protocol::Homa);
    ensure!(
        with_homa || args.metrics.is_none(),
        "--metrics shows metrics of Homa: serve it too (--protocol homa,tcp)"
    );
    let options = args.options()?;
    let end = End::prepare(args.until_stdin_ends)?;
    let report =
        |report: Report| if args.json { note(report) } else { print(format!("{report}\n").as_bytes()) };
    let mut server = Server::start(&options, report)?;
    // The server threads do the work while this thread waits.
    end.wait();
    server.write_trace()?;
    let counts = server.served();
    counts.iter().try_for_each(|&(protocol, count)| report(Report::Served(protocol, count)))?;
    match server.host().filter(|_| args.metrics.is_some()).map(|host| HostReport::of(host)) {
        Some(metrics) if args.json => {
            let of = |protocol| counts.iter().find(|(other, _)| *other == protocol).map(|(_, count)| *count);
            let served = RequestCounts {
                homa: of(Protocol::Homa),
                tcp: of(Protocol::Tcp),
                grpc: of(Protocol::Grpc),
                quic: of(Protocol::Quic),
                udp: of(Protocol::Udp),
            };
            let summary = Summary { schema: 1, served, metrics };
            print(format!("{}\n", serde_json::to_string_pretty(&summary)?).as_bytes())
        }
        Some(metrics) => print(metrics.to_string().as_bytes()),
        None => Ok(()),
    }
}

/// Prints a report on standard error; used when standard output is reserved for JSON.
fn note(report: Report) -> Result<()> {
    writeln!(io::stderr(), "{report}").context("cannot write to standard error")
}

/// The event that ends a server.
enum End {
    /// Standard input was closed.
    Stdin,
    /// SIGINT or SIGTERM.
    Signal(Signals),
}

impl End {
    /// Starts catching signals, so that [`End::wait`] receives them.
    fn prepare(stdin: bool) -> Result<End> {
        if stdin {
            return Ok(End::Stdin);
        }
        Ok(End::Signal(Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?))
    }

    fn wait(self) {
        match self {
            End::Stdin => {
                // A read error is treated as the end of input.
                let _ = io::stdin().read_to_end(&mut Vec::new());
            }
            End::Signal(mut signals) => {
                let _ = signals.forever().next();
            }
        }
    }
}
