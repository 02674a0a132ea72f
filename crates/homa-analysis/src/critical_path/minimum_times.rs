//! Minimum times of packets from one stage to the next: the network's own delay.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::NodeKind;

use crate::cause::Cause;
use crate::model::{Model, ModelTime, NodeId, Packet};

/// Minimum number of packets of a size class on a path. If there are fewer, the path may not have had an
/// undisturbed packet yet, so the minimum over all paths is used if it is smaller.
const ENOUGH: u32 = 8;

/// A part of a packet's path between two records, at least one of which is outside the hosts' own stages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) from: ModelTime,
    pub(super) to: ModelTime,
    /// The cause of time in excess of the minimum.
    pub(super) excess: Cause,
    /// Whether the excess time is at the end of the hop rather than at its start.
    pub(super) waits_last: bool,
    /// The node at which the excess time was spent.
    pub(super) node: NodeId,
    pub(super) port: Option<u16>,
    way: HopClass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HopClass {
    stages: u8,
    size: u8,
    ends: (u16, u16),
}

/// Represents all paths with the same stages and size class.
const ANY: (u16, u16) = (u16::MAX, u16::MAX);

/// The minimum times of a model.
pub(super) struct MinimumTimes {
    by_class: HashMap<HopClass, (u64, u32), FixedState>,
    several_switches: bool,
}

impl MinimumTimes {
    pub(super) fn of(model: &Model) -> MinimumTimes {
        let switches = model.nodes.iter().filter(|node| node.kind == NodeKind::Switch).count();
        let mut minimum_times = MinimumTimes {
            by_class: HashMap::with_hasher(FixedState::default()),
            several_switches: switches > 1,
        };
        for packet in &model.packets {
            for hop in minimum_times.hops(model, packet).into_iter().flatten() {
                let Some(ns) = hop.to.since(hop.from) else { continue };
                let ns = ns.max(0) as u64;
                for ends in [hop.way.ends, ANY] {
                    let known = minimum_times.by_class.entry(HopClass { ends, ..hop.way }).or_insert((ns, 0));
                    *known = (known.0.min(ns), known.1.saturating_add(1));
                }
            }
        }
        minimum_times
    }

    /// Returns the minimum time of this hop, in nanoseconds.
    pub(super) fn ns(&self, hop: &Hop) -> u64 {
        let of = |ends| self.by_class.get(&HopClass { ends, ..hop.way }).copied();
        match (of(hop.way.ends), of(ANY)) {
            (Some((ns, count)), _) if count >= ENOUGH => ns,
            (Some((own, _)), Some((any, _))) => own.min(any),
            (own, any) => own.or(any).map_or(0, |(ns, _)| ns),
        }
    }

    /// Returns the hops of a packet, the last one first.
    pub(super) fn hops(&self, model: &Model, packet: &Packet) -> [Option<Hop>; 3] {
        let Some(rpc) = model.rpcs.get(packet.rpc as usize) else { return [None; 3] };
        let (sender, receiver) = (rpc.sender(packet.direction), rpc.receiver(packet.direction));
        let (by_device, out) = match (packet.device_sent, packet.handed.or(packet.sent)) {
            (device, _) if device.is_some() => (true, device),
            (_, out) => (false, out),
        };
        let (in_stage, arrived) = match (packet.device_received, packet.read, packet.received) {
            (device, _, _) if device.is_some() => (1, device),
            (_, read, _) if read.is_some() => (2, read),
            (_, _, received) => (3, received),
        };
        let size = size_class(packet.length);
        let way = |stages: u8, ends| HopClass { stages, size, ends };
        let out_bit = u8::from(by_device) << 7;
        if !packet.left.is_some() && !packet.entered.is_some() {
            let hop = Hop {
                from: out,
                to: arrived,
                excess: Cause::NetworkQueue,
                waits_last: true,
                node: receiver,
                port: None,
                way: way(out_bit | in_stage, (sender, receiver)),
            };
            return [Some(hop), None, None];
        }
        let last = Hop {
            from: packet.left.or(packet.entered),
            to: arrived,
            excess: if in_stage == 1 { Cause::NetworkQueue } else { Cause::ReadGap },
            waits_last: true,
            node: receiver,
            port: None,
            way: way(0x10 | in_stage | u8::from(packet.left.is_some()) << 6, (packet.switch, receiver)),
        };
        let ends = if self.several_switches { (sender, receiver) } else { (packet.switch, packet.port) };
        let within = Hop {
            from: packet.entered,
            to: packet.left,
            excess: Cause::SwitchQueue,
            waits_last: false,
            node: packet.switch,
            port: Some(packet.port),
            way: way(0x20, ends),
        };
        let first = Hop {
            from: out,
            to: packet.entered.or(packet.left),
            excess: if by_device { Cause::NetworkQueue } else { Cause::DeviceOut },
            waits_last: false,
            node: sender,
            port: None,
            way: way(0x30 | out_bit | u8::from(packet.entered.is_some()) << 6, (sender, packet.switch)),
        };
        [Some(last), Some(within), Some(first)]
    }
}

/// Returns the class of a length. Lengths in a class differ by less than a quarter.
fn size_class(length: u32) -> u8 {
    let length = length.max(4);
    let bits = 31 - length.leading_zeros();
    (bits << 2 | (length >> (bits - 2)) & 3) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_size_are_in_order_and_narrow() {
        let classes: Vec<u8> = [0, 28, 60, 64, 80, 1_000, 1_400, 1_500, u32::MAX].map(size_class).to_vec();
        assert!(classes.is_sorted());
        assert_ne!(size_class(64), size_class(80));
        assert_eq!(size_class(1_400), size_class(1_500));
    }
}
