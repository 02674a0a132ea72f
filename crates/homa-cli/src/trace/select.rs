//! Which RPCs of some traces are meant, and against what they are held.

use anyhow::{Context, Result, bail};
use clap::Args;
use homa_analysis::Model;
use homa_analysis::model::Rpc;
use homa_analysis::tail::{Base, Cost};

use super::load::Inputs;
use crate::units::{bytes_u32, duration_ns, rate_bps};

/// Reads these traces on one time, and puts their events together.
///
/// # Errors
/// Those of [`Inputs::aligned`]; there are no events.
pub fn model(inputs: &Inputs) -> Result<Model> {
    let first = inputs.files.first().map(|path| path.display().to_string()).unwrap_or_default();
    Model::new(inputs.aligned()?).with_context(|| first)
}

/// Against what RPCs are held.
#[derive(Args, Clone, Debug)]
pub struct Against {
    /// Rate of the hosts' links, as in 25gbit [default: as the traces show it]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub rate: Option<u64>,
    /// What an RPC without payload takes in an empty network, as in 15us: slowdown is then against this and --rate [default: what is left
    /// of each RPC without what disturbed it]
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub base: Option<u64>,
}

impl Against {
    /// The base, if one was given.
    pub fn base(&self) -> Option<Base> {
        self.base.map(|rpc_ns| Base { rpc_ns, rate_bps: self.rate.unwrap_or(0) })
    }
}

/// Which RPCs are meant.
#[derive(Args, Clone, Debug, Default)]
pub struct Filter {
    /// Only RPCs whose longer message has at least this many bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes_u32)]
    pub min_size: Option<u32>,
    /// Only RPCs whose longer message has at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes_u32)]
    pub max_size: Option<u32>,
    /// Only RPCs with this node as client or server
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only RPCs that began so long after the first event, or later, as in 10ms
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub from: Option<u64>,
    /// Only RPCs that began before that
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub until: Option<u64>,
}

impl Filter {
    /// Checks that there is such a node.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self, model: &Model) -> Result<()> {
        match &self.node {
            Some(name) if !model.nodes.iter().any(|node| node.name == *name) => {
                let names: Vec<&str> = model.nodes.iter().map(|node| &*node.name).take(20).collect();
                bail!("--node: no trace is of `{name}`; there are {}", names.join(", "))
            }
            _ => Ok(()),
        }
    }

    /// Whether this RPC is meant.
    pub fn takes(&self, model: &Model, rpc: &Rpc) -> bool {
        let size = rpc.request.length.max(rpc.response.length);
        let start = rpc.start.ns().unwrap_or(0);
        let is = |name: &String| model.name(rpc.client) == name || model.name(rpc.server) == name;
        self.min_size.is_none_or(|least| size >= least)
            && self.max_size.is_none_or(|most| size <= most)
            && self.node.as_ref().is_none_or(is)
            && self.from.is_none_or(|from| start >= from)
            && self.until.is_none_or(|until| start < until)
    }

    /// Those that are meant.
    pub fn chosen(&self, model: &Model, costs: &[Cost]) -> Vec<Cost> {
        let takes = |cost: &&Cost| self.takes(model, &model.rpcs[cost.rpc as usize]);
        costs.iter().filter(takes).copied().collect()
    }
}
