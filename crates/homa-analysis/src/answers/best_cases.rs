//! The delay of packets on each path if nothing delays them.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::packet::ends;
use super::path::{Line, Minima};
use crate::model::{Model, NodeId, Packet};

type Pair = (NodeId, NodeId);

/// Minimum number of packets that are equally fast for their length, so that their delay counts as the path's
/// best case. Delayed packets also include a fastest one, but not several with the same delay.
const ALIKE: u32 = 3;

/// The best case for each pair of hosts in one direction, and the number of packets that reached it.
pub(super) struct BestCases(HashMap<Pair, (Line, u32), FixedState>);

impl BestCases {
    /// Computes a lower line of this delay for each pair. A pair whose packets do not determine a slope gets
    /// the slope of all pairs.
    pub(super) fn of(model: &Model, delay: fn(&Packet) -> Option<i64>) -> BestCases {
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
        BestCases(pairs.into_iter().filter_map(line).collect())
    }

    /// Like [`BestCases::of`], but also counts the packets within `within_ns` of the best case, except those
    /// that `may_be` excludes.
    pub(super) fn counted(
        model: &Model,
        delay: fn(&Packet) -> Option<i64>,
        within_ns: f64,
        may_be: impl Fn(&Packet) -> bool,
    ) -> BestCases {
        let mut best_cases = BestCases::of(model, delay);
        for packet in &model.packets {
            let of = delay(packet).and_then(|ns| Some((ns, best_cases.0.get_mut(&ends(model, packet))?)));
            if let Some((ns, (line, alike))) = of
                && ns as f64 <= line.ns(packet.length) + within_ns
                && may_be(packet)
            {
                *alike = alike.saturating_add(1);
            }
        }
        best_cases
    }

    /// Returns whether several packets between these hosts reached the best case, so that it is probably the
    /// undelayed time.
    pub(super) fn is_reliable(&self, pair: Pair) -> bool {
        self.0.get(&pair).is_some_and(|(_, alike)| *alike >= ALIKE)
    }

    /// Returns whether no pair has a best case.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the best case of a packet between these hosts in nanoseconds, rounded down.
    pub(super) fn ns(&self, pair: Pair, length: u32) -> Option<i64> {
        Some(self.0.get(&pair)?.0.ns(length).floor() as i64)
    }
}
