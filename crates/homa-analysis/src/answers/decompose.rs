//! The extra delay of each packet, split by cause.
//!
//! The extra delay is a packet's delay minus the best case for the packet's length on its path. The best case
//! is known only if several packets took the same minimum time. Otherwise all of them may have been delayed,
//! and the path is left out. The extra delay has these parts:
//!
//! - The sender's transmit queue. If the kernel recorded when the device sent the packet, this part is the
//!   time until then, minus the minimum. Otherwise, this part is the number of bytes queued when the packet
//!   was sent, divided by the link's rate.
//! - Receive overhead: the packet's wait within its burst, minus the minimum.
//! - The polling gap: the remaining time that arrivals on the receiver's link do not explain, limited to the
//!   time since the receiver's queue was last known to be empty.
//! - The switch: the rest.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record, packet_word_parts};
use serde::Serialize;

use super::best_cases::BestCases;
use super::missing_events::MissingEvents;
use super::packet::{ends, way_ns};
use super::percentiles::Percentiles;
use super::percentiles::median;
use super::select::Select;
use crate::arrivals::Arrivals;
use crate::link::{LinkRate, Load};
use crate::model::{Direction, Model, ModelTime, NodeId, Packet};
use crate::replay::{Replay, State};

/// An extra delay and its parts in nanoseconds; `extra_ns` is the sum of the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// The whole extra delay.
    pub extra_ns: i64,
    /// Time in the sender's transmit queue.
    pub sender_ns: i64,
    /// Time in switches.
    pub switch_ns: i64,
    /// Time until the receiver polled.
    pub poll_ns: i64,
    /// Time in the receiver's burst.
    pub receive_ns: i64,
}

/// A packet and its delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelayedPacket {
    /// The packet's RPC, by its ID at the client.
    pub rpc: u64,
    /// The packet's type on the wire.
    pub packet_type: u8,
    /// Length of the packet in bytes.
    pub length: u32,
    /// Offset of the packet's payload in the message.
    pub offset: u32,
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// When the packet was sent, in nanoseconds since the zero of the model.
    pub sent_ns: i64,
    /// One-way delay of the packet in nanoseconds.
    pub delay_ns: i64,
    /// The best case for the packet's length on its path.
    pub best_ns: i64,
    /// The extra delay and its parts.
    pub parts: Parts,
    /// The extra delay in switches as the switches recorded it, if they did.
    pub true_switch_ns: Option<i64>,
}

/// Comparison of the estimated switch part with the switches' own records, for packets that a switch delayed
/// by at least the time of a full packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SwitchCheck {
    /// Number of packets compared.
    pub packets: u64,
    /// Median of the true parts.
    pub true_p50_ns: i64,
    /// Median of the parts estimated from the hosts' traces.
    pub found_p50_ns: i64,
    /// Median of the absolute error relative to the true part, in percent.
    pub error_p50_percent: f64,
    /// The same error at P90, in percent.
    pub error_p90_percent: f64,
    /// Sum of the estimated parts over the sum of the true parts.
    pub sum_ratio: f64,
}

/// The result of [`decompose`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decomposition {
    /// The link rate used.
    pub rate: LinkRate,
    /// Number of packets included.
    pub packets: u64,
    /// Number of packets left out because the best case of their path is unknown: no three packets on it took
    /// the same time.
    pub left_out: u64,
    /// Number of paths left out for that reason, counting each direction separately.
    pub paths_left_out: u64,
    /// All extra delays.
    pub extra_ns: Option<Percentiles>,
    /// The parts due to the sender.
    pub sender_ns: Option<Percentiles>,
    /// The parts due to switches.
    pub switch_ns: Option<Percentiles>,
    /// The parts due to the polling gap.
    pub poll_ns: Option<Percentiles>,
    /// The parts due to the receiver.
    pub receive_ns: Option<Percentiles>,
    /// Sums over all packets.
    pub sums: Parts,
    /// Packets whose parts do not add up to their extra delay: always 0.
    pub unequal: u64,
    /// The check against the switches' records; `None` if no switch recorded any packet, or if none delayed a
    /// packet.
    pub check: Option<SwitchCheck>,
    /// The most delayed packets.
    pub worst: Vec<DelayedPacket>,
    /// Missing kinds of events.
    pub missing_events: Vec<MissingEvents>,
}

/// Splits the extra delay of all packets that both their sender and their receiver recorded. `keep`: number
/// of most delayed packets to list. Returns `None` if there is no packet.
#[must_use]
pub fn decompose(model: &Model, select: &Select, rate: LinkRate, keep: usize) -> Option<Decomposition> {
    let split = Splitter::new(model, rate);
    let seen = |packet: &&Packet| way_ns(packet).is_some() && select.packet(model, packet);
    let mut parts: Vec<(u32, CompactParts)> = Vec::new();
    let mut sums = Parts::default();
    let (mut unequal, mut left_out) = (0, 0);
    let mut paths_left_out = HashSet::new();
    for (index, packet) in model.packets.iter().enumerate().filter(|(_, packet)| seen(packet)) {
        let path = ends(model, packet);
        if !split.best_cases.is_reliable(path) {
            left_out += 1;
            paths_left_out.insert(path);
            continue;
        }
        let Some(of) = split.parts(packet) else { continue };
        let sum = of.sender_ns + of.switch_ns + of.poll_ns + of.receive_ns;
        unequal += u64::from(sum != of.extra_ns);
        sums.extra_ns += of.extra_ns;
        sums.sender_ns += of.sender_ns;
        sums.switch_ns += of.switch_ns;
        sums.poll_ns += of.poll_ns;
        sums.receive_ns += of.receive_ns;
        parts.push((index as u32, CompactParts::of(&of)));
    }
    if parts.is_empty() && left_out == 0 {
        return None;
    }
    let mut values = Vec::with_capacity(parts.len());
    let mut spread = |of: fn(&CompactParts) -> u32| {
        values.clear();
        values.extend(parts.iter().map(|(_, short)| i64::from(of(short))));
        Percentiles::of(&mut values)
    };
    let extra_ns = spread(CompactParts::extra);
    let [sender_ns, switch_ns, poll_ns, receive_ns] =
        [spread(|of| of.0[0]), spread(|of| of.0[1]), spread(|of| of.0[2]), spread(|of| of.0[3])];
    let check = split.check(&parts);
    let count = parts.len() as u64;
    parts.sort_unstable_by_key(|(index, short)| (std::cmp::Reverse(short.extra()), *index));
    parts.truncate(keep);
    let mut missing_events = Vec::new();
    if split.looks.is_empty() {
        missing_events.push(MissingEvents::Bursts);
    }
    if split.switches.is_empty() {
        missing_events.push(MissingEvents::Switch);
    }
    let worst =
        parts.iter().filter_map(|(index, _)| split.delayed(&model.packets[*index as usize])).collect();
    Some(Decomposition {
        rate,
        packets: count,
        left_out,
        paths_left_out: paths_left_out.len() as u64,
        extra_ns,
        sender_ns,
        switch_ns,
        poll_ns,
        receive_ns,
        sums,
        unequal,
        check,
        worst,
        missing_events,
    })
}

/// The sender, switch, poll and receive parts in nanoseconds, each at most four seconds. The type is compact,
/// because there are millions of packets.
#[derive(Clone, Copy)]
struct CompactParts([u32; 4]);

impl CompactParts {
    fn of(parts: &Parts) -> CompactParts {
        let all = [parts.sender_ns, parts.switch_ns, parts.poll_ns, parts.receive_ns];
        CompactParts(all.map(|ns| u32::try_from(ns.max(0)).unwrap_or(u32::MAX)))
    }

    fn extra(&self) -> u32 {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// Tolerance within which delays count as equal, as a fraction of a full packet's transmission time.
const ALIKE_PART: f64 = 0.1;

fn longest(model: &Model) -> u32 {
    model.packets.iter().map(|packet| packet.length).max().unwrap_or(0)
}

/// Returns the time that switches added to the packet's delay, beyond the best case. Returns `None` for
/// packets sent before `since_ns`, the time since which the records of all switches are complete.
fn in_switches_ns(model: &Model, (switches, since_ns): (&BestCases, u64), packet: &Packet) -> Option<i64> {
    packet.sent.ns().filter(|ns| *ns >= since_ns)?;
    let best_cases = switches.ns(ends(model, packet), packet.length)?;
    Some((packet.left.since(packet.entered)? - best_cases).max(0))
}

/// The data from which the parts are computed.
struct Splitter<'a> {
    model: &'a Model,
    rate: LinkRate,
    /// The best case of each path.
    best_cases: BestCases,
    /// The best case of a path's switches.
    switches: BestCases,
    /// The transmit queue of each node.
    queues: Vec<Replay<'a, Queue>>,
    /// Like [`Model::switches_remember_since_ns`].
    switches_since_ns: u64,
    arrivals: Arrivals<'a>,
    looks: HashMap<(NodeId, u8), PollHistory, FixedState>,
    /// For each node, the minimum time from the creation of a packet until the node's device sends the
    /// packet.
    least_out_ns: HashMap<NodeId, i64, FixedState>,
}

/// The transmit queue of a host. The host's link is assumed to be idle at the start of the trace.
#[derive(Clone)]
struct Queue {
    rate: LinkRate,
    /// When the link will have sent everything in the queue.
    free_ns: f64,
}

impl State for Queue {
    fn add(&mut self, record: &Record) {
        if record.event() == Some(EventKind::PacketSent) {
            let packet = Load::packet(packet_word_parts(record.a).1);
            self.free_ns = self.free_ns.max(record.time as f64) + self.rate.ns(packet);
        }
    }
}

/// The reads of bursts by an endpoint: when each happened, and for how long before it the queue may not have
/// been empty. Also contains the minimum time that a packet waited in its burst.
#[derive(Default)]
struct PollHistory {
    reads: Vec<(u64, u64)>,
    least_batch_ns: i64,
}

impl<'a> Splitter<'a> {
    fn new(model: &'a Model, rate: LinkRate) -> Splitter<'a> {
        let queue = Queue { rate, free_ns: 0.0 };
        let mut looks = poll_histories(model);
        let mut least_out_ns: HashMap<NodeId, i64, FixedState> = HashMap::default();
        for packet in &model.packets {
            let (from, to) = ends(model, packet);
            if let Some(out) = packet.device_sent.since(packet.sent) {
                let least = least_out_ns.entry(from).or_insert(i64::MAX);
                *least = out.max(0).min(*least);
            }
            if let (Some(batch), Some(of)) =
                (packet.received.since(packet.read), looks.get_mut(&(to, packet.received_endpoint)))
            {
                of.least_batch_ns = of.least_batch_ns.min(batch.max(0));
            }
        }
        let switches = BestCases::of(model, |packet| packet.left.since(packet.entered));
        let switches_since_ns = model.switches_remember_since_ns();
        let alike_ns = rate.ns(Load::packet(longest(model))) * ALIKE_PART;
        // A queue that is never empty delays even the fastest packets, and the records of its switch may show
        // this.
        let may_be_undelayed = |packet: &Packet| {
            let in_switches = in_switches_ns(model, (&switches, switches_since_ns), packet);
            in_switches.is_none_or(|ns| ns as f64 <= alike_ns)
        };
        let best_cases = BestCases::counted(model, way_ns, alike_ns, may_be_undelayed);
        Splitter {
            model,
            rate,
            best_cases,
            switches,
            queues: model.nodes.iter().map(|node| Replay::new(node.host_records(), queue.clone())).collect(),
            switches_since_ns,
            arrivals: Arrivals::new(model),
            looks,
            least_out_ns,
        }
    }

    fn parts(&self, packet: &Packet) -> Option<Parts> {
        let (from, to) = ends(self.model, packet);
        let best_ns = self.best_cases.ns((from, to), packet.length)?;
        let extra_ns = (way_ns(packet)? - best_ns).max(0);
        let mut left_ns = extra_ns;
        let mut take = |ns: i64| {
            let part = ns.clamp(0, left_ns);
            left_ns -= part;
            part
        };
        let looks = self.looks.get(&(to, packet.received_endpoint));
        let sender_ns = take(self.sender_ns(packet, from));
        let batch_ns = packet.received.since(packet.read).unwrap_or(0);
        let receive_ns = take(batch_ns - looks.map_or(0, |looks| looks.least_batch_ns));
        let poll_ns = if packet.device_received.is_some() {
            take(packet.read.since(packet.device_received).unwrap_or(0))
        } else {
            let came_ns = packet.sent.ns()?.saturating_add_signed(sender_ns + best_ns);
            let busy_ns = self.busy_ns(to, came_ns, packet);
            let unseen_ns = looks.map_or(0, |looks| looks.unseen_ns(packet.read));
            let may_ns = (extra_ns - sender_ns - receive_ns - busy_ns).max(0);
            take(may_ns.min(unseen_ns))
        };
        let switch_ns = left_ns;
        Some(Parts { extra_ns, sender_ns, switch_ns, poll_ns, receive_ns })
    }

    fn sender_ns(&self, packet: &Packet, from: NodeId) -> i64 {
        if let (Some(out), Some(least)) =
            (packet.device_sent.since(packet.sent), self.least_out_ns.get(&from))
        {
            return (out - least).max(0);
        }
        let (Some(sent_ns), Some(queue)) = (packet.sent.ns(), self.queues.get(usize::from(from))) else {
            return 0;
        };
        let id = self.model.rpcs[packet.rpc as usize].id + u64::from(packet.direction == Direction::ToClient);
        let word = homa_trace::packet_word(packet.packet_type, packet.length);
        let first = queue.index(sent_ns);
        let same = queue.records()[first..].iter().take_while(|record| record.time == sent_ns);
        let is_it = |record: &Record| {
            record.event() == Some(EventKind::PacketSent)
                && (record.id, record.a, record.b) == (id, word, packet.offset)
        };
        let place = same.enumerate().find_map(|(place, record)| is_it(record).then_some(place));
        place.map_or(0, |place| (queue.behind(first + place).free_ns - sent_ns as f64).max(0.0) as i64)
    }

    /// Returns the time that the receiver's link needed for the arrivals from `since_ns` until the packet,
    /// excluding the packet itself.
    fn busy_ns(&self, to: NodeId, since_ns: u64, packet: &Packet) -> i64 {
        let Some(until_ns) = packet.received.ns() else { return 0 };
        self.rate.ns(self.arrivals.between(to, since_ns, until_ns)) as i64
    }

    /// Returns the recorded delay of the packet in switches, beyond the best case.
    fn true_switch_ns(&self, packet: &Packet) -> Option<i64> {
        in_switches_ns(self.model, (&self.switches, self.switches_since_ns), packet)
    }

    fn check(&self, parts: &[(u32, CompactParts)]) -> Option<SwitchCheck> {
        let enough = self.rate.ns(Load::packet(longest(self.model))) as i64;
        let (mut truths, mut founds, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (index, short) in parts {
            let truth = self.true_switch_ns(&self.model.packets[*index as usize]);
            let Some(truth) = truth.filter(|truth| *truth >= enough.max(1)) else { continue };
            let found = i64::from(short.0[1]);
            truths.push(truth);
            founds.push(found);
            // The unit is a thousandth of a percent.
            errors.push((found - truth).abs().saturating_mul(100_000) / truth);
        }
        let sum = |values: &[i64]| values.iter().map(|value| *value as f64).sum::<f64>();
        let sum_ratio = sum(&founds) / sum(&truths);
        let error = Percentiles::of(&mut errors)?;
        Some(SwitchCheck {
            packets: truths.len() as u64,
            true_p50_ns: median(&mut truths)?,
            found_p50_ns: median(&mut founds)?,
            error_p50_percent: error.p50 as f64 / 1e3,
            error_p90_percent: error.p90 as f64 / 1e3,
            sum_ratio,
        })
    }

    fn delayed(&self, packet: &Packet) -> Option<DelayedPacket> {
        let (from, to) = ends(self.model, packet);
        let best_ns = self.best_cases.ns((from, to), packet.length)?;
        Some(DelayedPacket {
            rpc: self.model.rpcs[packet.rpc as usize].id,
            packet_type: packet.packet_type,
            length: packet.length,
            offset: packet.offset,
            from: self.model.name(from).to_owned(),
            to: self.model.name(to).to_owned(),
            sent_ns: packet.sent.ns()? as i64,
            delay_ns: way_ns(packet)?,
            best_ns,
            parts: self.parts(packet)?,
            true_switch_ns: self.true_switch_ns(packet),
        })
    }
}

impl PollHistory {
    /// Returns for how long before the read of this burst the queue may not have been empty.
    fn unseen_ns(&self, read: ModelTime) -> i64 {
        let Some(read) = read.ns() else { return 0 };
        let at = self.reads.binary_search_by_key(&read, |(read, _)| *read);
        at.map_or(0, |index| self.reads[index].1 as i64)
    }
}

/// The state of an endpoint between two bursts.
#[derive(Clone, Copy, Default)]
struct PollState {
    /// When the last burst was read, and when its processing ended.
    read_ns: u64,
    processed_ns: u64,
    /// When the endpoint last fell asleep, after finding nothing to read.
    asleep_ns: u64,
    /// When the endpoint stopped running, if it did.
    stopped_ns: Option<u64>,
}

fn poll_histories(model: &Model) -> HashMap<(NodeId, u8), PollHistory, FixedState> {
    let mut looks: HashMap<(NodeId, u8), PollHistory, FixedState> = HashMap::default();
    for (number, node) in model.nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Host) {
        let mut states = [PollState::default(); 256];
        for record in &node.records {
            let state = &mut states[usize::from(record.place.endpoint())];
            let now = record.time;
            match record.event() {
                Some(EventKind::Asleep) => state.asleep_ns = now,
                Some(EventKind::NotRunning) => state.stopped_ns = Some(now.saturating_sub(record.a.into())),
                Some(EventKind::BurstProcessed) => state.processed_ns = now,
                Some(EventKind::BurstIn) => {
                    let empty_ns = state.last_empty_ns(now, record.b);
                    *state = PollState { read_ns: now, processed_ns: now, ..PollState::default() };
                    let of = looks
                        .entry((number as NodeId, record.place.endpoint()))
                        .or_insert_with(|| PollHistory { reads: Vec::new(), least_batch_ns: i64::MAX });
                    of.reads.push((now, now.saturating_sub(empty_ns)));
                }
                _ => {}
            }
        }
    }
    looks
}

impl PollState {
    /// Returns when the queue was last seen empty, for a burst that is read at `now` after `vain` empty
    /// polls.
    fn last_empty_ns(&self, now: u64, vain: u32) -> u64 {
        // Reading the previous burst emptied the queue.
        let mut empty = self.read_ns;
        if vain > 0 {
            let spacing = now.saturating_sub(self.processed_ns) / (u64::from(vain) + 1);
            empty = now.saturating_sub(spacing);
        }
        if self.asleep_ns > self.read_ns {
            empty = empty.min(self.asleep_ns);
        }
        self.stopped_ns.map_or(empty, |stopped| empty.min(stopped)).max(self.read_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, ID, SERVER, WORD, Writer};
    use super::*;
    use crate::link::RateSource;
    use homa_trace::packet_word;

    /// 8 Gbit/s without overhead, which is 1 ns per byte.
    const RATE: LinkRate = LinkRate { bps: 8e9, source: RateSource::Given, overhead_bytes: 0 };

    /// Writes undelayed packets that establish the path's best case: 500 ns plus 1 ns per byte.
    fn known_path() -> Writer {
        let mut writer = Writer::new();
        for (index, length) in [(0, 100_u32), (1, 500), (2, 1_000)] {
            let (word, sent) = (packet_word(0x10, length), 10_000 * (index + 1));
            writer.of(100, CLIENT, sent, EventKind::PacketSent, word, index as u32);
            writer.of(
                100,
                SERVER,
                sent + 500 + u64::from(length),
                EventKind::PacketReceived,
                word,
                index as u32,
            );
        }
        writer
    }

    fn parts_of(writer: &Writer, offset: u32) -> Parts {
        let found = decompose(&writer.model(), &Select::default(), RATE, 100).expect("packets");
        assert_eq!(found.unequal, 0);
        let it = found.worst.iter().find(|of| of.rpc == ID && of.offset == offset).expect("it");
        assert_eq!(it.best_ns, 1_500);
        it.parts
    }

    #[test]
    fn what_is_queued_at_the_sender_is_its_part() {
        let mut writer = known_path();
        writer.at(CLIENT, 100_000, EventKind::PacketSent, WORD, 0);
        writer.at(CLIENT, 100_000, EventKind::PacketSent, WORD, 944);
        writer.at(SERVER, 101_500, EventKind::PacketReceived, WORD, 0);
        writer.at(SERVER, 102_800, EventKind::PacketReceived, WORD, 944);
        assert_eq!(parts_of(&writer, 0).extra_ns, 0);
        let parts = parts_of(&writer, 944);
        assert_eq!((parts.extra_ns, parts.sender_ns, parts.switch_ns), (1_300, 1_000, 300));
    }

    #[test]
    fn of_a_path_without_packets_that_nothing_delayed_nothing_is_said() {
        let mut writer = Writer::new();
        for (index, delay) in [1_500_u64, 2_900, 4_700, 1_800].into_iter().enumerate() {
            let sent = 10_000 * (1 + index as u64);
            writer.data(944 * index as u32, sent, sent + delay);
        }
        // A path that no selected packet used is not left out.
        writer.at(SERVER, 60_000, EventKind::PacketSent, WORD, 0);
        writer.at(CLIENT, 61_000, EventKind::PacketReceived, WORD, 0);
        let before = Select { until_ns: Some(50_000), ..Select::default() };
        let found = decompose(&writer.model(), &before, RATE, 100).expect("packets");
        assert_eq!((found.packets, found.left_out, found.paths_left_out), (0, 4, 1));
        assert!(found.extra_ns.is_none() && found.worst.is_empty() && found.check.is_none());
        // Three packets with the same delay, within a tenth of a packet's time, count as undelayed.
        writer.data(9_440, 100_000, 101_500).data(10_384, 110_000, 111_590);
        let found = decompose(&writer.model(), &Select::default(), RATE, 100).expect("packets");
        assert_eq!((found.packets, found.left_out, found.paths_left_out), (6, 1, 1));
    }

    #[test]
    fn packets_that_a_switch_delayed_are_no_best_case_however_alike() {
        let mut writer = Writer::new();
        for index in 0..4_u64 {
            let sent = 100_000 * (index + 1);
            writer.data(944 * index as u32, sent, sent + 3_500);
            writer.switch(944 * index as u32, sent + 100, sent + 3_100);
        }
        // This packet is missing from the receiver's trace, but it determines the switch's best case.
        writer.at(CLIENT, 600_000, EventKind::PacketSent, WORD, 9_440).switch(9_440, 600_100, 601_100);
        let found = decompose(&writer.model(), &Select::default(), RATE, 0).expect("packets");
        assert_eq!((found.packets, found.left_out, found.paths_left_out), (0, 4, 1));
    }

    #[test]
    fn a_device_that_tells_when_it_sent_is_believed() {
        let mut writer = known_path();
        for (offset, out) in [(0, 50), (944, 350)] {
            writer.at(CLIENT, 100_000, EventKind::PacketSent, WORD, offset);
            writer.at(CLIENT, 100_000 + out, EventKind::DeviceSent, WORD, offset);
        }
        writer.at(SERVER, 101_500, EventKind::PacketReceived, WORD, 0);
        writer.at(SERVER, 102_800, EventKind::PacketReceived, WORD, 944);
        let parts = parts_of(&writer, 944);
        // A link that sends packets one after another would have delayed this packet by 1,000 ns.
        assert_eq!((parts.extra_ns, parts.sender_ns, parts.switch_ns), (1_300, 300, 1_000));
    }

    #[test]
    fn the_gap_has_what_the_link_did_not_bring_and_the_burst_its_own() {
        let mut writer = known_path();
        writer.burst(SERVER, 90_000, EventKind::BurstIn, 1, 0);
        writer.at(SERVER, 90_010, EventKind::PacketReceived, packet_word(0x14, 28), 0);
        writer.burst(SERVER, 90_020, EventKind::BurstProcessed, 1, 0);
        writer.at(CLIENT, 100_000, EventKind::PacketSent, WORD, 0);
        writer.burst(SERVER, 101_000, EventKind::Asleep, 0, 0);
        // A packet from another sender, of 600 bytes, arrives on the link before this packet.
        writer.burst(SERVER, 104_000, EventKind::BurstIn, 2, 1);
        writer.of(200, SERVER, 104_050, EventKind::PacketReceived, packet_word(0x10, 600), 0);
        writer.at(SERVER, 104_110, EventKind::PacketReceived, WORD, 0);
        writer.burst(SERVER, 104_120, EventKind::BurstProcessed, 2, 0);
        let parts = parts_of(&writer, 0);
        // This packet waited 110 ns in its burst. The packet before it waited 10 ns, the minimum.
        assert_eq!((parts.extra_ns, parts.sender_ns, parts.receive_ns), (2_610, 0, 100));
        assert_eq!((parts.switch_ns, parts.poll_ns), (600, 1_910));
    }

    #[test]
    fn the_switchs_part_is_compared_with_what_it_recorded() {
        let mut writer = known_path();
        for (index, wait) in [(0_u32, 0_u64), (1, 2_000), (2, 4_000)] {
            let sent = 100_000 * u64::from(index + 1);
            writer.data(index * 944, sent, sent + 1_500 + wait);
            writer.switch(index * 944, sent + 100, sent + 1_100 + wait);
        }
        let found = decompose(&writer.model(), &Select::default(), RATE, 0).expect("packets");
        let check = found.check.expect("a switch");
        assert_eq!((check.packets, check.true_p50_ns, check.found_p50_ns), (2, 2_000, 2_000));
        assert_eq!((check.error_p90_percent, check.sum_ratio), (0.0, 1.0));
        assert_eq!(found.missing_events, [MissingEvents::Bursts]);
    }
}
