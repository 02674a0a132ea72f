//! A run of a cluster.

use homa_proto::Time;

use super::account::Account;
use super::config::ClusterConfig;
use super::event::HostEvent;
use super::messages::{Message, Messages};
use super::on_cores::OnCores;
use super::report::{ClusterReport, Progress};
use super::sampling::Samples;
use super::traffic::{Arrivals, Exchange};
use crate::cores::JobKind;
use crate::fabric::{Event, Fabric, FabricConfig, FabricStats, World};
use crate::fault::FaultProfile;
use crate::switches::SwitchTraces;
use crate::transport::interface::{Ctx, Transport};

pub(super) struct ClusterWorld<T>(std::marker::PhantomData<T>);

impl<T: Transport> World for ClusterWorld<T> {
    type Body = T::Body;
    type HostEvent = HostEvent;
    type Shared = Messages;
}

/// A host's transport and its timer.
pub(super) struct Host<T> {
    pub(super) transport: T,
    /// Time of the earliest timeout event in the queue.
    pub(super) armed: Option<Time>,
}

/// A run of a cluster.
pub struct Cluster<T: Transport> {
    pub(super) config: ClusterConfig,
    pub(super) fabric: Fabric<ClusterWorld<T>>,
    pub(super) hosts: Vec<Host<T>>,
    pub(super) on_cores: Option<OnCores>,
    pub(super) arrivals: Arrivals,
    pub(super) samples: Samples,
    pub(super) account: Account,
    /// Number of initial exchanges started; `None`: all of them.
    pub(super) acquainted: Option<u64>,
}

/// Number of initial exchanges started between two progress reports.
const ACQUAINT_STEP: u64 = 20_000;

impl<T: Transport> Cluster<T> {
    /// Makes a run at time 0. Every host's transport has the settings `transport`.
    ///
    /// # Panics
    /// If there are fewer than 2 hosts, or if [`ClusterConfig::validate`] fails in another way that makes a
    /// run impossible.
    pub fn new(config: ClusterConfig, transport: &T::Config) -> Cluster<T> {
        assert!(config.hosts >= 2, "a message needs two hosts");
        assert!(
            config.cores.is_none() || T::RUNS_RPCS && config.exchange == Exchange::Echo,
            "cores have work with RPCs alone"
        );
        let fabric = FabricConfig {
            seed: config.seed,
            hosts: config.hosts,
            topology: config.topology.with_spread(T::spread()),
            link: config.link,
            switch: T::switch(transport, &config),
            nic: config.nic,
            nic_queue_bytes: config.nic_queue_bytes,
            send_delay_ns: config.send_delay_ns,
            receive_delay_ns: config.receive_delay_ns,
            faults: FaultProfile { loss: config.loss, ..FaultProfile::default() },
            capture: false,
        };
        let mut fabric = Fabric::new(&fabric, Messages::default());
        if config.trace_records > 0 {
            let traces = SwitchTraces::new(&fabric.routes, config.trace_records);
            fabric.switch_traces = Some(Box::new(traces));
        }
        let hosts = (0..config.hosts as u32)
            .map(|host| Host { transport: T::new(transport, host, &config), armed: None })
            .collect();
        let mut cluster = Cluster {
            arrivals: Arrivals::new(&config),
            samples: Samples::new(&config),
            account: Account::new(&config, T::NAME),
            fabric,
            hosts,
            on_cores: config.cores.as_deref().map(|cores| OnCores::new(cores, &config)),
            acquainted: Some(0),
            config,
        };
        cluster.arrivals.start(&mut cluster.fabric.queue);
        cluster
    }

    /// Returns the number of initial exchanges of a run, one for each pair and direction.
    fn initial_exchanges(&self) -> u64 {
        let hosts = self.hosts.len() as u64;
        if self.config.acquaint { hosts * (hosts - 1) } else { 0 }
    }

    /// Starts some of the initial exchanges, in an order in which no host receives two at a time. Their
    /// number grows with the square of the number of hosts, and they may take minutes. They therefore start
    /// in batches, with progress reports in between.
    fn begin_initial_exchanges(&mut self, begun: u64) {
        let hosts = self.hosts.len() as u64;
        let all = self.initial_exchanges();
        let until = all.min(begun + ACQUAINT_STEP);
        for number in begun..until {
            let (step, from) = (1 + number / hosts, number % hosts);
            self.start_one(from as u32, ((from + step) % hosts) as u32, 1, false);
        }
        self.acquainted = (until < all).then_some(until);
        if self.acquainted.is_none() {
            self.perform_core_actions();
            self.fabric.queue.push(self.first_sample(), Event::Host(HostEvent::Sample));
        }
    }

    /// Returns the time of the first sample, chosen so that one sample is at the beginning of the measured
    /// time.
    fn first_sample(&self) -> Time {
        Time::from_ns(self.config.warm_up_ns % self.config.sample_ns)
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Time {
        self.fabric.now
    }

    /// Returns the counters of the network.
    pub fn stats(&self) -> FabricStats {
        self.fabric.stats
    }

    /// Returns the progress of the run.
    pub fn progress(&self) -> Progress {
        Progress {
            acquainted: self
                .acquainted
                .map_or(1.0, |begun| begun as f64 / self.initial_exchanges().max(1) as f64),
            share: self.account.progress(self.fabric.now),
            now: self.fabric.now,
            events: self.fabric.stats.events,
        }
    }

    /// Advances by at most `ns`. Returns false if the run is over. During the initial exchanges no time
    /// passes.
    pub fn advance(&mut self, ns: u64) -> bool {
        if let Some(begun) = self.acquainted {
            self.begin_initial_exchanges(begun);
            return true;
        }
        let until = self.fabric.now + ns;
        let limit = self.account.limit();
        while let Some(at) = self.fabric.queue.next_at() {
            if at > until.min(limit) {
                break;
            }
            if self.account.is_over(at) {
                return false;
            }
            self.step();
        }
        self.fabric.now = self.fabric.now.max(until.min(limit));
        self.fabric.now < limit && !self.account.is_over(self.fabric.now)
    }

    /// Runs to the end.
    pub fn run(mut self) -> ClusterReport {
        while self.advance(1_000_000) {}
        self.finish()
    }

    /// Returns the results so far.
    pub fn finish(self) -> ClusterReport {
        let mut report = self.account.finish(&self.config);
        report.network(self.fabric.stats, self.fabric.faults.counts.lost);
        self.samples.report(&mut report, &self.fabric);
        report.cores = self.on_cores.map(|on_cores| on_cores.counts(self.fabric.now));
        report.switch_traces = self.fabric.switch_traces.as_ref().map_or_else(Vec::new, |all| all.dumps());
        for mut host in self.hosts {
            report.traces.extend(host.transport.trace_dump());
            host.transport.counters(&mut |name, count| {
                *report.transport_counts.entry(name.to_owned()).or_default() += count;
            });
        }
        report
    }

    fn step(&mut self) {
        let Some((at, event)) = self.fabric.queue.pop() else { return };
        self.fabric.now = at;
        self.fabric.stats.events += 1;
        match event {
            Event::PortFree { port } => {
                self.fabric.port_free(port);
                if (port as usize) < self.hosts.len() {
                    self.feed_card(port);
                }
            }
            Event::Forward { packet, port } => self.fabric.enqueue(packet, port),
            Event::Deliver { packet } => self.deliver(packet),
            Event::Host(HostEvent::Timeout { host }) => self.timeout(host),
            Event::Host(HostEvent::Arrival { host }) => self.arrival(host),
            Event::Host(HostEvent::Round) => self.round(),
            Event::Host(HostEvent::Answer { answer }) => self.send(answer),
            Event::Host(HostEvent::Cores { host, timer }) => {
                if let Some(on_cores) = &mut self.on_cores {
                    on_cores.elapsed(at, host, timer);
                }
            }
            Event::Host(HostEvent::Sample) => self.sample(),
        }
        self.perform_core_actions();
    }

    fn sample(&mut self) {
        let now = self.fabric.now;
        if let Some(on_cores) = self.on_cores.as_mut().filter(|_| self.account.is_measuring(now)) {
            on_cores.sample(now, self.account.measured_until);
        }
        let (fabric, hosts) = (&self.fabric, &self.hosts);
        let (looks, idle) = self.samples.take(fabric, |host| hosts[host].transport.withholds(now));
        self.account.sampled(now, looks, idle);
        if now < self.account.measured_until {
            self.fabric.queue.push(now + self.config.sample_ns, Event::Host(HostEvent::Sample));
        }
    }

    fn arrival(&mut self, host: u32) {
        let (to, length, next) = self.arrivals.next(host);
        if !self.arrivals.is_closed() {
            self.fabric.queue.push(self.fabric.now + next, Event::Host(HostEvent::Arrival { host }));
        }
        self.start(host, to, length);
    }

    fn round(&mut self) {
        let round = self.arrivals.round(&mut self.fabric.queue, self.fabric.now);
        for (from, to, length) in round {
            self.start(from, to, length);
        }
    }

    fn start(&mut self, from: u32, to: u32, length: u32) {
        let is_measured = self.account.started(self.fabric.now, length);
        self.start_one(from, to, length, is_measured);
    }

    fn start_one(&mut self, from: u32, to: u32, length: u32, is_measured: bool) {
        let started = self.fabric.now;
        self.account.begins(started, length);
        self.arrivals.record_start(from);
        let message = self.fabric.shared.start(Message::new(from, to, length, started, is_measured));
        match &mut self.on_cores {
            Some(on_cores) => {
                on_cores.submit(started, JobKind::Send, message, self.fabric.shared.get_mut(message));
            }
            None => self.send(message),
        }
    }

    /// Hands a message to its sender's transport.
    pub(super) fn send(&mut self, message: u32) {
        let from = self.fabric.shared.get(message).from;
        self.with_host(from, |transport, ctx| transport.send(ctx, message));
    }

    fn deliver(&mut self, number: u32) {
        self.fabric.stats.delivered += 1;
        let packet = self.fabric.packets.get(number);
        self.samples.delivered(&packet.info, self.fabric.now);
        match &mut self.on_cores {
            Some(on_cores) => {
                let (ports, homa) = T::steered(packet);
                on_cores.arrive(self.fabric.now, number, &packet.info, ports, homa);
            }
            None => self.receive(number),
        }
    }

    /// Passes a packet to the transport of its host.
    pub(super) fn receive(&mut self, number: u32) {
        let packet = self.fabric.packets.get(number);
        let host = packet.info.to;
        let mut ctx = Ctx { now: self.fabric.now, host, messages: &mut self.fabric.shared };
        self.hosts[host as usize].transport.receive(&mut ctx, packet);
        self.fabric.packets.release(number);
        self.follow(host);
    }

    fn timeout(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        if state.armed != Some(self.fabric.now) {
            return; // An earlier timeout replaced it.
        }
        state.armed = None;
        self.with_host(host, T::timeout);
    }

    /// Lets a host's transport act, and then handles its deliveries, packets and timer.
    pub(super) fn with_host(&mut self, host: u32, act: impl FnOnce(&mut T, &mut Ctx<'_>)) {
        let mut ctx = Ctx { now: self.fabric.now, host, messages: &mut self.fabric.shared };
        act(&mut self.hosts[host as usize].transport, &mut ctx);
        self.follow(host);
    }

    fn follow(&mut self, host: u32) {
        self.feed_card(host);
        while let Some(message) = self.fabric.shared.take_delivered() {
            match &mut self.on_cores {
                Some(on_cores) => {
                    on_cores.delivered(self.fabric.now, message, self.fabric.shared.get_mut(message));
                }
                None => self.delivered(message),
            }
        }
    }

    /// Passes packets to the card of a host until it accepts no more.
    fn feed_card(&mut self, host: u32) {
        let now = self.fabric.now;
        while self.fabric.nic_has_room(host) {
            let number = self.fabric.packets.take();
            let packet = self.fabric.packets.get_mut(number);
            let mut ctx = Ctx { now, host, messages: &mut self.fabric.shared };
            let transport = &mut self.hosts[host as usize].transport;
            let Some(info) = transport.transmit(&mut ctx, &mut packet.body) else {
                self.fabric.packets.release(number);
                break;
            };
            packet.info = info;
            if let Some(on_cores) = &mut self.on_cores {
                let (_, homa) = T::steered(packet);
                on_cores.sent(now, host, homa);
            }
            self.fabric.enqueue(number, host);
        }
        self.arm(host);
    }

    fn arm(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        let Some(at) = state.transport.next_timeout() else { return };
        let at = at.max(self.fabric.now);
        if at != Time::NEVER && state.armed.is_none_or(|armed| at < armed) {
            state.armed = Some(at);
            self.fabric.queue.push(at, Event::Host(HostEvent::Timeout { host }));
        }
    }

    /// Stops all traces because of this message, so that they keep its history.
    fn freeze_traces(&mut self, message: &Message) {
        let now = self.fabric.now;
        for (number, host) in (0..).zip(&mut self.hosts) {
            host.transport.freeze_trace(now, (number == message.from).then_some(message.token));
        }
        if let Some(traces) = &mut self.fabric.switch_traces {
            traces.freeze(now);
        }
    }

    /// Handles a message that is complete at its receiver or, if the transport runs RPCs, an RPC that has
    /// ended.
    pub(super) fn delivered(&mut self, number: u32) {
        let now = self.fabric.now;
        let message = self.fabric.shared.get(number);
        let is_request = self.config.exchange == Exchange::Echo && !T::RUNS_RPCS && !message.is_answer();
        if is_request {
            let answer = self.fabric.shared.start(message.answer(now));
            self.fabric.queue.push(now, Event::Host(HostEvent::Answer { answer }));
        } else {
            let took_ns = now.since(message.asked);
            self.account.delivered(&message, took_ns);
            if message.is_measured && self.config.trace_slower_than_ns.is_some_and(|bound| took_ns >= bound) {
                self.freeze_traces(&message);
            }
            let client = if message.is_answer() { message.to } else { message.from };
            if self.arrivals.ended(client) {
                self.fabric.queue.push(now, Event::Host(HostEvent::Arrival { host: client }));
            }
        }
        let mut ctx = Ctx { now, host: message.from, messages: &mut self.fabric.shared };
        self.hosts[message.from as usize].transport.delivered(&mut ctx, number);
        self.fabric.shared.end(number);
    }
}

impl<T: Transport> std::fmt::Debug for Cluster<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("now", &self.fabric.now).finish_non_exhaustive()
    }
}
