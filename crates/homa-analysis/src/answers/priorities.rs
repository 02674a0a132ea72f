//! Use of priorities, and priority inversions: packets that were sent before a waiting packet of higher
//! priority.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record, packet_word_parts};
use serde::Serialize;

use super::select::Select;
use crate::model::DATA;
use crate::model::{Direction, Model, Node, NodeId};

/// Maximum number of inversions listed with details.
const KEPT: usize = 1_000;

/// Counts of the packets of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PriorityUse {
    /// Number of DATA packets.
    pub data_packets: u64,
    /// Bytes of the DATA packets.
    pub data_bytes: u64,
    /// Number of all other packets. At a switch, this includes packets of other protocols.
    pub other_packets: u64,
    /// Bytes of the other packets.
    pub other_bytes: u64,
}

/// Where the packets of a node were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingPoint {
    /// Created by a host, with the priority assigned by the host.
    Sent,
    /// Received by a host, with the priority on arrival.
    Received,
    /// Departed from a switch, with the packet's queue.
    Left,
}

/// Packets of one host or of one switch port, by priority.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodePriorities {
    /// Name of the host or switch.
    pub node: String,
    /// Name of the switch's port; `None` for a host.
    pub port: Option<String>,
    /// Where the node recorded these packets.
    pub seen_as: RecordingPoint,
    /// Packets by priority, or at a switch by queue. Larger numbers have precedence.
    pub priorities: BTreeMap<u16, PriorityUse>,
}

/// The place where a packet of lower priority was sent first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InversionSite {
    /// In a port of a switch.
    Switch {
        /// Name of the switch.
        switch: String,
        /// Name of the port.
        port: String,
    },
    /// At a host, while a message of higher priority had not yet been started.
    Sender {
        /// Name of the host.
        host: String,
    },
}

/// A packet that was sent although a packet of higher priority was waiting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inversion {
    /// The place of the inversion.
    pub at: InversionSite,
    /// When the packet was sent, in nanoseconds since the zero of the model.
    pub at_ns: u64,
    /// Priority or queue of the packet.
    pub lower: u16,
    /// Priority or queue of the packet that waited.
    pub higher: u16,
    /// How long the delayed packet had been waiting when it could have been sent instead, in nanoseconds.
    pub waited_ns: u64,
    /// The RPC of the packet that waited, by its ID at the client; 0 if it is not a Homa packet.
    pub rpc: u64,
    /// Number of packets of lower priority that were sent first. Always 1 in a switch, where each of them is
    /// a separate inversion.
    pub packets: u64,
}

/// Packets that arrived with a different priority than they were sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PriorityChange {
    /// Priority assigned by the sender.
    pub sent: u8,
    /// Priority at the receiver.
    pub received: u8,
    /// Number of packets.
    pub packets: u64,
}

/// The result of [`priorities`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Priorities {
    /// Packets of each host and each port of a switch, by priority.
    pub nodes: Vec<NodePriorities>,
    /// Number of received packets whose priority the receiver's driver does not report.
    pub received_unknown: u64,
    /// Number of packets with known priorities at both the sender and the receiver.
    pub compared: u64,
    /// Packets whose two priorities differ, the most frequent pair first. A packet that arrives one level
    /// lower shared a datagram with a packet of that level (WIRE-24). Any other change means that a device on
    /// the path rewrites the DSCP.
    pub changes: Vec<PriorityChange>,
    /// Number of packets that left switches and were checked for inversions.
    pub switched: u64,
    /// Number of these packets that were sent although a packet of higher priority had already waited for
    /// longer than a packet's transmission time.
    pub switch_inversions: u64,
    /// Number of messages that were checked for inversions at their sender.
    pub messages: u64,
    /// Number of these messages that were overtaken by packets of lower priority more than a packet's
    /// transmission time after submission.
    pub sender_inversions: u64,
    /// The inversions with the longest waits, the longest first, at most 1,000.
    pub inversions: Vec<Inversion>,
}

/// Counts packets by priority, and finds inversions.
///
/// In a switch, a packet is an inversion if, when its transmission began, a packet in a queue of higher
/// priority had already waited for longer than this packet's transmission time. Shorter waits are normal,
/// because a packet on the link cannot be preempted. A longer wait is a fault.
///
/// At a sender, a DATA packet of lower priority is an inversion if a message of higher priority was submitted
/// more than a packet's transmission time ago and has not begun. Homa deliberately gives the oldest message a
/// share, which counts as an inversion here too.
#[must_use]
pub fn priorities(model: &Model, select: &Select) -> Priorities {
    let mut found = Priorities::default();
    for (number, node) in model.nodes.iter().enumerate() {
        if !select.node(number as NodeId) {
            continue;
        }
        match node.kind {
            NodeKind::Host => host(&model.nodes[number], select, &mut found),
            NodeKind::Switch => switch(model, number as NodeId, select, &mut found),
        }
    }
    changes(model, select, &mut found);
    senders(model, select, &mut found);
    found.inversions.sort_by_key(|inversion| std::cmp::Reverse(inversion.waited_ns));
    found.inversions.truncate(KEPT);
    found
}

fn host(node: &Node, select: &Select, found: &mut Priorities) {
    let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
    for record in node.records.iter().filter(|record| select.time(record.time)) {
        match (record.event(), record.place.received_priority()) {
            (Some(EventKind::PacketSent), _) => count(&mut sent, record.place.priority().into(), record.a),
            (Some(EventKind::PacketReceived), Some(priority)) => {
                count(&mut received, priority.into(), record.a)
            }
            (Some(EventKind::PacketReceived), None) => found.received_unknown += 1,
            _ => {}
        }
    }
    for (seen_as, priorities) in [(RecordingPoint::Sent, sent), (RecordingPoint::Received, received)] {
        if !priorities.is_empty() {
            found.nodes.push(NodePriorities { node: node.name.clone(), port: None, seen_as, priorities });
        }
    }
}

/// Compares the priorities of packets at the sender and at the receiver.
fn changes(model: &Model, select: &Select, found: &mut Priorities) {
    let mut packets = [[0_u64; 8]; 8];
    for packet in &model.packets {
        let (Some(sent), Some(received)) = (packet.sent.ns(), packet.received_priority) else { continue };
        let receiver = model.rpcs[packet.rpc as usize].receiver(packet.direction);
        if select.time(sent) && select.node(receiver) {
            found.compared += 1;
            packets[usize::from(packet.priority & 7)][usize::from(received & 7)] += 1;
        }
    }
    for (sent, received) in (0..8_u8).flat_map(|sent| (0..8_u8).map(move |received| (sent, received))) {
        let packets = packets[usize::from(sent)][usize::from(received)];
        if sent != received && packets > 0 {
            found.changes.push(PriorityChange { sent, received, packets });
        }
    }
    found.changes.sort_by_key(|change| std::cmp::Reverse(change.packets));
}

fn count(uses: &mut BTreeMap<u16, PriorityUse>, priority: u16, word: u32) {
    let (packet_type, bytes) = packet_word_parts(word);
    let used = uses.entry(priority).or_default();
    let (packets, sum) = if packet_type == DATA {
        (&mut used.data_packets, &mut used.data_bytes)
    } else {
        (&mut used.other_packets, &mut used.other_bytes)
    };
    *packets += 1;
    *sum += u64::from(bytes);
}

/// Adds an inversion. If there are too many, keeps only the worst ones.
fn keep(found: &mut Priorities, inversion: Inversion) {
    found.inversions.push(inversion);
    if found.inversions.len() > 8 * KEPT {
        found.inversions.sort_by_key(|inversion| std::cmp::Reverse(inversion.waited_ns));
        found.inversions.truncate(KEPT);
    }
}

/// A frame in a queue of a port, with its arrival time.
struct QueuedFrame {
    id: u64,
    word: u32,
    offset: u32,
    came_ns: u64,
}

#[derive(Default)]
struct Port {
    queues: BTreeMap<u16, VecDeque<QueuedFrame>>,
    last_left: Option<Departure>,
    uses: BTreeMap<u16, PriorityUse>,
}

/// The last departure from a port.
#[derive(Clone, Copy)]
struct Departure {
    queue: u16,
    came_ns: u64,
    /// When the transmission began.
    began_ns: u64,
    left_ns: u64,
}

impl Port {
    /// Removes the frame whose departure this record shows, and returns when its transmission began.
    fn leave(&mut self, record: &Record) -> Option<u64> {
        let frame = self.take(record);
        let (queue, left_ns) = (record.place.queue(), record.time);
        let came_ns = frame.as_ref().map_or(left_ns, |frame| frame.came_ns);
        let began_ns = match self.last_left {
            // These packets share a frame, because a bundle is transmitted as a whole.
            Some(last) if (last.queue, last.came_ns, last.left_ns) == (queue, came_ns, left_ns) => {
                last.began_ns
            }
            last => came_ns.max(last.map_or(0, |last| last.left_ns)),
        };
        self.last_left = Some(Departure { queue, came_ns, began_ns, left_ns });
        frame.map(|_| began_ns)
    }

    /// Removes the frame of this record. Queues are first in, first out, so the frame is at the front unless
    /// records are missing.
    fn take(&mut self, record: &Record) -> Option<QueuedFrame> {
        let queue = self.queues.get_mut(&record.place.queue())?;
        let is_it = |of: &QueuedFrame| of.id == record.id && of.word == record.a && of.offset == record.b;
        let index = queue.iter().take(LOOK_AHEAD).position(is_it)?;
        // The frames in front of it left without being recorded.
        queue.drain(..index);
        queue.pop_front()
    }
}

/// Maximum distance from the front of the queue to search for a frame. Records are missing only where a trace
/// begins or was frozen.
const LOOK_AHEAD: usize = 64;

fn switch(model: &Model, number: NodeId, select: &Select, found: &mut Priorities) {
    let node = &model.nodes[usize::from(number)];
    let mut ports: HashMap<u16, Port, FixedState> = HashMap::default();
    let port_name = |port: u16| node.others.get(&port).cloned().unwrap_or_else(|| port.to_string());
    for record in &node.records {
        let port = ports.entry(record.place.port()).or_default();
        match record.event() {
            Some(EventKind::SwitchEntered) => {
                let (id, word, offset) = (record.id, record.a, record.b);
                let waiting = QueuedFrame { id, word, offset, came_ns: record.time };
                port.queues.entry(record.place.queue()).or_default().push_back(waiting);
            }
            Some(EventKind::SwitchDropped) => {
                port.take(record);
            }
            Some(EventKind::SwitchLeft) => {
                let began = port.leave(record);
                if !select.time(record.time) {
                    continue;
                }
                count(&mut port.uses, record.place.queue(), record.a);
                found.switched += 1;
                let Some(began) = began else { continue };
                let own_ns = record.time.saturating_sub(began);
                let higher = port.queues.range(record.place.queue().saturating_add(1)..).rev();
                let waits = higher.filter_map(|(queue, frames)| Some((*queue, frames.front()?))).next();
                let Some((queue, frame)) = waits else { continue };
                let waited_ns = began.saturating_sub(frame.came_ns);
                if waited_ns > own_ns {
                    found.switch_inversions += 1;
                    let at = InversionSite::Switch {
                        switch: node.name.clone(),
                        port: port_name(record.place.port()),
                    };
                    let (at_ns, rpc) = (record.time, frame.id & !1);
                    let (lower, higher) = (record.place.queue(), queue);
                    keep(found, Inversion { at, at_ns, lower, higher, waited_ns, rpc, packets: 1 });
                }
            }
            _ => {}
        }
    }
    let mut ports: Vec<(u16, Port)> = ports.into_iter().filter(|(_, port)| !port.uses.is_empty()).collect();
    ports.sort_by_key(|(number, _)| *number);
    found.nodes.extend(ports.into_iter().map(|(number, port)| NodePriorities {
        node: node.name.clone(),
        port: Some(port_name(number)),
        seen_as: RecordingPoint::Left,
        priorities: port.uses,
    }));
}

/// The times at which each host sent DATA, by priority.
type Sends = Vec<[Vec<u64>; 8]>;

fn senders(model: &Model, select: &Select, found: &mut Priorities) {
    let mut sends: Sends = Vec::new();
    sends.resize_with(model.nodes.len(), Default::default);
    let mut fastest: HashMap<NodeId, u64, FixedState> = HashMap::default();
    for (number, node) in model.nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Host) {
        for record in &node.records {
            if record.event() == Some(EventKind::PacketSent) && packet_word_parts(record.a).0 == DATA {
                sends[number][usize::from(record.place.priority() & 7)].push(record.time);
            }
        }
        fastest.insert(number as NodeId, packet_time_ns(&node.records));
    }
    for rpc in &model.rpcs {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let (message, sender) = (rpc.message(direction), rpc.sender(direction));
            let (Some(ready), Some(began)) = (message.submitted.ns(), message.first_sent.ns()) else {
                continue;
            };
            if !select.node(sender) || !select.time(ready) {
                continue;
            }
            found.messages += 1;
            let after = ready.saturating_add(fastest.get(&sender).copied().unwrap_or(0));
            let first = model.data_of(message).iter().find(|packet| packet.sent == message.first_sent);
            let Some(first) = first.filter(|_| after < began) else { continue };
            let of_node = &sends[usize::from(sender)];
            let lower = (0..usize::from(first.priority & 7)).filter_map(|priority| {
                let times = &of_node[priority];
                let range =
                    times.partition_point(|time| *time <= after)..times.partition_point(|time| *time < began);
                let last = times[range.clone()].last()?;
                Some((priority as u16, range.len() as u64, *last))
            });
            let all = lower.fold(None, |all: Option<(u16, u64, u64)>, (priority, packets, last)| {
                let (lowest, sum, latest) = all.unwrap_or((priority, 0, 0));
                Some((lowest, sum + packets, latest.max(last)))
            });
            let Some((lowest, packets, at_ns)) = all else { continue };
            found.sender_inversions += 1;
            let at = InversionSite::Sender { host: model.name(sender).to_owned() };
            let waited_ns = at_ns - ready;
            let higher = first.priority.into();
            keep(found, Inversion { at, at_ns, lower: lowest, higher, waited_ns, rpc: rpc.id, packets });
        }
    }
}

/// Returns the transmission time of a full packet from this host, in nanoseconds: the median time between
/// consecutive full DATA packets with no other event in between. Returns 0 if there are none.
fn packet_time_ns(records: &[Record]) -> u64 {
    let is_data = |record: &Record| {
        record.event() == Some(EventKind::PacketSent) && packet_word_parts(record.a).0 == DATA
    };
    let longest = records.iter().filter(|record| is_data(record)).map(|record| record.a).max().unwrap_or(0);
    let pairs = records.windows(2).filter(|pair| pair.iter().all(|of| is_data(of) && of.a == longest));
    let mut times: Vec<i64> = pairs.map(|pair| (pair[1].time - pair[0].time) as i64).collect();
    super::percentiles::median(&mut times).unwrap_or(0).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, ID, SERVER, SWITCH, WORD, Writer};
    use super::*;
    use EventKind::{AppSend, PacketReceived, PacketSent, SwitchEntered, SwitchLeft};
    use homa_trace::Place;

    #[test]
    fn a_lower_packet_that_leaves_before_a_higher_one_that_waited_is_an_inversion() {
        let mut writer = Writer::new();
        writer.priority(1).at(SWITCH, 1_000, SwitchEntered, WORD, 0).at(
            SWITCH,
            1_001,
            SwitchEntered,
            WORD,
            944,
        );
        writer.priority(5).of(10, SWITCH, 1_050, SwitchEntered, WORD, 0);
        // The transmission of this packet had begun before the packet of higher priority arrived, so this is
        // not a fault.
        writer.priority(1).at(SWITCH, 1_100, SwitchLeft, WORD, 0);
        writer.at(SWITCH, 1_140, SwitchLeft, WORD, 944);
        writer.priority(5).of(10, SWITCH, 1_300, SwitchLeft, WORD, 0);
        let found = priorities(&writer.model(), &Select::default());
        assert_eq!((found.switched, found.switch_inversions), (3, 1));
        let [inversion] = &found.inversions[..] else { panic!("{found:?}") };
        assert_eq!((inversion.lower, inversion.higher, inversion.waited_ns), (1, 5, 50));
        assert_eq!((inversion.at_ns, inversion.rpc), (141, ID + 10));
        assert_eq!(found.nodes[0].port.as_deref(), Some("p1"));
        let used = found.nodes[0].priorities[&1];
        assert_eq!((used.data_packets, used.data_bytes, used.other_packets), (2, 2_000, 0));
    }

    #[test]
    fn the_packets_of_a_bundle_are_on_the_link_together() {
        let mut writer = Writer::new();
        writer.priority(1).at(SWITCH, 1_000, SwitchEntered, WORD, 0);
        writer.at(SWITCH, 1_000, SwitchEntered, WORD, 944);
        writer.priority(5).of(10, SWITCH, 1_050, SwitchEntered, WORD, 0);
        // The transmission of both had begun before the packet of higher priority arrived, so neither is an
        // inversion.
        writer.priority(1).at(SWITCH, 1_100, SwitchLeft, WORD, 0).at(SWITCH, 1_100, SwitchLeft, WORD, 944);
        writer.priority(5).of(10, SWITCH, 1_200, SwitchLeft, WORD, 0);
        let found = priorities(&writer.model(), &Select::default());
        assert_eq!((found.switched, found.switch_inversions), (3, 0));
    }

    #[test]
    fn what_came_with_another_priority_than_it_was_sent_with_is_told() {
        let mut writer = Writer::new();
        for (number, (sent, received)) in
            [(5, Some(5)), (5, Some(0)), (7, Some(0)), (5, Some(0)), (5, None)].into_iter().enumerate()
        {
            let (ns, offset) = (1_000 + 100 * number as u64, 944 * number as u32);
            writer.priority(sent).at(CLIENT, ns, PacketSent, WORD, offset);
            writer.priority(Place::priority_received(received));
            writer.at(SERVER, ns + 50, PacketReceived, WORD, offset);
        }
        let found = priorities(&writer.model(), &Select::default());
        assert_eq!((found.compared, found.received_unknown), (4, 1));
        let change = |sent, received, packets| PriorityChange { sent, received, packets };
        assert_eq!(found.changes, [change(5, 0, 2), change(7, 0, 1)]);
        let server =
            found.nodes.iter().find(|node| node.seen_as == RecordingPoint::Received).expect("packets came");
        let packets: Vec<_> = server.priorities.iter().map(|(of, used)| (*of, used.data_packets)).collect();
        assert_eq!((server.node.as_str(), packets), ("s", vec![(0, 3), (5, 1)]));
    }

    #[test]
    fn a_message_that_waits_behind_lower_ones_at_its_sender_is_an_inversion() {
        let mut writer = Writer::new();
        writer.priority(1).at(CLIENT, 1_000, PacketSent, WORD, 0).at(CLIENT, 1_100, PacketSent, WORD, 944);
        writer.of(10, CLIENT, 1_110, AppSend, 0, 100);
        // These packets are sent within a packet's transmission time of 100 ns, so this is not a fault.
        writer.at(CLIENT, 1_200, PacketSent, WORD, 1_888).at(CLIENT, 1_300, PacketSent, WORD, 2_832);
        writer.priority(6).of(10, CLIENT, 1_400, PacketSent, WORD, 0);
        let found = priorities(&writer.model(), &Select::default());
        assert_eq!((found.messages, found.sender_inversions), (1, 1));
        let [inversion] = &found.inversions[..] else { panic!("{found:?}") };
        assert_eq!((inversion.lower, inversion.higher, inversion.packets), (1, 6, 1));
        assert_eq!((inversion.waited_ns, inversion.rpc), (190, ID + 10));
        assert_eq!(found.nodes[0].priorities[&1].data_packets, 4);
    }
}
