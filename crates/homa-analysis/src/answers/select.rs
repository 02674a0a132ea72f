//! Selection of a part of the traces.

use serde::Serialize;

use super::packet::ends;
use crate::model::{Model, ModelTime, NO_NODE, NodeId, Packet};

/// A selection of nodes and a range of time. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Select {
    /// Indexes of the nodes in [`Model::nodes`]; empty: all. A packet belongs to both its sender and its
    /// receiver.
    pub nodes: Vec<NodeId>,
    /// Start of the range, in nanoseconds since the zero of the model.
    pub from_ns: u64,
    /// End of the range, exclusive; `None`: no end.
    pub until_ns: Option<u64>,
}

impl Select {
    /// Returns whether this node is selected.
    #[must_use]
    pub fn node(&self, node: NodeId) -> bool {
        self.nodes.is_empty() || self.nodes.contains(&node)
    }

    /// Returns whether this time is selected.
    #[must_use]
    pub fn time(&self, ns: u64) -> bool {
        self.from_ns <= ns && self.until_ns.is_none_or(|until| ns < until)
    }

    /// Returns whether this time is selected; false for an unknown time.
    #[must_use]
    pub fn at(&self, at: ModelTime) -> bool {
        at.ns().is_some_and(|ns| self.time(ns))
    }

    /// Returns whether this packet is selected, by its sender, its receiver and the time of its first record.
    #[must_use]
    pub fn packet(&self, model: &Model, packet: &Packet) -> bool {
        let (from, to) = ends(model, packet);
        self.at(packet.first_seen()) && self.pair(from, to)
    }

    /// Returns whether at least one of two nodes is selected.
    #[must_use]
    pub fn pair(&self, from: NodeId, to: NodeId) -> bool {
        self.nodes.is_empty() || [from, to].iter().any(|node| *node != NO_NODE && self.nodes.contains(node))
    }
}
