//! Which RPCs of some traces are meant, and against what they are held.

use anyhow::{Result, bail};
use clap::Args;
use homa_analysis::link::LinkRate;
use homa_analysis::model::Rpc;
use homa_analysis::tail::{Base, Cost, Costs};
use homa_analysis::{Explainer, Model};
use homa_report::units::{bytes_u32, duration_ns, rate_bps};

use super::load::nodes_named;

/// Against what RPCs are held.
#[derive(Args, Clone, Debug, Default)]
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
}

/// Which RPCs are meant, and against what they are held.
#[derive(Args, Clone, Debug)]
pub struct Meant {
    /// Which.
    #[command(flatten)]
    pub filter: Filter,
    /// Against what.
    #[command(flatten)]
    pub against: Against,
}

impl Meant {
    /// See [`Held::of`].
    ///
    /// # Errors
    /// As there.
    pub fn held<'m>(&self, model: &'m Model) -> Result<Held<'m>> {
        Held::of(model, &self.filter, &self.against)
    }
}

/// The RPCs of some traces, and what each of them took.
pub struct Held<'m> {
    /// Why they took it.
    pub explainer: Explainer<'m>,
    /// Of all RPCs that are whole.
    pub costs: Costs,
    /// Of those that are meant.
    pub chosen: Vec<Cost>,
}

impl<'m> Held<'m> {
    /// Holds all RPCs against this.
    ///
    /// # Errors
    /// The filter's node is not there.
    pub fn of(model: &'m Model, filter: &Filter, against: &Against) -> Result<Held<'m>> {
        if let Some(name) = &filter.node {
            nodes_named(model, name)?;
        }
        let explainer = Explainer::new(model, LinkRate::of(model, against.rate, None));
        let costs = Costs::of(&explainer, against.base());
        let takes = |cost: &&Cost| filter.takes(model, &model.rpcs[cost.rpc as usize]);
        let chosen = costs.costs.iter().filter(takes).copied().collect();
        Ok(Held { explainer, costs, chosen })
    }

    /// The same where nothing can be said without an RPC.
    ///
    /// # Errors
    /// There is none that is whole and meant.
    pub fn not_empty(self) -> Result<Held<'m>> {
        if self.chosen.is_empty() {
            bail!("no RPC of these traces is whole, from its start to its end, and meant by the options");
        }
        Ok(self)
    }
}
