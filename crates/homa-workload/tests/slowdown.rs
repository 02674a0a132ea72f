//! Tests of the slowdown by message size.

use homa_workload::{SlowdownRecorder, Workload, WorkloadError};

const SEED: u64 = 4242;

fn recorder(name: &str) -> SlowdownRecorder {
    SlowdownRecorder::new(&Workload::named(name).unwrap())
}

fn edges(name: &str) -> Vec<u32> {
    recorder(name).bins().iter().map(|row| row.max_bytes).collect()
}

/// Returns whether two values agree to the three digits of the histograms.
fn close(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() <= 0.001
}

#[test]
fn ten_bins_hold_a_tenth_of_the_messages_each() {
    println!("seed {SEED}");
    const COUNT: u64 = 200_000;
    // In W3 and W4, up to 6.5 % of the messages have the same size, so the bins are only approximately equal.
    for (name, slack) in [("w3", 0.035), ("w4", 0.02), ("w6", 0.01), ("w7", 0.02), ("w8", 0.01)] {
        let workload = Workload::named(name).unwrap();
        let mut recorder = SlowdownRecorder::new(&workload);
        workload.sampler(SEED).take(COUNT as usize).for_each(|size| recorder.record(size, 10, 10));
        let rows = recorder.bins();
        assert_eq!(rows.len(), 11, "{name}");
        for row in &rows[..10] {
            let share = row.count as f64 / COUNT as f64;
            assert!((share - 0.1).abs() < slack, "{name} up to {}: {share}", row.max_bytes);
        }
        assert_eq!(rows[..10].iter().map(|row| row.count).sum::<u64>(), COUNT);
        assert!(rows[..10].is_sorted_by(|a, b| a.max_bytes < b.max_bytes), "{name}");
        assert_eq!(rows[9].max_bytes, workload.max_bytes());
    }
}

#[test]
fn the_last_row_is_the_largest_percent_and_also_in_the_tenth_bin() {
    println!("seed {SEED}");
    let w6 = Workload::named("w6").unwrap();
    let mut recorder = SlowdownRecorder::new(&w6);
    w6.sampler(SEED).take(100_000).for_each(|size| recorder.record(size, 10, 10));
    assert!(recorder.has_largest_row());
    let rows = recorder.bins();
    assert_eq!(rows[10].max_bytes, w6.max_bytes());
    assert!((850..=1150).contains(&rows[10].count), "{}", rows[10].count);
    let counted: u64 = rows[..10].iter().map(|row| row.count).sum();
    assert_eq!((counted, recorder.count()), (100_000, 100_000));
}

#[test]
fn a_largest_size_with_more_than_one_percent_is_the_last_row() {
    // 2.7 % of W4 is longer than 1 MB.
    let truncated = Workload::named("w4").unwrap().truncated(1_000_000).unwrap();
    let mut recorder = SlowdownRecorder::new(&truncated);
    recorder.record(1_000_000, 10, 10);
    recorder.record(999_999, 10, 10);
    let rows = recorder.bins();
    assert!(recorder.has_largest_row());
    assert_eq!((rows[9].count, rows[10].count), (2, 1));
}

#[test]
fn bins_that_end_at_one_size_are_one() {
    assert_eq!(edges("100"), [100]);
    assert_eq!(edges("short-long"), [30, 500_000]);
    assert_eq!(edges("one-medium"), [130_000]);
    assert_eq!(edges("starve"), (1..=10).map(|k| k * 100_000).collect::<Vec<_>>());
    assert!(["100", "short-long", "starve"].iter().all(|name| !recorder(name).has_largest_row()));
}

#[test]
fn sizes_land_in_the_bin_whose_edge_they_do_not_exceed() {
    let mut recorder = recorder("starve");
    for size in [1, 100_000, 100_001, 1_000_000, 5_000_000] {
        recorder.record(size, 10, 10);
    }
    let counts: Vec<u64> = recorder.bins().iter().map(|row| row.count).collect();
    assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
}

#[test]
fn percentiles_and_means_are_those_of_the_messages() {
    let mut recorder = recorder("100");
    // Slowdowns of 1.001, 1.002 ... 11 with a best time of 10 us.
    for step in 1..=10_000 {
        recorder.record(100, 10_000 + 10 * step, 10_000);
    }
    let rows = recorder.bins();
    let row = &rows[0];
    assert_eq!((rows.len(), row.max_bytes, row.count), (1, 100, 10_000));
    assert!((row.slowdown_mean - 6.0005).abs() < 1e-9, "{}", row.slowdown_mean);
    assert_eq!(recorder.slowdown_mean(), row.slowdown_mean);
    assert!(close(row.slowdown_p50, 6.0) && close(row.slowdown_p99, 10.9), "{row:?}");
    assert!(close(row.slowdown_p999, 10.99), "{row:?}");
    assert!(close(row.rtt_p50_us, 60.0) && close(row.rtt_p99_us, 109.0), "{row:?}");
    let short = recorder.short();
    assert!(close(short.p50_us, 60.0) && close(short.p99_us, 109.0) && close(short.p999_us, 109.9));
    assert_eq!(recorder.short_half(), short);
}

#[test]
fn short_means_under_1500_bytes_and_the_shortest_tenth() {
    let threshold = |name| recorder(name).short().max_bytes;
    for name in ["w3", "w4", "w6", "w7", "w8"] {
        assert_eq!(threshold(name), Workload::named(name).unwrap().quantile(0.1), "{name}");
        assert!(threshold(name) < 1500, "{name}");
    }
    assert_eq!(threshold("short-long"), 30);
    assert_eq!(threshold("100"), 100);
    // A tenth of W5's messages are shorter than 5880 bytes, but only messages of less than 1500 bytes are
    // short.
    assert_eq!(threshold("w5"), 1499);

    let mut medium = recorder("one-medium");
    medium.record(130_000, 10, 10);
    assert_eq!((medium.short().count, medium.count()), (0, 1));
}

#[test]
fn the_short_half_is_half_of_the_messages() {
    println!("seed {SEED}");
    let w6 = Workload::named("w6").unwrap();
    let mut recorder = SlowdownRecorder::new(&w6);
    w6.sampler(SEED).take(100_000).for_each(|size| recorder.record(size, 10, 10));
    let half = recorder.short_half();
    assert_eq!(half.max_bytes, w6.quantile(0.5));
    assert!((49_000..=51_500).contains(&half.count), "{}", half.count);
}

#[test]
fn merged_recorders_say_what_one_would_have_said() {
    println!("seed {SEED}");
    let w2 = Workload::named("w2").unwrap();
    let mut whole = SlowdownRecorder::new(&w2);
    let mut parts = [SlowdownRecorder::new(&w2), SlowdownRecorder::new(&w2), SlowdownRecorder::new(&w2)];
    for (index, size) in w2.sampler(SEED).take(30_000).enumerate() {
        // If all times are multiples of the best time, the sums are exact in any order.
        let rtt_ns = 1000 * (1 + index as u64 % 977);
        whole.record(size, rtt_ns, 1000);
        parts[index % 3].record(size, rtt_ns, 1000);
    }
    let [mut sum, second, third] = parts;
    sum.merge(&second).unwrap();
    sum.merge(&third).unwrap();
    assert_eq!(sum.bins(), whole.bins());
    assert_eq!((sum.short(), sum.short_half()), (whole.short(), whole.short_half()));
    assert_eq!((sum.slowdown_mean(), sum.count()), (whole.slowdown_mean(), whole.count()));
}

#[test]
fn recorders_of_different_workloads_do_not_merge() {
    let w4 = Workload::named("w4").unwrap();
    let mut whole = SlowdownRecorder::new(&w4);
    let truncated = SlowdownRecorder::new(&w4.truncated(1_000_000).unwrap());
    assert_eq!(whole.merge(&truncated), Err(WorkloadError::BinsDiffer));
    assert_eq!(whole.count(), 0);
}

#[test]
fn an_empty_recorder_reports_zeros() {
    let recorder = recorder("w4");
    assert_eq!(recorder.slowdown_mean(), 0.0);
    assert!(
        recorder.bins().iter().all(|row| row.count == 0 && row.slowdown_p99 == 0.0 && row.rtt_p50_us == 0.0)
    );
    assert_eq!((recorder.short().count, recorder.short().p99_us), (0, 0.0));
}

#[test]
fn absurd_times_are_bounded() {
    let mut recorder = recorder("100");
    recorder.record(100, u64::MAX, 0);
    recorder.record(100, 0, 1);
    let row = &recorder.bins()[0];
    assert_eq!(row.count, 2);
    assert!(row.rtt_p99_us < 5e9 && row.slowdown_p999 < 5e9, "{row:?}");
}

#[test]
fn the_json_fields_are_named_as_documented() {
    let mut recorder = recorder("100");
    recorder.record(100, 20_000, 10_000);
    let json = serde_json::to_value((recorder.bins(), recorder.short())).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut bin = [
        "max_bytes",
        "count",
        "slowdown_mean",
        "slowdown_p50",
        "slowdown_p99",
        "slowdown_p999",
        "rtt_p50_us",
        "rtt_p99_us",
    ];
    bin.sort_unstable();
    assert_eq!(keys(&json[0][0]), bin);
    assert_eq!(
        keys(&json[1]),
        ["count", "max_bytes", "p50_us", "p999_us", "p99_us", "slowdown_p50", "slowdown_p99"]
    );
}

#[test]
fn short_messages_have_slowdowns_and_bins_end_where_they_are_told_to() {
    let workload = Workload::named("w3").unwrap();
    let mut recorder = SlowdownRecorder::with_edges(&workload, [100, 2_000]);
    for (size, rtt_ns) in [(10, 2_000), (10, 4_000), (100, 3_000), (101, 5_000), (1 << 20, 7_000)] {
        recorder.record(size, rtt_ns, 1_000);
    }
    let counts: Vec<(u32, u64)> = recorder.bins().iter().map(|bin| (bin.max_bytes, bin.count)).collect();
    assert_eq!(counts[..2], [(100, 3), (2_000, 2)], "what is longer than the last bin counts there");
    let half = recorder.short_half();
    assert!((half.slowdown_p50 - 3.0).abs() < 0.01 && (half.slowdown_p99 - 5.0).abs() < 0.01, "{half:?}");
    let mut twice = recorder.clone();
    twice.merge(&recorder).unwrap();
    assert_eq!(twice.short_half().slowdown_p99, half.slowdown_p99);
    assert_eq!(SlowdownRecorder::with_bins(&workload, 4).bins().len(), 4 + 1);
}
