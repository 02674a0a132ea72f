//! Everything between the hosts, and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use homa_proto::Time;

use crate::capture::{Capture, Fate};
use crate::driver_queue::{Acceptance, DriverQueue};
use crate::fault::{FaultProfile, Faults, PathLimit};
use crate::link::{Admission, Departure, Discipline, LinkConfig, Port};
use crate::packet::{Body, Packets};
use crate::queue::EventQueue;
use crate::switches::SwitchTraces;
use crate::topology::{Hop, Routes, Spread, Tier, Topology};

/// UDP port of every simulated host.
const UDP_PORT: u16 = 14_600;
/// Most hosts that have an address of their own.
pub(crate) const MAX_HOSTS: usize = 1 << 24;

/// The address of the host with this index: 10.x.y.z and one UDP port.
///
/// # Panics
/// If `host` is not below 2^24.
pub fn host_address(host: usize) -> SocketAddr {
    assert!(host < MAX_HOSTS, "a host index is below {MAX_HOSTS}");
    let [_, x, y, z] = (host as u32).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, x, y, z)), UDP_PORT)
}

/// The index of the host with this address; of no host for an address that is none of ours.
pub(crate) fn address_index(address: SocketAddr) -> u32 {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[0] == 10 => u32::from_be_bytes(ip.octets()) & 0x00ff_ffff,
        _ => u32::MAX,
    }
}

/// What a switch is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// In which order its ports send.
    pub discipline: Discipline,
    /// How its buffer is divided.
    pub buffer: Buffer,
    /// Bytes in the queue before a host's link from which on packets that join it are marked (ECN); for the links between switches in
    /// proportion to their rate. `None`: never.
    pub mark_above_bytes: Option<u64>,
    /// When it sends a packet on.
    pub forwarding: Forwarding,
    /// How much a queue may hold, as a multiple of what its port has free; `None`: all that is free. One packet it may always hold, if
    /// there is room at all. Without it the lowest priority, where it fills a port, has control packets of the highest dropped.
    pub queue_share: Option<u32>,
}

impl Default for SwitchConfig {
    /// Strict priorities, a buffer for each port as long as its link says, for whichever of its queues, no marks, packets stored before
    /// they are sent on.
    fn default() -> SwitchConfig {
        SwitchConfig {
            discipline: Discipline::Strict,
            buffer: Buffer::PerPort,
            mark_above_bytes: None,
            forwarding: Forwarding::Store,
            queue_share: None,
        }
    }
}

/// How the buffer of a switch is divided among its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Each port has [`LinkConfig::queue_bytes`].
    PerPort,
    /// Each port has so many bytes, whatever its link says.
    Ports {
        /// Of one port, with the packets' overhead.
        bytes: u64,
    },
    /// All ports share so many bytes; a queue may hold `share_percent` of those that are free (dynamic thresholds, as in switch chips), and
    /// `queue_share` means nothing.
    Shared {
        /// Bytes of the whole switch.
        bytes: u64,
        /// 100: as many as are free.
        share_percent: u32,
    },
}

/// When a switch sends a packet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// When all of it is there.
    Store,
    /// When its first 64 bytes are there, and not before the rest can follow without a pause.
    CutThrough,
}

/// Bytes of a packet that a switch must have before it can send it on.
const CUT_THROUGH_BYTES: u64 = 64;

/// What hosts have in common beside the network, what they carry, and what happens to them.
pub(crate) trait World {
    /// What a packet carries.
    type Body: Body;
    /// What happens to hosts.
    type HostEvent: Copy;
    /// What all hosts see.
    type Shared;
}

/// What is to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<H> {
    /// The link behind a port is free.
    PortFree { port: u32 },
    /// A packet has crossed a switch and wants onto a port.
    Forward { packet: u32, port: u32 },
    /// A packet is at its host.
    Deliver { packet: u32 },
    /// Something that concerns hosts alone.
    Host(H),
}

/// What the network counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Packets that went onto an uplink.
    pub sent: u64,
    /// Packets that went onto any link.
    pub hops: u64,
    /// Packets that reached their host.
    pub delivered: u64,
    /// Packets dropped because a queue was full.
    pub overflowed: u64,
    /// Packets dropped because their host was down or there is no such host.
    pub host_down: u64,
    /// Events handled.
    pub events: u64,
}

/// What a fabric is made from.
#[derive(Clone, Debug)]
pub(crate) struct FabricConfig {
    pub(crate) seed: u64,
    pub(crate) hosts: usize,
    pub(crate) topology: Topology,
    /// The links of the hosts.
    pub(crate) link: LinkConfig,
    pub(crate) switch: SwitchConfig,
    pub(crate) nic: Discipline,
    pub(crate) nic_queue_bytes: u64,
    /// From a packet's last bit on its uplink to its way into the network.
    pub(crate) send_delay_ns: u64,
    pub(crate) receive_delay_ns: u64,
    pub(crate) faults: FaultProfile,
    pub(crate) capture: bool,
}

pub(crate) struct Fabric<W: World> {
    pub(crate) now: Time,
    pub(crate) queue: EventQueue<Event<W::HostEvent>>,
    pub(crate) packets: Packets<W::Body>,
    /// In the order of [`Routes`].
    pub(crate) ports: Vec<Port>,
    pub(crate) routes: Routes,
    pub(crate) faults: Faults,
    pub(crate) capture: Capture,
    pub(crate) stats: FabricStats,
    /// Ways that let nothing pass: (from, to).
    pub(crate) blocked: BTreeSet<(u32, u32)>,
    /// Longest packets between two hosts, where they are shorter than those of the links.
    pub(crate) path_limits: BTreeMap<(u32, u32), PathLimit>,
    /// Drivers' queues for destinations that do not flow: (from, to).
    pub(crate) driver_queues: BTreeMap<(u32, u32), DriverQueue>,
    pub(crate) shared: W::Shared,
    /// Free bytes of each switch, where its ports share them.
    free_bytes: Vec<u64>,
    switch: SwitchConfig,
    spread: Spread,
    /// Counts the choices of a spine, and the seed with it.
    choices: u64,
    receive_delay_ns: u64,
    nic_queue_bytes: u64,
    hosts: u32,
    /// What the switches record, where they do.
    pub(crate) switch_traces: Option<Box<SwitchTraces>>,
}

impl<W: World> Fabric<W> {
    pub(crate) fn new(config: &FabricConfig, shared: W::Shared) -> Fabric<W> {
        let routes = Routes::new(config.topology, config.hosts);
        let (core, spread) = match config.topology {
            Topology::LeafSpine(net) => (
                LinkConfig {
                    rate_bps: net.core_rate_bps,
                    propagation_ns: net.core_propagation_ns,
                    ..config.link
                },
                net.spread,
            ),
            Topology::BackToBack | Topology::Switch { .. } => (config.link, Spread::Flows),
        };
        let uplink =
            LinkConfig { propagation_ns: config.link.propagation_ns + config.send_delay_ns, ..config.link };
        let port = |port| {
            let link = match routes.tier(port) {
                Tier::Uplink => return Port::new(uplink, config.nic),
                Tier::Downlink => config.link,
                Tier::ToSpine | Tier::ToLeaf => core,
            };
            let mut port = Port::new(link, config.switch.discipline);
            if let Buffer::Ports { bytes } = config.switch.buffer {
                port.limit = bytes;
            }
            port.limits_queues = matches!(config.switch.buffer, Buffer::Shared { .. });
            port.queue_share = config.switch.queue_share.filter(|_| !port.limits_queues);
            port.marks_above = config.switch.mark_above_bytes.map_or(u64::MAX, |bytes| {
                let bytes = u128::from(bytes) * u128::from(link.rate_bps) / u128::from(config.link.rate_bps);
                bytes.try_into().unwrap_or(u64::MAX)
            });
            port
        };
        let free = match config.switch.buffer {
            Buffer::PerPort | Buffer::Ports { .. } => 0,
            Buffer::Shared { bytes, .. } => bytes,
        };
        Fabric {
            now: Time::ZERO,
            queue: EventQueue::new(),
            packets: Packets::default(),
            ports: (0..routes.ports()).map(port).collect(),
            free_bytes: vec![free; routes.switches() as usize],
            routes,
            faults: Faults::new(config.faults.clone(), config.seed),
            capture: Capture { on: config.capture, packets: Vec::new() },
            stats: FabricStats::default(),
            blocked: BTreeSet::new(),
            path_limits: BTreeMap::new(),
            driver_queues: BTreeMap::new(),
            shared,
            switch: config.switch,
            spread,
            choices: config.seed,
            receive_delay_ns: config.receive_delay_ns,
            nic_queue_bytes: config.nic_queue_bytes,
            hosts: config.hosts as u32,
            switch_traces: None,
        }
    }

    /// Whether a host's card takes another packet; else its driver waits until the link has sent one.
    #[inline]
    pub(crate) fn nic_has_room(&mut self, host: u32) -> bool {
        let port = &mut self.ports[host as usize];
        if self.nic_queue_bytes > 0 {
            return port.queued_bytes() < self.nic_queue_bytes;
        }
        let is_idle = port.is_idle(self.now);
        if !is_idle && !port.wakeup_pending {
            // Nothing waits in the card that would wake it up.
            port.wakeup_pending = true;
            let at = port.free_at();
            self.queue.push(at, Event::PortFree { port: host });
        }
        is_idle
    }

    /// Puts a packet before the uplink of its sender.
    #[inline]
    pub(crate) fn send(&mut self, number: u32) {
        let info = &self.packets.get(number).info;
        let (port, way) = (info.from, (info.from, info.to));
        if self.driver_queues.is_empty() {
            return self.enqueue(number, port);
        }
        let queue = self.driver_queues.get_mut(&way);
        match queue.map(|queue| queue.accept(self.now, number)) {
            None => self.enqueue(number, port),
            Some(Acceptance::At(at)) => self.queue.push(at, Event::Forward { packet: number, port }),
            Some(Acceptance::Kept) => {}
            Some(Acceptance::Refused) => self.overflow(port, number),
        }
    }

    pub(crate) fn enqueue(&mut self, number: u32, port: u32) {
        if let Some(traces) = &mut self.switch_traces {
            traces.entered(self.now, port, self.packets.get(number));
        }
        let queue = &mut self.ports[port as usize];
        let info = &mut self.packets.get_mut(number).info;
        let before = queue.queued_bytes();
        if before >= queue.marks_above {
            info.marked = true;
        }
        let shared = match self.switch.buffer {
            Buffer::PerPort | Buffer::Ports { .. } => None,
            Buffer::Shared { share_percent, .. } => {
                self.routes.switch(port).map(|switch| (switch as usize, u64::from(share_percent)))
            }
        };
        let limit = shared.map_or(queue.limit, |(switch, share_percent)| {
            let free = self.free_bytes[switch];
            (free * share_percent / 100).min(queue.held(info.priority) + free)
        });
        if let Some(departure) = queue.depart_at_once(self.now, number, info.wire_len, limit) {
            return self.departed(port, departure);
        }
        let admission = queue.enqueue(number, info, limit);
        if let Some((switch, _)) = shared {
            self.free_bytes[switch] = self.free_bytes[switch] + before - queue.queued_bytes();
        }
        match admission {
            Admission::Taken => {}
            Admission::TakenFor(evicted) => {
                evicted.into_iter().for_each(|evicted| self.overflow(port, evicted));
            }
            Admission::Refused => return self.overflow(port, number),
        }
        self.depart(port);
    }

    /// A packet goes onto the link of a port.
    #[inline]
    fn departed(&mut self, port: u32, departure: Departure) {
        self.stats.hops += 1;
        if let Some(traces) = &mut self.switch_traces {
            // The link is free when the last bit has gone.
            traces.left(self.ports[port as usize].free_at(), port, self.packets.get(departure.packet));
        }
        if port < self.hosts {
            self.leave_host(port, departure.packet, departure.arrives);
        } else {
            self.cross(port, departure.packet, departure.arrives);
        }
    }

    /// The switch of a port whose ports share a buffer.
    fn shared_switch(&self, port: u32) -> Option<usize> {
        match self.switch.buffer {
            Buffer::PerPort | Buffer::Ports { .. } => None,
            Buffer::Shared { .. } => self.routes.switch(port).map(|switch| switch as usize),
        }
    }

    fn overflow(&mut self, port: u32, number: u32) {
        if let Some(traces) = &mut self.switch_traces {
            traces.dropped(self.now, port, self.packets.get(number));
        }
        self.stats.overflowed += 1;
        self.drop_packet(number, Fate::Overflow);
    }

    pub(crate) fn drop_packet(&mut self, number: u32, fate: Fate) {
        self.capture.see(self.now, self.packets.get(number), fate);
        self.packets.release(number);
    }

    /// The link behind a port is free.
    pub(crate) fn port_free(&mut self, port: u32) {
        self.ports[port as usize].wakeup_pending = false;
        self.depart(port);
    }

    /// Starts the port's next packet if its link is free, and sees to it that the one after it will be.
    #[inline]
    fn depart(&mut self, port: u32) {
        if let Some(departure) = self.ports[port as usize].depart(self.now) {
            if let Some(switch) = self.shared_switch(port) {
                self.free_bytes[switch] += self.ports[port as usize].cost(departure.wire_len);
            }
            self.departed(port, departure);
        }
        let state = &mut self.ports[port as usize];
        if state.needs_wakeup() {
            state.wakeup_pending = true;
            let at = state.free_at();
            self.queue.push(at, Event::PortFree { port });
        }
    }

    /// A packet leaves its host and arrives at the other end of the uplink, unless something happens to it.
    #[inline]
    fn leave_host(&mut self, port: u32, number: u32, arrives: Time) {
        self.stats.sent += 1;
        let packet = self.packets.get(number);
        let (from, to) = (packet.info.from, packet.info.to);
        self.capture.see(self.now, packet, Fate::Sent);
        if !self.blocked.is_empty() && self.blocked.contains(&(from, to)) {
            self.faults.counts.blocked += 1;
            return self.drop_packet(number, Fate::Lost);
        }
        let limit = self.path_limits.get(&(from, to));
        if limit.is_some_and(|limit| packet.info.wire_len > limit.bytes) {
            self.faults.counts.too_long += 1;
            return self.drop_packet(number, Fate::Lost);
        }
        let verdict = self.faults.judge();
        let Some(delay_ns) = verdict.first_delay_ns else {
            return self.drop_packet(number, Fate::Lost);
        };
        if to >= self.hosts {
            self.stats.host_down += 1;
            return self.drop_packet(number, Fate::HostDown);
        }
        if let Some(delay_ns) = verdict.second_delay_ns {
            let copy = self.packets.copy(number);
            self.cross(port, copy, arrives + delay_ns);
        }
        if verdict.corrupted {
            self.faults.corrupt(self.packets.get_mut(number).body.bytes_mut());
        }
        self.cross(port, number, arrives + delay_ns);
    }

    /// A packet reaches the other end of a port's link.
    #[inline]
    fn cross(&mut self, port: u32, number: u32, arrives: Time) {
        let info = &self.packets.get(number).info;
        let choice = match self.spread {
            Spread::Flows => u64::from(info.flow),
            Spread::Packets => {
                self.choices += 1;
                self.choices
            }
        };
        match self.routes.after(port, info.to, choice) {
            Hop::Host => self.queue.push(arrives + self.receive_delay_ns, Event::Deliver { packet: number }),
            Hop::Port(next) => {
                let at = match self.switch.forwarding {
                    Forwarding::Store => arrives,
                    Forwarding::CutThrough => self.cut_through(port, next, info.wire_len, arrives),
                };
                let at = at + self.routes.switch_delay_ns();
                self.queue.push(at, Event::Forward { packet: number, port: next });
            }
        }
    }

    /// When a switch can send a packet on whose last bit arrives at `arrives`.
    fn cut_through(&self, port: u32, next: u32, wire_len: u32, arrives: Time) -> Time {
        let (port, next) = (&self.ports[port as usize], &self.ports[next as usize]);
        let takes_ns = port.serialisation_ns(wire_len);
        let head_ns = takes_ns * CUT_THROUGH_BYTES.min(port.cost(wire_len)) / port.cost(wire_len);
        let wait_ns = (takes_ns - head_ns).min(next.serialisation_ns(wire_len));
        Time::from_ns(arrives.as_ns().saturating_sub(wait_ns)).max(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_give_their_host_back() {
        for host in [0, 1, 255, 256, 70_000, MAX_HOSTS - 1] {
            assert_eq!(address_index(host_address(host)), host as u32);
        }
        assert_eq!(address_index("192.168.0.1:14600".parse().unwrap()), u32::MAX);
    }
}
