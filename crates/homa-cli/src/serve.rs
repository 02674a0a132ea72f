//! `homa serve`: answers every request with its own bytes, over Homa and over TCP.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use homa::{Host, HostConfig, ServerAddr};
use homa_metrics::Exporter;
use homa_report::output::print;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::addr;
use crate::args::{Queues, ServeArgs};
use crate::bare::server::{BareServer, BareServerConfig};
use crate::bench::driver::{Driver, XdpMode};
use crate::bench::protocol::Protocol;
use crate::hosts::Hosts;
use crate::metrics::Seen;
use crate::peers::{self, PeerServer};
use crate::recording::Recorder;
use crate::tcp::server::{EchoServerConfig, TcpServer, one_way_answer};

/// The Homa port of the first server port; the next ones follow.
pub const FIRST_HOMA_PORT: u16 = homa::DEFAULT_SERVER_PORT;

/// Whole messages of the largest size for which a host makes room, at least.
const ROOM_MESSAGES: u64 = 512;

/// What a server says on standard output, one line each; the bench reads it from its own servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A Homa server port.
    Homa(ServerAddr),
    /// A server port of another protocol.
    Socket(Protocol, SocketAddr),
    /// Where the metrics are.
    Metrics(String),
    /// All ports are open.
    Ready,
    /// The end: requests run over a protocol.
    Served(Protocol, u64),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Homa(addr) => write!(f, "serving homa {addr}"),
            Report::Socket(protocol, addr) => write!(f, "serving {} {addr}", protocol.name()),
            Report::Metrics(url) => write!(f, "metrics {url}"),
            Report::Ready => f.write_str("ready"),
            Report::Served(protocol, count) => write!(f, "served {} {count}", protocol.name()),
        }
    }
}

impl FromStr for Report {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Report> {
        let words: Vec<&str> = line.split(' ').collect();
        let nonsense = || anyhow!("a server said `{line}`");
        let protocol =
            |name| Protocol::ALL.into_iter().find(|known| known.name() == name).ok_or_else(nonsense);
        Ok(match words[..] {
            ["serving", "homa", addr] => Report::Homa(addr.parse().map_err(|_| nonsense())?),
            ["serving", name, addr] => Report::Socket(protocol(name)?, addr.parse().map_err(|_| nonsense())?),
            ["metrics", url] => Report::Metrics(url.to_owned()),
            ["ready"] => Report::Ready,
            ["served", name, count] => {
                Report::Served(protocol(name)?, count.parse().map_err(|_| nonsense())?)
            }
            _ => return Err(nonsense()),
        })
    }
}

/// What a server says at its end, as JSON.
#[derive(Serialize)]
struct Ended {
    schema: u32,
    served: Served,
    metrics: Seen,
}

/// Requests run over each protocol; `None`: it was not served.
#[derive(Serialize)]
struct Served {
    homa: Option<u64>,
    tcp: Option<u64>,
    grpc: Option<u64>,
    quic: Option<u64>,
    udp: Option<u64>,
}

/// Serves until a signal, or the end of standard input, ends it.
pub fn run(args: &ServeArgs) -> Result<()> {
    let with_homa = args.protocol.contains(&Protocol::Homa);
    ensure!(
        with_homa || args.metrics.is_none(),
        "--metrics are those of Homa: serve it too (--protocol homa,tcp)"
    );
    let traced = args.recording.trace.is_some();
    ensure!(with_homa || !traced, "--trace is one of Homa: serve it too (--protocol homa,tcp)");
    let bind = addr::resolve(&args.bind, homa::DEFAULT_UDP_PORT)?;
    let end = End::prepare(args.until_stdin_ends)?;
    let say = |report: Report| if args.json { note(report) } else { print(format!("{report}\n").as_bytes()) };
    let mut homa = None;
    let mut others = Vec::new();
    let watched = Hosts::default();
    let hosts = watched.clone();
    let metrics_addr = args.metrics.as_ref().and_then(Option::as_ref);
    let exporter = metrics_addr.map(|addr| Exporter::start(addr, move || Ok(hosts.text()))).transpose()?;
    if let Some(exporter) = &exporter {
        say(Report::Metrics(exporter.url().to_owned()))?;
    }
    if with_homa {
        let server = HomaServer::start(bind, args)?;
        watched.add(&server.host);
        for addr in &server.addrs {
            say(Report::Homa(*addr))?;
        }
        homa = Some(server);
    }
    for protocol in Protocol::ALL.into_iter().filter(|protocol| args.protocol.contains(protocol)) {
        if let Some(server) = Other::start(protocol, offset(bind, protocol)?, args)? {
            for addr in server.addrs() {
                say(Report::Socket(protocol, *addr))?;
            }
            others.push((protocol, server));
        }
    }
    say(Report::Ready)?;
    // The server threads do the work.
    end.wait();
    if let Some(recorder) = homa.as_mut().and_then(|server| server.recorder.take()) {
        recorder.finish()?;
    }
    let by_homa = homa.as_ref().map(|server| server.served.load(Ordering::Relaxed));
    let mut counts: Vec<(Protocol, u64)> = by_homa.map(|count| (Protocol::Homa, count)).into_iter().collect();
    counts.extend(others.iter().map(|(protocol, server)| (*protocol, server.served())));
    for &(protocol, count) in &counts {
        say(Report::Served(protocol, count))?;
    }
    let of = |protocol| counts.iter().find(|(other, _)| *other == protocol).map(|(_, count)| *count);
    let served = Served {
        homa: of(Protocol::Homa),
        tcp: of(Protocol::Tcp),
        grpc: of(Protocol::Grpc),
        quic: of(Protocol::Quic),
        udp: of(Protocol::Udp),
    };
    match homa.filter(|_| args.metrics.is_some()).map(|server| Seen::of(&server.host)) {
        Some(metrics) if args.json => {
            let ended = Ended { schema: 1, served, metrics };
            print(format!("{}\n", serde_json::to_string_pretty(&ended)?).as_bytes())
        }
        Some(metrics) => print(metrics.to_string().as_bytes()),
        None => Ok(()),
    }
}

/// A server of a protocol that Homa is compared with.
enum Other {
    Tcp(TcpServer),
    Bare(BareServer),
    Peer(Box<dyn PeerServer>),
}

impl Other {
    /// `None` for Homa.
    fn start(protocol: Protocol, bind: SocketAddr, args: &ServeArgs) -> Result<Option<Other>> {
        let (ports, max_message, one_way) = (args.server_ports, args.max_message, args.one_way);
        let poll = Duration::from_micros(args.poll_us);
        let config =
            EchoServerConfig { bind, ports, threads: args.server_threads, poll, max_message, one_way };
        Ok(Some(match protocol {
            Protocol::Homa => return Ok(None),
            Protocol::Tcp => Other::Tcp(TcpServer::start(config, None)?),
            Protocol::Grpc | Protocol::Quic => Other::Peer(peers::start(protocol, config)?),
            Protocol::Udp => {
                ensure!(
                    args.driver != Driver::Raw || !args.protocol.contains(&Protocol::Homa),
                    "over raw IP an address is one host: serve bare packets alone (--protocol udp), or at another --bind"
                );
                let driver = args.driver;
                Other::Bare(BareServer::start(BareServerConfig {
                    driver,
                    bind,
                    ports,
                    poll,
                    max_message,
                    one_way,
                    offload: !args.no_offload,
                })?)
            }
        }))
    }

    fn addrs(&self) -> &[SocketAddr] {
        match self {
            Other::Tcp(server) => server.addrs(),
            Other::Bare(server) => server.addrs(),
            Other::Peer(server) => server.addrs(),
        }
    }

    fn served(&self) -> u64 {
        match self {
            Other::Tcp(server) => server.served(),
            Other::Bare(server) => server.served(),
            Other::Peer(server) => server.served(),
        }
    }
}

/// Where a protocol's first server port is, when Homa's is at `bind`; port 0 stays.
pub fn offset(bind: SocketAddr, protocol: Protocol) -> Result<SocketAddr> {
    bind_at(bind, protocol.port_offset())
}

/// Where the server port with this index binds; port 0 stays.
pub fn bind_at(bind: SocketAddr, index: u16) -> Result<SocketAddr> {
    let port = match bind.port() {
        0 => 0,
        port => port
            .checked_add(index)
            .with_context(|| format!("{bind} and {index} more reach beyond port 65535: use a lower port"))?,
    };
    Ok(SocketAddr::new(bind.ip(), port))
}

/// Says it where it does not come between a program and the JSON it reads.
fn note(report: Report) -> Result<()> {
    writeln!(io::stderr(), "{report}").context("cannot write to standard error")
}

/// What ends a server.
enum End {
    /// Standard input ends.
    Stdin,
    /// SIGINT or SIGTERM.
    Signal(Signals),
}

impl End {
    /// From now on a signal waits for [`End::wait`].
    fn prepare(stdin: bool) -> Result<End> {
        if stdin {
            return Ok(End::Stdin);
        }
        Ok(End::Signal(Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?))
    }

    fn wait(self) {
        match self {
            End::Stdin => {
                // An error there is an end of it too.
                let _ = io::stdin().read_to_end(&mut Vec::new());
            }
            End::Signal(mut signals) => {
                let _ = signals.forever().next();
            }
        }
    }
}

/// The settings of a host of ours, server or client, for messages of up to `max_message` bytes.
pub fn host_config(driver: Driver, bind: SocketAddr, max_message: u32, poll: Duration) -> HostConfig {
    let mut config = HostConfig { driver: driver.into(), bind, poll, ..HostConfig::default() };
    let protocol = &mut config.protocol;
    protocol.max_message = protocol.max_message.max(max_message);
    let room = ROOM_MESSAGES * u64::from(max_message);
    protocol.max_incoming_bytes = protocol.max_incoming_bytes.max(room);
    protocol.max_outgoing_bytes = protocol.max_outgoing_bytes.max(room);
    config.max_queued_request_bytes = config.max_queued_request_bytes.max(room);
    config
}

/// Names the device of a host and its queues, and how frames are taken from them, for the drivers that have one.
pub fn on_device(config: &mut HostConfig, interface: Option<&str>, queues: Option<&Queues>, mode: XdpMode) {
    config.packet.interface = interface.map(str::to_owned);
    config.xdp.interface.clone_from(&config.packet.interface);
    config.xdp.queues = queues.map(|queues| queues.0.clone());
    config.xdp.mode = mode.into();
}

/// Where the client host with this number, counted from 0, binds to reach a server at `to`: anywhere. Only over raw IP and
/// loopback it needs an address of its own, since that is all that tells hosts apart.
pub fn client_bind(driver: Driver, to: IpAddr, number: u8) -> SocketAddr {
    let ip: IpAddr = match to {
        IpAddr::V4(to) if driver == Driver::Raw && to.is_loopback() => {
            let mut last = number.wrapping_add(2);
            if to == Ipv4Addr::new(127, 0, 0, last) {
                last = 1;
            }
            [127, 0, 0, last].into()
        }
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    match driver {
        // It has one device, which the address tells.
        Driver::Packet | Driver::Xdp => SocketAddr::new(source_for(to).unwrap_or(ip), 0),
        Driver::Udp | Driver::Raw => SocketAddr::new(ip, 0),
    }
}

/// The address from which packets to this one leave. Connecting a UDP socket sends nothing.
fn source_for(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The same for the client port of bare packets with this number, counted from 1 over all client hosts: over raw IP and loopback
/// each has an address of its own, and none is a Homa host's.
pub fn bare_client_bind(driver: Driver, to: IpAddr, number: u16) -> Result<SocketAddr> {
    let ip = match to {
        IpAddr::V4(to) if driver == Driver::Raw && to.is_loopback() => {
            let [high, low] = number.to_be_bytes();
            Ipv4Addr::new(127, 1, high, low).into()
        }
        _ => {
            ensure!(
                driver != Driver::Raw || number == 1,
                "over raw IP an address is one client port of bare packets: use --ports 1 --clients 1"
            );
            return Ok(client_bind(driver, to, 0));
        }
    };
    Ok(SocketAddr::new(ip, 0))
}

/// The Homa side: a thread or more for each port.
struct HomaServer {
    addrs: Vec<ServerAddr>,
    served: Arc<AtomicU64>,
    /// Its ports live as long as it does.
    host: Arc<Host>,
    recorder: Option<Recorder>,
}

impl HomaServer {
    fn start(bind: SocketAddr, args: &ServeArgs) -> Result<HomaServer> {
        let poll = Duration::from_micros(args.poll_us);
        let mut config = host_config(args.driver, bind, args.max_message, poll);
        config.low_latency = args.low_latency;
        config.protocol.link_mbps = args.link_mbps;
        config.endpoints = args.endpoints.into();
        config.wake_order = args.wake_order;
        config.batch_cap = args.batch_cap;
        on_device(&mut config, args.interface.as_deref(), args.queues.as_ref(), args.xdp_mode);
        args.recording.settings.apply(&mut config);
        let host = Host::bind(config).with_context(|| match args.driver {
            Driver::Udp => format!("cannot serve Homa at UDP {bind}"),
            Driver::Raw => format!("cannot serve Homa in IP at {}", bind.ip()),
            Driver::Packet | Driver::Xdp => format!("cannot serve Homa on a device at UDP {bind}"),
        })?;
        let host = Arc::new(host);
        let path = args.recording.trace.as_deref();
        let recorder = path.map(|path| Recorder::start(path, &host, None)).transpose()?;
        let served = Arc::new(AtomicU64::new(0));
        let mut addrs = Vec::new();
        for index in 0..args.server_ports {
            // As many threads as asked for, spread over the ports, and none without.
            let threads = args.server_threads / args.server_ports
                + u16::from(index < args.server_threads % args.server_ports);
            addrs.push(serve_homa(&host, index, threads.max(1), args.one_way, &served)?);
        }
        if addrs.is_empty() {
            bail!("no server port was asked for");
        }
        Ok(HomaServer { addrs, served, host, recorder })
    }
}

/// Opens the server port with this index on a host and answers there with so many threads, which end with the process.
pub fn serve_homa(
    host: &Host,
    index: u16,
    threads: u16,
    one_way: bool,
    served: &Arc<AtomicU64>,
) -> Result<ServerAddr> {
    let port = FIRST_HOMA_PORT + index;
    let server = host.server(port).with_context(|| format!("cannot open Homa port {port}"))?;
    for _ in 0..threads {
        let (server, served) = (server.clone(), Arc::clone(served));
        thread::Builder::new()
            .name(format!("homa-server-{index}"))
            .spawn(move || echo(&server, &served, one_way))
            .context("cannot start a thread")?;
    }
    Ok(ServerAddr { host: host.local_addr(), port })
}

/// Requests that a thread takes at a time. An echo is short, and what comes behind another in a batch waits for no more than
/// that.
const BATCH: usize = 32;

fn echo(server: &homa::Server, served: &AtomicU64, one_way: bool) {
    let (mut requests, mut replies) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    while let Ok(count) = server.recv_all(BATCH, &mut requests) {
        served.fetch_add(count as u64, Ordering::Relaxed);
        for mut rpc in requests.drain(..) {
            let request = rpc.take_request();
            let answer = if one_way { one_way_answer(&request) } else { request };
            replies.push((rpc, answer));
        }
        // An error means that the client gave up, or that we are at a limit: in both cases it learns by itself.
        homa::Rpc::reply_all(&mut replies, drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_bind_anywhere_but_over_raw_loopback_apart_from_their_server() {
        let bind = |driver, to: &str, number| {
            client_bind(driver, to.parse().expect("an address"), number).to_string()
        };
        assert_eq!(bind(Driver::Udp, "127.0.0.1", 3), "0.0.0.0:0");
        assert_eq!(bind(Driver::Raw, "10.0.0.1", 0), "0.0.0.0:0");
        assert_eq!(bind(Driver::Raw, "fd00::1", 0), "[::]:0");
        assert_eq!(bind(Driver::Raw, "127.0.0.1", 0), "127.0.0.2:0");
        assert_eq!(bind(Driver::Raw, "127.0.0.1", 63), "127.0.0.65:0");
        assert_eq!(bind(Driver::Raw, "127.0.0.2", 0), "127.0.0.1:0");
    }

    #[test]
    fn reports_survive_their_line() {
        for report in [
            Report::Homa("127.0.0.1:1/99".parse().expect("an address")),
            Report::Homa("[fe80::1%3]:14600/99".parse().expect("an address")),
            Report::Socket(Protocol::Tcp, "[::1]:7".parse().expect("an address")),
            Report::Metrics("http://127.0.0.1:9100/metrics".to_owned()),
            Report::Ready,
            Report::Served(Protocol::Tcp, 5),
        ] {
            assert_eq!(report.to_string().parse::<Report>().expect("a report"), report);
        }
        assert!("serving sctp 1".parse::<Report>().is_err());
    }
}
