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

/// The load of an open loop that names none, as a fraction of the slower protocol's maximum: queues form, and
/// both protocols still keep up.
const DEFAULT_LOAD: f64 = 0.5;

/// The way to choose the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Open loop at this load in 10^9 bits of request payload per second.
    Gbps(f64),
    /// Open loop at this fraction of the slower protocol's maximum.
    Fraction(f64),
    /// Closed loop with so many RPCs open for each client port.
    Outstanding(u32),
    /// No load of its own: only the maxima.
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
    /// The name in results.
    pub name: String,
    /// Address and port of its Homa host.
    pub addr: SocketAddr,
}

/// A comparison of protocols under one workload, over loopback or between machines.
#[derive(Clone, Debug)]
pub struct Options {
    /// Message sizes.
    pub workload: Workload,
    /// The way to choose the load.
    pub load: Load,
    /// The protocols. A Homa server runs in any case: slowdown is relative to Homa without load.
    pub protocols: Vec<Protocol>,
    /// The driver of Homa, and of bare packets.
    pub driver: Driver,
    /// Servers on other machines; none: this machine's own are started.
    pub servers: Vec<RemoteServer>,
    /// Client hosts, 1 to 64.
    pub clients: u16,
    /// Each Homa host.
    pub host: HostOptions,
    /// Client ports of each client host; `None`: 1 in a closed loop, else several.
    pub ports: Option<u16>,
    /// Server ports of each server.
    pub server_ports: u16,
    /// Threads of each protocol at servers of this machine.
    pub server_threads: u16,
    /// Threads for each client port that only receive; 0: the sending thread receives.
    pub port_receivers: u16,
    /// Responses have 100 bytes instead of the request's length.
    pub one_way: bool,
    /// Open RPCs for each client port at which an open loop waits.
    pub max_outstanding: u32,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// The processors of clients and servers.
    pub placement: Placement,
    /// Time of load for each protocol, 10 ms to a day.
    pub duration: Duration,
    /// Seed of arrivals, sizes and choices of servers.
    pub seed: u64,
    /// The address at which the metrics of the client hosts are served.
    pub metrics: Option<MetricsAddr>,
    /// How Homa records its time traces.
    pub trace: TraceSettings,
    /// The directory of the time traces; `None`: they are not written.
    pub trace_dir: Option<PathBuf>,
}

impl Options {
    /// Homa and TCP for 10 s under a workload, on loopback.
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
