//! The configuration of a cluster.

use homa_workload::Workload;

use super::ideal::Framing;
use super::traffic::{Exchange, LoadBasis, Traffic};
use crate::cores::CoresConfig;
use crate::fabric::SwitchConfig;
use crate::link::{Discipline, LinkConfig};
use crate::topology::Topology;

/// A network, its load, and the time to measure.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Seed of the run.
    pub seed: u64,
    /// Number of hosts, at least 2.
    pub hosts: usize,
    /// Topology of the network.
    pub topology: Topology,
    /// The links of the hosts. Delays of a host's software and card belong to `send_delay_ns`.
    pub link: LinkConfig,
    /// The switches, unless a transport requires others ([`Transport::switch`](crate::Transport::switch)).
    pub switch: SwitchConfig,
    /// Order in which the hosts' cards send.
    pub nic: Discipline,
    /// Length of a card's queue, in bytes, at which the card stops accepting packets. 0: it accepts a packet
    /// only when its link is free, so that a short message waits only for the packet on the link.
    pub nic_queue_bytes: u64,
    /// Delay between a packet's last bit on the uplink and its entry into the network. Represents the
    /// sender's software and card.
    pub send_delay_ns: u64,
    /// Delay from a packet's arrival at a host to its processing.
    pub receive_delay_ns: u64,
    /// The cores of the hosts; `None`: each packet and message takes the delays above, independent of other
    /// work. With cores, application threads send and receive messages. The transport must then run RPCs, as
    /// Homa does, and `exchange` must be [`Exchange::Echo`].
    pub cores: Option<Box<CoresConfig>>,
    /// Probability that a packet is lost in the network.
    pub loss: f64,
    /// Message sizes.
    pub workload: Workload,
    /// Senders, receivers and times of messages.
    pub traffic: Traffic,
    /// Bytes that count towards a load.
    pub load_basis: LoadBasis,
    /// Whether a message is one-way or the request of an RPC.
    pub exchange: Exchange,
    /// Packet sizes used for the minimum time of a message and for the load; the same for all transports.
    pub framing: Framing,
    /// Whether every host first sends one byte to every other host, so that the one-time setup between peers
    /// is not measured.
    pub acquaint: bool,
    /// Length of the warm-up. Messages that start during the warm-up are not measured.
    pub warm_up_ns: u64,
    /// Length of the measured time. Messages that start in it are measured; further messages keep starting
    /// until the measured ones have arrived.
    pub duration_ns: u64,
    /// Maximum time from the end of the measured time until the measured messages have arrived. Those that
    /// have not arrived by then count as unfinished.
    pub drain_ns: u64,
    /// Upper ends of the bins of the slowdown table, in bytes, inclusive; empty: 20 bins with equal numbers
    /// of messages.
    pub bins: Vec<u32>,
    /// Time between two samples of queues and links.
    pub sample_ns: u64,
    /// Number of 32-byte records in each host's time trace; 0: no traces. A trace keeps the latest records.
    pub trace_records: usize,
    /// Time of a measured message or RPC, in nanoseconds, above which all time traces are frozen; `None`:
    /// never.
    pub trace_slower_than_ns: Option<u64>,
    /// Whether the report contains every measured message.
    pub keep_samples: bool,
}
