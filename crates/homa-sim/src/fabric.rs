//! Everything between the hosts, and the time.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use homa_proto::{RpcKey, Time};

use crate::capture::{Capture, Fate};
use crate::fault::Faults;
use crate::link::Port;
use crate::network::{NetworkConfig, Topology};
use crate::packet::{Packet, Packets};
use crate::queue::EventQueue;

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

/// What is to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The link behind a port is free.
    PortFree { port: u32 },
    /// A packet has crossed the switch and wants onto a port.
    Forward { packet: u32, port: u32 },
    /// A packet is at its host.
    Deliver { packet: u32 },
    /// A host looks at what its card has received.
    Receive { host: u32 },
    /// A stalled host goes on.
    Wake { host: u32 },
    /// A host's endpoint wants its timeout handled.
    Timeout { host: u32, life: u32 },
    /// A timer of a host's application.
    AppTimer { host: u32, life: u32, token: u64 },
    /// A server's application has computed its answer.
    Reply { host: u32, life: u32, rpc: RpcKey, length: u32 },
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

pub(crate) struct Fabric {
    pub(crate) now: Time,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) packets: Packets,
    /// The hosts' uplinks, then the switch's ports to them, if there is one.
    pub(crate) ports: Vec<Port>,
    pub(crate) faults: Faults,
    pub(crate) capture: Capture,
    pub(crate) stats: FabricStats,
    /// Ways that let nothing pass: (from, to).
    pub(crate) blocked: BTreeSet<(u32, u32)>,
    /// Lengths of the requests under way, by client host and id, so that a server can tell a wrong one.
    pub(crate) requests: HashMap<(u32, u64), u32>,
    topology: Topology,
    receive_delay_ns: u64,
    nic_queue_bytes: u64,
    hosts: u32,
}

impl Fabric {
    pub(crate) fn new(config: &NetworkConfig) -> Fabric {
        let uplinks = (0..config.hosts).map(|_| Port::new(config.link, config.nic_priorities));
        let downlinks = match config.topology {
            Topology::BackToBack => 0,
            Topology::Switch { .. } => config.hosts,
        };
        let ports = uplinks.chain((0..downlinks).map(|_| Port::new(config.link, true))).collect();
        Fabric {
            now: Time::ZERO,
            queue: EventQueue::new(),
            packets: Packets::default(),
            ports,
            faults: Faults::new(config.faults.clone(), config.seed),
            capture: Capture { on: config.capture, packets: Vec::new() },
            stats: FabricStats::default(),
            blocked: BTreeSet::new(),
            requests: HashMap::new(),
            topology: config.topology,
            receive_delay_ns: config.receive_delay_ns,
            nic_queue_bytes: config.nic_queue_bytes,
            hosts: config.hosts as u32,
        }
    }

    /// Whether a host's card takes another packet; else its driver waits until the link has sent one.
    pub(crate) fn nic_has_room(&self, host: u32) -> bool {
        self.ports[host as usize].queued_bytes() < self.nic_queue_bytes
    }

    /// Puts a packet before the uplink of its sender.
    pub(crate) fn send(&mut self, packet: Packet) {
        self.send_by(packet.from, packet);
    }

    /// Puts a packet before this uplink, whoever it says it is from.
    pub(crate) fn send_by(&mut self, port: u32, packet: Packet) {
        let number = self.packets.take();
        *self.packets.get_mut(number) = packet;
        self.enqueue(number, port);
    }

    /// An empty buffer for a packet to be sent.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let number = self.packets.take();
        let packet = self.packets.lend(number);
        self.packets.give_back(number, Packet::default());
        packet.bytes
    }

    pub(crate) fn enqueue(&mut self, number: u32, port: u32) {
        let packet = self.packets.get(number);
        let (wire_len, priority) = (packet.wire_len, packet.priority);
        if self.ports[port as usize].enqueue(number, wire_len, priority) {
            self.depart(port);
        } else {
            self.stats.overflowed += 1;
            self.drop_packet(number, Fate::Overflow);
        }
    }

    pub(crate) fn drop_packet(&mut self, number: u32, fate: Fate) {
        self.capture.see(self.now, self.packets.get(number), fate);
        self.packets.release(number);
    }

    /// Starts the port's next packet if its link is free, and sees to it that the one after it will be.
    pub(crate) fn depart(&mut self, port: u32) {
        if let Some(departure) = self.ports[port as usize].depart(self.now) {
            self.stats.hops += 1;
            if port < self.hosts {
                self.leave_host(departure.packet, departure.arrives);
            } else {
                self.queue.push(
                    departure.arrives + self.receive_delay_ns,
                    Event::Deliver { packet: departure.packet },
                );
            }
        }
        let state = &mut self.ports[port as usize];
        if state.queued_bytes() > 0 && !state.wakeup_pending {
            state.wakeup_pending = true;
            let at = state.free_at();
            self.queue.push(at, Event::PortFree { port });
        }
    }

    /// A packet leaves its host and arrives at the other end of the uplink, unless something happens to it.
    fn leave_host(&mut self, number: u32, arrives: Time) {
        self.stats.sent += 1;
        let packet = self.packets.get(number);
        self.capture.see(self.now, packet, Fate::Sent);
        if !self.blocked.is_empty() && self.blocked.contains(&(packet.from, packet.to)) {
            self.faults.counts.blocked += 1;
            return self.drop_packet(number, Fate::Lost);
        }
        let verdict = self.faults.judge();
        let Some(delay_ns) = verdict.first_delay_ns else {
            return self.drop_packet(number, Fate::Lost);
        };
        if let Some(delay_ns) = verdict.second_delay_ns {
            let copy = self.packets.copy(number);
            self.cross(copy, arrives + delay_ns);
        }
        if verdict.corrupted {
            self.faults.corrupt(&mut self.packets.get_mut(number).bytes);
        }
        self.cross(number, arrives + delay_ns);
    }

    fn cross(&mut self, number: u32, arrives: Time) {
        let to = self.packets.get(number).to;
        if to >= self.hosts {
            self.stats.host_down += 1;
            return self.drop_packet(number, Fate::HostDown);
        }
        match self.topology {
            Topology::BackToBack => {
                self.queue.push(arrives + self.receive_delay_ns, Event::Deliver { packet: number });
            }
            Topology::Switch { delay_ns } => {
                self.queue.push(arrives + delay_ns, Event::Forward { packet: number, port: self.hosts + to });
            }
        }
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
