//! Topologies, and the next port of each packet.

use crate::payload::mix;

/// Topology of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Two hosts connected by one link.
    BackToBack,
    /// All hosts at one switch.
    Switch {
        /// Delay from a packet's arrival at the switch to the queue of its port.
        delay_ns: u64,
    },
    /// Racks of hosts with a leaf switch each, and every leaf connected to every spine switch.
    LeafSpine(LeafSpine),
}

impl Topology {
    /// Returns this topology with another way of spreading packets, if there is a choice of paths.
    pub(crate) fn with_spread(self, spread: Option<Spread>) -> Topology {
        match (self, spread) {
            (Topology::LeafSpine(net), Some(spread)) => Topology::LeafSpine(LeafSpine { spread, ..net }),
            _ => self,
        }
    }
}

/// A network of leaf and spine switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// Hosts per rack, at least 1. The last rack may have fewer.
    pub hosts_per_rack: usize,
    /// Spine switches, at least 1.
    pub spines: usize,
    /// Rate of each link between a leaf and a spine, in bits per second.
    pub core_rate_bps: u64,
    /// Propagation delay of a link between a leaf and a spine.
    pub core_propagation_ns: u64,
    /// Delay from a packet's arrival at a switch to the queue of its port.
    pub delay_ns: u64,
    /// How packets are spread over the spines.
    pub spread: Spread,
}

/// How packets between two racks are spread over the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each packet takes a random path.
    Packets,
    /// All packets of a flow take the same path, selected by the hash of the flow (ECMP).
    Flows,
}

/// Position of a packet after a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// At its host.
    Host,
    /// At a switch that forwards it to this port.
    Port(u32),
}

/// Kind of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// From a host to its switch or to the other host.
    Uplink,
    /// From a switch to a host.
    Downlink,
    /// From a leaf to a spine.
    ToSpine,
    /// From a spine to a leaf.
    ToLeaf,
}

/// The numbered ports of a topology. The order is: uplinks by host, downlinks by host, each leaf's ports to
/// the spines, each spine's ports to the leaves.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    topology: Topology,
    hosts: u32,
    racks: u32,
    spines: u32,
    /// Rack of each host. Stored, since a division for every hop would be a tenth of the hop's cost.
    rack_of: Box<[u32]>,
    /// Destination of each port's link, with everything that a hop needs.
    ways: Box<[Way]>,
}

/// Destination of a port's link.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The receiving host.
    Host,
    /// A switch that has the downlinks of all receivers of its packets.
    Down,
    /// The leaf of this rack, whose port to the first spine is `to_spine`.
    Leaf { rack: u32, to_spine: u32 },
    /// A spine, whose port to the first leaf is `to_leaf`.
    Spine { to_leaf: u32 },
}

impl Routes {
    pub(crate) fn new(topology: Topology, hosts: usize) -> Routes {
        let (hosts_per_rack, spines) = match topology {
            Topology::LeafSpine(ref net) => (net.hosts_per_rack, net.spines),
            Topology::BackToBack | Topology::Switch { .. } => (hosts, 0),
        };
        assert!(hosts_per_rack >= 1, "a rack has at least one host");
        assert!(
            !matches!(topology, Topology::LeafSpine(_)) || spines >= 1,
            "racks need a spine between them"
        );
        let racks = hosts.div_ceil(hosts_per_rack);
        let mut routes = Routes {
            topology,
            hosts: hosts as u32,
            racks: racks as u32,
            spines: spines as u32,
            rack_of: (0..hosts).map(|host| (host / hosts_per_rack) as u32).collect(),
            ways: Box::default(),
        };
        routes.ways = (0..routes.ports()).map(|port| routes.way(port)).collect();
        routes
    }

    fn way(&self, port: u32) -> Way {
        match (self.tier(port), self.topology) {
            (Tier::Downlink, _) | (Tier::Uplink, Topology::BackToBack) => Way::Host,
            (Tier::Uplink, Topology::Switch { .. }) | (Tier::ToLeaf, _) => Way::Down,
            (Tier::Uplink, Topology::LeafSpine(_)) => {
                let rack = self.rack(port);
                Way::Leaf { rack, to_spine: 2 * self.hosts + rack * self.spines }
            }
            (Tier::ToSpine, _) => {
                let spine = (port - 2 * self.hosts) % self.spines;
                let to_leaf = 2 * self.hosts + self.racks * self.spines;
                Way::Spine { to_leaf: to_leaf + spine * self.racks }
            }
        }
    }

    pub(crate) fn ports(&self) -> u32 {
        match self.topology {
            Topology::BackToBack => self.hosts,
            Topology::Switch { .. } => 2 * self.hosts,
            Topology::LeafSpine(_) => 2 * self.hosts + 2 * self.racks * self.spines,
        }
    }

    #[inline]
    pub(crate) fn rack(&self, host: u32) -> u32 {
        self.rack_of[host as usize]
    }

    pub(crate) fn tier(&self, port: u32) -> Tier {
        let to_leaf = 2 * self.hosts + self.racks * self.spines;
        match port {
            _ if port < self.hosts => Tier::Uplink,
            _ if port < 2 * self.hosts => Tier::Downlink,
            _ if port < to_leaf => Tier::ToSpine,
            _ => Tier::ToLeaf,
        }
    }

    /// Returns the host of a downlink; `None`: not a downlink.
    pub(crate) fn host_behind(&self, port: u32) -> Option<usize> {
        (self.tier(port) == Tier::Downlink).then(|| (port - self.hosts) as usize)
    }

    /// Returns the switch of a port, leaves first; `None`: a host's port.
    pub(crate) fn switch(&self, port: u32) -> Option<u32> {
        let core = port.wrapping_sub(2 * self.hosts);
        match self.tier(port) {
            Tier::Uplink => None,
            Tier::Downlink => Some(self.rack(port - self.hosts)),
            Tier::ToSpine => Some(core / self.spines),
            Tier::ToLeaf => Some(self.racks + (core - self.racks * self.spines) / self.racks),
        }
    }

    pub(crate) fn switches(&self) -> u32 {
        match self.topology {
            Topology::BackToBack => 0,
            Topology::Switch { .. } => 1,
            Topology::LeafSpine(_) => self.racks + self.spines,
        }
    }

    /// Returns the delay from a packet's arrival at a switch to the queue of its port.
    #[inline]
    pub(crate) fn switch_delay_ns(&self) -> u64 {
        match self.topology {
            Topology::BackToBack => 0,
            Topology::Switch { delay_ns } => delay_ns,
            Topology::LeafSpine(net) => net.delay_ns,
        }
    }

    /// Returns the position of a packet to host `to` after the link of `port`. `choice` selects the spine.
    #[inline]
    pub(crate) fn after(&self, port: u32, to: u32, choice: u64) -> Hop {
        match self.ways[port as usize] {
            Way::Host => Hop::Host,
            Way::Leaf { rack, to_spine } if rack != self.rack(to) => {
                Hop::Port(to_spine + (mix(choice) % u64::from(self.spines)) as u32)
            }
            Way::Down | Way::Leaf { .. } => Hop::Port(self.hosts + to),
            Way::Spine { to_leaf } => Hop::Port(to_leaf + self.rack(to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net() -> Topology {
        Topology::LeafSpine(LeafSpine {
            hosts_per_rack: 3,
            spines: 2,
            core_rate_bps: 1,
            core_propagation_ns: 0,
            delay_ns: 250,
            spread: Spread::Packets,
        })
    }

    fn way(routes: &Routes, from: u32, to: u32, choice: u64) -> Vec<u32> {
        let mut way = vec![from];
        while let Hop::Port(port) = routes.after(way[way.len() - 1], to, choice) {
            way.push(port);
            assert!(way.len() < 10, "a loop: {way:?}");
        }
        way
    }

    #[test]
    fn every_pair_is_joined_by_every_spine_and_never_leaves_its_rack_in_vain() {
        let routes = Routes::new(net(), 8);
        let mut spines = std::collections::BTreeSet::new();
        for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).filter(|(a, b)| a != b) {
            for choice in 0..20 {
                let way = way(&routes, from, to, choice);
                assert_eq!(way.last(), Some(&(8 + to)), "{from} to {to}");
                assert_eq!(way.len(), if from / 3 == to / 3 { 2 } else { 4 }, "{from} to {to}");
                spines.extend(way.get(2).and_then(|&port| routes.switch(port)));
            }
        }
        assert_eq!(spines.into_iter().collect::<Vec<_>>(), [3, 4]);
        assert_eq!((routes.ports(), routes.switches()), (8 + 8 + 6 + 6, 5));
    }

    #[test]
    fn tiers_and_switches_of_ports() {
        let routes = Routes::new(net(), 8);
        let seen: Vec<_> =
            [0, 8, 15, 16, 21, 22, 27].map(|port| (routes.tier(port), routes.switch(port))).into();
        assert_eq!(
            seen,
            [
                (Tier::Uplink, None),
                (Tier::Downlink, Some(0)),
                (Tier::Downlink, Some(2)),
                (Tier::ToSpine, Some(0)),
                (Tier::ToSpine, Some(2)),
                (Tier::ToLeaf, Some(3)),
                (Tier::ToLeaf, Some(4)),
            ]
        );
    }

    #[test]
    fn back_to_back_a_packet_is_at_the_other_host_at_once() {
        assert_eq!(Routes::new(Topology::BackToBack, 2).after(0, 1, 0), Hop::Host);
    }
}
