//! What is in a set of traces.

use homa_trace::{EventKind, NodeKind, packet_word_parts};

use crate::cause::Amounts;
use crate::critical_path::{Explainer, Path};
use crate::model::{DATA, Fate, Model, Rpc};
use crate::parallel::in_parts;
use crate::tail::{Cost, Costs};

/// Largest sizes of the classes in bytes, inclusive; the last class has no largest.
pub const SIZES: [u32; 10] = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];

/// The class of an RPC, by its longer message: 0 to [`SIZES`]`.len()`.
#[must_use]
pub fn size_class(rpc: &Rpc) -> usize {
    let size = rpc.request.length.max(rpc.response.length);
    SIZES.partition_point(|most| *most < size)
}

/// A node in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSummary {
    /// Events that are there.
    pub events: u64,
    /// Events that were overwritten.
    pub overwritten: u64,
    /// From its first event to its last, in nanoseconds.
    pub span_ns: u64,
    /// Of a host packets sent; of a switch packets that left it.
    pub packets_out: u64,
    /// Their bytes, headers of Homa included.
    pub bytes_out: u64,
    /// Of a host packets received; of a switch packets that entered it.
    pub packets_in: u64,
    /// Their bytes, headers of Homa included.
    pub bytes_in: u64,
    /// Of a host packets that it dropped on receipt, of a switch those that it had no room for.
    pub dropped: u64,
    /// GRANTs sent.
    pub grants: u64,
    /// RESENDs sent.
    pub resends: u64,
}

/// RPCs of a class of size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SizeSummary {
    /// Largest size in bytes, inclusive; `None`: no limit.
    pub up_to: Option<u32>,
    /// Whole RPCs.
    pub rpcs: usize,
    /// Duration in nanoseconds: P50, P99, largest.
    pub duration_ns: [u64; 3],
    /// Slowdown: P50, P99, largest.
    pub slowdown: [f64; 3],
    /// What they took together, by cause.
    pub amounts: Amounts,
    /// What of it need not have been.
    pub extra: Amounts,
}

/// Everything in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// In the order of the model.
    pub nodes: Vec<NodeSummary>,
    /// All RPCs, and those whose start and successful end are there, that failed, and the rest, cut off at an end of the trace.
    pub rpcs: usize,
    /// See `rpcs`.
    pub whole: usize,
    /// See `rpcs`.
    pub failed: usize,
    /// See `rpcs`.
    pub cut_off: usize,
    /// DATA packets, and of those the ones sent again, dropped by a switch, and lost anywhere else.
    pub data_packets: u64,
    /// See `data_packets`.
    pub sent_again: u64,
    /// See `data_packets`.
    pub dropped: u64,
    /// See `data_packets`.
    pub lost: u64,
    /// By size; classes without RPCs are left out.
    pub sizes: Vec<SizeSummary>,
}

impl Summary {
    /// Counts everything; durations are those of the chosen RPCs.
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

/// What these RPCs took together, and what of it need not have been.
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
