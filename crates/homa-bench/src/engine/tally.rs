//! Counts and latencies of one slice of load.

use std::time::Duration;

use anyhow::Result;
use homa_workload::{SlowdownRecorder, Workload};
use serde::{Deserialize, Serialize};

/// An answered RPC that was due within the measurement window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Size of the request in bytes.
    pub bytes: u32,
    /// Nanoseconds from the due time to the complete response.
    pub rtt_ns: u64,
}

/// Counters of a thread, a slice, a host, or a sum of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpcCounters {
    /// RPCs started, including those of the warm-up.
    pub started: u64,
    /// RPCs answered correctly, including those of the warm-up.
    pub answered: u64,
    /// Number of RPCs that ended in an error or with a wrong response.
    pub errors: u64,
    /// Number of RPCs that never ended.
    pub lost: u64,
    /// Responses without an open RPC, and requests that were executed more than once.
    pub duplicated: u64,
    /// Arrivals that had to wait because `--max-outstanding` RPCs were open.
    pub capped: u64,
    /// Arrivals that were due but still waiting at the end of the load.
    pub unsent: u64,
    /// Payload bytes of the requests that were due within the measurement window, sent or not.
    pub offered_bytes: u64,
    /// Payload bytes of the requests whose responses arrived within the measurement window.
    pub goodput_bytes: u64,
    /// The first error.
    pub first_error: Option<String>,
}

impl RpcCounters {
    /// Adds the counters of `other`.
    pub fn add(&mut self, other: RpcCounters) {
        self.started += other.started;
        self.answered += other.answered;
        self.errors += other.errors;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.capped += other.capped;
        self.unsent += other.unsent;
        self.offered_bytes += other.offered_bytes;
        self.goodput_bytes += other.goodput_bytes;
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }

    /// Returns whether more than 1 % of the arrivals had to wait, so that the load was no longer open-loop.
    pub fn closed_loop(&self) -> bool {
        (self.capped + self.unsent) * 100 > self.started + self.unsent
    }

    /// Returns the bytes answered within the measurement window divided by the bytes due in it, or `None` if
    /// nothing was due. The quotient is 1 in steady state, except for the bytes in flight at both ends of the
    /// measurement window. It is below 1 while a backlog grows.
    pub fn completed_fraction(&self) -> Option<f64> {
        (self.offered_bytes > 0).then(|| self.goodput_bytes as f64 / self.offered_bytes as f64)
    }
}

/// Counters and histograms of one thread, one slice, or all slices of a protocol.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Latencies of the RPCs that were due within the measurement window.
    pub recorder: SlowdownRecorder,
    /// The same latencies individually, if the load keeps them.
    pub samples: Vec<Sample>,
    /// The counters.
    pub counted: RpcCounters,
    /// Length of the measurement window.
    pub measured: Duration,
    /// Processor time of the clients within the measurement window, plus that of the servers if this bench
    /// started them.
    pub cpu: Duration,
}

impl Tally {
    /// Returns zero counters and empty histograms.
    pub fn new(workload: &Workload) -> Tally {
        Tally {
            recorder: SlowdownRecorder::new(workload),
            samples: Vec::new(),
            counted: RpcCounters::default(),
            measured: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    /// Adds the counters and histograms of `other`. Leaves `measured` and `cpu` unchanged.
    pub fn add(&mut self, mut other: Tally) -> Result<()> {
        self.recorder.merge(&other.recorder)?;
        self.samples.append(&mut other.samples);
        self.counted.add(other.counted);
        Ok(())
    }

    /// Counts an error. The first error's text is kept.
    pub fn error(&mut self, text: impl FnOnce() -> String) {
        self.counted.errors += 1;
        self.counted.first_error.get_or_insert_with(text);
    }

    /// Returns the payload of answered requests in Gbit/s over the measurement window.
    pub fn achieved_gbps(&self) -> f64 {
        self.counted.goodput_bytes as f64 * 8.0 / 1e9 / self.measured.as_secs_f64().max(1e-9)
    }

    /// Returns the average number of busy processors.
    pub fn cpu_busy(&self) -> f64 {
        self.cpu.as_secs_f64() / self.measured.as_secs_f64().max(1e-9)
    }
}
