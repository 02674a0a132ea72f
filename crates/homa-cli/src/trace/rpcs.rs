//! `homa trace rpcs`: a list of RPCs.

use anyhow::Result;
use clap::{Args, ValueEnum};
use homa_analysis::Model;
use homa_analysis::model::Rpc;
use homa_analysis::tail::{Cost, Costs};
use serde_json::{Value, json};

use super::answer::Answer;
use super::columns::Table;
use super::format::{ends, slowdown, us};
use super::load::Inputs;
use super::select::SelectionArgs;

/// The order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The highest slowdown first
    Slowdown,
    /// The longest first
    Duration,
    /// The earliest first
    Start,
    /// The largest first
    Size,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace rpcs traces/                                   the fifty with the largest slowdown
  homa trace rpcs --failed --order start traces/
  homa trace rpcs --min-size 100kB --node host-03 --from 10ms --until 12ms --limit 1000 traces/

An RPC whose start or end is missing in the traces has no duration.")]
pub struct RpcsArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub meant: SelectionArgs,
    /// Only RPCs with at least this slowdown
    #[arg(long, value_name = "TIMES")]
    pub min_slowdown: Option<f64>,
    /// Only RPCs that failed
    #[arg(long, conflicts_with = "min_slowdown")]
    pub failed: bool,
    /// Order of the list
    #[arg(long, value_enum, default_value = "slowdown")]
    pub order: Order,
    /// Maximum number of RPCs to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    #[command(flatten)]
    pub answer: Answer,
}

/// # Errors
/// A file cannot be read or written.
pub fn run(args: &RpcsArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let model = args.inputs.model()?;
    let held = args.meant.selection(&model)?;
    let chosen = chosen(&model, &held.costs, args);
    let shown = &chosen[..chosen.len().min(args.limit)];
    let mut text = table(&model, shown).text();
    text.push_str(&format!("{} of {} selected RPCs\n", shown.len(), chosen.len()));
    let listed: Vec<Value> = shown.iter().map(|(rpc, cost)| to_json(&model, rpc, *cost)).collect();
    outputs.answer(&text, &json!({ "meant": chosen.len(), "rpcs": listed }))
}

type ListedRpc<'m> = (&'m Rpc, Option<Cost>);

fn chosen<'m>(model: &'m Model, costs: &Costs, args: &RpcsArgs) -> Vec<ListedRpc<'m>> {
    let filter = args.meant.filter.to_filter();
    let mut known = costs.costs.iter().copied().peekable();
    let mut chosen: Vec<ListedRpc<'m>> = Vec::new();
    for (rpc, number) in model.rpcs.iter().zip(0..) {
        let cost = known.next_if(|cost| cost.rpc == number);
        let slow = args.min_slowdown.is_none_or(|least| cost.is_some_and(|cost| cost.slowdown() >= least));
        let failed = !args.failed || rpc.result.is_some_and(|result| result != 0);
        if slow && failed && filter.takes(model, rpc) {
            chosen.push((rpc, cost));
        }
    }
    let slowdown = |listed: &ListedRpc<'_>| listed.1.map_or(0.0, |cost| cost.slowdown());
    match args.order {
        Order::Slowdown => chosen.sort_by(|a, b| slowdown(b).total_cmp(&slowdown(a))),
        Order::Duration => {
            chosen.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.map(|cost| cost.duration_ns)))
        }
        Order::Start => chosen.sort_by_key(|(rpc, _)| rpc.start),
        Order::Size => {
            chosen.sort_by_key(|(rpc, _)| std::cmp::Reverse(rpc.request.length.max(rpc.response.length)));
        }
    }
    chosen
}

fn result(rpc: &Rpc) -> String {
    match rpc.result {
        Some(0) => "success".to_owned(),
        Some(error) => format!("error {error}"),
        None => "no end".to_owned(),
    }
}

fn table(model: &Model, rpcs: &[ListedRpc<'_>]) -> Table {
    let head =
        ["<RPC", "<from > to", "request", "response", "start us", "us", "best us", "slowdown", "<result"];
    let mut table = Table::new(&head);
    for (rpc, cost) in rpcs {
        let of = |show: &dyn Fn(&Cost) -> String| cost.as_ref().map_or("-".to_owned(), show);
        table.row([
            rpc.id.to_string(),
            ends(model, rpc),
            rpc.request.length.to_string(),
            rpc.response.length.to_string(),
            rpc.start.ns().map_or("-".to_owned(), us),
            of(&|cost| us(cost.duration_ns)),
            of(&|cost| us(cost.best_ns)),
            of(&|cost| slowdown(cost.slowdown())),
            result(rpc),
        ]);
    }
    table
}

fn to_json(model: &Model, rpc: &Rpc, cost: Option<Cost>) -> Value {
    json!({
        "id": rpc.id, "client": model.name(rpc.client), "server": model.name(rpc.server), "start_ns": rpc.start.ns(),
        "request_bytes": rpc.request.length, "response_bytes": rpc.response.length, "result": rpc.result,
        "duration_ns": cost.map(|cost| cost.duration_ns), "best_ns": cost.map(|cost| cost.best_ns),
        "slowdown": cost.map(|cost| cost.slowdown()),
    })
}
