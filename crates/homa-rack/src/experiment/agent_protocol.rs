//! Messages between an experiment and its agents in the hosts, each of which is one line of JSON.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use homa_bench::cpu::Scheduled;
use homa_bench::driver::{Driver, XdpMode};
use homa_bench::engine::load::Pace;
use homa_bench::engine::tally::{RpcCounters, Sample};
use homa_bench::host_options::HostOptions;
use homa_bench::protocol::Protocol;
use homa_bench::recording::TraceSettings;
use homa_bench::tcp::Congestion;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The setup of an agent: the first line that it receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The protocol: Homa or TCP.
    pub protocol: Protocol,
    /// The driver of Homa.
    pub driver: Driver,
    /// Where the kernel runs the AF_XDP program.
    pub xdp_mode: XdpMode,
    /// The host's own address.
    pub address: IpAddr,
    /// UDP port of Homa and port of the TCP listener, the same at all hosts.
    pub udp_port: u16,
    /// Bytes that may be queued at the switch's port to the host; `None` if unknown.
    pub port_bytes: Option<u64>,
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// The messages to send.
    #[serde(flatten)]
    pub messages: MessageSetup,
    /// The ports and threads.
    #[serde(flatten)]
    pub threads: ThreadSetup,
    /// Options of the Homa host.
    #[serde(flatten)]
    pub host: HostOptions,
    /// Maximum batch that the kernel segments, in bytes; `None`: the driver's default.
    pub max_segmented_bytes: Option<usize>,
    /// Name of the policy that chooses endpoints; `None`: the endpoints take turns.
    pub endpoint_policy: Option<String>,
    /// Time that an idle thread polls before it sleeps, in microseconds.
    pub poll_us: u64,
    /// Congestion control of TCP; `None`: the kernel's default.
    pub congestion: Option<Congestion>,
    /// Names and values of Homa's settings.
    pub settings: Vec<(String, String)>,
    /// How Homa records its time trace.
    pub recording: TraceSettings,
}

/// The messages that an agent sends and answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageSetup {
    /// The workload: a name, a file, or a number of bytes.
    pub workload: String,
    /// Length to which longer messages are truncated; `None`: they are not truncated.
    pub max_message: Option<u32>,
    /// Maximum length of additional messages that are not part of the workload.
    pub longest: u32,
    /// Whether answers have 100 bytes.
    pub one_way: bool,
    /// Seed of the messages' content.
    pub seed: u64,
}

/// The ports of a host, and the threads and connections at each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ThreadSetup {
    /// Number of server ports.
    pub server_ports: u16,
    /// Threads per server port that only answer; 0: see [`Setup::is_one_thread`].
    pub server_threads: u16,
    /// Number of threads that send, each with its own client port.
    pub client_threads: u16,
    /// Threads per client port that only receive answers; 0: the sending thread receives them.
    pub port_receivers: u16,
    /// TCP connections to each peer.
    pub connections: u16,
}

impl ThreadSetup {
    /// Adds threads that only answer, which hosts with more than one thread, port or endpoint have. If some
    /// values of the varied setting need such threads, all hosts have them.
    pub fn have_servers(&mut self) {
        self.server_threads = self.server_threads.max(1);
    }
}

impl Setup {
    /// Returns whether the thread that sends over Homa also answers. This requires one sending thread, one
    /// server port, one endpoint, and no requested answering thread. Several endpoints have enough work for
    /// several threads, and a socket would serve only one endpoint. TCP's threads share nothing, so TCP would
    /// not benefit.
    pub fn is_one_thread(&self) -> bool {
        let ThreadSetup { server_ports, server_threads, client_threads, port_receivers, .. } = self.threads;
        let alone = (client_threads, port_receivers, server_ports, self.host.endpoints) == (1, 0, 1, 1);
        self.protocol == Protocol::Homa && server_threads == 0 && alone
    }

    /// Returns the number of threads per server port that only answer.
    pub fn answering_threads(&self) -> u16 {
        if self.is_one_thread() { 0 } else { self.threads.server_threads.max(1) }
    }

    /// Returns the UDP port of the peers, or 0 over raw IP, which has no ports.
    pub fn port_at_peer(&self) -> u16 {
        self.driver.peers_port().unwrap_or(self.udp_port)
    }
}

/// An order to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Become a client of these hosts. With an empty list, only serve.
    Open {
        /// Addresses of the hosts.
        peers: Vec<IpAddr>,
    },
    /// Measure round trips with one RPC at a time.
    Unloaded {
        /// Sizes to measure; empty: the sizes of the workload.
        sizes: Vec<u32>,
        /// Approximate total time in milliseconds.
        budget_ms: u64,
    },
    /// Send or only answer, starting at a time common to all hosts.
    Load {
        /// The load; `None` to only answer.
        pace: Option<Rate>,
        /// Start of the load on the clock that all processes of the machine share.
        start_ns: u64,
        /// Warm-up before the measured time.
        warmup_ns: u64,
        /// The measured time.
        measured_ns: u64,
        /// Seed of arrivals, sizes and choices.
        seed: u64,
        /// File for the time trace written after the load, and the host's name in the trace.
        trace: Option<(PathBuf, String)>,
    },
    /// Report the counters.
    Metrics,
}

/// [`Pace`] in serializable form.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Poisson arrivals, at a rate in 10^9 bits of request payload per second.
    Open {
        /// The offered load.
        gbps: f64,
        /// Number of open RPCs above which arrivals wait.
        max_outstanding: u32,
    },
    /// A constant number of open RPCs.
    Closed {
        /// Open RPCs.
        outstanding: u32,
    },
}

impl From<Rate> for Pace {
    fn from(rate: Rate) -> Pace {
        match rate {
            Rate::Open { gbps, max_outstanding } => Pace::Open { gbps, max_outstanding },
            Rate::Closed { outstanding } => Pace::Closed { outstanding },
        }
    }
}

/// A reply of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The agent is ready to serve.
    Ready,
    /// The agent is a client of the requested hosts.
    Opened,
    /// Median round trips by size.
    Unloaded {
        /// Pairs of bytes and nanoseconds.
        points: Vec<(u32, u64)>,
    },
    /// The order arrived after the start of the load, and the agent sent nothing.
    Late,
    /// The load is over.
    Loaded {
        /// The counters.
        counted: RpcCounters,
        /// Scheduling of the process within the measured time.
        usage: Usage,
        /// Message bytes that the host received within the measured time, including those of incomplete
        /// messages but without duplicates.
        received: u64,
        /// Length in bytes of the samples that follow this line.
        bytes: u64,
    },
    /// The counters of the transport.
    Metrics {
        /// Counters by name.
        seen: Value,
    },
}

/// [`Scheduled`] in serializable form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub ran_ns: u64,
    pub waited_ns: u64,
    pub turns: u64,
}

impl From<Scheduled> for Usage {
    fn from(scheduled: Scheduled) -> Usage {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Usage { ran_ns: ns(scheduled.ran), waited_ns: ns(scheduled.waited), turns: scheduled.turns }
    }
}

impl From<Usage> for Scheduled {
    fn from(usage: Usage) -> Scheduled {
        Scheduled {
            ran: Duration::from_nanos(usage.ran_ns),
            waited: Duration::from_nanos(usage.waited_ns),
            turns: usage.turns,
        }
    }
}

/// Bytes of an encoded sample.
const SAMPLE_BYTES: usize = 12;

/// Appends samples in binary form: size and nanoseconds, little-endian.
pub fn put_samples(samples: &[Sample], out: &mut Vec<u8>) {
    out.reserve(samples.len() * SAMPLE_BYTES);
    for sample in samples {
        out.extend_from_slice(&sample.bytes.to_le_bytes());
        out.extend_from_slice(&sample.rtt_ns.to_le_bytes());
    }
}

/// Decodes samples. Ignores an incomplete sample at the end.
pub fn take_samples(bytes: &[u8]) -> Vec<Sample> {
    let samples = bytes.chunks_exact(SAMPLE_BYTES).filter_map(|sample| {
        let (size, rtt) = sample.split_at(4);
        Some(Sample {
            bytes: u32::from_le_bytes(size.try_into().ok()?),
            rtt_ns: u64::from_le_bytes(rtt.try_into().ok()?),
        })
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::{CommonOptions, MessageOptions, Program};
    use crate::experiment::setup::setup;

    #[test]
    fn samples_survive_their_bytes() {
        let samples = [Sample { bytes: 1, rtt_ns: u64::MAX }, Sample { bytes: u32::MAX, rtt_ns: 0 }];
        let mut bytes = vec![];
        put_samples(&samples, &mut bytes);
        assert_eq!(take_samples(&bytes), samples);
        bytes.pop();
        assert_eq!(take_samples(&bytes), samples[..1]);
    }

    #[test]
    fn a_host_has_one_thread_where_nothing_wants_another() {
        let common = CommonOptions::new(Program { switch_config: |_| Ok(Default::default()) });
        let one = setup(&common.build.spec("x"), &common, &MessageOptions::default(), Protocol::Homa);
        assert!(one.is_one_thread());
        let with = |change: fn(&mut Setup)| {
            let mut setup = one.clone();
            change(&mut setup);
            setup.is_one_thread()
        };
        assert!(!with(|setup| setup.threads.client_threads = 2));
        assert!(!with(|setup| setup.threads.port_receivers = 1));
        assert!(!with(|setup| setup.threads.server_ports = 2) && !with(|setup| setup.host.endpoints = 2));
        assert!(!with(|setup| setup.protocol = Protocol::Tcp));
        assert!(!with(|setup| setup.threads.have_servers()));
        let tcp = Setup { protocol: Protocol::Tcp, ..one.clone() };
        let three = Setup { threads: ThreadSetup { server_threads: 3, ..one.threads }, ..one.clone() };
        assert_eq!([&one, &tcp, &three].map(Setup::answering_threads), [0, 1, 3]);
    }

    #[test]
    fn orders_and_replies_survive_their_line() {
        let load = Order::Load {
            pace: Some(Rate::Open { gbps: 0.125, max_outstanding: 7 }),
            start_ns: u64::MAX,
            warmup_ns: 0,
            measured_ns: 1,
            seed: 2,
            trace: None,
        };
        let line = serde_json::to_string(&load).expect("JSON");
        assert!(!line.contains('\n'));
        let Order::Load { pace: Some(rate), start_ns, .. } = serde_json::from_str(&line).expect("an order")
        else {
            panic!("another order: {line}")
        };
        assert_eq!((rate, start_ns), (Rate::Open { gbps: 0.125, max_outstanding: 7 }, u64::MAX));
        assert!(serde_json::from_str::<Order>("{\"order\":\"dance\"}").is_err());
    }
}
