//! Tests of the properties of message-size distributions that do not depend on the published points.

use homa_workload::{Workload, WorkloadError};

const SEED: u64 = 20_260_101;

fn all() -> Vec<Workload> {
    Workload::names().chain(["1", "100", "500000"]).map(|name| Workload::named(name).unwrap()).collect()
}

/// Returns the share of messages with exactly this size.
fn share(workload: &Workload, bytes: u32) -> f64 {
    workload.cdf(bytes) - workload.cdf(bytes - 1)
}

#[test]
fn names_are_known_in_either_case() {
    for name in Workload::names() {
        let lower = Workload::named(name).unwrap();
        assert_eq!(Workload::named(&name.to_uppercase()).unwrap(), lower);
        assert_eq!(lower.name(), name);
        assert_eq!(lower.to_string(), name);
    }
    assert_eq!(Workload::names().count(), 11);
}

#[test]
fn a_number_is_a_fixed_size() {
    let fixed = Workload::named("1234").unwrap();
    assert_eq!((fixed.min_bytes(), fixed.max_bytes(), fixed.mean_bytes()), (1234, 1234, 1234.0));
    assert_eq!(fixed, Workload::fixed(1234).unwrap());
    assert!(fixed.sampler(SEED).take(100).all(|bytes| bytes == 1234));
}

#[test]
fn wrong_names_say_what_is_allowed() {
    for name in ["w9", "w0", "", "-5", "1.5", "w", "4k"] {
        let error = Workload::named(name).unwrap_err();
        assert_eq!(error, WorkloadError::UnknownName { name: name.to_owned() });
        assert!(error.to_string().contains("short-long"), "{error}");
    }
    for size in ["0", "4294967296", "99999999999999999999999"] {
        let error = Workload::named(size).unwrap_err();
        assert_eq!(error, WorkloadError::SizeOutOfRange { size: size.to_owned() });
    }
    assert!(Workload::fixed(0).is_err());
}

#[test]
fn means_lie_within_half_a_percent_of_the_published_ones() {
    for name in ["w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"] {
        let published = Workload::published_mean_bytes(name).unwrap();
        let ratio = Workload::named(name).unwrap().mean_bytes() / published;
        assert!((ratio - 1.0).abs() <= 0.005, "{name}: {ratio}");
    }
    assert_eq!(Workload::published_mean_bytes("starve"), None);
}

#[test]
fn the_cumulative_fraction_rises_from_zero_to_one() {
    for workload in all() {
        assert_eq!(workload.cdf(workload.min_bytes() - 1), 0.0, "{workload}");
        assert!(workload.cdf(workload.min_bytes()) > 0.0, "{workload}");
        assert_eq!(workload.cdf(workload.max_bytes()), 1.0, "{workload}");
        assert!(workload.cdf(workload.max_bytes() - 1) < 1.0, "{workload}");
        assert_eq!(workload.cdf(u32::MAX), 1.0, "{workload}");
        let mut before = 0.0;
        let mut size = 1;
        while size < 40_000_000 {
            let now = workload.cdf(size);
            assert!(now >= before, "{workload} at {size}");
            before = now;
            size += 1 + size / 50;
        }
    }
}

#[test]
fn the_mean_agrees_with_the_cumulative_fractions() {
    for workload in all().into_iter().map(|workload| workload.truncated(200_000).unwrap()) {
        // The mean size equals the sum, over all lengths, of the share of messages that are longer.
        let sum: f64 = (0..workload.max_bytes()).map(|bytes| 1.0 - workload.cdf(bytes)).sum();
        assert!((sum / workload.mean_bytes() - 1.0).abs() < 1e-9, "{workload}: {sum}");
    }
}

#[test]
fn a_quantile_is_the_smallest_size_that_reaches_the_fraction() {
    for workload in all() {
        assert_eq!(workload.quantile(0.0), workload.min_bytes());
        assert_eq!(workload.quantile(-1.0), workload.min_bytes());
        assert_eq!(workload.quantile(1.0), workload.max_bytes());
        assert_eq!(workload.quantile(2.0), workload.max_bytes());
        for step in 1..=1000 {
            let fraction = f64::from(step) / 1000.0;
            let size = workload.quantile(fraction);
            assert!(workload.cdf(size) >= fraction - 1e-9, "{workload} {fraction} {size}");
            assert!(workload.cdf(size - 1) < fraction, "{workload} {fraction} {size}");
        }
    }
}

#[test]
fn quantiles_in_one_walk_are_those_of_a_search_for_each() {
    for workload in all() {
        for parts in [1, 2, 7, 1_000, 20_000] {
            let fraction = |part| (f64::from(part) + 0.5) / f64::from(parts);
            let single = (0..parts).map(|part| workload.quantile(fraction(part)));
            assert!(workload.quantiles(parts).eq(single), "{workload} in {parts} parts");
            assert_eq!(workload.quantiles(parts).size_hint().0, parts as usize);
        }
        assert_eq!(workload.quantiles(0).next(), None);
    }
}

#[test]
fn samples_follow_the_distribution() {
    println!("seed {SEED}");
    const COUNT: usize = 200_000;
    for workload in all().into_iter().map(|workload| workload.truncated(1_000_000).unwrap()) {
        let mut sizes: Vec<u32> = workload.sampler(SEED).take(COUNT).collect();
        sizes.sort_unstable();
        for tenth in 1..10 {
            let edge = workload.quantile(f64::from(tenth) / 10.0);
            let seen = sizes.partition_point(|&bytes| bytes <= edge) as f64 / COUNT as f64;
            // The tolerance is five standard deviations of a share measured with 200,000 draws.
            assert!((seen - workload.cdf(edge)).abs() < 0.0056, "{workload} {edge}: {seen}");
        }
        let mean = sizes.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() / COUNT as f64;
        let squares = sizes.iter().map(|&bytes| (f64::from(bytes) - mean).powi(2)).sum::<f64>();
        let deviation = (squares / COUNT as f64 / COUNT as f64).sqrt();
        let off = (mean - workload.mean_bytes()).abs();
        assert!(off <= 5.0 * deviation, "{workload}: mean {mean}, off by {off}, deviation {deviation}");
        assert!(sizes[0] >= workload.min_bytes() && sizes[COUNT - 1] <= workload.max_bytes());
    }
}

#[test]
fn a_seed_replays_and_another_differs() {
    let w3 = Workload::named("w3").unwrap();
    let draw = |seed| w3.sampler(seed).take(1000).collect::<Vec<_>>();
    assert_eq!(draw(SEED), draw(SEED));
    assert_ne!(draw(SEED), draw(SEED + 1));
}

#[test]
fn one_seed_draws_the_same_messages_with_and_without_truncation() {
    let whole = Workload::named("w4").unwrap();
    let truncated = whole.truncated(60_000).unwrap();
    for (long, short) in whole.sampler(SEED).zip(truncated.sampler(SEED)).take(20_000) {
        // Within the span that the maximum truncates, rounding may change a size by a byte.
        assert!(short.abs_diff(long.min(60_000)) <= 1, "{long} {short}");
    }
}

#[test]
fn truncation_shortens_longer_messages_and_keeps_their_number() {
    for workload in all() {
        for max_bytes in [1, 7, 1000, 64_000, 1_000_000, 5_000_000] {
            let truncated = workload.truncated(max_bytes).unwrap();
            assert_eq!(truncated.max_bytes(), workload.max_bytes().min(max_bytes));
            assert_eq!(truncated.truncated_at(), (workload.max_bytes() > max_bytes).then_some(max_bytes));
            assert_eq!(truncated.name(), workload.name());
            for size in [0, max_bytes / 3, max_bytes / 2, max_bytes - 1] {
                let (before, after) = (workload.cdf(size), truncated.cdf(size));
                assert!((before - after).abs() < 1e-9, "{workload} to {max_bytes} at {size}");
            }
            assert!(truncated.mean_bytes() <= workload.mean_bytes() + 1e-9);
        }
    }
    assert!(Workload::named("w4").unwrap().truncated(0).is_err());
}

#[test]
fn truncation_shows_in_the_name_only_if_it_changed_something() {
    let w4 = Workload::named("w4").unwrap();
    assert_eq!(w4.truncated(1_000_000).unwrap().to_string(), "w4 truncated to 1000000 bytes");
    assert_eq!(w4.truncated(10_000_000).unwrap(), w4);
}

#[test]
fn the_synthetic_workloads_are_what_their_names_say() {
    let short_long = Workload::named("short-long").unwrap();
    assert_eq!((share(&short_long, 30), share(&short_long, 500_000)), (0.75, 0.25));
    assert_eq!(short_long.mean_bytes(), 0.75 * 30.0 + 0.25 * 500_000.0);
    assert_eq!(share(&Workload::named("one-medium").unwrap(), 130_000), 1.0);

    let starve = Workload::named("starve").unwrap();
    for k in 1..=10 {
        let weight = if k == 10 { 1.0 } else { 2.0 };
        assert!((share(&starve, k * 100_000) - weight / 19.0).abs() < 1e-12);
    }
    assert!((starve.mean_bytes() - 10_000_000.0 / 19.0).abs() < 1e-6);
}
