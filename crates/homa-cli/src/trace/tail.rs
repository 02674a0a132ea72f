//! `homa trace tail`: the causes of the slowest RPCs.

use anyhow::Result;
use clap::Args;
use homa_analysis::selection::Selection;
use homa_analysis::tail::{Case, Site, Tail};
use homa_analysis::{Amounts, Cause, Explainer, Model};
use serde_json::{Value, json};

use super::answer::Answer;
use super::columns::Table;
use super::format::{at, ends, percent, slowdown, us};
use super::load::Inputs;
use super::select::SelectionArgs;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace tail traces/
  homa trace tail --percentile 99.9 --worst 30 --max-size 1000 traces/
  homa trace tail --json - merged.trace

Each nanosecond of an RPC has one cause: the analysis goes from its end back to its start along the
dependencies. The extra time is the avoidable part of it. For causes that every RPC has (processing,
wake-ups), only the excess over the least disturbed tenth of the RPCs of its size is extra. Slowdown is the
duration divided by the duration without the extra time. If the thread that drives a host is late, this shows
as several causes, depending on its work at that time (submit, sender_late, grant_receiver_late, read_gap,
not_running, wakeup). For the main cause, those of one host are counted together.")]
pub struct TailArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Percentile of slowdown at which the tail begins
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = percentile)]
    pub percentile: f64,
    /// Maximum number of RPCs to list, the slowest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub worst: usize,
    #[command(flatten)]
    pub meant: SelectionArgs,
    #[command(flatten)]
    pub answer: Answer,
}

/// Parses a percentile at which a tail may begin.
pub fn percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..100.0).contains(&value) => Ok(value),
        _ => Err("use 0 up to less than 100".to_owned()),
    }
}

/// # Errors
/// A file cannot be read or written, or no RPC is selected.
pub fn run(args: &TailArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let model = args.inputs.model()?;
    let Selection { explainer, costs, chosen } = &args.meant.non_empty(&model)?;
    let tail = Tail::of(explainer, costs, chosen, args.percentile);
    let mut text = String::new();
    head(&mut text, &tail, &chosen.iter().map(|cost| cost.slowdown()).collect::<Vec<_>>(), args.percentile);
    text.push_str(&verdict(&model, &tail));
    text.push('\n');
    text.push_str(&causes(&model, &tail).text());
    text.push('\n');
    text.push_str(&worst(&model, &tail, args.worst).text());
    for note in notes(explainer) {
        text.push_str(&format!("\nnote: {note}\n"));
    }
    outputs.answer(&text, &to_json(explainer, &tail, args))
}

fn head(out: &mut String, tail: &Tail, slowdowns: &[f64], percentile: f64) {
    let mut sorted = slowdowns.to_vec();
    sorted.sort_by(f64::total_cmp);
    let of = |percent| slowdown(at(&sorted, percent).unwrap_or(0.0));
    out.push_str(&format!(
        "{} RPCs: slowdown {} at the median, {} at P99, {} at most. The tail from P{percentile} on: {} RPCs with {} and more.\n\n",
        tail.rpcs,
        of(50.0),
        of(99.0),
        of(100.0),
        tail.cases.len(),
        slowdown(tail.slowdown),
    ));
}

/// Formats a line that names the main cause, and a line with its remedy.
pub fn verdict(model: &Model, tail: &Tail) -> String {
    let Some(main) = tail.main_cause() else {
        return "Main cause: none; nothing was slower than its best.\n".to_owned();
    };
    let cause = main.site.cause;
    let others: Vec<&str> = main.causes.iter().skip(1).map(|cause| cause.name()).collect();
    let with = match others.as_slice() {
        [] => String::new(),
        others => format!(", with what else a late thread shows as ({})", others.join(", ")),
    };
    format!(
        "Main cause: {}: {} of the extra time in the tail{with}; {} of it at {} ({cause}).\nWhat to do: {}.\n",
        cause.says(),
        percent(main.share),
        percent(main.there),
        model.place(main.site.node, main.site.place),
        cause.hint(),
    )
}

/// Returns the causes of the tail as a table, in decreasing order of time.
pub fn causes(model: &Model, tail: &Tail) -> Table {
    let mut table = Table::new(&[
        "<cause",
        "extra us/RPC",
        "of extra",
        "all us/RPC",
        "of all",
        "main in",
        "<most of it at",
    ]);
    let count = tail.cases.len().max(1) as u64;
    let mut order: Vec<Cause> = Cause::ALL.iter().copied().filter(|cause| tail.amounts[*cause] > 0).collect();
    order.sort_by_key(|cause| std::cmp::Reverse((tail.extra[*cause], tail.amounts[*cause])));
    for cause in order {
        let mains = tail.cases.iter().filter(|case| case.extra.largest().0 == cause && case.extra[cause] > 0);
        table.row([
            cause.name().to_owned(),
            us(tail.extra[cause] / count),
            percent(tail.extra[cause] as f64 / tail.extra.total().max(1) as f64),
            us(tail.amounts[cause] / count),
            percent(tail.amounts[cause] as f64 / tail.amounts.total().max(1) as f64),
            mains.count().to_string(),
            sites_of(tail, cause).next().map_or("-".to_owned(), |(site, ns)| {
                let share = percent(*ns as f64 / tail.extra[cause].max(1) as f64);
                format!("{} ({share})", model.place(site.node, site.place))
            }),
        ]);
    }
    table
}

fn sites_of(tail: &Tail, cause: Cause) -> impl Iterator<Item = &(Site, u64)> {
    tail.sites.iter().filter(move |(site, ns)| site.cause == cause && *ns > 0)
}

/// Returns the slowest RPCs as a table.
pub fn worst(model: &Model, tail: &Tail, count: usize) -> Table {
    let mut table = Table::new(&[
        "<RPC",
        "<from > to",
        "request",
        "response",
        "us",
        "best us",
        "slowdown",
        "<main cause",
        "of extra",
        "<where",
    ]);
    for case in tail.cases.iter().take(count) {
        let rpc = &model.rpcs[case.cost.rpc as usize];
        let (cause, share) = main_cause(case);
        table.row([
            rpc.id.to_string(),
            ends(model, rpc),
            rpc.request.length.to_string(),
            rpc.response.length.to_string(),
            us(case.cost.duration_ns),
            us(case.cost.best_ns),
            slowdown(case.cost.slowdown()),
            cause.name().to_owned(),
            percent(share),
            model.place(case.site.0.node, case.site.0.place),
        ]);
    }
    table
}

fn main_cause(case: &Case) -> (Cause, f64) {
    let (cause, ns) = case.extra.largest();
    (cause, ns as f64 / case.extra.total().max(1) as f64)
}

/// Returns notes on data that the traces lack, and on where its time is counted instead.
pub fn notes(explainer: &Explainer<'_>) -> Vec<String> {
    let gaps = explainer.gaps();
    let mut notes = Vec::new();
    if gaps.no_switch {
        notes.push("there is no trace of a switch: queues in switches count as network_queue".to_owned());
    }
    if gaps.no_bursts {
        notes.push("hosts without bursts in their traces (simulated ones): reading and batching count as processing or network".to_owned());
    }
    if gaps.no_application {
        notes.push("no trace shows when applications received messages: their time and the endpoint's count as server_app".to_owned());
    }
    if gaps.one_sided > 0 {
        notes.push(format!(
            "{} RPCs have a trace of only one side: pass the traces of all hosts",
            gaps.one_sided
        ));
    }
    if gaps.cut_off > 0 {
        notes.push(format!("{} RPCs extend beyond their server's trace and are left out", gaps.cut_off));
    }
    if explainer.rate_bps().is_none() {
        notes.push(
            "the traces do not show the links' rate, so a slow pacer looks like a busy link: pass --rate"
                .to_owned(),
        );
    }
    notes
}

/// Returns the nanoseconds for each cause as JSON.
pub fn amounts(amounts: &Amounts) -> Value {
    let pairs = Cause::ALL.iter().filter(|cause| amounts[**cause] > 0);
    Value::Object(pairs.map(|cause| (cause.name().to_owned(), json!(amounts[*cause]))).collect())
}

fn site(model: &Model, (site, ns): &(Site, u64)) -> Value {
    json!({
        "cause": site.cause.name(),
        "node": model.name(site.node),
        "place": site.place,
        "where": model.place(site.node, site.place),
        "ns": ns,
    })
}

fn to_json(explainer: &Explainer<'_>, tail: &Tail, args: &TailArgs) -> Value {
    let model = explainer.model;
    let case = |case: &Case| {
        let rpc = &model.rpcs[case.cost.rpc as usize];
        json!({
            "id": rpc.id, "client": model.name(rpc.client), "server": model.name(rpc.server),
            "start_ns": rpc.start.ns(), "request_bytes": rpc.request.length, "response_bytes": rpc.response.length,
            "duration_ns": case.cost.duration_ns, "best_ns": case.cost.best_ns, "slowdown": case.cost.slowdown(),
            "causes_ns": amounts(&case.amounts), "extra_ns": amounts(&case.extra),
            "main_cause": main_cause(case).0.name(), "main_share": main_cause(case).1, "main_site": site(model, &case.site),
        })
    };
    let main = tail.main_cause().map(|main| {
        let cause = main.site.cause;
        json!({
            "cause": cause.name(), "with": main.causes.iter().skip(1).map(|cause| cause.name()).collect::<Vec<_>>(),
            "share": main.share, "says": cause.says(), "hint": cause.hint(),
            "where": model.place(main.site.node, main.site.place), "share_there": main.there,
        })
    });
    json!({
        "rpcs": tail.rpcs, "percentile": args.percentile, "tail_rpcs": tail.cases.len(), "tail_slowdown": tail.slowdown,
        "main_cause": main, "causes_ns": amounts(&tail.amounts), "extra_ns": amounts(&tail.extra),
        "sites": tail.sites.iter().take(50).map(|one| site(model, one)).collect::<Vec<_>>(),
        "worst": tail.cases.iter().take(args.worst).map(case).collect::<Vec<_>>(),
        "notes": notes(explainer), "link_rate_bps": explainer.rate_bps(),
    })
}
