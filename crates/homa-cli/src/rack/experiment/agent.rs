//! The process of an experiment in a host: client and server in one, with its own transport. It does what it is ordered on standard
//! input and says on standard output what came of it, and ends when standard input does.

use std::io::{self, BufRead, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use homa::{Host, ServerAddr};
use homa_workload::Workload;
use rustix::time::{ClockId, clock_gettime};

use super::orders::{Order, Reply, Setup, put_samples};
use crate::args::{Protocol, Truncation};
use crate::bench::cpu::Scheduled;
use crate::bench::homa_link;
use crate::bench::link::Link;
use crate::bench::load::{self, Idle, LoadSpec};
use crate::bench::pattern::Pattern;
use crate::bench::plan::workload_named;
use crate::bench::rtt::{self, RttTable};
use crate::bench::tally::Counted;
use crate::metrics::Seen;
use crate::rack::spec::HOST_DEVICE;
use crate::serve::{FIRST_HOMA_PORT, host_config, on_device, serve_homa};
use crate::sim::homa::set_field;
use crate::tcp::client::{TcpLink, TcpLinkConfig};
use crate::tcp::server::{TcpServer, TcpServerConfig};

/// A sleep that ends later than asked for by the kernel's usual slack would count as latency.
const TIMER_SLACK_NS: u64 = 1_000;

/// How much the uplink is given ahead, at least: a thread that sleeps until the link wants the next packet wakes some 50 us late where
/// hosts share processors, and the link must not run dry meanwhile.
const LATE_NS: u64 = 100_000;

/// RESENDs before a peer counts as gone, 5 s of them: a process that got no processor for half a second is still there, and a dead one is
/// noticed by who started it.
const PATIENT_RESENDS: u32 = 100;

/// Until its input ends.
pub fn run() -> Result<()> {
    // Threads inherit it. Where it is refused, everything is a little later.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
    let mut lines = io::stdin().lock().lines();
    let Some(setup) = lines.next() else { return Ok(()) };
    let setup: Setup =
        serde_json::from_str(&setup.context("no setup")?).context("the setup makes no sense")?;
    let mut agent = Agent::new(setup)?;
    say(&Reply::Ready, &[])?;
    for line in lines {
        let order = serde_json::from_str(&line.context("no order")?).context("an order makes no sense")?;
        agent.obey(order)?;
    }
    Ok(())
}

/// One line, and what follows it.
fn say(reply: &Reply, more: &[u8]) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let text = serde_json::to_string(reply)?;
    writeln!(out, "{text}")
        .and_then(|()| out.write_all(more))
        .and_then(|()| out.flush())
        .context("nobody listens")
}

struct Agent {
    setup: Setup,
    workload: Workload,
    pattern: Pattern,
    side: Side,
    link: Option<Box<dyn Link>>,
    /// What the link chooses from for each RPC.
    choices: usize,
}

/// The server, and what clients are made on.
enum Side {
    Homa(Arc<Host>),
    /// Its threads live as long as the process.
    Tcp(TcpServer),
}

impl Agent {
    fn new(setup: Setup) -> Result<Agent> {
        let cut = setup.max_message.map_or(Truncation::Off, Truncation::At);
        let workload = match setup.workload.parse() {
            Ok(size) => Workload::fixed(size)?,
            Err(_) => workload_named(&setup.workload, cut)?,
        };
        let pattern = Pattern::new(workload.max_bytes().max(setup.longest), setup.seed, setup.one_way);
        let side = Side::open(&setup, workload.max_bytes().max(setup.longest))?;
        Ok(Agent { setup, workload, pattern, side, link: None, choices: 0 })
    }

    fn poll(&self) -> Duration {
        Duration::from_micros(self.setup.poll_us)
    }

    fn obey(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Open { peers } => {
                self.link = None;
                self.choices = peers.len() * usize::from(self.setup.connections);
                self.link = if peers.is_empty() { None } else { Some(self.open(&peers)?) };
                say(&Reply::Opened, &[])
            }
            Order::Unloaded { sizes, budget_ms } => {
                let link = self.link.as_mut().context("no server was named")?;
                let sizes = if sizes.is_empty() { rtt::sizes(&self.workload) } else { sizes };
                let budget = Duration::from_millis(budget_ms);
                let table = rtt::measure(link.as_mut(), &self.pattern, &sizes, budget, || ())?;
                say(&Reply::Unloaded { points: table.points().to_vec() }, &[])
            }
            Order::Load { .. } => self.load(&order),
            Order::Metrics => {
                let seen = match &self.side {
                    Side::Homa(host) => serde_json::to_value(Seen::of(host))?,
                    Side::Tcp(server) => serde_json::json!({ "served": server.served() }),
                };
                say(&Reply::Metrics { seen }, &[])
            }
        }
    }

    fn open(&self, peers: &[IpAddr]) -> Result<Box<dyn Link>> {
        let setup = &self.setup;
        // The choice of a server is also that of a connection, so that both protocols make the same choices.
        let each = peers.iter().flat_map(|&peer| (0..setup.connections).map(move |_| peer));
        match &self.side {
            Side::Homa(host) => {
                let at = |peer| ServerAddr {
                    host: SocketAddr::new(peer, setup.port_at_peer()),
                    port: FIRST_HOMA_PORT,
                };
                homa_link::open_on(host, 1, &each.map(at).collect::<Vec<_>>(), 0, self.poll())
            }
            Side::Tcp(_) => {
                let link = TcpLink::connect(TcpLinkConfig {
                    servers: each.map(|peer| SocketAddr::new(peer, setup.udp_port)).collect(),
                    ports: 1,
                    receivers: 0,
                    poll: self.poll(),
                    max_message: self.workload.max_bytes().max(setup.longest).max(100),
                    one_way: setup.one_way,
                    congestion: setup.congestion,
                    precise: true,
                })?;
                Ok(Box::new(link))
            }
        }
    }

    fn load(&mut self, order: &Order) -> Result<()> {
        let Order::Load { pace, start_ns, warmup_ns, measured_ns, seed } = *order else { bail!("no load") };
        let unloaded = RttTable::new(vec![(1, 1)]);
        let mut tally = None;
        let mut usage = Scheduled::default();
        if let (Some(pace), Some(link)) = (pace, &mut self.link) {
            let spec = LoadSpec {
                workload: &self.workload,
                pace: pace.into(),
                ports: &[1],
                servers: self.choices,
                warmup: Duration::from_nanos(warmup_ns),
                measured: Duration::from_nanos(measured_ns),
                seed,
                pattern: &self.pattern,
                unloaded: &unloaded,
                start: Some(instant_at(start_ns)?),
                idle: Idle::Sleep,
                keep_samples: true,
            };
            let links = std::slice::from_mut(link);
            tally = Some(load::run(&spec, links, |window| {
                usage = watch(window.from, window.to);
                Ok(usage.ran)
            })?);
        } else {
            let from = instant_at(start_ns)? + Duration::from_nanos(warmup_ns);
            usage = watch(from, from + Duration::from_nanos(measured_ns));
        }
        let mut bytes = Vec::new();
        let counted = tally.map_or_else(Counted::default, |tally| {
            put_samples(&tally.samples, &mut bytes);
            tally.counted
        });
        say(&Reply::Loaded { counted, usage: usage.into(), bytes: bytes.len() as u64 }, &bytes)
    }
}

/// What the scheduler did with this process between two moments.
fn watch(from: Instant, to: Instant) -> Scheduled {
    let us = std::process::id();
    thread::sleep(from.saturating_duration_since(Instant::now()));
    let before = Scheduled::of(us);
    thread::sleep(to.saturating_duration_since(Instant::now()));
    Scheduled::of(us).since(before)
}

/// Now, on the clock that all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn instant_at(ns: u64) -> Result<Instant> {
    let left = ns.checked_sub(monotonic_ns()).map(Duration::from_nanos);
    left.map(|left| Instant::now() + left).ok_or_else(|| {
        anyhow!("an order came after the moment it was for: the processors are too busy, try fewer --hosts")
    })
}

impl Side {
    fn open(setup: &Setup, longest: u32) -> Result<Side> {
        let bind = SocketAddr::new(setup.address, setup.udp_port);
        match setup.protocol {
            Protocol::Homa => {
                let poll = Duration::from_micros(setup.poll_us);
                let mut config = host_config(setup.driver, bind, longest, poll);
                let protocol = std::mem::take(&mut config.protocol).on_link(setup.link_mbps);
                let max_nic_backlog_ns = protocol.max_nic_backlog_ns.max(LATE_NS);
                config.protocol =
                    homa_proto::Config { max_nic_backlog_ns, max_resends: PATIENT_RESENDS, ..protocol };
                on_device(&mut config, Some(HOST_DEVICE), None, setup.xdp_mode);
                for (name, value) in &setup.settings {
                    set_field(&mut config.protocol, name, value).map_err(|error| anyhow!("{error}"))?;
                }
                let host =
                    Host::bind(config).with_context(|| format!("cannot make a Homa host at {bind}"))?;
                let served = Arc::new(AtomicU64::new(0));
                serve_homa(&host, 0, setup.server_threads, setup.one_way, &served)?;
                Ok(Side::Homa(Arc::new(host)))
            }
            Protocol::Tcp => Ok(Side::Tcp(TcpServer::start(TcpServerConfig {
                bind,
                ports: 1,
                threads: setup.server_threads,
                poll: Duration::from_micros(setup.poll_us),
                max_message: longest.max(100),
                one_way: setup.one_way,
                congestion: setup.congestion,
            })?)),
            _ => bail!("hosts of a rack speak homa or tcp"),
        }
    }
}
