//! `starve`: under overload, a sender that prefers the shortest message never sends the longest. Measures how
//! a share reserved for the oldest message affects the largest messages and the others.

use anyhow::{Error, Result};
use homa_bench::engine::tally::Sample;
use homa_bench::protocol::Protocol;
use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Findings, Section, Table};
use homa_workload::Workload;
use serde::Serialize;
use serde_json::{Value, json};

use super::findings::cite;
use super::harness::{Harness, Score};
use super::options::StarveOptions;
use super::settings::Change;
use super::sweep::{NamedScore, finish};
use super::testbed::Testbed;

/// Durations of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct MessageTimes {
    messages: usize,
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// If there are fewer of the largest messages than this, their P99 is unreliable.
const FEW: usize = 20;

/// Runs the experiment, with Homa only: TCP does not reserve such a share.
pub fn run(testbed: &mut Testbed, options: &StarveOptions) -> Result<Findings> {
    let shares: Vec<(&String, Change)> = options
        .shares
        .iter()
        .map(|share| Change::read("fifo_share", share).map(|change| (share, change)).map_err(Error::msg))
        .collect::<Result<_>>()?;
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    harness.measure_unloaded()?;
    let plan = harness.on_all_hosts(harness.rate_of_load(options.load), 1);
    let from = largest_from(&harness.workload);
    let mut scores: Vec<NamedScore> = Vec::new();
    let (mut all, mut results): (Vec<[MessageTimes; 2]>, Vec<Value>) = (Vec::new(), Vec::new());
    for (index, (share, change)) in shares.iter().enumerate() {
        let name = format!("{share} % to the oldest");
        let mut agents = harness.agents(Protocol::Homa, |setup| change.apply(setup))?;
        let (score, samples): (Score, _) = harness.run(&mut agents, &plan, &name)?;
        let [largest, rest] = times(&samples, from);
        results.push(json!({ "fifo_share_percent": share.parse::<f64>().ok(), "largest": largest, "rest": rest, "score": score }));
        scores.push((name, index as f64, score));
        all.push([largest, rest]);
    }
    let title = "The largest messages under overload";
    let mut findings = finish(&harness, "starve", title, &scores, Vec::new(), results.into());
    findings.json["load"] = json!(options.load);
    findings.json["largest_from_bytes"] = json!(from);
    if all.iter().any(|[largest, _]| largest.messages < FEW) {
        findings.warnings.push(format!(
            "fewer than {FEW} of the largest messages ended in a run, too few for a P99: use a longer --duration"
        ));
        findings.json["warnings"] = json!(findings.warnings);
    }
    findings.sections.insert(0, section(options, &shares, &all, from));
    cite(&mut findings, "starve");
    Ok(findings)
}

/// Returns the minimum size of the largest 1 % of the messages. If more than 1 % have the maximum size,
/// returns the maximum size.
fn largest_from(workload: &Workload) -> u32 {
    workload.quantile(0.99).saturating_add(1).min(workload.max_bytes())
}

/// Returns the durations of messages of at least `from` bytes, and of the others.
fn times(samples: &[Sample], from: u32) -> [MessageTimes; 2] {
    let (largest, rest): (Vec<&Sample>, Vec<&Sample>) =
        samples.iter().partition(|sample| sample.bytes >= from);
    [largest, rest].map(|part| {
        let mut ns: Vec<u64> = part.iter().map(|sample| sample.rtt_ns).collect();
        ns.sort_unstable();
        let ms = |ns: f64| ns / 1e6;
        // Returns the minimum duration that this share of the messages does not exceed.
        let at = |share: f64| {
            let rank = (ns.len() as f64 * share).ceil() as usize;
            ns.get(rank.max(1) - 1).map_or(0.0, |&ns| ms(ns as f64))
        };
        let sum: f64 = ns.iter().map(|&ns| ns as f64).sum();
        let mean_ms = ms(sum / ns.len().max(1) as f64);
        MessageTimes { messages: ns.len(), mean_ms, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    })
}

fn section(
    options: &StarveOptions,
    shares: &[(&String, Change)],
    all: &[[MessageTimes; 2]],
    from: u32,
) -> Section {
    let mut table = Table::new(&["", "messages", "mean, ms", "P50", "P99", "longest"]);
    for ((share, _), parts) in shares.iter().zip(all) {
        for (which, times) in ["largest", "rest"].into_iter().zip(parts) {
            let ms = [times.mean_ms, times.p50_ms, times.p99_ms, times.max_ms];
            let cells = [format!("{share} %, {which}"), times.messages.to_string()];
            table.rows.push(cells.into_iter().chain(ms.map(|ms| format!("{ms:.2}"))).collect());
        }
    }
    let text = format!(
        "The largest messages have at least {from} bytes. The offered load is {:.0} % of the links for a limited time; the rest is answered afterwards",
        options.load * 100.0
    );
    let charts = vec![
        chart("P99, ms", shares, all, |times| times.p99_ms),
        chart("Mean, ms", shares, all, |times| times.mean_ms),
    ];
    Section { heading: "By share of the oldest message".to_owned(), text, table, charts }
}

fn chart(
    title: &str,
    shares: &[(&String, Change)],
    all: &[[MessageTimes; 2]],
    value: fn(&MessageTimes) -> f64,
) -> Chart {
    let place = |index: usize| (index as f64 + 0.5) / shares.len() as f64;
    let curve = |part: usize, label: &str, class: &str| Curve {
        label: label.to_owned(),
        class: class.to_owned(),
        is_reference: false,
        points: all
            .iter()
            .zip(shares)
            .enumerate()
            .map(|(index, (times, (share, _)))| Point {
                x: place(index),
                y: value(&times[part]),
                title: format!("{label}, {share} %: {:.2} ms", value(&times[part])),
            })
            .collect(),
    };
    Chart {
        x_title: "Share of the oldest message".to_owned(),
        y_title: title.to_owned(),
        scale: Scale::Log,
        x_ticks: shares
            .iter()
            .enumerate()
            .map(|(at, (share, _))| (place(at), format!("{share} %")))
            .collect(),
        curves: vec![curve(0, "largest", "homa"), curve(1, "rest", "tcp")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_told_from_the_rest_and_percentiles_are_of_each() {
        let sample = |bytes, ms: u64| Sample { bytes, rtt_ns: ms * 1_000_000 };
        let mut samples: Vec<Sample> = (1..=100).map(|ms| sample(10, ms)).collect();
        samples.extend([sample(1_000, 400), sample(999, 200), sample(5_000, 300)]);
        let [largest, rest] = times(&samples, 1_000);
        assert_eq!((largest.messages, rest.messages), (2, 101));
        assert_eq!((largest.mean_ms, largest.p50_ms, largest.max_ms), (350.0, 300.0, 400.0));
        assert_eq!((rest.p50_ms, rest.p99_ms, rest.max_ms), (51.0, 100.0, 200.0));
        assert_eq!(times(&[], 1), [MessageTimes::default(); 2]);
    }

    #[test]
    fn the_largest_are_a_hundredth_or_all_of_the_largest_size() {
        assert_eq!(largest_from(&Workload::fixed(5_000).expect("a size")), 5_000);
        let workload = Workload::named("w4").expect("a workload");
        let from = largest_from(&workload);
        assert!(from <= workload.max_bytes() && workload.cdf(from - 1) >= 0.99, "{from}");
    }
}
