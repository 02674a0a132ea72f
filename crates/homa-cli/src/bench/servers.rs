//! The servers of a bench: processes of its own on this machine, or remote ones.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use homa::ServerAddr;

use super::placement::Placement;
use super::plan::Plan;
use crate::addr;
use crate::args::{Driver, Protocol};
use crate::serve::{FIRST_HOMA_PORT, Report, bind_at, offset};

/// Where requests go, and the processes that were started for it. Dropping it ends them.
pub struct Servers {
    /// Every Homa server port of every server.
    pub homa: Vec<ServerAddr>,
    /// Every server port of the others, of every server.
    others: Vec<(Protocol, SocketAddr)>,
    children: Vec<ServerProcess>,
}

impl Servers {
    /// Starts a process per protocol, so that each protocol's time on the processors is its own; or names remote servers.
    /// Homa is always among them: slowdown is measured against it.
    pub fn start(plan: &Plan) -> Result<Servers> {
        let mut servers = Servers { homa: Vec::new(), others: Vec::new(), children: Vec::new() };
        if !plan.args.servers.is_empty() {
            servers.name_remote(plan)?;
            return Ok(servers);
        }
        let placement = match plan.args.placement {
            crate::args::Placement::Apart => Placement::apart()?,
            crate::args::Placement::Free => None,
        };
        if let Some(placement) = &placement {
            placement.enter_servers()?;
        }
        for protocol in Protocol::ALL {
            if protocol == Protocol::Homa || plan.protocols.contains(&protocol) {
                let process = ServerProcess::start(plan, protocol, &mut servers)?;
                servers.children.push(process);
            }
        }
        if let Some(placement) = &placement {
            placement.enter_clients()?;
        }
        Ok(servers)
    }

    fn name_remote(&mut self, plan: &Plan) -> Result<()> {
        for name in &plan.args.servers {
            let base = addr::resolve(name, homa::DEFAULT_UDP_PORT)?;
            for index in 0..plan.args.server_ports {
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
        self.children.iter().find(|child| child.protocol == protocol).map(|child| child.process.id())
    }

    /// Ends our processes in order and tells how many requests each ran; nothing for remote servers.
    pub fn finish(&mut self) -> Result<Vec<(Protocol, u64)>> {
        self.children.drain(..).map(ServerProcess::finish).collect()
    }
}

/// A child that serves one protocol. It ends when its standard input does, so it cannot outlive us.
struct ServerProcess {
    protocol: Protocol,
    process: Child,
    reports: BufReader<ChildStdout>,
}

impl ServerProcess {
    fn start(plan: &Plan, protocol: Protocol, servers: &mut Servers) -> Result<ServerProcess> {
        let program = std::env::current_exe().context("cannot find this program to start a server")?;
        let args = &plan.args;
        let mut command = Command::new(program);
        let bind = match (protocol, args.driver) {
            // Over raw IP an address is a host, and Homa's is one.
            (Protocol::Udp, Driver::Raw) => "127.0.1.1:0",
            _ => "127.0.0.1:0",
        };
        command.args(["serve", "--until-stdin-ends", "--bind", bind, "--protocol", protocol.name()]);
        command.arg(format!("--driver={}", args.driver.name()));
        command.arg(format!("--server-ports={}", args.server_ports));
        command.arg(format!("--server-threads={}", args.server_threads));
        command.arg(format!("--poll-us={}", args.poll_us));
        command.arg(format!("--max-message={}", plan.workload.max_bytes()));
        if let Some(mbps) = args.link_mbps {
            command.arg(format!("--link-mbps={mbps}"));
        }
        if args.one_way {
            command.arg("--one-way");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start a server process")?;
        let reports = process.stdout.take().context("the server process has no output")?;
        let mut server = ServerProcess { protocol, process, reports: BufReader::new(reports) };
        loop {
            match server.report()? {
                Some(Report::Homa(addr)) => servers.homa.push(addr),
                Some(Report::Socket(protocol, addr)) => servers.others.push((protocol, addr)),
                Some(Report::Ready) => return Ok(server),
                Some(Report::Served(..)) => bail!("the server process ended early"),
                None => return Err(server.obituary()),
            }
        }
    }

    /// The next line of the child; `None` at its end.
    fn report(&mut self) -> Result<Option<Report>> {
        let mut line = String::new();
        self.reports.read_line(&mut line).context("cannot read from the server process")?;
        if line.is_empty() { Ok(None) } else { line.trim_end().parse().map(Some) }
    }

    /// Why it ended early, in its own words.
    fn obituary(&mut self) -> anyhow::Error {
        let mut words = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        let words = words.trim().trim_start_matches("homa:").trim();
        anyhow!("the server process failed: {}", if words.is_empty() { "it said nothing" } else { words })
    }

    fn finish(mut self) -> Result<(Protocol, u64)> {
        drop(self.process.stdin.take());
        let served = match self.report()? {
            Some(Report::Served(protocol, count)) if protocol == self.protocol => count,
            _ => return Err(self.obituary()),
        };
        Ok((self.protocol, served))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill, only to reap.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
