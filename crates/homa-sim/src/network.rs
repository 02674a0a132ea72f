//! Hosts connected by links.

use std::collections::HashMap;
use std::rc::Rc;

use homa_proto::{Config, RpcKey, Time};

use crate::app::{App, HostCtx};
use crate::capture::{CapturedPacket, Fate};
use crate::driver_queue::{Drain, DriverQueue};
use crate::fabric::{Event, Fabric, FabricConfig, FabricStats, MAX_HOSTS, SwitchConfig, World};
use crate::fault::{FaultCounts, FaultProfile, PathLimit};
use crate::host::{Host, HostSetup};
use crate::link::{Discipline, LinkConfig};
use crate::packet::{Packet, PacketInfo};
use crate::payload::{PayloadMode, mix};
use crate::topology::Topology;

/// A network and its hosts.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Seed of the run.
    pub seed: u64,
    /// Number of hosts: 2 if they are back to back, 1 to 2^24 at a switch.
    pub hosts: usize,
    /// Topology of the network.
    pub topology: Topology,
    /// The links of the hosts, in both directions.
    pub link: LinkConfig,
    /// The switches.
    pub switch: SwitchConfig,
    /// Whether the hosts' cards send by priority. Otherwise they send in FIFO order, as most cards do.
    pub nic_priorities: bool,
    /// Length of the card's queue, in bytes, at which a host's driver stops accepting packets from its
    /// endpoint.
    pub nic_queue_bytes: u64,
    /// Delay from a packet's arrival at a host to its processing.
    pub receive_delay_ns: u64,
    /// Time after a packet during which further packets join its burst; 0: each packet is a burst.
    pub burst_ns: u64,
    /// Faults of the network.
    pub faults: FaultProfile,
    /// Whether messages carry payload.
    pub payload: PayloadMode,
    /// Maximum length of the card's receive queue, in packets, while the host is stalled. Further packets are
    /// dropped.
    pub receive_queue_packets: usize,
    /// The hosts' protocol settings. Each host gets its own seed and, unless `incarnation` is 0, its own
    /// incarnation.
    pub protocol: Config,
    /// The protocol settings of each host; empty if `protocol` applies to all hosts.
    pub host_protocols: Vec<Config>,
    /// Number of steps of a host between calls of [`homa_proto::Endpoint::check`]; 0: no calls.
    pub check_every: u64,
    /// Number of records in each host's trace; 0: no traces.
    pub trace_records: usize,
    /// Whether packets are captured for [`Network::captured`].
    pub capture: bool,
}

impl NetworkConfig {
    /// Returns a network without faults at 25 Gbit/s, the rate for which the protocol's defaults were tuned.
    /// Two hosts are back to back; more are connected to one switch.
    pub fn new(seed: u64, hosts: usize) -> NetworkConfig {
        NetworkConfig {
            seed,
            hosts,
            topology: if hosts == 2 { Topology::BackToBack } else { Topology::Switch { delay_ns: 250 } },
            link: LinkConfig::with_rate(25_000_000_000),
            switch: SwitchConfig::default(),
            nic_priorities: false,
            // Three full packets keep the link busy. More would only add a queue without priorities.
            nic_queue_bytes: 4_500,
            // Half of a host's turn-around time in published simulations of Homa.
            receive_delay_ns: 500,
            burst_ns: 0,
            faults: FaultProfile::default(),
            payload: PayloadMode::Real,
            // Far more than any run without stalls needs.
            receive_queue_packets: 1 << 20,
            host_protocols: Vec::new(),
            protocol: Config { incarnation: 1, link_mbps: Some(25_000), ..Config::default() },
            check_every: 0,
            trace_records: 0,
            capture: false,
        }
    }
}

/// The type of hosts that run the deployed protocol.
pub(crate) struct Deployed;

impl World for Deployed {
    type Body = Vec<u8>;
    type HostEvent = HostEvent;
    type Shared = Requests;
}

/// Lengths of the outstanding requests, by client host and ID. Servers check received lengths against these.
pub(crate) type Requests = HashMap<(u32, u64), u32>;

/// An event at a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostEvent {
    /// The host processes the packets that its card has received.
    Receive { host: u32 },
    /// The host's stall ends.
    Wake { host: u32 },
    /// The endpoint's timeout is due.
    Timeout { host: u32, life: u32 },
    /// A timer of the host's application expires.
    AppTimer { host: u32, life: u32, token: u64 },
    /// The server's application has computed a response.
    Reply { host: u32, life: u32, rpc: RpcKey, length: u32 },
}

/// Hosts connected by links, on virtual time.
pub struct Network<A> {
    config: NetworkConfig,
    hosts: Vec<Host<A>>,
    fabric: Fabric<Deployed>,
    /// Scratch memory for one burst of packets.
    burst: Vec<(u32, Packet<Vec<u8>>)>,
}

impl<A: App> Network<A> {
    /// Makes a network at time 0 whose hosts have started. `app` creates the application of each host.
    ///
    /// # Panics
    /// If the number of hosts does not fit the topology, or the protocol's configuration is inconsistent.
    pub fn new(config: NetworkConfig, mut app: impl FnMut(usize) -> A) -> Network<A> {
        assert!((1..=MAX_HOSTS).contains(&config.hosts), "hosts: 1 to {MAX_HOSTS}, not {}", config.hosts);
        assert!(config.topology != Topology::BackToBack || config.hosts == 2, "back to back are two hosts");
        let mut fabric = Fabric::new(&fabric_config(&config), Requests::new());
        let kernels = (0..config.hosts).map(|host| protocol_of(&config, host).incarnation == 0).collect();
        let kernels: Rc<[bool]> = kernels;
        let setup = |index| HostSetup {
            seed: config.seed,
            index,
            payload: config.payload,
            check_every: config.check_every,
            trace_records: config.trace_records,
            kernels: kernels.clone(),
            oracle: config.faults.corruption == 0.0,
        };
        let mut hosts: Vec<Host<A>> =
            (0..config.hosts).map(|index| Host::new(&setup(index as u32), app(index))).collect();
        for host in &mut hosts {
            let protocol = host_config(&config, host.state.index, 0, None);
            host.start(&mut fabric, protocol);
        }
        Network { config, hosts, fabric, burst: Vec::new() }
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Time {
        self.fabric.now
    }

    /// Returns the hosts.
    pub fn hosts(&self) -> &[Host<A>] {
        &self.hosts
    }

    /// Returns one host.
    pub fn host(&self, index: usize) -> &Host<A> {
        &self.hosts[index]
    }

    /// Returns one host for modification.
    pub fn host_mut(&mut self, index: usize) -> &mut Host<A> {
        &mut self.hosts[index]
    }

    /// Runs `act` on the application of a host; `None`: the host is down.
    pub fn act<R>(&mut self, host: usize, act: impl FnOnce(&mut A, &mut HostCtx<'_>) -> R) -> Option<R> {
        self.hosts[host].act(&mut self.fabric, act)
    }

    /// Advances to `until`, inclusive.
    pub fn run_until(&mut self, until: Time) {
        while self.fabric.queue.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.fabric.now = self.fabric.now.max(until);
    }

    /// Advances by `ns`.
    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.fabric.now + ns);
    }

    /// Advances until `done`, which is called after each event, returns true. Returns false if `limit` comes
    /// first or there are no more events.
    pub fn run_until_done(&mut self, limit: Time, mut done: impl FnMut(&Network<A>) -> bool) -> bool {
        while !done(self) {
            if self.fabric.queue.next_at().is_none_or(|at| at > limit) {
                return false;
            }
            self.step();
        }
        true
    }

    /// Advances until no packet is in flight and every host is idle. Returns false if `limit` comes first.
    pub fn run_until_idle(&mut self, limit: Time) -> bool {
        self.run_until_done(limit, Network::is_idle)
    }

    /// Returns whether no packet is in flight and every host is idle.
    pub fn is_idle(&self) -> bool {
        self.fabric.packets.in_flight() == 0 && self.hosts.iter().all(Host::is_idle)
    }

    /// Handles the next event. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.fabric.queue.pop() else { return false };
        debug_assert!(at >= self.fabric.now, "time goes back");
        self.fabric.now = at;
        self.fabric.stats.events += 1;
        match event {
            Event::PortFree { port } => self.port_free(port),
            Event::Forward { packet, port } => self.fabric.enqueue(packet, port),
            Event::Deliver { packet } => self.deliver(packet),
            Event::Host(event) => self.host_event(event),
        }
        true
    }

    fn host_event(&mut self, event: HostEvent) {
        match event {
            HostEvent::Receive { host } => self.receive(host as usize),
            HostEvent::Timeout { host, .. }
            | HostEvent::AppTimer { host, .. }
            | HostEvent::Reply { host, .. }
                if self.stalled(host) =>
            {
                self.defer(host as usize, event);
            }
            HostEvent::Timeout { host, life } => {
                if let Some(host) = self.host_of_life(host, life) {
                    self.hosts[host].timeout(&mut self.fabric);
                }
            }
            HostEvent::AppTimer { host, life, token } => {
                if let Some(host) = self.host_of_life(host, life) {
                    self.hosts[host].act(&mut self.fabric, |app, host| app.on_timer(host, token));
                }
            }
            HostEvent::Wake { host } => self.wake(host as usize),
            HostEvent::Reply { host, life, rpc, length } => self.reply(host, life, rpc, length),
        }
    }

    fn stalled(&self, host: u32) -> bool {
        self.hosts[host as usize].state.stalled_until > self.fabric.now
    }

    /// Defers an event to the end of a host's stall.
    fn defer(&mut self, host: usize, event: HostEvent) {
        let state = &mut self.hosts[host].state;
        if let HostEvent::Timeout { life, .. } = event
            && (state.life != life || !state.rearm(self.fabric.now))
        {
            return; // The timeout belongs to an earlier incarnation, or was replaced by an earlier timeout.
        }
        self.fabric.queue.push(state.stalled_until, Event::Host(event));
    }

    fn host_of_life(&self, host: u32, life: u32) -> Option<usize> {
        (self.hosts[host as usize].state.life == life).then_some(host as usize)
    }

    fn reply(&mut self, host: u32, life: u32, rpc: RpcKey, length: u32) {
        if let Some(host) = self.host_of_life(host, life) {
            self.hosts[host].reply(&mut self.fabric, rpc, length);
        }
    }

    fn port_free(&mut self, port: u32) {
        self.fabric.port_free(port);
        if let Some(host) = self.hosts.get_mut(port as usize)
            && host.state.nic_blocked
            && host.state.stalled_until <= self.fabric.now
        {
            host.drive(&mut self.fabric);
        }
    }

    fn deliver(&mut self, number: u32) {
        let to = self.fabric.packets.get(number).info.to as usize;
        if self.hosts[to].endpoint.is_none() {
            self.fabric.stats.host_down += 1;
            return self.fabric.drop_packet(number, Fate::HostDown);
        }
        if self.hosts[to].state.waiting.len() >= self.config.receive_queue_packets {
            self.fabric.stats.overflowed += 1;
            return self.fabric.drop_packet(number, Fate::Overflow);
        }
        self.fabric.stats.delivered += 1;
        self.fabric.capture.record(self.fabric.now, self.fabric.packets.get(number), Fate::Delivered);
        if self.stalled(to as u32) {
            return self.hosts[to].state.waiting.push(number);
        }
        let waiting = &mut self.hosts[to].state.waiting;
        waiting.push(number);
        match (self.config.burst_ns, waiting.len()) {
            (0, _) => self.receive(to),
            (burst_ns, 1) => {
                self.fabric
                    .queue
                    .push(self.fabric.now + burst_ns, Event::Host(HostEvent::Receive { host: to as u32 }));
            }
            _ => {}
        }
    }

    /// Passes the packets in a host's card to the host, and returns their buffers to the network.
    fn receive(&mut self, host: usize) {
        if self.stalled(host as u32) {
            return; // Packets in the card are received when the stall ends.
        }
        let host = &mut self.hosts[host];
        let packets = &mut self.fabric.packets;
        self.burst.extend(host.state.waiting.drain(..).map(|number| (number, packets.lend(number))));
        host.receive(&mut self.fabric, &self.burst);
        for (number, packet) in self.burst.drain(..) {
            self.fabric.packets.give_back(number, packet);
        }
    }

    /// Crashes a host: it loses its memory and sends nothing until [`Network::restart`]. Packets already sent
    /// still arrive.
    pub fn crash(&mut self, host: usize) {
        self.hosts[host].crash(&mut self.fabric);
    }

    /// Restarts a crashed host with a newer incarnation and another seed.
    pub fn restart(&mut self, host: usize) {
        self.start(host, None);
    }

    /// Restarts a crashed host with `incarnation` from its wall clock, which may be older than the previous
    /// incarnation. A host that shows no incarnation still shows none.
    pub fn restart_as(&mut self, host: usize, incarnation: u64) {
        self.start(host, Some(incarnation));
    }

    fn start(&mut self, host: usize, incarnation: Option<u64>) {
        let state = &self.hosts[host].state;
        let protocol = host_config(&self.config, state.index, state.life, incarnation);
        self.hosts[host].start(&mut self.fabric, protocol);
    }

    /// Stalls a host for `ns` while its card collects packets. Afterwards the host receives all packets in
    /// one burst, and handles the due timers before or after them. Does nothing if the host is down or
    /// already stalled.
    pub fn stall(&mut self, host: usize, ns: u64, timers_first: bool) {
        let now = self.fabric.now;
        let state = &mut self.hosts[host].state;
        if state.stalled_until > now || !state.waiting.is_empty() || self.hosts[host].endpoint.is_none() {
            return;
        }
        let until = now + ns;
        self.hosts[host].state.stalled_until = until;
        let at = if timers_first { until + 1 } else { until };
        self.fabric.queue.push(at, Event::Host(HostEvent::Wake { host: host as u32 }));
    }

    /// Ends a host's stall.
    fn wake(&mut self, host: usize) {
        self.receive(host);
        if self.hosts[host].state.stalled_until <= self.fabric.now {
            self.hosts[host].drive(&mut self.fabric);
        }
    }

    /// Steps the host's clock by `by_ns`, backwards if it is negative. The wall clock is set by
    /// [`Network::restart_as`] instead.
    pub fn step_clock(&mut self, host: usize, by_ns: i64) {
        self.hosts[host].state.clock.step(by_ns);
        self.hosts[host].arm(&mut self.fabric);
    }

    /// Blocks the path from one host to another, or unblocks it.
    pub fn set_blocked(&mut self, from: usize, to: usize, blocked: bool) {
        let way = (from as u32, to as u32);
        if blocked {
            self.fabric.blocked.insert(way);
        } else {
            self.fabric.blocked.remove(&way);
        }
    }

    /// Limits the size of packets from one host to another; `None`: only the links' limit.
    pub fn set_path_limit(&mut self, from: usize, to: usize, limit: Option<PathLimit>) {
        let way = (from as u32, to as u32);
        match limit {
            Some(limit) => drop(self.fabric.path_limits.insert(way, limit)),
            None => drop(self.fabric.path_limits.remove(&way)),
        }
    }

    /// Returns the packet size limit from one host to another, if any.
    pub fn path_limit(&self, from: usize, to: usize) -> Option<PathLimit> {
        self.fabric.path_limits.get(&(from as u32, to as u32)).copied()
    }

    /// Gives the driver of `from` a queue, with this drain rate, for packets to `to`; `None` removes that
    /// queue. Packets in the old queue are sent.
    pub fn set_driver_queue(&mut self, from: usize, to: usize, drain: Option<Drain>) {
        let way = (from as u32, to as u32);
        let kept = self.fabric.driver_queues.get_mut(&way).map_or_else(Vec::new, DriverQueue::take_kept);
        match drain {
            Some(drain) => drop(self.fabric.driver_queues.insert(way, DriverQueue::new(drain))),
            None => drop(self.fabric.driver_queues.remove(&way)),
        }
        kept.into_iter().for_each(|packet| self.fabric.enqueue(packet, way.0));
    }

    /// Sets the faults that apply from now on.
    pub fn set_faults(&mut self, faults: FaultProfile) {
        self.fabric.faults.set_profile(faults);
    }

    /// Sends a packet on the uplink of `from` as if that host had sent it. Used for peers that are not Homa
    /// endpoints of this crate.
    pub fn inject(&mut self, from: usize, to: usize, priority: u8, bytes: Vec<u8>) {
        self.inject_as(from, from, to, priority, bytes);
    }

    /// Sends a packet on the uplink of `via` with the source address of `from`, which need not be a host: a
    /// forged packet.
    pub fn inject_as(&mut self, via: usize, from: usize, to: usize, priority: u8, bytes: Vec<u8>) {
        let (from, to, wire_len) = (from as u32, to as u32, bytes.len() as u32);
        let number = self.fabric.packets.take();
        let info = PacketInfo { from, to, wire_len, priority, flow: from ^ to, ..PacketInfo::default() };
        *self.fabric.packets.get_mut(number) = Packet { info, body: bytes };
        self.fabric.enqueue(number, via as u32);
    }

    /// Returns the number of packets in queues or on links.
    pub fn packets_under_way(&self) -> usize {
        self.fabric.packets.in_flight()
    }

    /// Starts or stops capturing packets, and discards those captured so far.
    pub fn set_capture(&mut self, on: bool) {
        self.fabric.capture.on = on;
        self.fabric.capture.packets.clear();
    }

    /// Returns the packets captured so far, if [`NetworkConfig::capture`] is set.
    pub fn captured(&self) -> &[CapturedPacket] {
        &self.fabric.capture.packets
    }

    /// Returns the counters of the network.
    pub fn stats(&self) -> FabricStats {
        self.fabric.stats
    }

    /// Returns the counters of faults.
    pub fn fault_counts(&self) -> FaultCounts {
        self.fabric.faults.counts
    }

    /// Returns the maximum length, in bytes, of the queue at the switch port to this host; 0 if hosts are
    /// back to back.
    pub fn max_queued_bytes(&self, host: usize) -> u64 {
        self.fabric.ports.get(self.hosts.len() + host).map_or(0, |port| port.max_queued_bytes)
    }
}

/// Returns the settings of the network without its hosts.
fn fabric_config(config: &NetworkConfig) -> FabricConfig {
    FabricConfig {
        seed: config.seed,
        hosts: config.hosts,
        topology: config.topology,
        link: config.link,
        switch: config.switch,
        nic: if config.nic_priorities { Discipline::Strict } else { Discipline::Fifo },
        nic_queue_bytes: config.nic_queue_bytes,
        send_delay_ns: 0,
        receive_delay_ns: config.receive_delay_ns,
        faults: config.faults.clone(),
        capture: config.capture,
    }
}

/// Returns the protocol settings of a host, before its seed and incarnation are set.
fn protocol_of(config: &NetworkConfig, host: usize) -> &Config {
    config.host_protocols.get(host).unwrap_or(&config.protocol)
}

/// Returns the protocol settings of one incarnation of a host. If `incarnation` is `None`, a default
/// incarnation number is used.
fn host_config(config: &NetworkConfig, host: u32, life: u32, incarnation: Option<u64>) -> Config {
    let protocol = protocol_of(config, host as usize);
    let incarnation = match protocol.incarnation {
        0 => 0,
        first => incarnation.unwrap_or(first + u64::from(life)),
    };
    // The protocol accepts seed 0, but 0 is also the value of a configuration without a seed.
    let seed = mix(mix(config.seed) ^ (u64::from(host) << 32 | u64::from(life))) | 1;
    Config { seed, incarnation, ..protocol.clone() }
}
