//! Arrivals at each host over time.

use homa_trace::{EventKind, Record, packet_word_parts};

use crate::link::Load;
use crate::model::{Model, NodeId};
use crate::replay::{Replay, State};

/// Packets that hosts processed, by node.
pub(crate) struct Arrivals<'m>(Vec<Replay<'m, Load>>);

impl State for Load {
    fn add(&mut self, record: &Record) {
        if record.event() == Some(EventKind::PacketReceived) {
            *self += Load::packet(packet_word_parts(record.a).1);
        }
    }
}

impl<'m> Arrivals<'m> {
    pub(crate) fn new(model: &'m Model) -> Arrivals<'m> {
        let nodes = model.nodes.iter();
        Arrivals(nodes.map(|node| Replay::new(node.host_records(), Load::default())).collect())
    }

    /// Returns the arrivals at a node from one time, inclusive, to another, exclusive.
    pub(crate) fn between(&self, node: NodeId, from_ns: u64, until_ns: u64) -> Load {
        let Some(of) = self.0.get(usize::from(node)) else { return Load::default() };
        of.behind(of.index(until_ns)).less(of.behind(of.index(from_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::testing::{SERVER, Writer};
    use crate::model::NO_NODE;

    #[test]
    fn what_came_is_what_is_within() {
        let mut writer = Writer::new();
        writer.data(0, 1, 11).data(944, 2, 20);
        let model = writer.model();
        let arrivals = Arrivals::new(&model);
        let between = |from, until| arrivals.between(SERVER as NodeId, from, until).bytes;
        // The zero of the model is one nanosecond before the first event.
        assert_eq!(
            [between(11, 20), between(11, 21), between(12, 99), between(21, 99)],
            [1_000, 2_000, 1_000, 0]
        );
        assert_eq!(arrivals.between(NO_NODE, 0, 99), Load::default());
    }
}
