//! The servers of a bench: child processes on this machine, or remote servers.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use homa::ServerAddr;
use homa_metrics::MetricsAddr;
use homa_report::output::make_directory;

use super::options::RemoteServer;
use crate::addresses::{FIRST_HOMA_PORT, bind_at, offset};
use crate::compare::plan::Plan;
use crate::compare::{CpuSplit, Placement};
use crate::protocol::Protocol;
use crate::recording::file_in;
use crate::server::{Report, ServerOptions, ServerProcess};

/// The addresses of the servers, and the server processes started by this bench. Dropping this ends the
/// processes.
pub struct Servers {
    /// All Homa server ports of all servers.
    pub homa: Vec<ServerAddr>,
    /// All server ports of the other protocols, of all servers.
    others: Vec<(Protocol, SocketAddr)>,
    /// The address of the Homa server's metrics, if they are served on this machine.
    pub metrics: Option<String>,
    children: Vec<ServerProcess>,
}

impl Servers {
    /// Starts one process per protocol, so that processor time is counted per protocol. If the servers are
    /// remote, only records their addresses. Homa is always included, since it is the baseline for slowdown.
    pub fn start(plan: &Plan) -> Result<Servers> {
        if let Some(directory) = &plan.options.trace_dir {
            make_directory(directory)?;
        }
        let (homa, others, children) = (Vec::new(), Vec::new(), Vec::new());
        let mut servers = Servers { homa, others, metrics: None, children };
        if !plan.options.servers.is_empty() {
            servers.name_remote(plan)?;
            return Ok(servers);
        }
        let placement = match plan.options.placement {
            Placement::Apart => CpuSplit::split_cpus()?,
            Placement::Free => None,
        };
        if let Some(placement) = &placement {
            placement.enter_servers()?;
        }
        for protocol in Protocol::ALL {
            if protocol == Protocol::Homa || plan.protocols.contains(&protocol) {
                let (process, ports) = ServerProcess::start(&options(plan, protocol))?;
                servers.children.push(process);
                for port in ports {
                    match port {
                        Report::Homa(addr) => servers.homa.push(addr),
                        Report::Socket(protocol, addr) => servers.others.push((protocol, addr)),
                        Report::Metrics(url) => servers.metrics = Some(url),
                        Report::Ready | Report::Served(..) => {}
                    }
                }
            }
        }
        if let Some(placement) = &placement {
            placement.enter_clients()?;
        }
        Ok(servers)
    }

    fn name_remote(&mut self, plan: &Plan) -> Result<()> {
        for &RemoteServer { addr: base, .. } in &plan.options.servers {
            for index in 0..plan.options.server_ports {
                self.homa.push(ServerAddr { host: base, port: FIRST_HOMA_PORT + index });
                for &protocol in plan.protocols.iter().filter(|&&protocol| protocol != Protocol::Homa) {
                    self.others.push((protocol, bind_at(offset(base, protocol)?, index)?));
                }
            }
        }
        Ok(())
    }

    /// Returns all server ports of a protocol other than Homa, of all servers.
    pub fn addrs(&self, protocol: Protocol) -> Vec<SocketAddr> {
        self.others.iter().filter(|(other, _)| *other == protocol).map(|(_, addr)| *addr).collect()
    }

    /// Returns the ID of the process that serves this protocol, or `None` if the server is remote.
    pub fn pid(&self, protocol: Protocol) -> Option<u32> {
        self.children.iter().find(|child| child.protocol() == protocol).map(ServerProcess::pid)
    }

    /// Ends the server processes in order. Returns the number of requests that each handled; empty for remote
    /// servers.
    pub fn finish(&mut self) -> Result<Vec<(Protocol, u64)>> {
        self.children.drain(..).map(ServerProcess::finish).collect()
    }
}

/// Returns the settings of the server process of a protocol.
fn options(plan: &Plan, protocol: Protocol) -> ServerOptions {
    let from = &plan.options;
    let ip = match (protocol, from.driver) {
        // Each address is a host of its own, and Homa's server has the default address.
        (Protocol::Udp, driver) if driver.shares_address() => Ipv4Addr::new(127, 0, 1, 1),
        _ => Ipv4Addr::LOCALHOST,
    };
    let is_homa = protocol == Protocol::Homa;
    ServerOptions {
        protocols: vec![protocol],
        driver: from.driver,
        bind: SocketAddr::from((ip, 0)),
        ports: from.server_ports,
        threads: from.server_threads,
        host: from.host,
        poll: plan.poll(),
        max_message: plan.workload.max_bytes(),
        one_way: from.one_way,
        metrics: from.metrics.as_ref().filter(|_| is_homa).map(MetricsAddr::for_child),
        trace: from.trace.clone(),
        trace_file: from.trace_dir.as_deref().filter(|_| is_homa).map(|dir| file_in(dir, "server")),
        ..ServerOptions::default()
    }
}
