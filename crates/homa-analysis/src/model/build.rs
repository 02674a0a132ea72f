//! Builds a model from dumps.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{Dump, EventKind, NodeKind, Record};

use super::packets::Matcher;
use super::{AT_MAX_NS, EventRef, Message, Model, ModelTime, NO_NODE, Node, NodeId, Rpc};

/// Maximum number of nodes in a model, inclusive.
const NODES_MAX: usize = 60_000;
/// Maximum number of events of a node, inclusive: event numbers have 32 bits.
const RECORDS_MAX: usize = u32::MAX as usize;
/// Value for the RPC of an event that belongs to no RPC.
const NO_RPC: u32 = u32::MAX;

/// Reasons why no model can be built from the dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There are no dumps, or none contains an event.
    Empty,
    /// There are too many nodes or events to number.
    TooLarge,
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BuildError::Empty => {
                "the traces hold no events: record with a larger --trace-records, or under load"
            }
            BuildError::TooLarge => {
                "the traces have more nodes or events than one analysis can number: pass fewer files"
            }
        })
    }
}

impl std::error::Error for BuildError {}

impl Model {
    /// Builds a model from the events of these dumps. If several dumps belong to the same node (several
    /// endpoints, or several files), they become separate nodes.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn new(dumps: Vec<Dump>) -> Result<Model, BuildError> {
        let (nodes, zero_ns) = normalise(dumps)?;
        let index = Index::of(&nodes)?;
        let mut model = Model {
            rpcs: Vec::with_capacity(index.ids.len()),
            packets: Vec::new(),
            order: index.order,
            zero_ns,
            by_id: HashMap::with_hasher(FixedState::default()),
            nodes,
        };
        for (number, id) in index.ids.iter().enumerate() {
            let events = index.starts[number]..index.starts[number + 1];
            model.by_id.insert(*id, number as u32);
            model.rpcs.push(rpc(&model, *id, events));
        }
        let mut matcher = Matcher::new(&model.nodes);
        let mut packets = Vec::new();
        for number in 0..model.rpcs.len() {
            let ranges = matcher.packets_of(&model, number as u32, &mut packets);
            let rpc = &mut model.rpcs[number];
            rpc.packets = ranges.all;
            rpc.request.data = ranges.request;
            rpc.response.data = ranges.response;
        }
        model.packets = packets;
        Ok(model)
    }
}

/// Converts dumps to nodes, with sorted records and with times in nanoseconds since shortly before the first
/// event.
fn normalise(dumps: Vec<Dump>) -> Result<(Vec<Node>, u64), BuildError> {
    if dumps.len() > NODES_MAX || dumps.iter().any(|dump| dump.records.len() > RECORDS_MAX) {
        return Err(BuildError::TooLarge);
    }
    let times = dumps.iter().flat_map(|dump| dump.records.iter().map(|record| dump.time_ns(record)));
    // The zero is one nanosecond before the first event, so that no event is at zero.
    let zero_ns = times.min().ok_or(BuildError::Empty)?.saturating_sub(1);
    let nodes = dumps.into_iter().enumerate().map(|(number, mut dump)| {
        let mut records = std::mem::take(&mut dump.records);
        for record in &mut records {
            // Only a damaged trace is this long. Sums of its times would overflow.
            record.time = (dump.time_ns(record) - zero_ns).min(AT_MAX_NS);
        }
        if !records.is_sorted_by_key(|record| record.time) {
            records.sort_by_key(|record| record.time);
        }
        let name = if dump.node.name.is_empty() { format!("node-{}", number + 1) } else { dump.node.name };
        Node {
            name,
            kind: dump.node.kind,
            others: dump.node.others,
            uncertainty_ns: dump.alignment.map_or(0, |alignment| alignment.uncertainty_ns),
            overwritten: dump.overwritten,
            records,
        }
    });
    Ok((nodes.collect(), zero_ns))
}

/// The events of each RPC.
struct Index {
    /// The RPCs' IDs at their clients.
    ids: Vec<u64>,
    /// Where the events of each RPC begin in `order`; the last entry is the end.
    starts: Vec<u32>,
    order: Vec<EventRef>,
}

impl Index {
    fn of(nodes: &[Node]) -> Result<Index, BuildError> {
        let total: usize = nodes.iter().map(|node| node.records.len()).sum();
        if total > RECORDS_MAX {
            return Err(BuildError::TooLarge);
        }
        let mut numbers: HashMap<u64, u32, FixedState> = HashMap::with_hasher(FixedState::default());
        // Number, ID and first event of each RPC, and the RPC of each event.
        let mut rpcs: Vec<(u64, u64)> = Vec::new();
        let mut whose = Vec::with_capacity(total);
        // Consecutive events often belong to the same RPC.
        let mut last = (0, NO_RPC);
        for record in nodes.iter().flat_map(|node| &node.records) {
            if record.id == 0 {
                whose.push(NO_RPC);
                continue;
            }
            let id = record.id & !1;
            let number = if last.0 == id && last.1 != NO_RPC {
                last.1
            } else {
                *numbers.entry(id).or_insert_with(|| {
                    rpcs.push((id, record.time));
                    (rpcs.len() - 1) as u32
                })
            };
            last = (id, number);
            let first = &mut rpcs[number as usize].1;
            *first = (*first).min(record.time);
            whose.push(number);
        }
        drop(numbers);
        let mut by_time: Vec<u32> = (0..rpcs.len() as u32).collect();
        by_time.sort_by_key(|number| (rpcs[*number as usize].1, rpcs[*number as usize].0));
        let mut rank = vec![0; rpcs.len()];
        for (place, number) in by_time.iter().enumerate() {
            rank[*number as usize] = place as u32;
        }
        let ids: Vec<u64> = by_time.iter().map(|number| rpcs[*number as usize].0).collect();
        let (starts, order) = distribute(nodes, &whose, &rank);
        Ok(Index { ids, starts, order })
    }
}

/// Groups the events by RPC in the order of `rank`, and sorts them by time within each RPC.
fn distribute(nodes: &[Node], whose: &[u32], rank: &[u32]) -> (Vec<u32>, Vec<EventRef>) {
    let mut starts = vec![0_u32; rank.len() + 1];
    for number in whose.iter().filter(|number| **number != NO_RPC) {
        starts[rank[*number as usize] as usize + 1] += 1;
    }
    for place in 1..starts.len() {
        starts[place] += starts[place - 1];
    }
    let mut next = starts.clone();
    let count = starts.last().map_or(0, |last| *last as usize);
    let mut order = vec![EventRef { node: 0, index: 0 }; count];
    let events = nodes.iter().enumerate().flat_map(|(node, of)| {
        (0..of.records.len()).map(move |index| EventRef { node: node as NodeId, index: index as u32 })
    });
    for (event, number) in events.zip(whose).filter(|(_, number)| **number != NO_RPC) {
        let at = &mut next[rank[*number as usize] as usize];
        order[*at as usize] = event;
        *at += 1;
    }
    for range in starts.windows(2) {
        // The sort is stable: events with the same time keep the order of their nodes and records.
        order[range[0] as usize..range[1] as usize].sort_by_key(|event| time(nodes, *event));
    }
    (starts, order)
}

fn time(nodes: &[Node], event: EventRef) -> u64 {
    nodes[usize::from(event.node)].records[event.index as usize].time
}

/// Builds an RPC and its messages, without packets, from its events.
fn rpc(model: &Model, id: u64, events: std::ops::Range<u32>) -> Rpc {
    let mut rpc = Rpc {
        id,
        client: NO_NODE,
        server: NO_NODE,
        request: Message::default(),
        response: Message::default(),
        start: ModelTime::NONE,
        starts_in_trace: false,
        end: ModelTime::NONE,
        result: None,
        packets: 0..0,
        events,
    };
    let mut began = ModelTime::NONE;
    for event in &model.order[rpc.events.start as usize..rpc.events.end as usize] {
        if model.nodes[usize::from(event.node)].kind != NodeKind::Host {
            continue;
        }
        let record = model.record(*event);
        let at_client = record.id & 1 == 0;
        let node = if at_client { &mut rpc.client } else { &mut rpc.server };
        if *node == NO_NODE {
            *node = event.node;
        }
        if at_client {
            rpc.start.set_first(record.time);
            note_end(&mut rpc, record);
        }
        note_message(&mut rpc, record, at_client, &mut began);
    }
    if began.is_some() {
        (rpc.start, rpc.starts_in_trace) = (began, true);
    }
    rpc
}

fn note_end(rpc: &mut Rpc, record: &Record) {
    match record.event() {
        Some(EventKind::RpcEnd) => {
            rpc.result = rpc.result.or(Some(record.a));
            rpc.end.set_first(record.time);
        }
        // The RPC already has its response when the application receives it.
        Some(EventKind::AppReceive) if record.a == 1 => rpc.end.set_last(record.time),
        _ => {}
    }
}

fn note_message(rpc: &mut Rpc, record: &Record, at_client: bool, began: &mut ModelTime) {
    let Some(kind) = record.event() else { return };
    let (sending, receiving) = match at_client {
        true => (&mut rpc.request, &mut rpc.response),
        false => (&mut rpc.response, &mut rpc.request),
    };
    match kind {
        EventKind::RpcStart => {
            if at_client {
                began.set_first(record.time);
                sending.submitted.set_first(record.time);
                sending.length = record.b;
            } else {
                receiving.length = record.b;
            }
        }
        EventKind::AppSend => {
            if at_client {
                began.set_first(record.time);
            }
            sending.submitted.set_first(record.time);
            sending.length = record.b;
        }
        EventKind::MessageComplete => {
            receiving.complete.set_first(record.time);
            receiving.length = record.b;
        }
        EventKind::AppReceive => receiving.taken.set_first(record.time),
        EventKind::WakeSent => receiving.woken.set_first(record.time),
        EventKind::WaitGrant => {
            sending.first_wait_grant.set_first(record.time);
            sending.length = record.b;
        }
        EventKind::GrantSent => receiving.first_grant_sent.set_first(record.time),
        EventKind::GrantReceived => sending.first_grant.set_first(record.time),
        EventKind::PacketSent if is_data(record) => {
            sending.first_sent.set_first(record.time);
            sending.last_sent.set_last(record.time);
        }
        EventKind::PacketReceived if is_data(record) => receiving.first_received.set_first(record.time),
        _ => {}
    }
}

fn is_data(record: &Record) -> bool {
    homa_trace::packet_word_parts(record.a).0 == super::packets::DATA
}
