//! RPCs, messages and packets, built from the events of all nodes.
//!
//! A packet is identified by its RPC, direction, type and offset. Hosts and switches record these, so that a
//! sent packet can be found in each switch and at its receiver. All times are nanoseconds since shortly
//! before the first event of all dumps, on their shared clock: [align](homa_trace::Alignment) dumps of
//! several machines first.

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

/// A time in nanoseconds since the zero of the model, or unknown. Packets have ten of these and make up most
/// of a model, so a time takes 6 bytes. The most significant part is first, so that the derived order is the
/// order of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelTime([u16; 3]);

/// The maximum time, after three days. Later times are clamped to it.
const AT_MAX_NS: u64 = (1 << 48) - 2;

impl ModelTime {
    /// An unknown time: the event is in no trace.
    pub const NONE: ModelTime = ModelTime([u16::MAX; 3]);

    /// A known time. Clamped to the maximum, three days.
    #[must_use]
    pub const fn new(ns: u64) -> ModelTime {
        let ns = if ns > AT_MAX_NS { AT_MAX_NS } else { ns };
        ModelTime([(ns >> 32) as u16, (ns >> 16) as u16, ns as u16])
    }

    /// Nanoseconds since the zero of the model.
    #[must_use]
    pub const fn ns(self) -> Option<u64> {
        let [high, middle, low] = self.0;
        let ns = (high as u64) << 32 | (middle as u64) << 16 | low as u64;
        if ns > AT_MAX_NS { None } else { Some(ns) }
    }

    /// Whether the time is known.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.ns().is_some()
    }

    /// Nanoseconds from `earlier` to this time, if both are known. Negative if clocks disagree.
    #[must_use]
    pub fn since(self, earlier: ModelTime) -> Option<i64> {
        Some(self.ns()?.wrapping_sub(earlier.ns()?) as i64)
    }

    /// This time if it is known, else the other.
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

/// Number of a node in [`Model::nodes`].
pub type NodeId = u16;

/// Stands for a [`NodeId`] if there is no trace of the node.
pub const NO_NODE: NodeId = NodeId::MAX;

/// A host or switch with its events.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Host or switch.
    pub kind: NodeKind,
    /// Names for the numbers in its records: peers of a host, ports of a switch.
    pub others: BTreeMap<u16, String>,
    /// Maximum error of its times relative to the other nodes, in nanoseconds.
    pub uncertainty_ns: u64,
    /// Number of older events that newer ones have overwritten.
    pub overwritten: u64,
    /// Its events by time, in nanoseconds since the zero of the model.
    pub records: Vec<Record>,
}

impl Node {
    /// The events of a host; none for a switch.
    #[must_use]
    pub fn host_records(&self) -> &[Record] {
        if self.kind == NodeKind::Host { &self.records } else { &[] }
    }

    /// Whether the trace would contain an event of this time.
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
    /// The node that recorded it.
    pub node: NodeId,
    /// Number of the event in [`Node::records`].
    pub index: u32,
}

/// The direction of a message and its packets. Packets from the receiver of a message (GRANT, RESEND) have
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
    /// The opposite direction.
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
    /// Length in bytes; 0 if no event has it.
    pub length: u32,
    /// When the sending application submitted it. Without that event: when its endpoint first had it.
    pub submitted: ModelTime,
    /// When its first packet was handed to the driver.
    pub first_sent: ModelTime,
    /// When the last of its packets, without retransmissions, was handed to the driver.
    pub last_sent: ModelTime,
    /// When the first of its packets was processed at the receiver.
    pub first_received: ModelTime,
    /// When it first waited for a grant.
    pub first_wait_grant: ModelTime,
    /// When the receiver sent its first grant.
    pub first_grant_sent: ModelTime,
    /// When the sender received its first grant.
    pub first_grant: ModelTime,
    /// When its last byte was processed at the receiver.
    pub complete: ModelTime,
    /// When a thread of the receiving application was woken for it.
    pub woken: ModelTime,
    /// When the receiving application received it.
    pub taken: ModelTime,
    /// Its DATA packets in [`Model::packets`], by offset and then by time.
    pub data: std::ops::Range<u32>,
}

impl Message {
    /// When the receiving application received it, as exactly as the traces show.
    #[must_use]
    pub fn arrived(&self) -> ModelTime {
        self.taken.or(self.complete)
    }
}

/// An RPC, as far as the traces contain it.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// Its id at the client, which is even; the id at the server is one more.
    pub id: u64,
    /// The client, or [`NO_NODE`].
    pub client: NodeId,
    /// The server, or [`NO_NODE`].
    pub server: NodeId,
    /// From client to server.
    pub request: Message,
    /// From server to client.
    pub response: Message,
    /// When the client's application started it, or its first event at the client if the trace lacks the
    /// start.
    pub start: ModelTime,
    /// Whether `start` is the true start and not just the first event left in the trace.
    pub starts_in_trace: bool,
    /// When it ended at the client: the application has its response or its error.
    pub end: ModelTime,
    /// The result at the client: 0 for success, else the error as in [`EventKind::RpcEnd`]; `None`: not in
    /// the trace.
    pub result: Option<u32>,
    /// All its events in [`Model::order`], by time.
    pub events: std::ops::Range<u32>,
    /// Its packets in [`Model::packets`].
    pub packets: std::ops::Range<u32>,
}

impl Rpc {
    /// The message of this direction.
    #[must_use]
    pub fn message(&self, direction: Direction) -> &Message {
        match direction {
            Direction::ToServer => &self.request,
            Direction::ToClient => &self.response,
        }
    }

    /// Nanoseconds from its start to its end at the client. `None` unless the trace has both and the RPC
    /// succeeded.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        let whole = self.starts_in_trace && self.result == Some(0);
        whole.then(|| self.end.since(self.start)).flatten().map(|ns| ns.max(0) as u64)
    }

    /// The node that sends in this direction.
    #[must_use]
    pub const fn sender(&self, direction: Direction) -> NodeId {
        match direction {
            Direction::ToServer => self.client,
            Direction::ToClient => self.server,
        }
    }

    /// The node that receives in this direction.
    #[must_use]
    pub const fn receiver(&self, direction: Direction) -> NodeId {
        self.sender(direction.back())
    }
}

/// A packet from one host to another, with the times from all traces that have it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Number of its RPC in [`Model::rpcs`].
    pub rpc: u32,
    /// Bytes, headers of Homa included.
    pub length: u32,
    /// Offset of its first payload byte in the message; 0 for packets without payload.
    pub offset: u32,
    /// Its packet type on the wire.
    pub packet_type: u8,
    /// Its priority, 0 to 7.
    pub priority: u8,
    /// Its priority on arrival; `None` if it was not received or the driver does not report it.
    pub received_priority: Option<u8>,
    /// Its direction.
    pub direction: Direction,
    /// Whether a DATA packet of the same offset had been sent before.
    pub again: bool,
    /// Its fate.
    pub fate: Fate,
    /// The last switch that recorded it, or [`NO_NODE`].
    pub switch: NodeId,
    /// The output port of that switch.
    pub port: u16,
    /// The endpoint of the sender's host that sent it.
    pub sent_endpoint: u8,
    /// The endpoint of the receiver's host that received it.
    pub received_endpoint: u8,
    /// When the sender's endpoint created it.
    pub sent: ModelTime,
    /// When its burst was about to be handed to the driver.
    pub handed: ModelTime,
    /// When the driver had accepted that burst.
    pub taken: ModelTime,
    /// When the sender's device or kernel sent it.
    pub device_sent: ModelTime,
    /// When it entered a queue of the first switch.
    pub entered: ModelTime,
    /// When it left the last switch.
    pub left: ModelTime,
    /// When the receiver's device or kernel had it.
    pub device_received: ModelTime,
    /// When the burst with the packet was read from the driver.
    pub read: ModelTime,
    /// When the receiver's endpoint processed it.
    pub received: ModelTime,
    /// When the receiver's endpoint had processed the whole burst.
    pub processed: ModelTime,
}

/// Ten million events have up to six million packets, and a model must fit into a gigabyte.
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

    /// The earliest recorded time of the packet.
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
    /// It was received.
    Received,
    /// A switch dropped it, for this reason as the switch numbers it.
    Dropped(u16),
    /// The receiver's trace covers the time and does not contain it.
    Lost,
    /// No trace shows it.
    Unknown,
}

/// The contents of a set of traces.
#[derive(Clone, Debug)]
pub struct Model {
    /// The nodes, in the order of the dumps.
    pub nodes: Vec<Node>,
    /// The RPCs, by their first event.
    pub rpcs: Vec<Rpc>,
    /// The packets of all RPCs. Those of one RPC are contiguous: see [`Rpc::packets`].
    pub packets: Vec<Packet>,
    /// The events of all RPCs. Those of one RPC are contiguous: see [`Rpc::events`].
    pub order: Vec<EventRef>,
    /// The dumps' shared clock at the zero of the model, in nanoseconds.
    pub zero_ns: u64,
    by_id: HashMap<u64, u32, FixedState>,
}

impl Model {
    /// The record of an event.
    #[must_use]
    pub fn record(&self, event: EventRef) -> &Record {
        &self.nodes[usize::from(event.node)].records[event.index as usize]
    }

    /// The RPC with this id, which may be the client's or the server's.
    #[must_use]
    pub fn rpc(&self, id: u64) -> Option<&Rpc> {
        self.by_id.get(&(id & !1)).map(|index| &self.rpcs[*index as usize])
    }

    /// Whether the trace of this RPC's server, if there is one, covers all of the RPC. A trace ends when it
    /// is written or frozen; if other traces continue, the missing part would look like a long silence of the
    /// server.
    #[must_use]
    pub fn has_server_of(&self, rpc: &Rpc) -> bool {
        let (Some(server), Some(start)) = (self.nodes.get(usize::from(rpc.server)), rpc.start.ns()) else {
            return true;
        };
        // Once its response is sent, the server may have no more events to record.
        let sent = || self.data_of(&rpc.response).iter().all(|packet| packet.sent.is_some());
        server.covers(start) && (rpc.end.ns().is_none_or(|end| server.covers(end)) || sent())
    }

    /// The time since which every switch's trace is complete. Before it, a packet may have passed a switch
    /// that has overwritten its records.
    #[must_use]
    pub fn switches_remember_since_ns(&self) -> u64 {
        let forgetful =
            self.nodes.iter().filter(|node| node.kind == NodeKind::Switch && node.overwritten > 0);
        let first = forgetful.map(|node| node.records.first().map_or(u64::MAX, |record| record.time));
        first.max().unwrap_or(0)
    }

    /// The events of an RPC with the node that recorded each, by time.
    pub fn events_of<'a>(
        &'a self,
        rpc: &Rpc,
    ) -> impl ExactSizeIterator<Item = (NodeId, &'a Record)> + use<'a> {
        self.order[rpc.events.start as usize..rpc.events.end as usize]
            .iter()
            .map(|event| (event.node, self.record(*event)))
    }

    /// The packets of an RPC: those to the server first, within a direction by type, offset and time.
    #[must_use]
    pub fn packets_of(&self, rpc: &Rpc) -> &[Packet] {
        &self.packets[rpc.packets.start as usize..rpc.packets.end as usize]
    }

    /// The DATA packets of a message by offset, and for the same offset by time.
    #[must_use]
    pub fn data_of(&self, message: &Message) -> &[Packet] {
        &self.packets[message.data.start as usize..message.data.end as usize]
    }

    /// The name of a node, `?` for [`NO_NODE`].
    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(usize::from(node)).map_or("?", |node| &node.name)
    }

    /// The name of a place: a host and optionally a core, or a switch and optionally a port.
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

    /// The events of these kinds at a node within a range of time, by time.
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

    /// Time between the first event and the last, in nanoseconds.
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
