//! The servers of a bench: processes of its own on this machine, or remote ones.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use homa::ServerAddr;
use homa_metrics::MetricsAddr;
use homa_report::output::make_directory;
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;

use super::placement::{CpuSplit, Placement};
use super::plan::Plan;
use crate::addr;
use crate::bench::driver::Driver;
use crate::bench::protocol::Protocol;
use crate::recording::file_in;
use crate::serve::{FIRST_HOMA_PORT, Report, bind_at, offset};

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
        if let Some(directory) = &plan.args.trace {
            make_directory(directory)?;
        }
        let (homa, others, children) = (Vec::new(), Vec::new(), Vec::new());
        let mut servers = Servers { homa, others, metrics: None, children };
        if !plan.args.servers.is_empty() {
            servers.name_remote(plan)?;
            return Ok(servers);
        }
        let placement = match plan.args.placement {
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
        self.children.iter().find(|child| child.protocol == protocol).map(ServerProcess::pid)
    }

    /// Ends our processes in order and tells how many requests each ran; nothing for remote servers.
    pub fn finish(&mut self) -> Result<Vec<(Protocol, u64)>> {
        self.children.drain(..).map(ServerProcess::finish).collect()
    }
}

/// The servers of a plan on this machine.
fn options(plan: &Plan, protocol: Protocol) -> ServerOptions {
    let args = &plan.args;
    let ip = match (protocol, args.driver) {
        // Over raw IP an address is a host, and Homa's is one.
        (Protocol::Udp, Driver::Raw) => Ipv4Addr::new(127, 0, 1, 1),
        _ => Ipv4Addr::LOCALHOST,
    };
    ServerOptions {
        protocol,
        driver: args.driver,
        bind: SocketAddr::from((ip, 0)),
        ports: args.server_ports,
        threads: args.server_threads,
        endpoints: args.endpoints,
        poll: plan.poll(),
        wake_order: args.wake_order,
        batch_cap: args.batch_cap,
        max_message: plan.workload.max_bytes(),
        link_mbps: args.link_mbps,
        one_way: args.one_way,
        no_offload: false,
        low_latency: false,
        metrics: args.metrics.as_ref().filter(|_| protocol == Protocol::Homa).map(MetricsAddr::beside),
        recording: args.recording.as_args(),
        trace: args.trace.as_deref().filter(|_| protocol == Protocol::Homa).map(|dir| file_in(dir, "server")),
    }
}

/// What a server process is asked for.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// What it serves.
    pub protocol: Protocol,
    /// What carries Homa's packets, and bare ones.
    pub driver: Driver,
    /// Where it binds.
    pub bind: SocketAddr,
    /// Server ports.
    pub ports: u16,
    /// Threads.
    pub threads: u16,
    /// Endpoints of the Homa host.
    pub endpoints: u16,
    /// How long an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Which of its sleeping threads is woken.
    pub wake_order: WakeOrder,
    /// Most packets that Homa takes at a time.
    pub batch_cap: BatchCap,
    /// Largest request in bytes.
    pub max_message: u32,
    /// Speed of the link as Homa takes it.
    pub link_mbps: Option<u32>,
    /// Answers have 100 bytes.
    pub one_way: bool,
    /// Bare packets go one by one: the kernel cuts and merges nothing.
    pub no_offload: bool,
    /// Homa keeps the processors out of deep sleep while RPCs are in flight.
    pub low_latency: bool,
    /// Where Homa tells its metrics.
    pub metrics: Option<MetricsAddr>,
    /// How Homa records its time trace, as arguments.
    pub recording: Vec<String>,
    /// The file for it; `None`: it is not written.
    pub trace: Option<PathBuf>,
}

/// A child that serves one protocol. It ends when its standard input does, so it cannot outlive us.
pub struct ServerProcess {
    protocol: Protocol,
    process: Child,
    reports: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts one and returns it with its server ports, once they are open.
    pub fn start(options: &ServerOptions) -> Result<(ServerProcess, Vec<Report>)> {
        let program = std::env::current_exe().context("cannot find this program to start a server")?;
        let mut command = Command::new(program);
        command.args(["serve", "--until-stdin-ends", "--protocol", options.protocol.name()]);
        command.arg(format!("--bind={}", options.bind));
        command.arg(format!("--driver={}", options.driver.name()));
        command.arg(format!("--server-ports={}", options.ports));
        command.arg(format!("--server-threads={}", options.threads));
        command.arg(format!("--endpoints={}", options.endpoints));
        command.arg(format!("--poll-us={}", options.poll.as_micros()));
        command.arg(format!("--wake-order={}", options.wake_order));
        command.arg(format!("--batch-cap={}", options.batch_cap));
        command.arg(format!("--max-message={}", options.max_message));
        if let Some(mbps) = options.link_mbps {
            command.arg(format!("--link-mbps={mbps}"));
        }
        if let Some(addr) = &options.metrics {
            command.arg(format!("--metrics={addr}"));
        }
        command.args(&options.recording);
        if let Some(path) = &options.trace {
            command.arg("--trace").arg(path);
        }
        let flags = [
            ("--one-way", options.one_way),
            ("--no-offload", options.no_offload),
            ("--low-latency", options.low_latency),
        ];
        for (name, wanted) in flags {
            if wanted {
                command.arg(name);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start a server process")?;
        let reports = process.stdout.take().context("the server process has no output")?;
        let mut server =
            ServerProcess { protocol: options.protocol, process, reports: BufReader::new(reports) };
        let mut ports = Vec::new();
        loop {
            match server.report()? {
                Some(Report::Ready) => return Ok((server, ports)),
                Some(Report::Served(..)) => bail!("the server process ended early"),
                Some(port) => ports.push(port),
                None => return Err(server.obituary()),
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
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

    /// Ends it and tells how many requests it ran.
    pub fn finish(mut self) -> Result<(Protocol, u64)> {
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
