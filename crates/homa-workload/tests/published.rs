//! Compares the compact tables with the published points, if the points are available.

use std::path::Path;

use homa_workload::Workload;

/// The published points of one workload, as pairs of size and cumulative fraction. Only these sizes occur.
struct Published {
    mean_bytes: f64,
    points: Vec<(u32, f64)>,
}

/// Reads `w<n>.csv`: a comment line that states the mean, a header and the points.
fn parse(text: &str) -> Published {
    let (_, mean) = text.lines().next().unwrap().split_once("published mean ").unwrap();
    let points = text.lines().skip(2).map(|line| {
        let (size, fraction) = line.split_once(',').unwrap();
        (size.parse().unwrap(), fraction.parse().unwrap())
    });
    Published { mean_bytes: mean.trim_end_matches(" bytes").parse().unwrap(), points: points.collect() }
}

/// Calls `check` with each workload and its published points, if the points are available.
fn with_published(check: impl Fn(&Workload, &Published)) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/workloads"));
    if !folder.is_dir() {
        homa_testkit::skip("the published points are not beside this checkout");
        return;
    }
    for number in 1..=8 {
        let text = std::fs::read_to_string(folder.join(format!("w{number}.csv"))).unwrap();
        check(&Workload::named(&format!("w{number}")).unwrap(), &parse(&text));
    }
}

/// Returns the mean size, in bytes, if every message has one of the published sizes and longer messages are
/// shortened to `max_bytes`.
fn step_mean(published: &Published, max_bytes: u32) -> f64 {
    let mut below = 0.0;
    let mut mean = 0.0;
    for &(size, fraction) in &published.points {
        mean += f64::from(size.min(max_bytes)) * (fraction - below);
        below = fraction;
    }
    mean
}

#[test]
fn every_published_fraction_is_met_within_half_a_percent() {
    with_published(|workload, published| {
        let mut worst = (0.0, 0);
        for &(size, fraction) in &published.points {
            let off = (workload.cdf(size) - fraction).abs();
            worst = if off > worst.0 { (off, size) } else { worst };
        }
        println!("{workload}: worst fraction off by {:.5} at {} bytes", worst.0, worst.1);
        assert!(worst.0 <= 0.005, "{workload}: off by {} at {} bytes", worst.0, worst.1);
    });
}

#[test]
fn every_published_mean_is_met_within_half_a_percent() {
    with_published(|workload, published| {
        assert_eq!(Workload::published_mean_bytes(workload.name()), Some(published.mean_bytes));
        let ratio = workload.mean_bytes() / published.mean_bytes;
        println!("{workload}: mean {ratio:.5} of the published one");
        assert!((ratio - 1.0).abs() <= 0.005, "{workload}: {ratio}");
    });
}

#[test]
fn the_mean_of_truncated_messages_is_met_too() {
    with_published(|workload, published| {
        for max_bytes in [10_000, 100_000, 1_000_000] {
            let truncated = workload.truncated(max_bytes).unwrap();
            let ratio = truncated.mean_bytes() / step_mean(published, max_bytes);
            println!("{truncated}: mean {ratio:.5} of that of the published points");
            assert!((ratio - 1.0).abs() <= 0.005, "{truncated}: {ratio}");
        }
    });
}

#[test]
fn no_size_is_outside_the_published_range() {
    with_published(|workload, published| {
        let occurring = published.points.iter().filter(|(_, fraction)| *fraction > 0.0);
        let smallest = occurring.map(|(size, _)| *size).min().unwrap();
        assert!(workload.min_bytes() >= smallest, "{workload}");
        assert!(workload.max_bytes() <= published.points.last().unwrap().0, "{workload}");
    });
}
