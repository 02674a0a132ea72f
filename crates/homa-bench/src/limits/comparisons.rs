//! The table of Homa compared with TCP, with raw packets as a baseline.

use serde::Serialize;

use super::results::{Metric, Row};
use super::targets::{Basis, Target, Targets, Verdict};
use crate::engine::summary::Summary;

/// Name of Homa's row.
pub const HOMA: &str = "homa/udp";
/// Name of TCP's row.
pub const TCP: &str = "tcp";
/// Name of the row of raw packets. Like Homa's driver, they use segmentation offload.
pub const BARE: &str = "bare/udp-offload";

/// The values of one metric for Homa, TCP and raw packets.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The metric's stable name.
    pub name: &'static str,
    /// Description of the metric, with the table's unit.
    #[serde(skip)]
    pub text: &'static str,
    /// Factor from the metric's unit to the table's unit.
    #[serde(skip)]
    pub factor: f64,
    /// Whether smaller is better.
    pub at_most: bool,
    /// The value of Homa over UDP. This field and the following ones are `null` if not measured.
    pub homa: Option<Summary>,
    /// TCP.
    pub tcp: Option<Summary>,
    /// Raw packets over UDP; the kernel segments and merges runs of packets of equal length.
    pub bare_udp: Option<Summary>,
    /// Homa's value divided by TCP's in the same repetition.
    pub over_tcp: Option<Summary>,
    /// The row's target; `null` if it has none.
    pub target: Option<Target>,
    /// How the median compares with the target; `null` without a target or a value.
    pub verdict: Option<Verdict>,
}

/// The rows: text, factor from the metric's unit, and metric.
const ROWS: [(&str, f64, Metric); 11] = [
    ("W1 max, Gbit/s", 1.0, Metric::MaxW1),
    ("W2 max, Gbit/s", 1.0, Metric::MaxW2),
    ("W3 max, Gbit/s", 1.0, Metric::MaxW3),
    ("W4 max, Gbit/s", 1.0, Metric::MaxW4),
    ("W5 max, Gbit/s", 1.0, Metric::MaxW5),
    ("k RPC/s, 32 open", 1e-3, Metric::Rpcs32),
    ("k RPC/s, 128 open", 1e-3, Metric::Rpcs128),
    ("1 MB, Gbit/s", 1.0, Metric::Bulk),
    ("RTT P50, us", 1.0, Metric::PollingP50),
    ("RTT P99, us", 1.0, Metric::PollingP99),
    ("CPU ns per RPC", 1.0, Metric::CpuRpc),
];

/// Returns the names of all rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(.., metric)| metric.name())
}

/// Returns the metric of the row with this name.
pub fn find(name: &str) -> Option<Metric> {
    ROWS.iter().map(|(.., metric)| *metric).find(|metric| metric.name() == name)
}

/// Returns the rows with a value in at least one column.
pub fn comparisons(rows: &[Row], targets: &Targets) -> Vec<Comparison> {
    let all = ROWS.iter().map(|&(text, factor, metric)| comparison(rows, targets, text, factor, metric));
    all.filter(|row| row.homa.is_some() || row.tcp.is_some() || row.bare_udp.is_some()).collect()
}

fn comparison(
    rows: &[Row],
    targets: &Targets,
    text: &'static str,
    factor: f64,
    metric: Metric,
) -> Comparison {
    let of = |name: &str| rows.iter().find(|row| row.name == name).and_then(|row| row.get(metric)).cloned();
    let (homa, tcp, bare_udp) = (of(HOMA), of(TCP), of(BARE));
    let over_tcp = homa.as_ref().zip(tcp.as_ref()).and_then(|(homa, tcp)| homa.over(tcp));
    let (name, at_most) = (metric.name(), metric.at_most());
    let target = targets.get(name).cloned();
    let verdict = target.as_ref().and_then(|target| {
        let judged = if target.basis == Basis::Ratio { &over_tcp } else { &homa };
        Some(target.judge(judged.as_ref()?.median, at_most))
    });
    Comparison { name, text, factor, at_most, homa, tcp, bare_udp, over_tcp, target, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::samples;
    use crate::limits::targets::of;

    fn row(targets: &str, name: &str) -> Comparison {
        let rows = samples::limits().rows;
        comparisons(&rows, &of(targets)).into_iter().find(|row| row.name == name).expect("a row")
    }

    #[test]
    fn homa_is_divided_by_tcp_of_the_same_repetition() {
        let rate = row("[[target]]\nname = \"rpcs_per_s_32\"\nfloor = 1.3\ngoal = 1.4", "rpcs_per_s_32");
        assert_eq!(rate.homa.expect("measured").median, 400_000.0);
        assert_eq!(rate.tcp.expect("measured").samples.len(), 3);
        assert!(rate.bare_udp.is_none(), "the row with offload was not measured");
        assert!((rate.over_tcp.expect("a ratio").median - 4.0 / 3.0).abs() < 1e-9);
        assert_eq!(rate.verdict, Some(Verdict::Reached));
    }

    #[test]
    fn an_absolute_target_is_about_homa_s_own_value() {
        let target = "[[target]]\nname = \"rtt_polling_p99_us\"\nas = \"absolute\"\n";
        let row_at = |bounds: &str| row(&format!("{target}{bounds}"), "rtt_polling_p99_us");
        // Homa's value is 5 us.
        assert_eq!(row_at("floor = 4.9").verdict, Some(Verdict::BelowFloor));
        assert_eq!(row_at("floor = 6\ngoal = 5").verdict, Some(Verdict::Goal));
    }

    #[test]
    fn without_a_target_or_a_value_nothing_is_judged() {
        let target = "[[target]]\nname = \"gbps_1mb\"\nfloor = 1";
        assert!(row(target, "rpcs_per_s_32").verdict.is_none());
        let mut rows = samples::limits().rows;
        rows.retain(|row| row.name == TCP);
        let bulk = comparisons(&rows, &of(target)).into_iter().find(|row| row.name == "gbps_1mb");
        let bulk = bulk.expect("TCP was measured");
        assert!(bulk.over_tcp.is_none() && bulk.target.is_some() && bulk.verdict.is_none());
        rows.clear();
        assert!(comparisons(&rows, &of(target)).is_empty());
    }
}
