//! Lost packets: where they were lost, how the losses were detected, and what they cost.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record, drop_reason_name};
use serde::Serialize;

use super::packet::{ends, way_ns};
use super::percentiles::Percentiles;
use super::percentiles::median;
use super::select::Select;
use crate::model::DATA;
use crate::model::{Direction, Fate, Model, ModelTime, NO_NODE, NodeId, Packet, Rpc};

/// Where a packet was lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossSite {
    /// A switch dropped the packet.
    Switch {
        /// Name of the switch.
        switch: String,
        /// The output port.
        port: String,
        /// The queue of the port.
        queue: u16,
        /// The switch's number for the reason.
        reason: u16,
    },
    /// The endpoint of the receiving host dropped the packet.
    Host {
        /// Name of the host.
        host: String,
        /// The reason, as [`homa_trace::DROP_REASONS`] names it, if the trace has it.
        reason: Option<&'static str>,
    },
    /// Lost on the way: the packet was sent, and the receiver's trace covers the time but does not contain
    /// the packet.
    Between {
        /// The last node that recorded the packet.
        after: String,
        /// The packet's receiver.
        before: String,
    },
}

/// How a loss was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossDetection {
    /// The packet's receiver sent RESEND.
    Resend,
    /// The sender retransmitted the packet without a RESEND for it, or because of other packets.
    Sender,
    /// No trace shows that the loss was detected, or no node needed the packet.
    Never,
}

/// One lost packet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// The RPC, by its ID at the client.
    pub rpc: u64,
    /// Packet type on the wire.
    pub packet_type: u8,
    /// Offset of the packet's payload in the message.
    pub offset: u32,
    /// Length of the packet in bytes.
    pub length: u32,
    /// Priority of the packet.
    pub priority: u8,
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// When the packet was first recorded, in nanoseconds since the zero of the model.
    pub at_ns: u64,
    /// Where the packet was lost.
    pub place: LossSite,
    /// How the loss was detected. Traces show this only for DATA packets.
    pub found: LossDetection,
    /// Time from the transmission of the packet to the RESEND, or to the retransmission if there was no
    /// RESEND.
    pub found_after_ns: Option<i64>,
    /// Time from the transmission of the packet until its content had arrived.
    pub repaired_after_ns: Option<i64>,
    /// The delay that the loss caused for the completion of its message. The delay starts when the rest of
    /// the message had arrived, or when this packet would have arrived after a median one-way delay,
    /// whichever is later. It ends when the packet's content arrived.
    pub cost_ns: Option<i64>,
}

/// Packets lost at one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossPlace {
    /// The place.
    pub place: LossSite,
    /// Number of lost packets.
    pub packets: u64,
    /// Bytes of the lost packets.
    pub bytes: u64,
}

/// The result of [`lost`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    /// Number of packets examined: all packets that their sender or a switch recorded.
    pub packets: u64,
    /// Number of packets whose fate no trace shows.
    pub unknown: u64,
    /// The places of losses, the worst first.
    pub places: Vec<LossPlace>,
    /// Times until losses were detected, in nanoseconds.
    pub found_after_ns: Option<Percentiles>,
    /// Times until losses were repaired, in nanoseconds.
    pub repaired_after_ns: Option<Percentiles>,
    /// Delays of the messages' completion, in nanoseconds.
    pub cost_ns: Option<Percentiles>,
    /// All losses, sorted by time.
    pub losses: Vec<Loss>,
}

/// Finds all lost packets.
#[must_use]
pub fn lost(model: &Model, select: &Select) -> Losses {
    let mut found = Losses::default();
    let dropped = dropped_by_hosts(model);
    let queues = queues_of_drops(model);
    let usual = UsualDelay::of(model);
    for rpc in &model.rpcs {
        let packets = model.packets_of(rpc);
        let mut repairs = None;
        let mut lost_here: Vec<(usize, u32)> = Vec::new();
        for (index, packet) in packets.iter().enumerate() {
            if !select.packet(model, packet) {
                continue;
            }
            found.packets += 1;
            let lost = match packet.fate {
                Fate::Dropped(_) | Fate::Lost => Some(0),
                Fate::Received => dropped_by_host(packet, &dropped, rpc.id).filter(|_| {
                    // A packet that a host drops as a duplicate is not a loss, because its content had
                    // already arrived.
                    repairs.get_or_insert_with(|| Repairs::of(packets)).of_packet(packets, index).is_some()
                }),
                Fate::Unknown => {
                    found.unknown += 1;
                    None
                }
            };
            lost_here.extend(lost.map(|reason| (index, reason)));
        }
        if lost_here.is_empty() {
            continue;
        }
        let repairs = repairs.unwrap_or_else(|| Repairs::of(packets));
        let messages = Messages::of(model, rpc, &lost_here);
        for ((index, reason), asked) in lost_here.iter().zip(&messages.asked) {
            let place = loss_site(model, &packets[*index], *reason, &queues);
            let repaired =
                repairs.of_packet(packets, *index).map_or(ModelTime::NONE, |repair| repair.received);
            found.losses.push(loss(model, packets, *index, place, (*asked, repaired), &messages, &usual));
        }
    }
    found.losses.sort_by_key(|loss| (loss.at_ns, loss.rpc, loss.offset));
    let of = |value: fn(&Loss) -> Option<i64>| {
        Percentiles::of(&mut found.losses.iter().filter_map(value).collect::<Vec<_>>())
    };
    found.found_after_ns = of(|loss| loss.found_after_ns);
    found.repaired_after_ns = of(|loss| loss.repaired_after_ns);
    found.cost_ns = of(|loss| loss.cost_ns);
    found.places = places(&found.losses);
    found
}

fn places(losses: &[Loss]) -> Vec<LossPlace> {
    let mut counts: BTreeMap<&LossSite, (u64, u64)> = BTreeMap::new();
    for loss in losses {
        let count = counts.entry(&loss.place).or_default();
        count.0 += 1;
        count.1 += u64::from(loss.length);
    }
    let mut places: Vec<LossPlace> = counts
        .into_iter()
        .map(|(place, (packets, bytes))| LossPlace { place: place.clone(), packets, bytes })
        .collect();
    places.sort_by_key(|place| std::cmp::Reverse(place.packets));
    places
}

/// When hosts dropped packets, and for which reason (its number), keyed by the RPC's ID and the packet word.
type HostDrops = HashMap<(u64, u32), Vec<(u64, u32)>, FixedState>;

fn dropped_by_hosts(model: &Model) -> HostDrops {
    let mut dropped = HostDrops::default();
    for node in model.nodes.iter().filter(|node| node.kind == NodeKind::Host) {
        for record in &node.records {
            if record.event() == Some(EventKind::PacketDropped) && record.id > 1 {
                dropped.entry((record.id & !1, record.a)).or_default().push((record.time, record.b));
            }
        }
    }
    // Two hosts may have dropped such packets, so merge the drops by time.
    dropped.values_mut().for_each(|drops| drops.sort_by_key(|(time, _)| *time));
    dropped
}

/// Maximum time from the record of a packet's receipt to the record of its drop, in nanoseconds. It allows
/// for the processing of one packet.
const DROP_WITHIN_NS: u64 = 100_000;

/// Returns the number of the reason why the receiver's endpoint dropped this packet.
fn dropped_by_host(packet: &Packet, dropped: &HostDrops, rpc: u64) -> Option<u32> {
    let word = homa_trace::packet_word(packet.packet_type, packet.length);
    let (drops, received) = (dropped.get(&(rpc, word))?, packet.received.ns()?);
    let &(time, reason) = drops.get(drops.partition_point(|(time, _)| *time < received))?;
    (time <= received.saturating_add(DROP_WITHIN_NS)).then_some(reason)
}

/// Returns the next packet with the same payload.
fn next_try(packets: &[Packet], index: usize) -> Option<&Packet> {
    let packet = &packets[index];
    let next = packets.get(index + 1)?;
    let same = packet.packet_type == DATA
        && next.packet_type == DATA
        && (next.direction, next.offset) == (packet.direction, packet.offset);
    same.then_some(next)
}

/// For each packet of an RPC, the later packet with the same payload that arrived. Built from the last packet
/// to the first, because there may be any number of retransmissions.
struct Repairs(Vec<Option<u32>>);

impl Repairs {
    fn of(packets: &[Packet]) -> Repairs {
        let mut repairs = vec![None; packets.len()];
        for index in (0..packets.len()).rev() {
            if let Some(next) = next_try(packets, index) {
                let came = next.fate == Fate::Received;
                repairs[index] = if came { Some(index as u32 + 1) } else { repairs[index + 1] };
            }
        }
        Repairs(repairs)
    }

    fn of_packet<'a>(&self, packets: &'a [Packet], index: usize) -> Option<&'a Packet> {
        self.0[index].map(|repair| &packets[repair as usize])
    }
}

/// The queues in which switches dropped packets, with the times of the drops, keyed by the packet's ID, word
/// and offset.
type Queues = HashMap<(u64, u32, u32), Vec<(u64, u16)>, FixedState>;

fn queues_of_drops(model: &Model) -> Queues {
    let mut queues = Queues::default();
    for node in model.nodes.iter().filter(|node| node.kind == NodeKind::Switch) {
        for record in &node.records {
            if record.event() == Some(EventKind::SwitchDropped) {
                let key = (record.id, record.a, record.b);
                queues.entry(key).or_default().push((record.time, record.place.queue()));
            }
        }
    }
    // Several switches may have dropped such packets, so merge the drops by time.
    queues.values_mut().for_each(|drops| drops.sort_by_key(|(time, _)| *time));
    queues
}

/// The data about an RPC's messages with which its losses are compared. Computed only once, because a message
/// of millions of packets may have lost thousands.
struct Messages {
    /// For each loss, when the receiver first requested the lost bytes.
    asked: Vec<ModelTime>,
    /// For the request and the response, when all packets other than retransmissions had arrived.
    others: [ModelTime; 2],
}

impl Messages {
    fn of(model: &Model, rpc: &Rpc, lost: &[(usize, u32)]) -> Messages {
        let others = [Direction::ToServer, Direction::ToClient].map(|direction| {
            let data = model.data_of(rpc.message(direction)).iter().filter(|packet| !packet.again);
            data.filter_map(|packet| packet.received.ns()).max().map_or(ModelTime::NONE, ModelTime::new)
        });
        Messages { asked: first_requests(model, rpc, lost), others }
    }

    /// Returns when the packet's message would have been complete without the loss: when the other packets
    /// (except retransmissions) had arrived, and the packet itself would have arrived with the usual delay.
    fn completion_without_loss(&self, packet: &Packet, usual: &UsualDelay) -> ModelTime {
        let own = packet.first_seen().ns().map(|ns| ns.saturating_add(usual.way_ns));
        let others = self.others[packet.direction as usize].ns();
        others.into_iter().chain(own).max().map_or(ModelTime::NONE, ModelTime::new)
    }
}

/// Returns, for each loss in `lost`, when the receiver of the DATA packet first requested the lost bytes.
///
/// Goes through packets and RESENDs from the last to the first, and keeps, for each byte, the earliest RESEND
/// after the packet. The cost of searching all RESENDs for each loss would be the product of both counts.
fn first_requests(model: &Model, rpc: &Rpc, lost: &[(usize, u32)]) -> Vec<ModelTime> {
    let packets = model.packets_of(rpc);
    let is_resend = |record: &Record| record.event() == Some(EventKind::ResendSent);
    let resends: Vec<(NodeId, &Record)> =
        model.events_of(rpc).filter(|(_, record)| is_resend(record)).collect();
    let mut asked = vec![ModelTime::NONE; lost.len()];
    let mut latest_first: Vec<usize> = (0..lost.len()).collect();
    latest_first.sort_by_key(|&number| std::cmp::Reverse(packets[lost[number].0].first_seen()));
    let mut ranges: HashMap<NodeId, Ranges, FixedState> = HashMap::default();
    let mut resends = resends.into_iter().rev().peekable();
    for number in latest_first {
        let packet = &packets[lost[number].0];
        let seen = packet.first_seen();
        while let Some((node, record)) = resends.next_if(|(_, record)| ModelTime::new(record.time) > seen) {
            let bytes = record.b..record.b.saturating_add(record.a);
            ranges.entry(node).or_default().set(bytes, ModelTime::new(record.time));
        }
        if packet.packet_type == DATA {
            let of_receiver = ranges.get(&ends(model, packet).1);
            asked[number] = of_receiver.map_or(ModelTime::NONE, |ranges| ranges.get(packet.offset));
        }
    }
    asked
}

/// A time for each of several ranges of bytes, keyed by their start. The ranges do not overlap.
#[derive(Default)]
struct Ranges(BTreeMap<u32, (u32, ModelTime)>);

impl Ranges {
    /// Sets the time of all these bytes and replaces earlier values.
    fn set(&mut self, bytes: Range<u32>, at: ModelTime) {
        if bytes.is_empty() {
            return;
        }
        for boundary in [bytes.start, bytes.end] {
            if let Some((_, (end, of))) = self.0.range_mut(..boundary).next_back()
                && *end > boundary
            {
                let rest = (std::mem::replace(end, boundary), *of);
                self.0.insert(boundary, rest);
            }
        }
        while let Some(start) = self.0.range(bytes.clone()).next().map(|(start, _)| *start) {
            self.0.remove(&start);
        }
        self.0.insert(bytes.start, (bytes.end, at));
    }

    fn get(&self, offset: u32) -> ModelTime {
        let last = self.0.range(..=offset).next_back();
        last.filter(|(_, (end, _))| *end > offset).map_or(ModelTime::NONE, |(_, (_, at))| *at)
    }
}

fn loss(
    model: &Model,
    packets: &[Packet],
    index: usize,
    place: LossSite,
    (asked, repaired): (ModelTime, ModelTime),
    messages: &Messages,
    usual: &UsualDelay,
) -> Loss {
    let packet = &packets[index];
    let rpc = &model.rpcs[packet.rpc as usize];
    let (from, to) = ends(model, packet);
    let seen = packet.first_seen();
    let next = next_try(packets, index).map(|next| next.first_seen());
    let (found, found_at) = match (asked.is_some(), next) {
        (true, next) if next.is_none_or(|next| asked <= next) => (LossDetection::Resend, asked),
        (_, Some(next)) => (LossDetection::Sender, next),
        _ => (LossDetection::Never, ModelTime::NONE),
    };
    Loss {
        rpc: rpc.id,
        packet_type: packet.packet_type,
        offset: packet.offset,
        length: packet.length,
        priority: packet.priority,
        from: model.name(from).to_owned(),
        to: model.name(to).to_owned(),
        at_ns: seen.ns().unwrap_or(0),
        place,
        found,
        found_after_ns: found_at.since(seen),
        repaired_after_ns: repaired.since(seen),
        cost_ns: repaired.since(messages.completion_without_loss(packet, usual)).map(|cost| cost.max(0)),
    }
}

/// Returns the place where the packet was lost. `reason`: the number of the host's reason for dropping it.
fn loss_site(model: &Model, packet: &Packet, reason: u32, queues: &Queues) -> LossSite {
    let (from, to) = ends(model, packet);
    let name = |node| model.name(node).to_owned();
    match packet.fate {
        Fate::Dropped(reason) => {
            let id = model.rpcs[packet.rpc as usize].id + u64::from(packet.direction == Direction::ToClient);
            let word = homa_trace::packet_word(packet.packet_type, packet.length);
            let seen = packet.first_seen().ns().unwrap_or(0);
            let drops = queues.get(&(id, word, packet.offset));
            let queue = drops.and_then(|drops| {
                drops.get(drops.partition_point(|(time, _)| *time < seen)).or(drops.first())
            });
            let others = model.nodes.get(usize::from(packet.switch)).map(|node| &node.others);
            let port = others.and_then(|others| others.get(&packet.port)).cloned();
            LossSite::Switch {
                switch: name(packet.switch),
                port: port.unwrap_or_else(|| packet.port.to_string()),
                queue: queue.map_or(0, |(_, queue)| *queue),
                reason,
            }
        }
        Fate::Received => LossSite::Host { host: name(to), reason: drop_reason_name(reason) },
        _ => {
            let after = if packet.switch == NO_NODE { from } else { packet.switch };
            LossSite::Between { after: name(after), before: name(to) }
        }
    }
}

/// The median one-way delay of DATA packets.
struct UsualDelay {
    way_ns: u64,
}

impl UsualDelay {
    fn of(model: &Model) -> UsualDelay {
        let data = model.packets.iter().filter(|packet| packet.packet_type == DATA);
        let mut ways: Vec<i64> = data.filter_map(way_ns).collect();
        UsualDelay { way_ns: median(&mut ways).unwrap_or(0).max(0) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use homa_trace::drop_reason;

    use super::super::testing::{CLIENT, SERVER, SWITCH, WORD, Writer};
    use super::*;

    #[test]
    fn a_drop_has_its_place_the_resend_that_found_it_and_its_cost() {
        let mut writer = Writer::new();
        writer.at(CLIENT, 1_000, EventKind::PacketSent, WORD, 0);
        writer.at(SWITCH, 1_050, EventKind::SwitchDropped, WORD, 0);
        writer.data(944, 1_100, 1_300);
        writer.at(SERVER, 6_000, EventKind::ResendSent, 944, 0);
        writer.data(0, 6_500, 6_700);
        let found = lost(&writer.model(), &Select::default());
        let [loss] = &found.losses[..] else { panic!("{found:?}") };
        let place = LossSite::Switch { switch: "tor".into(), port: "p1".into(), queue: 3, reason: 1 };
        assert_eq!(
            (&loss.place, loss.found, loss.rpc),
            (&place, LossDetection::Resend, super::super::testing::ID)
        );
        assert_eq!((loss.found_after_ns, loss.repaired_after_ns), (Some(5_000), Some(5_700)));
        assert_eq!(loss.cost_ns, Some(5_400));
        assert_eq!(found.packets, 4 - 1);
        assert_eq!(found.places, [LossPlace { place, packets: 1, bytes: 1_000 }]);
    }

    #[test]
    fn what_vanished_is_lost_between_and_what_comes_anyway_costs_nothing() {
        let mut writer = Writer::new();
        writer.at(SERVER, 1, EventKind::BusySent, 0, 0);
        writer.at(CLIENT, 1_000, EventKind::PacketSent, WORD, 0);
        writer.at(CLIENT, 2_000, EventKind::PacketSent, WORD, 0);
        writer.at(SERVER, 2_200, EventKind::PacketReceived, WORD, 0);
        writer.data(944, 2_000, 9_000);
        writer.at(SERVER, 1_000_000_000, EventKind::BusySent, 0, 0);
        let found = lost(&writer.model(), &Select::default());
        let [loss] = &found.losses[..] else { panic!("{found:?}") };
        assert_eq!(loss.place, LossSite::Between { after: "c".into(), before: "s".into() });
        assert_eq!(
            (loss.found, loss.found_after_ns, loss.cost_ns),
            (LossDetection::Sender, Some(1_000), Some(0))
        );
    }

    #[test]
    fn of_several_resends_the_first_behind_the_loss_counts() {
        let mut ranges = Ranges::default();
        for (bytes, ns) in [(0..100, 9), (20..30, 8), (25..60, 7), (90..200, 6), (40..40, 5)] {
            ranges.set(bytes, ModelTime::new(ns));
        }
        let times = [0, 19, 20, 24, 25, 59, 60, 89, 90, 199, 200].map(|offset| ranges.get(offset).ns());
        let some = [9, 9, 8, 8, 7, 7, 9, 9, 6, 6].map(Some);
        assert_eq!(times, [&some[..], &[None]].concat()[..]);

        let mut writer = Writer::new();
        writer.at(SERVER, 500, EventKind::ResendSent, 5_000, 0);
        for sent in [1_000, 3_000] {
            writer.at(CLIENT, sent, EventKind::PacketSent, WORD, 944);
            writer.at(SWITCH, sent + 50, EventKind::SwitchDropped, WORD, 944);
            writer.at(SERVER, sent + 700, EventKind::ResendSent, 500, 0);
            writer.at(SERVER, sent + 900, EventKind::ResendSent, 500, 900);
        }
        writer.data(944, 6_000, 6_200);
        let found = lost(&writer.model(), &Select::default());
        let times: Vec<_> = found.losses.iter().map(|of| (of.found_after_ns, of.repaired_after_ns)).collect();
        assert_eq!(times, [(Some(900), Some(5_200)), (Some(900), Some(3_200))]);
    }

    #[test]
    fn what_a_host_drops_is_lost_there_unless_it_was_there_already() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 1_200).at(
            SERVER,
            1_210,
            EventKind::PacketDropped,
            WORD,
            drop_reason("drop_gap_limit"),
        );
        writer.data(0, 5_000, 5_200);
        writer.data(944, 6_000, 6_200).at(SERVER, 500_000, EventKind::PacketDropped, WORD, 0);
        let found = lost(&writer.model(), &Select::default());
        let [loss] = &found.losses[..] else { panic!("{found:?}") };
        assert_eq!(
            (loss.at_ns, &loss.place),
            (1, &LossSite::Host { host: "s".into(), reason: Some("gap_limit") })
        );
        assert_eq!((found.packets, found.unknown), (3, 0));
    }
}
