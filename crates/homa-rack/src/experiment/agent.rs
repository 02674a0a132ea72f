//! The process of an experiment in a host: both client and server, with its own transport. It reads orders
//! from standard input, writes replies to standard output, and exits when standard input is closed.

use std::io::{self, BufRead, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use homa::{Host, HostConfig, ServerAddr};
use homa_bench::addresses::{FIRST_HOMA_PORT, host_config, on_device};
use homa_bench::cpu::Scheduled;
use homa_bench::engine::link::Link;
use homa_bench::engine::load::{self, IdleBehaviour, LoadSpec};
use homa_bench::engine::pattern::Pattern;
use homa_bench::engine::rtt::{self, RttTable};
use homa_bench::engine::tally::RpcCounters;
use homa_bench::homa_link;
use homa_bench::host_report::HostReport;
use homa_bench::protocol::Protocol;
use homa_bench::server::serve_homa;
use homa_bench::tcp::client::{TcpLink, TcpLinkConfig};
use homa_bench::tcp::frame;
use homa_bench::tcp::server::{EchoServerConfig, TcpServer};
use homa_bench::workloads;
use homa_bench::workloads::Truncation;
use homa_proto::wire::DATA_HEADER_LEN;
use homa_report::output::Output;
use homa_workload::Workload;
use rustix::time::{ClockId, clock_gettime};

use super::agent_protocol::{Order, Reply, Setup, put_samples};
use super::one_thread::{OneThread, ReceiverClaim};
use crate::spec::HOST_DEVICE;
use homa_settings::set_field;

/// Timer slack of the process. With the kernel's default slack, sleeps would end late, and the delay would
/// count as latency.
const TIMER_SLACK_NS: u64 = 1_000;

/// Minimum time for which the uplink is filled in advance. If hosts share processors, a thread that sleeps
/// until the link needs the next packet wakes about 50 us late, and the link must not run dry in that time.
const LATE_NS: u64 = 100_000;

/// Number of RESENDs before a peer is considered dead; they take 5 s. A process that was not scheduled for
/// half a second is still alive, and the experiment detects a dead process by other means.
const PATIENT_RESENDS: u32 = 100;

/// Bytes of the UDP and IPv4 headers in front of a Homa packet.
const UDP_IP: u32 = 8 + 20;

/// The subcommand of [`RACK_COMMAND`](crate::RACK_COMMAND) that calls [`serve`].
pub const CHILD_COMMAND: &str = "agent";

/// Executes the orders on standard input until it is closed.
///
/// # Errors
/// An order failed. The experiment reports the failure as this host's.
pub fn serve() -> Result<()> {
    // Threads inherit the slack. If the kernel does not permit it, sleeps end slightly later.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
    let mut lines = io::stdin().lock().lines();
    let Some(setup) = lines.next() else { return Ok(()) };
    let setup: Setup = serde_json::from_str(&setup.context("no setup")?).context("the setup is invalid")?;
    let mut agent = Agent::new(setup)?;
    write_reply(&Reply::Ready, &[])?;
    for line in lines {
        let order = serde_json::from_str(&line.context("no order")?).context("an order is invalid")?;
        agent.execute(order)?;
    }
    Ok(())
}

/// Writes a reply: a line of JSON, followed by `more`.
fn write_reply(reply: &Reply, more: &[u8]) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let text = serde_json::to_string(reply)?;
    writeln!(out, "{text}")
        .and_then(|()| out.write_all(more))
        .and_then(|()| out.flush())
        .context("cannot write a reply")
}

struct Agent {
    setup: Setup,
    workload: Workload,
    pattern: Pattern,
    side: Side,
    /// One link per sending thread; empty if the host is only a server.
    links: Vec<Box<dyn Link>>,
    /// Number of servers from which a link chooses for each RPC.
    choices: usize,
}

/// The server, and the transport on which clients are opened.
enum Side {
    Homa {
        host: Arc<Host>,
        /// The thread that both sends and answers, if this is the host's only thread.
        one_thread: Option<OneThread>,
        /// Number of requests that arrived at the server ports.
        served: Arc<AtomicU64>,
    },
    /// The server's threads run until the process exits.
    Tcp(TcpServer),
}

impl Agent {
    fn new(setup: Setup) -> Result<Agent> {
        let cut = setup.messages.max_message.map_or(Truncation::Off, Truncation::At);
        let workload = match setup.messages.workload.parse() {
            Ok(size) => Workload::fixed(size)?,
            Err(_) => workloads::named(&setup.messages.workload, cut)?,
        };
        let pattern = Pattern::new(
            workload.max_bytes().max(setup.messages.longest),
            setup.messages.seed,
            setup.messages.one_way,
        );
        let side = Side::open(&setup, workload.max_bytes().max(setup.messages.longest))?;
        Ok(Agent { setup, workload, pattern, side, links: Vec::new(), choices: 0 })
    }

    fn poll(&self) -> Duration {
        Duration::from_micros(self.setup.poll_us)
    }

    fn execute(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Open { peers } => {
                self.links.clear();
                let to = self.servers(&peers);
                self.choices = to.len();
                if !to.is_empty() {
                    let threads = 0..self.setup.threads.client_threads;
                    self.links = threads.map(|_| self.open(&to)).collect::<Result<_>>()?;
                }
                write_reply(&Reply::Opened, &[])
            }
            Order::Unloaded { sizes, budget_ms } => {
                let link = self.links.first_mut().context("no server was named")?;
                let sizes = if sizes.is_empty() { rtt::sizes(&self.workload) } else { sizes };
                let budget = Duration::from_millis(budget_ms);
                let claim = self.side.claim_receiver();
                let table = rtt::measure(link.as_mut(), &self.pattern, &sizes, budget, || ())?;
                claim.map_or(Ok(()), ReceiverClaim::end)?;
                write_reply(&Reply::Unloaded { points: table.points().to_vec() }, &[])
            }
            Order::Load { .. } => self.load(&order),
            Order::Metrics => {
                let seen = match &self.side {
                    Side::Homa { host, served, .. } => {
                        let mut seen = serde_json::to_value(HostReport::of(host))?;
                        seen["served"] = served.load(Ordering::Relaxed).into();
                        seen
                    }
                    Side::Tcp(server) => serde_json::json!({ "served": server.served() }),
                };
                write_reply(&Reply::Metrics { seen }, &[])
            }
        }
    }

    /// Returns the ports of these hosts. Each connection has its own entry, so that Homa and TCP draw the
    /// same choices.
    fn servers(&self, peers: &[IpAddr]) -> Vec<(IpAddr, u16)> {
        let setup = &self.setup;
        let ports = |peer| (0..setup.threads.server_ports).map(move |port| (peer, port));
        let each = |peer| (0..setup.threads.connections).flat_map(move |_| ports(peer));
        peers.iter().flat_map(|&peer| each(peer)).collect()
    }

    fn open(&self, servers: &[(IpAddr, u16)]) -> Result<Box<dyn Link>> {
        let setup = &self.setup;
        let servers = servers.iter();
        match &self.side {
            Side::Homa { host, one_thread, .. } => {
                let at = |&(peer, port)| ServerAddr {
                    host: SocketAddr::new(peer, setup.port_at_peer()),
                    port: FIRST_HOMA_PORT + port,
                };
                let servers: Vec<ServerAddr> = servers.map(at).collect();
                if let Some(one_thread) = one_thread {
                    return Ok(one_thread.link(servers));
                }
                homa_link::open_on(host, 1, &servers, setup.threads.port_receivers.into(), self.poll())
            }
            Side::Tcp(_) => {
                let link = TcpLink::connect(TcpLinkConfig {
                    servers: servers
                        .map(|&(peer, port)| SocketAddr::new(peer, setup.udp_port + port))
                        .collect(),
                    ports: 1,
                    receivers: setup.threads.port_receivers.into(),
                    poll: self.poll(),
                    max_message: self.workload.max_bytes().max(setup.messages.longest).max(100),
                    one_way: setup.messages.one_way,
                    congestion: setup.congestion,
                    precise: true,
                })?;
                Ok(Box::new(link))
            }
        }
    }

    fn load(&mut self, order: &Order) -> Result<()> {
        let Order::Load { pace, start_ns, warmup_ns, measured_ns, seed, ref trace } = *order else {
            bail!("no load")
        };
        let Some(start) = instant_at(start_ns) else { return write_reply(&Reply::Late, &[]) };
        let unloaded = RttTable::new(vec![(1, 1)]);
        let mut tally = None;
        let mut usage = Scheduled::default();
        let mut received = 0;
        let side = &self.side;
        let payload = u64::from(self.setup.mtu.saturating_sub(UDP_IP)).saturating_sub(DATA_HEADER_LEN as u64);
        let ports = vec![1; self.links.len()];
        if let (Some(pace), false) = (pace, self.links.is_empty()) {
            let spec = LoadSpec {
                workload: &self.workload,
                pace: pace.into(),
                ports: &ports,
                servers: self.choices,
                warmup: Duration::from_nanos(warmup_ns),
                measured: Duration::from_nanos(measured_ns),
                seed,
                pattern: &self.pattern,
                unloaded: &unloaded,
                start: Some(start),
                idle: IdleBehaviour::Sleep,
                keep_samples: true,
            };
            let claim = side.claim_receiver();
            tally = Some(load::run(&spec, &mut self.links, |window| {
                (usage, received) = side.watch(payload, window.from, window.to);
                Ok(usage.ran)
            })?);
            claim.map_or(Ok(()), ReceiverClaim::end)?;
        } else {
            let from = start + Duration::from_nanos(warmup_ns);
            (usage, received) = side.watch(payload, from, from + Duration::from_nanos(measured_ns));
        }
        if let (Some((path, name)), Side::Homa { host, .. }) = (trace, &self.side) {
            let mut dump = host.trace_dump();
            dump.node.name.clone_from(name);
            Output::check(path)?.write(&dump.to_bytes())?;
            // Each load has its own trace.
            host.unfreeze_trace();
        }
        let mut bytes = Vec::new();
        let counted = tally.map_or_else(RpcCounters::default, |tally| {
            put_samples(&tally.samples, &mut bytes);
            tally.counted
        });
        write_reply(
            &Reply::Loaded { counted, usage: usage.into(), received, bytes: bytes.len() as u64 },
            &bytes,
        )
    }
}

/// Returns the current time in nanoseconds, from the clock that all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Converts a time of the shared clock to an instant, or returns `None` if it has passed.
fn instant_at(ns: u64) -> Option<Instant> {
    let left = ns.checked_sub(monotonic_ns()).map(Duration::from_nanos)?;
    Some(Instant::now() + left)
}

impl Side {
    fn open(setup: &Setup, longest: u32) -> Result<Side> {
        let bind = SocketAddr::new(setup.address, setup.udp_port);
        match setup.protocol {
            Protocol::Homa => {
                let host = Host::builder()
                    .config(homa_config(setup, bind, longest)?)
                    .bind()
                    .with_context(|| format!("cannot make a Homa host at {bind}"))?;
                let served = Arc::new(AtomicU64::new(0));
                if setup.is_one_thread() {
                    let one_thread = Some(OneThread::start(&host, setup.messages.one_way, &served)?);
                    return Ok(Side::Homa { host: Arc::new(host), one_thread, served });
                }
                for port in 0..setup.threads.server_ports {
                    serve_homa(&host, port, setup.answering_threads(), setup.messages.one_way, &served)?;
                }
                Ok(Side::Homa { host: Arc::new(host), one_thread: None, served })
            }
            Protocol::Tcp => {
                let config = EchoServerConfig {
                    bind,
                    ports: setup.threads.server_ports,
                    threads: setup.answering_threads() * setup.threads.server_ports,
                    poll: Duration::from_micros(setup.poll_us),
                    max_message: longest.max(100),
                    one_way: setup.messages.one_way,
                };
                Ok(Side::Tcp(TcpServer::start(config, setup.congestion)?))
            }
            _ => bail!("hosts of a rack support homa and tcp only"),
        }
    }

    /// Lets the links receive packets, if the host is single-threaded.
    fn claim_receiver(&self) -> Option<ReceiverClaim<'_>> {
        match self {
            Side::Homa { one_thread, .. } => one_thread.as_ref().map(OneThread::claim_receiver),
            Side::Tcp(_) => None,
        }
    }

    /// Waits until `to`. Returns this process's scheduling statistics and the message bytes received, both
    /// between `from` and `to`. `payload` is the maximum payload of a packet.
    fn watch(&self, payload: u64, from: Instant, to: Instant) -> (Scheduled, u64) {
        let seen = || (Scheduled::of(std::process::id()), self.received(payload));
        thread::sleep(from.saturating_duration_since(Instant::now()));
        let before = seen();
        thread::sleep(to.saturating_duration_since(Instant::now()));
        let after = seen();
        (after.0.since(before.0), after.1.saturating_sub(before.1))
    }

    /// Returns the message bytes received so far. Duplicate Homa packets are excluded, on the assumption that
    /// each is full.
    fn received(&self, payload: u64) -> u64 {
        match self {
            Side::Homa { host, .. } => {
                let seen = host.metrics().endpoint;
                seen.data_bytes_received.saturating_sub(seen.drop_duplicate * payload)
            }
            Side::Tcp(_) => frame::read_bytes(),
        }
    }
}

/// Returns the configuration of a Homa host.
///
/// # Errors
/// The settings contradict each other; the error names them.
pub fn homa_config(setup: &Setup, bind: SocketAddr, longest: u32) -> Result<HostConfig> {
    let mut config = host_config(setup.driver, bind, longest, Duration::from_micros(setup.poll_us));
    setup.host.apply(&mut config);
    // The minimum number of bytes in flight is a number of packets, each as long as the link permits.
    let max_packet = setup.mtu.saturating_sub(UDP_IP);
    let protocol = homa_proto::Config { max_packet, ..std::mem::take(&mut config.protocol) };
    let mut protocol = match setup.host.link_mbps {
        Some(mbps) => protocol.on_link(mbps),
        None => protocol,
    };
    if let Some(bytes) = setup.port_bytes {
        protocol = protocol.through_port(bytes);
    }
    let max_nic_backlog_ns = protocol.max_nic_backlog_ns.max(LATE_NS);
    config.protocol = homa_proto::Config { max_nic_backlog_ns, max_resends: PATIENT_RESENDS, ..protocol };
    setup.recording.apply(&mut config);
    config.endpoint_policy = setup.endpoint_policy.as_deref().map(str::parse).transpose()?;
    config.udp.max_segmented_bytes = setup.max_segmented_bytes.unwrap_or(config.udp.max_segmented_bytes);
    on_device(&mut config, Some(HOST_DEVICE), None, setup.xdp_mode);
    for (name, value) in &setup.settings {
        set_field(&mut config.protocol, name, value).map_err(|error| anyhow!("{error}"))?;
    }
    config.protocol.validate()?;
    Ok(config)
}
