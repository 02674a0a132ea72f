//! Why an RPC took as long as it did: each nanosecond has one cause.
//!
//! From its end at the client the way goes back along what each moment waited for: the application for the whole message, the message
//! for the packet that completed it, the packet for each stage of its way, its sending for the packets before it, for the pacer, or for a
//! grant; the grant for its own way and for the receiver. What is noted down on that way adds up to the duration, to the nanosecond.
//! Stages that no trace has fall to the coarser cause around them.

mod least;
mod links;
#[cfg(test)]
mod tests;
mod walk;

use homa_trace::{EventKind, NodeKind};

use crate::cause::{Amounts, Cause};
use crate::link::LinkRate;
use crate::model::{Model, NO_NODE, Node, NodeId, Packet, Rpc};

use least::Least;
use links::Links;

/// A time on the critical path of an RPC, and what it went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds since the zero of the model, inclusive.
    pub from_ns: u64,
    /// Nanoseconds since the zero of the model, exclusive.
    pub to_ns: u64,
    /// What it went to.
    pub cause: Cause,
    /// Where, or [`NO_NODE`].
    pub node: NodeId,
    /// The port of a switch.
    pub port: Option<u16>,
    /// The packet that it is about, by its number in [`Model::packets`].
    pub packet: Option<u32>,
}

/// The critical path of an RPC.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Without gaps from the start to the end, by time.
    pub spans: Vec<Span>,
    /// The same by cause.
    pub amounts: Amounts,
}

impl Path {
    fn clear(&mut self) {
        self.spans.clear();
        self.amounts = Amounts::default();
    }
}

/// What traces lack, so that some of the time has a coarser cause than it might.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Several hosts and no switch.
    pub no_switch: bool,
    /// A host does not record when it reads bursts.
    pub no_bursts: bool,
    /// No host records what applications take.
    pub no_application: bool,
    /// RPCs of which only the client or only the server has a trace.
    pub one_sided: usize,
    /// RPCs that are not explained since the trace of their server begins or ends in between.
    pub cut_off: usize,
}

/// What is known of a network as a whole, against which each RPC is held.
pub struct Explainer<'m> {
    /// What is explained.
    pub model: &'m Model,
    least: Least,
    links: Links<'m>,
}

impl<'m> Explainer<'m> {
    /// Learns the least times from the traces. `rate`: that of the hosts' links, if it is known.
    #[must_use]
    pub fn new(model: &'m Model, rate: Option<LinkRate>) -> Explainer<'m> {
        Explainer { model, least: Least::of(model), links: Links::new(model, rate) }
    }

    /// The rate of the hosts' links in bits per second; `None`: nobody knows it.
    #[must_use]
    pub fn rate_bps(&self) -> Option<f64> {
        self.links.rate.map(|rate| rate.bps)
    }

    /// Puts the critical path of an RPC into `path`, and returns whether there is one: its start and its end are known, and its server's
    /// trace, if there is one, neither begins nor ends in between.
    pub fn explain(&self, rpc: &Rpc, path: &mut Path) -> bool {
        if !self.model.has_server_of(rpc) {
            return false;
        }
        let Some(walk) = walk::Walk::new(self, rpc, path) else { return false };
        walk.run();
        true
    }

    /// What the traces lack for the whole truth.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        let nodes = &self.model.nodes;
        let hosts = || nodes.iter().filter(|node| node.kind == NodeKind::Host);
        // The first events are as good as all: whoever records bursts does so all the time.
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

    /// The least time that such packets take on the network's part of this packet's way, in nanoseconds.
    #[must_use]
    pub fn least_network_ns(&self, packet: &Packet) -> u64 {
        let hops = self.least.hops(self.model, packet);
        hops.into_iter().flatten().map(|hop| self.least.ns(&hop)).sum()
    }
}
