//! Compares the simulator with the published slowdowns of Homa, pFabric and the oracle: W2 and W4 at 80 %
//! load in the network of the SIGCOMM 2018 paper, with Homa's settings from the paper.
//!
//! The published rows are finer than the samples of a run allow. They are combined into 20 bins with
//! approximately equal numbers of messages. In each bin, the medians and 99th percentiles of the rows are
//! averaged, weighted by their share of the messages, both for the published rows and for ours.
//!
//! `cargo test --release -p homa-sim --test published -- --ignored --nocapture` runs the whole comparison
//! (hours on one core). Its loads are warmed up to steady state, which the reports must confirm, and figures
//! are means over the seeds 1 to 3. `SEEDS` (such as `SEEDS=4,5`) selects other seeds. `HOSTS=48`, or another
//! multiple of the 16 hosts per rack, selects a smaller network that takes less time.

use std::ops::ControlFlow;

use homa_proto::MS;
use homa_sim::{ClusterConfig, ClusterReport, HomaConfig, LoadBasis, TransportConfig};
use homa_workload::Workload;

const PUBLISHED: &str = include_str!("published/sigcomm18.csv");
const BINS: usize = 20;
const LOAD: f64 = 0.8;

#[derive(Clone, Copy, Debug)]
struct Row {
    max_bytes: u32,
    percent: f64,
    p50: f64,
    p99: f64,
}

fn published(transport: &str, workload: &str) -> Vec<Row> {
    let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let number = |text: &String| text.parse::<f64>().expect("a number");
    PUBLISHED
        .lines()
        .map(fields)
        .filter(|fields| fields[0] == transport && fields[1] == workload)
        .map(|fields| Row {
            max_bytes: number(&fields[2]) as u32,
            percent: number(&fields[3]),
            p50: number(&fields[4]),
            p99: number(&fields[5]),
        })
        .collect()
}

/// Settings of a run other than transport and workload.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    /// Length of the warm-up; `None`: as long as the load needs.
    warm_up_ms: Option<u64>,
    duration_ms: u64,
    drain_ms: u64,
    load_basis: LoadBasis,
}

impl Run {
    /// Returns the settings of the whole comparison: in steady state, and drained until less than 0.1 % of
    /// the messages are missing.
    fn whole(duration_ms: u64) -> Run {
        Run { seed: 1, warm_up_ms: None, duration_ms, drain_ms: 200, load_basis: LoadBasis::Data }
    }

    fn short([warm_up_ms, duration_ms, drain_ms]: [u64; 3]) -> Run {
        Run { warm_up_ms: Some(warm_up_ms), drain_ms, ..Run::whole(duration_ms) }
    }

    fn report(&self, transport: &str, workload: &str, rows: &[Row]) -> ClusterReport {
        let workload = Workload::named(workload).expect("a built-in workload");
        let mut config = ClusterConfig::sigcomm18(workload, LOAD, self.seed);
        config.load_basis = self.load_basis;
        if let Ok(hosts) = std::env::var("HOSTS") {
            config.hosts = hosts.parse().expect("HOSTS is a whole number");
        }
        config.warm_up_ns = self.warm_up_ms.map_or_else(|| config.steady_warm_up_ns(), |ms| ms * MS);
        (config.duration_ns, config.drain_ns) = (self.duration_ms * MS, self.drain_ms * MS);
        config.bins = rows.iter().map(|row| row.max_bytes).collect();
        let transport = match transport {
            "homa" => TransportConfig::Homa(HomaConfig::sigcomm18(&config)),
            other => TransportConfig::named(other, &config).expect("a transport"),
        };
        transport.run(config, &mut |_| ControlFlow::Continue(()))
    }
}

/// A bin with published values and ours.
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

/// Maximum difference of our values from the published ones.
#[derive(Clone, Copy, Debug)]
struct Tolerance {
    p50: f64,
    p99: f64,
    /// Whether a smaller slowdown than the published one also passes: for Homa, which may have improved, but
    /// not for other transports.
    or_better: bool,
}

impl Tolerance {
    fn admits(&self, ratio: f64, by: f64) -> bool {
        ratio <= 1.0 + by && (self.or_better || ratio >= 1.0 - by)
    }
}

/// Prints the bins, and returns how many are within the tolerance.
fn within(bins: &[Bin], tolerance: Tolerance) -> usize {
    println!(
        "{:>10} {:>9} {:>17} {:>7} {:>17} {:>7}",
        "max bytes", "messages", "P50 theirs, ours", "", "P99 theirs, ours", ""
    );
    let mut good = 0;
    for bin in bins {
        let ratios = (bin.p50.1 / bin.p50.0, bin.p99.1 / bin.p99.0);
        let is_good = tolerance.admits(ratios.0, tolerance.p50) && tolerance.admits(ratios.1, tolerance.p99);
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

/// Runs the simulation and prints the results. The second value is whether the run was in steady state and
/// had less than 0.1 % of its messages unfinished.
fn bins_of(transport: &str, workload: &str, run: Run) -> (Vec<Bin>, bool) {
    let rows = published(transport, workload);
    let report = run.report(transport, workload, &rows);
    let steady = report.steady.as_ref().expect("load comes all the time");
    println!(
        "{transport}, {workload}, {} hosts, seed {}: {} messages, {} unfinished ({:.3} %), P99 of the smaller half {:.2}, mean {:.3}, downlinks \
         idle {:.1} %, completed/offered {:.3}, offered/load {:.3}, warm-up {:.0} ms, tested from {:.0} ms, backlog \
         {:.2} GB {:+.1} % (t {:.2} of {:.2}), steady {} {:?}",
        report.hosts,
        run.seed,
        report.delivered,
        report.unfinished,
        steady.unfinished_share * 100.0,
        report.short_half.as_ref().map_or(0.0, |half| half.slowdown_p99),
        report.slowdown_mean,
        steady.downlink_idle * 100.0,
        steady.completed_over_offered,
        steady.offered_over_load.unwrap_or(f64::NAN),
        steady.series.warm_up_intervals as f64 * steady.series.interval_ns as f64 / 1e6,
        steady.tested_from_ns as f64 / 1e6,
        steady.backlog_bytes / 1e9,
        steady.backlog_change * 100.0,
        steady.backlog_t,
        steady.backlog_t_bound,
        steady.reached,
        steady.failed
    );
    let bins = bins(&rows, &report);
    assert_eq!(bins.len(), BINS);
    (bins, steady.reached && steady.unfinished_share <= 0.001)
}

/// Runs the simulation, and returns how many of the bins are within the tolerance.
fn compare(transport: &str, workload: &str, run: Run, tolerance: Tolerance, least: u64) -> usize {
    let (bins, _) = bins_of(transport, workload, run);
    let good = within(&bins, tolerance);
    assert_messages(&bins, least);
    good
}

/// Fails if a bin has fewer than `least` messages.
fn assert_messages(bins: &[Bin], least: u64) {
    assert!(bins.iter().all(|bin| bin.count >= least), "too few messages in a bin for its percentiles");
}

/// Returns the seeds of the whole comparison.
fn seeds() -> Vec<u64> {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "1,2,3".to_owned());
    text.split(',').map(|seed| seed.parse().expect("SEEDS are whole numbers")).collect()
}

/// Like [`compare`] for the means over all seeds, with the spread of the ratios. `least` applies to all seeds
/// together.
fn compare_seeds(transport: &str, workload: &str, run: Run, tolerance: Tolerance, least: u64) -> usize {
    let of = |seed| bins_of(transport, workload, Run { seed, ..run });
    let (runs, are_steady): (Vec<Vec<Bin>>, Vec<bool>) = seeds().into_iter().map(of).unzip();
    let count = runs.len() as f64;
    let mean = |bin: usize| {
        let sum = runs.iter().map(|bins| bins[bin]).reduce(|sum, bin| Bin {
            count: sum.count + bin.count,
            p50: (sum.p50.0 + bin.p50.0, sum.p50.1 + bin.p50.1),
            p99: (sum.p99.0 + bin.p99.0, sum.p99.1 + bin.p99.1),
            ..bin
        });
        let sum = sum.expect("there are seeds");
        Bin {
            p50: (sum.p50.0 / count, sum.p50.1 / count),
            p99: (sum.p99.0 / count, sum.p99.1 / count),
            ..sum
        }
    };
    let means: Vec<Bin> = (0..BINS).map(mean).collect();
    for (index, bin) in means.iter().enumerate() {
        let spread = |ratio: fn(&Bin) -> f64| {
            let ratios = runs.iter().map(|bins| ratio(&bins[index]));
            ratios.fold((f64::INFINITY, 0.0f64), |(min, max), ratio| (min.min(ratio), max.max(ratio)))
        };
        let (p50, p99) = (spread(|bin| bin.p50.1 / bin.p50.0), spread(|bin| bin.p99.1 / bin.p99.0));
        println!(
            "{:>10} P50 {:.2} to {:.2}, P99 {:.2} to {:.2} over the seeds",
            bin.max_bytes, p50.0, p50.1, p99.0, p99.1
        );
    }
    let good = within(&means, tolerance);
    assert_messages(&means, least);
    assert!(are_steady.iter().all(|is_steady| *is_steady), "a run was not in steady state, or not drained");
    good
}

const HOMA: Tolerance = Tolerance { p50: 0.1, p99: 0.2, or_better: true };
/// The published oracle has medians down to 0.93, because its minimum time is longer than ours. Our slowdowns
/// are never below 1.
const OTHERS: Tolerance = Tolerance { p50: 0.15, p99: 0.25, or_better: false };

/// A short version of the comparison: a bin has too few messages for an exact P99, the run does not wait for
/// the longest messages, and the network is not full.
#[test]
fn w4_is_about_as_published() {
    let tolerance = Tolerance { p50: 0.15, p99: 0.4, ..HOMA };
    assert!(compare("homa", "w4", Run::short([1, 2, 1]), tolerance, 50) >= 18);
}

/// The oracle has no packets, so the comparison takes seconds.
#[test]
fn the_oracle_is_as_published() {
    assert!(compare("oracle", "w4", Run::short([2, 20, 10]), OTHERS, 500) >= 18);
}

#[test]
#[ignore = "takes minutes: the whole comparison with the published W2"]
fn w2_is_as_published() {
    assert!(compare_seeds("homa", "w2", Run::whole(12), HOMA, 2_000) >= 18);
}

#[test]
#[ignore = "takes minutes: the whole comparison with the published W4"]
fn w4_is_as_published() {
    assert!(compare_seeds("homa", "w4", Run::whole(120), HOMA, 2_000) >= 18);
}

#[test]
#[ignore = "takes minutes: the same where the load counts grants, as published loads do"]
fn w4_is_as_published_with_grants_in_the_load() {
    let run = Run { load_basis: LoadBasis::DataAndGrants, ..Run::whole(120) };
    assert!(compare_seeds("homa", "w4", run, HOMA, 2_000) >= 18);
}

/// Compares the transport with the published one, and returns the number of bins in which they agree.
fn compare_others(transport: &str, workload: &str, duration_ms: u64) -> usize {
    compare_seeds(transport, workload, Run::whole(duration_ms), OTHERS, 2_000)
}

#[test]
#[ignore = "takes minutes: the whole comparison with the published oracle"]
fn the_oracle_is_as_published_in_steady_state() {
    assert!(compare_others("oracle", "w2", 12) >= 18);
    assert!(compare_others("oracle", "w4", 120) >= 18);
}

#[test]
#[ignore = "takes minutes: the whole comparison with the published pFabric and W2"]
fn pfabric_is_as_published_in_w2() {
    assert!(compare_others("pfabric", "w2", 12) >= 18);
}

/// Three bins of long messages have shorter tails than published. Seed 1 offers 4 % more than the load and is
/// not in steady state; `SEEDS=2,3` are.
#[test]
#[ignore = "takes minutes: the whole comparison with the published pFabric and W4"]
fn pfabric_is_about_as_published_in_w4() {
    assert!(compare_others("pfabric", "w4", 120) >= 17);
}
