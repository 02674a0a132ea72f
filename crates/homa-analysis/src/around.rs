//! The packets around a packet: those before it at its sender, in front of it in the switch, and at its
//! receiver while it waited.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, packet_word_parts};

use crate::model::{At, Model, NO_NODE, Packet};

/// Packets of one RPC that delayed a packet of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// The RPC, by its id at the client; 0: no Homa packets.
    pub rpc: u64,
    /// Number of packets.
    pub packets: u32,
    /// Their bytes, headers of Homa included.
    pub bytes: u64,
    /// Their lowest and highest priority.
    pub priorities: (u8, u8),
    /// Packets among them of lower priority than the waiting packet, although it was there before their
    /// transmission began.
    pub inversions: u32,
}

/// The packets that the packet's sender sent from `ready` on, when this one could have been sent, until it
/// was.
#[must_use]
pub fn at_sender(model: &Model, packet: &Packet, ready: At) -> Vec<Crowd> {
    let sender = model.rpcs[packet.rpc as usize].sender(packet.direction);
    let mut crowds = Crowds::new(packet, model);
    for record in
        model.between(sender, ready.ns().unwrap_or(u64::MAX), ns(packet.sent), &[EventKind::PacketSent])
    {
        crowds.add(record.id, record.a, record.place.priority(), false);
    }
    crowds.sorted()
}

/// The packets that left the packet's port of the switch while it was there. A lower priority counts as an
/// inversion unless its transmission had begun when this packet arrived.
#[must_use]
pub fn in_switch(model: &Model, packet: &Packet) -> Vec<Crowd> {
    let mut crowds = Crowds::new(packet, model);
    if packet.switch == NO_NODE || !packet.entered.is_some() {
        return Vec::new();
    }
    let mut others = 0;
    for record in model.between(packet.switch, ns(packet.entered), ns(packet.left), &[EventKind::SwitchLeft])
    {
        if record.place.port() == packet.port {
            let priority = record.place.queue().min(255) as u8;
            crowds.add(record.id, record.a, priority, others > 0 && priority < packet.priority);
            others += 1;
        }
    }
    crowds.sorted()
}

/// The packets that the receiver processed between this one's arrival, as early as it is recorded, and its
/// processing.
#[must_use]
pub fn at_receiver(model: &Model, packet: &Packet) -> Vec<Crowd> {
    let receiver = model.rpcs[packet.rpc as usize].receiver(packet.direction);
    let there = packet.device_received.or(packet.left).or(packet.read);
    let mut crowds = Crowds::new(packet, model);
    for record in model.between(
        receiver,
        there.ns().unwrap_or(u64::MAX),
        ns(packet.received),
        &[EventKind::PacketReceived],
    ) {
        crowds.add(record.id, record.a, record.place.priority(), false);
    }
    crowds.sorted()
}

fn ns(at: At) -> u64 {
    at.ns().unwrap_or(0)
}

struct Crowds {
    own: u64,
    crowds: Vec<Crowd>,
    /// Position of each RPC in `crowds`: after a long queue there may be as many RPCs as packets.
    places: HashMap<u64, usize, FixedState>,
}

impl Crowds {
    fn new(packet: &Packet, model: &Model) -> Crowds {
        let own = model.rpcs[packet.rpc as usize].id;
        Crowds { own, crowds: Vec::new(), places: HashMap::default() }
    }

    fn add(&mut self, id: u64, word: u32, priority: u8, inverted: bool) {
        let rpc = id & !1;
        if rpc == self.own {
            return;
        }
        let place = *self.places.entry(rpc).or_insert_with(|| {
            let priorities = (priority, priority);
            self.crowds.push(Crowd { rpc, packets: 0, bytes: 0, priorities, inversions: 0 });
            self.crowds.len() - 1
        });
        let crowd = &mut self.crowds[place];
        crowd.packets += 1;
        crowd.bytes += u64::from(packet_word_parts(word).1);
        crowd.priorities = (crowd.priorities.0.min(priority), crowd.priorities.1.max(priority));
        crowd.inversions += u32::from(inverted);
    }

    /// The crowds, most bytes first.
    fn sorted(mut self) -> Vec<Crowd> {
        self.crowds.sort_by_key(|crowd| (std::cmp::Reverse(crowd.bytes), crowd.rpc));
        self.crowds
    }
}
