//! Options that select RPCs in traces, and the baseline for their slowdown.

use anyhow::{Result, bail};
use clap::Args;
use homa_analysis::Model;
use homa_analysis::selection::{Baseline, Filter, Selection};
use homa_report::units::{bytes_u32, duration_ns, rate_bps};

use super::load::of_option;

/// The baseline of slowdown.
#[derive(Args, Clone, Debug, Default)]
pub struct BaselineArgs {
    /// Rate of the hosts' links, as in 25gbit [default: derived from the traces]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub rate: Option<u64>,
    /// Duration of an RPC without payload in an idle network, as in 15us: slowdown is then relative to this
    /// and --rate [default: the duration of each RPC without its disturbances]
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub base: Option<u64>,
}

impl BaselineArgs {
    /// Returns the baseline.
    pub fn to_baseline(&self) -> Baseline {
        Baseline { rate_bps: self.rate, rpc_ns: self.base }
    }
}

/// Options that select RPCs.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only RPCs whose longer message has at least this many bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes_u32)]
    pub min_size: Option<u32>,
    /// Only RPCs whose longer message has at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes_u32)]
    pub max_size: Option<u32>,
    /// Only RPCs with this node as client or server
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only RPCs that began at least this long after the first event, as in 10ms
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub from: Option<u64>,
    /// Only RPCs that began before that time
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub until: Option<u64>,
}

impl FilterArgs {
    /// Returns the options as a filter.
    pub fn to_filter(&self) -> Filter {
        Filter {
            min_size: self.min_size,
            max_size: self.max_size,
            node: self.node.clone(),
            from_ns: self.from,
            until_ns: self.until,
        }
    }

    /// # Errors
    /// The filter's node does not exist.
    pub fn selection<'m>(&self, model: &'m Model, baseline: Baseline) -> Result<Selection<'m>> {
        Selection::of(model, &self.to_filter(), baseline).map_err(of_option("--node"))
    }
}

/// Options that select RPCs, and the baseline.
#[derive(Args, Clone, Debug)]
pub struct SelectionArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub against: BaselineArgs,
}

impl SelectionArgs {
    /// Returns the selected RPCs.
    ///
    /// # Errors
    /// There is no node with the filter's name.
    pub fn selection<'m>(&self, model: &'m Model) -> Result<Selection<'m>> {
        self.filter.selection(model, self.against.to_baseline())
    }

    /// Returns the selected RPCs, for analyses that need at least one RPC.
    ///
    /// # Errors
    /// The errors of [`SelectionArgs::selection`], or no complete RPC is selected.
    pub fn non_empty<'m>(&self, model: &'m Model) -> Result<Selection<'m>> {
        let selection = self.selection(model)?;
        if selection.chosen.is_empty() {
            bail!("no selected RPC is complete in these traces, from its start to its end");
        }
        Ok(selection)
    }
}
