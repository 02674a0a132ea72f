//! The simulator against the published slowdowns of Homa: W2 and W4 at 80 % load in the network of the SIGCOMM 2018 paper.
//!
//! The published rows are finer than what a run has samples for: they are put together to 20 bins of about equal numbers of messages, in
//! which the rows' medians and 99th percentiles are averaged by their share of the messages, the published ones and ours alike.
//!
//! `cargo test --release -p homa-sim --test published -- --ignored --nocapture` runs the whole comparison (some minutes).

use homa_proto::MS;
use homa_sim::{Cluster, ClusterConfig, ClusterReport, Homa, HomaConfig};
use homa_workload::Workload;

const PUBLISHED: &str = include_str!("published/homa-sigcomm18.csv");
const BINS: usize = 20;
const LOAD: f64 = 0.8;

#[derive(Clone, Copy, Debug)]
struct Row {
    max_bytes: u32,
    percent: f64,
    p50: f64,
    p99: f64,
}

fn published(workload: &str) -> Vec<Row> {
    let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let number = |text: &String| text.parse::<f64>().expect("a number");
    PUBLISHED
        .lines()
        .map(fields)
        .filter(|fields| fields[0] == workload)
        .map(|fields| Row {
            max_bytes: number(&fields[1]) as u32,
            percent: number(&fields[2]),
            p50: number(&fields[3]),
            p99: number(&fields[4]),
        })
        .collect()
}

fn run(workload: &str, rows: &[Row], [warm_up_ms, duration_ms, drain_ms]: [u64; 3]) -> ClusterReport {
    let workload = Workload::named(workload).expect("a built-in workload");
    let mut config = ClusterConfig::sigcomm18(workload, LOAD, 1);
    (config.warm_up_ns, config.duration_ns) = (warm_up_ms * MS, duration_ms * MS);
    config.drain_ns = drain_ms * MS;
    config.bins = rows.iter().map(|row| row.max_bytes).collect();
    let homa = HomaConfig::sigcomm18(&config);
    Cluster::<Homa>::new(config, &homa).run()
}

/// One bin: published and ours.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    max_bytes: u32,
    count: u64,
    percent: f64,
    p50: (f64, f64),
    p99: (f64, f64),
}

fn bins(rows: &[Row], report: &ClusterReport) -> Vec<Bin> {
    let total: f64 = rows.iter().map(|row| row.percent).sum();
    let mut bins = vec![Bin::default()];
    let mut sum = 0.0;
    for (row, ours) in rows.iter().zip(&report.bins) {
        assert_eq!(row.max_bytes, ours.max_bytes);
        if sum >= total * bins.len() as f64 / BINS as f64 && bins.len() < BINS {
            bins.push(Bin::default());
        }
        sum += row.percent;
        if ours.count == 0 {
            continue;
        }
        let bin = bins.last_mut().expect("there is one");
        bin.max_bytes = row.max_bytes;
        bin.count += ours.count;
        bin.percent += row.percent;
        for (sums, (theirs, ours)) in
            [(&mut bin.p50, (row.p50, ours.slowdown_p50)), (&mut bin.p99, (row.p99, ours.slowdown_p99))]
        {
            sums.0 += theirs * row.percent;
            sums.1 += ours * row.percent;
        }
    }
    for bin in &mut bins {
        for sums in [&mut bin.p50, &mut bin.p99] {
            *sums = (sums.0 / bin.percent, sums.1 / bin.percent);
        }
    }
    bins
}

/// Prints the bins; returns in how many ours are at most so much worse or better than the published ones, or better.
fn within(bins: &[Bin], p50: f64, p99: f64) -> usize {
    println!(
        "{:>10} {:>9} {:>17} {:>7} {:>17} {:>7}",
        "max bytes", "messages", "P50 theirs, ours", "", "P99 theirs, ours", ""
    );
    let mut good = 0;
    for bin in bins {
        let ratios = (bin.p50.1 / bin.p50.0, bin.p99.1 / bin.p99.0);
        let is_good = ratios.0 <= 1.0 + p50 && ratios.1 <= 1.0 + p99;
        good += usize::from(is_good);
        println!(
            "{:>10} {:>9} {:8.2} {:8.2} {:7.2} {:8.2} {:8.2} {:7.2} {}",
            bin.max_bytes,
            bin.count,
            bin.p50.0,
            bin.p50.1,
            ratios.0,
            bin.p99.0,
            bin.p99.1,
            ratios.1,
            if is_good { "" } else { "no" }
        );
    }
    good
}

fn compare(workload: &str, times_ms: [u64; 3], p50: f64, p99: f64, least: u64) {
    let rows = published(workload);
    let report = run(workload, &rows, times_ms);
    println!(
        "{workload}: {} messages, {} unfinished, P99 of the smaller half {:.2}",
        report.delivered,
        report.unfinished,
        report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p99)
    );
    let bins = bins(&rows, &report);
    let good = within(&bins, p50, p99);
    assert_eq!(bins.len(), BINS);
    assert!(bins.iter().all(|bin| bin.count >= least), "too few messages in a bin for its percentiles");
    assert!(good >= 18, "{workload}: only {good} of {BINS} bins are as published, or better");
}

/// The short form: too few messages for the P99 of a bin to be exact, and the longest are not waited for.
#[test]
fn w4_is_about_as_published() {
    compare("w4", [1, 2, 1], 0.15, 0.4, 50);
}

#[test]
#[ignore = "takes minutes: the whole comparison with the published W2"]
fn w2_is_as_published() {
    compare("w2", [10, 50, 200], 0.1, 0.2, 2_000);
}

#[test]
#[ignore = "takes minutes: the whole comparison with the published W4"]
fn w4_is_as_published() {
    compare("w4", [10, 50, 200], 0.1, 0.2, 2_000);
}
