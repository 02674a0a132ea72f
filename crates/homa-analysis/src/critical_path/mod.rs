//! The critical path of an RPC, which assigns one cause to each nanosecond.
//!
//! The path is followed backward from the RPC's end at the client. At each step, it continues with what the
//! step waited for:
//!
//! - the application waited for the whole message, and the message for the packet that completed it;
//! - the packet waited for each stage of its path, and its transmission waited for earlier packets, the pacer
//!   or a grant;
//! - the grant waited for the stages of its own path and for the receiver.
//!
//! The recorded causes add up to the duration, to the nanosecond. If no trace contains a stage, the stage's
//! time is attributed to a coarser cause.

mod links;
mod minimum_times;
#[cfg(test)]
mod tests;
mod walk;

use homa_trace::{EventKind, NodeKind};

use crate::cause::{Amounts, Cause};
use crate::link::LinkRate;
use crate::model::{Model, NO_NODE, Node, NodeId, Packet, Rpc};

use links::Links;
use minimum_times::MinimumTimes;

/// A range of time on the critical path of an RPC, and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds since the zero of the model, inclusive.
    pub from_ns: u64,
    /// Nanoseconds since the zero of the model, exclusive.
    pub to_ns: u64,
    /// The cause.
    pub cause: Cause,
    /// The node where the time was spent, or [`NO_NODE`].
    pub node: NodeId,
    /// The port, if the node is a switch.
    pub port: Option<u16>,
    /// The packet concerned, as an index into [`Model::packets`].
    pub packet: Option<u32>,
}

/// The critical path of an RPC.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// The spans from start to end, sorted by time, without gaps.
    pub spans: Vec<Span>,
    /// The total time of each cause.
    pub amounts: Amounts,
}

impl Path {
    fn clear(&mut self) {
        self.spans.clear();
        self.amounts = Amounts::default();
    }
}

/// Missing records, because of which some time is attributed to a coarser cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Whether there are several hosts but no switch.
    pub no_switch: bool,
    /// Whether a host does not record its reads of bursts.
    pub no_bursts: bool,
    /// Whether no host records when applications receive messages.
    pub no_application: bool,
    /// Number of RPCs with a trace of only the client or only the server.
    pub one_sided: usize,
    /// Number of RPCs that are not explained because the trace of their server begins or ends during the RPC.
    pub cut_off: usize,
}

/// Explains RPCs by comparing them with minimum times over the whole network.
pub struct Explainer<'m> {
    /// The model of the RPCs.
    pub model: &'m Model,
    minimum_times: MinimumTimes,
    links: Links<'m>,
}

impl<'m> Explainer<'m> {
    /// Computes the minimum times from the traces. `rate`: the rate of the hosts' links, if known.
    #[must_use]
    pub fn new(model: &'m Model, rate: Option<LinkRate>) -> Explainer<'m> {
        Explainer { model, minimum_times: MinimumTimes::of(model), links: Links::new(model, rate) }
    }

    /// Returns the rate of the hosts' links in bits per second, or `None` if unknown.
    #[must_use]
    pub fn rate_bps(&self) -> Option<f64> {
        self.links.rate.map(|rate| rate.bps)
    }

    /// Stores the critical path of an RPC in `path`, and returns whether there is one. There is one if the
    /// RPC's start and end are known and the trace of its server, if any, covers both.
    pub fn explain(&self, rpc: &Rpc, path: &mut Path) -> bool {
        if !self.model.has_server_of(rpc) {
            return false;
        }
        let Some(walk) = walk::Walk::new(self, rpc, path) else { return false };
        walk.run();
        true
    }

    /// Returns which records are missing from these traces.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        let nodes = &self.model.nodes;
        let hosts = || nodes.iter().filter(|node| node.kind == NodeKind::Host);
        // The first events are enough, because a host that records bursts always does so.
        let has =
            |node: &Node, kind| node.records.iter().take(4_096).any(|record| record.event() == Some(kind));
        let of_both = |rpc: &&Rpc| (rpc.client == NO_NODE) != (rpc.server == NO_NODE);
        let many = hosts().count() > 1;
        Gaps {
            no_switch: many && !nodes.iter().any(|node| node.kind == NodeKind::Switch),
            no_bursts: hosts().any(|node| !has(node, EventKind::BurstIn)),
            no_application: hosts().all(|node| !has(node, EventKind::AppReceive)),
            one_sided: self.model.rpcs.iter().filter(of_both).count(),
            cut_off: self.model.rpcs.iter().filter(|rpc| !self.model.has_server_of(rpc)).count(),
        }
    }

    /// Returns the minimum time of packets of this class on the network's part of this packet's path, in
    /// nanoseconds.
    #[must_use]
    pub fn least_network_ns(&self, packet: &Packet) -> u64 {
        let hops = self.minimum_times.hops(self.model, packet);
        hops.into_iter().flatten().map(|hop| self.minimum_times.ns(&hop)).sum()
    }
}
