//! The packets that compete with a packet: those sent before it at its sender, those in front of it in the
//! switch, and those processed at its receiver while it waited.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, packet_word_parts};

use crate::model::{Model, ModelTime, NO_NODE, Packet};

/// Packets of one RPC that delayed a packet of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompetingRpc {
    /// The RPC's ID at the client; 0 for packets of other protocols.
    pub rpc: u64,
    /// Number of packets.
    pub packets: u32,
    /// Bytes of these packets, including Homa headers.
    pub bytes: u64,
    /// The lowest and the highest priority of these packets.
    pub priorities: (u8, u8),
    /// Number of these packets that had a lower priority and whose transmission began while the waiting
    /// packet was in the queue.
    pub inversions: u32,
}

/// Returns the packets that the sender sent after `ready`, the time at which this packet could have been
/// sent, and before this packet.
#[must_use]
pub fn at_sender(model: &Model, packet: &Packet, ready: ModelTime) -> Vec<CompetingRpc> {
    let sender = model.rpcs[packet.rpc as usize].sender(packet.direction);
    let mut rpcs = CompetingRpcs::new(packet, model);
    for record in
        model.between(sender, ready.ns().unwrap_or(u64::MAX), ns(packet.sent), &[EventKind::PacketSent])
    {
        rpcs.add(record.id, record.a, record.place.priority(), false);
    }
    rpcs.sorted()
}

/// Returns the packets that left the switch through this packet's port while this packet was queued there. A
/// packet of lower priority counts as an inversion unless its transmission had begun when this packet
/// arrived.
#[must_use]
pub fn in_switch(model: &Model, packet: &Packet) -> Vec<CompetingRpc> {
    let mut rpcs = CompetingRpcs::new(packet, model);
    if packet.switch == NO_NODE || !packet.entered.is_some() {
        return Vec::new();
    }
    let mut others = 0;
    for record in model.between(packet.switch, ns(packet.entered), ns(packet.left), &[EventKind::SwitchLeft])
    {
        if record.place.port() == packet.port {
            let priority = record.place.queue().min(255) as u8;
            rpcs.add(record.id, record.a, priority, others > 0 && priority < packet.priority);
            others += 1;
        }
    }
    rpcs.sorted()
}

/// Returns the packets that the receiver processed between this packet's first recorded arrival and its
/// processing.
#[must_use]
pub fn at_receiver(model: &Model, packet: &Packet) -> Vec<CompetingRpc> {
    let receiver = model.rpcs[packet.rpc as usize].receiver(packet.direction);
    let there = packet.device_received.or(packet.left).or(packet.read);
    let mut rpcs = CompetingRpcs::new(packet, model);
    for record in model.between(
        receiver,
        there.ns().unwrap_or(u64::MAX),
        ns(packet.received),
        &[EventKind::PacketReceived],
    ) {
        rpcs.add(record.id, record.a, record.place.priority(), false);
    }
    rpcs.sorted()
}

fn ns(at: ModelTime) -> u64 {
    at.ns().unwrap_or(0)
}

struct CompetingRpcs {
    own: u64,
    rpcs: Vec<CompetingRpc>,
    /// Position of each RPC in `rpcs`. After a long queue there may be as many RPCs as packets.
    places: HashMap<u64, usize, FixedState>,
}

impl CompetingRpcs {
    fn new(packet: &Packet, model: &Model) -> CompetingRpcs {
        let own = model.rpcs[packet.rpc as usize].id;
        CompetingRpcs { own, rpcs: Vec::new(), places: HashMap::default() }
    }

    fn add(&mut self, id: u64, word: u32, priority: u8, inverted: bool) {
        let rpc = id & !1;
        if rpc == self.own {
            return;
        }
        let place = *self.places.entry(rpc).or_insert_with(|| {
            let priorities = (priority, priority);
            self.rpcs.push(CompetingRpc { rpc, packets: 0, bytes: 0, priorities, inversions: 0 });
            self.rpcs.len() - 1
        });
        let rpc_sum = &mut self.rpcs[place];
        rpc_sum.packets += 1;
        rpc_sum.bytes += u64::from(packet_word_parts(word).1);
        rpc_sum.priorities = (rpc_sum.priorities.0.min(priority), rpc_sum.priorities.1.max(priority));
        rpc_sum.inversions += u32::from(inverted);
    }

    /// Returns the competing RPCs, sorted by bytes in descending order.
    fn sorted(mut self) -> Vec<CompetingRpc> {
        self.rpcs.sort_by_key(|rpc_sum| (std::cmp::Reverse(rpc_sum.bytes), rpc_sum.rpc));
        self.rpcs
    }
}
