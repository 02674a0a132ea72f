//! The results, by interface and by metric.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::summary::Summary;

/// Version of the JSON. It increases when a field changes its meaning or is removed, not when a field is
/// added.
pub const SCHEMA: u32 = 1;

/// The target of a metric's median.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// A minimum.
    AtLeast(f64),
    /// A maximum.
    AtMost(f64),
}

impl Bound {
    /// Returns whether a value reaches the target.
    pub fn is_kept(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        }
    }
}

/// A metric. Its name is part of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// The name in the results.
    pub name: &'static str,
    /// Description and unit.
    pub text: &'static str,
    /// The target; `None` if there is none.
    pub asked: Option<Bound>,
}

const fn measure(name: &'static str, text: &'static str, asked: Option<Bound>) -> Measure {
    Measure { name, text, asked }
}

const fn at_least(value: f64) -> Option<Bound> {
    Some(Bound::AtLeast(value))
}

const fn at_most(value: f64) -> Option<Bound> {
    Some(Bound::AtMost(value))
}

/// All metrics, in the order of the table.
pub const MEASURES: [Measure; 55] = [
    measure("small_mpps", "frames of 64 B, one core, M/s", at_least(1.5)),
    measure("small_bare_mpps", "  without a switch", None),
    measure("small_unreceived_mpps", "  without a receiver", at_least(1.5)),
    measure("small_unreceived_bare_mpps", "  without both", None),
    measure("small_flow_mpps", "  with the source at work", None),
    measure("small_flow_offered_mpps", "    offered", None),
    measure("full_mpps", "frames of 1514 B, one core, M/s", at_least(1.0)),
    measure("full_bare_mpps", "  without a switch", None),
    measure("full_unreceived_mpps", "  without a receiver", at_least(1.0)),
    measure("full_unreceived_bare_mpps", "  without both", None),
    measure("full_flow_mpps", "  with the source at work", None),
    measure("full_flow_offered_mpps", "    offered", None),
    measure("rate_100m_worst", "100 Mbit/s over 10 ms: max deviation, %", at_most(1.0)),
    measure("rate_100m_clear_worst", "  windows without a gap", None),
    measure("rate_100m_gaps", "  time in gaps, %", None),
    measure("rate_100m_dry", "  time without a backlog, left out, %", None),
    measure("rate_100m_p99", "  P99", None),
    measure("rate_100m_mean", "  mean", None),
    measure("rate_100m_sink_worst", "  at the sink: maximum", None),
    measure("rate_100m_sink_p99", "  at the sink: P99", None),
    measure("rate_1g_worst", "1 Gbit/s over 10 ms: max deviation, %", at_most(1.0)),
    measure("rate_1g_clear_worst", "  windows without a gap", None),
    measure("rate_1g_gaps", "  time in gaps, %", None),
    measure("rate_1g_dry", "  time without a backlog, left out, %", None),
    measure("rate_1g_p99", "  P99", None),
    measure("rate_1g_mean", "  mean", None),
    measure("rate_1g_sink_worst", "  at the sink: maximum", None),
    measure("rate_1g_sink_p99", "  at the sink: P99", None),
    measure("rate_5g_worst", "5 Gbit/s over 10 ms: max deviation, %", at_most(3.0)),
    measure("rate_5g_clear_worst", "  windows without a gap", None),
    measure("rate_5g_gaps", "  time in gaps, %", None),
    measure("rate_5g_dry", "  time without a backlog, left out, %", None),
    measure("rate_5g_p99", "  P99", None),
    measure("rate_5g_mean", "  mean", None),
    measure("rate_5g_sink_worst", "  at the sink: maximum", None),
    measure("rate_5g_sink_p99", "  at the sink: P99", None),
    measure("machine_lost_worst", "machine: maximum loss in 10 ms, %", None),
    measure("machine_lost", "  share of all time, %", None),
    measure("probe_100m_p50_us", "probe at 100 Mbit/s, cut-through: P50 us", at_most(70.0)),
    measure("probe_100m_p99_us", "  P99", None),
    measure("probe_100m_store_p50_us", "  store and forward: P50", None),
    measure("probe_100m_store_p99_us", "  store and forward: P99", None),
    measure("probe_1g_p50_us", "probe at 1 Gbit/s, cut-through: P50 us", at_most(10.0)),
    measure("probe_1g_p99_us", "  P99", None),
    measure("probe_1g_store_p50_us", "  store and forward: P50", None),
    measure("probe_1g_store_p99_us", "  store and forward: P99", None),
    measure("probe_5g_p50_us", "probe at 5 Gbit/s, cut-through: P50 us", at_most(6.0)),
    measure("probe_5g_p99_us", "  P99", None),
    measure("probe_5g_store_p50_us", "  store and forward: P50", None),
    measure("probe_5g_store_p99_us", "  store and forward: P99", None),
    measure("overload_peak_mpps", "with planted work: maximum, M/s", None),
    measure("overload_twice", "  share of it at twice the load", at_least(0.95)),
    measure("overload_twice_offered", "    offered, relative to it", None),
    measure("overload_flood", "  share of it at the maximum load", None),
    measure("overload_flood_offered", "    offered, relative to it", None),
];

/// The results of a whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of this format.
    pub schema: u32,
    /// Version of this program.
    pub version: &'static str,
    /// Number of processors of this machine.
    pub cpus: usize,
    /// Number of repetitions. In each of them, all interfaces take turns.
    pub repetitions: u32,
    /// Measurement time of each value per repetition, in milliseconds.
    pub slice_ms: u64,
    /// The interface of source and sink.
    pub load: &'static str,
    /// Frames dropped at the sink for lack of room. If any were dropped, the throughput was limited by the
    /// sink.
    pub missed: u64,
    /// Remarks on the results.
    pub notes: Vec<String>,
    /// The metrics with their descriptions and targets.
    pub measures: Vec<Measure>,
    /// The results of each interface.
    pub paths: Vec<PathResults>,
}

/// The results of an interface between the switch and its devices.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathResults {
    /// The interface.
    pub name: &'static str,
    /// Reason why some or all values are missing.
    pub skipped: Option<String>,
    /// Values, keyed by the metric's name.
    pub metrics: BTreeMap<String, Summary>,
}

impl PathResults {
    /// Adds the value of a repetition.
    pub fn add(&mut self, (name, value): (String, f64)) {
        debug_assert!(MEASURES.iter().any(|measure| measure.name == name), "{name} is no metric");
        self.metrics.entry(name).or_default().add(value);
    }
}

impl Results {}
