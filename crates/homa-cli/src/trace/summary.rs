//! `homa trace summary`: an overview of traces.

use anyhow::Result;
use clap::Args;
use homa_analysis::selection::Selection;
use homa_analysis::summary::{SizeSummary, Summary};
use homa_analysis::{Explainer, Model};
use homa_trace::NodeKind;
use serde_json::{Value, json};

use super::answer::Answer;
use super::columns::Table;
use super::format::{percent, slowdown, time, us};
use super::load::Inputs;
use super::select::SelectionArgs;
use super::tail::{amounts, notes};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace summary traces/
  homa trace summary --node host-03 --json - host-*.trace

An RPC is whole if its start and its successful end are in the traces; its size is that of its longer message.
`homa trace tail --help` defines slowdown.")]
pub struct SummaryArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub meant: SelectionArgs,
    #[command(flatten)]
    pub answer: Answer,
}

/// # Errors
/// A file cannot be read or written.
pub fn run(args: &SummaryArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let model = args.inputs.model()?;
    let Selection { explainer, costs, chosen } = &args.meant.selection(&model)?;
    let summary = Summary::of(explainer, costs, chosen);
    let mut text = totals(&model, &summary);
    text.push('\n');
    text.push_str(&nodes(&model, &summary).text());
    if !summary.sizes.is_empty() {
        text.push('\n');
        text.push_str(&sizes(&summary.sizes).text());
    }
    for note in notes(explainer) {
        text.push_str(&format!("\nnote: {note}\n"));
    }
    outputs.answer(&text, &to_json(explainer, &summary))
}

/// Formats the totals in two lines.
pub fn totals(model: &Model, summary: &Summary) -> String {
    let events: u64 = summary.nodes.iter().map(|node| node.events).sum();
    let overwritten: u64 = summary.nodes.iter().map(|node| node.overwritten).sum();
    let data = summary.data_packets.max(1) as f64;
    format!(
        "{} nodes, {}, {events} events ({overwritten} older ones overwritten). {} RPCs: {} whole, {} failed, {} cut off.\n\
         {} DATA packets: {} sent again ({}), {} dropped by switches, {} lost elsewhere ({}).\n",
        model.nodes.len(),
        time(model.span_ns()),
        summary.rpcs,
        summary.whole,
        summary.failed,
        summary.cut_off,
        summary.data_packets,
        summary.sent_again,
        percent(summary.sent_again as f64 / data),
        summary.dropped,
        summary.lost,
        percent((summary.dropped + summary.lost) as f64 / data),
    )
}

/// Returns the nodes as a table.
pub fn nodes(model: &Model, summary: &Summary) -> Table {
    let mut table = Table::new(&[
        "<node",
        "<kind",
        "span ms",
        "events",
        "overwritten",
        "out packets",
        "out Gbit/s",
        "in packets",
        "in Gbit/s",
        "dropped",
        "grants",
        "resends",
        "clock +- us",
    ]);
    for (node, of) in model.nodes.iter().zip(&summary.nodes) {
        let rate = |bytes: u64| match of.span_ns {
            0 => "-".to_owned(),
            span => format!("{:.2}", bytes as f64 * 8.0 / span as f64),
        };
        table.row([
            node.name.clone(),
            kind(node.kind).to_owned(),
            format!("{:.2}", of.span_ns as f64 / 1e6),
            of.events.to_string(),
            of.overwritten.to_string(),
            of.packets_out.to_string(),
            rate(of.bytes_out),
            of.packets_in.to_string(),
            rate(of.bytes_in),
            of.dropped.to_string(),
            of.grants.to_string(),
            of.resends.to_string(),
            us(node.uncertainty_ns),
        ]);
    }
    table
}

fn kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Host => "host",
        NodeKind::Switch => "switch",
    }
}

/// Returns a table of durations and slowdowns by size.
pub fn sizes(sizes: &[SizeSummary]) -> Table {
    let mut table = Table::new(&[
        "bytes up to",
        "RPCs",
        "P50 us",
        "P99 us",
        "max us",
        "slowdown P50",
        "P99",
        "max",
        "<most extra",
        "of extra",
    ]);
    for size in sizes {
        let (cause, ns) = size.extra.largest();
        let [p50, p99, max] = size.duration_ns.map(us);
        let [slow50, slow99, slow_max] = size.slowdown.map(slowdown);
        table.row([
            size.up_to.map_or("more".to_owned(), |up_to| up_to.to_string()),
            size.rpcs.to_string(),
            p50,
            p99,
            max,
            slow50,
            slow99,
            slow_max,
            if ns > 0 { cause.name().to_owned() } else { "-".to_owned() },
            percent(ns as f64 / size.extra.total().max(1) as f64),
        ]);
    }
    table
}

/// Returns a size class as JSON.
pub fn size_json(size: &SizeSummary) -> Value {
    let [p50, p99, max] = size.duration_ns;
    let [slow50, slow99, slow_max] = size.slowdown;
    json!({
        "max_bytes": size.up_to, "rpcs": size.rpcs,
        "duration_p50_ns": p50, "duration_p99_ns": p99, "duration_max_ns": max,
        "slowdown_p50": slow50, "slowdown_p99": slow99, "slowdown_max": slow_max,
        "causes_ns": amounts(&size.amounts), "extra_ns": amounts(&size.extra),
    })
}

fn to_json(explainer: &Explainer<'_>, summary: &Summary) -> Value {
    let model = explainer.model;
    let node = |(node, of): (&homa_analysis::model::Node, &homa_analysis::summary::NodeSummary)| {
        json!({
            "name": node.name, "kind": kind(node.kind), "events": of.events, "overwritten": of.overwritten,
            "span_ns": of.span_ns, "packets_out": of.packets_out, "bytes_out": of.bytes_out, "packets_in": of.packets_in,
            "bytes_in": of.bytes_in, "dropped": of.dropped, "grants": of.grants, "resends": of.resends,
            "uncertainty_ns": node.uncertainty_ns,
        })
    };
    json!({
        "span_ns": model.span_ns(), "rpcs": summary.rpcs, "whole": summary.whole, "failed": summary.failed,
        "cut_off": summary.cut_off, "data_packets": summary.data_packets, "sent_again": summary.sent_again,
        "dropped": summary.dropped, "lost": summary.lost, "link_rate_bps": explainer.rate_bps(),
        "nodes": model.nodes.iter().zip(&summary.nodes).map(node).collect::<Vec<_>>(),
        "sizes": summary.sizes.iter().map(size_json).collect::<Vec<_>>(), "notes": notes(explainer),
    })
}
