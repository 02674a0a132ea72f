//! RPCs, messages and packets, built from the events of all nodes.
//!
//! A packet is identified by its RPC, direction, type and offset. Hosts and switches record these values, so
//! a sent packet can be found in each switch and at its receiver. All times are nanoseconds since shortly
//! before the first event of all dumps, on the dumps' shared clock. Dumps of several machines must be
//! [aligned](homa_trace::Alignment) first.

mod build;
mod packets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record};
use serde::Serialize;

pub use build::BuildError;
pub use packets::{DATA, GRANT};

/// A time in nanoseconds since the zero of the model, or unknown. Each packet has ten of these, and packets
/// make up most of a model, so a time takes only 6 bytes. The most significant part is first, so that the
/// derived order is the order of the times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelTime([u16; 3]);

/// The maximum time, three days. Later times are clamped to it.
const AT_MAX_NS: u64 = (1 << 48) - 2;

impl ModelTime {
    /// An unknown time: the event is not in any trace.
    pub const NONE: ModelTime = ModelTime([u16::MAX; 3]);

    /// Creates a known time. It is clamped to the maximum of three days.
    #[must_use]
    pub const fn new(ns: u64) -> ModelTime {
        let ns = if ns > AT_MAX_NS { AT_MAX_NS } else { ns };
        ModelTime([(ns >> 32) as u16, (ns >> 16) as u16, ns as u16])
    }

    /// Returns the nanoseconds since the zero of the model, or `None` if the time is unknown.
    #[must_use]
    pub const fn ns(self) -> Option<u64> {
        let [high, middle, low] = self.0;
        let ns = (high as u64) << 32 | (middle as u64) << 16 | low as u64;
        if ns > AT_MAX_NS { None } else { Some(ns) }
    }

    /// Returns whether the time is known.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.ns().is_some()
    }

    /// Returns the nanoseconds from `earlier` to this time, if both are known. The result is negative if
    /// clocks disagree.
    #[must_use]
    pub fn since(self, earlier: ModelTime) -> Option<i64> {
        Some(self.ns()?.wrapping_sub(earlier.ns()?) as i64)
    }

    /// Returns this time if it is known, else `other`.
    #[must_use]
    pub const fn or(self, other: ModelTime) -> ModelTime {
        if self.is_some() { self } else { other }
    }

    pub(crate) fn set_first(&mut self, ns: u64) {
        *self = (*self).min(ModelTime::new(ns));
    }

    pub(crate) fn set_last(&mut self, ns: u64) {
        if self.ns().is_none_or(|last| last < ns) {
            *self = ModelTime::new(ns);
        }
    }
}

impl Default for ModelTime {
    fn default() -> ModelTime {
        ModelTime::NONE
    }
}

impl std::fmt::Debug for ModelTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ns() {
            Some(ns) => write!(f, "{ns} ns"),
            None => f.write_str("-"),
        }
    }
}

/// Index of a node in [`Model::nodes`].
pub type NodeId = u16;

/// The [`NodeId`] of every node that has no trace.
pub const NO_NODE: NodeId = NodeId::MAX;

/// A host or switch with its events.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Host or switch.
    pub kind: NodeKind,
    /// Names of the peers (host) or ports (switch) whose numbers the node's records contain.
    pub others: BTreeMap<u16, String>,
    /// Maximum error of the node's times relative to the other nodes, in nanoseconds.
    pub uncertainty_ns: u64,
    /// Number of older events that newer ones have overwritten.
    pub overwritten: u64,
    /// The node's events sorted by time, in nanoseconds since the zero of the model.
    pub records: Vec<Record>,
}

impl Node {
    /// Returns the events of a host, or none for a switch.
    #[must_use]
    pub fn host_records(&self) -> &[Record] {
        if self.kind == NodeKind::Host { &self.records } else { &[] }
    }

    /// Returns whether the trace covers this time, so that it would contain an event.
    #[must_use]
    pub fn covers(&self, ns: u64) -> bool {
        let first = self.records.first().map_or(u64::MAX, |record| record.time);
        let last = self.records.last().map_or(0, |record| record.time);
        (self.overwritten == 0 || first <= ns) && ns <= last
    }
}

/// An event of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRef {
    /// The node that recorded the event.
    pub node: NodeId,
    /// Index of the event in [`Node::records`].
    pub index: u32,
}

/// The direction of a message and its packets. Packets sent by the receiver of a message (GRANT, RESEND) have
/// the opposite direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client: requests, and the client's control packets for responses.
    ToServer,
    /// From the server: responses, and the server's control packets for requests.
    ToClient,
}

impl Direction {
    /// Returns the opposite direction.
    #[must_use]
    pub const fn back(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// A request or a response.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Length in bytes; 0 if no event records it.
    pub length: u32,
    /// When the sending application submitted the message. If that event is missing, when the sending
    /// endpoint first had the message.
    pub submitted: ModelTime,
    /// When the message's first packet was handed to the driver.
    pub first_sent: ModelTime,
    /// When the last of the message's packets, not counting retransmissions, was handed to the driver.
    pub last_sent: ModelTime,
    /// When the first of the message's packets was processed at the receiver.
    pub first_received: ModelTime,
    /// When the message first waited for a grant.
    pub first_wait_grant: ModelTime,
    /// When the receiver sent the first grant for the message.
    pub first_grant_sent: ModelTime,
    /// When the sender received the first grant.
    pub first_grant: ModelTime,
    /// When the message's last byte was processed at the receiver.
    pub complete: ModelTime,
    /// When a thread of the receiving application was woken for the message.
    pub woken: ModelTime,
    /// When the receiving application received the message.
    pub taken: ModelTime,
    /// The message's DATA packets in [`Model::packets`], sorted by offset and then by time.
    pub data: std::ops::Range<u32>,
}

impl Message {
    /// Returns when the receiving application received the message, as precisely as the traces show.
    #[must_use]
    pub fn arrived(&self) -> ModelTime {
        self.taken.or(self.complete)
    }
}

/// An RPC, as far as the traces contain it.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// The RPC's ID at the client, which is even; the ID at the server is one higher.
    pub id: u64,
    /// The client, or [`NO_NODE`].
    pub client: NodeId,
    /// The server, or [`NO_NODE`].
    pub server: NodeId,
    /// From client to server.
    pub request: Message,
    /// From server to client.
    pub response: Message,
    /// When the client's application started the RPC. If the trace lacks the start, the time of the RPC's
    /// first event at the client.
    pub start: ModelTime,
    /// Whether `start` is the true start rather than the first event that remains in the trace.
    pub starts_in_trace: bool,
    /// When the RPC ended at the client, that is, when the application had its response or its error.
    pub end: ModelTime,
    /// The result at the client: 0 for success, else the error as in [`EventKind::RpcEnd`]; `None` if it is
    /// not in the trace.
    pub result: Option<u32>,
    /// All events of the RPC in [`Model::order`], sorted by time.
    pub events: std::ops::Range<u32>,
    /// The RPC's packets in [`Model::packets`].
    pub packets: std::ops::Range<u32>,
}

impl Rpc {
    /// Returns the message in this direction.
    #[must_use]
    pub fn message(&self, direction: Direction) -> &Message {
        match direction {
            Direction::ToServer => &self.request,
            Direction::ToClient => &self.response,
        }
    }

    /// Returns the nanoseconds from the RPC's start to its end at the client, or `None` if the trace lacks
    /// either of them or the RPC failed.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        let whole = self.starts_in_trace && self.result == Some(0);
        whole.then(|| self.end.since(self.start)).flatten().map(|ns| ns.max(0) as u64)
    }

    /// Returns the node that sends in this direction.
    #[must_use]
    pub const fn sender(&self, direction: Direction) -> NodeId {
        match direction {
            Direction::ToServer => self.client,
            Direction::ToClient => self.server,
        }
    }

    /// Returns the node that receives in this direction.
    #[must_use]
    pub const fn receiver(&self, direction: Direction) -> NodeId {
        self.sender(direction.back())
    }
}

/// A packet from one host to another, with its times from all traces that contain it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Index of the packet's RPC in [`Model::rpcs`].
    pub rpc: u32,
    /// Length in bytes, including Homa headers.
    pub length: u32,
    /// Offset of the packet's first payload byte in the message; 0 for packets without payload.
    pub offset: u32,
    /// Type of the packet on the wire.
    pub packet_type: u8,
    /// Priority of the packet, 0 to 7.
    pub priority: u8,
    /// Priority of the packet on arrival; `None` if it was not received or the driver does not report it.
    pub received_priority: Option<u8>,
    /// Direction of the packet.
    pub direction: Direction,
    /// Whether a DATA packet with the same offset had already been sent.
    pub again: bool,
    /// What happened to the packet.
    pub fate: Fate,
    /// The last switch that recorded the packet, or [`NO_NODE`].
    pub switch: NodeId,
    /// The output port of that switch.
    pub port: u16,
    /// The endpoint of the sender's host that sent the packet.
    pub sent_endpoint: u8,
    /// The endpoint of the receiver's host that received the packet.
    pub received_endpoint: u8,
    /// When the sender's endpoint created the packet.
    pub sent: ModelTime,
    /// When the packet's burst was about to be handed to the driver.
    pub handed: ModelTime,
    /// When the driver had accepted that burst.
    pub taken: ModelTime,
    /// When the sender's device or kernel sent the packet.
    pub device_sent: ModelTime,
    /// When the packet entered a queue of the first switch.
    pub entered: ModelTime,
    /// When the packet left the last switch.
    pub left: ModelTime,
    /// When the receiver's device or kernel had received the packet.
    pub device_received: ModelTime,
    /// When the burst that contains the packet was read from the driver.
    pub read: ModelTime,
    /// When the receiver's endpoint processed the packet.
    pub received: ModelTime,
    /// When the receiver's endpoint had processed the whole burst.
    pub processed: ModelTime,
}

/// Ten million events contain up to six million packets, and a model must fit in a gigabyte.
const _: () = assert!(size_of::<Packet>() <= 88);

impl Packet {
    pub(crate) fn new(rpc: u32, direction: Direction, packet_type: u8, offset: u32, length: u32) -> Packet {
        Packet {
            rpc,
            length,
            offset,
            packet_type,
            priority: 0,
            received_priority: None,
            direction,
            again: false,
            fate: Fate::Unknown,
            switch: NO_NODE,
            port: 0,
            sent_endpoint: 0,
            received_endpoint: 0,
            sent: ModelTime::NONE,
            handed: ModelTime::NONE,
            taken: ModelTime::NONE,
            device_sent: ModelTime::NONE,
            entered: ModelTime::NONE,
            left: ModelTime::NONE,
            device_received: ModelTime::NONE,
            read: ModelTime::NONE,
            received: ModelTime::NONE,
            processed: ModelTime::NONE,
        }
    }

    /// Returns the earliest recorded time of the packet.
    #[must_use]
    pub fn first_seen(&self) -> ModelTime {
        let times =
            [self.sent, self.device_sent, self.entered, self.left, self.device_received, self.received];
        times.into_iter().min().unwrap_or(ModelTime::NONE)
    }
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet was received.
    Received,
    /// A switch dropped the packet. The value is the switch's number for the reason.
    Dropped(u16),
    /// The receiver's trace covers the time but does not contain the packet.
    Lost,
    /// No trace shows what happened to the packet.
    Unknown,
}

/// The contents of a set of traces.
#[derive(Clone, Debug)]
pub struct Model {
    /// The nodes, in the order of the dumps.
    pub nodes: Vec<Node>,
    /// The RPCs, sorted by their first event.
    pub rpcs: Vec<Rpc>,
    /// The packets of all RPCs. Packets of the same RPC are contiguous: see [`Rpc::packets`].
    pub packets: Vec<Packet>,
    /// The events of all RPCs. Events of the same RPC are contiguous: see [`Rpc::events`].
    pub order: Vec<EventRef>,
    /// The time of the dumps' shared clock at the zero of the model, in nanoseconds.
    pub zero_ns: u64,
    by_id: HashMap<u64, u32, FixedState>,
}

impl Model {
    /// Returns the record of an event.
    #[must_use]
    pub fn record(&self, event: EventRef) -> &Record {
        &self.nodes[usize::from(event.node)].records[event.index as usize]
    }

    /// Returns the RPC with this ID, which may be the ID at the client or at the server.
    #[must_use]
    pub fn rpc(&self, id: u64) -> Option<&Rpc> {
        self.by_id.get(&(id & !1)).map(|index| &self.rpcs[*index as usize])
    }

    /// Returns whether the trace of this RPC's server, if there is one, covers the whole RPC. A trace ends
    /// when it is written or frozen. If other traces continue, the missing part would look like a long
    /// silence of the server.
    #[must_use]
    pub fn has_server_of(&self, rpc: &Rpc) -> bool {
        let (Some(server), Some(start)) = (self.nodes.get(usize::from(rpc.server)), rpc.start.ns()) else {
            return true;
        };
        // Once the response is sent, the server may have no more events to record.
        let sent = || self.data_of(&rpc.response).iter().all(|packet| packet.sent.is_some());
        server.covers(start) && (rpc.end.ns().is_none_or(|end| server.covers(end)) || sent())
    }

    /// Returns the time since which the traces of all switches are complete. Before that time, a packet may
    /// have passed a switch that has since overwritten the packet's records.
    #[must_use]
    pub fn switches_remember_since_ns(&self) -> u64 {
        let forgetful =
            self.nodes.iter().filter(|node| node.kind == NodeKind::Switch && node.overwritten > 0);
        let first = forgetful.map(|node| node.records.first().map_or(u64::MAX, |record| record.time));
        first.max().unwrap_or(0)
    }

    /// Returns the events of an RPC, sorted by time, with the node that recorded each.
    pub fn events_of<'a>(
        &'a self,
        rpc: &Rpc,
    ) -> impl ExactSizeIterator<Item = (NodeId, &'a Record)> + use<'a> {
        self.order[rpc.events.start as usize..rpc.events.end as usize]
            .iter()
            .map(|event| (event.node, self.record(*event)))
    }

    /// Returns the packets of an RPC, sorted by direction (to the server first), type, offset and time.
    #[must_use]
    pub fn packets_of(&self, rpc: &Rpc) -> &[Packet] {
        &self.packets[rpc.packets.start as usize..rpc.packets.end as usize]
    }

    /// Returns the DATA packets of a message, sorted by offset and then by time.
    #[must_use]
    pub fn data_of(&self, message: &Message) -> &[Packet] {
        &self.packets[message.data.start as usize..message.data.end as usize]
    }

    /// Returns the name of a node, or `?` for [`NO_NODE`].
    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(usize::from(node)).map_or("?", |node| &node.name)
    }

    /// Returns the name of a place: a host and optionally a core, or a switch and optionally a port.
    #[must_use]
    pub fn place(&self, node: NodeId, place: Option<u16>) -> String {
        if node == NO_NODE {
            return "-".to_owned();
        }
        let name = self.name(node);
        match (self.nodes.get(usize::from(node)), place) {
            (Some(of), Some(port)) if of.kind == NodeKind::Switch => match of.others.get(&port) {
                Some(device) if !device.is_empty() => format!("{name} port {port} ({device})"),
                _ => format!("{name} port {port}"),
            },
            (_, Some(core)) => format!("{name} core {core}"),
            (_, None) => name.to_owned(),
        }
    }

    /// Returns the events of these kinds at a node within a range of time, sorted by time.
    pub fn between<'a>(
        &'a self,
        node: NodeId,
        from_ns: u64,
        until_ns: u64,
        kinds: &'a [EventKind],
    ) -> impl Iterator<Item = &'a Record> + use<'a> {
        let records = self.nodes.get(usize::from(node)).map_or(&[][..], |node| &node.records);
        let first = records.partition_point(|record| record.time < from_ns);
        let within = records[first..].iter().take_while(move |record| record.time <= until_ns);
        within.filter(|record| record.event().is_some_and(|kind| kinds.contains(&kind)))
    }

    /// Returns the time between the first and the last event, in nanoseconds.
    #[must_use]
    pub fn span_ns(&self) -> u64 {
        let ends = self
            .nodes
            .iter()
            .filter_map(|node| Some((node.records.first()?.time, node.records.last()?.time)));
        let (first, last) = ends.fold((u64::MAX, 0), |all, one| (all.0.min(one.0), all.1.max(one.1)));
        last.saturating_sub(first)
    }
}
