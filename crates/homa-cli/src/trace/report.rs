//! `homa trace report`: writes all analyses to one page.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use homa_analysis::selection::Selection;
use homa_analysis::summary::{SIZES, Summary, size_class};
use homa_analysis::tail::{Cost, Tail};
use homa_analysis::timeline::timeline;
use homa_analysis::{Amounts, Model, Path};
use homa_report::chart::{Chart, Curve, Point, Scale, escape};
use homa_report::number::size;
use homa_report::output::Output;
use homa_report::page::{FOOT, head};

use super::format::{at, ends, slowdown, time};
use super::load::Inputs;
use super::select::SelectionArgs;
use super::{lanes, summary, tail, timeline as stages};

/// Percentiles that are drawn as a curve.
const PERCENTILES: [f64; 13] = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 100.0];
/// Maximum number of curves in a chart: as many as the page has colours.
const CURVES: usize = 8;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example:
  homa trace report --out page.html traces/

Writes one self-contained file for a browser: durations by size, the causes of the tail, and the slowest RPCs.")]
pub struct ReportArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    /// The file to write
    #[arg(long, value_name = "FILE.html", default_value = "trace.html")]
    pub out: PathBuf,
    /// Percentile of slowdown at which the tail begins
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = tail::percentile)]
    pub percentile: f64,
    /// Maximum number of RPCs to draw, the slowest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub worst: usize,
    #[command(flatten)]
    pub meant: SelectionArgs,
}

/// # Errors
/// A file cannot be read or written, or no RPC is selected.
pub fn run(args: &ReportArgs) -> Result<()> {
    let output = Output::check(&args.out)?;
    let model = args.inputs.model()?;
    let held = args.meant.non_empty(&model)?;
    let tail = Tail::of(&held.explainer, &held.costs, &held.chosen, args.percentile);
    output.write(render(&held, &tail, args).as_bytes())?;
    eprintln!("written: {}", output.path().display());
    Ok(())
}

fn render(held: &Selection<'_>, slow: &Tail, args: &ReportArgs) -> String {
    let Selection { explainer, costs, chosen } = held;
    let model = explainer.model;
    let summary = Summary::of(explainer, costs, chosen);
    let mut out = head("Why RPCs were slow");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<style>\n{}</style>", lanes::style());
    let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(&summary::totals(model, &summary)));
    let verdict = tail::verdict(model, slow);
    let _ = writeln!(out, "<p class=\"finding\">{}</p>", escape(verdict.trim_end()).replace('\n', "<br>"));
    for note in tail::notes(explainer) {
        let _ = writeln!(out, "<p class=\"quiet\">Note: {}</p>", escape(&note));
    }
    let _ =
        writeln!(out, "<h2>Durations by size</h2>\n<figure>\n{}</figure>", durations(model, chosen).figure());
    out.push_str("<p class=\"quiet\">Each curve has the RPCs whose longer message is up to that long.</p>\n");
    out.push_str(&summary::sizes(&summary.sizes).html());
    causes(&mut out, model, &summary, slow);
    let short = timeline(model, chosen);
    if short.rpcs > 0 {
        let _ = writeln!(
            out,
            "<h2>Stages of short RPCs</h2>\n<p class=\"quiet\">Means in nanoseconds of {} RPCs of one packet each way.</p>",
            short.rpcs
        );
        out.push_str(&stages::table(&short).html());
    }
    out.push_str("<h2>The slowest RPCs</h2>\n");
    out.push_str(&tail::worst(model, slow, args.worst).html());
    let mut path = Path::default();
    for case in slow.cases.iter().take(args.worst) {
        let rpc = &model.rpcs[case.cost.rpc as usize];
        explainer.explain(rpc, &mut path);
        let _ = writeln!(
            out,
            "<figure>\n<figcaption>RPC {}, {}: {} and {} B, {}, slowdown {}, mostly {}</figcaption>\n{}</figure>",
            rpc.id,
            escape(&ends(model, rpc)),
            rpc.request.length,
            rpc.response.length,
            time(case.cost.duration_ns),
            slowdown(case.cost.slowdown()),
            case.extra.largest().0,
            lanes::rpc(model, rpc, &path)
        );
    }
    out.push_str("<h2>Nodes</h2>\n");
    out.push_str(&summary::nodes(model, &summary).html());
    out.push_str(FOOT);
    out
}

fn causes(out: &mut String, model: &Model, summary: &Summary, slow: &Tail) {
    let mut rows: Vec<(String, Amounts)> = summary
        .sizes
        .iter()
        .map(|of| {
            (of.up_to.map_or("larger".to_owned(), |up_to| format!("up to {}", size(up_to))), of.amounts)
        })
        .collect();
    rows.push(("the tail".to_owned(), slow.amounts));
    rows.push(("its extra".to_owned(), slow.extra));
    let mut all = Amounts::default();
    rows.iter().for_each(|(_, amounts)| all.add(amounts));
    let _ = writeln!(
        out,
        "<h2>What the time went to</h2>\n<figure>\n{}</figure>\n{}",
        lanes::bars(&rows),
        lanes::key(&all)
    );
    out.push_str(&tail::causes(model, slow).html());
}

fn durations(model: &Model, chosen: &[Cost]) -> Chart {
    let mut classes: Vec<Vec<u64>> = vec![Vec::new(); SIZES.len() + 1];
    for cost in chosen {
        classes[size_class(&model.rpcs[cost.rpc as usize])].push(cost.duration_ns);
    }
    let mut shown: Vec<(usize, Vec<u64>)> =
        classes.into_iter().enumerate().filter(|(_, durations)| !durations.is_empty()).collect();
    // If there are more size classes than colours, draw those with the most RPCs.
    shown.sort_by_key(|(_, durations)| std::cmp::Reverse(durations.len()));
    shown.truncate(CURVES);
    shown.sort_by_key(|(class, _)| *class);
    let curve = |(place, (class, mut durations)): (usize, (usize, Vec<u64>))| {
        durations.sort_unstable();
        let label = SIZES.get(class).map_or("larger".to_owned(), |up_to| size(*up_to));
        let point = |percent: f64| {
            let ns = at(&durations, percent).unwrap_or(0);
            let title = format!("{label}, P{percent}: {}, of {} RPCs", time(ns), durations.len());
            Point { x: percent / 100.0, y: ns as f64 / 1e3, title }
        };
        let points = PERCENTILES.map(point).to_vec();
        Curve { label: label.clone(), class: format!("s{place}"), is_reference: false, points }
    };
    Chart {
        x_title: "Percentile of the RPCs".to_owned(),
        y_title: "Duration, us".to_owned(),
        scale: Scale::Log,
        x_ticks: (0..=10).map(|tenth| (f64::from(tenth) / 10.0, format!("{}", tenth * 10))).collect(),
        curves: shown.into_iter().enumerate().map(curve).collect(),
    }
}
