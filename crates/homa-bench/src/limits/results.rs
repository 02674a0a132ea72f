//! The results, by row and by metric.

use std::collections::BTreeMap;

use serde::Serialize;

use super::comparisons::Comparison;
use super::figures::Figure;
use crate::engine::summary::Summary;

/// Version of the JSON. It increases when a field changes its meaning or is removed, not when a field is
/// added.
pub const SCHEMA: u32 = 1;

/// A metric of each subject. Names and units are part of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Median round trip of 100-byte RPCs in microseconds, one RPC at a time. Both sides poll.
    PollingP50,
    /// 99th percentile of the same round trips.
    PollingP99,
    /// Median round trip of 100-byte RPCs in microseconds, one RPC at a time. Both sides sleep without
    /// polling first.
    SleepingP50,
    /// 99th percentile of the same round trips.
    SleepingP99,
    /// Like [`Metric::SleepingP50`], with /dev/cpu_dma_latency held at 0.
    LowLatencyP50,
    /// 99th percentile of the same round trips.
    LowLatencyP99,
    /// 100-byte RPCs per second with 1 open RPC, both sides polling.
    Rpcs1,
    /// RPCs per second with 8 open RPCs.
    Rpcs8,
    /// RPCs per second with 32 open RPCs.
    Rpcs32,
    /// RPCs per second with 128 open RPCs.
    Rpcs128,
    /// Payload throughput of one-way 1 MB messages in Gbit/s, with 8 open messages on one connection.
    Bulk,
    /// Processor time of client and server per 100-byte RPC, in nanoseconds, with 32 open RPCs. Both sides
    /// sleep when idle.
    CpuRpc,
    /// Processor time to send and receive a packet, in nanoseconds, measured together with
    /// [`Metric::CpuRpc`].
    CpuPacket,
    /// Processor time to send and receive a packet, in nanoseconds, measured together with [`Metric::Bulk`].
    CpuBulkPacket,
    /// Maximum rate of workload W1 requests over loopback, in Gbit/s of payload, as `homa bench --loopback
    /// --find-max` measures it.
    MaxW1,
    /// Maximum rate of workload W2.
    MaxW2,
    /// Maximum rate of workload W3.
    MaxW3,
    /// Maximum rate of workload W4.
    MaxW4,
    /// Maximum rate of workload W5.
    MaxW5,
}

impl Metric {
    /// All metrics, in the order of the table.
    pub const ALL: [Metric; 19] = [
        Metric::PollingP50,
        Metric::PollingP99,
        Metric::SleepingP50,
        Metric::SleepingP99,
        Metric::LowLatencyP50,
        Metric::LowLatencyP99,
        Metric::Rpcs1,
        Metric::Rpcs8,
        Metric::Rpcs32,
        Metric::Rpcs128,
        Metric::Bulk,
        Metric::CpuRpc,
        Metric::CpuPacket,
        Metric::CpuBulkPacket,
        Metric::MaxW1,
        Metric::MaxW2,
        Metric::MaxW3,
        Metric::MaxW4,
        Metric::MaxW5,
    ];

    /// The maximum rates of workloads.
    pub const MAXIMA: [Metric; 5] =
        [Metric::MaxW1, Metric::MaxW2, Metric::MaxW3, Metric::MaxW4, Metric::MaxW5];

    /// Returns the stable name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::PollingP50 => "rtt_polling_p50_us",
            Metric::PollingP99 => "rtt_polling_p99_us",
            Metric::SleepingP50 => "rtt_sleeping_p50_us",
            Metric::SleepingP99 => "rtt_sleeping_p99_us",
            Metric::LowLatencyP50 => "rtt_low_latency_p50_us",
            Metric::LowLatencyP99 => "rtt_low_latency_p99_us",
            Metric::Rpcs1 => "rpcs_per_s_1",
            Metric::Rpcs8 => "rpcs_per_s_8",
            Metric::Rpcs32 => "rpcs_per_s_32",
            Metric::Rpcs128 => "rpcs_per_s_128",
            Metric::Bulk => "gbps_1mb",
            Metric::CpuRpc => "cpu_ns_per_rpc",
            Metric::CpuPacket => "cpu_ns_per_packet",
            Metric::CpuBulkPacket => "cpu_ns_per_packet_1mb",
            Metric::MaxW1 => "max_gbps_w1",
            Metric::MaxW2 => "max_gbps_w2",
            Metric::MaxW3 => "max_gbps_w3",
            Metric::MaxW4 => "max_gbps_w4",
            Metric::MaxW5 => "max_gbps_w5",
        }
    }

    /// Returns the metric with this name, or the maximum rate of the workload with this name.
    pub fn from_name(name: &str) -> Option<Metric> {
        let has_name = |metric: &Metric| metric.name() == name || metric.workload() == Some(name);
        Metric::ALL.into_iter().find(has_name)
    }

    /// Returns the workload whose maximum rate this metric is, or `None` for other metrics.
    pub fn workload(self) -> Option<&'static str> {
        Metric::MAXIMA.contains(&self).then(|| self.name().trim_start_matches("max_gbps_"))
    }

    /// Returns whether smaller is better: true for times, false for rates.
    pub fn at_most(self) -> bool {
        self.name().ends_with("_us") || self.name().starts_with("cpu_ns")
    }

    /// Returns whether the metric is measured only with `--low-latency`.
    pub fn needs_low_latency(self) -> bool {
        matches!(self, Metric::LowLatencyP50 | Metric::LowLatencyP99)
    }
}

/// The results of a whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Limits {
    /// Version of this format.
    pub schema: u32,
    /// The settings.
    pub config: Config,
    /// One row for each subject.
    pub rows: Vec<Row>,
    /// Homa compared with TCP, and with raw packets if they were measured.
    pub comparisons: Vec<Comparison>,
    /// Ratios of other pairs of rows.
    pub figures: Vec<Figure>,
}

/// The settings of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Config {
    /// Version of this program.
    pub version: &'static str,
    /// When the run began, in seconds since 1970.
    pub unix_time_s: u64,
    /// Number of processors of this machine.
    pub cpus: usize,
    /// `veth` or `loopback`.
    pub path: &'static str,
    /// MTU of the veth pair in bytes; `null` on loopback.
    pub mtu: Option<u32>,
    /// Whether packets crossed the veth pair one by one.
    pub wire: bool,
    /// Number of repetitions. In each of them, all subjects take turns.
    pub repetitions: u32,
    /// Measurement time of each cell per repetition, in milliseconds.
    pub slice_ms: u64,
    /// Measurement time for each number of open RPCs in the search for a workload's maximum, per repetition,
    /// in milliseconds.
    pub workload_slice_ms: u64,
    /// The file with the targets; `null` if there is none.
    pub targets: Option<String>,
    /// Whether the metrics with /dev/cpu_dma_latency held at 0 were measured.
    pub low_latency: bool,
    /// Deviations from the requested measurements, with their reasons.
    pub notes: Vec<String>,
}

/// The values of a subject.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Name of the subject.
    pub name: String,
    /// Why values are missing: either all values, or those after some repetition.
    pub skipped: Option<String>,
    /// Number of RPCs that failed, had a wrong response, or were lost.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Values, keyed by the metric's name.
    pub metrics: BTreeMap<&'static str, Summary>,
}

impl Row {
    /// Adds the value of a repetition.
    pub fn add(&mut self, metric: Metric, value: Option<f64>) {
        if let Some(value) = value {
            self.metrics.entry(metric.name()).or_default().add(value);
        }
    }

    /// Returns the values of a metric, or `None` if it was not measured.
    pub fn get(&self, metric: Metric) -> Option<&Summary> {
        self.metrics.get(metric.name())
    }

    /// Returns whether every RPC was answered exactly once and correctly. Always true for raw packets, which
    /// may be lost.
    pub fn clean(&self) -> bool {
        self.errors == 0 || self.name.starts_with("bare/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own() {
        let mut names: Vec<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Metric::ALL.len());
    }

    #[test]
    fn a_metric_is_chosen_by_its_name_and_a_workload_by_its_own() {
        for metric in Metric::ALL {
            assert_eq!(Metric::from_name(metric.name()), Some(metric));
        }
        assert_eq!(Metric::from_name("w3"), Some(Metric::MaxW3));
        assert_eq!((Metric::MaxW3.workload(), Metric::Bulk.workload()), (Some("w3"), None));
        assert!(Metric::from_name("w6").is_none());
    }

    #[test]
    fn times_are_better_when_smaller() {
        let smaller: Vec<&str> =
            Metric::ALL.into_iter().filter(|metric| metric.at_most()).map(Metric::name).collect();
        assert_eq!(smaller.len(), 9, "{smaller:?}");
        assert!(!Metric::MaxW1.at_most() && !Metric::Rpcs32.at_most() && Metric::CpuRpc.at_most());
    }
}
