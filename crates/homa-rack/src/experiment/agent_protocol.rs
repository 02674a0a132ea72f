//! What an experiment tells its processes in the hosts, and what they answer: a line of JSON each.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use homa_bench::cpu::Scheduled;
use homa_bench::driver::{Driver, XdpMode};
use homa_bench::engine::load::Pace;
use homa_bench::engine::tally::{Counted, Sample};
use homa_bench::protocol::Protocol;
use homa_bench::recording::TraceSettings;
use homa_bench::tcp::Congestion;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a process is to be, its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Homa or TCP.
    pub protocol: Protocol,
    /// What carries Homa's packets.
    pub driver: Driver,
    /// Where its program runs, for AF_XDP.
    pub xdp_mode: XdpMode,
    /// The host's own.
    pub address: IpAddr,
    /// Of Homa's UDP socket and of the TCP listener, the same at all hosts.
    pub udp_port: u16,
    /// The link's rate.
    pub link_mbps: u32,
    /// What the switch's port before the host queues, in bytes; `None`: not known.
    pub port_bytes: Option<u64>,
    /// Its MTU.
    pub mtu: u32,
    /// Name of a workload, a file, or a number of bytes.
    pub workload: String,
    /// Longer messages are cut.
    pub max_message: Option<u32>,
    /// Longest message that is sent beside those of the workload.
    pub longest: u32,
    /// TCP connections to each peer.
    pub connections: u16,
    /// Threads that answer, for each server port; 0: see [`is_one_thread`](Setup::is_one_thread).
    pub server_threads: u16,
    /// Server ports.
    pub server_ports: u16,
    /// Threads that send, each with a client port.
    pub client_threads: u16,
    /// Threads that take the answers at each client port; 0: the one that sends does.
    pub port_receivers: u16,
    /// Sockets of a Homa host.
    pub endpoints: u16,
    /// Largest run that the kernel cuts; `None`: as the driver has it.
    pub max_segmented_bytes: Option<usize>,
    /// Most packets that are taken at a time; `None`: as the library has it.
    pub batch_cap: Option<u32>,
    /// Which of its sleeping threads is woken, by name; `None`: as the library has it.
    pub wake_order: Option<String>,
    /// The policy that chooses endpoints, by name; `None`: in turn.
    pub endpoint_policy: Option<String>,
    /// How long an idle thread polls.
    pub poll_us: u64,
    /// Answers have 100 bytes.
    pub one_way: bool,
    /// How TCP finds its rate.
    pub congestion: Option<Congestion>,
    /// Of the messages' content.
    pub seed: u64,
    /// Settings of Homa by name.
    pub settings: Vec<(String, String)>,
    /// How Homa records its time trace.
    pub recording: TraceSettings,
}

impl Setup {
    /// Whether the thread that sends over Homa also answers: where there is one such thread and one server port, and no thread of its own
    /// was asked for. With several endpoints there is work for several threads, and a socket would attend only one of them. TCP's threads
    /// share nothing, so that it would gain nothing.
    pub fn is_one_thread(&self) -> bool {
        let alone =
            (self.client_threads, self.port_receivers, self.server_ports, self.endpoints) == (1, 0, 1, 1);
        self.protocol == Protocol::Homa && self.server_threads == 0 && alone
    }

    /// Threads that only answer, at each server port.
    pub fn answering_threads(&self) -> u16 {
        if self.is_one_thread() { 0 } else { self.server_threads.max(1) }
    }

    /// Has threads that only answer, as hosts with more than one thread, port or endpoint have: where some values of what is varied are
    /// such hosts, all are.
    pub fn have_servers(&mut self) {
        self.server_threads = self.server_threads.max(1);
    }

    /// The UDP port of its peers, as Homa takes it: raw IP has none.
    pub fn port_at_peer(&self) -> u16 {
        if self.driver == Driver::Raw { 0 } else { self.udp_port }
    }
}

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Be a client of these hosts from now on; of none: only a server.
    Open {
        /// Their addresses.
        peers: Vec<IpAddr>,
    },
    /// Measure round trips one at a time.
    Unloaded {
        /// Of these sizes; none: those of the workload.
        sizes: Vec<u32>,
        /// About how long, in all.
        budget_ms: u64,
    },
    /// Send, or only answer, from a moment on that all hosts share.
    Load {
        /// `None`: only answer.
        pace: Option<Rate>,
        /// On the clock that all processes of the machine share.
        start_ns: u64,
        /// Before the measured time.
        warmup_ns: u64,
        /// The measured time.
        measured_ns: u64,
        /// Of arrivals, sizes and choices.
        seed: u64,
        /// Where the time trace goes when it is over, and what the host is called.
        trace: Option<(PathBuf, String)>,
    },
    /// Tell what was counted.
    Metrics,
}

/// [`Pace`], for a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Poisson arrivals, 10^9 bits of request payload per second.
    Open {
        /// The offered load.
        gbps: f64,
        /// Open RPCs at which arrivals wait.
        max_outstanding: u32,
    },
    /// So many open RPCs at all times.
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

/// What a process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// It serves.
    Ready,
    /// It is a client of whom it was told to be.
    Opened,
    /// Median round trips.
    Unloaded {
        /// Bytes and nanoseconds.
        points: Vec<(u32, u64)>,
    },
    /// The load was to begin before the order was read: nothing was sent.
    Late,
    /// The load is over.
    Loaded {
        /// What was counted.
        counted: Counted,
        /// What the scheduler did with the process within the measured time.
        usage: Usage,
        /// Bytes of messages that came to the host within the measured time, each once, of complete messages or not.
        received: u64,
        /// Length of the samples that follow the line.
        bytes: u64,
    },
    /// What was counted.
    Metrics {
        /// By name.
        seen: Value,
    },
}

/// [`Scheduled`], for a line.
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

/// Bytes of a sample behind a line.
const SAMPLE_BYTES: usize = 12;

/// Appends samples as bytes: size and nanoseconds, little-endian.
pub fn put_samples(samples: &[Sample], out: &mut Vec<u8>) {
    out.reserve(samples.len() * SAMPLE_BYTES);
    for sample in samples {
        out.extend_from_slice(&sample.bytes.to_le_bytes());
        out.extend_from_slice(&sample.rtt_ns.to_le_bytes());
    }
}

/// Takes them out again; what is no whole sample is left out.
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
        assert!(!with(|setup| setup.client_threads = 2) && !with(|setup| setup.port_receivers = 1));
        assert!(!with(|setup| setup.server_ports = 2) && !with(|setup| setup.endpoints = 2));
        assert!(!with(|setup| setup.protocol = Protocol::Tcp) && !with(Setup::have_servers));
        let tcp = Setup { protocol: Protocol::Tcp, ..one.clone() };
        let three = Setup { server_threads: 3, ..one.clone() };
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
