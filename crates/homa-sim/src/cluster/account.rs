//! Statistics of a run's messages.

use homa_proto::Time;
use homa_workload::SlowdownRecorder;

use super::config::ClusterConfig;
use super::ideal::Ideal;
use super::messages::Message;
use super::report::ClusterReport;
use super::steady::Recorder;
use super::traffic::Traffic;
use crate::topology::Routes;

pub(super) struct Account {
    pub(super) report: ClusterReport,
    slowdowns: SlowdownRecorder,
    ideal: Ideal,
    routes: Routes,
    /// Number of messages per exchange.
    messages: u32,
    /// Measured exchanges that have not ended.
    open: u64,
    series: Recorder,
    /// Whether the traffic is continuous and therefore has a steady state. An incast has rounds instead.
    has_steady_state: bool,
    measured_from: Time,
    pub(super) measured_until: Time,
    drain_ns: u64,
    keep_samples: bool,
}

impl Account {
    pub(super) fn new(config: &ClusterConfig, transport: &str) -> Account {
        let measured_from = Time::from_ns(config.warm_up_ns);
        let slowdowns = if config.bins.is_empty() {
            SlowdownRecorder::with_bins(&config.workload, 20)
        } else {
            SlowdownRecorder::with_edges(&config.workload, config.bins.iter().copied())
        };
        Account {
            report: ClusterReport::new(config, transport),
            slowdowns,
            ideal: Ideal::new(config),
            routes: Routes::new(config.topology, config.hosts),
            messages: config.exchange.messages(),
            open: 0,
            series: Recorder::new(config),
            has_steady_state: !matches!(config.traffic, Traffic::Incast { .. }),
            measured_from,
            measured_until: measured_from + config.duration_ns,
            drain_ns: config.drain_ns,
            keep_samples: config.keep_samples,
        }
    }

    /// Records the start of a message of `length` bytes. Returns whether it is measured.
    pub(super) fn started(&mut self, now: Time, length: u32) -> bool {
        let is_measured = (self.measured_from..self.measured_until).contains(&now);
        self.open += u64::from(is_measured);
        self.report.started += u64::from(is_measured);
        let bytes = self.bytes(length).unsigned_abs();
        self.report.started_bytes += u64::from(is_measured) * bytes;
        self.series.offered(now, bytes);
        is_measured
    }

    /// Records that a message of `length` bytes is in flight, whether or not it is part of the load.
    pub(super) fn begins(&mut self, now: Time, length: u32) {
        self.series.change(now, self.bytes(length));
    }

    /// Returns the bytes of an exchange whose request has this length.
    fn bytes(&self, length: u32) -> i64 {
        i64::from(length) * i64::from(self.messages)
    }

    /// Records how many downlinks were sampled, and how many of them were idle.
    pub(super) fn sampled(&mut self, now: Time, samples: u64, idle: u64) {
        self.series.sampled(now, samples, idle);
    }

    /// Returns whether the measured time has begun.
    pub(super) fn is_measuring(&self, now: Time) -> bool {
        now >= self.measured_from
    }

    /// Returns the minimum time of a message.
    pub(super) fn least_ns(&mut self, message: &Message) -> u64 {
        self.ideal.least_ns(&self.routes, message.from, message.to, message.length)
    }

    /// Records an exchange that ended with this message after `took_ns`.
    pub(super) fn delivered(&mut self, message: &Message, took_ns: u64) {
        let ended = message.asked + took_ns;
        let bytes = self.bytes(message.length);
        self.series.change(ended, -bytes);
        self.series.completed(ended, bytes.unsigned_abs());
        if (self.measured_from..self.measured_until).contains(&ended) {
            self.report.ended += 1;
            self.report.ended_bytes += bytes.unsigned_abs();
        }
        if message.is_measured {
            // Both directions take the same minimum time.
            let least_ns = self.least_ns(message) * u64::from(self.messages);
            self.open -= 1;
            self.slowdowns.record(message.length, took_ns, least_ns);
            self.report.delivered(message, self.messages);
            if self.keep_samples {
                self.report.samples.push((message.length, took_ns));
            }
        }
    }

    /// Returns the latest possible end of a run.
    pub(super) fn limit(&self) -> Time {
        self.measured_until + self.drain_ns
    }

    /// Returns whether the run is complete at time `now`.
    pub(super) fn is_over(&self, now: Time) -> bool {
        now > self.measured_until && self.open == 0
    }

    /// Returns the elapsed fraction of the measured time, 0 to 1.
    pub(super) fn progress(&self, now: Time) -> f64 {
        now.as_ns() as f64 / self.measured_until.as_ns().max(1) as f64
    }

    /// Returns the report, including the results about messages.
    pub(super) fn finish(mut self, config: &ClusterConfig) -> ClusterReport {
        self.report.close(config, self.open);
        self.report.slowdowns(&self.slowdowns);
        self.series.change(self.measured_until, 0);
        [self.report.backlog_first_bytes, self.report.backlog_last_bytes] = self.series.quarters();
        if self.has_steady_state {
            self.report.steady = Some(self.series.finish(self.report.started, self.open));
        }
        self.report
    }
}
