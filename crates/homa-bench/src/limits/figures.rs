//! Ratios of pairs of rows, compared with their targets.

use serde::Serialize;

use super::results::{Metric, Row};
use super::targets::{Targets, Verdict};
use crate::engine::summary::Summary;

/// A ratio of two rows in one metric.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Stable name.
    pub name: &'static str,
    /// Description of the dividend and the divisor.
    pub text: &'static str,
    /// Floor of the ratio's target: a maximum for times and a minimum for rates; `null` if there is no
    /// target.
    pub asked: Option<f64>,
    /// Goal of the ratio's target; `null` if there is none.
    pub aim: Option<f64>,
    /// Whether smaller is better.
    pub at_most: bool,
    /// The ratio's median and range over the repetitions; `null` if one of the rows was not measured.
    pub measured: Option<Summary>,
    /// Whether the floor is reached; `null` without a target or a value.
    pub ok: Option<bool>,
    /// Whether the goal is reached; `null` without a goal or a value.
    pub aim_reached: Option<bool>,
    /// How the median compares with the target; `null` without a target or a value.
    pub verdict: Option<Verdict>,
}

/// The definition of a figure.
struct Recipe {
    name: &'static str,
    text: &'static str,
    metric: Metric,
    /// The dividend: the best of these rows.
    above: &'static [&'static str],
    /// The divisor.
    below: &'static str,
}

const DEVICES: &[&str] = &["homa/packet", "homa/xdp"];
const HOMA: &[&str] = &["homa/udp"];

const RECIPES: [Recipe; 13] = [
    Recipe {
        name: "rtt_polling_over_bare",
        text: "round trip P50, 100 B, polling: udp driver / bare UDP",
        metric: Metric::PollingP50,
        above: HOMA,
        below: "bare/udp",
    },
    Recipe {
        name: "rtt_polling_over_tcp",
        text: "the same / TCP, polling",
        metric: Metric::PollingP50,
        above: HOMA,
        below: "tcp",
    },
    Recipe {
        name: "rtt_sleeping_over_tcp",
        text: "the same / TCP, sleeping",
        metric: Metric::SleepingP50,
        above: HOMA,
        below: "tcp",
    },
    Recipe {
        name: "rtt_device_over_bare",
        text: "round trip P50: packet or xdp driver / bare UDP",
        metric: Metric::PollingP50,
        above: DEVICES,
        below: "bare/udp",
    },
    Recipe {
        name: "rtt_low_latency_over_bare",
        text: "sleeping round trip, low latency: udp driver / bare UDP",
        metric: Metric::LowLatencyP50,
        above: HOMA,
        below: "bare/udp",
    },
    Recipe {
        name: "rpcs_32_over_bare",
        text: "RPCs/s, 100 B, 32 open: udp driver / bare UDP",
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "bare/udp",
    },
    // With several packets in a burst, Homa uses segmentation offload too, so this compares equal drivers.
    Recipe {
        name: "rpcs_32_over_bare_offload",
        text: "the same / bare UDP with offload",
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "bare/udp-offload",
    },
    Recipe {
        name: "rpcs_32_device_over_bare",
        text: "RPCs/s, 32 open: packet or xdp driver / bare UDP",
        metric: Metric::Rpcs32,
        above: DEVICES,
        below: "bare/udp",
    },
    Recipe {
        name: "rpcs_32_over_grpc",
        text: "RPCs/s, 32 open: udp driver / gRPC (tonic)",
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "grpc",
    },
    Recipe {
        name: "rpcs_32_over_quic",
        text: "RPCs/s, 32 open: udp driver / QUIC (quinn)",
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "quic",
    },
    Recipe {
        name: "bulk_over_tcp",
        text: "1 MB messages: udp driver / one TCP connection",
        metric: Metric::Bulk,
        above: HOMA,
        below: "tcp",
    },
    Recipe {
        name: "bulk_over_grpc",
        text: "1 MB messages: udp driver / gRPC (tonic)",
        metric: Metric::Bulk,
        above: HOMA,
        below: "grpc",
    },
    Recipe {
        name: "bulk_over_quic",
        text: "1 MB messages: udp driver / QUIC (quinn)",
        metric: Metric::Bulk,
        above: HOMA,
        below: "quic",
    },
];

/// Returns the names of all figures.
pub fn names() -> impl Iterator<Item = &'static str> {
    RECIPES.iter().map(|recipe| recipe.name)
}

/// Returns whether smaller is better for the figure with this name, or `None` if there is no such figure.
pub fn at_most(name: &str) -> Option<bool> {
    RECIPES.iter().find(|recipe| recipe.name == name).map(|recipe| recipe.metric.at_most())
}

/// Computes all figures from the measured rows.
pub fn figures(rows: &[Row], targets: &Targets) -> Vec<Figure> {
    RECIPES.iter().map(|recipe| figure(rows, targets, recipe)).collect()
}

fn figure(rows: &[Row], targets: &Targets, recipe: &Recipe) -> Figure {
    let at_most = recipe.metric.at_most();
    let of = |name: &str| rows.iter().find(|row| row.name == name)?.get(recipe.metric);
    let better = |left: &Summary, right: &Summary| match at_most {
        true => left.median.total_cmp(&right.median),
        false => right.median.total_cmp(&left.median),
    };
    let ratios = recipe.above.iter().filter_map(|above| of(above)?.over(of(recipe.below)?));
    let measured = ratios.min_by(better);
    let target = targets.get(recipe.name);
    let verdict = target.zip(measured.as_ref()).map(|(target, ratio)| target.judge(ratio.median, at_most));
    let aim = target.and_then(|target| target.goal);
    Figure {
        name: recipe.name,
        text: recipe.text,
        asked: target.map(|target| target.floor),
        aim,
        at_most,
        measured,
        ok: verdict.map(|verdict| verdict != Verdict::BelowFloor),
        aim_reached: aim.and(verdict).map(|verdict| verdict == Verdict::Goal),
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::samples;
    use crate::limits::targets::of;

    const TARGETS: &str = "\
[[target]]
name = \"rtt_polling_over_bare\"
floor = 1.3
goal = 1.15
[[target]]
name = \"rpcs_32_over_bare\"
floor = 0.7
goal = 0.85
[[target]]
name = \"rpcs_32_over_quic\"
floor = 3
[[target]]
name = \"bulk_over_tcp\"
floor = 0.9
";

    fn find(name: &str) -> Figure {
        let rows = samples::limits().rows;
        figures(&rows, &of(TARGETS)).into_iter().find(|figure| figure.name == name).expect("a figure")
    }

    #[test]
    fn a_time_is_bounded_above_and_a_rate_below() {
        let rtt = find("rtt_polling_over_bare");
        assert!(rtt.at_most && (rtt.measured.expect("measured").median - 1.25).abs() < 1e-9);
        assert_eq!((rtt.ok, rtt.aim_reached, rtt.verdict), (Some(true), Some(false), Some(Verdict::Reached)));
        let rate = find("rpcs_32_over_bare");
        assert!(!rate.at_most && (rate.measured.expect("measured").median - 0.8).abs() < 1e-9);
        assert_eq!((rate.asked, rate.aim), (Some(0.7), Some(0.85)));
        assert_eq!((rate.ok, rate.aim_reached), (Some(true), Some(false)));
        let bulk = find("bulk_over_tcp");
        assert_eq!((bulk.ok, bulk.aim, bulk.aim_reached), (Some(true), None, None));
    }

    #[test]
    fn the_better_of_two_drivers_counts_and_what_is_missing_is_not_judged() {
        // The round trip is 0.5 of bare UDP's for the packet driver, and 0.75 for XDP.
        let device = find("rtt_device_over_bare");
        assert!((device.measured.expect("measured").median - 0.5).abs() < 1e-9);
        assert!(device.asked.is_none() && device.ok.is_none(), "it has no target");
        let missing = find("rpcs_32_over_quic");
        assert!(missing.measured.is_none() && missing.ok.is_none() && missing.aim_reached.is_none());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = names().chain(crate::limits::comparisons::names()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
