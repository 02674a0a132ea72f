//! Where packets spend their time between the endpoint that creates them and the one that processes them.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind};
use serde::Serialize;

use super::missing_events::MissingEvents;
use super::packet::{earlier, ends};
use super::percentiles::Percentiles;
use super::select::Select;
use crate::model::{DATA, GRANT};
use crate::model::{Direction, Model, ModelTime, NodeId, Packet};

/// Stages of a packet's path, in order. A stage begins where the previous known stage ends. If records in
/// between are missing, the next stage covers both. For each packet, the stages up to [`Stage::Batch`] add up
/// to [`Stage::Total`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Time from the packet's creation until its burst is handed to the driver.
    Out,
    /// Time from the end of [`Stage::Out`] until the device has sent the packet or the driver has accepted
    /// the burst. If the receiver reads the packet before the driver returns, the stage ends when the packet
    /// is read.
    Driver,
    /// Time from the previous stage until the receiver's device has the packet, the packet leaves the last
    /// switch, or the packet is read.
    Network,
    /// Time from the previous stage until the thread that reads the packet runs again, if the thread slept.
    WakeUp,
    /// Time from the previous stage until the packet's burst is read.
    Gap,
    /// Time from the previous stage until the endpoint processes the packet.
    Batch,
    /// Time from the packet's creation until it is processed.
    Total,
    /// Time from the packet's processing until its whole burst is processed; not part of the total.
    Rest,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 8] = [
        Stage::Out,
        Stage::Driver,
        Stage::Network,
        Stage::WakeUp,
        Stage::Gap,
        Stage::Batch,
        Stage::Total,
        Stage::Rest,
    ];
}

/// Times of a stage; `None` if no packet has the required records.
pub type Column = Option<Percentiles>;

/// The packets of one type in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelayTable {
    /// `data` or `grant`.
    pub packets: &'static str,
    /// The direction of the packets themselves.
    pub direction: Direction,
    /// Name of the sender, if the table is for one pair of nodes.
    pub from: Option<String>,
    /// Name of the receiver, if the table is for one pair of nodes.
    pub to: Option<String>,
    /// Times of each stage.
    pub stages: BTreeMap<Stage, Column>,
}

/// The bursts of a node's endpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bursts {
    /// Name of the node.
    pub node: String,
    /// Packets per burst read.
    pub packets_in: Column,
    /// Time from reading one burst to reading the next at the same endpoint.
    pub gap_in_ns: Column,
    /// Time from reading a burst until it is processed.
    pub processing_ns: Column,
    /// Packets per burst handed to the driver.
    pub packets_out: Column,
    /// Time from handing a burst to the driver until the driver has accepted it.
    pub driver_ns: Column,
}

/// The result of [`delays`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Delays {
    /// Tables for DATA and GRANT packets in each direction, if there are any.
    pub tables: Vec<DelayTable>,
    /// Bursts of each node that recorded any.
    pub bursts: Vec<Bursts>,
    /// Missing kinds of events, which explain missing stages.
    pub missing_events: Vec<MissingEvents>,
}

/// Returns the stages of all DATA and GRANT packets that both sender and receiver recorded. With `by_pair`,
/// also returns them for each pair of nodes.
#[must_use]
pub fn delays(model: &Model, select: &Select, by_pair: bool) -> Delays {
    let clock = Wakes::of(model);
    let mut found = Delays::default();
    for (packet_type, name) in [(DATA, "data"), (GRANT, "grant")] {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let class = Class { model, select, clock: &clock, packet_type, direction };
            let table = class.whole(name);
            if table.stages[&Stage::Total].is_some() {
                found.tables.push(table);
                if by_pair {
                    found.tables.extend(class.pairs(name));
                }
            }
        }
    }
    found.bursts = model
        .nodes
        .iter()
        .enumerate()
        .filter(|(number, node)| node.kind == NodeKind::Host && select.node(*number as NodeId))
        .filter_map(|(number, _)| bursts(model, number as NodeId, select))
        .collect();
    found.missing_events = missing_events(&found);
    found
}

fn missing_events(found: &Delays) -> Vec<MissingEvents> {
    let any = |stage| found.tables.iter().any(|table| table.stages[&stage].is_some());
    let mut missing_events = Vec::new();
    if found.tables.is_empty() {
        missing_events.push(MissingEvents::BothEnds);
    }
    if !any(Stage::Batch) {
        missing_events.push(MissingEvents::Bursts);
    }
    if !any(Stage::Gap) {
        missing_events.extend([MissingEvents::DeviceTimes, MissingEvents::Switch]);
    }
    missing_events
}

/// The times at which sleeping threads ran again, by endpoint.
struct Wakes(HashMap<(NodeId, u8), Vec<u64>, FixedState>);

impl Wakes {
    fn of(model: &Model) -> Wakes {
        let mut wakes: HashMap<_, Vec<u64>, FixedState> = HashMap::with_hasher(FixedState::default());
        for (number, node) in model.nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Host) {
            for record in node.records.iter().filter(|record| record.event() == Some(EventKind::Woken)) {
                wakes.entry((number as NodeId, record.place.endpoint())).or_default().push(record.time);
            }
        }
        Wakes(wakes)
    }

    /// Returns the time of the last wake-up between `from` and `until`.
    fn between(&self, node: NodeId, endpoint: u8, from: ModelTime, until: ModelTime) -> ModelTime {
        let (Some(from), Some(until), Some(times)) = (from.ns(), until.ns(), self.0.get(&(node, endpoint)))
        else {
            return ModelTime::NONE;
        };
        let behind = times.partition_point(|time| *time <= until);
        behind
            .checked_sub(1)
            .map(|index| times[index])
            .filter(|time| *time >= from)
            .map_or(ModelTime::NONE, ModelTime::new)
    }
}

/// Packets of one type in one direction.
struct Class<'a> {
    model: &'a Model,
    select: &'a Select,
    clock: &'a Wakes,
    packet_type: u8,
    direction: Direction,
}

impl Class<'_> {
    fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.model.packets.iter().filter(|packet| {
            packet.packet_type == self.packet_type
                && packet.direction == self.direction
                && packet.received.is_some()
                && packet.sent.is_some()
                && self.select.packet(self.model, packet)
        })
    }

    fn whole(&self, name: &'static str) -> DelayTable {
        let mut values = Vec::new();
        // Compute one stage at a time: the values of all stages of millions of packets would take as much
        // memory as the packets themselves.
        let stages = Stage::ALL.map(|stage| {
            values.clear();
            values.extend(self.packets().filter_map(|packet| self.stage_time(packet, stage)));
            (stage, Percentiles::of(&mut values))
        });
        DelayTable {
            packets: name,
            direction: self.direction,
            from: None,
            to: None,
            stages: stages.into_iter().collect(),
        }
    }

    fn pairs(&self, name: &'static str) -> Vec<DelayTable> {
        let mut tables: BTreeMap<(NodeId, NodeId), BTreeMap<Stage, Column>> = BTreeMap::new();
        let mut all = Vec::new();
        let mut values = Vec::new();
        for stage in Stage::ALL {
            all.clear();
            all.extend(
                self.packets()
                    .filter_map(|packet| Some((ends(self.model, packet), self.stage_time(packet, stage)?))),
            );
            all.sort_unstable();
            for pair in all.chunk_by(|a, b| a.0 == b.0) {
                values.clear();
                values.extend(pair.iter().map(|(_, value)| *value));
                let stages = tables
                    .entry(pair[0].0)
                    .or_insert_with(|| Stage::ALL.into_iter().map(|stage| (stage, None)).collect());
                stages.insert(stage, Percentiles::of(&mut values));
            }
        }
        let named = |node| Some(self.model.name(node).to_owned());
        tables
            .into_iter()
            .map(|((from, to), stages)| DelayTable {
                packets: name,
                direction: self.direction,
                from: named(from),
                to: named(to),
                stages,
            })
            .collect()
    }

    /// Returns the duration of one stage of this packet.
    fn stage_time(&self, packet: &Packet, stage: Stage) -> Option<i64> {
        let read = packet.read;
        let arrived = packet.device_received.or(packet.left);
        let network_end = arrived.or(read).or(packet.received);
        let driver_end =
            packet.device_sent.or(earlier(packet.taken, network_end_of(packet.taken, network_end)));
        match stage {
            Stage::Out => packet.handed.since(packet.sent),
            Stage::Driver => driver_end.since(packet.handed.or(packet.sent)),
            Stage::Network => network_end.since(driver_end.or(packet.handed).or(packet.sent)),
            Stage::WakeUp | Stage::Gap => {
                arrived.ns()?;
                let read = read.or(packet.received);
                let (_, to) = ends(self.model, packet);
                let woken = self.clock.between(to, packet.received_endpoint, arrived, read);
                match stage {
                    Stage::WakeUp => woken.since(arrived),
                    _ => read.since(woken.or(arrived)),
                }
            }
            Stage::Batch => packet.received.since(read),
            Stage::Total => packet.received.since(packet.sent),
            Stage::Rest => packet.processed.since(packet.received),
        }
    }
}

/// Returns the end of the network stage, if it is known when the driver's work ended.
fn network_end_of(taken: ModelTime, network_end: ModelTime) -> ModelTime {
    if taken.is_some() { network_end } else { ModelTime::NONE }
}

fn bursts(model: &Model, number: NodeId, select: &Select) -> Option<Bursts> {
    let node = &model.nodes[usize::from(number)];
    let (mut sizes_in, mut gaps, mut processing) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes_out, mut driver) = (Vec::new(), Vec::new());
    let mut last_in = [None::<u64>; 256];
    let mut last_out = [None::<u64>; 256];
    for record in node.records.iter().filter(|record| select.time(record.time)) {
        let endpoint = usize::from(record.place.endpoint());
        let since = |earlier: u64| (record.time - earlier) as i64;
        match record.event() {
            Some(EventKind::BurstIn) => {
                sizes_in.push(i64::from(record.a));
                gaps.extend(last_in[endpoint].map(since));
                last_in[endpoint] = Some(record.time);
            }
            Some(EventKind::BurstProcessed) => processing.extend(last_in[endpoint].map(since)),
            Some(EventKind::BurstOut) => {
                sizes_out.push(i64::from(record.a));
                last_out[endpoint] = Some(record.time);
            }
            Some(EventKind::BurstTaken) => driver.extend(last_out[endpoint].take().map(since)),
            _ => {}
        }
    }
    if sizes_in.is_empty() && sizes_out.is_empty() {
        return None;
    }
    Some(Bursts {
        node: node.name.clone(),
        packets_in: Percentiles::of(&mut sizes_in),
        gap_in_ns: Percentiles::of(&mut gaps),
        processing_ns: Percentiles::of(&mut processing),
        packets_out: Percentiles::of(&mut sizes_out),
        driver_ns: Percentiles::of(&mut driver),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, SERVER, SWITCH, Writer};
    use super::*;

    fn stage(delays: &Delays, table: usize, stage: Stage) -> Option<i64> {
        delays.tables[table].stages[&stage].map(|found| found.p100)
    }

    #[test]
    fn the_stages_of_a_packet_are_told_apart_and_sum_up() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 1_140);
        writer.burst(CLIENT, 1_005, EventKind::BurstOut, 1, 0).burst(
            CLIENT,
            1_015,
            EventKind::BurstTaken,
            1,
            0,
        );
        writer.switch(0, 1_050, 1_080);
        writer.burst(SERVER, 1_110, EventKind::Woken, 1, 0).burst(SERVER, 1_125, EventKind::BurstIn, 1, 0);
        writer.burst(SERVER, 1_200, EventKind::BurstProcessed, 1, 0);
        let found = delays(&writer.model(), &Select::default(), true);
        let took = Stage::ALL.map(|of| stage(&found, 0, of).expect("a stamp"));
        assert_eq!(took, [5, 10, 65, 30, 15, 15, 140, 60]);
        assert_eq!(took[..6].iter().sum::<i64>(), took[6]);
        assert_eq!((found.tables.len(), found.tables[1].from.as_deref()), (2, Some("c")));
        assert_eq!(found.tables[1].stages, found.tables[0].stages);
        assert!(found.missing_events.is_empty(), "{:?}", found.missing_events);
        let server = found.bursts.iter().find(|bursts| bursts.node == "s").expect("bursts");
        assert_eq!(server.processing_ns.expect("one").p50, 75);
    }

    #[test]
    fn without_stamps_the_network_has_it_all_and_it_is_said_what_is_missing() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 1_140).data(1_000, 2_000, 2_200);
        let found = delays(&writer.model(), &Select::default(), false);
        assert_eq!(stage(&found, 0, Stage::Network), Some(200));
        assert_eq!(stage(&found, 0, Stage::Total), Some(200));
        assert_eq!(stage(&found, 0, Stage::Driver), None);
        assert_eq!(
            found.missing_events,
            [MissingEvents::Bursts, MissingEvents::DeviceTimes, MissingEvents::Switch]
        );
    }

    #[test]
    fn a_driver_that_comes_back_late_had_the_packet_until_it_was_read() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 1_100);
        writer.burst(CLIENT, 1_005, EventKind::BurstOut, 1, 0).burst(
            CLIENT,
            1_500,
            EventKind::BurstTaken,
            1,
            0,
        );
        writer.burst(SERVER, 1_090, EventKind::BurstIn, 1, 0);
        let found = delays(&writer.model(), &Select::default(), false);
        assert_eq!(stage(&found, 0, Stage::Driver), Some(85));
        assert_eq!(stage(&found, 0, Stage::Network), Some(0));
        assert_eq!(stage(&found, 0, Stage::Batch), Some(10));
    }

    #[test]
    fn what_is_not_asked_for_is_left_out() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 1_140).data(1_000, 2_000, 2_200);
        let model = writer.model();
        let early = Select { until_ns: Some(500), ..Select::default() };
        assert_eq!(stage(&delays(&model, &early, false), 0, Stage::Total), Some(140));
        let nobody = Select { nodes: vec![SWITCH as NodeId], ..Select::default() };
        assert!(delays(&model, &nobody, false).tables.is_empty());
    }
}
