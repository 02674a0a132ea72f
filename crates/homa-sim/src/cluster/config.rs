//! The configuration of a cluster.

use homa_workload::Workload;

use super::ideal::Framing;
use super::traffic::{Exchange, LoadBasis, Traffic};
use crate::cores::CoresConfig;
use crate::fabric::SwitchConfig;
use crate::link::{Discipline, LinkConfig};
use crate::topology::Topology;

/// A network, the load on it, and for how long.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Determines the run.
    pub seed: u64,
    /// Number of hosts, at least 2.
    pub hosts: usize,
    /// How they are joined.
    pub topology: Topology,
    /// The links of the hosts. What a host's software and card take to send is part of `send_delay_ns`.
    pub link: LinkConfig,
    /// Every switch, unless a transport needs others ([`Transport::switch`](crate::Transport::switch)).
    pub switch: SwitchConfig,
    /// In which order the hosts' cards send.
    pub nic: Discipline,
    /// Bytes in a card's queue at which it takes no more packets; 0: it takes one when its link is free, so that a short message passes
    /// everything but the packet on the link.
    pub nic_queue_bytes: u64,
    /// From a packet's last bit on its uplink to its way into the network, for software and card of the sender.
    pub send_delay_ns: u64,
    /// From a packet's arrival at a host to its handling.
    pub receive_delay_ns: u64,
    /// What happens inside of the hosts; `None`: each packet and message takes the delays above, whatever else a host has to do. With
    /// cores,
    /// an application's threads send and take messages: the transport must run RPCs, as Homa does, and `exchange` be [`Exchange::Echo`].
    pub cores: Option<Box<CoresConfig>>,
    /// Probability that a packet is lost on its way.
    pub loss: f64,
    /// Message sizes.
    pub workload: Workload,
    /// Who sends to whom, and when.
    pub traffic: Traffic,
    /// What a load counts.
    pub load_basis: LoadBasis,
    /// What a message is: one-way, or the request of an RPC.
    pub exchange: Exchange,
    /// Packets as the least time of a message is computed with, and the load; the same for all transports.
    pub framing: Framing,
    /// Whether every host begins with a byte to every other, so that what peers learn of each other once is not measured.
    pub acquaint: bool,
    /// Messages that start before are not measured.
    pub warm_up_ns: u64,
    /// For how long messages start that are measured. Others go on starting until these have arrived.
    pub duration_ns: u64,
    /// How much longer that may take; what has not arrived by then is counted as unfinished.
    pub drain_ns: u64,
    /// Where the bins of the slowdown table end, in bytes, inclusive; empty: 20 bins of equal message count.
    pub bins: Vec<u32>,
    /// How often queues are looked at.
    pub sample_ns: u64,
    /// Records of each host's time trace, of which the last ones are kept; 0: none. 32 bytes each.
    pub trace_records: usize,
    /// All time traces freeze when a measured message, or RPC, has taken at least so long, in nanoseconds; `None`: they do not.
    pub trace_slower_than_ns: Option<u64>,
    /// Whether the report has each measured message.
    pub keep_samples: bool,
}
