//! Bytes in and out of each host, by interval.

use homa_trace::{EventKind, NodeKind, packet_word_parts};
use serde::Serialize;

use super::packet::{ends, payload};
use super::select::Select;
use crate::model::DATA;
use crate::model::{Model, NodeId};

/// Maximum number of intervals, inclusive. A longer range of time gets longer intervals.
const INTERVALS_MAX: usize = 100_000;

/// Bytes that a host sent and received, by interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeThroughput {
    /// Name of the host.
    pub node: String,
    /// Bytes of all packets that the host sent.
    pub out_bytes: Vec<u64>,
    /// Bytes of all packets that the host processed.
    pub in_bytes: Vec<u64>,
    /// Payload that the host processed for the first time.
    pub goodput_bytes: Vec<u64>,
    /// Bytes of DATA packets that the host retransmitted.
    pub again_bytes: Vec<u64>,
}

/// The result of [`throughput`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Start of the first interval, in nanoseconds since the zero of the model.
    pub from_ns: u64,
    /// Length of an interval in nanoseconds.
    pub interval_ns: u64,
    /// Number of intervals.
    pub intervals: usize,
    /// Each selected host.
    pub nodes: Vec<NodeThroughput>,
}

impl Throughput {
    /// Converts bytes per interval to a rate in Gbit/s.
    #[must_use]
    pub fn gbps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.interval_ns.max(1) as f64
    }
}

/// Counts bytes per interval of `interval_ns` nanoseconds. If there would be more than 100,000 intervals,
/// they are made longer.
#[must_use]
pub fn throughput(model: &Model, select: &Select, interval_ns: u64) -> Throughput {
    let from_ns = select.from_ns;
    let times = model.nodes.iter().filter_map(|node| node.records.last()).map(|record| record.time);
    let end_ns = times.max().unwrap_or(0).min(select.until_ns.unwrap_or(u64::MAX).saturating_sub(1));
    let span_ns = end_ns.saturating_sub(from_ns);
    let interval_ns = interval_ns.max(1).max(span_ns.div_ceil(INTERVALS_MAX as u64 - 1));
    let intervals = (span_ns / interval_ns) as usize + 1;
    let slot = |ns: u64| select.time(ns).then(|| ((ns - from_ns) / interval_ns) as usize);
    let mut nodes: Vec<Option<NodeThroughput>> = model
        .nodes
        .iter()
        .enumerate()
        .map(|(number, node)| {
            (node.kind == NodeKind::Host && select.node(number as NodeId)).then(|| NodeThroughput {
                node: node.name.clone(),
                out_bytes: vec![0; intervals],
                in_bytes: vec![0; intervals],
                goodput_bytes: vec![0; intervals],
                again_bytes: vec![0; intervals],
            })
        })
        .collect();
    for (found, node) in nodes.iter_mut().zip(&model.nodes) {
        let Some(found) = found else { continue };
        for record in &node.records {
            let bytes = match record.event() {
                Some(EventKind::PacketSent) => &mut found.out_bytes,
                Some(EventKind::PacketReceived) => &mut found.in_bytes,
                _ => continue,
            };
            if let Some(slot) = slot(record.time) {
                bytes[slot] += u64::from(packet_word_parts(record.a).1);
            }
        }
    }
    let mut add =
        |node: NodeId, ns: Option<u64>, of: fn(&mut NodeThroughput) -> &mut Vec<u64>, bytes: u64| {
            let found = nodes.get_mut(usize::from(node)).and_then(Option::as_mut);
            if let (Some(found), Some(slot)) = (found, ns.and_then(slot)) {
                of(found)[slot] += bytes;
            }
        };
    // Whether an earlier packet with the same offset has arrived.
    let mut came = false;
    for packet in model.packets.iter().filter(|packet| packet.packet_type == DATA) {
        let (from, to) = ends(model, packet);
        if packet.again {
            add(from, packet.sent.ns(), |node| &mut node.again_bytes, packet.length.into());
        } else {
            came = false;
        }
        if packet.received.is_some() && !came {
            add(to, packet.received.ns(), |node| &mut node.goodput_bytes, payload(packet));
            came = true;
        }
    }
    Throughput { from_ns, interval_ns, intervals, nodes: nodes.into_iter().flatten().collect() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, WORD, Writer};
    use super::*;

    #[test]
    fn bytes_are_counted_where_they_pass_and_payload_once() {
        let mut writer = Writer::new();
        writer.data(0, 1_001, 1_250).data(944, 1_101, 2_400);
        writer.at(CLIENT, 2_100, EventKind::PacketSent, WORD, 0);
        writer.data(0, 2_101, 2_500);
        let found = throughput(&writer.model(), &Select::default(), 1_000);
        // The zero of the model is at 1,000, so there are two intervals.
        assert_eq!((found.intervals, found.nodes.len()), (2, 2));
        let [client, server] = &found.nodes[..] else { panic!("{found:?}") };
        assert_eq!((&client.out_bytes[..], &client.again_bytes[..]), (&[2_000, 2_000][..], &[0, 2_000][..]));
        assert_eq!((&server.in_bytes[..], &server.goodput_bytes[..]), (&[1_000, 2_000][..], &[944, 944][..]));
        assert_eq!(found.gbps(1_000), 8.0);
    }

    #[test]
    fn no_time_is_cut_into_too_many_pieces() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 10_000_000_000);
        let found = throughput(&writer.model(), &Select::default(), 1);
        assert!(found.intervals <= INTERVALS_MAX && found.interval_ns >= 99_000, "{}", found.interval_ns);
        let sum: u64 = found.nodes[1].in_bytes.iter().sum();
        assert_eq!(sum, 1_000);
    }
}
