//! What packets take on each path when nothing delays them.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::packet::ends;
use super::path::{Line, Minima};
use crate::model::{Model, NodeId, Packet};

type Pair = (NodeId, NodeId);

/// Packets that must have come as fast as the fastest, to their length, for a path's best case to be what the path takes: any number of
/// packets that were all delayed have a fastest one, but not several of the same delay.
const ALIKE: u32 = 3;

/// The best case of each pair of hosts, one way, and how many packets had it.
pub(super) struct Best(HashMap<Pair, (Line, u32), FixedState>);

impl Best {
    /// Of this delay of packets: a lower line for each pair; those whose packets give no slope have that of all pairs.
    pub(super) fn of(model: &Model, delay: fn(&Packet) -> Option<i64>) -> Best {
        let mut pairs: BTreeMap<Pair, Minima> = BTreeMap::new();
        for packet in &model.packets {
            if let Some(ns) = delay(packet) {
                pairs.entry(ends(model, packet)).or_default().add(packet.length, ns);
            }
        }
        let mut all = Minima::default();
        pairs.values().for_each(|minima| all.join(minima));
        let whole = all.lower_line(None);
        let line = |(pair, minima): (Pair, Minima)| Some((pair, (minima.lower_line(whole)?, 0)));
        Best(pairs.into_iter().filter_map(line).collect())
    }

    /// The same, with a count of the packets that took no more than `within_ns` longer than the best case, and may have gone undelayed by all
    /// else that is known of them.
    pub(super) fn counted(
        model: &Model,
        delay: fn(&Packet) -> Option<i64>,
        within_ns: f64,
        may_be: impl Fn(&Packet) -> bool,
    ) -> Best {
        let mut best = Best::of(model, delay);
        for packet in &model.packets {
            let of = delay(packet).and_then(|ns| Some((ns, best.0.get_mut(&ends(model, packet))?)));
            if let Some((ns, (line, alike))) = of
                && ns as f64 <= line.ns(packet.length) + within_ns
                && may_be(packet)
            {
                *alike = alike.saturating_add(1);
            }
        }
        best
    }

    /// Whether some packets between these hosts went undelayed, as far as is known: several took the same, and none less.
    pub(super) fn is_sure(&self, pair: Pair) -> bool {
        self.0.get(&pair).is_some_and(|(_, alike)| *alike >= ALIKE)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nanoseconds of such a packet between these hosts, rounded down.
    pub(super) fn ns(&self, pair: Pair, length: u32) -> Option<i64> {
        Some(self.0.get(&pair)?.0.ns(length).floor() as i64)
    }
}
