//! RPCs, messages and packets, put together from the events of all nodes.
//!
//! A packet is known by its RPC, its direction, its type and its offset; hosts and switches record these, so that what one
//! host sent is found again in each switch and at its receiver. All times are nanoseconds since shortly before the first event of
//! all dumps, on the clock that the dumps share: [align](homa_trace::Alignment) dumps of several machines first.

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

/// A moment in nanoseconds since the zero of the model, or none. Takes 6 bytes, since packets have ten of them and are the most of a model;
/// the parts are in the order of their weight, so that comparing them compares moments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At([u16; 3]);

/// The last moment that there is: after three days. What comes later is taken for this.
const AT_MAX_NS: u64 = (1 << 48) - 2;

impl At {
    /// No moment: the event is not in any trace.
    pub const NONE: At = At([u16::MAX; 3]);

    /// This moment.
    #[must_use]
    pub const fn new(ns: u64) -> At {
        let ns = if ns > AT_MAX_NS { AT_MAX_NS } else { ns };
        At([(ns >> 32) as u16, (ns >> 16) as u16, ns as u16])
    }

    /// Nanoseconds since the zero of the model.
    #[must_use]
    pub const fn ns(self) -> Option<u64> {
        let [high, middle, low] = self.0;
        let ns = (high as u64) << 32 | (middle as u64) << 16 | low as u64;
        if ns > AT_MAX_NS { None } else { Some(ns) }
    }

    /// Whether there is such a moment.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.ns().is_some()
    }

    /// Nanoseconds from `earlier` to this moment, if both are known. Negative where clocks disagree.
    #[must_use]
    pub fn since(self, earlier: At) -> Option<i64> {
        Some(self.ns()?.wrapping_sub(earlier.ns()?) as i64)
    }

    /// The first of the two that is known.
    #[must_use]
    pub const fn or(self, other: At) -> At {
        if self.is_some() { self } else { other }
    }

    pub(crate) fn set_first(&mut self, ns: u64) {
        *self = (*self).min(At::new(ns));
    }

    pub(crate) fn set_last(&mut self, ns: u64) {
        if self.ns().is_none_or(|last| last < ns) {
            *self = At::new(ns);
        }
    }
}

impl Default for At {
    fn default() -> At {
        At::NONE
    }
}

impl std::fmt::Debug for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ns() {
            Some(ns) => write!(f, "{ns} ns"),
            None => f.write_str("-"),
        }
    }
}

/// Number of a node in [`Model::nodes`].
pub type NodeId = u16;

/// In place of a [`NodeId`]: no trace of that node is there.
pub const NO_NODE: NodeId = NodeId::MAX;

/// A host or switch with its events.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Names of the numbers in its records: peers of a host, ports of a switch.
    pub others: BTreeMap<u16, String>,
    /// Nanoseconds by which its times may be off against those of the other nodes, either way.
    pub uncertainty_ns: u64,
    /// Events older than the first, which newer ones have overwritten.
    pub overwritten: u64,
    /// Its events in the order of their times, which are in nanoseconds since the zero of the model.
    pub records: Vec<Record>,
}

impl Node {
    /// Its events where it is a host; none of a switch.
    #[must_use]
    pub fn host_records(&self) -> &[Record] {
        if self.kind == NodeKind::Host { &self.records } else { &[] }
    }

    /// Whether something that happened at this moment would be in the trace.
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
    /// Whose.
    pub node: NodeId,
    /// Number of the event in [`Node::records`].
    pub index: u32,
}

/// Which way a message goes, and its packets. What the receiver of a message says of it (grants, RESENDs) goes the other way than the
/// message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client: requests, and what a client says of responses.
    ToServer,
    /// From the server: responses, and what a server says of requests.
    ToClient,
}

impl Direction {
    /// The other way.
    #[must_use]
    pub const fn back(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// A request or a response on its way.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Bytes; 0 where no event says.
    pub length: u32,
    /// The sending application handed it over. Without that event: when its endpoint first had it.
    pub submitted: At,
    /// Its first packet was handed to the driver.
    pub first_sent: At,
    /// The last of its packets that was sent for the first time was handed to the driver.
    pub last_sent: At,
    /// The first of its packets was processed at the receiver.
    pub first_received: At,
    /// It waited for a grant for the first time.
    pub first_wait_grant: At,
    /// Its first grant was sent by the receiver, and received by the sender.
    pub first_grant_sent: At,
    /// Its first grant was received by its sender.
    pub first_grant: At,
    /// Its last byte was processed at the receiver.
    pub complete: At,
    /// A thread of the receiving application was woken for it.
    pub woken: At,
    /// The receiving application took it.
    pub taken: At,
    /// Its DATA packets in [`Model::packets`], by offset and then by time.
    pub data: std::ops::Range<u32>,
}

impl Message {
    /// The moment at which the receiving application has it, as well as the traces tell.
    #[must_use]
    pub fn arrived(&self) -> At {
        self.taken.or(self.complete)
    }
}

/// An RPC as far as the traces know it.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// Its id at the client, which is even; the server's is one more.
    pub id: u64,
    /// The client, or [`NO_NODE`].
    pub client: NodeId,
    /// The server, or [`NO_NODE`].
    pub server: NodeId,
    /// From client to server.
    pub request: Message,
    /// From server to client.
    pub response: Message,
    /// The client's application began it, or the first event of it at the client where that is not in the trace.
    pub start: At,
    /// Whether `start` is the true start, and not the first of what the trace still has.
    pub starts_in_trace: bool,
    /// It ended at the client: the application has its response, or its error.
    pub end: At,
    /// How it ended at the client: 0 for success, else the error as [`EventKind::RpcEnd`] has it; `None`: not in the trace.
    pub result: Option<u32>,
    /// All its events in [`Model::order`], by time.
    pub events: std::ops::Range<u32>,
    /// Its packets in [`Model::packets`].
    pub packets: std::ops::Range<u32>,
}

impl Rpc {
    /// The message that goes this way.
    #[must_use]
    pub fn message(&self, direction: Direction) -> &Message {
        match direction {
            Direction::ToServer => &self.request,
            Direction::ToClient => &self.response,
        }
    }

    /// Nanoseconds from its start to its end at the client. `None` unless both are in the trace and it succeeded.
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

/// A packet on its way from one host to the other, by all that saw it.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Number of its RPC in [`Model::rpcs`].
    pub rpc: u32,
    /// Bytes, headers of Homa included.
    pub length: u32,
    /// Offset of its first payload byte in the message; 0 for packets without payload.
    pub offset: u32,
    /// Its type as on the wire.
    pub packet_type: u8,
    /// Its priority, 0 to 7.
    pub priority: u8,
    /// The priority with which its receiver got it; `None`: not received, or the driver does not say.
    pub received_priority: Option<u8>,
    /// Which way it goes.
    pub direction: Direction,
    /// Whether a DATA packet of the same offset had been sent before.
    pub again: bool,
    /// What became of it.
    pub fate: Fate,
    /// The switch that saw it, or [`NO_NODE`], and the port by which it was to leave. Of several switches the last one.
    pub switch: NodeId,
    /// See `switch`.
    pub port: u16,
    /// The endpoint of the sender's host that sent it, and of the receiver's that received it.
    pub sent_endpoint: u8,
    /// See `sent_endpoint`.
    pub received_endpoint: u8,
    /// The sender's endpoint made it.
    pub sent: At,
    /// The burst that it is in was about to be handed to the driver.
    pub handed: At,
    /// The driver had taken that burst.
    pub taken: At,
    /// The sender's device or kernel sent it.
    pub device_sent: At,
    /// It was put into a queue of the first switch.
    pub entered: At,
    /// It left the last switch.
    pub left: At,
    /// The receiver's device or kernel had it.
    pub device_received: At,
    /// The burst that it came in was read from the driver.
    pub read: At,
    /// The receiver's endpoint processed it.
    pub received: At,
    /// The receiver's endpoint had processed the whole burst.
    pub processed: At,
}

/// Ten million events are of up to six million packets, and all of it is to fit a gigabyte.
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
            sent: At::NONE,
            handed: At::NONE,
            taken: At::NONE,
            device_sent: At::NONE,
            entered: At::NONE,
            left: At::NONE,
            device_received: At::NONE,
            read: At::NONE,
            received: At::NONE,
            processed: At::NONE,
        }
    }

    /// The first moment at which anybody saw it.
    #[must_use]
    pub fn first_seen(&self) -> At {
        let times =
            [self.sent, self.device_sent, self.entered, self.left, self.device_received, self.received];
        times.into_iter().min().unwrap_or(At::NONE)
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was received.
    Received,
    /// A switch dropped it; the reason as the switch numbers its reasons.
    Dropped(u16),
    /// The receiver's trace covers the time and does not have it.
    Lost,
    /// No trace says.
    Unknown,
}

/// Everything that a set of traces says.
#[derive(Clone, Debug)]
pub struct Model {
    /// The nodes, in the order of the dumps.
    pub nodes: Vec<Node>,
    /// The RPCs, by their first event.
    pub rpcs: Vec<Rpc>,
    /// The packets of all RPCs: those of an RPC are together, see [`Rpc::packets`].
    pub packets: Vec<Packet>,
    /// The events of all RPCs: those of an RPC are together, see [`Rpc::events`].
    pub order: Vec<EventRef>,
    /// Nanoseconds of the dumps' shared clock at the zero of the model.
    pub zero_ns: u64,
    by_id: HashMap<u64, u32, FixedState>,
}

impl Model {
    /// The record of an event.
    #[must_use]
    pub fn record(&self, event: EventRef) -> &Record {
        &self.nodes[usize::from(event.node)].records[event.index as usize]
    }

    /// The RPC with this id, whether it is the client's or the server's.
    #[must_use]
    pub fn rpc(&self, id: u64) -> Option<&Rpc> {
        self.by_id.get(&(id & !1)).map(|index| &self.rpcs[*index as usize])
    }

    /// Whether the trace of this RPC's server has all of it that it could have; also where there is none. A trace ends when it is written or
    /// frozen, and while others go on its host's part of their RPCs would look like one long silence.
    #[must_use]
    pub fn has_server_of(&self, rpc: &Rpc) -> bool {
        let (Some(server), Some(start)) = (self.nodes.get(usize::from(rpc.server)), rpc.start.ns()) else {
            return true;
        };
        // The server may have nothing more to record once its response is sent.
        let sent = || self.data_of(&rpc.response).iter().all(|packet| packet.sent.is_some());
        server.covers(start) && (rpc.end.ns().is_none_or(|end| server.covers(end)) || sent())
    }

    /// The moment from which on every switch's trace has everything: before it, a packet may have passed a switch that has forgotten it.
    #[must_use]
    pub fn switches_remember_since_ns(&self) -> u64 {
        let forgetful =
            self.nodes.iter().filter(|node| node.kind == NodeKind::Switch && node.overwritten > 0);
        let first = forgetful.map(|node| node.records.first().map_or(u64::MAX, |record| record.time));
        first.max().unwrap_or(0)
    }

    /// The events of an RPC with who recorded them, by time.
    pub fn events_of<'a>(
        &'a self,
        rpc: &Rpc,
    ) -> impl ExactSizeIterator<Item = (NodeId, &'a Record)> + use<'a> {
        self.order[rpc.events.start as usize..rpc.events.end as usize]
            .iter()
            .map(|event| (event.node, self.record(*event)))
    }

    /// The packets of an RPC: those to the server first, in each direction by type, offset and time.
    #[must_use]
    pub fn packets_of(&self, rpc: &Rpc) -> &[Packet] {
        &self.packets[rpc.packets.start as usize..rpc.packets.end as usize]
    }

    /// The DATA packets of a message by offset, and of the same offset by time.
    #[must_use]
    pub fn data_of(&self, message: &Message) -> &[Packet] {
        &self.packets[message.data.start as usize..message.data.end as usize]
    }

    /// The name of a node, "?" for [`NO_NODE`].
    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(usize::from(node)).map_or("?", |node| &node.name)
    }

    /// A place in words: a host and perhaps a core, a switch and perhaps a port.
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

    /// The events of a node of these kinds within a time, by time.
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
