//! How many bytes must be in transit so that a single large message does not run short of grants, and the
//! delay of packets by length.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, packet_word_parts};
use serde::Serialize;

use super::packet::{DATA_HEADER_BYTES, ends, way_ns};
use super::path::{Line, Minima};
use super::percentiles::Percentiles;
use super::select::Select;
use crate::link::{LinkRate, Load};
use crate::model::DATA;
use crate::model::{Direction, Fate, Model, NodeId, Rpc};

/// A path between two hosts in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathBytes {
    /// The host that sends DATA.
    pub sender: String,
    /// The host that grants.
    pub receiver: String,
    /// Time at the sender, on the sender's own clock, from sending a packet until the arrival of the grant
    /// that the packet caused.
    pub round_ns: Option<Percentiles>,
    /// Payload that the link carries in `round_ns`.
    pub bytes: Option<Percentiles>,
    /// The recommended RTTbytes: enough for 90 % of the grants, in whole packets.
    pub rtt_bytes: Option<u64>,
    /// Number of messages that had grants.
    pub messages: u64,
    /// Number of messages that waited for a grant.
    pub waited: u64,
    /// Number of packets on this path that both ends recorded.
    pub packets: u64,
    /// Number of different lengths of these packets.
    pub lengths: u64,
    /// Delay by length: the least-squares line through the minimum delays of the lengths.
    pub line: Option<Line>,
    /// Differences between the minimum delays and `line`.
    pub residual_ns: Option<Percentiles>,
}

/// The result of [`rtt_bytes`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RttBytes {
    /// The link rate used.
    pub rate: LinkRate,
    /// All paths on which DATA was sent; those with grants come first.
    pub paths: Vec<PathBytes>,
}

#[derive(Default)]
struct PathSamples {
    rounds: Vec<i64>,
    messages: u64,
    waited: u64,
    packets: u64,
    minima: Minima,
}

/// Returns the appropriate RTTbytes for each pair of hosts, and the linear model of the pair's path.
#[must_use]
pub fn rtt_bytes(model: &Model, select: &Select, rate: LinkRate) -> RttBytes {
    let mut paths: BTreeMap<(NodeId, NodeId), PathSamples> = BTreeMap::new();
    let mut full = DATA_HEADER_BYTES + 1;
    for packet in model.packets.iter().filter(|packet| select.packet(model, packet)) {
        if packet.packet_type == DATA {
            full = full.max(packet.length);
        }
        if let (Some(ns), Fate::Received) = (way_ns(packet), packet.fate) {
            let of = paths.entry(ends(model, packet)).or_default();
            of.packets += 1;
            of.minima.add(packet.length, ns);
        }
    }
    for rpc in &model.rpcs {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let message = rpc.message(direction);
            let began = message.first_sent.or(message.first_grant);
            if message.first_grant.is_some() && select.at(began) {
                let (sender, receiver) = (rpc.sender(direction), rpc.receiver(direction));
                if select.pair(sender, receiver) {
                    let of = paths.entry((sender, receiver)).or_default();
                    of.messages += 1;
                    of.waited += u64::from(message.first_wait_grant.is_some());
                    rounds(model, rpc, direction, &mut of.rounds);
                }
            }
        }
    }
    let payload = u64::from(full - DATA_HEADER_BYTES);
    let mut paths: Vec<PathBytes> =
        paths.into_iter().map(|(pair, of)| path(model, pair, of, &rate, full, payload)).collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.round_ns.map_or(0, |found| found.count)));
    RttBytes { rate, paths }
}

fn path(
    model: &Model,
    (sender, receiver): (NodeId, NodeId),
    mut of: PathSamples,
    rate: &LinkRate,
    full: u32,
    payload: u64,
) -> PathBytes {
    let per_ns = payload as f64 / rate.ns(Load::packet(full));
    let mut bytes: Vec<i64> = of.rounds.iter().map(|ns| (*ns as f64 * per_ns) as i64).collect();
    let bytes = Percentiles::of(&mut bytes);
    let line = of.minima.least_squares();
    PathBytes {
        sender: model.name(sender).to_owned(),
        receiver: model.name(receiver).to_owned(),
        round_ns: Percentiles::of(&mut of.rounds),
        bytes,
        rtt_bytes: bytes.map(|bytes| (bytes.p90.max(1) as u64).div_ceil(payload).saturating_mul(payload)),
        messages: of.messages,
        waited: of.waited,
        packets: of.packets,
        lengths: of.minima.lengths() as u64,
        line,
        residual_ns: line.and_then(|line| of.minima.residuals(line)),
    }
}

/// Adds, for each grant of a message, the time from sending the packet that caused the grant until the sender
/// receives the grant.
fn rounds(model: &Model, rpc: &Rpc, direction: Direction, rounds: &mut Vec<i64>) {
    let data = model.data_of(rpc.message(direction));
    let mut last = None::<u32>;
    let mut causes: HashMap<u32, u32, FixedState> = HashMap::default();
    for (_, record) in model.events_of(rpc) {
        let by_sender = (record.id & 1 == 0) == (direction == Direction::ToServer);
        match record.event() {
            Some(EventKind::PacketReceived) if !by_sender && packet_word_parts(record.a).0 == DATA => {
                last = Some(record.b);
            }
            Some(EventKind::GrantSent) if !by_sender => {
                // If several grants follow one packet, the packet caused the first of them. The later ones
                // waited for something else.
                if let Some(cause) = last.take() {
                    causes.insert(record.a, cause);
                }
            }
            Some(EventKind::GrantReceived) if by_sender => {
                let Some(offset) = causes.remove(&record.a) else { continue };
                let at = data.partition_point(|packet| packet.offset < offset);
                let of = data.get(at).filter(|packet| packet.offset == offset && packet.received.is_some());
                rounds.extend(of.and_then(|packet| {
                    let round = record.time.checked_sub(packet.sent.ns()?)?;
                    i64::try_from(round).ok()
                }));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, SERVER, Writer};
    use super::*;
    use crate::link::RateSource;

    #[test]
    fn the_bytes_are_what_the_link_takes_until_the_grant_is_there() {
        let mut writer = Writer::new();
        for index in 0..10_u32 {
            let sent = 1_000 + u64::from(index) * 1_000;
            writer.data(index * 944, sent, sent + 3_000);
            writer.at(SERVER, sent + 3_050, EventKind::GrantSent, 10_000 + index, 1);
            // The server's clock does not matter. At the client the round trips take 4,000 ns, and one takes
            // 8,000 ns.
            let came = sent + if index == 9 { 8_000 } else { 4_000 };
            writer.at(CLIENT, came, EventKind::GrantReceived, 10_000 + index, 1);
        }
        let rate = LinkRate { bps: 8e9, source: RateSource::Given, overhead_bytes: 0 };
        let found = rtt_bytes(&writer.model(), &Select::default(), rate);
        let path = &found.paths[0];
        assert_eq!((path.sender.as_str(), path.receiver.as_str(), path.messages), ("c", "s", 1));
        assert_eq!(path.round_ns.map(|found| (found.count, found.p0, found.p100)), Some((10, 4_000, 8_000)));
        // 4,000 bytes of packets contain 944/1,000 payload: 3,776 bytes, which is four packets.
        assert_eq!((path.bytes.map(|found| found.p50), path.rtt_bytes), (Some(3_776), Some(3_776)));
        assert_eq!((path.lengths, path.line), (1, None));
    }
}
