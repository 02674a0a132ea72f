//! The options of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use homa_metrics::MetricsAddr;
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::driver::{Driver, XdpMode};
use crate::host_options::HostOptions;
use crate::protocol::Protocol;
use crate::recording::TraceSettings;
use crate::workloads::DEFAULT_MAX_MESSAGE;

/// Default time that an idle thread polls. It is long enough that a thread rarely sleeps during a short RPC
/// between two busy hosts, and short enough that an idle host costs little.
pub const DEFAULT_POLL: Duration = Duration::from_micros(50);

/// The servers of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerOptions {
    /// The protocols to serve.
    pub protocols: Vec<Protocol>,
    /// The driver of Homa, and of raw packets.
    pub driver: Driver,
    /// The network device, for drivers that have one; `None`: the device that has the bind address.
    pub interface: Option<String>,
    /// The device's receive queues to use, for AF_XDP; `None`: all.
    pub queues: Option<Vec<u32>>,
    /// Where the kernel runs the AF_XDP program.
    pub xdp_mode: XdpMode,
    /// Homa's bind address, with the first port. The ports of other protocols follow at an offset of
    /// [`Protocol::port_offset`].
    pub bind: SocketAddr,
    /// Number of server ports of each protocol, at least 1.
    pub ports: u16,
    /// Number of threads of each protocol. Each Homa port has at least one.
    pub threads: u16,
    /// The Homa host.
    #[serde(flatten)]
    pub host: HostOptions,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Maximum length of a request in bytes.
    pub max_message: u32,
    /// Whether responses are 100 bytes long instead of as long as the request.
    pub one_way: bool,
    /// Whether the kernel segments and merges runs of raw packets of equal length.
    pub offload: bool,
    /// Whether Homa keeps the processors out of deep sleep while RPCs are in flight.
    pub low_latency: bool,
    /// The address at which to serve Homa's metrics.
    #[serde(with = "as_text::option")]
    pub metrics: Option<MetricsAddr>,
    /// How Homa records its time trace.
    pub trace: TraceSettings,
    /// The file of the time trace; `None`: no file is written.
    pub trace_file: Option<PathBuf>,
}

impl Default for ServerOptions {
    /// Returns the options for Homa over UDP on any free port of the loopback address, with one server port
    /// and one thread.
    fn default() -> ServerOptions {
        ServerOptions {
            protocols: vec![Protocol::Homa],
            driver: Driver::default(),
            interface: None,
            queues: None,
            xdp_mode: XdpMode::default(),
            bind: (Ipv4Addr::LOCALHOST, 0).into(),
            ports: 1,
            threads: 1,
            host: HostOptions::default(),
            poll: DEFAULT_POLL,
            max_message: DEFAULT_MAX_MESSAGE,
            one_way: false,
            offload: true,
            low_latency: false,
            metrics: None,
            trace: TraceSettings::default(),
            trace_file: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_their_json() {
        let options = ServerOptions {
            protocols: vec![Protocol::Tcp],
            queues: Some(vec![0, 3]),
            host: HostOptions { endpoints: 3, ..HostOptions::default() },
            metrics: Some("unix:/run/homa.sock".parse().expect("an address")),
            ..ServerOptions::default()
        };
        let json = serde_json::to_string(&options).expect("JSON");
        let read: ServerOptions = serde_json::from_str(&json).expect("options");
        assert_eq!(format!("{read:?}"), format!("{options:?}"));
        assert!(serde_json::from_str::<ServerOptions>(&json.replace("lifo", "last")).is_err());
        assert!(
            serde_json::from_str::<ServerOptions>(&json.replace("unix:/run/homa.sock", "nowhere")).is_err()
        );
    }
}
