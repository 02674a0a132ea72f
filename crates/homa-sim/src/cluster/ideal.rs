//! The minimum time of a message in a network without other traffic.

use std::collections::HashMap;

use homa_egress::Forwarding;

use super::config::ClusterConfig;
use crate::link::LinkConfig;
use crate::topology::{Routes, Topology};

/// How a message is divided into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Payload bytes of a full packet.
    pub payload: u32,
    /// Bytes of a packet's header. The link adds [`LinkConfig::overhead_bytes`].
    pub header: u32,
}

impl Framing {
    /// Returns the link time of a message of `length` bytes, in bytes with all overhead.
    pub fn link_bytes(&self, link: &LinkConfig, length: u32) -> u64 {
        let packets = u64::from(length.div_ceil(self.payload).max(1));
        u64::from(length) + packets * u64::from(self.header + link.overhead_bytes)
    }
}

/// One link of a path.
#[derive(Clone, Copy, Debug)]
struct Leg {
    rate_bps: u64,
    /// Delay from sending the last bit to the earliest start on the next link.
    delay_ns: u64,
}

/// Minimum times of messages, computed once for each length and kind of path.
#[derive(Debug)]
pub(super) struct Ideal {
    framing: Framing,
    overhead: u32,
    cut_through: bool,
    /// Paths within a switch or back to back, and paths through a spine.
    ways: [Vec<Leg>; 2],
    known: HashMap<(bool, u32), u64>,
}

/// Maximum number of cached times.
const MAX_KNOWN: usize = 1 << 20;

impl Ideal {
    pub(super) fn new(config: &ClusterConfig) -> Ideal {
        let link = config.link;
        let (core, core_propagation_ns) = match config.topology {
            Topology::LeafSpine(net) => (net.core_rate_bps, net.core_propagation_ns),
            Topology::BackToBack | Topology::Switch { .. } => (link.rate_bps, 0),
        };
        let switch_ns = Routes::new(config.topology, config.hosts).switch_delay_ns();
        let up =
            Leg { rate_bps: link.rate_bps, delay_ns: config.send_delay_ns + link.propagation_ns + switch_ns };
        let down = Leg { rate_bps: link.rate_bps, delay_ns: link.propagation_ns + config.receive_delay_ns };
        let middle = Leg { rate_bps: core, delay_ns: core_propagation_ns + switch_ns };
        let near = match config.topology {
            Topology::BackToBack => {
                vec![Leg { delay_ns: up.delay_ns - switch_ns + config.receive_delay_ns, ..up }]
            }
            Topology::Switch { .. } | Topology::LeafSpine(_) => vec![up, down],
        };
        Ideal {
            framing: config.framing,
            overhead: link.overhead_bytes,
            cut_through: config.switch.forwarding == Forwarding::CutThrough,
            ways: match config.topology {
                Topology::LeafSpine(_) => [near, vec![up, middle, middle, down]],
                Topology::BackToBack | Topology::Switch { .. } => [near.clone(), near],
            },
            known: HashMap::new(),
        }
    }

    pub(super) fn least_ns(&mut self, routes: &Routes, from: u32, to: u32, length: u32) -> u64 {
        let is_far = routes.rack(from) != routes.rack(to);
        if let Some(&known) = self.known.get(&(is_far, length)) {
            return known;
        }
        let least = self.compute(&self.ways[usize::from(is_far)], length);
        if self.known.len() < MAX_KNOWN {
            self.known.insert((is_far, length), least);
        }
        least
    }

    /// Returns the minimum time of a message through a spine, if there is a spine.
    pub(super) fn compute_far(&self, length: u32) -> u64 {
        self.compute(&self.ways[1], length)
    }

    fn takes_ns(&self, payload: u32, rate_bps: u64) -> f64 {
        f64::from(payload + self.framing.header + self.overhead) * 8e9 / rate_bps as f64
    }

    /// Computes the minimum time of a message over a path. All packets but the last are full and follow each
    /// other without pauses. So on every link, the last full packet ends when the slowest link so far has
    /// sent all full packets. The last packet, which may be short, then waits for the last full packet on
    /// each link.
    fn compute(&self, way: &[Leg], length: u32) -> u64 {
        let last = match length % self.framing.payload {
            0 => self.framing.payload.min(length),
            rest => rest,
        };
        let full = f64::from((length - last) / self.framing.payload);
        let (mut slowest, mut first_ends, mut last_ends, mut before_ns): (f64, f64, f64, f64) =
            (0.0, 0.0, 0.0, 0.0);
        for (index, leg) in way.iter().enumerate() {
            let full_ns = self.takes_ns(self.framing.payload, leg.rate_bps);
            let last_ns = self.takes_ns(last, leg.rate_bps);
            slowest = slowest.max(full_ns);
            // With cut-through, a packet leaves while it is still arriving, if the next link is no faster.
            let overlap = |takes: f64| {
                if self.cut_through && index > 0 { takes.min(before_ns) } else { 0.0 }
            };
            first_ends += full_ns - overlap(full_ns);
            let full_end = if full > 0.0 { first_ends + (full - 1.0) * slowest } else { 0.0 };
            last_ends = (last_ends - overlap(last_ns)).max(full_end) + last_ns;
            before_ns = last_ns;
            first_ends += leg.delay_ns as f64;
            last_ends += leg.delay_ns as f64;
        }
        last_ends.round() as u64
    }
}
