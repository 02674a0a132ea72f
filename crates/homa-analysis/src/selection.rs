//! A selection of the RPCs in a set of traces, with their costs.

use crate::critical_path::Explainer;
use crate::link::LinkRate;
use crate::model::{Model, Rpc};
use crate::tail::{Cost, Costs, UnloadedTimes};

/// Maximum number of nodes named in an error.
const NAMED_NODES: usize = 20;

/// There is no trace of a node with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNode {
    name: String,
    /// Names of existing nodes, at most [`NAMED_NODES`].
    known: Vec<String>,
}

impl std::fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no trace is of `{}`; there are {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownNode {}

/// Returns the indexes of the nodes with this name, at least one. A host and a switch may have the same name.
///
/// # Errors
/// No node has this name.
pub fn nodes_named<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    name: &str,
) -> Result<Vec<usize>, UnknownNode> {
    let same = names.clone().enumerate().filter(|(_, other)| *other == name);
    let found: Vec<usize> = same.map(|(number, _)| number).collect();
    if found.is_empty() {
        let known = names.take(NAMED_NODES).map(str::to_owned).collect();
        return Err(UnknownNode { name: name.to_owned(), known });
    }
    Ok(found)
}

impl Model {
    /// Returns the indexes of the nodes with this name, at least one. A host and a switch may have the same
    /// name.
    ///
    /// # Errors
    /// No node has this name.
    pub fn nodes_named(&self, name: &str) -> Result<Vec<usize>, UnknownNode> {
        nodes_named(self.nodes.iter().map(|node| &*node.name), name)
    }
}

/// The baseline with which the durations of RPCs are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Rate of the hosts' links in bits per second. Default: measured from the traces.
    pub rate_bps: Option<u64>,
    /// Duration of an RPC without payload in an unloaded network, in nanoseconds. Default: the duration of
    /// each RPC without its disturbances.
    pub rpc_ns: Option<u64>,
}

impl Baseline {
    fn base(self) -> Option<UnloadedTimes> {
        self.rpc_ns.map(|rpc_ns| UnloadedTimes { rpc_ns, rate_bps: self.rate_bps.unwrap_or(0) })
    }
}

/// A filter for RPCs. The default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Minimum length of the longer message, in bytes.
    pub min_size: Option<u32>,
    /// Maximum length of the longer message, in bytes.
    pub max_size: Option<u32>,
    /// Name of the client or the server.
    pub node: Option<String>,
    /// Minimum start time, in nanoseconds after the first event.
    pub from_ns: Option<u64>,
    /// End of the range of start times, exclusive.
    pub until_ns: Option<u64>,
}

impl Filter {
    /// Returns whether this RPC is selected.
    #[must_use]
    pub fn takes(&self, model: &Model, rpc: &Rpc) -> bool {
        let size = rpc.request.length.max(rpc.response.length);
        let start = rpc.start.ns().unwrap_or(0);
        let is = |name: &String| model.name(rpc.client) == name || model.name(rpc.server) == name;
        self.min_size.is_none_or(|least| size >= least)
            && self.max_size.is_none_or(|most| size <= most)
            && self.node.as_ref().is_none_or(is)
            && self.from_ns.is_none_or(|from| start >= from)
            && self.until_ns.is_none_or(|until| start < until)
    }
}

/// The RPCs in a set of traces, and their costs.
pub struct Selection<'m> {
    /// Explains the duration of an RPC.
    pub explainer: Explainer<'m>,
    /// Costs of all complete RPCs.
    pub costs: Costs,
    /// Costs of the selected RPCs.
    pub chosen: Vec<Cost>,
}

impl<'m> Selection<'m> {
    /// Compares all RPCs with the baseline, and selects those that match the filter.
    ///
    /// # Errors
    /// There is no trace of the filter's node.
    pub fn of(model: &'m Model, filter: &Filter, baseline: Baseline) -> Result<Selection<'m>, UnknownNode> {
        if let Some(name) = &filter.node {
            model.nodes_named(name)?;
        }
        let explainer = Explainer::new(model, LinkRate::of(model, baseline.rate_bps, None));
        let costs = Costs::of(&explainer, baseline.base());
        let takes = |cost: &&Cost| filter.takes(model, &model.rpcs[cost.rpc as usize]);
        let chosen = costs.costs.iter().filter(takes).copied().collect();
        Ok(Selection { explainer, costs, chosen })
    }
}
