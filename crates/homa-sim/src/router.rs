//! TCP through a multi-core router: the experiment of the sparse connection patch.
//!
//! Two hosts send to each other through a router with a device for each host. There are several connections
//! in each direction, which always have data to send. Packets arrive on the router's core 0, and a policy
//! selects the core that forwards them. Only the router is modelled: hosts and links are a constant delay and
//! never the bottleneck. TCP is modelled only as far as it affects the router: segments in a window, an
//! acknowledgement for every second segment, and a halved window after a loss.

use homa_proto::Time;
use homa_steer::hash::Flow;
use homa_steer::{Cores, Packet, PolicyName};
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

use crate::cores::{Action, CoreCounts, CoresConfig, CoresError, Costs, Machine, Timer};
use crate::payload::{mix, random_numbers};
use crate::queue::EventQueue;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Costs of the router's work.
    pub costs: Costs,
    /// Cores of the router, at least 1. Packets arrive on the first core.
    pub cores: usize,
    /// Policy that selects the forwarding core from all cores but the first. With [`PolicyName::SameCore`],
    /// the first core does all work.
    pub policy: PolicyName,
    /// Connections in each direction, 1 to 10,000.
    pub flows: u32,
    /// Measured time in nanoseconds. The preceding warm-up takes a tenth of this time.
    pub duration_ns: u64,
    /// Seed of the run, which determines the ports and therefore the hashes.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouterReport {
    /// The policy's name.
    pub policy: String,
    /// Number of cores of the router.
    pub cores: usize,
    /// Connections in each direction.
    pub flows: u32,
    /// The seed of the run.
    pub seed: u64,
    /// Throughput of the first host's connections in Mbit/s.
    pub forward_mbps: f64,
    /// Throughput of the second host's connections in Mbit/s.
    pub back_mbps: f64,
    /// Counters of the cores.
    pub counts: CoreCounts,
}

/// Payload bytes of a segment on Ethernet with the usual timestamp option, and bytes of the segment's packet.
const SEGMENT: u32 = 1_448;
const DATA_BYTES: u32 = 1_500;
const ACK_BYTES: u32 = 52;
/// Window in segments: 64 KB, the maximum of TCP without window scaling.
const WINDOW: u32 = 45;
/// Initial window in segments (RFC 6928).
const FIRST_WINDOW: u32 = 10;
/// Delay from the router to a host, or back.
const WAY_NS: u64 = 50_000;
/// Time that a receiver waits for a second segment (Linux, TCP_DELACK_MIN).
const DELAYED_ACK_NS: u64 = 40_000_000;
/// Minimum time that a sender waits for an acknowledgement (Linux, TCP_RTO_MIN).
const TIMEOUT_NS: u64 = 200_000_000;
/// Time between the starts of two connections.
const START_NS: u64 = 1_000_000;
/// The warm-up is the measured time divided by this.
const WARM_UP: u64 = 10;
/// Random stream for the ports.
const PORTS: u64 = 0x70;
const TCP: u8 = 6;
const MAX_FLOWS: u32 = 10_000;

/// A packet of a connection, towards the receiver or back.
#[derive(Clone, Copy, Debug)]
struct Segment {
    flow: u32,
    /// Total number of acknowledged segments; `None` for data.
    acks: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Start(u32),
    AtRouter(Segment),
    AtHost(Segment),
    DelayedAck {
        flow: u32,
        received: u64,
    },
    /// The retransmission timeout of a connection.
    Timeout(u32),
    Cores(Timer),
}

#[derive(Debug)]
struct Connection {
    /// Hashes of the data and of the acknowledgements, which differ because the router translates addresses.
    hashes: [u32; 2],
    /// The device at which the data arrives. The acknowledgements arrive at the other device.
    device: u32,
    window: u32,
    /// Segments acknowledged since the last change of the window.
    grown: u32,
    in_flight: u32,
    /// Lost segments that the sender has not detected yet.
    lost: u32,
    /// Segments acknowledged since the window was last halved.
    since_halved: u32,
    received: u64,
    acked: u64,
    /// Number of segments received when the last acknowledgement was sent.
    answered: u64,
    /// Number of segments received when counting began.
    counted_from: u64,
}

impl RouterConfig {
    /// Returns the configuration of the patch's router: four cores, three of which forward, and a measured
    /// time of half a minute.
    #[must_use]
    pub fn new(policy: PolicyName, flows: u32, seed: u64) -> RouterConfig {
        RouterConfig {
            costs: Costs::mips_router(),
            cores: 4,
            policy,
            flows,
            duration_ns: 30_000_000_000,
            seed,
        }
    }

    fn machine(&self) -> Result<CoresConfig, CoresError> {
        let others = || Cores::new(1..self.cores as u16);
        let steered = if self.policy == PolicyName::SameCore { Cores::first(1)? } else { others()? };
        let config = CoresConfig {
            costs: self.costs.clone(),
            receive_cores: 1,
            steered: Some(steered),
            ..CoresConfig::x86(self.cores, self.policy)
        };
        config.check()?;
        Ok(config)
    }

    /// Checks that the run is possible.
    ///
    /// # Errors
    /// Names the setting that is out of its range.
    pub fn check(&self) -> Result<(), CoresError> {
        let wrong = |setting, range| Err(CoresError::Range { setting, range });
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return wrong("connections", "1 to 10000");
        }
        if !(1_000_000..=3_600_000_000_000).contains(&self.duration_ns) {
            return wrong("the duration", "a millisecond to an hour");
        }
        if u64::from(2 * self.flows) * START_NS > self.duration_ns / WARM_UP {
            return wrong(
                "the duration",
                "20 ms for each connection at least: they begin one after the other",
            );
        }
        if !(1..=homa_steer::MAX_CORES).contains(&self.cores) {
            return wrong("cores", "1 to 64");
        }
        if self.cores < 2 && self.policy != PolicyName::SameCore {
            return wrong("cores", "at least 2: packets arrive on the first, and others forward them");
        }
        self.machine().map(|_| ())
    }

    /// Runs the experiment.
    ///
    /// # Panics
    /// If [`RouterConfig::check`] fails.
    #[must_use]
    pub fn run(&self) -> RouterReport {
        let cores = self.machine().expect("the settings are checked before");
        Router::new(self, &cores).run(self)
    }
}

struct Router {
    now: Time,
    queue: EventQueue<Event>,
    machine: Machine,
    connections: Vec<Connection>,
    /// Packets in the router, by index.
    inside: Vec<Segment>,
    free: Vec<u32>,
}

impl Router {
    fn new(config: &RouterConfig, cores: &CoresConfig) -> Router {
        let mut random = random_numbers(config.seed, PORTS);
        let hash = |source: [u8; 4], destination: [u8; 4], ports| {
            let [source, destination] = [source, destination].map(|ip| Ipv4Addr::from(ip).into());
            Flow { source, destination, protocol: TCP, ports }.hash(mix(config.seed) as u32)
        };
        let mut connection = |number: u32| {
            let port: u16 = random.random_range(32_768..=60_999);
            let is_back = number % 2 == 1;
            let (device, from, to) =
                if is_back { (2, [10, 0, 2, 1], [10, 0, 2, 254]) } else { (1, [10, 0, 1, 1], [10, 0, 2, 1]) };
            // Packets from the second host are addressed to the router, which translates addresses.
            let (back_from, back_to) =
                if is_back { ([10, 0, 1, 1], [10, 0, 2, 1]) } else { ([10, 0, 2, 1], [10, 0, 2, 254]) };
            Connection {
                hashes: [hash(from, to, [port, 5_001]), hash(back_from, back_to, [5_001, port])],
                device,
                window: FIRST_WINDOW,
                grown: 0,
                in_flight: 0,
                lost: 0,
                since_halved: FIRST_WINDOW,
                received: 0,
                acked: 0,
                answered: 0,
                counted_from: 0,
            }
        };
        let mut router = Router {
            now: Time::ZERO,
            queue: EventQueue::new(),
            machine: Machine::new(cores, config.seed),
            connections: (0..2 * config.flows).map(&mut connection).collect(),
            inside: Vec::new(),
            free: Vec::new(),
        };
        for flow in 0..2 * config.flows {
            router.queue.push(Time::from_ns(u64::from(flow) * START_NS), Event::Start(flow));
        }
        router
    }

    fn run(mut self, config: &RouterConfig) -> RouterReport {
        let from = Time::from_ns(config.duration_ns / WARM_UP);
        let until = from + config.duration_ns;
        self.run_until(from);
        self.machine.count_from(from);
        self.connections.iter_mut().for_each(|connection| connection.counted_from = connection.received);
        self.run_until(until);
        let mbps = |device: u32| {
            let own = self.connections.iter().filter(|connection| connection.device == device);
            let segments: u64 = own.map(|connection| connection.received - connection.counted_from).sum();
            segments as f64 * f64::from(SEGMENT) * 8e3 / config.duration_ns as f64
        };
        RouterReport {
            policy: config.policy.to_string(),
            cores: config.cores,
            flows: config.flows,
            seed: config.seed,
            forward_mbps: mbps(1),
            back_mbps: mbps(2),
            counts: self.machine.counts(until),
        }
    }

    fn run_until(&mut self, until: Time) {
        while self.queue.next_at().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { return };
            self.now = at;
            self.handle(event);
            while let Some(action) = self.machine.action() {
                self.act(action);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start(flow) => self.send(flow),
            Event::AtRouter(segment) => self.arrive(segment),
            Event::AtHost(Segment { flow, acks: None }) => self.received(flow),
            Event::AtHost(Segment { flow, acks: Some(acks) }) => self.acked(flow, acks),
            Event::DelayedAck { flow, received } => {
                let connection = &self.connections[flow as usize];
                if connection.received == received && connection.answered < received {
                    self.answer(flow);
                }
            }
            Event::Timeout(flow) => {
                if self.connections[flow as usize].lost > 0 {
                    self.recover(flow);
                    self.send(flow);
                }
            }
            Event::Cores(timer) => self.machine.elapsed(self.now, timer),
        }
    }

    /// Sends the segments that a connection's window allows.
    fn send(&mut self, flow: u32) {
        let connection = &mut self.connections[flow as usize];
        while connection.in_flight < connection.window {
            connection.in_flight += 1;
            self.queue.push(self.now + WAY_NS, Event::AtRouter(Segment { flow, acks: None }));
        }
    }

    fn arrive(&mut self, segment: Segment) {
        let connection = &self.connections[segment.flow as usize];
        let is_ack = usize::from(segment.acks.is_some());
        let packet = Packet {
            arrival: self.machine.arrival_core(0),
            device: if is_ack == 1 { 3 - connection.device } else { connection.device },
            flow_hash: connection.hashes[is_ack],
            bytes: if is_ack == 1 { ACK_BYTES } else { DATA_BYTES },
            ..Packet::default()
        };
        let number = self.free.pop().unwrap_or(self.inside.len() as u32);
        if number as usize == self.inside.len() {
            self.inside.push(segment);
        }
        self.inside[number as usize] = segment;
        self.machine.arrive(self.now, number, packet);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::At(at, timer) => self.queue.push(at, Event::Cores(timer)),
            Action::Processed { packet, .. } => {
                self.free.push(packet);
                self.queue.push(self.now + WAY_NS, Event::AtHost(self.inside[packet as usize]));
            }
            Action::Dropped { packet } => {
                self.free.push(packet);
                let Segment { flow, acks } = self.inside[packet as usize];
                // Acknowledgements are cumulative, so only a loss of data matters.
                if acks.is_none() {
                    self.connections[flow as usize].lost += 1;
                    self.queue.push(self.now + TIMEOUT_NS, Event::Timeout(flow));
                }
            }
            Action::Begun(_) | Action::Done(_) => {}
        }
    }

    /// Makes a sender detect its lost segments, which it then retransmits like any other segments.
    fn recover(&mut self, flow: u32) {
        let connection = &mut self.connections[flow as usize];
        connection.in_flight -= std::mem::take(&mut connection.lost).min(connection.in_flight);
        // Halved at most once per window: the other lost segments of the window were sent before the
        // detection.
        if connection.since_halved >= connection.window {
            connection.window = (connection.window / 2).max(2);
            (connection.grown, connection.since_halved) = (0, 0);
        }
    }

    /// Handles data at its receiver.
    fn received(&mut self, flow: u32) {
        let connection = &mut self.connections[flow as usize];
        connection.received += 1;
        let received = connection.received;
        if received - connection.answered >= 2 {
            self.answer(flow);
        } else {
            self.queue.push(self.now + DELAYED_ACK_NS, Event::DelayedAck { flow, received });
        }
    }

    fn answer(&mut self, flow: u32) {
        let connection = &mut self.connections[flow as usize];
        connection.answered = connection.received;
        let acks = Some(connection.received);
        self.queue.push(self.now + WAY_NS, Event::AtRouter(Segment { flow, acks }));
    }

    /// Handles an acknowledgement at the sender of the data.
    fn acked(&mut self, flow: u32, acks: u64) {
        let connection = &mut self.connections[flow as usize];
        let new = acks.saturating_sub(connection.acked) as u32;
        connection.acked = connection.acked.max(acks);
        connection.in_flight -= new.min(connection.in_flight);
        connection.grown += new;
        connection.since_halved = connection.since_halved.saturating_add(new);
        let has_lost = connection.lost > 0;
        if connection.grown >= connection.window && connection.window < WINDOW {
            (connection.window, connection.grown) = (connection.window + 1, 0);
        }
        if has_lost {
            self.recover(flow);
        }
        self.send(flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(config: &RouterConfig) -> f64 {
        let report = config.run();
        report.forward_mbps + report.back_mbps
    }

    fn short(policy: PolicyName, flows: u32) -> RouterConfig {
        RouterConfig { duration_ns: 2_000_000_000, ..RouterConfig::new(policy, flows, 3) }
    }

    /// One core receives and forwards a packet in 262.3 us, and two of three packets are data.
    #[test]
    fn one_core_forwards_what_its_costs_let_it() {
        let packets_per_sec = 1e9 / (83_100.0 + 179_200.0);
        let bound = packets_per_sec * 2.0 / 3.0 * 1_448.0 * 8.0 / 1e6;
        let mbps = mbps(&short(PolicyName::SameCore, 1));
        assert!((0.97 * bound..1.01 * bound).contains(&mbps), "{mbps} of {bound}");
    }

    #[test]
    fn a_run_is_its_seed() {
        let config = short(PolicyName::Sparse, 4);
        assert_eq!(config.run(), config.run());
        assert_ne!(config.run().counts, RouterConfig { seed: 4, ..config.clone() }.run().counts);
    }

    #[test]
    fn more_than_fits_is_lost_and_sent_again() {
        let report = short(PolicyName::RssHash, 64).run();
        // Windows shrink until nearly all packets fit into the queues.
        let dropped = report.counts.dropped as f64 / report.counts.packets as f64;
        assert!(dropped > 0.0 && dropped < 0.1, "{report:?}");
        assert!(report.forward_mbps > 10.0 && report.back_mbps > 10.0, "{report:?}");
    }

    #[test]
    fn what_cannot_run_is_named() {
        let said = |config: RouterConfig| config.check().unwrap_err().to_string();
        assert!(said(short(PolicyName::Sparse, 0)).contains("connections"));
        assert!(said(RouterConfig { cores: 1, ..short(PolicyName::Sparse, 1) }).contains("at least 2"));
        assert!(said(RouterConfig { duration_ns: 0, ..short(PolicyName::Sparse, 1) }).contains("duration"));
        assert_eq!(RouterConfig { cores: 1, ..short(PolicyName::SameCore, 1) }.check(), Ok(()));
    }
}
