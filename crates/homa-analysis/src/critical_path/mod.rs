//! The critical path of an RPC: each nanosecond has one cause.
//!
//! The path is followed backward from the RPC's end at the client, along what each step waited for:
//!
//! - the application waited for the whole message, and the message for the packet that completed it;
//! - the packet waited for each stage of its path, and its transmission for earlier packets, the pacer or a
//!   grant;
//! - the grant waited for its own path and for the receiver.
//!
//! The recorded causes add up to the duration, to the nanosecond. If no trace has a stage, its time counts as
//! the coarser cause around it.

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
    /// The port of a switch.
    pub port: Option<u16>,
    /// The packet concerned, by its number in [`Model::packets`].
    pub packet: Option<u32>,
}

/// The critical path of an RPC.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// The spans from start to end, by time, without gaps.
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

/// Missing records, for which some of the time has a coarser cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// There are several hosts and no switch.
    pub no_switch: bool,
    /// A host does not record its reads of bursts.
    pub no_bursts: bool,
    /// No host records the receives of applications.
    pub no_application: bool,
    /// RPCs with a trace of only the client or only the server.
    pub one_sided: usize,
    /// RPCs not explained because the trace of their server begins or ends in between.
    pub cut_off: usize,
}

/// Explains RPCs, by comparison with minimum times of the whole network.
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

    /// The rate of the hosts' links in bits per second; `None` if unknown.
    #[must_use]
    pub fn rate_bps(&self) -> Option<f64> {
        self.links.rate.map(|rate| rate.bps)
    }

    /// Puts the critical path of an RPC into `path`, and returns whether there is one. An RPC has one if its
    /// start and end are known, and its server's trace, if there is one, covers both.
    pub fn explain(&self, rpc: &Rpc, path: &mut Path) -> bool {
        if !self.model.has_server_of(rpc) {
            return false;
        }
        let Some(walk) = walk::Walk::new(self, rpc, path) else { return false };
        walk.run();
        true
    }

    /// The records that these traces lack.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        let nodes = &self.model.nodes;
        let hosts = || nodes.iter().filter(|node| node.kind == NodeKind::Host);
        // The first events suffice: a host that records bursts does so all the time.
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

    /// The minimum time of such packets on the network's part of this packet's path, in nanoseconds.
    #[must_use]
    pub fn least_network_ns(&self, packet: &Packet) -> u64 {
        let hops = self.minimum_times.hops(self.model, packet);
        hops.into_iter().flatten().map(|hop| self.minimum_times.ns(&hop)).sum()
    }
}
