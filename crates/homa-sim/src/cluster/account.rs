//! The account of a run's messages: how many count, and how long they took.

use homa_proto::Time;
use homa_workload::SlowdownRecorder;

use super::ideal::Ideal;
use super::{ClusterConfig, ClusterReport, Message};
use crate::topology::Routes;

pub(super) struct Account {
    pub(super) report: ClusterReport,
    slowdowns: SlowdownRecorder,
    ideal: Ideal,
    routes: Routes,
    /// Measured messages that have not arrived.
    open: u64,
    measured_from: Time,
    pub(super) measured_until: Time,
    drain_ns: u64,
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
            open: 0,
            measured_from,
            measured_until: measured_from + config.duration_ns,
            drain_ns: config.drain_ns,
        }
    }

    /// A message starts; whether it counts.
    pub(super) fn started(&mut self, now: Time) -> bool {
        let is_measured = (self.measured_from..self.measured_until).contains(&now);
        self.open += u64::from(is_measured);
        self.report.started += u64::from(is_measured);
        is_measured
    }

    /// The least time of a message.
    pub(super) fn least_ns(&mut self, message: &Message) -> u64 {
        self.ideal.least_ns(&self.routes, message.from, message.to, message.length)
    }

    /// A message that took so long is whole at its receiver.
    pub(super) fn delivered(&mut self, message: &Message, took_ns: u64) {
        if message.is_measured {
            let least_ns = self.least_ns(message);
            self.open -= 1;
            self.slowdowns.record(message.length, took_ns, least_ns);
            self.report.delivered(message);
        }
    }

    /// The latest time of a run.
    pub(super) fn limit(&self) -> Time {
        self.measured_until + self.drain_ns
    }

    /// Whether the run needs no more time than `now`.
    pub(super) fn is_over(&self, now: Time) -> bool {
        now > self.measured_until && self.open == 0
    }

    /// How much of the measured time has passed, 0 to 1.
    pub(super) fn progress(&self, now: Time) -> f64 {
        now.as_ns() as f64 / self.measured_until.as_ns().max(1) as f64
    }

    /// The report, of messages.
    pub(super) fn finish(mut self, config: &ClusterConfig) -> ClusterReport {
        self.report.close(config, self.open);
        self.report.slowdowns(&self.slowdowns);
        self.report
    }
}
