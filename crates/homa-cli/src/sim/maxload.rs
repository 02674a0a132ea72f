//! `homa sim max-load`: finds the highest load that each transport sustains.

use anyhow::{Result, anyhow};
use homa_report::number::brief;
use homa_report::outputs::Outputs;
use homa_report::table::columns;
use homa_sim::ClusterReport;
use serde::Serialize;
use serde_json::{Map, Value};

use super::args::MaxLoadArgs;
use super::draft::SettingsDraft;
use super::run::SCHEMA;
use super::work::{self, Bars};
use super::{fits, knobs, page};

/// Number of steps between load 0 and 1.
const STEPS: u32 = 100;
/// Maximum growth of the bytes in flight from the first to the last quarter of the measured time, as a share
/// of the bytes that started in between. If the load is too high by this share, the growth is larger.
const MAX_GROWTH: f64 = 0.03;
/// Allowance for random growth, as a multiple of the longest message times the square root of the number of
/// hosts. Messages in flight count with their whole length, so a few long messages are not a trend.
const CHANCE: f64 = 0.5;
/// Time from the middle of the first quarter to the middle of the last, as a share of the measured time.
const BETWEEN: f64 = 0.75;
/// Maximum slowdown of the longest message at the highest sustained load.
const LONGEST_SLOWDOWN: u64 = 20;

/// Maximum warm-up, as a multiple of the measured time. As the load approaches the highest one, the time to
/// reach steady state grows without bound.
const MAX_WARM_UP: u64 = 4;

/// Results of one load.
#[derive(Clone, Debug, Serialize)]
struct Probe {
    load: f64,
    sustained: bool,
    /// Number of measured messages that had not arrived when the run ended.
    unfinished: u64,
    /// Growth of the bytes in flight, as a share of the bytes that started.
    backlog_growth: f64,
    goodput: f64,
    /// P99 slowdown of the shorter half of the messages.
    short_half_p99: f64,
}

/// The highest load of a transport.
#[derive(Clone, Debug, Serialize)]
struct MaxLoadResult {
    transport: String,
    /// The highest sustained load, or 0 if no load was sustained.
    max_load: f64,
    /// Goodput at this load, as a share of the links' capacity.
    goodput: f64,
    /// All loads that were tried, in order.
    probes: Vec<Probe>,
}

#[derive(Serialize)]
struct Results<'a> {
    schema: u32,
    setup: &'a Map<String, Value>,
    transports: &'a [MaxLoadResult],
}

impl Probe {
    fn new(load: f64, report: &ClusterReport, longest_bytes: u32) -> Probe {
        let chance = CHANCE * f64::from(longest_bytes) * (report.hosts as f64).sqrt();
        let growth = report.backlog_last_bytes - report.backlog_first_bytes;
        let between = (report.started_bytes as f64 * BETWEEN).max(1.0);
        let backlog_growth = growth / between;
        Probe {
            load,
            sustained: report.unfinished == 0 && growth <= MAX_GROWTH * between + chance,
            unfinished: report.unfinished,
            backlog_growth,
            goodput: report.goodput,
            short_half_p99: report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p99),
        }
    }
}

/// Finds the highest loads, and prints and writes the results.
///
/// # Errors
/// A one-line description of what is wrong with the options or a file.
pub fn run(args: &MaxLoadArgs) -> Result<()> {
    let mut draft = args.what.draft()?;
    let is_said = |name: &str| args.what.knobs.values.iter().any(|(said, _)| *said == name);
    for (name, why) in [
        ("load", "max-load searches for the load"),
        ("senders", "an incast has no load"),
        ("incast-interval", "an incast has no load"),
        ("outstanding", "a closed loop has no load"),
    ] {
        if is_said(name) {
            return Err(anyhow!("--{name}: {why}"));
        }
    }
    let plan = draft.build().map_err(|error| anyhow!(error))?;
    if plan.load().is_none() {
        return Err(anyhow!("preset {}: an incast has no load", plan.preset));
    }
    if !is_said("drain") {
        let bytes_per_ns = plan.cluster.link.rate_bps as f64 / 8e9;
        let longest_ns = f64::from(plan.cluster.workload.max_bytes()) / bytes_per_ns;
        let longest_ns = LONGEST_SLOWDOWN.saturating_mul(longest_ns as u64);
        draft.cluster.drain_ns = longest_ns.max(2 * plan.cluster.duration_ns).min(3_600_000_000_000);
    }
    let plan = draft.build().map_err(|error| anyhow!(error))?;
    let at_once = args.what.jobs().min(args.what.transport.len());
    fits::check(&plan.cluster, at_once).map_err(|error| anyhow!(error))?;
    let outputs = Outputs::json_only(args.json.as_deref())?;
    fits::announce(&plan.cluster);
    let bars = Bars::default();
    let mut found: Vec<Option<MaxLoadResult>> = vec![None; args.what.transport.len()];
    work::each(
        args.what.jobs(),
        &args.what.transport,
        |transport| search(&draft, transport, &bars),
        |index, highest| {
            found[index] = Some(highest);
            Ok(())
        },
    )
    .map_err(|error| anyhow!(error))?;
    let found: Vec<MaxLoadResult> = found.into_iter().flatten().collect();
    let mut setup = knobs::setup(&plan, &args.what.transport);
    setup.remove("load");
    let results = Results { schema: SCHEMA, setup: &setup, transports: &found };
    outputs.answer(&text(&setup, &found), &results)
}

/// Searches by bisection, assuming that all loads below a sustained load are also sustained.
fn search(draft: &SettingsDraft, transport: &str, bars: &Bars) -> Result<MaxLoadResult, String> {
    let (mut sustained, mut too_high) = (0, STEPS + 1);
    let mut probes = Vec::new();
    let mut goodput = 0.0;
    while too_high - sustained > 1 {
        let step = u32::midpoint(sustained, too_high);
        let load = f64::from(step) / f64::from(STEPS);
        let mut plan = SettingsDraft { load: Some(load), ..draft.clone() }.build()?;
        if draft.warm_up_ns.is_none() {
            let longest_ns = MAX_WARM_UP.saturating_mul(plan.cluster.duration_ns);
            plan.cluster.warm_up_ns = plan.cluster.warm_up_ns.min(longest_ns);
        }
        let (report, _) = work::run(&plan, transport, &format!("{transport} at {step} %"), bars)?;
        let probe = Probe::new(load, &report, plan.cluster.workload.max_bytes());
        if probe.sustained {
            (sustained, goodput) = (step, probe.goodput);
        } else {
            too_high = step;
        }
        probes.push(probe);
    }
    let max_load = f64::from(sustained) / f64::from(STEPS);
    Ok(MaxLoadResult { transport: transport.to_owned(), max_load, goodput, probes })
}

fn text(setup: &Map<String, Value>, found: &[MaxLoadResult]) -> String {
    let head = ["highest load", "goodput there", "loads tried"].map(str::to_owned);
    let rows: Vec<_> = found
        .iter()
        .map(|highest| {
            let percent = |share: f64| format!("{} %", brief(share * 100.0));
            let tried = highest.probes.iter().map(|probe| {
                let mark = if probe.sustained { "" } else { "!" };
                format!("{:.0}{mark}", probe.load * 100.0)
            });
            let cells = vec![
                percent(highest.max_load),
                percent(highest.goodput),
                tried.collect::<Vec<_>>().join(" "),
            ];
            (highest.transport.clone(), cells)
        })
        .collect();
    format!(
        "{}\nSustained: every measured message arrived in time, and the bytes in flight did not grow; ! marks loads that were not sustained.\n\n{}",
        page::summary(setup),
        columns(&head, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(change: impl FnOnce(&mut ClusterReport)) -> bool {
        let mut report = ClusterReport { started_bytes: 1_000, hosts: 4, ..ClusterReport::default() };
        change(&mut report);
        Probe::new(0.5, &report, 10).sustained
    }

    #[test]
    fn a_growing_backlog_or_a_missing_message_is_too_much() {
        assert!(probe(|_| ()));
        assert!(probe(|report| report.backlog_last_bytes = 32.0));
        assert!(!probe(|report| report.backlog_last_bytes = 33.0));
        assert!(probe(|report| (report.backlog_first_bytes, report.backlog_last_bytes) = (500.0, 22.0)));
        assert!(!probe(|report| report.unfinished = 1));
    }
}
