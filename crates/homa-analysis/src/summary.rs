//! A summary of a set of traces.

use homa_trace::{EventKind, NodeKind, packet_word_parts};

use crate::cause::Amounts;
use crate::critical_path::{Explainer, Path};
use crate::model::{DATA, Fate, Model, Rpc};
use crate::parallel::in_parts;
use crate::tail::{Cost, Costs};

/// Inclusive maximum sizes of the classes in bytes; the last class has no maximum.
pub const SIZES: [u32; 10] = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];

/// Returns the class of an RPC by its longer message: 0 to [`SIZES`]`.len()`.
#[must_use]
pub fn size_class(rpc: &Rpc) -> usize {
    let size = rpc.request.length.max(rpc.response.length);
    SIZES.partition_point(|most| *most < size)
}

/// Counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSummary {
    /// Number of events in the trace.
    pub events: u64,
    /// Number of events that were overwritten.
    pub overwritten: u64,
    /// Time from the node's first to its last event, in nanoseconds.
    pub span_ns: u64,
    /// Packets sent (host) or forwarded (switch).
    pub packets_out: u64,
    /// Bytes of these packets, including Homa headers.
    pub bytes_out: u64,
    /// Packets received (host) or queued (switch).
    pub packets_in: u64,
    /// Bytes of these packets, including Homa headers.
    pub bytes_in: u64,
    /// Packets dropped on receipt (host) or for lack of space (switch).
    pub dropped: u64,
    /// GRANTs sent.
    pub grants: u64,
    /// RESENDs sent.
    pub resends: u64,
}

/// The RPCs of one size class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeSummary {
    /// Maximum size in bytes, inclusive; `None`: no limit.
    pub up_to: Option<u32>,
    /// Number of complete RPCs.
    pub rpcs: usize,
    /// Duration in nanoseconds: P50, P99, maximum.
    pub duration_ns: [u64; 3],
    /// Slowdown: P50, P99, maximum.
    pub slowdown: [f64; 3],
    /// Total time by cause.
    pub amounts: Amounts,
    /// Avoidable part of the total time, by cause.
    pub extra: Amounts,
}

/// A summary of all traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The nodes, in the order of the model.
    pub nodes: Vec<NodeSummary>,
    /// Number of all RPCs.
    pub rpcs: usize,
    /// Number of RPCs whose start and successful end are in the traces.
    pub whole: usize,
    /// Number of RPCs that failed.
    pub failed: usize,
    /// Number of the remaining RPCs, which are cut off at an end of a trace.
    pub cut_off: usize,
    /// Number of DATA packets.
    pub data_packets: u64,
    /// Number of DATA packets that were retransmissions.
    pub sent_again: u64,
    /// Number of DATA packets dropped by a switch.
    pub dropped: u64,
    /// Number of DATA packets lost elsewhere.
    pub lost: u64,
    /// Size classes; empty ones are left out.
    pub sizes: Vec<SizeSummary>,
}

impl Summary {
    /// Summarizes all traces. Durations are those of the chosen RPCs only.
    #[must_use]
    pub fn of(explainer: &Explainer<'_>, costs: &Costs, chosen: &[Cost]) -> Summary {
        let model = explainer.model;
        let mut summary = Summary { nodes: nodes(model), rpcs: model.rpcs.len(), ..Summary::default() };
        for rpc in &model.rpcs {
            match rpc.result {
                Some(0) if rpc.duration_ns().is_some() => summary.whole += 1,
                Some(error) if error != 0 => summary.failed += 1,
                _ => summary.cut_off += 1,
            }
        }
        for packet in model.packets.iter().filter(|packet| packet.packet_type == DATA) {
            summary.data_packets += 1;
            summary.sent_again += u64::from(packet.again);
            summary.dropped += u64::from(matches!(packet.fate, Fate::Dropped(_)));
            summary.lost += u64::from(packet.fate == Fate::Lost);
        }
        summary.sizes = sizes(explainer, costs, chosen);
        summary
    }
}

fn nodes(model: &Model) -> Vec<NodeSummary> {
    let summary = |node: &crate::model::Node| {
        let ends = node.records.first().zip(node.records.last());
        let mut of = NodeSummary {
            events: node.records.len() as u64,
            overwritten: node.overwritten,
            span_ns: ends.map_or(0, |(first, last)| last.time - first.time),
            ..NodeSummary::default()
        };
        for record in &node.records {
            let bytes = u64::from(packet_word_parts(record.a).1);
            match (node.kind, record.event()) {
                (NodeKind::Host, Some(EventKind::PacketSent))
                | (NodeKind::Switch, Some(EventKind::SwitchLeft)) => {
                    (of.packets_out, of.bytes_out) = (of.packets_out + 1, of.bytes_out + bytes);
                }
                (NodeKind::Host, Some(EventKind::PacketReceived))
                | (NodeKind::Switch, Some(EventKind::SwitchEntered)) => {
                    (of.packets_in, of.bytes_in) = (of.packets_in + 1, of.bytes_in + bytes);
                }
                (_, Some(EventKind::PacketDropped | EventKind::SwitchDropped)) => of.dropped += 1,
                (_, Some(EventKind::GrantSent)) => of.grants += 1,
                (_, Some(EventKind::ResendSent)) => of.resends += 1,
                _ => {}
            }
        }
        of
    };
    model.nodes.iter().map(summary).collect()
}

fn sizes(explainer: &Explainer<'_>, costs: &Costs, chosen: &[Cost]) -> Vec<SizeSummary> {
    let mut classes: Vec<Vec<Cost>> = vec![Vec::new(); SIZES.len() + 1];
    for cost in chosen {
        classes[size_class(&explainer.model.rpcs[cost.rpc as usize])].push(*cost);
    }
    let summary = |(class, costs_of): (usize, Vec<Cost>)| {
        let mut of =
            SizeSummary { up_to: SIZES.get(class).copied(), rpcs: costs_of.len(), ..SizeSummary::default() };
        let mut durations: Vec<u64> = costs_of.iter().map(|cost| cost.duration_ns).collect();
        let mut slowdowns: Vec<f64> = costs_of.iter().map(Cost::slowdown).collect();
        durations.sort_unstable();
        slowdowns.sort_by(f64::total_cmp);
        for (place, percent) in [50, 99, 100].into_iter().enumerate() {
            let index = (costs_of.len() * percent).div_ceil(100).max(1) - 1;
            (of.duration_ns[place], of.slowdown[place]) = (durations[index], slowdowns[index]);
        }
        for (amounts, extra) in in_parts(costs_of.len(), |part| amounts_of(explainer, costs, &costs_of[part]))
        {
            of.amounts.add(&amounts);
            of.extra.add(&extra);
        }
        of
    };
    classes.into_iter().enumerate().filter(|(_, costs)| !costs.is_empty()).map(summary).collect()
}

/// Returns the total and the avoidable time, summed over these RPCs.
fn amounts_of(explainer: &Explainer<'_>, costs: &Costs, chosen: &[Cost]) -> (Amounts, Amounts) {
    let (mut amounts, mut extra) = (Amounts::default(), Amounts::default());
    let mut path = Path::default();
    for cost in chosen {
        let rpc = &explainer.model.rpcs[cost.rpc as usize];
        explainer.explain(rpc, &mut path);
        amounts.add(&path.amounts);
        extra.add(&costs.extra(rpc, &path.amounts));
    }
    (amounts, extra)
}
