//! `homa sim sweep`: combinations of parameters and seeds.

pub mod file;
mod rows;
mod store;

use std::path::PathBuf;
use std::slice;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use homa_report::outputs::Outputs;
use homa_sim::ClusterReport;
use serde::Serialize;
use serde_json::{Map, Value};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::SweepArgs;
use super::run::SCHEMA;
use super::work::{self, Bars};
use super::{fits, knobs, steady};
use file::{Run, Sweep};
use rows::Row;
use store::Store;

/// The contents of `results.json`.
#[derive(Serialize)]
struct Results<'a> {
    schema: u32,
    title: &'a str,
    /// All settings of the first run.
    setup: &'a Map<String, Value>,
    rows: &'a [Row],
}

/// Progress of a sweep. It is locked while a run is being written, so that a signal leaves no partial file.
struct SweepProgress {
    finished: usize,
    /// Whether all runs are finished, so that signals no longer affect the sweep.
    is_over: bool,
}

/// Executes the runs that are not finished yet, and prints and writes the results of all runs.
///
/// # Errors
/// A one-line description of what is wrong with the file, or of what cannot be written.
pub fn run(args: &SweepArgs) -> Result<()> {
    let mut sweep = Sweep::open(&args.file).map_err(|error| anyhow!(error))?;
    for text in &args.set {
        let (name, value) = text.split_once('=').with_context(|| format!("--set {text}: use NAME=VALUE"))?;
        sweep.set(name.trim(), value.trim()).map_err(|error| anyhow!("--set {text}: {error}"))?;
    }
    if !args.seeds.is_empty() {
        sweep.seeds = args.seeds.clone();
        sweep.seeds.sort_unstable();
        sweep.seeds.dedup();
    }
    let runs = sweep.runs().map_err(|error| anyhow!(error))?;
    let jobs = work::jobs(args.jobs.map(usize::from));
    // Runs that differ only in the seed need the same memory and time.
    for alike in runs.chunk_by(|one, other| one.values == other.values) {
        let run = &alike[0];
        fits::check(&run.plan.cluster, jobs.min(runs.len()))
            .map_err(|error| anyhow!("{}: {error}", label(run)))?;
    }
    let directory = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("sim-{}", sweep.name)));
    let store = Store::open(&directory)?;
    let outputs = Outputs::check(Some(&directory), args.json.as_deref())?;
    let mut reports: Vec<Option<ClusterReport>> = runs.iter().map(|run| store.read(run)).collect();
    let missing: Vec<usize> = (0..runs.len()).filter(|&index| reports[index].is_none()).collect();
    let finished = runs.len() - missing.len();
    if finished > 0 {
        eprintln!(
            "{finished} of {} runs were finished before and are in {}",
            runs.len(),
            directory.display()
        );
    }
    let done: &'static Mutex<SweepProgress> =
        Box::leak(Box::new(Mutex::new(SweepProgress { finished, is_over: false })));
    keep_on_signal(done, runs.len(), directory.display().to_string())?;
    let bars = Bars::default();
    let total = bars.total(runs.len());
    total.set_position(finished as u64);
    let result = work::each(
        jobs,
        &missing,
        |&index| {
            let run = &runs[index];
            work::run(&run.plan, &run.transport, &label(run), &bars).map_err(|error| anyhow!(error))
        },
        |index, (report, _)| {
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            store.write(&runs[missing[index]], &report)?;
            reports[missing[index]] = Some(report);
            done.finished += 1;
            total.inc(1);
            Ok(())
        },
    );
    total.finish_and_clear();
    let mut state = done.lock().unwrap_or_else(PoisonError::into_inner);
    result.with_context(|| {
        format!("{} of {} runs are finished and kept in {}", state.finished, runs.len(), directory.display())
    })?;
    state.is_over = true;
    drop(state);
    let runs: Vec<(Run, ClusterReport)> =
        runs.into_iter().zip(reports).filter_map(|(run, report)| Some((run, report?))).collect();
    let setup = runs
        .first()
        .map(|(run, _)| knobs::setup(&run.plan, slice::from_ref(&run.transport)))
        .unwrap_or_default();
    let reports: Vec<&ClusterReport> = runs.iter().map(|(_, report)| report).collect();
    steady::print_count(&reports);
    let rows = rows::rows(&sweep, &runs, Store::file_name);
    let results = Results { schema: SCHEMA, title: &sweep.title, setup: &setup, rows: &rows };
    outputs.write(&rows::text(&sweep, &rows), &results, || rows::page(&sweep, &rows, &setup))
}

fn label(run: &Run) -> String {
    let values = run.values.iter().flatten().map(String::as_str);
    let parts: Vec<&str> = std::iter::once(run.transport.as_str()).chain(values).collect();
    format!("{} seed {}", parts.join(" "), run.seed)
}

/// Exits with one line of output on ctrl-C, but never while the file of a run is being written.
fn keep_on_signal(done: &'static Mutex<SweepProgress>, runs: usize, directory: String) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
    thread::spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        let done = done.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = done.finished;
        if done.is_over {
            eprintln!("homa: interrupted: all {runs} runs are finished and kept in {directory}");
        } else {
            eprintln!(
                "homa: interrupted: {finished} of {runs} runs are finished and kept in {directory}; the same command goes on from there"
            );
        }
        std::process::exit(i32::from(crate::FAILED));
    });
    Ok(())
}
