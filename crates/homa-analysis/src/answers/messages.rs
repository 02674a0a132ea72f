//! Time that messages spend at the hosts: in copies, and waiting for the first grant.

use homa_trace::{EventKind, NodeKind, packet_word_parts};
use serde::Serialize;

use super::missing_events::MissingEvents;
use super::packet::DATA_HEADER_BYTES;
use super::percentiles::Percentiles;
use super::select::Select;
use crate::model::DATA;
use crate::model::{Direction, Message, Model, NodeId};

/// Minimum size in bytes of a message or burst for a meaningful throughput. Below this size, fixed costs
/// dominate.
const LARGE_BYTES: u64 = 10_000;

/// A step in which bytes are copied or received.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopyStep {
    /// Number of times that the step occurred.
    pub count: u64,
    /// Duration of the step, in nanoseconds.
    pub took_ns: Option<Percentiles>,
    /// Total bytes of those steps that have at least 10,000 bytes.
    pub large_bytes: u64,
    /// Throughput of those steps that have at least 10,000 bytes, in Mbit/s.
    pub large_mbps: Option<Percentiles>,
}

#[derive(Default)]
struct Step {
    took: Vec<i64>,
    mbps: Vec<i64>,
    bytes: u64,
}

impl Step {
    fn add(&mut self, bytes: u64, took_ns: Option<i64>) {
        let Some(took_ns) = took_ns.filter(|ns| *ns >= 0) else { return };
        self.took.push(took_ns);
        if bytes >= LARGE_BYTES && took_ns > 0 {
            self.bytes += bytes;
            self.mbps.push((bytes as f64 * 8e3 / took_ns as f64) as i64);
        }
    }

    fn result(mut self) -> CopyStep {
        CopyStep {
            count: self.took.len() as u64,
            took_ns: Percentiles::of(&mut self.took),
            large_bytes: self.bytes,
            large_mbps: Percentiles::of(&mut self.mbps),
        }
    }
}

/// The result of [`copy`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Copies {
    /// Time from the application's submission of a message until its first packet is created, with the bytes
    /// of the whole message. Some bytes may be copied after this step. If packets are gathered from the
    /// application's memory, some bytes are copied before it.
    pub hand_over: CopyStep,
    /// Time from reading a burst until all of its packets have been processed and their payload has been
    /// copied to its destination.
    pub bursts_in: CopyStep,
    /// Time from the completion of a message until the application receives it: the copy, if any, and the
    /// wake-up.
    pub taken: CopyStep,
    /// Missing kinds of events.
    pub missing_events: Vec<MissingEvents>,
}

/// Returns the speed of copies in both directions, if the records show it.
#[must_use]
pub fn copy(model: &Model, select: &Select) -> Copies {
    let (mut hand_over, mut bursts_in, mut taken) = (Step::default(), Step::default(), Step::default());
    let mut has_app = false;
    for rpc in &model.rpcs {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let message = rpc.message(direction);
            if select.node(rpc.sender(direction)) && select.at(message.submitted) {
                hand_over.add(message.length.into(), message.first_sent.since(message.submitted));
            }
            if select.node(rpc.receiver(direction)) && select.at(message.complete) {
                has_app |= message.taken.is_some();
                taken.add(message.length.into(), message.taken.since(message.complete));
            }
        }
    }
    for (number, node) in model.nodes.iter().enumerate() {
        if node.kind != NodeKind::Host || !select.node(number as NodeId) {
            continue;
        }
        let mut bursts = [None::<(u64, u64)>; 256];
        for record in node.records.iter().filter(|record| select.time(record.time)) {
            let burst = &mut bursts[usize::from(record.place.endpoint())];
            match (record.event(), burst) {
                (Some(EventKind::BurstIn), burst) => *burst = Some((record.time, 0)),
                (Some(EventKind::PacketReceived), Some((_, bytes))) => {
                    let (packet_type, length) = packet_word_parts(record.a);
                    if packet_type == DATA {
                        *bytes += u64::from(length.saturating_sub(DATA_HEADER_BYTES));
                    }
                }
                (Some(EventKind::BurstProcessed), burst) => {
                    if let Some((read, bytes)) = burst.take().filter(|(_, bytes)| *bytes > 0) {
                        bursts_in.add(bytes, Some((record.time - read) as i64));
                    }
                }
                _ => {}
            }
        }
    }
    let mut missing_events = Vec::new();
    if bursts_in.took.is_empty() {
        missing_events.push(MissingEvents::Bursts);
    }
    if !has_app {
        missing_events.push(MissingEvents::Application);
    }
    Copies {
        hand_over: hand_over.result(),
        bursts_in: bursts_in.result(),
        taken: taken.result(),
        missing_events,
    }
}

/// Inclusive upper bounds of the size classes in bytes.
const SIZES: [u32; 6] = [10_000, 30_000, 100_000, 300_000, 1_000_000, u32::MAX];

/// First grants of the messages in one size class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstGrants {
    /// Inclusive upper bound of the class in bytes; the class begins above the bound of the previous one.
    /// `u32::MAX`: no bound.
    pub up_to_bytes: u32,
    /// Number of messages that had a grant.
    pub messages: u64,
    /// Time at the sender from its first packet until the arrival of the first grant.
    pub round_ns: Option<Percentiles>,
    /// Time at the receiver from the message's first packet until the receiver sends the first grant.
    pub granting_ns: Option<Percentiles>,
    /// One-way delay of the first grant.
    pub way_ns: Option<Percentiles>,
    /// Number of messages that waited for a grant at any time.
    pub waited: u64,
}

/// Returns the time to the first grant by size class. Empty classes are left out.
#[must_use]
pub fn first_grant(model: &Model, select: &Select) -> Vec<FirstGrants> {
    let mut messages: Vec<&Message> = Vec::new();
    for rpc in &model.rpcs {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let message = rpc.message(direction);
            let granted = message.first_grant.is_some() || message.first_grant_sent.is_some();
            let began = message.first_sent.or(message.first_received);
            if granted && select.at(began) && select.pair(rpc.sender(direction), rpc.receiver(direction)) {
                messages.push(message);
            }
        }
    }
    let of_size = |(index, up_to): (usize, &u32)| {
        let above = index.checked_sub(1).map_or(0, |before| SIZES[before]);
        let of = || {
            messages.iter().filter(|message| {
                (above..=*up_to).contains(&message.length) && (message.length > above || above == 0)
            })
        };
        let spread = |value: fn(&Message) -> Option<i64>| {
            Percentiles::of(&mut of().filter_map(|message| value(message)).collect::<Vec<_>>())
        };
        let count = of().count() as u64;
        (count > 0).then(|| FirstGrants {
            up_to_bytes: *up_to,
            messages: count,
            round_ns: spread(|message| message.first_grant.since(message.first_sent)),
            granting_ns: spread(|message| message.first_grant_sent.since(message.first_received)),
            way_ns: spread(|message| message.first_grant.since(message.first_grant_sent)),
            waited: of().filter(|message| message.first_wait_grant.is_some()).count() as u64,
        })
    };
    SIZES.iter().enumerate().filter_map(of_size).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, SERVER, Writer};
    use super::*;
    use homa_trace::packet_word;

    #[test]
    fn copies_are_timed_where_stamps_are() {
        let mut writer = Writer::new();
        writer.at(CLIENT, 1_000, EventKind::AppSend, 0, 20_000);
        let word = packet_word(DATA, 20_056);
        writer.at(CLIENT, 5_000, EventKind::PacketSent, word, 0);
        writer.burst(SERVER, 6_000, EventKind::BurstIn, 1, 0);
        writer.at(SERVER, 6_100, EventKind::PacketReceived, word, 0);
        writer.burst(SERVER, 8_000, EventKind::BurstProcessed, 1, 0);
        writer.at(SERVER, 8_000, EventKind::MessageComplete, 0, 20_000);
        writer.at(SERVER, 18_000, EventKind::AppReceive, 0, 20_000);
        let found = copy(&writer.model(), &Select::default());
        let mbps = |step: &CopyStep| step.large_mbps.map(|found| found.p50);
        assert_eq!(mbps(&found.hand_over), Some(40_000));
        assert_eq!(mbps(&found.bursts_in), Some(80_000));
        assert_eq!(mbps(&found.taken), Some(16_000));
        assert!(found.missing_events.is_empty());
        let simulated = Writer::new().data(0, 1, 2).model();
        assert_eq!(
            copy(&simulated, &Select::default()).missing_events,
            [MissingEvents::Bursts, MissingEvents::Application]
        );
    }

    #[test]
    fn first_grants_are_timed_by_size() {
        let mut writer = Writer::new();
        for (rpc, length) in [(0, 10_000), (10, 10_001)] {
            let at = 1_000 + rpc * 1_000;
            let word = packet_word(DATA, 1_000);
            writer.of(rpc, CLIENT, at, EventKind::AppSend, 0, length);
            writer.of(rpc, CLIENT, at + 10, EventKind::PacketSent, word, 0);
            writer.of(rpc, SERVER, at + 100, EventKind::PacketReceived, word, 0);
            writer.of(rpc, SERVER, at + 105, EventKind::GrantSent, 5_000, 1);
            writer.of(rpc, CLIENT, at + 210 + rpc, EventKind::GrantReceived, 5_000, 1);
        }
        let found = first_grant(&writer.model(), &Select::default());
        let sizes: Vec<_> = found.iter().map(|of| (of.up_to_bytes, of.messages)).collect();
        assert_eq!(sizes, [(10_000, 1), (30_000, 1)]);
        let p50 = |of: Option<Percentiles>| of.map(|found| found.p50);
        assert_eq!((p50(found[0].round_ns), p50(found[1].round_ns)), (Some(200), Some(210)));
        assert_eq!((p50(found[0].granting_ns), p50(found[0].way_ns)), (Some(5), Some(105)));
    }
}
