//! The choice of how clocks are compared, and warnings about the result.

use homa_trace::Dump;

use super::{AlignOptions, Clocks, align, apply, one_clock};

/// How the clocks of a set of dumps are compared. By default, packets are used unless the dumps indicate that
/// they are from one machine or from one simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChoice {
    /// Index of the node whose time all other nodes adopt. Implies a comparison by packets.
    pub reference: Option<usize>,
    /// Whether all nodes share one clock, regardless of what the dumps indicate.
    pub same_clock: bool,
    /// Whether to compare by packets, even on one machine.
    pub by_packets: bool,
}

impl ClockChoice {
    /// Compares the clocks. The dumps are not modified.
    #[must_use]
    pub fn clocks(self, dumps: &[Dump]) -> Clocks {
        let by_packets = self.by_packets || self.reference.is_some();
        let same_clock = self.same_clock || !by_packets && is_one_clock(dumps);
        align(dumps, AlignOptions { reference: self.reference, same_clock })
    }

    /// Aligns dumps that are not aligned yet, or all dumps if the choice is explicit. Returns warnings.
    #[must_use]
    pub fn apply(self, dumps: &mut [Dump]) -> Vec<String> {
        let is_explicit = self != ClockChoice::default();
        let is_needed = dumps.iter().any(|dump| dump.alignment.is_none()) && dumps.len() > 1;
        if !is_explicit && !is_needed {
            return Vec::new();
        }
        let is_simulated = !is_explicit && dumps.iter().all(Dump::is_simulated);
        let clocks = if is_simulated { one_clock(dumps) } else { self.clocks(dumps) };
        let warnings = warnings(dumps, &clocks);
        apply(&clocks, dumps);
        warnings
    }
}

/// Returns whether all dumps share one clock: that of a machine, or that of a simulation.
fn is_one_clock(dumps: &[Dump]) -> bool {
    let first = dumps.first().map_or(0, |dump| dump.node.machine);
    dumps.iter().all(Dump::is_simulated) || first != 0 && dumps.iter().all(|dump| dump.node.machine == first)
}

/// Tolerance for packets that arrive before they were sent, in nanoseconds. Rounding cannot explain more.
const DOUBT_NS: f64 = 50.0;

/// Returns warnings about the times of dumps with these clocks, one sentence each.
#[must_use]
pub fn warnings(dumps: &[Dump], clocks: &Clocks) -> Vec<String> {
    let name = |node: usize| dumps[node].node.name.as_str();
    let mut warnings = Vec::new();
    if dumps.len() == 1 {
        return warnings;
    }
    let mut references: Vec<usize> = clocks.nodes.iter().filter_map(|node| node.reference).collect();
    references.sort_unstable();
    references.dedup();
    if references.len() > 1 {
        let names: Vec<&str> = references.iter().map(|node| name(*node)).collect();
        warnings.push(format!(
            "there are {} groups of nodes without packets between them, with the times of {}: do not compare times across groups",
            names.len(),
            names.join(", ")
        ));
    }
    for (node, clock) in clocks.nodes.iter().enumerate().filter(|(_, clock)| clock.reference.is_none()) {
        let why = match (dumps[node].records.is_empty(), clock.packets) {
            (true, _) => "its trace is empty",
            (false, 0) => "no packet of it is in another trace",
            (false, _) => "its packets to and from other traced nodes went one way only",
        };
        warnings.push(format!("{} keeps its own time: {why}", name(node)));
    }
    for pair in &clocks.pairs {
        let Some([there, back]) = pair.shortest_ns else { continue };
        let least = there.min(back);
        if least < -DOUBT_NS {
            let (from, to) = if there < back { (pair.first, pair.second) } else { (pair.second, pair.first) };
            warnings.push(format!(
                "a packet from {} to {} arrives {:.3} us before it was sent: a clock was set or does not run steadily",
                name(from),
                name(to),
                -least / 1e3
            ));
        }
    }
    warnings
}
