//! `causes`: plants causes of slow RPCs, records time traces, and checks the causes that `homa trace tail`
//! finds.

mod disturbed;
pub(super) mod planted;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use homa_analysis::Model;
use homa_analysis::align::ClockChoice;
use homa_analysis::selection::{Baseline, Filter, Selection};
use homa_analysis::tail::{Site, Tail};
use homa_bench::engine::rtt::RttTable;
use homa_bench::engine::summary::Summary;
use homa_bench::protocol::Protocol;
use homa_bench::workloads::Truncation;
use homa_report::findings::{Findings, Section, Table};
use serde::Serialize;
use serde_json::json;

use super::harness::{Harness, Score};
use super::options::{CausesOptions, MessageOptions};
use super::setup::TRACE_RECORDS;
use super::sweep::{NamedScore, finish};
use super::testbed::Testbed;
use disturbed::RunningDisturbance;
use planted::PlantedCause;

/// Load as a share of the link rate, low enough that the few long messages rarely overlap.
const LOAD: f64 = 0.1;

/// Minimum number of hosts: two communicating hosts and a disturbing one.
const LEAST_HOSTS: u16 = 3;

/// Maximum number of open RPCs per host: far more than these loads ever have.
const OPEN: u32 = 2_000;

/// The cause to which the tail of a run was attributed.
#[derive(Clone, Debug, Serialize)]
struct Verdict {
    planted: PlantedCause,
    repetition: u32,
    /// Number of complete RPCs in the traces.
    rpcs: usize,
    /// Percentile of slowdown at which the tail begins.
    percentile: f64,
    /// Slowdown at that percentile.
    tail_slowdown: f64,
    /// `None` if no RPC was slower than its minimum time.
    cause: Option<&'static str>,
    /// The cause's share of the avoidable time in the tail.
    share: f64,
    place: String,
    /// Whether cause and location match those planted.
    found: bool,
}

/// Checks the options before a rack is built.
///
/// # Errors
/// A rack is named, or there are too few hosts.
pub fn check(options: &CausesOptions) -> Result<()> {
    ensure!(options.common.name.is_none(), "causes builds a rack for each run: leave out --name");
    ensure!(
        options.common.build.hosts >= LEAST_HOSTS,
        "causes needs at least {LEAST_HOSTS} hosts: one of them may be the disturbing one"
    );
    Ok(())
}

/// Maximum factor by which the configured measurement window is lengthened. A run whose traces contain no
/// complete RPC is repeated with a window twice as long. On busy processors, none of the few long messages
/// may complete.
const MOST_LENGTHENED: u32 = 8;

const NO_RPC: &str = "the traces contain no complete RPC";

/// Runs the experiment, with Homa only.
pub fn run(testbed: &mut Testbed, options: &CausesOptions) -> Result<Findings> {
    let traces = Traces::new(options.common.trace.as_deref());
    let first = messages(PlantedCause::None);
    let mut harness = Harness::new(testbed, &options.common, &first)?;
    harness.measure_unloaded()?;
    let unloaded = harness.unloaded;
    let (mut scores, mut verdicts): (Vec<NamedScore>, Vec<Verdict>) = (Vec::new(), Vec::new());
    for repetition in 1..=options.common.repetitions {
        for (index, &planted) in options.causes.iter().enumerate() {
            let name = format!("{}, {repetition}", planted.name());
            let mut lengthened = 1;
            let (verdict, score) = loop {
                let directory = traces.of(planted, repetition)?;
                let once = CauseRun { planted, repetition, name: &name, lengthened, directory: &directory };
                if let Some(found) = once.run(testbed, options, &unloaded)? {
                    traces.remove_traces(&directory);
                    break found;
                }
                ensure!(
                    lengthened < MOST_LENGTHENED,
                    "{}: use more --trace-records: {NO_RPC}",
                    planted.name()
                );
                lengthened *= 2;
                testbed.progress.say(&format!("{name}: {NO_RPC}: again, {lengthened} times as long"));
                fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
            };
            verdicts.push(verdict);
            scores.push((name, index as f64, score));
        }
    }
    let results = json!({ "runs": verdicts });
    let harness = Harness::new(testbed, &options.common, &first)?;
    let mut findings = finish(&harness, "causes", "Planted causes", &scores, Vec::new(), results);
    let heading = "Findings".to_owned();
    let text = format!(
        "Main cause of the slowest RPCs according to `homa trace tail`, and its share of their avoidable time: medians of {} runs",
        options.common.repetitions
    );
    let table = table(&options.causes, &verdicts);
    findings.sections.insert(0, Section { heading, text, table, charts: Vec::new() });
    Ok(findings)
}

/// One run: a rack, a load on it, and the evaluation of its traces.
struct CauseRun<'a> {
    planted: PlantedCause,
    repetition: u32,
    name: &'a str,
    /// Factor by which the configured measurement window is lengthened.
    lengthened: u32,
    directory: &'a Path,
}

impl CauseRun<'_> {
    /// Runs the load. Returns `None` if the traces contain no complete RPC.
    fn run(
        &self,
        testbed: &mut Testbed,
        options: &CausesOptions,
        unloaded: &RttTable,
    ) -> Result<Option<(Verdict, Score)>> {
        let CauseRun { planted, repetition, name, lengthened, directory } = *self;
        let mut build = options.common.build.clone();
        build.switch_option.extend(planted.switch_options());
        testbed.rebuild_traced(&build, directory)?;
        let messages = messages(planted);
        let mut harness = Harness::new(testbed, &options.common, &messages)?;
        harness.unloaded.clone_from(unloaded);
        let hosts = harness.testbed.spec().hosts;
        let rate = harness.rate_of_load(LOAD);
        let takes_part = |number| planted.takes_part(number, hosts);
        let mut load = harness.on(rate, repetition, takes_part);
        load.measured *= lengthened;
        let mut agents = harness.agents(Protocol::Homa, |setup| {
            let recording = &mut setup.recording;
            recording.records = Some(options.common.recording.records.unwrap_or(TRACE_RECORDS));
            // Device times distinguish a late host from a queue in front of the host.
            recording.device_times = true;
            planted.change(setup);
        })?;
        if !(1..=hosts).all(takes_part) {
            agents.open_among(harness.testbed, takes_part)?;
        }
        let disturbed = RunningDisturbance::begin(planted, harness.testbed, &agents)?;
        let score = harness.run(&mut agents, &load, name)?.0;
        drop(disturbed);
        drop(agents);
        testbed.stop_rack();
        let model = model(directory)?;
        Ok(evaluate(planted, repetition, &model, options)?.map(|verdict| (verdict, score)))
    }
}

/// Returns the messages of a run.
pub fn messages(planted: PlantedCause) -> MessageOptions {
    MessageOptions {
        workload: planted.message_bytes().to_string(),
        max_message: Truncation::Off,
        one_way: false,
        max_outstanding: OPEN,
    }
}

/// Reads the traces of a run and aligns their clocks.
fn model(directory: &Path) -> Result<Model> {
    let mut dumps = homa_trace::files::read_together(&[directory.to_owned()])?;
    for warning in ClockChoice::default().apply(&mut dumps) {
        tracing::warn!("{warning}");
    }
    Model::new(dumps).with_context(|| directory.display().to_string())
}

/// Evaluates the traces. Returns `None` if they contain no complete RPC.
fn evaluate(
    planted: PlantedCause,
    repetition: u32,
    model: &Model,
    options: &CausesOptions,
) -> Result<Option<Verdict>> {
    let baseline = Baseline { rate_bps: Some(options.common.build.rate), rpc_ns: None };
    let Selection { explainer, costs, chosen } = Selection::of(model, &Filter::default(), baseline)?;
    if chosen.is_empty() {
        return Ok(None);
    }
    let percentile = options.percentile.unwrap_or(planted.percentile());
    let tail = Tail::of(&explainer, &costs, &chosen, percentile);
    let main = tail.main_cause();
    let site = main.as_ref().map(|main| main.site);
    let is_right = |site: Site| {
        planted.expected_causes().contains(&site.cause)
            && planted.node().is_none_or(|node| model.name(site.node) == node)
            && planted.port().is_none_or(|port| site.place == Some(port))
    };
    Ok(Some(Verdict {
        planted,
        repetition,
        rpcs: tail.rpcs,
        percentile,
        tail_slowdown: tail.slowdown,
        cause: main.as_ref().map(|main| main.site.cause.name()),
        share: main.as_ref().map_or(0.0, |main| main.share),
        place: site.map_or_else(|| "-".to_owned(), |site| model.place(site.node, site.place)),
        found: site.is_some_and(is_right),
    }))
}

fn table(causes: &[PlantedCause], verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[
        "planted",
        "found in",
        "main cause",
        "of avoidable time, %",
        "from",
        "tail's slowdown",
        "mostly at",
    ]);
    for &planted in causes {
        let own: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.planted == planted).collect();
        let found = own.iter().filter(|verdict| verdict.found).count();
        let counted = if planted.expected_causes().is_empty() {
            "-".to_owned()
        } else {
            format!("{found} of {}", own.len())
        };
        table.rows.push(vec![
            planted.name().to_owned(),
            counted,
            tally(own.iter().map(|verdict| verdict.cause.unwrap_or("nothing"))),
            format!("{:.0}", 100.0 * median(own.iter().map(|verdict| verdict.share))),
            format!("P{}", median(own.iter().map(|verdict| verdict.percentile))),
            format!("{:.1}", median(own.iter().map(|verdict| verdict.tail_slowdown))),
            tally(own.iter().map(|verdict| verdict.place.as_str())),
        ]);
    }
    table
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Summary::of(values).unwrap_or_default().median
}

/// Lists each name once, the most frequent first. If there are several names, adds the count of each.
fn tally<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    if let [(only, _)] = counts[..] {
        return only.to_owned();
    }
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// The directory of the traces, either temporary or named by the user.
struct Traces {
    directory: PathBuf,
    keep: bool,
}

impl Traces {
    fn new(wanted: Option<&Path>) -> Traces {
        let directory = match wanted {
            Some(directory) => directory.to_owned(),
            None => std::env::temp_dir().join(format!("homa-causes-{}", std::process::id())),
        };
        Traces { directory, keep: wanted.is_some() }
    }

    /// Creates the directory of a run.
    fn of(&self, planted: PlantedCause, repetition: u32) -> Result<PathBuf> {
        let directory = self.directory.join(format!("{}-{repetition}", planted.name()));
        if directory.exists() {
            bail!("there are time traces in {} already: choose another --trace", directory.display());
        }
        fs::create_dir_all(&directory).with_context(|| {
            format!("cannot write time traces to {}: choose another --trace", directory.display())
        })?;
        directory.canonicalize().with_context(|| directory.display().to_string())
    }

    fn remove_traces(&self, directory: &Path) {
        if !self.keep {
            // Files that remain are removed with the parent directory.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_where_there_are_several() {
        assert_eq!(tally(["a", "a"].into_iter()), "a");
        assert_eq!(tally(["a", "b", "b"].into_iter()), "b 2, a 1");
        assert_eq!(tally(std::iter::empty()), "");
    }

    #[test]
    fn traces_that_nobody_wants_are_gone_afterwards() {
        let traces = Traces::new(None);
        let directory = traces.of(PlantedCause::Loss, 1).expect("a directory");
        assert!(directory.is_dir());
        let root = traces.directory.clone();
        drop(traces);
        assert!(!directory.exists() && !root.exists());
    }
}
