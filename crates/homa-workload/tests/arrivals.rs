//! Tests of Poisson arrivals.

use homa_workload::arrivals::{MAX_RATE_PER_SEC, MIN_RATE_PER_SEC, gbps, rate_per_sec};
use homa_workload::{Poisson, Workload};

const SEED: u64 = 77;
const COUNT: usize = 400_000;

#[test]
fn gaps_average_to_the_rate_even_near_a_nanosecond() {
    println!("seed {SEED}");
    for rate in [1.0, 1e4, 3e6, 4e8, MAX_RATE_PER_SEC] {
        let total_ns: u64 = Poisson::new(rate, SEED).unwrap().take(COUNT).sum();
        let seen = COUNT as f64 / (total_ns as f64 / 1e9);
        // The tolerance is five standard errors. The relative standard error of the mean of n exponential
        // gaps is 1 / sqrt(n).
        assert!((seen / rate - 1.0).abs() < 0.008, "{rate}: {seen}");
    }
}

#[test]
fn gaps_are_exponential() {
    println!("seed {SEED}");
    let mean_ns = 20_000.0;
    let mut gaps: Vec<u64> = Poisson::new(1e9 / mean_ns, SEED).unwrap().take(COUNT).collect();
    gaps.sort_unstable();
    for percent in [5, 25, 50, 75, 95, 99] {
        let fraction = f64::from(percent) / 100.0;
        let expected_ns = -(1.0 - fraction).ln() * mean_ns;
        let share = gaps.partition_point(|&gap_ns| (gap_ns as f64) < expected_ns) as f64 / COUNT as f64;
        assert!((share - fraction).abs() < 0.004, "{percent} %: {share}");
    }
}

#[test]
fn a_seed_replays_and_another_differs() {
    let draw = |seed| Poisson::new(1e6, seed).unwrap().take(1000).collect::<Vec<_>>();
    assert_eq!(draw(SEED), draw(SEED));
    assert_ne!(draw(SEED), draw(SEED + 1));
}

#[test]
fn sizes_and_gaps_of_one_seed_are_independent() {
    println!("seed {SEED}");
    let w3 = Workload::named("w3").unwrap().truncated(1000).unwrap();
    let gaps: Vec<f64> = Poisson::new(1e6, SEED).unwrap().map(|gap_ns| gap_ns as f64).take(COUNT).collect();
    let sizes: Vec<f64> = w3.sampler(SEED).map(f64::from).take(COUNT).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / COUNT as f64;
    let (gap_mean, size_mean) = (mean(&gaps), mean(&sizes));
    let spread = |values: &[f64], mean: f64| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let joint: f64 = gaps.iter().zip(&sizes).map(|(gap, size)| (gap - gap_mean) * (size - size_mean)).sum();
    let correlation = joint / (spread(&gaps, gap_mean) * spread(&sizes, size_mean)).sqrt();
    assert!(correlation.abs() < 0.008, "{correlation}");
}

#[test]
fn the_offered_load_is_payload_bits() {
    assert_eq!(rate_per_sec(8.0, 1000.0), 1e6);
    assert_eq!(gbps(1e6, 1000.0), 8.0);
    println!("seed {SEED}");
    let w2 = Workload::named("w2").unwrap().truncated(10_000).unwrap();
    let gaps = Poisson::for_gbps(5.0, w2.mean_bytes(), SEED).unwrap();
    let (bytes, ns) = w2
        .sampler(SEED)
        .zip(gaps)
        .take(COUNT)
        .fold((0u64, 0u64), |(bytes, ns), (size, gap_ns)| (bytes + u64::from(size), ns + gap_ns));
    let offered = bytes as f64 * 8.0 / ns as f64;
    assert!((offered / 5.0 - 1.0).abs() < 0.02, "{offered}");
}

#[test]
fn rates_out_of_range_are_refused() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, MIN_RATE_PER_SEC / 2.0, MAX_RATE_PER_SEC * 1.01] {
        assert!(Poisson::new(rate, SEED).is_err(), "{rate}");
    }
    assert!(Poisson::for_gbps(1.0, 0.0, SEED).is_err());
    assert!(Poisson::new(MIN_RATE_PER_SEC, SEED).unwrap().take(1000).all(|gap_ns| gap_ns < u64::MAX));
}
