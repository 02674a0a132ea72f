//! Matches the records of senders, switches and receivers to packets.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record, packet_word_parts};

use super::{Direction, Fate, Model, ModelTime, NO_NODE, Node, NodeId, Packet, Rpc};

/// Time after which a packet that its receiver has not recorded counts as lost, in nanoseconds. No queue of a
/// reasonable network holds a packet for longer, and a host that reads its packets later than this sends
/// RESEND first.
const LOST_AFTER_NS: u64 = 20_000_000;

/// Type of DATA packets on the wire.
pub const DATA: u8 = 0x10;
/// Type of GRANT packets on the wire.
pub const GRANT: u8 = 0x11;

/// Identifies equal packets. Packets with the same key differ only in their times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    direction: Direction,
    packet_type: u8,
    offset: u32,
    length: u32,
}

/// The stages at which a packet is recorded, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Sent,
    DeviceSent,
    Entered,
    Left,
    Dropped,
    DeviceReceived,
    Received,
}

#[derive(Clone, Copy)]
struct Observation {
    key: Key,
    stage: Stage,
    /// Position of the record among the events of the RPC, which are sorted by time.
    place: u32,
    node: NodeId,
    record: Record,
}

impl Observation {
    /// Returns a sort key: by packet key, then by stage, then by time.
    fn order(&self) -> u128 {
        let Key { direction, packet_type, offset, length } = self.key;
        let key = (direction as u128) << 64
            | u128::from(packet_type) << 56
            | u128::from(offset) << 24
            | u128::from(length);
        key << 36 | (self.stage as u128) << 32 | u128::from(self.place)
    }
}

/// The ranges of an RPC's packets: all of them, and the DATA packets of both messages.
pub(super) struct Ranges {
    pub(super) all: Range<u32>,
    pub(super) request: Range<u32>,
    pub(super) response: Range<u32>,
}

/// The times of bursts at one endpoint of a host.
#[derive(Default)]
struct Bursts {
    out: Vec<u64>,
    taken: Vec<u64>,
    read: Vec<u64>,
    processed: Vec<u64>,
}

/// Builds packets from records.
pub(super) struct Matcher {
    bursts: HashMap<(NodeId, u8), Bursts, FixedState>,
    observations: Vec<Observation>,
    /// Scratch space: sort keys with positions, and the observations in that order.
    order: Vec<(u128, u32)>,
    sorted: Vec<Observation>,
}

impl Matcher {
    pub(super) fn new(nodes: &[Node]) -> Matcher {
        let mut bursts: HashMap<_, Bursts, FixedState> = HashMap::with_hasher(FixedState::default());
        for (number, node) in nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Host) {
            for record in &node.records {
                let Some(kind) = record.event() else { continue };
                if !matches!(
                    kind,
                    EventKind::BurstOut
                        | EventKind::BurstTaken
                        | EventKind::BurstIn
                        | EventKind::BurstProcessed
                ) {
                    continue;
                }
                let at = bursts.entry((number as NodeId, record.place.endpoint())).or_default();
                let times = match kind {
                    EventKind::BurstOut => &mut at.out,
                    EventKind::BurstTaken => &mut at.taken,
                    EventKind::BurstIn => &mut at.read,
                    _ => &mut at.processed,
                };
                times.push(record.time);
            }
        }
        Matcher { bursts, observations: Vec::new(), order: Vec::new(), sorted: Vec::new() }
    }

    /// Appends the packets of an RPC.
    pub(super) fn packets_of(&mut self, model: &Model, number: u32, packets: &mut Vec<Packet>) -> Ranges {
        let rpc = &model.rpcs[number as usize];
        let observations = &mut self.observations;
        observations.clear();
        for event in &model.order[rpc.events.start as usize..rpc.events.end as usize] {
            let record = model.record(*event);
            if let Some((stage, key)) = observation(record) {
                let place = observations.len() as u32;
                observations.push(Observation { key, stage, place, node: event.node, record: *record });
            }
        }
        // Sort numbers rather than the large observations. Sorting the observations took half of the time to
        // build a model.
        self.order.clear();
        self.order.extend(observations.iter().map(|observation| (observation.order(), observation.place)));
        self.order.sort_unstable();
        self.sorted.clear();
        self.sorted.extend(self.order.iter().map(|(_, place)| observations[*place as usize]));
        let observations = &self.sorted;
        let start = packets.len() as u32;
        let mut data = [start..start, start..start];
        for same in observations.chunk_by(|a, b| a.key == b.key) {
            let key = same[0].key;
            let first = packets.len() as u32;
            append_matched(number, key, same, packets);
            if key.packet_type == DATA {
                let range = &mut data[key.direction as usize];
                if range.start == range.end {
                    range.start = first;
                }
                range.end = packets.len() as u32;
            }
        }
        let [request, response] = data;
        let ranges = Ranges { all: start..packets.len() as u32, request, response };
        mark_repeated(&mut packets[ranges.request.start as usize..ranges.request.end as usize]);
        mark_repeated(&mut packets[ranges.response.start as usize..ranges.response.end as usize]);
        for packet in &mut packets[start as usize..] {
            self.add_bursts(model, packet);
            packet.fate = fate(model, packet, rpc);
        }
        ranges
    }

    /// Sets the times of the packet's bursts. The sender records them after the packet's creation, and the
    /// receiver records them around its processing.
    fn add_bursts(&self, model: &Model, packet: &mut Packet) {
        let rpc = &model.rpcs[packet.rpc as usize];
        let (sender, receiver) = (rpc.sender(packet.direction), rpc.receiver(packet.direction));
        let (sent_by, received_by) = (packet.sent_endpoint, packet.received_endpoint);
        if let (Some(ns), Some(bursts)) = (packet.sent.ns(), self.bursts.get(&(sender, sent_by))) {
            packet.handed = first_from(&bursts.out, ns);
            packet.taken = packet.handed.ns().map_or(ModelTime::NONE, |ns| first_from(&bursts.taken, ns));
        }
        if let (Some(ns), Some(bursts)) = (packet.received.ns(), self.bursts.get(&(receiver, received_by))) {
            packet.read = last_until(&bursts.read, ns);
            packet.processed = first_from(&bursts.processed, ns);
        }
    }
}

fn first_from(times: &[u64], ns: u64) -> ModelTime {
    times.get(times.partition_point(|time| *time < ns)).map_or(ModelTime::NONE, |time| ModelTime::new(*time))
}

fn last_until(times: &[u64], ns: u64) -> ModelTime {
    let behind = times.partition_point(|time| *time <= ns);
    behind.checked_sub(1).map_or(ModelTime::NONE, |index| ModelTime::new(times[index]))
}

/// Returns the stage and the key of a record's packet, if the record belongs to a packet.
fn observation(record: &Record) -> Option<(Stage, Key)> {
    let of_sender = if record.id & 1 == 0 { Direction::ToServer } else { Direction::ToClient };
    let (stage, direction) = match record.event()? {
        EventKind::PacketSent => (Stage::Sent, of_sender),
        EventKind::DeviceSent => (Stage::DeviceSent, of_sender),
        EventKind::SwitchEntered => (Stage::Entered, of_sender),
        EventKind::SwitchLeft => (Stage::Left, of_sender),
        EventKind::SwitchDropped => (Stage::Dropped, of_sender),
        EventKind::DeviceReceived => (Stage::DeviceReceived, of_sender.back()),
        EventKind::PacketReceived => (Stage::Received, of_sender.back()),
        _ => return None,
    };
    let (packet_type, length) = packet_word_parts(record.a);
    Some((stage, Key { direction, packet_type, offset: record.b, length }))
}

/// Appends the packets to which these observations of one key belong.
fn append_matched(rpc: u32, key: Key, observations: &[Observation], packets: &mut Vec<Packet>) {
    let first = packets.len();
    let base = observations[0].stage;
    for observation in observations
        .iter()
        .take_while(|observation| observation.stage == base && observation.node == observations[0].node)
    {
        packets.push(Packet::new(rpc, key.direction, key.packet_type, key.offset, key.length));
        let packet = packets.last_mut().expect("one was pushed");
        set(packet, observation);
    }
    let packets = &mut packets[first..];
    if let ([packet], [_, rest @ ..]) = (&mut *packets, observations)
        && rest.windows(2).all(|pair| pair[0].stage != pair[1].stage && pair[1].stage != Stage::Dropped)
    {
        // This is the case for most packets: they are sent once, and recorded once by each node.
        for observation in rest {
            if may_be(packet, observation) {
                set(packet, observation);
            }
        }
        return;
    }
    // Handle the records of each node one stage after another. A switch either queues or drops a frame, so
    // both count as one stage.
    let mut rest: Vec<&Observation> = observations[packets.len()..].iter().collect();
    rest.sort_by_key(|observation| {
        let stage = if observation.stage == Stage::Dropped { Stage::Entered } else { observation.stage };
        (stage, observation.node, observation.record.time)
    });
    let is_same = |a: &&Observation, b: &&Observation| {
        let either = |observation: &Observation| matches!(observation.stage, Stage::Dropped | Stage::Entered);
        a.node == b.node && (a.stage == b.stage || either(a) && either(b))
    };
    for stage in rest.chunk_by(is_same) {
        assign(stage, packets);
    }
}

/// Assigns the observations of one stage at one node to the packets, which are sorted by time. If there are
/// fewer observations than packets, the earlier packets were lost, because a retransmission follows a loss.
/// The assignment therefore proceeds from the last to the first.
fn assign(observations: &[&Observation], packets: &mut [Packet]) {
    let mut left = packets.len();
    for observation in observations.iter().rev() {
        while left > 0 && !may_be(&packets[left - 1], observation) {
            left -= 1;
        }
        let Some(index) = left.checked_sub(1) else { return };
        left = index;
        set(&mut packets[index], observation);
    }
}

/// Returns whether this observation may belong to this packet.
fn may_be(packet: &Packet, observation: &Observation) -> bool {
    let behind_drop = matches!(packet.fate, Fate::Dropped(_)) && observation.stage > Stage::Dropped;
    !behind_drop && packet.first_seen().ns().is_none_or(|ns| ns <= observation.record.time)
}

fn set(packet: &mut Packet, observation: &Observation) {
    let Record { time, place, .. } = observation.record;
    match observation.stage {
        Stage::Sent => {
            packet.sent = ModelTime::new(time);
            packet.priority = place.priority();
            packet.sent_endpoint = place.endpoint();
        }
        Stage::DeviceSent => packet.device_sent = ModelTime::new(time),
        Stage::Entered => {
            packet.entered.set_first(time);
            (packet.switch, packet.port) = (observation.node, place.port());
        }
        Stage::Left => {
            if packet.left.ns().is_none_or(|last| last <= time) {
                (packet.switch, packet.port) = (observation.node, place.port());
            }
            packet.left.set_last(time);
        }
        Stage::Dropped => {
            packet.fate = Fate::Dropped(place.reason());
            (packet.switch, packet.port) = (observation.node, place.port());
        }
        Stage::DeviceReceived => packet.device_received = ModelTime::new(time),
        Stage::Received => {
            packet.received = ModelTime::new(time);
            packet.received_endpoint = place.endpoint();
            packet.received_priority = place.received_priority();
        }
    }
}

/// Marks DATA packets that repeat an offset. The packets must be sorted by offset and time.
fn mark_repeated(data: &mut [Packet]) {
    for index in 1..data.len() {
        data[index].again = data[index].offset == data[index - 1].offset;
    }
}

fn fate(model: &Model, packet: &Packet, rpc: &Rpc) -> Fate {
    if packet.received.is_some() {
        return Fate::Received;
    }
    if matches!(packet.fate, Fate::Dropped(_)) {
        return packet.fate;
    }
    let receiver = rpc.receiver(packet.direction);
    let (Some(seen), Some(node)) = (packet.first_seen().ns(), model.nodes.get(usize::from(receiver))) else {
        return Fate::Unknown;
    };
    let watched = receiver != NO_NODE && node.covers(seen) && node.covers(seen.saturating_add(LOST_AFTER_NS));
    if watched { Fate::Lost } else { Fate::Unknown }
}
