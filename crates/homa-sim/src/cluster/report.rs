//! The results of a run.

use std::collections::BTreeMap;

use homa_proto::Time;
use homa_proto::wire::PRIORITIES;
use homa_workload::{BinSummary, ShortSummary, SlowdownRecorder};
use serde::{Deserialize, Serialize};

use super::config::ClusterConfig;
use super::messages::Message;
use super::steady::SteadyState;
use crate::cores::CoreCounts;
use crate::fabric::FabricStats;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Fraction of the initial exchanges between hosts that have started. Simulated time starts afterwards.
    pub acquainted: f64,
    /// Fraction of the warm-up and the measured time that has passed. The run ends some time after this
    /// reaches 1, when all measured messages have arrived.
    pub share: f64,
    /// The simulated time.
    pub now: Time,
    /// Events handled.
    pub events: u64,
}

/// Queue lengths of one kind of port, in bytes with all overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueLengths {
    /// Mean over time and ports.
    pub mean_bytes: f64,
    /// 99th percentile over time and ports.
    pub p99_bytes: u64,
    /// Maximum of any port at any time, including the warm-up.
    pub max_bytes: u64,
}

/// The results of a run. Messages are those that started in the measured time. If the transport runs RPCs, a
/// message here is an RPC with the length of its request, and byte counts include both of its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// The transport's name.
    pub transport: String,
    /// The workload's name.
    pub workload: String,
    /// The seed of the run.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: usize,
    /// Measured time, in nanoseconds.
    pub duration_ns: u64,
    /// Messages that started.
    pub started: u64,
    /// Bytes of the messages that started.
    pub started_bytes: u64,
    /// Mean bytes of all outstanding messages, each with its whole length, over the first quarter of the
    /// measured time.
    pub backlog_first_bytes: f64,
    /// Mean bytes of all outstanding messages over the last quarter. Growth by a large fraction of the
    /// started bytes means that the load cannot be sustained.
    pub backlog_last_bytes: f64,
    /// Whether the measured time was in steady state; `None`: the traffic is not continuous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<SteadyState>,
    /// Number of messages that arrived.
    pub delivered: u64,
    /// Number of messages that had not arrived when the run ended.
    pub unfinished: u64,
    /// Bytes of the messages that arrived.
    pub delivered_bytes: u64,
    /// Bytes of messages that arrived, as a fraction of the hosts' link capacity in the measured time.
    pub goodput: f64,
    /// Exchanges that ended in the measured time, including those that started before it.
    pub ended: u64,
    /// Bytes of the exchanges that ended in the measured time.
    pub ended_bytes: u64,
    /// `ended_bytes` as a fraction of the hosts' link capacity in the measured time. This is the result of a
    /// closed loop.
    pub throughput: f64,
    /// Mean slowdown of all messages.
    pub slowdown_mean: f64,
    /// Slowdown by size.
    pub bins: Vec<BinSummary>,
    /// Whether the last entry of `bins` covers the largest 1 % of the messages.
    pub has_largest: bool,
    /// The shortest 10 % of the messages, excluding messages of 1,500 bytes or more.
    pub short: Option<ShortSummary>,
    /// The smaller half of the messages.
    pub short_half: Option<ShortSummary>,
    /// Queues of the hosts' downlinks.
    pub edge_queue: QueueLengths,
    /// Queues of the leaves for their links to the spines.
    pub to_spine_queue: QueueLengths,
    /// Queues of the spines for their links to the leaves.
    pub to_leaf_queue: QueueLengths,
    /// Fraction of the time that a downlink was idle.
    pub downlink_idle: f64,
    /// Fraction of the time that a downlink was idle although a message to its host was waiting for a grant.
    pub downlink_wasted: f64,
    /// Link bytes that arrived, by priority.
    pub bytes_by_priority: [u64; PRIORITIES],
    /// Packets dropped because a queue was full.
    pub dropped: u64,
    /// Packets lost by faults.
    pub lost: u64,
    /// Packets sent on any link since the beginning of the run.
    pub hops: u64,
    /// Events handled since the beginning of the run.
    pub events: u64,
    /// Counters of the hosts' transports, summed.
    pub transport_counts: BTreeMap<String, u64>,
    /// Counters of the hosts' cores, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoreCounts>,
    /// The dump of each host's time trace in the format of a live host, if tracing is on and the transport
    /// supports it.
    #[serde(skip)]
    pub traces: Vec<Vec<u8>>,
    /// The trace dump of each switch, if tracing is on: leaves first, then spines.
    #[serde(skip)]
    pub switch_traces: Vec<Vec<u8>>,
    /// Length in bytes and time in nanoseconds of each message, in order of arrival, if `keep_samples` is
    /// set.
    #[serde(skip)]
    pub samples: Vec<(u32, u64)>,
}

impl ClusterReport {
    pub(super) fn new(config: &ClusterConfig, transport: &str) -> ClusterReport {
        ClusterReport {
            transport: transport.to_owned(),
            workload: config.workload.to_string(),
            seed: config.seed,
            hosts: config.hosts,
            duration_ns: config.duration_ns,
            ..ClusterReport::default()
        }
    }

    pub(super) fn delivered(&mut self, message: &Message, messages: u32) {
        self.delivered += 1;
        self.delivered_bytes += u64::from(message.length) * u64::from(messages);
    }

    pub(super) fn network(&mut self, stats: FabricStats, lost: u64) {
        (self.dropped, self.lost) = (stats.overflowed, lost);
        (self.hops, self.events) = (stats.hops, stats.events);
    }

    pub(super) fn close(&mut self, config: &ClusterConfig, open: u64) {
        self.unfinished = open;
        let capacity = config.link.rate_bps as f64 / 8e9 * config.duration_ns as f64 * config.hosts as f64;
        self.goodput = self.delivered_bytes as f64 / capacity.max(1.0);
        self.throughput = self.ended_bytes as f64 / capacity.max(1.0);
    }

    pub(super) fn slowdowns(&mut self, slowdowns: &SlowdownRecorder) {
        self.slowdown_mean = slowdowns.slowdown_mean();
        self.bins = slowdowns.bins();
        self.has_largest = slowdowns.has_largest_row();
        self.short = Some(slowdowns.short());
        self.short_half = Some(slowdowns.short_half());
    }
}
