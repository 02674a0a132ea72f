//! The state of a node at any of its records, without storing an entry per record. A state is stored every
//! [`STEP`] records, and the records after it are replayed. Entries for ten million events would take a third
//! of the available memory.

use homa_trace::Record;

/// Number of records between two stored states. Replaying them takes tens of nanoseconds, apart from finding
/// the position.
const STEP: usize = 32;

/// A state computed from records in their order.
pub(crate) trait State: Clone {
    /// Updates the state with the next record.
    fn add(&mut self, record: &Record);
}

/// The states of a node over time.
pub(crate) struct Replay<'m, S> {
    records: &'m [Record],
    /// The state before each `STEP`th record. There is at least one.
    kept: Vec<S>,
}

impl<'m, S: State> Replay<'m, S> {
    /// Replays these records, which must be sorted by time, starting from this state.
    pub(crate) fn new(records: &'m [Record], mut state: S) -> Replay<'m, S> {
        let mut kept = Vec::with_capacity(records.len() / STEP + 1);
        kept.push(state.clone());
        for block in records.chunks_exact(STEP) {
            block.iter().for_each(|record| state.add(record));
            kept.push(state.clone());
        }
        Replay { records, kept }
    }

    pub(crate) const fn records(&self) -> &'m [Record] {
        self.records
    }

    /// Returns the index of the first record that is not before this time.
    pub(crate) fn index(&self, ns: u64) -> usize {
        self.records.partition_point(|record| record.time < ns)
    }

    /// Returns the state after this many records.
    pub(crate) fn behind(&self, count: usize) -> S {
        let place = count / STEP;
        let mut state = self.kept[place].clone();
        self.records[place * STEP..count].iter().for_each(|record| state.add(record));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_trace::{Clock, EventKind, Node, Trace};

    #[derive(Clone)]
    struct Sum(u64);

    impl State for Sum {
        fn add(&mut self, record: &Record) {
            self.0 += u64::from(record.a);
        }
    }

    #[test]
    fn states_are_those_of_going_through_all() {
        for count in [0, 1, STEP - 1, STEP, 3 * STEP, 3 * STEP + 5] {
            let mut trace = Trace::new(256, Clock::Virtual);
            for index in 0..count {
                trace.set_virtual_now(10 * index as u64);
                trace.record(EventKind::PacketSent, 2, index as u32, 0);
            }
            let dump = trace.dump(Node::host("h"));
            let replay = Replay::new(&dump.records, Sum(7));
            for behind in 0..=count {
                assert_eq!(replay.behind(behind).0, 7 + (0..behind as u64).sum::<u64>());
                assert_eq!(replay.index(10 * behind as u64), behind);
            }
        }
    }
}
