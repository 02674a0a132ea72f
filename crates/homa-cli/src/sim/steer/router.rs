//! `homa sim router`: a few TCP connections through a router with several cores.

use anyhow::{Result, anyhow};
use homa_report::chart::{Chart, Curve, Point, Scale, class_of, escape};
use homa_report::number::brief;
use homa_report::outputs::Outputs;
use homa_report::page;
use homa_report::table::{TableRow, columns};
use homa_sim::{Costs, RouterConfig, RouterReport};
use serde::Serialize;

use super::super::run::SCHEMA;
use super::super::work;
use super::args::{self, RouterArgs};

/// Results of a policy for a given number of connections and cores, over all its runs. Rates are in Mbit/s,
/// summed over both directions.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    policy: String,
    cores: usize,
    flows: u32,
    mean_mbps: f64,
    min_mbps: f64,
    max_mbps: f64,
    /// Gain over the first policy with the same number of connections and cores; 0.1 means 10 % more.
    gain: f64,
    runs: Vec<RouterReport>,
}

#[derive(Serialize)]
struct Results<'a> {
    schema: u32,
    costs: &'a Costs,
    duration_ns: u64,
    rows: &'a [Row],
}

/// Runs all combinations, and prints and writes the results.
///
/// # Errors
/// A one-line description of what is wrong with the options or a file.
pub fn run(args: &RouterArgs) -> Result<()> {
    let costs = args::costs(&args.costs).map_err(|error| anyhow!(error))?;
    let runs = plan(args, &costs)?;
    let duration_ns = runs.first().map_or(0, |run| run.duration_ns);
    let outputs = Outputs::check(args.work.out.as_deref(), args.work.json.as_deref())?;
    let reports = work::all(work::jobs(args.work.jobs.map(usize::from)), &runs, |_, run| run.run());
    let rows = rows(&reports, args.runs as usize);
    let results = Results { schema: SCHEMA, costs: &costs, duration_ns, rows: &rows };
    let summary = format!(
        "TCP both ways through a router; {} runs of {} s each, costs {}; Mbit/s, both directions together",
        args.runs,
        duration_ns as f64 / 1e9,
        costs.name
    );
    outputs.write(&format!("{summary}\n\n{}", text(&rows)), &results, || page(&summary, &rows))
}

/// Returns all runs. Runs of the same combination are adjacent, as are combinations that have the same number
/// of cores and connections.
fn plan(args: &RouterArgs, costs: &Costs) -> Result<Vec<RouterConfig>> {
    let mut runs = Vec::new();
    for &cores in &args.cores {
        for &flows in &args.flows {
            for policy in args::chosen(&args.policies) {
                for run in 0..args.runs {
                    let base = RouterConfig::new(policy, flows, args.seed.wrapping_add(run));
                    let duration_ns = args.duration.unwrap_or(base.duration_ns);
                    let config = RouterConfig { costs: costs.clone(), cores, duration_ns, ..base };
                    config.check().map_err(|error| anyhow!("{error}"))?;
                    runs.push(config);
                }
            }
        }
    }
    Ok(runs)
}

fn rows(reports: &[RouterReport], runs: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for reports in reports.chunks(runs.max(1)) {
        let Some(first) = reports.first() else { continue };
        let sums = reports.iter().map(|report| report.forward_mbps + report.back_mbps);
        let mean_mbps = sums.clone().sum::<f64>() / reports.len() as f64;
        let other = rows.iter().find(|row| (row.cores, row.flows) == (first.cores, first.flows));
        let gain = other.map_or(0.0, |row| mean_mbps / row.mean_mbps.max(f64::MIN_POSITIVE) - 1.0);
        rows.push(Row {
            policy: first.policy.clone(),
            cores: first.cores,
            flows: first.flows,
            mean_mbps,
            min_mbps: sums.clone().fold(f64::INFINITY, f64::min),
            max_mbps: sums.fold(0.0, f64::max),
            gain,
            runs: reports.to_vec(),
        });
    }
    rows
}

fn cells(rows: &[Row]) -> (Vec<String>, Vec<TableRow>) {
    let head = ["cores", "flows", "mean", "least", "most", "gain %"].map(str::to_owned).to_vec();
    let line = |row: &Row| {
        let figures = [row.mean_mbps, row.min_mbps, row.max_mbps].map(brief);
        let mut cells = vec![row.cores.to_string(), row.flows.to_string()];
        cells.extend(figures);
        cells.push(format!("{:+.1}", 100.0 * row.gain));
        (row.policy.clone(), cells)
    };
    (head, rows.iter().map(line).collect())
}

fn text(rows: &[Row]) -> String {
    let (head, lines) = cells(rows);
    columns(&head, &lines)
}

fn page(summary: &str, rows: &[Row]) -> String {
    let mut out = page::head("A few connections through a router with several cores");
    out.push_str(&format!(
        "<p class=\"quiet\">{}</p>\n<figure>\n{}</figure>\n",
        escape(summary),
        chart(rows).figure()
    ));
    out.push_str("<h2>In numbers</h2>\n");
    let (head, lines) = cells(rows);
    out.push_str(&page::table(&head, &lines));
    out.push_str(page::FOOT);
    out
}

fn chart(rows: &[Row]) -> Chart {
    let mut flows: Vec<u32> = rows.iter().map(|row| row.flows).collect();
    flows.sort_unstable();
    flows.dedup();
    let x = |flow: u32| {
        (flows.iter().position(|&other| other == flow).unwrap_or(0) as f64 + 0.5) / flows.len() as f64
    };
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let label = format!("{} on {}", row.policy, row.cores);
        let title = format!(
            "{label} cores, {} connections: {} Mbit/s ({} to {})",
            row.flows,
            brief(row.mean_mbps),
            brief(row.min_mbps),
            brief(row.max_mbps)
        );
        let point = Point { x: x(row.flows), y: row.mean_mbps, title };
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                class: class_of(curves.len()),
                label,
                is_reference: false,
                points: vec![point],
            }),
        }
    }
    Chart {
        x_title: "connections each way".to_owned(),
        y_title: "Mbit/s".to_owned(),
        scale: Scale::Linear,
        x_ticks: flows.iter().map(|&flow| (x(flow), flow.to_string())).collect(),
        curves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_runs_and_is_compared_with_the_first_policy() {
        let report = |policy: &str, mbps| RouterReport {
            policy: policy.to_owned(),
            cores: 4,
            flows: 1,
            forward_mbps: mbps,
            ..RouterReport::default()
        };
        let rows = rows(&[report("a", 1.0), report("a", 3.0), report("b", 3.0), report("b", 3.0)], 2);
        let seen: Vec<_> =
            rows.iter().map(|row| (row.mean_mbps, row.min_mbps, row.gain, row.runs.len())).collect();
        assert_eq!(seen, [(2.0, 1.0, 0.0, 2), (3.0, 3.0, 0.5, 2)]);
        assert!(text(&rows).contains("+50.0") && chart(&rows).curves.len() == 2);
    }
}
