//! A run of the oracle, without packets.

use homa_proto::Time;

use super::account::Account;
use super::config::ClusterConfig;
use super::event::HostEvent;
use super::messages::{Message, Messages};
use super::report::{ClusterReport, Progress};
use super::traffic::Arrivals;
use super::traffic::Exchange;
use crate::fabric::Event;
use crate::link::LinkConfig;
use crate::queue::EventQueue;
use crate::transport::oracle::{OracleConfig, Schedule};

const PS_PER_NS: u64 = 1_000;

/// A run with the messages of a [`Cluster`](crate::Cluster) of this configuration, scheduled by the oracle.
pub(crate) struct FluidCluster {
    config: ClusterConfig,
    now: Time,
    queue: EventQueue<Event<HostEvent>>,
    arrivals: Arrivals,
    account: Account,
    messages: Messages,
    schedule: Schedule,
    events: u64,
    /// Numbers of all downlink samples, of those that were idle, and of those that were idle although a
    /// message to the host was waiting.
    samples: u64,
    idle: u64,
    wasted: u64,
}

impl FluidCluster {
    pub(crate) const NAME: &'static str = "oracle";

    pub(crate) fn new(config: ClusterConfig, oracle: OracleConfig) -> FluidCluster {
        assert!(config.hosts >= 2, "a message needs two hosts");
        let mut run = FluidCluster {
            now: Time::ZERO,
            queue: EventQueue::new(),
            arrivals: Arrivals::new(&config),
            account: Account::new(&config, Self::NAME),
            messages: Messages::default(),
            schedule: Schedule::new(oracle, config.hosts),
            events: 0,
            samples: 0,
            idle: 0,
            wasted: 0,
            config,
        };
        run.arrivals.start(&mut run.queue);
        let first_sample = Time::from_ns(run.config.warm_up_ns % run.config.sample_ns);
        run.queue.push(first_sample, Event::Host(HostEvent::Sample));
        run
    }

    /// Like [`Cluster::progress`](crate::Cluster::progress).
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            acquainted: 1.0,
            share: self.account.progress(self.now),
            now: self.now,
            events: self.events,
        }
    }

    /// Like [`Cluster::advance`](crate::Cluster::advance).
    pub(crate) fn advance(&mut self, ns: u64) -> bool {
        let until = (self.now + ns).min(self.account.limit());
        while let Some(at) = self.queue.next_at().filter(|&at| at <= until) {
            if self.account.is_over(at) {
                return false;
            }
            self.step();
        }
        self.now = self.now.max(until);
        self.now < self.account.limit() && !self.account.is_over(self.now)
    }

    /// Returns the results so far.
    pub(crate) fn finish(self) -> ClusterReport {
        let mut report = self.account.finish(&self.config);
        report.events = self.events;
        let samples = self.samples.max(1) as f64;
        (report.downlink_idle, report.downlink_wasted) =
            (self.idle as f64 / samples, self.wasted as f64 / samples);
        report
    }

    fn step(&mut self) {
        let Some((at, Event::Host(event))) = self.queue.pop() else { return };
        self.now = at;
        self.events += 1;
        match event {
            HostEvent::Arrival { host } => {
                let (to, length, next) = self.arrivals.next(host);
                if !self.arrivals.is_closed() {
                    self.queue.push(at + next, Event::Host(HostEvent::Arrival { host }));
                }
                self.start(host, to, length);
            }
            HostEvent::Round => {
                for (from, to, length) in self.arrivals.round(&mut self.queue, at) {
                    self.start(from, to, length);
                }
            }
            HostEvent::Timeout { host } => self.end(host),
            HostEvent::Answer { answer } => self.send(answer),
            HostEvent::Sample => self.sample(),
            // Without packets, hosts have no cores.
            HostEvent::Cores { .. } => {}
        }
    }

    /// Returns the link time of a message.
    fn needs_ps(&self, length: u32) -> u64 {
        let link = LinkConfig { overhead_bytes: 0, ..self.config.link };
        let bytes = self.config.framing.link_bytes(&self.config.link, length);
        u32::try_from(bytes).map_or(u64::MAX >> 1, |bytes| link.serialisation_ps(bytes))
    }

    fn start(&mut self, from: u32, to: u32, length: u32) {
        let is_measured = self.account.started(self.now, length);
        self.account.begins(self.now, length);
        self.arrivals.record_start(from);
        let message = self.messages.start(Message::new(from, to, length, self.now, is_measured));
        self.send(message);
    }

    fn send(&mut self, number: u32) {
        let Message { from, to, length, .. } = self.messages.get(number);
        let needs_ps = self.needs_ps(length);
        self.schedule.start(self.now.as_ns() * PS_PER_NS, number, from, to, needs_ps);
        self.await_call_ends();
    }

    /// Ends the message that a host is receiving, if it is complete and was not interrupted in the meantime.
    fn end(&mut self, host: u32) {
        if let Some((number, ended_ps)) = self.schedule.end(self.now.as_ns() * PS_PER_NS, host) {
            let message = self.messages.get(number);
            let served_ps = message.started.as_ns() * PS_PER_NS + self.needs_ps(message.length);
            let waited_ns = ended_ps.saturating_sub(served_ps) / PS_PER_NS;
            let arrived = message.started + self.account.least_ns(&message) + waited_ns;
            self.messages.end(number);
            if self.config.exchange == Exchange::Echo && !message.is_answer() {
                let answer = self.messages.start(message.answer(arrived));
                self.queue.push(arrived, Event::Host(HostEvent::Answer { answer }));
            } else {
                self.account.delivered(&message, arrived.since(message.asked));
                let client = if message.is_answer() { message.to } else { message.from };
                if self.arrivals.ended(client) {
                    self.queue.push(arrived, Event::Host(HostEvent::Arrival { host: client }));
                }
            }
        }
        self.await_call_ends();
    }

    fn await_call_ends(&mut self) {
        while let Some((message, ends_ps)) = self.schedule.take_started() {
            let host = self.messages.get(message).to;
            let at = Time::from_ns(ends_ps.div_ceil(PS_PER_NS)).max(self.now);
            self.queue.push(at, Event::Host(HostEvent::Timeout { host }));
        }
    }

    fn sample(&mut self) {
        let is_measured = self.account.is_measuring(self.now);
        let mut idle = 0;
        for host in 0..self.config.hosts {
            let (is_idle, is_awaited) = self.schedule.state(host);
            idle += u64::from(is_idle);
            self.wasted += u64::from(is_measured && is_idle && is_awaited);
        }
        let samples = self.config.hosts as u64;
        self.account.sampled(self.now, samples, idle);
        if is_measured {
            (self.samples, self.idle) = (self.samples + samples, self.idle + idle);
        }
        if self.now < self.account.measured_until {
            self.queue.push(self.now + self.config.sample_ns, Event::Host(HostEvent::Sample));
        }
    }
}
