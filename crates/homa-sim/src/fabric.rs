//! The network between the hosts, and the simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use homa_egress::{Alpha, Buffer, Forwarding, Room};
use homa_proto::Time;
use homa_proto::wire::PRIORITIES;

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
/// Maximum number of hosts: each has its own address.
pub(crate) const MAX_HOSTS: usize = 1 << 24;

/// Returns the address of the host with this index: 10.x.y.z, and the same UDP port for all.
///
/// # Panics
/// If `host` is not below 2^24.
pub fn host_address(host: usize) -> SocketAddr {
    assert!(host < MAX_HOSTS, "a host index is below {MAX_HOSTS}");
    let [_, x, y, z] = (host as u32).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, x, y, z)), UDP_PORT)
}

/// Returns the index of the host with this address. If the address is not from [`host_address`], the index is
/// not that of any host.
pub(crate) fn address_index(address: SocketAddr) -> u32 {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[0] == 10 => u32::from_be_bytes(ip.octets()) & 0x00ff_ffff,
        _ => u32::MAX,
    }
}

/// Settings of a switch. The rules for queues are those of the software switch (`homa-switch`), and a test
/// compares the two. Two differences are intended. A packet occupies buffer space for all its bytes on the
/// link, with overhead. A link that was idle for less than a nanosecond counts as not idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Order in which the ports send.
    pub discipline: Discipline,
    /// Number of queues of a port with [`Discipline::Strict`], 1 to 8. With fewer than 8, the lowest priorities
    /// share one queue.
    pub priorities: usize,
    /// The buffer of each switch; `None`: each port has [`LinkConfig::queue_bytes`].
    pub buffer: Option<Buffer>,
    /// Length in bytes of the queue of a host's downlink at and above which new packets are marked (ECN). The
    /// value for links between switches is proportional to their rate. `None`: no marks.
    pub mark_bytes: Option<u64>,
    /// Forwarding method. With [`Forwarding::CutThrough`], a packet is sent when its first 64 bytes have
    /// arrived, but not before the rest can follow without a pause.
    pub forwarding: Forwarding,
    /// Maximum length of a queue in its port's own buffer, as a multiple of the free bytes; `None`: all free
    /// bytes. The software switch has [`QUEUE_ALPHA`](homa_egress::QUEUE_ALPHA). Without this limit,
    /// control packets of the highest priority are dropped when the lowest priority fills a port. The limit
    /// has no effect on a shared buffer, which has its own multiple, or with [`Discipline::Rank`].
    pub queue_alpha: Option<Alpha>,
}

impl Default for SwitchConfig {
    /// Returns the default: strict priorities; one buffer per port, shared by all its queues, of the size in
    /// the link's settings; no marks; store and forward.
    fn default() -> SwitchConfig {
        SwitchConfig {
            discipline: Discipline::Strict,
            priorities: PRIORITIES,
            buffer: None,
            mark_bytes: None,
            forwarding: Forwarding::StoreAndForward,
            queue_alpha: None,
        }
    }
}

/// Bytes of a packet that a cut-through switch needs before it sends the packet.
const CUT_THROUGH_BYTES: u64 = 64;

/// The types of one kind of simulation: contents of packets, events of hosts, and shared state.
pub(crate) trait World {
    /// Contents of packets.
    type Body: Body;
    /// Events of hosts.
    type HostEvent: Copy;
    /// State that all hosts share.
    type Shared;
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<H> {
    /// The link behind a port has become free.
    PortFree { port: u32 },
    /// A packet has crossed a switch and is queued at a port.
    Forward { packet: u32, port: u32 },
    /// A packet arrives at its host.
    Deliver { packet: u32 },
    /// An event of hosts.
    Host(H),
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Packets sent on uplinks.
    pub sent: u64,
    /// Packets sent on any link.
    pub hops: u64,
    /// Packets that reached their host.
    pub delivered: u64,
    /// Packets dropped because a queue was full.
    pub overflowed: u64,
    /// Packets dropped because their host was down or does not exist.
    pub host_down: u64,
    /// Events handled.
    pub events: u64,
}

/// Settings of a fabric.
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
    /// Delay between a packet's last bit on its uplink and its entry into the network.
    pub(crate) send_delay_ns: u64,
    pub(crate) receive_delay_ns: u64,
    pub(crate) faults: FaultProfile,
    pub(crate) capture: bool,
}

pub(crate) struct Fabric<W: World> {
    pub(crate) now: Time,
    pub(crate) queue: EventQueue<Event<W::HostEvent>>,
    pub(crate) packets: Packets<W::Body>,
    /// Ports in the order of [`Routes`].
    pub(crate) ports: Vec<Port>,
    pub(crate) routes: Routes,
    pub(crate) faults: Faults,
    pub(crate) capture: Capture,
    pub(crate) stats: FabricStats,
    /// Blocked paths: (from, to).
    pub(crate) blocked: BTreeSet<(u32, u32)>,
    /// Packet size limits of paths between two hosts, where the limit is below that of the links.
    pub(crate) path_limits: BTreeMap<(u32, u32), PathLimit>,
    /// Drivers' queues for destinations that drain slowly: (from, to).
    pub(crate) driver_queues: BTreeMap<(u32, u32), DriverQueue>,
    pub(crate) shared: W::Shared,
    /// Free bytes of each switch with a shared buffer.
    free_bytes: Vec<u64>,
    switch: SwitchConfig,
    spread: Spread,
    /// Number of spine choices so far, and the seed of the choices.
    choices: u64,
    receive_delay_ns: u64,
    nic_queue_bytes: u64,
    hosts: u32,
    /// Traces of the switches, if tracing is on.
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
            port.priorities = config.switch.priorities.clamp(1, PRIORITIES);
            let own_alpha =
                config.switch.queue_alpha.filter(|_| config.switch.discipline != Discipline::Rank);
            (port.limit, port.alpha) = match config.switch.buffer {
                None => (link.queue_bytes, own_alpha),
                Some(Buffer::PerPort { bytes }) => (bytes, own_alpha),
                Some(Buffer::Shared { bytes, alpha }) => (bytes, Some(alpha)),
            };
            port.mark_bytes = config.switch.mark_bytes.map_or(u64::MAX, |bytes| {
                let bytes = u128::from(bytes) * u128::from(link.rate_bps) / u128::from(config.link.rate_bps);
                bytes.try_into().unwrap_or(u64::MAX)
            });
            port
        };
        let free = match config.switch.buffer {
            None | Some(Buffer::PerPort { .. }) => 0,
            Some(Buffer::Shared { bytes, .. }) => bytes,
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

    /// Returns whether a host's card accepts another packet. If not, its driver waits until the link has sent
    /// one.
    #[inline]
    pub(crate) fn nic_has_room(&mut self, host: u32) -> bool {
        let port = &mut self.ports[host as usize];
        if self.nic_queue_bytes > 0 {
            return port.queued_bytes() < self.nic_queue_bytes;
        }
        let is_idle = port.is_idle(self.now);
        if !is_idle && !port.wakeup_pending {
            // No queued packet will wake the driver when it starts, so schedule the wake-up.
            port.wakeup_pending = true;
            let at = port.free_at();
            self.queue.push(at, Event::PortFree { port: host });
        }
        is_idle
    }

    /// Queues a packet at the uplink of its sender.
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
            Some(Acceptance::QueueFull) => self.overflow(port, number),
        }
    }

    pub(crate) fn enqueue(&mut self, number: u32, port: u32) {
        if let Some(traces) = &mut self.switch_traces {
            traces.entered(self.now, port, self.packets.get(number));
        }
        let shared = self.shared_switch(port);
        let queue = &mut self.ports[port as usize];
        let info = &mut self.packets.get_mut(number).info;
        let before = queue.queued_bytes();
        if before >= queue.mark_bytes {
            info.marked = true;
        }
        let free = shared.map_or(queue.free_bytes(), |switch| self.free_bytes[switch]);
        if let Some(departure) = queue.depart_at_once(self.now, number, info.wire_len, free) {
            return self.departed(port, departure);
        }
        let admission = queue.enqueue(number, info, Room { free, alpha: queue.alpha });
        if let Some(switch) = shared {
            self.free_bytes[switch] = self.free_bytes[switch] + before - queue.queued_bytes();
        }
        match admission {
            Admission::Queued => {}
            Admission::QueuedAfterDropping(evicted) => {
                evicted.into_iter().for_each(|evicted| self.overflow(port, evicted));
            }
            Admission::Dropped => return self.overflow(port, number),
        }
        self.depart(port);
    }

    /// Sends a packet on the link of a port.
    #[inline]
    fn departed(&mut self, port: u32, departure: Departure) {
        self.stats.hops += 1;
        if let Some(traces) = &mut self.switch_traces {
            // The link becomes free after the last bit.
            traces.left(self.ports[port as usize].free_at(), port, self.packets.get(departure.packet));
        }
        if port < self.hosts {
            self.leave_host(port, departure.packet, departure.arrives);
        } else {
            self.arrive_at_end(port, departure.packet, departure.arrives);
        }
    }

    /// Returns the switch of a port, if its ports share a buffer.
    #[inline]
    fn shared_switch(&self, port: u32) -> Option<usize> {
        match self.switch.buffer {
            None | Some(Buffer::PerPort { .. }) => None,
            Some(Buffer::Shared { .. }) => self.routes.switch(port).map(|switch| switch as usize),
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
        self.capture.record(self.now, self.packets.get(number), fate);
        self.packets.release(number);
    }

    /// Handles the moment when the link behind a port becomes free.
    pub(crate) fn port_free(&mut self, port: u32) {
        self.ports[port as usize].wakeup_pending = false;
        self.depart(port);
    }

    /// Starts the port's next packet if its link is free, and schedules the start of the packet after that.
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

    /// Moves a packet from its host to the other end of the uplink, unless a fault drops it.
    #[inline]
    fn leave_host(&mut self, port: u32, number: u32, arrives: Time) {
        self.stats.sent += 1;
        let packet = self.packets.get(number);
        let (from, to) = (packet.info.from, packet.info.to);
        self.capture.record(self.now, packet, Fate::Sent);
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
            self.arrive_at_end(port, copy, arrives + delay_ns);
        }
        if verdict.corrupted {
            self.faults.corrupt(self.packets.get_mut(number).body.bytes_mut());
        }
        self.arrive_at_end(port, number, arrives + delay_ns);
    }

    /// Handles the arrival of a packet at the other end of a port's link.
    #[inline]
    fn arrive_at_end(&mut self, port: u32, number: u32, arrives: Time) {
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
                    Forwarding::StoreAndForward => arrives,
                    Forwarding::CutThrough => self.cut_through(port, next, info.wire_len, arrives),
                };
                let at = at + self.routes.switch_delay_ns();
                self.queue.push(at, Event::Forward { packet: number, port: next });
            }
        }
    }

    /// Returns the earliest time at which a switch can forward a packet whose last bit arrives at `arrives`.
    fn cut_through(&self, port: u32, next: u32, wire_len: u32, arrives: Time) -> Time {
        let (port, next) = (&self.ports[port as usize], &self.ports[next as usize]);
        let takes_ns = port.serialisation_ns(wire_len);
        let head_ns = takes_ns * CUT_THROUGH_BYTES.min(port.cost(wire_len)) / port.cost(wire_len);
        let wait_ns = (takes_ns - head_ns).min(next.serialisation_ns(wire_len));
        Time::from_ns(arrives.as_ns().saturating_sub(wait_ns)).max(self.now)
    }
}

#[cfg(test)]
mod agreement;

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
