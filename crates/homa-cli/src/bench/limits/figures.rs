//! The ratios that Homa is to reach, and whether it does.

use serde::Serialize;

use super::results::{Limits, Metric};
use crate::bench::summary::Summary;

/// A ratio that is asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Stable name.
    pub name: &'static str,
    /// What is divided by what.
    pub text: &'static str,
    /// The bound: for a time the ratio is to be at most this, for a rate at least.
    pub asked: f64,
    /// What is aimed at beyond; `null`: nothing.
    pub aim: Option<f64>,
    /// Whether smaller is better.
    pub at_most: bool,
    /// The ratio: median and range over the repetitions; `null` where a part of it was not measured.
    pub measured: Option<Summary>,
    /// Whether the bound is kept.
    pub ok: Option<bool>,
    /// Whether the aim is reached.
    pub aim_reached: Option<bool>,
}

/// How a figure is made.
struct Asked {
    name: &'static str,
    text: &'static str,
    asked: f64,
    aim: Option<f64>,
    metric: Metric,
    /// The best of these rows above.
    above: &'static [&'static str],
    /// This row below.
    below: &'static str,
}

const DEVICES: &[&str] = &["homa/packet", "homa/xdp"];
const HOMA: &[&str] = &["homa/udp"];

/// A time is better when smaller, a rate when larger.
fn is_time(metric: Metric) -> bool {
    metric.name().ends_with("_us")
}

const ASKED: [Asked; 13] = [
    Asked {
        name: "rtt_polling_over_bare",
        text: "round trip P50, 100 B, polling: udp driver / bare UDP",
        asked: 1.30,
        aim: Some(1.15),
        metric: Metric::PollingP50,
        above: HOMA,
        below: "bare/udp",
    },
    Asked {
        name: "rtt_polling_over_tcp",
        text: "the same / TCP, polling",
        asked: 0.85,
        aim: None,
        metric: Metric::PollingP50,
        above: HOMA,
        below: "tcp",
    },
    Asked {
        name: "rtt_sleeping_over_tcp",
        text: "the same / TCP, sleeping",
        asked: 1.0,
        aim: None,
        metric: Metric::SleepingP50,
        above: HOMA,
        below: "tcp",
    },
    Asked {
        name: "rtt_device_over_bare",
        text: "round trip P50: packet or xdp driver / bare UDP",
        asked: 0.80,
        aim: Some(0.55),
        metric: Metric::PollingP50,
        above: DEVICES,
        below: "bare/udp",
    },
    Asked {
        name: "rtt_low_latency_over_bare",
        text: "sleeping round trip, low latency: udp driver / bare UDP",
        asked: 1.5,
        aim: Some(1.2),
        metric: Metric::LowLatencyP50,
        above: HOMA,
        below: "bare/udp",
    },
    Asked {
        name: "rpcs_32_over_bare",
        text: "RPCs/s, 100 B, 32 open: udp driver / bare UDP",
        asked: 0.70,
        aim: Some(0.85),
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "bare/udp",
    },
    // With several packets in a burst Homa has the offload too, and then this is the same driver.
    Asked {
        name: "rpcs_32_over_bare_offload",
        text: "the same / bare UDP with offload",
        asked: 0.70,
        aim: Some(0.85),
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "bare/udp-offload",
    },
    Asked {
        name: "rpcs_32_device_over_bare",
        text: "RPCs/s, 32 open: packet or xdp driver / bare UDP",
        asked: 1.4,
        aim: Some(2.0),
        metric: Metric::Rpcs32,
        above: DEVICES,
        below: "bare/udp",
    },
    Asked {
        name: "rpcs_32_over_grpc",
        text: "RPCs/s, 32 open: udp driver / gRPC (tonic)",
        asked: 5.0,
        aim: Some(10.0),
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "grpc",
    },
    Asked {
        name: "rpcs_32_over_quic",
        text: "RPCs/s, 32 open: udp driver / QUIC (quinn)",
        asked: 3.0,
        aim: Some(10.0),
        metric: Metric::Rpcs32,
        above: HOMA,
        below: "quic",
    },
    Asked {
        name: "bulk_over_tcp",
        text: "1 MB messages: udp driver / one TCP connection",
        asked: 1.0,
        aim: Some(2.0),
        metric: Metric::Bulk,
        above: HOMA,
        below: "tcp",
    },
    Asked {
        name: "bulk_over_grpc",
        text: "1 MB messages: udp driver / gRPC (tonic)",
        asked: 2.0,
        aim: Some(4.0),
        metric: Metric::Bulk,
        above: HOMA,
        below: "grpc",
    },
    Asked {
        name: "bulk_over_quic",
        text: "1 MB messages: udp driver / QUIC (quinn)",
        asked: 2.0,
        aim: Some(4.0),
        metric: Metric::Bulk,
        above: HOMA,
        below: "quic",
    },
];

/// All figures of what was measured.
pub fn figures(limits: &Limits) -> Vec<Figure> {
    ASKED.iter().map(|asked| figure(limits, asked)).collect()
}

fn figure(limits: &Limits, asked: &Asked) -> Figure {
    let at_most = is_time(asked.metric);
    let of = |name: &str| limits.row(name).and_then(|row| row.get(asked.metric));
    let better = |left: &Summary, right: &Summary| match at_most {
        true => left.median.total_cmp(&right.median),
        false => right.median.total_cmp(&left.median),
    };
    let ratios = asked.above.iter().filter_map(|above| of(above)?.over(of(asked.below)?));
    let measured = ratios.min_by(better);
    let reached = |bound: f64| {
        let median = measured.as_ref()?.median;
        Some(if at_most { median <= bound } else { median >= bound })
    };
    let (ok, aim_reached) = (reached(asked.asked), asked.aim.and_then(reached));
    let (name, text, aim) = (asked.name, asked.text, asked.aim);
    Figure { name, text, asked: asked.asked, aim, at_most, measured, ok, aim_reached }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::limits::samples;

    #[test]
    fn a_time_is_bounded_above_and_a_rate_below() {
        let limits = samples::limits();
        let find = |name| figures(&limits).into_iter().find(|figure| figure.name == name).expect("asked for");
        let rtt = find("rtt_polling_over_bare");
        assert!(rtt.at_most && (rtt.measured.expect("measured").median - 1.25).abs() < 1e-9);
        assert_eq!((rtt.ok, rtt.aim_reached), (Some(true), Some(false)));
        let rate = find("rpcs_32_over_bare");
        assert!(!rate.at_most && (rate.measured.expect("measured").median - 0.8).abs() < 1e-9);
        assert_eq!((rate.ok, rate.aim_reached), (Some(true), Some(false)));
    }

    #[test]
    fn the_better_of_two_drivers_counts_and_what_is_missing_is_not_judged() {
        let limits = samples::limits();
        let find = |name| figures(&limits).into_iter().find(|figure| figure.name == name).expect("asked for");
        // packet 0.5, xdp 0.75 of bare UDP's round trip.
        let device = find("rtt_device_over_bare");
        assert!((device.measured.expect("measured").median - 0.5).abs() < 1e-9);
        let missing = find("rpcs_32_over_quic");
        assert!(missing.measured.is_none() && missing.ok.is_none() && missing.aim_reached.is_none());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = ASKED.iter().map(|asked| asked.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ASKED.len());
    }
}
