//! The account of a run's messages: how many count, and how long they took.

use homa_proto::Time;
use homa_workload::SlowdownRecorder;

use super::config::ClusterConfig;
use super::ideal::Ideal;
use super::messages::Message;
use super::report::ClusterReport;
use crate::topology::Routes;

pub(super) struct Account {
    pub(super) report: ClusterReport,
    slowdowns: SlowdownRecorder,
    ideal: Ideal,
    routes: Routes,
    /// Messages of an exchange.
    messages: u32,
    /// Measured exchanges that have not ended.
    open: u64,
    backlog: Backlog,
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
            backlog: Backlog::new(measured_from, config.duration_ns),
            measured_from,
            measured_until: measured_from + config.duration_ns,
            drain_ns: config.drain_ns,
            keep_samples: config.keep_samples,
        }
    }

    /// A message of `length` bytes starts; whether it counts.
    pub(super) fn started(&mut self, now: Time, length: u32) -> bool {
        let is_measured = (self.measured_from..self.measured_until).contains(&now);
        self.open += u64::from(is_measured);
        self.report.started += u64::from(is_measured);
        self.report.started_bytes += u64::from(is_measured) * u64::from(length) * u64::from(self.messages);
        is_measured
    }

    /// A message of `length` bytes is under way, whether it is part of the load or not.
    pub(super) fn begins(&mut self, now: Time, length: u32) {
        self.backlog.change(now, self.bytes(length));
    }

    /// Bytes of an exchange.
    fn bytes(&self, length: u32) -> i64 {
        i64::from(length) * i64::from(self.messages)
    }

    /// The least time of a message.
    pub(super) fn least_ns(&mut self, message: &Message) -> u64 {
        self.ideal.least_ns(&self.routes, message.from, message.to, message.length)
    }

    /// An exchange whose last message this is took so long from its beginning.
    pub(super) fn delivered(&mut self, message: &Message, took_ns: u64) {
        let ended = message.asked + took_ns;
        self.backlog.change(ended, -self.bytes(message.length));
        if (self.measured_from..self.measured_until).contains(&ended) {
            self.report.ended += 1;
            self.report.ended_bytes += self.bytes(message.length).unsigned_abs();
        }
        if message.is_measured {
            // The way there is as long as the way back.
            let least_ns = self.least_ns(message) * u64::from(self.messages);
            self.open -= 1;
            self.slowdowns.record(message.length, took_ns, least_ns);
            self.report.delivered(message, self.messages);
            if self.keep_samples {
                self.report.samples.push((message.length, took_ns));
            }
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
        self.backlog.change(self.measured_until, 0);
        [self.report.backlog_first_bytes, self.report.backlog_last_bytes] = self.backlog.means();
        self.report
    }
}

/// Bytes of the messages under way, over the first and the last quarter of the measured time.
struct Backlog {
    bytes: i64,
    since: Time,
    quarters: [(Time, Time); 2],
    /// Bytes times nanoseconds of each quarter.
    areas: [f64; 2],
}

impl Backlog {
    fn new(from: Time, duration_ns: u64) -> Backlog {
        let (quarter_ns, until) = (duration_ns / 4, from + duration_ns);
        let last = from + (duration_ns - quarter_ns);
        Backlog {
            bytes: 0,
            since: Time::ZERO,
            quarters: [(from, from + quarter_ns), (last, until)],
            areas: [0.0; 2],
        }
    }

    /// A message starts or arrives. What a schedule computes ahead may be a little out of order, and counts from the latest moment.
    fn change(&mut self, now: Time, bytes: i64) {
        let now = now.max(self.since);
        for ((from, until), area) in self.quarters.iter().zip(&mut self.areas) {
            let (begin, end) = (self.since.max(*from), now.min(*until));
            if end > begin {
                *area += end.since(begin) as f64 * self.bytes as f64;
            }
        }
        self.since = now;
        self.bytes += bytes;
    }

    fn means(&self) -> [f64; 2] {
        [0, 1].map(|index| {
            let (from, until) = self.quarters[index];
            self.areas[index] / until.since(from).max(1) as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_is_a_mean_over_time() {
        let at = Time::from_ns;
        let mut backlog = Backlog::new(at(100), 400);
        backlog.change(at(50), 10);
        backlog.change(at(150), 20);
        backlog.change(at(450), -30);
        backlog.change(at(1_000), 5);
        assert_eq!(backlog.means(), [20.0, 15.0]);
    }
}
