//! What packets take on each path when nothing delays them.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::ends;
use super::path::{Line, Minima};
use crate::model::{Model, NodeId, Packet};

type Pair = (NodeId, NodeId);

/// The best case of each pair of hosts, one way.
pub(super) struct Best(HashMap<Pair, Line, FixedState>);

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
        let line = |(pair, minima): (Pair, Minima)| Some((pair, minima.lower_line(whole)?));
        Best(pairs.into_iter().filter_map(line).collect())
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nanoseconds of such a packet between these hosts, rounded down.
    pub(super) fn ns(&self, pair: Pair, length: u32) -> Option<i64> {
        Some(self.0.get(&pair)?.ns(length).floor() as i64)
    }
}
