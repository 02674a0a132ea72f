//! The servers of a bench: processes of its own on this machine, or remote ones.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use homa::ServerAddr;
use homa_metrics::MetricsAddr;
use homa_report::output::make_directory;

use super::options::RemoteServer;
use crate::addresses::{FIRST_HOMA_PORT, bind_at, offset};
use crate::compare::plan::Plan;
use crate::compare::{CpuSplit, Placement};
use crate::driver::Driver;
use crate::protocol::Protocol;
use crate::recording::file_in;
use crate::server::{Report, ServerOptions, ServerProcess};

/// Where requests go, and the processes that were started for it. Dropping it ends them.
pub struct Servers {
    /// Every Homa server port of every server.
    pub homa: Vec<ServerAddr>,
    /// Every server port of the others, of every server.
    others: Vec<(Protocol, SocketAddr)>,
    /// Where Homa's server of this machine tells its metrics, if it was asked to.
    pub metrics: Option<String>,
    children: Vec<ServerProcess>,
}

impl Servers {
    /// Starts a process per protocol, so that each protocol's time on the processors is its own; or names remote servers.
    /// Homa is always among them: slowdown is measured against it.
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
            Placement::Apart => CpuSplit::apart()?,
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

    /// Every server port of a protocol, other than Homa, of every server.
    pub fn addrs(&self, protocol: Protocol) -> Vec<SocketAddr> {
        self.others.iter().filter(|(other, _)| *other == protocol).map(|(_, addr)| *addr).collect()
    }

    /// The process that serves this protocol; `None` if it is not ours.
    pub fn pid(&self, protocol: Protocol) -> Option<u32> {
        self.children.iter().find(|child| child.protocol() == protocol).map(ServerProcess::pid)
    }

    /// Ends our processes in order and tells how many requests each ran; nothing for remote servers.
    pub fn finish(&mut self) -> Result<Vec<(Protocol, u64)>> {
        self.children.drain(..).map(ServerProcess::finish).collect()
    }
}

/// The servers of a plan on this machine.
fn options(plan: &Plan, protocol: Protocol) -> ServerOptions {
    let from = &plan.options;
    let ip = match (protocol, from.driver) {
        // Over raw IP an address is a host, and Homa's is one.
        (Protocol::Udp, Driver::Raw) => Ipv4Addr::new(127, 0, 1, 1),
        _ => Ipv4Addr::LOCALHOST,
    };
    let is_homa = protocol == Protocol::Homa;
    ServerOptions {
        protocols: vec![protocol],
        driver: from.driver,
        bind: SocketAddr::from((ip, 0)),
        ports: from.server_ports,
        threads: from.server_threads,
        endpoints: from.endpoints,
        poll: plan.poll(),
        wake_order: from.wake_order,
        batch_cap: from.batch_cap,
        max_message: plan.workload.max_bytes(),
        link_mbps: from.link_mbps,
        one_way: from.one_way,
        metrics: from.metrics.as_ref().filter(|_| is_homa).map(MetricsAddr::beside),
        trace: from.trace.clone(),
        trace_file: from.trace_dir.as_deref().filter(|_| is_homa).map(|dir| file_in(dir, "server")),
        ..ServerOptions::default()
    }
}
