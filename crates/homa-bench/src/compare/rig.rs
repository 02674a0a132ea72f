//! The running bench: servers, client ports, and the unloaded round trips.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use homa_metrics::Exporter;
use homa_report::progress::Progress;

use super::homa_clients;
use crate::addresses::bare_client_bind;
use crate::compare::plan::Plan;
use crate::compare::servers::Servers;
use crate::cpu;
use crate::engine::link::{Answer, Link};
use crate::engine::load::{self, IdleBehaviour, LoadSpec, Pace};
use crate::engine::pattern::Pattern;
use crate::engine::rtt::{self, RttTable};
use crate::engine::tally::Tally;
use crate::hosts::Hosts;
use crate::peers::{self, PeerLinkConfig};
use crate::protocol::Protocol;
use crate::raw_baseline::client::{RawBaselineLink, RawBaselineLinkConfig};
use crate::tcp::client::{TcpLink, TcpLinkConfig};

/// Maximum time for measuring unloaded round trips.
const UNLOADED_BUDGET: Duration = Duration::from_millis(2_500);

/// Running servers, and client ports that are connected to them.
pub struct Rig<'a> {
    pub plan: &'a Plan,
    pub progress: Progress,
    servers: Servers,
    pattern: Pattern,
    unloaded: RttTable,
    sides: Vec<Side>,
    /// Dropping the exporter removes its socket.
    _exporter: Option<Exporter>,
}

/// The client ports of one protocol, and the number of requests sent.
struct Side {
    protocol: Protocol,
    links: Vec<Box<dyn Link>>,
    sent: Arc<AtomicU64>,
}

impl<'a> Rig<'a> {
    /// Starts the servers or looks up the remote servers, measures unloaded Homa, and opens all client ports.
    pub fn start(plan: &'a Plan, mut progress: Progress) -> Result<Rig<'a>> {
        let watched = Hosts::default();
        let exporter = export(plan, &watched)?;
        progress.step("starting the servers", Duration::from_millis(100));
        let servers = Servers::start(plan)?;
        if let Some(url) = &servers.metrics {
            print_to_stderr(&format!("metrics of the server {url}"));
        }
        let pattern = Pattern::new(plan.workload.max_bytes(), plan.seed, plan.options.one_way);
        let homa_sent = Arc::new(AtomicU64::new(0));
        let unloaded = measure_unloaded(plan, &servers, &pattern, &homa_sent, &watched, &mut progress)?;
        let mut sides = Vec::new();
        for &protocol in &plan.protocols {
            let sent = match protocol {
                Protocol::Homa => Arc::clone(&homa_sent),
                _ => Arc::default(),
            };
            let links = match protocol {
                Protocol::Homa => homa_clients::open(plan, &servers.homa, &watched)?,
                Protocol::Tcp => open_tcp(plan, &servers)?,
                Protocol::Grpc | Protocol::Quic => open_peers(plan, &servers, protocol)?,
                Protocol::Udp => open_bare(plan, &servers)?,
            };
            let count = |link| Box::new(CountingLink { link, sent: Arc::clone(&sent) }) as Box<dyn Link>;
            sides.push(Side { protocol, links: links.into_iter().map(count).collect(), sent });
        }
        Ok(Rig { plan, progress, servers, pattern, unloaded, sides, _exporter: exporter })
    }

    /// Estimates how long [`Rig::start`] takes.
    pub fn start_time(plan: &Plan) -> Duration {
        Duration::from_millis(100) + unloaded_budget(plan)
    }

    /// Returns Homa's unloaded round trips, the baseline for slowdown.
    pub fn unloaded(&self) -> &RttTable {
        &self.unloaded
    }

    /// Runs one slice of load. Slices with the same `number` have the same arrivals, sizes and servers.
    pub fn slice(
        &mut self,
        protocol: Protocol,
        pace: Pace,
        measured: Duration,
        number: u64,
        text: &str,
    ) -> Result<Tally> {
        let Rig { plan, progress, servers, pattern, unloaded, sides, .. } = self;
        let side = sides.iter_mut().find(|side| side.protocol == protocol);
        let side = side.with_context(|| format!("{} is not part of this bench", protocol.title()))?;
        let warmup = plan.warmup.min(measured / 5);
        let spec = LoadSpec {
            workload: &plan.workload,
            pace,
            ports: &plan.ports,
            servers: match protocol {
                Protocol::Homa => servers.homa.len(),
                _ => servers.addrs(protocol).len(),
            },
            warmup,
            measured,
            seed: plan.seed.wrapping_add(number << 32),
            pattern,
            unloaded,
            start: None,
            idle: IdleBehaviour::Poll,
            keep_samples: false,
        };
        progress.step(text, warmup + measured);
        let processes = [Some(std::process::id()), servers.pid(protocol)];
        let busy = || processes.into_iter().flatten().map(cpu::time_of).sum::<Duration>();
        load::run(&spec, &mut side.links, |window| {
            progress.sleep_until(window.start, window.from);
            let before = busy();
            progress.sleep_until(window.start, window.to);
            Ok(busy().saturating_sub(before))
        })
    }

    /// Ends the servers. Returns for each protocol by how much the number of handled requests exceeds the
    /// number of requests sent. Remote servers are left out, because they may have other clients.
    pub fn finish(mut self) -> Result<Vec<(Protocol, u64)>> {
        let sent: Vec<_> = self.sides.drain(..).map(|side| (side.protocol, side.sent)).collect();
        let served = self.servers.finish()?;
        let sent = |protocol| sent.iter().find(|(other, _)| *other == protocol).map(|(_, sent)| sent);
        let too_many = served.into_iter().filter_map(|(protocol, served)| {
            Some((protocol, served.saturating_sub(sent(protocol)?.load(Ordering::Relaxed))))
        });
        Ok(too_many.collect())
    }
}

/// If the options name an address for metrics, serves the metrics of the client hosts there and prints the
/// address.
fn export(plan: &Plan, watched: &Hosts) -> Result<Option<Exporter>> {
    let Some(addr) = &plan.options.metrics else { return Ok(None) };
    let hosts = watched.clone();
    let exporter = Exporter::start(addr, move || Ok(hosts.text()))?;
    print_to_stderr(&format!("metrics {}", exporter.url()));
    Ok(Some(exporter))
}

/// Writes a line to standard error, since standard output is reserved for results. Ignores errors: the bench
/// must not end because standard error is closed.
fn print_to_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn unloaded_budget(plan: &Plan) -> Duration {
    UNLOADED_BUDGET.min(plan.slice * plan.slices / 2)
}

fn measure_unloaded(
    plan: &Plan,
    servers: &Servers,
    pattern: &Pattern,
    sent: &Arc<AtomicU64>,
    watched: &Hosts,
    progress: &mut Progress,
) -> Result<RttTable> {
    let budget = unloaded_budget(plan);
    let sizes = rtt::sizes(&plan.workload);
    progress.step("Homa: round trips without load, by size", budget);
    let mut link =
        CountingLink { link: homa_clients::open_one(plan, &servers.homa, watched)?, sent: Arc::clone(sent) };
    let mut done = 0;
    rtt::measure(&mut link, pattern, &sizes, budget, || {
        done += 1;
        progress.within(budget * done / (rtt::ROUNDS * sizes.len() as u32));
    })
    .context("Homa without load")
}

fn open_tcp(plan: &Plan, servers: &Servers) -> Result<Vec<Box<dyn Link>>> {
    let open = |&ports: &usize| {
        TcpLink::connect(TcpLinkConfig {
            servers: servers.addrs(Protocol::Tcp),
            ports,
            receivers: usize::from(plan.options.port_receivers),
            poll: plan.poll(),
            max_message: plan.workload.max_bytes().max(100),
            one_way: plan.options.one_way,
            congestion: None,
            precise: false,
        })
        .map(|link| Box::new(link) as Box<dyn Link>)
    };
    plan.ports.iter().map(open).collect()
}

fn open_peers(plan: &Plan, servers: &Servers, protocol: Protocol) -> Result<Vec<Box<dyn Link>>> {
    let open = |&ports: &usize| {
        let max_message = plan.workload.max_bytes().max(100);
        let config =
            PeerLinkConfig { servers: servers.addrs(protocol), ports, poll: plan.poll(), max_message };
        peers::connect(protocol, &config)
    };
    plan.ports.iter().map(open).collect()
}

fn open_bare(plan: &Plan, servers: &Servers) -> Result<Vec<Box<dyn Link>>> {
    let servers = servers.addrs(Protocol::Udp);
    let to = servers.first().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |server| server.ip());
    let mut number = 0;
    let mut open = |&ports: &usize| {
        let binds = (0..ports).map(|_| {
            number += 1;
            bare_client_bind(plan.options.driver, to, number)
        });
        RawBaselineLink::open(RawBaselineLinkConfig {
            driver: plan.options.driver,
            binds: binds.collect::<Result<_>>()?,
            servers: servers.clone(),
            poll: plan.poll(),
            max_message: plan.workload.max_bytes().max(100),
            offload: true,
        })
        .map(|link| Box::new(link) as Box<dyn Link>)
    };
    plan.ports.iter().map(&mut open).collect()
}

/// Counts the requests that a link accepted.
struct CountingLink {
    link: Box<dyn Link>,
    sent: Arc<AtomicU64>,
}

impl Link for CountingLink {
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        self.link.submit(port, server, cookie, request)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.link.flush()
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        self.link.receive(wait, answers)
    }
}
