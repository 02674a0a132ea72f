//! The options of a comparison.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homa_metrics::MetricsAddr;
use homa_workload::Workload;

use super::placement::Placement;
use crate::driver::Driver;
use crate::host_options::HostOptions;
use crate::protocol::Protocol;
use crate::recording::TraceSettings;
use crate::server::DEFAULT_POLL;

/// Load of an open loop if the options do not specify one, as a fraction of the slower protocol's maximum.
/// Queues form at this load, but both protocols still keep up.
const DEFAULT_LOAD: f64 = 0.5;

/// How the load is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Open loop at this load in Gbit/s of request payload.
    Gbps(f64),
    /// Open loop at this fraction of the slower protocol's maximum.
    Fraction(f64),
    /// Closed loop with this many open RPCs per client port.
    Outstanding(u32),
    /// No run under load: only the maxima are measured.
    FindMax,
}

impl Default for Load {
    fn default() -> Load {
        Load::Fraction(DEFAULT_LOAD)
    }
}

/// A server on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteServer {
    /// The server's name in results.
    pub name: String,
    /// Address and port of the server's Homa host.
    pub addr: SocketAddr,
}

/// A comparison of protocols under one workload, over loopback or between machines.
#[derive(Clone, Debug)]
pub struct Options {
    /// Message sizes.
    pub workload: Workload,
    /// How the load is chosen.
    pub load: Load,
    /// The protocols to measure. A Homa server runs in any case, because slowdown is relative to unloaded
    /// Homa.
    pub protocols: Vec<Protocol>,
    /// The driver of Homa, and of raw packets.
    pub driver: Driver,
    /// Servers on other machines. If there are none, servers are started on this machine.
    pub servers: Vec<RemoteServer>,
    /// Number of client hosts, 1 to 64.
    pub clients: u16,
    /// The settings of each Homa host.
    pub host: HostOptions,
    /// Number of client ports of each client host; `None`: 1 in a closed loop, else several.
    pub ports: Option<u16>,
    /// Number of server ports per server.
    pub server_ports: u16,
    /// Number of server threads per protocol, for servers on this machine.
    pub server_threads: u16,
    /// Number of threads per client port that only receive responses; 0: the sending thread receives them.
    pub port_receivers: u16,
    /// Whether responses are 100 bytes long instead of as long as the request.
    pub one_way: bool,
    /// Number of open RPCs per client port above which arrivals of an open loop wait.
    pub max_outstanding: u32,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// The processors of clients and servers.
    pub placement: Placement,
    /// Duration of the load for each protocol, 10 ms to a day.
    pub duration: Duration,
    /// Seed of arrivals, sizes and choices of servers.
    pub seed: u64,
    /// The address at which to serve the metrics of the client hosts.
    pub metrics: Option<MetricsAddr>,
    /// How Homa records its time traces.
    pub trace: TraceSettings,
    /// The directory of the time traces; `None`: no traces are written.
    pub trace_dir: Option<PathBuf>,
}

impl Options {
    /// Returns the options to compare Homa and TCP for 10 s under this workload, over loopback.
    pub fn new(workload: Workload) -> Options {
        Options {
            workload,
            load: Load::default(),
            protocols: vec![Protocol::Homa, Protocol::Tcp],
            driver: Driver::default(),
            servers: Vec::new(),
            clients: 1,
            host: HostOptions::default(),
            ports: None,
            server_ports: 1,
            server_threads: 1,
            port_receivers: 0,
            one_way: false,
            max_outstanding: 200,
            poll: DEFAULT_POLL,
            placement: Placement::Apart,
            duration: Duration::from_secs(10),
            seed: 1,
            metrics: None,
            trace: TraceSettings::default(),
            trace_dir: None,
        }
    }
}
