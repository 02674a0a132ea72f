//! What was measured, by row and by metric.

use std::collections::BTreeMap;

use serde::Serialize;

use super::comparisons::Comparison;
use super::figures::Figure;
use crate::engine::summary::Summary;

/// Version of the JSON: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// What is measured of each subject. Names and units are part of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Round trip of 100 bytes, one RPC at a time, both sides polling: median, microseconds.
    PollingP50,
    /// Its 99th percentile.
    PollingP99,
    /// The same, both sides sleeping at once: median, microseconds.
    SleepingP50,
    /// Its 99th percentile.
    SleepingP99,
    /// The same while /dev/cpu_dma_latency is held at 0: median, microseconds.
    LowLatencyP50,
    /// Its 99th percentile.
    LowLatencyP99,
    /// RPCs of 100 bytes per second, 1 open at a time, both sides polling.
    Rpcs1,
    /// 8 open.
    Rpcs8,
    /// 32 open.
    Rpcs32,
    /// 128 open.
    Rpcs128,
    /// Messages of 1 MB one way, 8 open, one connection: 10^9 bits of payload per second.
    Bulk,
    /// Processor time for an RPC of 100 bytes, clients and servers, 32 open, both sides sleeping when idle: nanoseconds.
    CpuRpc,
    /// The same for each packet: sending and receiving it.
    CpuPacket,
    /// The same for each packet of messages of 1 MB, both sides polling.
    CpuBulkPacket,
    /// Highest rate of requests of workload W1 over loopback, as `homa bench --loopback --find-max` has it:
    /// 10^9 bits of payload per second.
    MaxW1,
    /// The same of W2.
    MaxW2,
    /// The same of W3.
    MaxW3,
    /// The same of W4.
    MaxW4,
    /// The same of W5.
    MaxW5,
}

impl Metric {
    /// In the order of the table.
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

    /// The highest rates of workloads.
    pub const MAXIMA: [Metric; 5] =
        [Metric::MaxW1, Metric::MaxW2, Metric::MaxW3, Metric::MaxW4, Metric::MaxW5];

    /// The stable name.
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

    /// The metric with this name, or of the highest rate of the workload with this name.
    pub fn from_name(name: &str) -> Option<Metric> {
        let has_name = |metric: &Metric| metric.name() == name || metric.workload() == Some(name);
        Metric::ALL.into_iter().find(has_name)
    }

    /// The workload whose highest rate this is.
    pub fn workload(self) -> Option<&'static str> {
        Metric::MAXIMA.contains(&self).then(|| self.name().trim_start_matches("max_gbps_"))
    }

    /// Whether smaller is better: times are, rates are not.
    pub fn at_most(self) -> bool {
        self.name().ends_with("_us") || self.name().starts_with("cpu_ns")
    }

    /// Whether it is only measured with `--low-latency`.
    pub fn needs_low_latency(self) -> bool {
        matches!(self, Metric::LowLatencyP50 | Metric::LowLatencyP99)
    }
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Limits {
    /// Version of this format.
    pub schema: u32,
    /// The settings.
    pub config: Config,
    /// One for each subject.
    pub rows: Vec<Row>,
    /// Homa against TCP, and raw packets where they compare.
    pub comparisons: Vec<Comparison>,
    /// Ratios of other pairs of rows.
    pub figures: Vec<Figure>,
}

/// The settings of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Config {
    /// Version of this program.
    pub version: &'static str,
    /// When the run began, seconds since 1970.
    pub unix_time_s: u64,
    /// Processors of this machine.
    pub cpus: usize,
    /// `veth` or `loopback`.
    pub path: &'static str,
    /// Of the veth pair, in bytes; `null` on loopback.
    pub mtu: Option<u32>,
    /// Packets cross the veth pair one by one.
    pub wire: bool,
    /// Repetitions, all subjects in turn in each.
    pub repetitions: u32,
    /// Measured time of each cell in a repetition, in milliseconds.
    pub slice_ms: u64,
    /// Measured time of each level of a workload's highest rate in a repetition, in milliseconds.
    pub workload_slice_ms: u64,
    /// The file with the targets; `null`: none.
    pub targets: Option<String>,
    /// The row with /dev/cpu_dma_latency held was asked for.
    pub low_latency: bool,
    /// Why that row, or the veth pair, is missing although wanted.
    pub notes: Vec<String>,
}

/// A subject's values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// As in `Subject::name`.
    pub name: String,
    /// Why there are no values, or none from some repetition on.
    pub skipped: Option<String>,
    /// RPCs that failed, were answered wrong, or were lost.
    pub errors: u64,
    /// The first of these.
    pub first_error: Option<String>,
    /// By the metric's name.
    pub metrics: BTreeMap<&'static str, Summary>,
}

impl Row {
    /// Adds a repetition's value.
    pub fn add(&mut self, metric: Metric, value: Option<f64>) {
        if let Some(value) = value {
            self.metrics.entry(metric.name()).or_default().add(value);
        }
    }

    /// A metric's values.
    pub fn get(&self, metric: Metric) -> Option<&Summary> {
        self.metrics.get(metric.name())
    }

    /// Whether every RPC was answered exactly once and right. Bare packets may be lost.
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
