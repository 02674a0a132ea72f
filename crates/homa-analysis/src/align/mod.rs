//! A common time for many nodes, derived from the packets between them.
//!
//! A packet arrives after it was sent. Packets from `a` to `b` therefore give an upper bound on how far `b`'s
//! clock is ahead, and packets from `b` to `a` give a lower bound. Over time, the bounds form a band. If both
//! clocks run at constant rates, their difference is a straight line within the band.
//!
//! The band alone determines the slope of the line (the drift), but not its height (the offset). The shortest
//! times in the two directions are assumed to be equal, which places the line in the middle of the band. If
//! these times differ, the offset is wrong by half of the difference. The error is at most half of the
//! shortest round trip, whatever the network does.
//!
//! A weighted least-squares fit over all pairs gives each node one clock. A pair has more weight if its band
//! is narrow. A switch is treated like any other node, with one exception. The path from a host's stack to a
//! switch's queue differs from the path from the switch's link to a host's stack, so these times are not
//! assumed to be equal. A switch is placed between the hosts and does not shift their clocks.

mod choice;
mod fit;
mod hull;
mod solve;

use homa_trace::{Alignment, Dump, NodeKind};

pub use choice::{ClockChoice, warnings};

use crate::packets::passages;
use fit::Fit;
use hull::Point;
use solve::{ClockEstimate, Edge};

/// Maximum plausible uptime, 73 years. Records with a later time are ignored.
const LATEST_NS: u64 = 1 << 61;
/// Error of a clock that is read twice for calibration, in nanoseconds.
const ANCHOR_NS: f64 = 50.0;

/// Assumptions for the alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlignOptions {
    /// Index of the node whose time all other nodes adopt. Default: the first host that exchanged packets
    /// with another node.
    pub reference: Option<usize>,
    /// Whether all dumps were made on one machine, with its `CLOCK_MONOTONIC_RAW`. If so, no clock is
    /// shifted, and packets serve only to check this assumption.
    pub same_clock: bool,
}

/// The clocks of a set of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Clocks {
    /// One clock per dump, in the order of the dumps.
    pub nodes: Vec<NodeClock>,
    /// The pairs of nodes that exchanged packets, sorted by the index of the first and then of the second
    /// node.
    pub pairs: Vec<PairClock>,
}

/// The alignment of one node's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClock {
    /// The node whose time this node has adopted (this node itself, if it is the reference). `None`: no
    /// packets connect this node to another one, so it keeps its own time.
    pub reference: Option<usize>,
    /// The alignment for the node's dump; present whenever `reference` is.
    pub alignment: Option<Alignment>,
    /// Nanoseconds added to the node's times, as of the middle of its records.
    pub offset_ns: f64,
    /// Additional correction in microseconds per second, that is, in parts per million.
    pub drift_ppm: f64,
    /// Likely error of the node's times in nanoseconds, derived from the scatter of the packets. It assumes
    /// that the shortest paths in the two directions take the same time.
    pub likely_ns: f64,
    /// Likely error of the drift, in parts per million.
    pub likely_ppm: f64,
    /// Maximum error of the node's times in nanoseconds, derived from the fact that no packet arrives before
    /// it was sent.
    pub bound_ns: f64,
    /// Number of packets to and from the node that another node's trace also contains.
    pub packets: u64,
}

/// The result for one pair of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PairClock {
    /// The node with the smaller index.
    pub first: usize,
    /// The node with the larger index.
    pub second: usize,
    /// Number of packets from the first node to the second, and back.
    pub packets: [u64; 2],
    /// The shortest time in each direction according to the aligned clocks, in nanoseconds; `None` unless
    /// there are packets in both directions. A negative time shows that the assumptions about the clocks are
    /// wrong.
    pub shortest_ns: Option<[f64; 2]>,
}

/// Aligns the clocks of these dumps, ignoring any earlier alignment. The dumps are not modified: see
/// [`apply`].
#[must_use]
pub fn align(dumps: &[Dump], options: AlignOptions) -> Clocks {
    let (mut pairs, edges) = pairs(dumps);
    let mut nodes: Vec<NodeClock> = (0..dumps.len()).map(|_| NodeClock::unknown()).collect();
    for pair in &pairs {
        let packets: u64 = pair.packets.iter().sum();
        nodes[pair.first].packets += packets;
        nodes[pair.second].packets += packets;
    }
    let middles: Vec<i64> = dumps.iter().map(middle).collect();
    let estimates = if options.same_clock {
        same_clock_estimates(dumps, options.reference.unwrap_or(0), &middles, &mut nodes)
    } else {
        groups(dumps, &edges, options.reference, &middles, &mut nodes)
    };
    for pair in &mut pairs {
        // Both lists are sorted by their nodes.
        let edge = edges.binary_search_by_key(&(pair.first, pair.second), |edge| (edge.first, edge.second));
        let (Ok(edge), Some(first), Some(second)) = (edge, estimates[pair.first], estimates[pair.second])
        else {
            continue;
        };
        let edge = &edges[edge];
        let (ahead, _) = solve::disagreement(edge, &first, &second);
        let half = edge.fit.round_trip / 2.0;
        pair.shortest_ns = Some([half + ahead, half - ahead]);
    }
    Clocks { nodes, pairs }
}

/// Like [`align()`], for dumps that are known to share one clock, as in a simulation. Does not examine
/// packets.
#[must_use]
pub fn one_clock(dumps: &[Dump]) -> Clocks {
    let mut nodes: Vec<NodeClock> = (0..dumps.len()).map(|_| NodeClock::unknown()).collect();
    let middles: Vec<i64> = dumps.iter().map(middle).collect();
    same_clock_estimates(dumps, 0, &middles, &mut nodes);
    Clocks { nodes, pairs: Vec::new() }
}

/// Writes the result to the dumps from which it was computed. Dumps of nodes without a reference lose any
/// earlier alignment.
pub fn apply(clocks: &Clocks, dumps: &mut [Dump]) {
    for (dump, node) in dumps.iter_mut().zip(&clocks.nodes) {
        dump.alignment = node.alignment;
    }
}

impl NodeClock {
    fn unknown() -> NodeClock {
        NodeClock {
            reference: None,
            alignment: None,
            offset_ns: 0.0,
            drift_ppm: 0.0,
            likely_ns: 0.0,
            likely_ppm: 0.0,
            bound_ns: 0.0,
            packets: 0,
        }
    }

    /// Sets the fields that are derived from the estimate. `start` and `middle` are times on the node's
    /// clock.
    fn set(&mut self, estimate: &ClockEstimate, start: i64, middle: i64, bound_ns: f64) {
        let (whole, part) = estimate.correction(middle);
        let drift_ppb = (estimate.drift * 1e9).round();
        // The drift in the dump is rounded. Choose the offset at the start so that the error is smallest in
        // the middle of the records.
        let since_start = middle.saturating_sub(start) as f64 * drift_ppb / 1e9;
        let offset_ns = whole.saturating_add((part - since_start).round() as i64);
        self.alignment = Some(Alignment {
            offset_ns,
            drift_ppb: drift_ppb as i64,
            uncertainty_ns: bound_ns.max(0.0).ceil() as u64,
        });
        self.offset_ns = whole as f64 + part;
        self.drift_ppm = estimate.drift * 1e6;
        self.bound_ns = bound_ns;
    }
}

/// Returns the time in the middle of a dump's records, on the dump's own clock.
fn middle(dump: &Dump) -> i64 {
    let time = |record| dump.own_time_ns(record).min(LATEST_NS) as i64;
    let ends = dump.records.first().map(time).zip(dump.records.last().map(time));
    ends.map_or(start(dump), |(first, last)| first.midpoint(last))
}

fn start(dump: &Dump) -> i64 {
    dump.start_ns.min(LATEST_NS) as i64
}

/// Returns the estimates for nodes that all share the machine's clock.
fn same_clock_estimates(
    dumps: &[Dump],
    reference: usize,
    middles: &[i64],
    nodes: &mut [NodeClock],
) -> Vec<Option<ClockEstimate>> {
    for ((node, dump), middle) in nodes.iter_mut().zip(dumps).zip(middles) {
        let estimate = ClockEstimate { own: *middle, shared: *middle, part: 0.0, drift: 0.0 };
        let ppm = dump.calibration_error_ppb() as f64 / 1e3;
        let error = ANCHOR_NS + middle.abs_diff(start(dump)) as f64 * ppm / 1e6;
        node.set(&estimate, start(dump), *middle, error);
        node.reference = Some(reference);
        (node.likely_ns, node.likely_ppm) = (error, ppm);
    }
    middles
        .iter()
        .map(|middle| Some(ClockEstimate { own: *middle, shared: *middle, part: 0.0, drift: 0.0 }))
        .collect()
}

/// Aligns each group of nodes connected by packets, and stores the result for each node.
fn groups(
    dumps: &[Dump],
    edges: &[Edge],
    reference: Option<usize>,
    middles: &[i64],
    nodes: &mut [NodeClock],
) -> Vec<Option<ClockEstimate>> {
    let mut estimates = vec![None; dumps.len()];
    let mut wanted: Vec<usize> = (0..dumps.len()).collect();
    wanted.sort_by_key(|node| (reference != Some(*node), dumps[*node].node.kind == NodeKind::Switch));
    for start_node in wanted {
        if nodes[start_node].reference.is_some() {
            continue;
        }
        let reached = solve::shortest_paths(dumps.len(), edges, start_node, middles[start_node]);
        if reached.len() == 1 && reference != Some(start_node) {
            continue;
        }
        let mut group = vec![None; dumps.len()];
        for (node, reached) in &reached {
            group[*node] = Some(reached.estimate);
        }
        solve::refine(&mut group, edges, start_node);
        let bounds = solve::distances(dumps.len(), edges, start_node, |edge| {
            let estimates = group[edge.first].zip(group[edge.second]);
            let ahead =
                estimates.map_or(0.0, |(first, second)| solve::disagreement(edge, &first, &second).0.abs());
            ahead + edge.fit.round_trip.abs() / 2.0
        });
        for (index, reached) in reached {
            let (node, Some(estimate)) = (&mut nodes[index], group[index]) else { continue };
            node.set(&estimate, start(&dumps[index]), middles[index], bounds[index]);
            node.reference = Some(start_node);
            let likely_ns = reached.variance.sqrt().min(bounds[index]);
            (node.likely_ns, node.likely_ppm) = (likely_ns, reached.drift_error * 1e6);
            estimates[index] = Some(estimate);
        }
    }
    estimates
}

/// The passage of a packet, as used for its pair: the pair, whether the packet goes backward, and the bound
/// on the difference of the two clocks.
type Sample = (u32, bool, Point);

/// Returns all pairs, and an edge for each pair that has packets in both directions.
fn pairs(dumps: &[Dump]) -> (Vec<PairClock>, Vec<Edge>) {
    let mut samples: Vec<Sample> =
        passages(dumps).iter().filter_map(|passage| sample(dumps, passage)).collect();
    samples.sort_unstable();
    let (mut pairs, mut edges) = (Vec::new(), Vec::new());
    for of_pair in samples.chunk_by(|a, b| a.0 == b.0) {
        let forward = of_pair.partition_point(|sample| !sample.1);
        let points = |samples: &[Sample]| samples.iter().map(|sample| sample.2).collect::<Vec<Point>>();
        let (mut upper, mut lower) = (points(&of_pair[..forward]), points(&of_pair[forward..]));
        let (first, second) = ((of_pair[0].0 >> 16) as usize, (of_pair[0].0 & 0xffff) as usize);
        let packets = [upper.len() as u64, lower.len() as u64];
        pairs.push(PairClock { first, second, packets, shortest_ns: None });
        if let Some(fit) = Fit::new(&mut upper, &mut lower) {
            let at_switch = [first, second].iter().any(|node| dumps[*node].node.kind == NodeKind::Switch);
            let unequal = if at_switch { fit.round_trip.abs() / 2.0 } else { 0.0 };
            edges.push(Edge { first, second, fit, value_error: fit.value_error.max(unequal) });
        }
    }
    (pairs, edges)
}

/// Returns the bound given by one passage: its time on the first node's clock, and the maximum (forward) or
/// minimum (backward) lead of the second node's clock.
fn sample(dumps: &[Dump], passage: &crate::packets::Passage) -> Option<Sample> {
    let time = |node: u16, record: u32| {
        let dump = &dumps[usize::from(node)];
        let ns = dump.own_time_ns(&dump.records[record as usize]);
        (ns <= LATEST_NS).then_some(ns as i64)
    };
    let (left, came) = (time(passage.from, passage.left)?, time(passage.to, passage.came)?);
    let backward = passage.from > passage.to;
    let (first, second) = if backward { (passage.to, passage.from) } else { (passage.from, passage.to) };
    let point = if backward { Point { x: came, y: left - came } } else { Point { x: left, y: came - left } };
    Some((u32::from(first) << 16 | u32::from(second), backward, point))
}

#[cfg(test)]
mod tests;
