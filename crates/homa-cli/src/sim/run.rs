//! `homa sim run`.

use anyhow::{Context, Result, anyhow};
use homa_report::outputs::Outputs;
use homa_report::table::columns;
use homa_sim::ClusterReport;
use serde::Serialize;
use serde_json::{Map, Value};

use super::args::{RunArgs, WorkloadArgs};
use super::draft::{self, Plan, SettingsDraft};
use super::page::{self, RunPage};
use super::work::{self, Bars, Cost, Speed};
use super::{fits, knobs, preset, published, steady, table, trace};

/// Version of the JSON format. It increases when a field is removed or changes its meaning, but not when a
/// field is added.
pub const SCHEMA: u32 = 1;

/// The contents of `results.json`.
#[derive(Serialize)]
struct Results<'a> {
    /// Version of this format.
    schema: u32,
    /// All settings; times in ns, rates in bit/s, sizes in bytes.
    setup: &'a Map<String, Value>,
    /// One report per transport.
    runs: &'a [ClusterReport],
    /// Speed of each run, only with `--speed`. All other values are the same in each execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<Vec<Speed>>,
}

impl WorkloadArgs {
    /// Returns the settings of the requested run.
    ///
    /// # Errors
    /// The error names what is unknown or invalid.
    pub fn draft(&self) -> Result<SettingsDraft> {
        let mut draft = SettingsDraft::new(preset::named(&self.preset).map_err(|error| anyhow!(error))?);
        draft::check_transports(&self.transport).map_err(|error| anyhow!(error))?;
        for (name, _) in &self.knobs.values {
            knobs::check_concerns(name, &self.transport).map_err(|error| anyhow!(error))?;
        }
        self.knobs.apply(&mut draft).map_err(|error| anyhow!(error))?;
        for text in &self.set {
            let (name, value) =
                text.split_once('=').with_context(|| format!("--set {text}: use NAME=VALUE"))?;
            draft.homa.fields.push((name.trim().to_owned(), value.to_owned()));
        }
        Ok(draft)
    }

    /// Returns the number of threads.
    pub fn jobs(&self) -> usize {
        work::jobs(self.jobs.map(usize::from))
    }
}

/// Runs the simulation, and prints and writes the results.
///
/// # Errors
/// A one-line description of what is wrong with the options or a file.
pub fn run(args: &RunArgs) -> Result<()> {
    let mut plan = args.what.draft()?.build().map_err(|error| anyhow!(error))?;
    plan.check_load(&args.what.transport).map_err(|error| anyhow!(error))?;
    let at_once = args.what.jobs().min(args.what.transport.len());
    fits::check(&plan.cluster, at_once).map_err(|error| anyhow!(error))?;
    let traces = args
        .trace
        .as_deref()
        .map(|directory| trace::files(directory, &args.what.transport, &plan))
        .transpose()?;
    if traces.is_some() {
        plan.cluster.trace_records = args.trace_records as usize;
        plan.cluster.trace_slower_than_ns = args.trace_slower_than;
    }
    let published = match &args.published {
        Some(path) => published::read(path, &plan).map_err(|error| anyhow!(error))?,
        None => Vec::new(),
    };
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    fits::announce(&plan.cluster);
    let (reports, costs) = all(&plan, &args.what)?;
    steady::print(&reports);
    if let Some(traces) = &traces {
        trace::write(traces, &reports)?;
    }
    let setup = knobs::setup(&plan, &args.what.transport);
    let speed =
        args.speed.then(|| costs.iter().zip(&reports).map(|(cost, report)| cost.speed(report)).collect());
    let results = Results { schema: SCHEMA, setup: &setup, runs: &reports, speed };
    let page =
        RunPage { setup: &setup, workload: &plan.cluster.workload, reports: &reports, published: &published };
    outputs.write(&text(&setup, &reports), &results, || page::render(&page))
}

/// Runs all transports.
fn all(plan: &Plan, what: &WorkloadArgs) -> Result<(Vec<ClusterReport>, Vec<Cost>)> {
    let bars = Bars::default();
    let mut reports: Vec<Option<(ClusterReport, Cost)>> = vec![None; what.transport.len()];
    work::each(
        what.jobs(),
        &what.transport,
        |name| work::run(plan, name, name, &bars),
        |index, result| {
            reports[index] = Some(result);
            Ok(())
        },
    )
    .map_err(|error| anyhow!(error))?;
    let reports: Vec<_> = reports.into_iter().flatten().collect();
    for (report, cost) in &reports {
        eprintln!("{}", cost.line(&report.transport, report));
    }
    Ok(reports.into_iter().unzip())
}

fn text(setup: &Map<String, Value>, reports: &[ClusterReport]) -> String {
    let head: Vec<String> = reports.iter().map(|report| report.transport.clone()).collect();
    format!(
        "{}\nSlowdown: a message's time over the least time that it takes in an empty network.\n\n{}\n{}",
        page::summary(setup),
        table::slowdowns(reports),
        columns(&head, &table::totals(reports))
    )
}
